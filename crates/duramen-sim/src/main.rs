//! The simulation's command line: long searches, and cuts reproduced. One file per subcommand in `commands`.
#![allow(clippy::disallowed_methods, reason = "a program")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it found")]

mod commands;

use std::process::ExitCode;

use clap::Parser;

use commands::Command;

/// Simulated power cuts, faults and corruption under Duramen.
#[derive(Debug, Parser)]
#[command(name = "duramen-sim", max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Args::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
