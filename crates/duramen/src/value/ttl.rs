//! Lifetimes of values.

use std::time::Duration;

use crate::value::clock::Millis;
use crate::value::time::Time;

/// The lifetime of a value, counted from its write, to the millisecond.
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

/// The expiry of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// At this time; from then on the value is absent.
    At(Time),
}

impl Ttl {
    /// Until it is deleted.
    #[must_use]
    pub const fn forever() -> Ttl {
        Ttl(Lives::Forever)
    }

    /// Keeps the expiry of the value that it replaces; forever if there is none.
    #[must_use]
    pub const fn keep() -> Ttl {
        Ttl(Lives::AsBefore)
    }

    /// Whether it is that of the value before.
    pub(crate) fn keeps(self) -> bool {
        self.0 == Lives::AsBefore
    }

    /// A lifetime in milliseconds.
    #[must_use]
    pub const fn millis(count: u64) -> Ttl {
        Ttl(Lives::Ms(count))
    }

    /// A lifetime in seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Ttl {
        Ttl::millis(count.saturating_mul(1000))
    }

    /// A lifetime in minutes.
    #[must_use]
    pub const fn minutes(count: u64) -> Ttl {
        Ttl::seconds(count.saturating_mul(60))
    }

    /// A lifetime in hours.
    #[must_use]
    pub const fn hours(count: u64) -> Ttl {
        Ttl::minutes(count.saturating_mul(60))
    }

    /// A lifetime in days of 24 hours.
    #[must_use]
    pub const fn days(count: u64) -> Ttl {
        Ttl::hours(count.saturating_mul(24))
    }

    /// Until a point in time. If that has passed, the value is deleted at once.
    #[must_use]
    pub fn until(time: Time) -> Ttl {
        Ttl(Lives::Until(Millis::not_before(time)))
    }

    /// The expiry of a value written now that replaces one with the expiry `before`.
    pub(crate) fn expires(self, now: Millis, before: Option<Millis>) -> Option<Millis> {
        match self.0 {
            Lives::Forever => None,
            Lives::AsBefore => before,
            Lives::Ms(ms) => Some(Millis(now.0.saturating_add(ms))),
            Lives::Until(at) => Some(at),
        }
    }
}

/// A lifetime as a server is told.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is deleted.
    Forever,
    /// That of the value before.
    Keep,
    /// From the write on; 0 is over at once.
    Millis(u64),
    /// Until then.
    Until(Time),
}

impl Ttl {
    /// The lifetime.
    #[doc(hidden)]
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        match self.0 {
            Lives::Forever => Lifetime::Forever,
            Lives::AsBefore => Lifetime::Keep,
            Lives::Ms(ms) => Lifetime::Millis(ms),
            Lives::Until(at) => Lifetime::Until(at.to_time()),
        }
    }
}

/// Rounded up to the next millisecond.
impl From<Duration> for Ttl {
    fn from(lives: Duration) -> Ttl {
        Ttl::millis(u64::try_from(lives.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}
