//! What a search with faults has covered: cuts, kinds of choices, faults and their consequences.

use std::fmt;
use std::time::Duration;

use super::tally::Tally;
use crate::kind_counts::KindCounts;
use crate::search::kinds::Kind;

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lives.
    pub seeds: u64,
    /// Their boots.
    pub boots: u64,
    /// Operations of their disks.
    pub operations: u64,
    /// First cuts: distinct images, each opened, compared, used and cut again.
    pub cuts: u64,
    /// Second cuts: distinct images that those left.
    pub second_cuts: u64,
    /// Distinct cuts of each kind of choice, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    /// Faults met, in lives and recoveries, and their consequences.
    pub tally: Tally,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// Distinct images in all.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.cuts + self.second_cuts
    }

    /// Kinds of choices, of faults and of consequences.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        counts.extend(self.kinds.iter().zip(Kind::ALL).map(|(count, kind)| (*count, kind.name())));
        counts.extend(self.tally.lines());
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.boots += other.boots;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.elapsed += other.elapsed;
        self.kinds.iter_mut().zip(other.kinds).for_each(|(mine, theirs)| *mine += theirs);
        self.tally.add(&other.tally);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lives, boots) = (self.seeds, self.boots);
        writeln!(f, "{lives:>8} lives, {boots} boots, {} operations", self.operations)?;
        let (distinct, seconds) = (self.distinct(), self.elapsed.as_secs_f64());
        writeln!(f, "{distinct:>8} distinct cuts: {} first, {} second", self.cuts, self.second_cuts)?;
        if seconds > 0.0 {
            writeln!(f, "{:>8.0} distinct cuts a second, {seconds:.1} s", self.distinct() as f64 / seconds)?;
        }
        self.counts().iter().try_for_each(|(count, name)| writeln!(f, "{count:>8} {name}"))
    }
}
