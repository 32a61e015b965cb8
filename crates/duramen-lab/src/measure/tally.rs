//! Times counted in buckets, so that a long measurement takes no more memory than a short one.
//!
//! Owns the buckets: one per nanosecond below 64 ns, above that 64 per doubling. A quantile is at most one
//! part in 64 above the sample it stands for. Mean, deviation, least and most are exact.

use super::summary::Summary;

/// Buckets of a doubling, as a power of two.
const FINE_BITS: u32 = 6;
const FINE: u64 = 1 << FINE_BITS;

/// Buckets for every number of 64 bits.
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

/// Counted times, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    squares: f64,
    min: u64,
    max: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { counts: vec![0; BUCKETS], count: 0, sum: 0, squares: 0.0, min: u64::MAX, max: 0 }
    }
}

impl Tally {
    /// Counts one time.
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.squares += (ns as f64).powi(2);
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    /// The number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The statistics; `None` if nothing was counted. Outliers are whole buckets, by the middle of each.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds and counts are far below 2^53; a rank is between 1 and the count"
    )]
    pub fn summary(&self) -> Option<Summary> {
        if self.count == 0 {
            return None;
        }
        let count = self.count as f64;
        let avg = self.sum as f64 / count;
        let stddev = (self.squares / count - avg * avg).max(0.0).sqrt();
        let at = |part: f64| {
            let rank = ((count * part).ceil() as u64).max(1);
            let mut below = 0;
            let found = self.counts.iter().position(|counted| {
                below += counted;
                below >= rank
            });
            found.map_or(self.max, |bucket| last_of(bucket).clamp(self.min, self.max))
        };
        let is_far = |bucket: usize| {
            let middle = (first_of(bucket) as f64 + last_of(bucket) as f64) / 2.0;
            (middle - avg).abs() > 3.0 * stddev
        };
        let far = self.counts.iter().enumerate().filter(|(bucket, counted)| **counted > 0 && is_far(*bucket));
        let outliers = usize::try_from(far.map(|(_, counted)| counted).sum::<u64>()).unwrap_or(usize::MAX);
        Some(Summary {
            count: usize::try_from(self.count).unwrap_or(usize::MAX),
            avg,
            min: self.min,
            max: self.max,
            stddev,
            outliers,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
        })
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let doublings = (ns | 1).ilog2().saturating_sub(FINE_BITS);
    let fine = ns >> doublings;
    // Below the first doubling `fine` is the time itself; above, it is between FINE and twice that.
    usize::try_from(u64::from(doublings) * FINE + fine).unwrap_or(BUCKETS - 1)
}

/// The smallest time of a bucket.
fn first_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doublings = (bucket / FINE).saturating_sub(1);
    (bucket - doublings * FINE) << doublings
}

/// The largest time of a bucket.
fn last_of(bucket: usize) -> u64 {
    let doublings = (bucket as u64 / FINE).saturating_sub(1);
    first_of(bucket) + ((1 << doublings) - 1)
}

#[cfg(test)]
mod tests {
    //! A time in the wrong bucket is a wrong figure.
    use super::*;

    #[test]
    fn buckets_touch_and_none_overlaps() {
        for index in 0..BUCKETS {
            assert_eq!((bucket(first_of(index)), bucket(last_of(index))), (index, index), "{index}");
            if index + 1 < BUCKETS {
                assert_eq!(first_of(index + 1), last_of(index) + 1, "{index}");
            }
        }
        assert_eq!((first_of(0), last_of(BUCKETS - 1)), (0, u64::MAX));
        assert_eq!((bucket(63), bucket(64), bucket(127), bucket(128), bucket(129)), (63, 64, 127, 128, 128));
    }

    #[test]
    fn figures_are_those_of_the_samples_as_far_as_buckets_can_tell() {
        let samples: Vec<u64> = (1..=10_000).map(|number| number * 997 % 10_007 * 100).collect();
        let (first, second) = samples.split_at(1234);
        let mut tally = Tally::default();
        first.iter().for_each(|ns| tally.add(*ns));
        let mut more = Tally::default();
        second.iter().for_each(|ns| more.add(*ns));
        tally.merge(&more);
        let (told, exact) = (tally.summary(), Summary::of(&samples));
        let (Some(told), Some(exact)) = (told, exact) else { panic!("there are samples") };
        assert_eq!((told.count, told.min, told.max), (exact.count, exact.min, exact.max));
        assert!((told.avg - exact.avg).abs() < 1e-6 && (told.stddev - exact.stddev).abs() < 1.0);
        for (told, exact) in [(told.p50, exact.p50), (told.p99, exact.p99), (told.p9999, exact.p9999)] {
            assert!(told >= exact && told <= exact + exact / 64, "{told} for {exact}");
        }
        assert_eq!(Tally::default().summary(), None);
    }
}
