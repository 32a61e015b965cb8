//! The one place that prints: results on standard output, progress on standard error, and the lines between a child
//! and its parent.

use std::io::{self, BufRead, Write};

use comfy_table::Table;

use crate::engine::Result;
use crate::job::Outcome;

const OUTCOME: &str = "outcome ";
const ACKNOWLEDGED: &str = "acknowledged ";

/// A line of the result.
pub fn line(text: &str) {
    // A reader that went away wants no more.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// A table of the result.
pub fn table(table: &Table) {
    line(&table.to_string());
}

/// What is going on, for whoever watches.
pub fn progress(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A child's result, to its parent.
///
/// # Errors
/// What the pipe said.
pub fn outcome(outcome: &Outcome) -> Result<()> {
    Ok(writeln!(io::stdout().lock(), "{OUTCOME}{}", serde_json::to_string(outcome)?)?)
}

/// What a child that will be killed has acknowledged by now.
pub fn acknowledged(rows: u64) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{ACKNOWLEDGED}{rows}").and_then(|()| out.flush());
}

/// The outcome among what a child printed.
pub fn read_outcome(printed: &str) -> Option<Outcome> {
    let line = printed.lines().rev().find_map(|line| line.strip_prefix(OUTCOME))?;
    serde_json::from_str(line).ok()
}

/// The next count that a doomed child acknowledged; `None` when it ended.
pub fn read_acknowledged(from: &mut impl BufRead) -> Option<u64> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    // A line that was cut by the kill says nothing.
    line.strip_prefix(ACKNOWLEDGED)?.strip_suffix('\n')?.parse().ok()
}
