//! A fact about a disk, known or not, with its source.
//!
//! Owns [`Fact`] and the number of a block device. Never guesses: a fact without a value holds the reason.

use std::fmt;

/// A value and its source: the file or call that returned it, or why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<T> {
    /// `None` if it cannot be known.
    pub value: Option<T>,
    /// `/sys/dev/block/8:0/queue/fua`, `statx`, or the reason why there is no value.
    pub source: String,
}

impl<T> Fact<T> {
    /// A value returned by `source`.
    pub fn known(value: T, source: impl Into<String>) -> Fact<T> {
        Fact { value: Some(value), source: source.into() }
    }

    /// No value, and the reason.
    pub fn unknown(why: impl Into<String>) -> Fact<T> {
        Fact { value: None, source: why.into() }
    }

    /// The value if there is one; otherwise unknown for the reason `why`.
    pub(super) fn told(value: Option<T>, source: &str, why: &str) -> Fact<T> {
        match value {
            Some(value) => Fact::known(value, source),
            None => Fact::unknown(why),
        }
    }

    /// Whether the value is known to be this one.
    #[must_use]
    pub fn is(&self, value: &T) -> bool
    where
        T: PartialEq,
    {
        self.value.as_ref() == Some(value)
    }
}

/// The number of a block device: `8:0` is usually `sda`. Major 0 is no device of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Reads `8:0`.
    #[must_use]
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}
