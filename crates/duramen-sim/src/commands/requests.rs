//! `requests`: the power is cut in seeded lives of requests with an id.

use clap::Args;
use duramen_sim::requests::{LONG, QUICK, replay, search};

use super::{Length, OneCut};

/// Cuts the power in seeded lives of requests with an id, and asks for each of them again; with `--op`, makes
/// one such cut again
#[derive(Debug, Args)]
pub(crate) struct Requests {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    cut: OneCut,
}

impl Requests {
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
