//! The result of a run: the verdicts, their exit code, and their output.
//!
//! Owns everything that is printed. Standard output is the report; standard error has the errors of the run
//! itself.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use duramen_powercut::moment::Moment;
use serde_json::{Value, json};

use crate::linux::again;
use crate::linux::args::RunArgs;
use crate::linux::drive_spec::NAMES;
use crate::linux::failure::{DATA_LOST, ENVIRONMENT, FILE_SYSTEM_LOST, Failure, INTERNAL};
use crate::linux::jail::Ended;

/// The verdict on one survival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    CheckFailed(Ended),
    /// Which file system, and the reason.
    Unmountable(String),
    /// Which file system, and the result of its fsck.
    FsckFailed(String),
    TimedOut,
}

/// One survival, checked.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) variant: u64,
    /// The choice of each drive.
    pub(crate) survivals: Vec<Value>,
    pub(crate) verdict: Verdict,
    pub(crate) output: String,
}

/// A whole run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) moment: Moment,
    /// The drives' report of the cut.
    pub(crate) cut: Value,
    /// How the command ended, if before the cut.
    pub(crate) command: Option<Ended>,
    pub(crate) command_output: String,
    pub(crate) ack_lines: usize,
    pub(crate) ack_bytes: usize,
    pub(crate) checks: Vec<Checked>,
    pub(crate) elapsed: Duration,
}

impl Verdict {
    fn name(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::CheckFailed(_) => "check_failed",
            Verdict::Unmountable(_) => "unmountable",
            Verdict::FsckFailed(_) => "fsck_failed",
            Verdict::TimedOut => "timed_out",
        }
    }

    fn sentence(&self) -> String {
        match self {
            Verdict::Passed => "passed".to_owned(),
            Verdict::CheckFailed(ended) => format!("FAILED: the check ended with {ended}"),
            Verdict::Unmountable(why) => format!("UNMOUNTABLE: {why}"),
            Verdict::FsckFailed(how) => format!("FSCK FAILED: {how}"),
            Verdict::TimedOut => "TIMED OUT: the check did not end".to_owned(),
        }
    }
}

impl Report {
    /// The worst verdict decides: lost data, then a lost file system, then a timeout.
    pub(crate) fn exit(&self) -> u8 {
        let has = |wanted: fn(&Verdict) -> bool| self.checks.iter().any(|checked| wanted(&checked.verdict));
        if has(|verdict| matches!(verdict, Verdict::CheckFailed(_))) {
            DATA_LOST
        } else if has(|verdict| matches!(verdict, Verdict::Unmountable(_) | Verdict::FsckFailed(_))) {
            FILE_SYSTEM_LOST
        } else if has(|verdict| *verdict == Verdict::TimedOut) {
            INTERNAL
        } else if self.command_failed() {
            ENVIRONMENT
        } else {
            0
        }
    }

    /// Whether the command failed on its own: checks that pass after that prove little. A kill does not
    /// count.
    fn command_failed(&self) -> bool {
        matches!(self.command, Some(Ended::Exit(code)) if code != 0)
    }

    pub(crate) fn print(&self, args: &RunArgs) {
        if args.json {
            line(&self.to_json(args).to_string());
        } else {
            line(&self.to_text(args).join("\n"));
        }
    }

    fn to_json(&self, args: &RunArgs) -> Value {
        let checks: Vec<Value> = self
            .checks
            .iter()
            .map(|checked| {
                json!({
                    "variant": checked.variant,
                    "survivals": checked.survivals,
                    "verdict": checked.verdict.name(),
                    "why": checked.verdict.sentence(),
                    "output": checked.output,
                })
            })
            .collect();
        let further = args.further();
        let fs_of = |index: usize| further.get(index).map(|(fs, _)| fs.name());
        let cache_of = |index: usize| further.get(index).map(|(_, cache)| cache.name());
        json!({
            "exit": self.exit(),
            "seed": self.seed,
            "fs": args.fs.name(),
            "cache": args.cache.name(),
            "second_fs": fs_of(0),
            "second_cache": cache_of(0),
            "third_fs": fs_of(1),
            "third_cache": cache_of(1),
            "moment": self.moment.to_string(),
            "cut": self.cut,
            "command_ended": self.command.as_ref().map(ToString::to_string),
            "command_output": self.command_output,
            "ack_lines": self.ack_lines,
            "ack_bytes": self.ack_bytes,
            "checks": checks,
            "elapsed_ms": u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            "repeat": self.again(args),
        })
    }

    fn to_text(&self, args: &RunArgs) -> Vec<String> {
        let number = |name: &str| self.cut[name].as_u64().unwrap_or_default();
        let cause = self.cut["cause"].as_str().unwrap_or_default();
        let drives = std::iter::once((args.fs, args.cache)).chain(args.further());
        let drives = drives.map(|(fs, cache)| format!("{}, cache {}", fs.name(), cache.name()));
        let drives: Vec<String> = drives.collect();
        let mut lines = vec![
            format!("seed {} on {}", self.seed, drives.join(", and ")),
            format!(
                "cut at {cause} (drawn: {}), {} ms after the start: {} writes and {} flushes were answered",
                self.moment,
                number("after_ms"),
                number("writes"),
                number("flushes")
            ),
            format!("at stake: {}; {} lines acknowledged", self.at_stake(), self.ack_lines),
        ];
        if let Some(ended) = &self.command {
            lines.push(format!("the command ended before the cut: {ended}"));
            if *ended != Ended::Exit(0) {
                lines.extend(indented(&self.command_output));
            }
            if self.command_failed() {
                lines.push("it failed by itself, so checks that pass prove little".to_owned());
            }
        }
        for checked in &self.checks {
            let survived: Vec<String> = checked.survivals.iter().map(survived).collect();
            lines.push(format!(
                "variant {}: {}: {}",
                checked.variant,
                by_drive(&survived),
                checked.verdict.sentence()
            ));
            if checked.verdict != Verdict::Passed {
                lines.extend(indented(&checked.output));
            }
        }
        let passed = self.checks.iter().filter(|checked| checked.verdict == Verdict::Passed).count();
        let seconds = self.elapsed.as_secs_f64();
        lines.push(format!("{passed} of {} passed in {seconds:.2} s", self.checks.len()));
        lines.push(format!("again: {}", self.again(args)));
        lines
    }

    /// The command line that repeats the run.
    fn again(&self, args: &RunArgs) -> String {
        let words: Vec<OsString> = std::env::args_os().collect();
        again::command_line(&words, args.seed.is_none().then_some(self.seed))
    }

    /// The writes that the cut could lose, drive by drive.
    fn at_stake(&self) -> String {
        let drives = self.cut["drives"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_drive = |drive: &Value| {
            format!(
                "{} writes answered and not flushed, {} not answered",
                drive["pending"], drive["in_flight"]
            )
        };
        by_drive(&drives.iter().map(of_drive).collect::<Vec<_>>())
    }
}

/// What is told of each drive, in one line.
fn by_drive(told: &[String]) -> String {
    let named = told.iter().zip(NAMES).enumerate().map(|(index, (told, name))| match index {
        0 => told.clone(),
        _ => format!("on {name} {told}"),
    });
    named.collect::<Vec<_>>().join("; ")
}

/// The choice of a drive, as text.
fn survived(survival: &Value) -> String {
    let choice = survival["survival"].as_str().unwrap_or_default();
    let number = |name: &str| &survival[name];
    format!(
        "{choice} survived ({} whole, {} torn, {} gone)",
        number("kept"),
        number("torn"),
        number("dropped")
    )
}

fn indented(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| format!("    {line}"))
}

/// Reports why a run has no verdict.
pub(crate) fn failure(failure: &Failure, json: bool) {
    if json {
        let told = json!({"exit": failure.exit, "error": failure.message, "hint": failure.hint});
        line(&told.to_string());
    }
    note(&failure.message);
    complain(&format!("hint: {}", failure.hint));
}

/// Prints a line of a report. The reader may be gone; the exit code is the verdict all the same.
pub(crate) fn line(text: &str) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            note(&format!("cannot print the report: {error}"));
        }
        Ok(()) | Err(_) => {}
    }
}

/// Prints a line about the run itself.
pub(crate) fn note(text: &str) {
    complain(&format!("powercut: {text}"));
}

/// If standard error is closed, nothing can be reported.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
