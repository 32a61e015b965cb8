//! Statistics of samples. Quantiles are samples, not bucket bounds.

/// The statistics of many samples, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The number of samples.
    pub count: usize,
    /// Arithmetic mean.
    pub avg: f64,
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Standard deviation, of the samples as a population.
    pub stddev: f64,
    /// Samples more than three standard deviations from the mean.
    pub outliers: usize,
    /// Quantiles 0.5, 0.9, 0.99, 0.999 and 0.9999; the largest sample if a quantile needs more samples.
    pub p50: u64,
    /// 90 of 100 samples are not above it.
    pub p90: u64,
    /// 99 of 100 samples are not above it.
    pub p99: u64,
    /// 999 of 1,000 samples are not above it.
    pub p999: u64,
    /// 9,999 of 10,000 samples are not above it.
    pub p9999: u64,
}

impl Summary {
    /// The statistics of samples in any order; `None` without samples.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
    pub fn of(samples: &[u64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len() as f64;
        let avg = sorted.iter().map(|ns| *ns as f64).sum::<f64>() / count;
        let variance = sorted.iter().map(|ns| (*ns as f64 - avg).powi(2)).sum::<f64>() / count;
        let stddev = variance.sqrt();
        let outliers = sorted.iter().filter(|ns| (**ns as f64 - avg).abs() > 3.0 * stddev).count();
        let at = |part| quantile(&sorted, part).unwrap_or(max);
        let (p50, p90, p99, p999, p9999) = (at(0.5), at(0.9), at(0.99), at(0.999), at(0.9999));
        let count = sorted.len();
        Some(Summary { count, avg, min, max, stddev, outliers, p50, p90, p99, p999, p9999 })
    }
}

/// The smallest of sorted samples that at least this part of them, between 0 and 1, does not exceed.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank between 1 and the number of samples"
)]
pub fn quantile(sorted: &[u64], part: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}
