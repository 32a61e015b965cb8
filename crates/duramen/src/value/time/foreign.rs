//! Times of the standard library, of `chrono` and of `jiff`, to and from [`Time`].
//!
//! Documents and keys hold a [`Time`]. The text that the crates write through serde has no fixed number of
//! digits, so it is not in the order of time.

use std::time::{Duration, SystemTime};

use super::Time;
use crate::store::error::{Error, Result};

fn out_of_range(time: Time, of: &str) -> Error {
    Error::invalid(format!("{time} is beyond the times of {of}")).with_hint("keep it as a Time")
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        let epoch = Time::from_seconds(0);
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => epoch + after,
            Err(before) => epoch - before.duration(),
        }
    }
}

impl TryFrom<Time> for SystemTime {
    type Error = Error;

    /// `InvalidArgument` (E0201) for a time beyond those of the system: on Windows they begin in 1601.
    fn try_from(time: Time) -> Result<Self> {
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let second = match time.seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
            false => SystemTime::UNIX_EPOCH.checked_add(seconds),
        };
        second
            .and_then(|second| second.checked_add(Duration::from_nanos(time.nanoseconds.into())))
            .ok_or_else(|| out_of_range(time, "the system"))
    }
}

#[cfg(feature = "chrono")]
impl<Z: chrono::TimeZone> From<chrono::DateTime<Z>> for Time {
    /// A leap second becomes the last nanosecond before it.
    fn from(time: chrono::DateTime<Z>) -> Time {
        let nanoseconds = time.timestamp_subsec_nanos().min(super::NANOSECONDS - 1);
        Time { seconds: time.timestamp(), nanoseconds }
    }
}

#[cfg(feature = "chrono")]
impl TryFrom<Time> for chrono::DateTime<chrono::Utc> {
    type Error = Error;

    fn try_from(time: Time) -> Result<Self> {
        chrono::DateTime::from_timestamp(time.seconds, time.nanoseconds)
            .ok_or_else(|| out_of_range(time, "chrono"))
    }
}

#[cfg(feature = "jiff")]
const NANOSECONDS: i128 = super::NANOSECONDS as i128;

#[cfg(feature = "jiff")]
impl From<jiff::Timestamp> for Time {
    fn from(time: jiff::Timestamp) -> Time {
        let nanoseconds = time.as_nanosecond();
        Time {
            seconds: i64::try_from(nanoseconds.div_euclid(NANOSECONDS))
                .expect("jiff's years have four digits"),
            nanoseconds: u32::try_from(nanoseconds.rem_euclid(NANOSECONDS)).expect("less than a second"),
        }
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<Time> for jiff::Timestamp {
    type Error = Error;

    fn try_from(time: Time) -> Result<Self> {
        let nanoseconds = i128::from(time.seconds) * NANOSECONDS + i128::from(time.nanoseconds);
        jiff::Timestamp::from_nanosecond(nanoseconds).map_err(|_| out_of_range(time, "jiff"))
    }
}
