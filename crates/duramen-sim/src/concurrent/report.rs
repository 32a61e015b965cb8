//! What a search with many threads has covered.

use std::fmt;
use std::time::Duration;

use super::coverage::Coverage;
use super::live::Lived;
use crate::kind_counts::KindCounts;

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lives.
    pub seeds: u64,
    /// The seed to go on with.
    pub next_seed: u64,
    /// Operations of their disks.
    pub operations: u64,
    /// Commits that wrote.
    pub commits: u64,
    /// Groups of commits that shared a write.
    pub groups: u64,
    /// Transactions refused with a conflict.
    pub conflicts: u64,
    /// Answers compared.
    pub answers: u64,
    /// Validations older than the ring of recent commits: what was read was compared value by value.
    pub compared: u64,
    /// Commits without a receipt; the engine has made as many without changes.
    pub empty: u64,
    /// Commits up to which feeds returned the threads' changes, summed over all lives.
    pub told: u64,
    /// Acknowledgements in the traces.
    pub acknowledged: u64,
    /// First cuts: distinct images, each opened, compared, used and cut again.
    pub cuts: u64,
    /// Second cuts: distinct images that those left.
    pub second_cuts: u64,
    /// Cuts after which a commit that had begun was gone.
    pub lost: u64,
    /// Cuts after which a commit was there that had not been acknowledged.
    pub kept: u64,
    /// Kinds of lives and of cuts.
    pub coverage: Coverage,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    pub(super) fn of_life(lived: &Lived) -> Report {
        let Lived { life, verdict, groups, compared, empty, levels, told } = lived;
        Report {
            seeds: 1,
            operations: life.trace.len() as u64,
            commits: verdict.writer_count,
            groups: *groups,
            conflicts: verdict.conflict_count,
            answers: verdict.answer_count,
            compared: *compared,
            empty: *empty,
            told: told.unwrap_or(0),
            acknowledged: life.promises().len() as u64,
            coverage: Coverage::of_life(life.seed, *levels),
            ..Report::default()
        }
    }

    /// Distinct images in all.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.cuts + self.second_cuts
    }

    /// What a search must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        counts.extend([
            (self.commits.saturating_sub(self.groups), "commits that share a write"),
            (self.conflicts, "a conflict"),
            (self.compared, "a validation by value"),
            (self.told, "a commit that a feed tells"),
            (self.acknowledged, "an acknowledged commit"),
            (self.lost, "a lost unacknowledged commit"),
            (self.kept, "a kept unacknowledged commit"),
            (self.second_cuts, "a second cut"),
        ]);
        counts.extend(self.coverage.counts());
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.commits += other.commits;
        self.groups += other.groups;
        self.conflicts += other.conflicts;
        self.answers += other.answers;
        self.compared += other.compared;
        self.empty += other.empty;
        self.told += other.told;
        self.acknowledged += other.acknowledged;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.lost += other.lost;
        self.kept += other.kept;
        self.coverage.add(&other.coverage);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, what) in [
            (self.seeds, "lives"),
            (self.operations, "operations of their disks"),
            (self.commits, "commits"),
            (self.groups, "groups"),
            (self.conflicts, "conflicts"),
            (self.answers, "answers compared"),
            (self.compared, "validations by value, of transactions older than the ring of recent commits"),
            (self.empty, "commits of nothing between them"),
            (self.told, "commits told by feeds"),
            (self.acknowledged, "acknowledgements"),
            (self.cuts, "distinct first cuts"),
            (self.second_cuts, "distinct second cuts"),
            (self.lost, "lost an unacknowledged commit"),
            (self.kept, "kept an unacknowledged commit"),
        ] {
            writeln!(f, "{count:>10} {what}")?;
        }
        for (count, what) in self.coverage.counts() {
            writeln!(f, "{count:>10} {what}")?;
        }
        write!(f, "{:>10} seconds", self.elapsed.as_secs())
    }
}
