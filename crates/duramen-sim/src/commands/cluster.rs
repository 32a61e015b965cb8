//! `cluster`: whole clusters in one thread, each under a seed.

use clap::Args;
use duramen_sim::cluster::{run_traced, search};

use super::Length;

/// Runs clusters of three nodes with faults of every kind, and judges what their clients were told
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    #[command(flatten)]
    length: Length,
    /// Runs so many seeds, however long that takes
    #[arg(long, conflicts_with_all = ["minutes", "seconds"])]
    seeds: Option<u64>,
    /// Prints everything that happens in the run of `--seed`, and nothing else
    #[arg(long, conflicts_with = "seeds")]
    trace: bool,
}

impl Cluster {
    pub(crate) fn run(&self) -> Result<(), String> {
        let first = self.length.seed;
        if self.trace {
            return run_traced(first, |line| println!("{line}")).map_err(|failure| failure.to_string());
        }
        let seeds = first..self.seeds.map_or(u64::MAX, |count| first.saturating_add(count));
        let time = self.seeds.is_none().then(|| self.length.time());
        let found = search(seeds, self.length.threads(), time);
        let report = found.map_err(|failure| failure.to_string())?;
        println!("{report}");
        report.counts().verdict()
    }
}
