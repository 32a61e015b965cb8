//! `search`: the power is cut at every operation of many seeded lives of a database.

use clap::Args;
use duramen_sim::search::{LONG, QUICK, search};

use super::Length;

/// Cuts the power at every operation of seeded lives of a database, and again after each recovery
#[derive(Debug, Args)]
pub(crate) struct Search {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
}

impl Search {
    pub(crate) fn run(&self) -> Result<(), String> {
        let budget = if self.quick { QUICK } else { LONG };
        let seeds = self.length.seed..u64::MAX;
        let found = search(seeds, &budget, self.length.threads(), Some(self.length.time()));
        let report = found.map_err(|failure| failure.to_string())?;
        println!("{report}");
        let next_seed = self.length.seed + report.seeds + self.length.threads() as u64;
        println!("figures: cuts={} seeds={} next_seed={next_seed}", report.distinct(), report.seeds);
        println!("{}", report.counts());
        report.counts().verdict()
    }
}
