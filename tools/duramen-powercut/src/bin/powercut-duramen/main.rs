//! Loads a Duramen database with acknowledgements, and checks what a power cut left of it: `CMD` and
//! `--check` for `powercut`.
//!
//! Owns the promises that are checked (D1, D2). Every commit that was acknowledged at level `Disk` exists.
//! The commits that exist are a prefix of the one order, whole. Everything that a program stores is the
//! result of these commits. Then the check writes on. Corruption that the database reports has another exit
//! code than wrong answers: only the second is silent.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files and threads of its own"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to powercut and to a person")]

mod acknowledged;
mod check;
mod judge;
mod load;
mod mirror;
mod opening;
mod plan;
mod releases;
mod row;
mod steward;
mod views;
mod writer;
mod wrong;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use check::CheckArgs;
use load::LoadArgs;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stores everything that a program can store until the power goes, and says what has returned
    ///
    /// In `powercut run` with a second drive its log lies there by `sh -c 'exec powercut-duramen load --db db
    /// --wal "$POWERCUT_SECOND/log"'`.
    Load(LoadArgs),
    /// Opens what is left, holds it against what was acknowledged, verifies all, writes on and opens it again
    ///
    /// Exit codes: 0 all is there; 3 something is missing or wrong and the database did not say so; 4 the
    /// database says itself that it is corrupt, or cannot be opened or read.
    Check(CheckArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Load(args) => load::load(&args).map(|()| None),
        Command::Check(args) => check::check(&args).map(Some),
    };
    match done {
        Ok(sentence) => {
            sentence.iter().for_each(|sentence| say(sentence));
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            say(&wrong.sentence);
            ExitCode::from(wrong.exit)
        }
    }
}

/// The output may be closed; the exit code is the verdict all the same.
fn say(sentence: &str) {
    let _ = writeln!(std::io::stdout(), "{sentence}");
}
