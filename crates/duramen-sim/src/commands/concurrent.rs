//! `concurrent`: the power is cut at any disk call of lives in which real threads commit.

use std::path::PathBuf;

use clap::Args;
use duramen_sim::concurrent::{LONG, QUICK, search};

use super::Length;

/// Cuts the power at any disk call while real threads commit, and checks their answers for an order
#[derive(Debug, Args)]
pub(crate) struct Concurrent {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
    /// Directory for the record of a life that fails: threads repeat nothing, so that only the record can be
    /// cut again
    #[arg(long, default_value = "target/concurrent")]
    keep: PathBuf,
}

impl Concurrent {
    pub(crate) fn run(&self) -> Result<(), String> {
        let budget = if self.quick { QUICK } else { LONG };
        let seeds = self.length.seed..u64::MAX;
        let time = Some(self.length.time());
        let found = search(seeds, &budget, self.length.threads(), time, &self.keep);
        let report = found.map_err(|failure| failure.to_string())?;
        println!("{report}");
        let (cuts, seeds, next_seed) = (report.distinct(), report.seeds, report.next_seed);
        println!("figures: cuts={cuts} seeds={seeds} next_seed={next_seed} answers={}", report.answers);
        println!("{}", report.counts());
        report.counts().verdict()
    }
}
