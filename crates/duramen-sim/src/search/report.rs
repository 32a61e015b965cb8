//! What a search has covered: cuts, phases, transactions lost and kept.

use std::fmt;
use std::time::Duration;

use super::phases::Phase;

/// Figures of a search.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Runs.
    pub seeds: u64,
    /// Operations of their disks.
    pub operations: u64,
    /// First cuts: distinct images, each opened, compared, used and cut again.
    pub cuts: u64,
    /// Second cuts: distinct images that those left.
    pub second_cuts: u64,
    /// Cuts after which a commit that had begun was gone.
    pub lost: u64,
    /// Cuts after which a commit was there that nobody had been promised.
    pub kept: u64,
    /// Time taken.
    pub elapsed: Duration,
    /// Cuts that fell into each phase, in the order of [`Phase::ALL`].
    pub phases: [u64; Phase::ALL.len()],
}

impl Report {
    /// Distinct images in all.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.cuts + self.second_cuts
    }

    /// Counts cuts that fell into a phase.
    pub fn phase(&mut self, phase: Phase, count: u64) {
        self.phases[phase as usize] += count;
    }

    /// Phases that no cut fell into, in words; and what else a search must have seen.
    #[must_use]
    pub fn unseen(&self) -> Vec<&'static str> {
        let phases = Phase::ALL.iter().filter(|phase| self.phases[**phase as usize] == 0);
        let mut unseen: Vec<&'static str> = phases.map(|phase| phase.name()).collect();
        if self.lost == 0 {
            unseen.push("a lost unacknowledged transaction");
        }
        if self.kept == 0 {
            unseen.push("a kept unacknowledged transaction");
        }
        unseen
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.lost += other.lost;
        self.kept += other.kept;
        for (mine, theirs) in self.phases.iter_mut().zip(other.phases) {
            *mine += theirs;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8} runs, {} operations", self.seeds, self.operations)?;
        let (distinct, seconds) = (self.distinct(), self.elapsed.as_secs_f64());
        writeln!(f, "{distinct:>8} distinct cuts: {} first, {} second", self.cuts, self.second_cuts)?;
        if seconds > 0.0 {
            writeln!(f, "{:>8.0} distinct cuts a second, {seconds:.1} s", self.distinct() as f64 / seconds)?;
        }
        writeln!(f, "{:>8} lost an unacknowledged transaction", self.lost)?;
        writeln!(f, "{:>8} kept an unacknowledged transaction", self.kept)?;
        for phase in Phase::ALL {
            writeln!(f, "{:>8} {}", self.phases[*phase as usize], phase.name())?;
        }
        Ok(())
    }
}
