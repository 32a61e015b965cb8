//! Whether a disk slows down while the same job is repeated on it.
//!
//! Owns the rule, as pure functions of one figure per repetition. It uses medians only, so that one outlier
//! neither causes nor hides a drift. It judges by the end, so that a busy neighbour that is gone causes no
//! drift.

/// The least number of repetitions at the beginning that later ones are compared with...
pub const COUNT_MIN: usize = 5;

/// ... and at least one in this many: a few of many repetitions do not show how far figures vary.
const FIRST_PART: usize = 5;

/// The median of this many consecutive repetitions is compared with the limit; the last ones decide.
pub const LAST_COUNT: usize = 5;

/// The limit is this many spreads above the median of the first ones...
const SPREADS: f64 = 6.0;

/// ... and at least this part of it, so that a disk with almost no variation does not drift by one small
/// change.
const PART_MIN: f64 = 0.3;

/// The median distance from the median is this part of a standard deviation, of normally distributed figures.
const DEVIATIONS_OF_SPREAD: f64 = 1.4826;

/// The baseline from the first repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Baseline {
    /// The median of the first repetitions.
    pub median: f64,
    /// Figures above it stand out.
    pub limit: f64,
}

/// The course of a figure over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Too few repetitions.
    TooShort,
    /// Never slower than the first ones suggest, except for single repetitions.
    Steady,
    /// It was slower between two repetitions and no longer is. The last such time, if there are several.
    Recovered {
        /// The first that was slower.
        from: usize,
        /// The last that was slower.
        to: usize,
    },
    /// It is slower at the end.
    Drift {
        /// The first that was slower.
        from: usize,
    },
}

/// The baseline from the first repetitions: a fifth of all, at least [`COUNT_MIN`]; `None` if fewer.
#[must_use]
pub fn baseline(figures: &[f64]) -> Option<Baseline> {
    let first = figures.get(..first_count(figures.len()))?;
    let median = median(first);
    let distances: Vec<f64> = first.iter().map(|figure| (figure - median).abs()).collect();
    let spread = self::median(&distances) * DEVIATIONS_OF_SPREAD;
    Some(Baseline { median, limit: median + (SPREADS * spread).max(PART_MIN * median) })
}

/// The course of a figure, from repetitions and their figures in order. The result names repetitions by the
/// given numbers: one without a figure may be left out.
#[must_use]
pub fn course(points: &[(usize, f64)]) -> Course {
    let figures: Vec<f64> = points.iter().map(|(_, figure)| *figure).collect();
    let Some(Baseline { limit, .. }) = baseline(&figures) else { return Course::TooShort };
    let later = &points[first_count(points.len())..];
    if later.len() < LAST_COUNT {
        return Course::TooShort;
    }
    let figures = &figures[figures.len() - later.len()..];
    // For each window, whether its median is slow.
    let is_slow: Vec<bool> = figures.windows(LAST_COUNT).map(|few| median(few) > limit).collect();
    let Some(last) = is_slow.iter().rposition(|slow| *slow) else { return Course::Steady };
    let before = is_slow[..last].iter().rposition(|slow| !*slow);
    let begins = before.map_or(0, |index| index + 1);
    let above: Vec<usize> = later[begins..last + LAST_COUNT]
        .iter()
        .filter(|(_, figure)| *figure > limit)
        .map(|(repetition, _)| *repetition)
        .collect();
    match above[..] {
        [] => Course::Steady,
        [from, ..] if last + 1 == is_slow.len() => Course::Drift { from },
        [from, .., to] => Course::Recovered { from, to },
        [from] => Course::Recovered { from, to: from },
    }
}

fn first_count(count: usize) -> usize {
    COUNT_MIN.max(count / FIRST_PART)
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    //! False alarms and missed drifts.
    use super::*;
    use duramen_disk::memory::Random;

    const STEADY: [f64; 5] = [100.0, 101.0, 99.0, 102.0, 100.0];

    fn of(figures: &[f64]) -> Course {
        course(&figures.iter().copied().enumerate().collect::<Vec<_>>())
    }

    fn after(later: &[f64]) -> Course {
        of(&[&STEADY[..], later].concat())
    }

    #[test]
    fn a_disk_that_is_slower_at_the_end_drifts_and_hiccups_do_not() {
        assert_eq!(after(&[100.0, 103.0, 98.0, 104.0, 100.0]), Course::Steady);
        assert_eq!(after(&[900.0, 100.0, 100.0, 900.0, 100.0]), Course::Steady, "two of five");
        assert_eq!(after(&[100.0, 200.0, 180.0, 190.0, 100.0]), Course::Drift { from: 6 });
        assert_eq!(after(&[129.0; 5]), Course::Steady, "less than a third is not worth a word");
        assert_eq!(after(&[131.0; 5]), Course::Drift { from: 5 });
        assert_eq!(after(&[10.0; 5]), Course::Steady, "faster is no drift");
    }

    #[test]
    fn what_was_slower_for_a_while_has_recovered() {
        let busy = [100.0, 400.0, 400.0, 400.0, 100.0, 100.0, 100.0, 100.0, 100.0];
        assert_eq!(after(&busy), Course::Recovered { from: 6, to: 8 });
        let twice = [&busy[..], &busy[..]].concat();
        assert_eq!(after(&twice), Course::Recovered { from: 15, to: 17 }, "the last time");
        let again = [&busy[..], &[300.0; 5]].concat();
        assert_eq!(after(&again), Course::Drift { from: 14 }, "from the last time on");
    }

    #[test]
    fn repetitions_keep_their_numbers_where_some_have_no_figure() {
        let points: Vec<(usize, f64)> = STEADY
            .into_iter()
            .chain([200.0; 5])
            .enumerate()
            .map(|(index, figure)| (index * 3, figure))
            .collect();
        assert_eq!(course(&points), Course::Drift { from: 15 });
    }

    #[test]
    fn a_disk_that_varies_anyway_has_a_wider_limit() {
        let restless = [100.0, 160.0, 60.0, 140.0, 80.0];
        let found = baseline(&restless).expect("there are five");
        assert!((found.median - 100.0).abs() < 1e-9 && (found.limit - 455.8).abs() < 0.1, "{found:?}");
        assert_eq!(of(&[&restless[..], &[300.0; 9]].concat()), Course::Steady);
        assert_eq!(of(&[&restless[..], &[500.0; 5]].concat()), Course::Drift { from: 5 });
        // Of forty repetitions eight set the limit, and the first five agree by chance.
        let lucky = [&[100.0; 5][..], &[60.0, 150.0, 60.0], &[140.0; 32]].concat();
        assert_eq!(baseline(&lucky).map(|found| found.median), Some(100.0));
        assert_eq!(first_count(lucky.len()), 8);
    }

    #[test]
    fn too_few_repetitions_tell_nothing() {
        assert_eq!(baseline(&STEADY[..4]), None);
        assert_eq!(of(&STEADY), Course::TooShort);
        assert_eq!(after(&[900.0; 4]), Course::TooShort);
        assert_eq!(course(&[]), Course::TooShort);
    }

    #[test]
    fn one_slow_repetition_among_the_first_does_not_blind_the_watch() {
        let figures = [100.0, 100.0, 5000.0, 100.0, 100.0, 200.0, 200.0, 200.0, 200.0, 200.0];
        assert_eq!(of(&figures), Course::Drift { from: 5 });
    }

    /// Correlated noise around a constant mean: each figure is mostly the one before, plus a little chance.
    #[test]
    fn noise_that_goes_nowhere_is_seldom_called_drift() {
        let mut alarms = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut away = 0.0_f64;
            let figures: Vec<f64> = (0..300)
                .map(|_| {
                    let chance =
                        f64::from(u32::try_from(random.bits() >> 40).unwrap_or(0)) / f64::from(1 << 24);
                    away = 0.8 * away + 20.0 * (chance - 0.5);
                    100.0 + away
                })
                .collect();
            alarms += u32::from(matches!(of(&figures), Course::Drift { .. }));
        }
        assert!(alarms <= 2, "{alarms} of 200 watches of a disk that does not change");
    }
}
