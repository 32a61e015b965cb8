//! `corruption`: corrupt bytes and misplaced files, each named by an error or harmless.

use clap::Args;
use duramen_sim::corruption::{Bits, closed, flips, killed, rearrangements};

use super::Sweep;

/// Corrupts every byte of small databases, and puts old, swapped and foreign parts in place
#[derive(Debug, Args)]
pub(crate) struct Corruption {
    #[command(flatten)]
    sweep: Sweep,
    /// Flips all eight bits of each byte, not one of them
    #[arg(long)]
    all_bits: bool,
}

impl Corruption {
    pub(crate) fn run(&self) -> Result<(), String> {
        let bits = if self.all_bits { Bits::All } else { Bits::OnePerByte };
        let (seed, part, threads) = (self.sweep.seed, self.sweep.part, self.sweep.threads());
        let (mut trials, mut violations) = (0, Vec::new());
        for specimen in [closed(seed), killed(seed)] {
            let rearranged = part.is_first().then(|| rearrangements(&specimen, seed));
            for report in rearranged.into_iter().chain([flips(&specimen, seed, bits, part, threads)]) {
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
