//! The binary `powercut`: reads the words and runs one command.
//!
//! Owns the way from a failure to an exit code. It exists on Linux only; elsewhere it says so.

#![allow(
    clippy::disallowed_methods,
    reason = "a program that is no part of the library: it has files, threads, processes and a clock of its own"
)]

#[cfg(target_os = "linux")]
mod args;
#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod drive_process;
#[cfg(target_os = "linux")]
mod environment;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod file_system;
#[cfg(target_os = "linux")]
mod fuse_protocol;
#[cfg(target_os = "linux")]
mod image;
#[cfg(target_os = "linux")]
mod jail;
#[cfg(target_os = "linux")]
mod loop_device;
#[cfg(target_os = "linux")]
mod platform;
#[cfg(target_os = "linux")]
mod records;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod trial;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use args::{Cli, Command};
    use clap::Parser;

    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Table(args) => table::run(&args),
        Command::WriteRecords(args) => records::write(&args),
        Command::CheckRecords(args) => records::check(&args),
        Command::Drive(args) => serve::run(&args),
        Command::Init(args) => jail::init(&args.directory, &args.words),
    }
}

#[cfg(target_os = "linux")]
fn run(args: &args::RunArgs) -> ExitCode {
    let seed = args.seed.unwrap_or_else(drawn_seed);
    match trial::run(args, seed) {
        Ok(report) => {
            report.print(args);
            ExitCode::from(report.exit())
        }
        Err(failure) => {
            report::failure(&failure, args.json);
            ExitCode::from(failure.exit)
        }
    }
}

/// A seed for a run that was given none; it is printed.
#[cfg(target_os = "linux")]
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map(|since| since.as_nanos()).unwrap_or_default();
    u64::try_from(nanos % 1_000_000_000_000).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::print_stderr, reason = "the only thing it can do here")]
fn main() -> ExitCode {
    eprintln!("powercut: it needs Linux, with FUSE and loop devices");
    ExitCode::from(1)
}
