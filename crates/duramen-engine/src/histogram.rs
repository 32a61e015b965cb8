//! Histograms of durations, which many threads add to without a lock.
//!
//! Log-linear: sixteen buckets for each power of two, so a value is known to 6 %, from a microsecond to a
//! minute. Of a crate such as hdrhistogram a thread could only add to its own one, or under a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a power of two.
const BUCKETS_A_POWER: usize = 16;

/// The powers of two, in nanoseconds, between which durations are told apart: about 1 us and 69 s.
const POWER_MIN: u32 = 10;
const POWER_MAX: u32 = 36;

const BUCKETS: usize = (POWER_MAX - POWER_MIN) as usize * BUCKETS_A_POWER + 1;

/// A histogram that is being filled.
#[derive(Debug)]
pub(crate) struct Recorder {
    buckets: Box<[AtomicU64; BUCKETS]>,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        let buckets = Box::new([const { AtomicU64::new(0) }; BUCKETS]);
        Recorder { buckets, sum_ns: AtomicU64::new(0), max_ns: AtomicU64::new(0) }
    }
}

impl Recorder {
    /// Adds a duration.
    pub(crate) fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.fetch_max(ns, Ordering::Relaxed);
        }
    }

    /// What was added so far.
    pub(crate) fn read(&self) -> Histogram {
        Histogram {
            counts: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
            max_ns: self.max_ns.load(Ordering::Relaxed),
        }
    }
}

/// The bucket of a duration: shorter ones than those told apart are in the first, longer ones in the last.
fn bucket(ns: u64) -> usize {
    let power = ns.max(1).ilog2();
    if power < POWER_MIN {
        return 0;
    }
    if power >= POWER_MAX {
        return BUCKETS - 1;
    }
    #[allow(clippy::cast_possible_truncation, reason = "below the number of buckets of a power")]
    let within = (ns >> (power - BUCKETS_A_POWER.ilog2())) as usize % BUCKETS_A_POWER;
    (power - POWER_MIN) as usize * BUCKETS_A_POWER + within
}

/// The end of a bucket, in nanoseconds: the first duration that is not in it.
fn end_ns(bucket: usize) -> u64 {
    let next = bucket + 1;
    let (power, within) = (next / BUCKETS_A_POWER, (next % BUCKETS_A_POWER) as u64);
    let start = 1_u64 << (POWER_MIN as usize + power);
    start + within * (start / BUCKETS_A_POWER as u64)
}

/// How often durations were of each length, to 6 %.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// How many durations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest one, exactly.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The mean, exactly; 0 if there is none.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.checked_div(self.count()).unwrap_or(0))
    }

    /// A duration that this part of all of them does not exceed: 0.5 for the median, 0.99. It is too long by
    /// a sixteenth at most, and no longer than the longest; below 1 us it is 1 us. Beyond a minute it is the
    /// longest. 0 if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let count = self.count();
        #[allow(clippy::cast_possible_truncation, reason = "between 0 and the count")]
        let wanted = ((count as f64 * part.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, of_bucket) in self.counts.iter().enumerate() {
            below += of_bucket;
            if below >= wanted {
                let end_ns = if bucket == BUCKETS - 1 { u64::MAX } else { end_ns(bucket) };
                return Duration::from_nanos(end_ns.min(self.max_ns.max(1_024)));
            }
        }
        Duration::ZERO
    }

    /// What was added since an earlier reading of the same histogram. The longest one is that of all.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        Histogram {
            counts: self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            max_ns: self.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Each duration is in the bucket that ends after it, and no bucket is wider than a sixteenth.
    use super::*;

    #[test]
    fn buckets_lie_side_by_side() {
        assert_eq!((bucket(0), bucket(1_023), end_ns(BUCKETS - 2)), (0, 0, 1 << POWER_MAX));
        for index in 1..BUCKETS - 1 {
            let (start, end) = (end_ns(index - 1), end_ns(index));
            assert!(start < end && (end - start) * 16 <= start + 15, "{index}: {start} {end}");
            assert_eq!([start, end - 1].map(bucket), [index; 2], "{start} {end}");
        }
        assert_eq!([1 << POWER_MAX, u64::MAX].map(bucket), [BUCKETS - 1; 2]);
    }

    #[test]
    fn quantiles_are_too_long_by_a_sixteenth_at_most() {
        let recorder = Recorder::default();
        assert_eq!(recorder.read().quantile(0.5), Duration::ZERO);
        (1..=10_000).for_each(|us| recorder.add(us * 1_000));
        let all = recorder.read();
        assert_eq!((all.count(), all.max()), (10_000, Duration::from_millis(10)));
        assert_eq!(all.mean(), Duration::from_nanos(5_000_500));
        for (part, exact_us) in [(0.5, 5_000), (0.99, 9_900), (0.001, 10)] {
            let found = all.quantile(part).as_micros();
            assert!(found >= exact_us && found * 16 <= exact_us * 17 + 16, "{part}: {found}");
        }
        assert_eq!(all.quantile(1.0), all.max());
        recorder.add(120_000_000_000);
        let long = recorder.read().since(&all);
        assert_eq!((long.quantile(0.5), long.max()), (Duration::from_secs(120), Duration::from_secs(120)));
        let all = recorder.read();
        recorder.add(100);
        let more = recorder.read().since(&all);
        assert_eq!((more.count(), more.quantile(0.5)), (1, Duration::from_nanos(1_088)));
    }
}
