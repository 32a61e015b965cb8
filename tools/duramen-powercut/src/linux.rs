//! The tool itself, which exists on Linux only: the command line, and the mapping of failures to exit codes.

mod again;
mod args;
mod channel;
mod drive_process;
mod drive_spec;
mod due;
mod environment;
mod failure;
mod file_system;
mod fuse_protocol;
mod image;
mod jail;
mod loop_device;
mod mount_options;
mod platform;
mod records;
mod report;
mod serve;
mod stage;
mod table;
mod trial;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Runs the command of the command line.
pub(crate) fn run_words() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Table(args) => table::run(&args),
        Command::WriteRecords(args) => records::write(&args),
        Command::CheckRecords(args) => records::check(&args),
        Command::Drive(args) => serve::run(&args),
        Command::Init(args) => jail::init(&args.directory, &args.words),
    }
}

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

/// Draws a seed for a run without one; it is printed.
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map(|since| since.as_nanos()).unwrap_or_default();
    u64::try_from(nanos % 1_000_000_000_000).unwrap_or_default()
}
