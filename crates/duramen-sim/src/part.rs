//! A part of a sweep over bytes: a sweep that takes an hour is run in slices of a minute.
//!
//! The parts of a sweep have no byte in common, and together cover all of them.

use std::fmt;
use std::str::FromStr;

/// One of `count` parts: each `count`-th byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    index: u64,
    count: u64,
}

impl Part {
    /// The whole sweep.
    pub const ALL: Part = Part { index: 0, count: 1 };

    /// Whether the byte at an offset belongs to the part.
    #[must_use]
    pub fn has(self, offset: u64) -> bool {
        offset % self.count == self.index
    }

    /// Whether it is the first part, which also runs the trials that are not sweeps over bytes.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// A part of the part, for one of several threads.
    #[must_use]
    pub fn share(self, index: usize, count: usize) -> Part {
        Part { index: self.index + self.count * index as u64, count: self.count * count as u64 }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').map(|(number, count)| (number.parse(), count.parse()));
        match numbers {
            Some((Ok(number), Ok(count))) if (1..=count).contains(&number) => {
                Ok(Part { index: number - 1, count })
            }
            _ => Err(format!("a part is written I/N with I from 1 to N, not {text:?}")),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte in no part would never be tried.
    #[test]
    fn each_byte_is_in_one_share_of_one_part() {
        let parts = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Part>().unwrap());
        for offset in 0..60 {
            let shares = parts.iter().flat_map(|part| [part.share(0, 2), part.share(1, 2)]);
            assert_eq!(shares.filter(|share| share.has(offset)).count(), 1, "byte {offset}");
        }
        assert_eq!(parts[2].to_string(), "3/3");
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0"] {
            wrong.parse::<Part>().unwrap_err();
        }
    }
}
