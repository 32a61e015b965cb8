//! The crash search over one node of a cluster.
//!
//! One seeded life of a node, with a scripted consensus: it decides, decides half a group, delays, refuses,
//! cuts, changes terms, and starts the process anew. The power is cut anywhere in it. Afterwards the database
//! is what was decided, all of it and nothing else; what was acknowledged as synced is in Raft's log; and in
//! the life no waiting call is told another fate than that of its commit.

mod life;
mod survive;
mod transactions;
mod truth;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use duramen_disk::MemDisk;

use crate::boundaries::{self, judged, left_by, lived};
pub use crate::boundaries::{Budget, Failure};
use crate::kind_counts::KindCounts;
use crate::lives;
use crate::search::case::Case;
use crate::search::random::{Random, joined};
use life::{Lived, live};

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 2, boundary_stride: 4 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 8, boundary_stride: 1 };

/// What the lives have met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    happened: u64,
    happened_later: u64,
    never: u64,
    open: u64,
    refused: u64,
    stale: u64,
    cut: u64,
    twins: u64,
    terms: u64,
    conflicts: u64,
    purged: u64,
    restarts: u64,
    /// The term in which the transaction began that commits later.
    held_from: Option<u64>,
}

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lives.
    pub seeds: u64,
    /// The seed to begin the next search with.
    pub next_seed: u64,
    /// Distinct images judged.
    pub cuts: u64,
    /// Images whose database had less than was decided.
    behind: u64,
    counts: Counts,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// What a search must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        let met = &self.counts;
        counts.extend([
            (met.happened, "told that it happened"),
            (met.happened_later, "told that it happened under another leader"),
            (met.never, "told that it never happens"),
            (met.open, "a fate that is open"),
            (met.refused, "a refused group"),
            (met.stale, "a stale order"),
            (met.cut, "a log that is cut"),
            (met.twins, "an entry of an order that was given up"),
            (met.terms, "a lost leadership"),
            (met.conflicts, "a transaction of an earlier order"),
            (met.purged, "a purged log"),
            (met.restarts, "a restart"),
            (self.behind, "a database behind what is decided"),
        ]);
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.cuts += other.cuts;
        self.behind += other.behind;
        let (sum, more) = (&mut self.counts, &other.counts);
        for (sum, more) in [
            (&mut sum.happened, more.happened),
            (&mut sum.happened_later, more.happened_later),
            (&mut sum.never, more.never),
            (&mut sum.open, more.open),
            (&mut sum.refused, more.refused),
            (&mut sum.stale, more.stale),
            (&mut sum.cut, more.cut),
            (&mut sum.twins, more.twins),
            (&mut sum.terms, more.terms),
            (&mut sum.conflicts, more.conflicts),
            (&mut sum.purged, more.purged),
            (&mut sum.restarts, more.restarts),
        ] {
            *sum += more;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seeds, next_seed, cuts, elapsed, .. } = self;
        writeln!(f, "{cuts} distinct cuts in {seeds} lives of a node, {:.1} s", elapsed.as_secs_f64())?;
        writeln!(f, "figures: cuts={cuts} seeds={seeds} next_seed={next_seed}")?;
        write!(f, "{}", self.counts())
    }
}

/// Cuts the life of one seed at its boundaries.
///
/// # Errors
/// The first cut after which something is not as it was decided or told.
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let lived = record(seed)?;
    let mut report = Report { seeds: 1, counts: lived.counts, ..Report::default() };
    let mut random = Random::new(joined(seed, 41));
    let mut seen = HashSet::new();
    boundaries::cut(&lived.trace, (seed, false), budget, &mut random, stop, &mut |case, disk| {
        if seen.insert(disk.image_hash()) {
            report.behind += u64::from(judge(&lived, case, &disk)?);
            report.cuts += 1;
        }
        Ok(())
    })?;
    Ok(report)
}

/// Makes one cut again.
///
/// # Errors
/// What is not as it was decided or told.
pub fn replay(case: Case) -> Result<(), Failure> {
    let lived = record(case.seed)?;
    judge(&lived, case, &left_by(&lived.trace, &case)).map(drop)
}

/// Searches seeds one after the other on several threads, until all are done or the time is over.
///
/// # Errors
/// The first cut after which something is not as it was decided or told.
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
    lived("replica", seed, || live(seed))
}

/// Judges one image. Returns whether its database had less than was decided.
fn judge(lived: &Lived, case: Case, disk: &MemDisk) -> Result<bool, Failure> {
    let mut random = Random::new(joined(case.seed, case.op as u64));
    judged("replica", case, || lived.survive(case.op, disk, &mut random))
}

fn text(error: duramen_engine::Error) -> String {
    format!("{error} ({})", error.code())
}
