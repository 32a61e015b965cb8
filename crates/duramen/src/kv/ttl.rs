//! How long a value lives.

use std::time::Duration;

use crate::value::clock::Millis;
use crate::value::time::Time;

/// How long a value lives from its write on, to the millisecond.
///
/// ```
/// # use duramen::prelude::*;
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// db.kv("sessions").put_with("sid", &42, Ttl::minutes(30))?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl(Lives);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lives {
    Forever,
    AsBefore,
    Ms(u64),
    Until(Millis),
}

/// When a value expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// At this time, from which on it is absent.
    At(Time),
}

impl Ttl {
    /// Until it is deleted.
    #[must_use]
    pub const fn forever() -> Ttl {
        Ttl(Lives::Forever)
    }

    /// Until the value that it replaces would have expired; forever if it replaces none.
    #[must_use]
    pub const fn keep() -> Ttl {
        Ttl(Lives::AsBefore)
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn millis(count: u64) -> Ttl {
        Ttl(Lives::Ms(count))
    }

    /// So many seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Ttl {
        Ttl::millis(count.saturating_mul(1000))
    }

    /// So many minutes.
    #[must_use]
    pub const fn minutes(count: u64) -> Ttl {
        Ttl::seconds(count.saturating_mul(60))
    }

    /// So many hours.
    #[must_use]
    pub const fn hours(count: u64) -> Ttl {
        Ttl::minutes(count.saturating_mul(60))
    }

    /// So many days of 24 hours.
    #[must_use]
    pub const fn days(count: u64) -> Ttl {
        Ttl::hours(count.saturating_mul(24))
    }

    /// Until a point in time. A value written with one that has passed is deleted at once.
    #[must_use]
    pub fn until(time: Time) -> Ttl {
        Ttl(Lives::Until(Millis::not_before(time)))
    }

    /// When a value written now expires, in the place of one that lives until `before`.
    pub(super) fn expires(self, now: Millis, before: Option<Millis>) -> Option<Millis> {
        match self.0 {
            Lives::Forever => None,
            Lives::AsBefore => before,
            Lives::Ms(ms) => Some(Millis(now.0.saturating_add(ms))),
            Lives::Until(at) => Some(at),
        }
    }
}

/// Rounded up to the next millisecond.
impl From<Duration> for Ttl {
    fn from(lives: Duration) -> Ttl {
        Ttl::millis(u64::try_from(lives.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
