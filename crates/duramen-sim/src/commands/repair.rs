//! `repair`: corrupt databases, each repaired into a sound copy with a report of the losses.

use clap::Args;
use duramen_sim::repair;

use super::Sweep;

/// Corrupts every byte of small databases, or one of N, and repairs what is left
#[derive(Debug, Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    sweep: Sweep,
    /// Corrupts one byte of so many
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Random cuts, zeroed ranges and flips of each database
    #[arg(long, default_value_t = 1000)]
    ranges: u64,
}

impl Repair {
    pub(crate) fn run(&self) -> Result<(), String> {
        let (seed, part, threads) = (self.sweep.seed, self.sweep.part, self.sweep.threads());
        let (mut trials, mut violations) = (0, Vec::new());
        for specimen in [repair::closed(seed), repair::killed(seed)] {
            let blocks = part.is_first().then(|| repair::blocks(&specimen));
            let flips = repair::flips(&specimen, seed, self.every, part, threads);
            let ranges = repair::ranges(&specimen, seed, self.ranges, part, threads);
            for report in blocks.into_iter().chain([flips, ranges]) {
                println!("{}: {report}", specimen.name);
                trials += report.trial_count;
                violations.extend(report.violations);
            }
        }
        if !violations.is_empty() {
            return Err(violations.join("\n"));
        }
        println!("figures: trials={trials} next_seed={}", seed + 1);
        Ok(())
    }
}
