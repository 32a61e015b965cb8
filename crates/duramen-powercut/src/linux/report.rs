//! What a run found: the verdicts, the exit code they give, and how they are told.
//!
//! Owns everything that is printed. Standard output is the report, standard error is what went wrong with the run.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use duramen_powercut::moment::Moment;
use serde_json::{Value, json};

use crate::linux::again;
use crate::linux::args::RunArgs;
use crate::linux::failure::{DATA_LOST, ENVIRONMENT, FILE_SYSTEM_LOST, Failure, INTERNAL};
use crate::linux::jail::Ended;

/// What one survival came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    CheckFailed(Ended),
    /// Which file system, and why.
    Unmountable(String),
    /// Which file system, and how its fsck ended.
    FsckFailed(String),
    TimedOut,
}

/// One survival, checked.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) variant: u64,
    /// What each drive chose.
    pub(crate) survivals: Vec<Value>,
    pub(crate) verdict: Verdict,
    pub(crate) output: String,
}

/// A whole run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) moment: Moment,
    /// What the drives said when the power went.
    pub(crate) cut: Value,
    /// How the command ended, if it did before the cut.
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
    /// The worst verdict decides; lost data is worse than a lost file system, which is worse than a lost hour.
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

    /// The command gave up by itself: checks that pass after that prove little. Being killed is another matter.
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
        json!({
            "exit": self.exit(),
            "seed": self.seed,
            "fs": args.fs.name(),
            "cache": args.cache.name(),
            "second_fs": args.second().map(|(fs, _)| fs.name()),
            "second_cache": args.second().map(|(_, cache)| cache.name()),
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
        let second = args.second().map(|(fs, cache)| format!(", and {}, cache {}", fs.name(), cache.name()));
        let (fs, cache) = (args.fs.name(), args.cache.name());
        let mut lines = vec![
            format!("seed {} on {fs}, cache {cache}{}", self.seed, second.unwrap_or_default()),
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
                survived.join("; on the second drive "),
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

    /// The command line that does all of it again.
    fn again(&self, args: &RunArgs) -> String {
        let words: Vec<OsString> = std::env::args_os().collect();
        again::command_line(&words, args.seed.is_none().then_some(self.seed))
    }

    /// What the cut could take, drive by drive.
    fn at_stake(&self) -> String {
        let drives = self.cut["drives"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_drive = |drive: &Value| {
            format!(
                "{} writes answered and not flushed, {} not answered",
                drive["pending"], drive["in_flight"]
            )
        };
        drives.iter().map(of_drive).collect::<Vec<_>>().join("; on the second drive ")
    }
}

/// What a drive chose.
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

/// Says why a run came to no verdict.
pub(crate) fn failure(failure: &Failure, json: bool) {
    if json {
        let told = json!({"exit": failure.exit, "error": failure.message, "hint": failure.hint});
        line(&told.to_string());
    }
    note(&failure.message);
    complain(&format!("hint: {}", failure.hint));
}

/// A line of a report. Whoever read it may be gone; the exit code is the verdict all the same.
pub(crate) fn line(text: &str) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            note(&format!("cannot print the report: {error}"));
        }
        Ok(()) | Err(_) => {}
    }
}

/// A line about the run itself.
pub(crate) fn note(text: &str) {
    complain(&format!("powercut: {text}"));
}

/// Where standard error is closed, there is nobody left to tell.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
