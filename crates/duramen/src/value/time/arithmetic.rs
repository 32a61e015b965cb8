//! Times and durations: sums and differences. None panics.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use super::{NANOSECONDS, Time};

impl Time {
    /// The time this much later; `None` after [`Time::MAX`].
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Time> {
        let nanoseconds = self.nanoseconds + duration.subsec_nanos();
        let carried = u64::from(nanoseconds / NANOSECONDS);
        let seconds = self.seconds.checked_add_unsigned(duration.as_secs())?.checked_add_unsigned(carried)?;
        Time::new(seconds, nanoseconds % NANOSECONDS)
    }

    /// The time this much earlier; `None` before [`Time::MIN`].
    #[must_use]
    pub fn checked_sub(self, duration: Duration) -> Option<Time> {
        let borrowed = u64::from(self.nanoseconds < duration.subsec_nanos());
        let seconds =
            self.seconds.checked_sub_unsigned(duration.as_secs())?.checked_sub_unsigned(borrowed)?;
        let nanoseconds = self.nanoseconds + NANOSECONDS - duration.subsec_nanos();
        Time::new(seconds, nanoseconds % NANOSECONDS)
    }

    /// How long after an earlier time this is; `None` if that one is later.
    #[must_use]
    pub fn checked_duration_since(self, earlier: Time) -> Option<Duration> {
        if self < earlier {
            return None;
        }
        let borrowed = self.nanoseconds < earlier.nanoseconds;
        let seconds = self.seconds.abs_diff(earlier.seconds) - u64::from(borrowed);
        let nanoseconds = (self.nanoseconds + NANOSECONDS - earlier.nanoseconds) % NANOSECONDS;
        Some(Duration::new(seconds, nanoseconds))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The time this much later, at most [`Time::MAX`].
    fn add(self, duration: Duration) -> Time {
        self.checked_add(duration).unwrap_or(Time::MAX)
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// The time this much earlier, at least [`Time::MIN`].
    fn sub(self, duration: Duration) -> Time {
        self.checked_sub(duration).unwrap_or(Time::MIN)
    }
}

impl SubAssign<Duration> for Time {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub<Time> for Time {
    type Output = Duration;

    /// How long after an earlier time this is; nothing if that one is later.
    fn sub(self, earlier: Time) -> Duration {
        self.checked_duration_since(earlier).unwrap_or_default()
    }
}
