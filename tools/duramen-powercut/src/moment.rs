//! When the power goes: after a time, a number of writes or a number of flushes, drawn from a range by the
//! seed.
//!
//! Owns ranges as they are written on the command line. It never measures time.

use std::fmt;
use std::str::FromStr;

use crate::drive::Counts;
use crate::random::Random;

/// Numbers from `low` to `high`, both included, written `A..B`, or `A` for one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The lowest.
    pub low: u64,
    /// The highest.
    pub high: u64,
}

impl Span {
    /// Draws one of the numbers.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let count = (self.high - self.low).saturating_add(1);
        self.low + random.below(count)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let number = |part: &str| {
            part.trim().parse::<u64>().map_err(|_| format!("`{part}` is no number: write A..B, as in 5..50"))
        };
        let (low, high) = match text.split_once("..") {
            Some((low, high)) => (number(low)?, number(high.trim_start_matches('='))?),
            None => (number(text)?, number(text)?),
        };
        if low > high {
            return Err(format!("{low} is above {high}: write the lower one first"));
        }
        Ok(Span { low, high })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

/// When the power goes, counted from the start of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// This many milliseconds later.
    Ms(u64),
    /// Once this many writes have completed.
    Writes(u64),
    /// Once this many flushes have completed and the next one arrives, so that all writes in between are at
    /// stake.
    Flushes(u64),
}

impl Moment {
    /// Whether the power goes with the write that completed last.
    #[must_use]
    pub fn is_at_write(&self, answered: Counts) -> bool {
        matches!(self, Moment::Writes(count) if answered.writes >= *count)
    }

    /// Whether the power goes with a flush that arrives.
    ///
    /// Several flushes may be in flight, so none may arrive at the exact count: the next one after it counts.
    #[must_use]
    pub fn is_at_flush(&self, answered: Counts) -> bool {
        matches!(self, Moment::Flushes(count) if answered.flushes >= *count)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Ms(count) => write!(f, "ms:{count}"),
            Moment::Writes(count) => write!(f, "writes:{count}"),
            Moment::Flushes(count) => write!(f, "flushes:{count}"),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let parsed = text.split_once(':').and_then(|(unit, count)| Some((unit, count.parse().ok()?)));
        match parsed {
            Some(("ms", count)) => Ok(Moment::Ms(count)),
            Some(("writes", count)) => Ok(Moment::Writes(count)),
            Some(("flushes", count)) => Ok(Moment::Flushes(count)),
            _ => Err(format!("`{text}` is no moment: ms:N, writes:N or flushes:N")),
        }
    }
}
