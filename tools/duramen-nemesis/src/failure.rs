//! Why a run cannot go on.

use std::fmt::Display;

pub(crate) type Result<T> = std::result::Result<T, String>;

/// A call that failed.
pub(crate) fn failed(doing: &str, what: &dyn Display, error: &dyn Display) -> String {
    format!("cannot {doing} {what}: {error}")
}
