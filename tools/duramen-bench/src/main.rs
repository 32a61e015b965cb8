//! The program `duramen-bench`: Duramen beside its rivals, every one at full durability, on a disk.
//!
//! `compare` measures and reports who won; `commerce` does it with a whole application. `workloads` prints
//! what is measured, `engines` with which settings. docs/benchmarks.md explains how to run and read it.
//! Everything that prints is in `output`.

#![allow(
    clippy::disallowed_methods,
    reason = "a program has files, threads, processes and a clock of its own"
)]

mod args;
mod beyond;
mod bound;
mod cgroup;
mod child;
mod commerce;
mod compare;
mod data;
mod documents;
mod drive;
mod engine;
mod engines;
#[cfg(feature = "sqlite")]
mod flights;
mod growth;
mod job;
mod machine;
#[cfg(feature = "sqlite")]
mod model;
mod output;
#[cfg(any(feature = "postgres", feature = "serve"))]
mod postgres_script;
#[cfg(feature = "sqlite")]
mod queries;
mod reference;
mod report;
mod results;
#[cfg(feature = "serve")]
mod serve;
mod tables;
mod verdict;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

use args::{Command, Words};
use engine::Result;

fn main() -> ExitCode {
    match run(Words::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::progress(&format!("duramen-bench: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn run(words: Words) -> Result<()> {
    match words.command {
        Command::Beyond(words) => beyond::run(&words)?,
        Command::Workloads => output::table(&tables::workloads()),
        Command::Engines => output::table(&tables::engines()),
        Command::Child { job } => output::outcome(&workloads::run(&serde_json::from_str(&job)?)?)?,
        Command::Commerce(args) => commerce::show(&args, &commerce::run(&args)?)?,
        Command::Documents(words) => documents::run(&words)?,
        #[cfg(feature = "sqlite")]
        Command::Flights(words) => flights::run(&words)?,
        Command::Growth(words) => growth::run(&words)?,
        #[cfg(feature = "sqlite")]
        Command::Model(words) => model::run(&words)?,
        #[cfg(feature = "sqlite")]
        Command::Queries(words) => queries::run(&words)?,
        #[cfg(feature = "serve")]
        Command::Serve(words) => serve::run(&words)?,
        #[cfg(feature = "serve")]
        Command::ServeScan(words) => serve::scan::run(&words)?,
        #[cfg(feature = "serve")]
        Command::ServeAway(words) => serve::away::run(&words)?,
        #[cfg(feature = "serve")]
        Command::Served { dir, tls } => serve::serve(&dir, tls)?,
        Command::Compare(args) => report::show(&args, &compare::run(&args)?)?,
    }
    Ok(())
}
