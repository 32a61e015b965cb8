//! What a search has covered: cuts, phases, transactions lost and kept.

use std::fmt;
use std::time::Duration;

use duramen_engine::SyncMethod;

use super::kinds::Kind;
use super::phases::Phase;
use crate::kind_counts::KindCounts;

/// The sync methods, and their names in a report.
pub(crate) const METHODS: [(SyncMethod, &str); 3] = [
    (SyncMethod::Fdatasync, "write and fdatasync"),
    (SyncMethod::Dsync, "DSYNC writes"),
    (SyncMethod::DirectDsync, "direct DSYNC writes"),
];

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Cuts after which an unpromised commit was there.
    pub kept: u64,
    /// Distinct cuts of runs with each method of `METHODS`.
    pub methods: [u64; METHODS.len()],
    /// Distinct cuts of runs with the log on a separate disk.
    pub separate: u64,
    /// Distinct first cuts that left a database with compressed pages.
    pub compressed: u64,
    /// Distinct first cuts that left a database with patches.
    pub patched: u64,
    /// Distinct cuts of each kind of choice, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
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

    /// Counts a distinct cut by the sync method, the log's disk, and the kind of choice.
    pub fn opened(&mut self, sync: SyncMethod, separate: bool, kind: Kind) {
        for (count, (method, _)) in self.methods.iter_mut().zip(METHODS) {
            *count += u64::from(method == sync);
        }
        self.separate += u64::from(separate);
        self.kinds[kind as usize] += 1;
    }

    /// Phases that cuts fell into, and anything else a search must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        let phases = Phase::ALL.iter().filter(|phase| phase.must_be_seen());
        counts.extend(phases.map(|phase| (self.phases[*phase as usize], phase.name())));
        counts.extend(self.methods.iter().zip(METHODS).map(|(count, (_, name))| (*count, name)));
        counts.extend(self.kinds.iter().zip(Kind::ALL).map(|(count, kind)| (*count, kind.name())));
        counts.extend([
            (self.separate, "a log on a disk of its own"),
            (self.compressed, "compressed pages"),
            (self.patched, "patches"),
            (self.lost, "a lost unacknowledged transaction"),
            (self.kept, "a kept unacknowledged transaction"),
        ]);
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.lost += other.lost;
        self.kept += other.kept;
        self.separate += other.separate;
        self.compressed += other.compressed;
        self.patched += other.patched;
        self.elapsed += other.elapsed;
        let mine = self.phases.iter_mut().chain(&mut self.methods).chain(&mut self.kinds);
        let theirs = other.phases.iter().chain(&other.methods).chain(&other.kinds);
        for (mine, theirs) in mine.zip(theirs) {
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
        for (count, (_, name)) in self.methods.iter().zip(METHODS) {
            writeln!(f, "{count:>8} with {name}")?;
        }
        writeln!(f, "{:>8} with the log on a disk of its own", self.separate)?;
        writeln!(f, "{:>8} with compressed pages", self.compressed)?;
        writeln!(f, "{:>8} with patches", self.patched)?;
        for kind in Kind::ALL {
            writeln!(f, "{:>8} {}", self.kinds[*kind as usize], kind.name())?;
        }
        for phase in Phase::ALL {
            writeln!(f, "{:>8} {}", self.phases[*phase as usize], phase.name())?;
        }
        Ok(())
    }
}
