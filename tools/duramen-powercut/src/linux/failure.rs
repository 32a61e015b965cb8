//! Every way in which a run fails: a sentence, a hint, an exit code.
//!
//! Owns the table of exit codes; 2 is clap's.

use std::fmt;
use std::path::Path;

/// Wrong usage, or a machine that lacks something.
pub(crate) const ENVIRONMENT: u8 = 1;
/// A check failed: acknowledged data is missing.
pub(crate) const DATA_LOST: u8 = 3;
/// The file system itself did not survive.
pub(crate) const FILE_SYSTEM_LOST: u8 = 4;
/// Time ran out, or the tool itself failed.
pub(crate) const INTERNAL: u8 = 5;
/// A cell of the table that must lose data never did: the tool detects nothing.
pub(crate) const BLIND: u8 = 6;

/// Why a run has no verdict.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) message: String,
    pub(crate) hint: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The machine or the arguments do not meet the requirements.
    pub(crate) fn environment(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { exit: ENVIRONMENT, message: message.into(), hint: hint.into() }
    }

    /// Something that should not happen, or took too long.
    pub(crate) fn internal(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { exit: INTERNAL, message: message.into(), hint: hint.into() }
    }

    /// A system call that failed on the way.
    pub(crate) fn call(doing: &str, path: &Path, error: &dyn fmt::Display) -> Failure {
        Failure::internal(
            format!("cannot {doing} {}: {error}", path.display()),
            "`dmesg | tail` may say more; a container may forbid it",
        )
    }
}
