//! Whether a disk slows down while the same job is repeated on it.
//!
//! Owns the rule, as pure functions of one figure a repetition. It uses medians only, so that one hiccup neither makes nor
//! hides a drift.

/// Repetitions at the beginning that later ones are held against.
pub const BASELINE_COUNT: usize = 5;

/// Repetitions in a row above the limit that make a drift.
pub const DRIFT_COUNT: usize = 3;

/// A repetition is above the limit if it is this many spreads above the median of the first ones...
const SPREADS: f64 = 6.0;

/// ... and at least this part of it: a disk that never varies is not grey because it varied once.
const PART_MIN: f64 = 0.3;

/// The median distance from the median is this part of a standard deviation, of normally distributed figures.
const DEVIATIONS_OF_SPREAD: f64 = 1.4826;

/// What is held against the first repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// The median of the first repetitions.
    pub median: f64,
    /// What lies above stands out.
    pub limit: f64,
}

/// Of the first [`BASELINE_COUNT`] figures; `None` of fewer.
#[must_use]
pub fn baseline(figures: &[f64]) -> Option<Baseline> {
    let first = figures.get(..BASELINE_COUNT)?;
    let median = median(first);
    let distances: Vec<f64> = first.iter().map(|figure| (figure - median).abs()).collect();
    let spread = self::median(&distances) * DEVIATIONS_OF_SPREAD;
    Some(Baseline { median, limit: median + (SPREADS * spread).max(PART_MIN * median) })
}

/// The first of [`DRIFT_COUNT`] repetitions in a row that stand out, counted from 0.
#[must_use]
pub fn drift(figures: &[f64]) -> Option<usize> {
    let limit = baseline(figures)?.limit;
    let later = figures.get(BASELINE_COUNT..)?;
    let found = later.windows(DRIFT_COUNT).position(|row| row.iter().all(|figure| *figure > limit));
    found.map(|index| BASELINE_COUNT + index)
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    //! A watch that cries wolf is switched off, and one that sleeps is worth nothing.
    use super::*;

    const STEADY: [f64; 5] = [100.0, 101.0, 99.0, 102.0, 100.0];

    fn after(later: &[f64]) -> Option<usize> {
        drift(&[&STEADY[..], later].concat())
    }

    #[test]
    fn a_disk_that_slows_down_drifts_and_one_hiccup_does_not() {
        assert_eq!(after(&[100.0, 103.0, 98.0, 104.0]), None);
        assert_eq!(after(&[900.0, 100.0, 900.0, 900.0, 100.0]), None, "never three in a row");
        assert_eq!(after(&[100.0, 200.0, 180.0, 190.0, 100.0]), Some(6));
        assert_eq!(after(&[129.0, 129.0, 129.0]), None, "less than a third is not worth a word");
        assert_eq!(after(&[131.0, 131.0, 131.0]), Some(5));
        assert_eq!(after(&[10.0, 10.0, 10.0]), None, "faster is no drift");
    }

    #[test]
    fn a_disk_that_varies_anyway_has_a_wider_limit() {
        let restless = [100.0, 160.0, 60.0, 140.0, 80.0];
        let found = baseline(&restless).expect("there are five");
        assert!((found.median - 100.0).abs() < 1e-9 && (found.limit - 455.8).abs() < 0.1, "{found:?}");
        assert_eq!(drift(&[&restless[..], &[300.0; 9]].concat()), None);
        assert_eq!(drift(&[&restless[..], &[500.0; 3]].concat()), Some(5));
    }

    #[test]
    fn too_few_repetitions_tell_nothing() {
        assert_eq!(baseline(&STEADY[..4]), None);
        assert_eq!(drift(&STEADY), None);
        assert_eq!(after(&[900.0, 900.0]), None);
    }

    #[test]
    fn one_slow_repetition_among_the_first_does_not_blind_the_watch() {
        let figures = [100.0, 100.0, 5000.0, 100.0, 100.0, 200.0, 200.0, 200.0];
        assert_eq!(drift(&figures), Some(5));
    }
}
