//! `product`: the power is cut in seeded lives of a database with everything that a program can store.

use clap::Args;
use duramen_sim::product::{LONG, QUICK, record, replay, search};

use super::{Length, OneCut};

/// Cuts the power in seeded lives of a database that holds everything a program can store; with `--op`, makes
/// one such cut again
#[derive(Debug, Args)]
pub(crate) struct Product {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    cut: OneCut,
    /// Lists what the life of `--seed` does to its disk
    #[arg(long)]
    trace: bool,
}

impl Product {
    pub(crate) fn run(&self) -> Result<(), String> {
        if self.trace {
            return self.print_trace();
        }
        if let Some(case) = self.cut.of(self.length.seed) {
            let seq = replay(case).map_err(|failure| failure.to_string())?;
            println!("survived: recovered commit {seq}");
            return Ok(());
        }
        let budget = if self.quick { QUICK } else { LONG };
        let seeds = self.length.seed..u64::MAX;
        let found = search(seeds, &budget, self.length.threads(), Some(self.length.time()));
        let report = found.map_err(|failure| failure.to_string())?;
        print!("{report}");
        println!("{}", report.figures());
        println!("{}", report.counts());
        report.counts().verdict()
    }

    fn print_trace(&self) -> Result<(), String> {
        let recorded = record(self.length.seed).map_err(|failure| failure.to_string())?;
        for op in 0..recorded.trace.len() {
            let (floor, ceiling) = (recorded.ended.history.floor(op), recorded.ended.history.ceiling(op));
            println!("{op:>5} {floor:>3}..{ceiling:<3} {}", recorded.trace.describe(op));
        }
        Ok(())
    }
}
