//! `replica`: the power is cut in seeded lives of a node of a cluster.

use clap::Args;
use duramen_sim::replica::{LONG, QUICK, replay, search};

use super::{Length, OneCut};

/// Cuts the power in seeded lives of a node with a scripted consensus; with `--op`, makes one such cut again
#[derive(Debug, Args)]
pub(crate) struct Replica {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    cut: OneCut,
}

impl Replica {
    pub(crate) fn run(&self) -> Result<(), String> {
        if let Some(case) = self.cut.of(self.length.seed) {
            replay(case).map_err(|failure| failure.to_string())?;
            println!("survived");
            return Ok(());
        }
        let budget = if self.quick { QUICK } else { LONG };
        let seeds = self.length.seed..u64::MAX;
        let found = search(seeds, &budget, self.length.threads(), Some(self.length.time()));
        let report = found.map_err(|failure| failure.to_string())?;
        println!("{report}");
        report.counts().verdict()
    }
}
