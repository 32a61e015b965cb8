//! How old the state may be that a read on a node of a cluster sees: the header [`HEADER`] of a call.

use std::time::Duration;

/// The header of a call that may read an older state: `any`, or a number of milliseconds.
pub const HEADER: &str = "duramen-max-age-ms";

/// How old the state may be that a read sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Freshness {
    /// It has everything that was acknowledged, on any node, before the call came.
    #[default]
    Newest,
    /// It has everything that was acknowledged this long before the call came.
    MaxAge(Duration),
    /// Any earlier state of the database: what the node has.
    Any,
}

impl Freshness {
    /// The value of the header; none for the newest state. A part of a millisecond is left out.
    #[must_use]
    pub fn header(self) -> Option<String> {
        match self {
            Freshness::Newest => None,
            Freshness::MaxAge(age) => Some(age.as_millis().min(u64::MAX.into()).to_string()),
            Freshness::Any => Some("any".to_owned()),
        }
    }

    /// From the value of the header; `None` if it is none.
    #[must_use]
    pub fn of_header(value: &str) -> Option<Freshness> {
        match value {
            "any" => Some(Freshness::Any),
            "" => None,
            digits if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().ok().map(Duration::from_millis).map(Freshness::MaxAge)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    //! An age that is misread lets a read see what is too old.
    use super::*;

    #[test]
    fn ages_come_back_from_the_header() {
        for ms in [0, 1, 500, u64::MAX] {
            let age = Freshness::MaxAge(Duration::from_millis(ms));
            assert_eq!(age.header().and_then(|value| Freshness::of_header(&value)), Some(age));
        }
        assert_eq!(Freshness::of_header("any"), Some(Freshness::Any));
        assert_eq!(Freshness::Newest.header(), None);
        for wrong in ["", "-1", "+1", "1.5", "1s", "Any", "18446744073709551616"] {
            assert_eq!(Freshness::of_header(wrong), None, "{wrong}");
        }
    }
}
