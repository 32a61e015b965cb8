//! The only module that prints: results on standard output, progress on standard error, and the lines between
//! a child and its parent.

use std::io::{self, BufRead, Write};

use comfy_table::Table;

use crate::engine::Result;
use crate::job::Outcome;

const OUTCOME: &str = "outcome ";
const ACKNOWLEDGED: &str = "acknowledged ";

/// A line of the result.
pub(crate) fn line(text: &str) {
    // If the reader is gone, the rest is not needed.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// A table of the result.
pub(crate) fn table(table: &Table) {
    line(&table.to_string());
}

/// Prints progress on standard error.
pub(crate) fn progress(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Sends a child's outcome to its parent.
///
/// # Errors
/// Errors of the pipe.
pub(crate) fn outcome(outcome: &Outcome) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{OUTCOME}{}", serde_json::to_string(outcome)?)?)
}

/// Reports the acknowledged rows of a child that will be killed.
pub(crate) fn acknowledged(rows: u64) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{ACKNOWLEDGED}{rows}").and_then(|()| out.flush());
}

/// The outcome in a child's output.
pub(crate) fn read_outcome(printed: &str) -> Option<Outcome> {
    let line = printed.lines().rev().find_map(|line| line.strip_prefix(OUTCOME))?;
    serde_json::from_str(line).ok()
}

/// The next acknowledged count of a doomed child; `None` when it has ended.
pub(crate) fn read_acknowledged(from: &mut impl BufRead) -> Option<u64> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    // A line that was cut by the kill counts as absent.
    line.strip_prefix(ACKNOWLEDGED)?.strip_suffix('\n')?.parse().ok()
}
