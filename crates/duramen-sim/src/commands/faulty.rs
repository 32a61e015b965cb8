//! `faulty`: the crash search on a disk whose calls fail, and one of its cuts reproduced.

use clap::Args;
use duramen_sim::faulty::{Case, LONG, QUICK, live, replay, search};
use duramen_sim::search::case::Choice;

use super::Length;

/// Cuts the power at every operation of lives in which calls of the disk fail or lie
#[derive(Debug, Args)]
pub(crate) struct Faulty {
    #[command(flatten)]
    length: Length,
    /// As much for each life as `cargo test` tries, so that more lives are seen
    #[arg(long)]
    quick: bool,
    /// Makes the life of one seed again, or one cut of it, as a failure prints it
    #[arg(long)]
    again: bool,
    /// The boot of the life
    #[arg(long, default_value_t = 0, requires = "op")]
    boot: usize,
    /// Operations of the disk before the cut
    #[arg(long, requires = "again")]
    op: Option<usize>,
    /// What the cut keeps of the pending changes
    #[arg(long, default_value = "none", requires = "op")]
    choice: Choice,
}

impl Faulty {
    pub(crate) fn run(&self) -> Result<(), String> {
        if self.again {
            return self.make_again();
        }
        let budget = if self.quick { QUICK } else { LONG };
        let seeds = self.length.seed..u64::MAX;
        let found = search(seeds, &budget, self.length.threads(), Some(self.length.time()));
        let report = found.map_err(|failure| failure.to_string())?;
        println!("{report}");
        let next_seed = self.length.seed + report.seeds + self.length.threads() as u64;
        let (cuts, seeds) = (report.distinct(), report.seeds);
        let faults = report.tally.faults.iter().sum::<u64>();
        println!("figures: cuts={cuts} faults={faults} seeds={seeds} next_seed={next_seed}");
        println!("{}", report.counts());
        report.counts().verdict()
    }

    fn make_again(&self) -> Result<(), String> {
        let seed = self.length.seed;
        let Some(op) = self.op else {
            let boots = live(seed).map_err(|failure| failure.to_string())?;
            let operations: Vec<String> = boots.iter().map(|boot| boot.trace.len().to_string()).collect();
            println!("seed {seed}: boots of {} operations, no cut", operations.join(", "));
            return Ok(());
        };
        let case = Case { seed, boot: self.boot, op, choice: self.choice };
        match replay(case).map_err(|failure| failure.to_string())? {
            Some(seq) => println!("survived: recovered commit {seq}"),
            None => println!("survived: a lie of the medium was named"),
        }
        Ok(())
    }
}
