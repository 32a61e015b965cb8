//! `scripts/bench-postgres`, which starts and stops a PostgreSQL of its own, never as root.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::engine::Result;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bench-postgres");

/// Runs the script with these words.
///
/// # Errors
/// That it failed.
pub(crate) fn run(words: &[&OsStr]) -> Result<()> {
    let status = Command::new(SCRIPT).args(words).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{SCRIPT} {words:?} ended with {status}").into()) }
}
