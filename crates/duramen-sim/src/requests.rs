//! The crash search over requests with an id.
//!
//! One seeded life asks for requests, tries them again, asks what has become of them, and lets them rest,
//! while minutes are forgotten and the clock jumps at each opening. The power is cut anywhere in it.
//! Afterwards every request is tried again, at clocks that jump again: each has had its effect once or never,
//! and what was told of it stays true.

mod asked;
mod life;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use duramen_disk::MemDisk;
use duramen_disk::memory::Trace;

use crate::boundaries::{self, judged, left_by, lived};
pub use crate::boundaries::{Budget, Failure};
use crate::kind_counts::KindCounts;
use crate::lives;
use crate::search::case::Case;
use crate::search::random::{Random, joined};
use asked::Asked;
use life::{Lived, live};

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 2, boundary_stride: 5 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 5, boundary_stride: 1 };

/// What a request was told, in a life or after a cut.
const ANSWERS: [&str; 8] = [
    "committed",
    "committed by an earlier try",
    "an outcome that is committed",
    "an outcome that is never",
    "cancelled",
    "too old",
    "ahead of the clock",
    "a conflict of a request that rested",
];

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lives.
    pub seeds: u64,
    /// The seed to begin the next search with.
    pub next_seed: u64,
    /// Distinct images judged.
    pub cuts: u64,
    /// Answers told in lives and after cuts, of each kind.
    told: [u64; ANSWERS.len()],
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// What a search must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        counts.extend(self.told.iter().zip(ANSWERS).map(|(count, name)| (*count, name)));
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.cuts += other.cuts;
        self.told.iter_mut().zip(other.told).for_each(|(sum, more)| *sum += more);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seeds, next_seed, cuts, elapsed, .. } = self;
        writeln!(f, "{cuts} distinct cuts in {seeds} lives of requests, {:.1} s", elapsed.as_secs_f64())?;
        writeln!(f, "figures: cuts={cuts} seeds={seeds} next_seed={next_seed}")?;
        write!(f, "{}", self.counts())
    }
}

/// Cuts the life of one seed at its boundaries.
///
/// # Errors
/// The first cut that breaks what was told.
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let lived = record(seed)?;
    let mut report = Report { seeds: 1, told: lived.counts, ..Report::default() };
    let mut random = Random::new(joined(seed, 31));
    let mut seen = HashSet::new();
    let life = (seed, lived.has_log_disk());
    boundaries::cut(&lived.trace, life, budget, &mut random, stop, &mut |case, disk| {
        let hash = disk.image_hash();
        let told = judge(&lived, case, &disk)?;
        report.cuts += u64::from(seen.insert(hash));
        report.told.iter_mut().zip(told).for_each(|(sum, more)| *sum += more);
        Ok(())
    })?;
    Ok(report)
}

/// Makes one cut again.
///
/// # Errors
/// What it breaks.
pub fn replay(case: Case) -> Result<(), Failure> {
    let lived = record(case.seed)?;
    judge(&lived, case, &left_by(&lived.trace, &case)).map(drop)
}

/// Searches seeds one after the other on several threads, until all are done or the time is over.
///
/// # Errors
/// The first cut that breaks what was told.
pub fn search(
    seeds: Range<u64>,
    budget: &Budget,
    thread_count: usize,
    time: Option<Duration>,
) -> Result<Report, Failure> {
    let life = |seed, stop: &(dyn Fn() -> bool + Sync)| search_seed(seed, budget, stop);
    let found = lives::search(&seeds, thread_count, time, life, Report::add)?;
    Ok(Report { elapsed: found.elapsed, next_seed: found.next_seed, ..found.report })
}

fn record(seed: u64) -> Result<Lived, Failure> {
    lived("requests", seed, || live(seed))
}

/// Judges one image. Returns what was told after it.
fn judge(lived: &Lived, case: Case, disk: &MemDisk) -> Result<[u64; ANSWERS.len()], Failure> {
    judged("requests", case, || lived.survive(case, disk))
}
