//! The subcommands, and the flags that several of them share.

mod cluster;
mod concurrent;
mod corruption;
mod faulty;
mod fuzz;
mod history;
mod product;
mod repair;
mod replay;
mod replica;
mod requests;
mod search;
mod trace;

use std::time::Duration;

use clap::{Args, Subcommand};
use duramen_sim::part::Part;
use duramen_sim::search::case::{Case, Choice};

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Search(search::Search),
    Concurrent(concurrent::Concurrent),
    Replay(replay::Replay),
    Product(product::Product),
    Trace(trace::Trace),
    Corruption(corruption::Corruption),
    Repair(repair::Repair),
    Faulty(faulty::Faulty),
    Fuzz(fuzz::Fuzz),
    History(history::History),
    Requests(requests::Requests),
    Replica(replica::Replica),
    Cluster(cluster::Cluster),
}

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The first violation, with the command that reproduces it.
    pub(crate) fn run(self) -> Result<(), String> {
        match self {
            Command::Search(command) => command.run(),
            Command::Concurrent(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Product(command) => command.run(),
            Command::Trace(command) => command.run(),
            Command::Corruption(command) => command.run(),
            Command::Repair(command) => command.run(),
            Command::Faulty(command) => command.run(),
            Command::Fuzz(command) => command.run(),
            Command::History(command) => command.run(),
            Command::Requests(command) => command.run(),
            Command::Replica(command) => command.run(),
            Command::Cluster(command) => command.run(),
        }
    }
}

/// How long a search runs, and from which seed on.
#[derive(Debug, Args)]
pub(crate) struct Length {
    /// Minutes to run
    #[arg(long, default_value_t = 1, conflicts_with = "seconds")]
    minutes: u64,
    /// Seconds to run, instead of minutes
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed; each life of a database takes the next one
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads, each with a life of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl Length {
    /// The time to run.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(self.minutes.saturating_mul(60)))
    }

    /// Threads to run on.
    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }
}

/// One cut of a life, to be made again.
#[derive(Debug, Args)]
pub(crate) struct OneCut {
    /// Makes one cut of the life of `--seed` again, after so many operations of the disk
    #[arg(long)]
    op: Option<usize>,
    /// Which pending changes survive that cut: none, all, all-but:N, only:N, prefix:N, torn:N:SEED,
    /// random:SEED, or log=CHOICE,rest=CHOICE
    #[arg(long, default_value = "none", requires = "op")]
    choice: Choice,
}

impl OneCut {
    /// The cut of the life of a seed, if one was named.
    pub(crate) fn of(&self, seed: u64) -> Option<Case> {
        self.op.map(|op| Case { seed, op, choice: self.choice })
    }
}

/// How a sweep over the bytes of small databases runs.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// The seed of the databases
    #[arg(long, default_value_t = 35)]
    pub seed: u64,
    /// Runs only one of N parts, written I/N
    #[arg(long, default_value_t = Part::ALL)]
    pub part: Part,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    threads: u16,
}

impl Sweep {
    /// Threads to run on.
    pub(crate) fn threads(&self) -> usize {
        usize::from(self.threads)
    }
}
