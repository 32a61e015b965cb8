//! What a run found: the verdicts, the exit code they give, and how they are told.
//!
//! Owns everything that is printed. Standard output is the report, standard error is what went wrong with the run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the door through which this program speaks")]

use std::time::Duration;

use duramen_powercut::moment::Moment;
use serde_json::{Value, json};

use crate::linux::args::RunArgs;
use crate::linux::failure::{DATA_LOST, ENVIRONMENT, FILE_SYSTEM_LOST, Failure, INTERNAL};
use crate::linux::jail::Ended;

/// What one survival came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    CheckFailed(Ended),
    Unmountable(String),
    FsckFailed(Ended),
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
            Verdict::FsckFailed(ended) => format!("FSCK FAILED: {ended}"),
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
            println!("{}", self.to_json(args));
        } else {
            self.print_text(args);
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
            "repeat": repeat(self.seed),
        })
    }

    fn print_text(&self, args: &RunArgs) {
        let number = |name: &str| self.cut[name].as_u64().unwrap_or_default();
        let cause = self.cut["cause"].as_str().unwrap_or_default();
        let second = args.second().map(|(fs, cache)| format!(", and {}, cache {}", fs.name(), cache.name()));
        let (fs, cache) = (args.fs.name(), args.cache.name());
        println!("seed {} on {fs}, cache {cache}{}", self.seed, second.unwrap_or_default());
        println!(
            "cut at {cause} (drawn: {}), {} ms after the start: {} writes and {} flushes were answered",
            self.moment,
            number("after_ms"),
            number("writes"),
            number("flushes")
        );
        println!("at stake: {}; {} lines acknowledged", self.at_stake(), self.ack_lines);
        if let Some(ended) = &self.command {
            println!("the command ended before the cut: {ended}");
            if *ended != Ended::Exit(0) {
                print_indented(&self.command_output);
            }
            if self.command_failed() {
                println!("it failed by itself, so checks that pass prove little");
            }
        }
        for checked in &self.checks {
            let survived: Vec<String> = checked.survivals.iter().map(survived).collect();
            println!(
                "variant {}: {}: {}",
                checked.variant,
                survived.join("; on the second drive "),
                checked.verdict.sentence()
            );
            if checked.verdict != Verdict::Passed {
                print_indented(&checked.output);
            }
        }
        let passed = self.checks.iter().filter(|checked| checked.verdict == Verdict::Passed).count();
        println!("{passed} of {} passed in {:.2} s", self.checks.len(), self.elapsed.as_secs_f64());
        println!("again: {}", repeat(self.seed));
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

fn print_indented(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// The command line that does all of it again.
fn repeat(seed: u64) -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if !words.iter().any(|word| word == "--seed" || word.starts_with("--seed=")) {
        let at = words.iter().position(|word| word == "run").map_or(words.len(), |at| at + 1);
        words.splice(at..at, ["--seed".to_owned(), seed.to_string()]);
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Says why a run came to no verdict.
pub(crate) fn failure(failure: &Failure, json: bool) {
    if json {
        println!("{}", json!({"exit": failure.exit, "error": failure.message, "hint": failure.hint}));
    }
    eprintln!("powercut: {}", failure.message);
    eprintln!("hint: {}", failure.hint);
}

/// A line of a report.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// A line about the run itself.
pub(crate) fn note(text: &str) {
    eprintln!("powercut: {text}");
}
