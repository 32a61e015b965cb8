//! Times of `chrono` and `jiff`, to and from [`Time`].
//!
//! Documents and keys hold a [`Time`]. The text that these crates write through serde has no fixed number of
//! digits, so it is not in the order of time.

use super::Time;
use crate::store::error::{Error, Result};

fn out_of_range(time: Time, of: &str) -> Error {
    Error::invalid(format!("{time} is beyond the times of {of}")).with_hint("keep it as a Time")
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
