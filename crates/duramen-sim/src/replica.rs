//! The crash search over one node of a cluster.
//!
//! One seeded life of a node, with a scripted consensus: it decides, decides half a group, delays, refuses,
//! cuts, changes terms, and starts the process anew. The power is cut anywhere in it. Afterwards the database
//! is what was decided, all of it and nothing else; what was acknowledged as synced is in Raft's log; and in
//! the life no waiting call is told another fate than that of its commit.

mod life;
mod survive;
mod truth;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::kind_counts::KindCounts;
use crate::lives;
use crate::search::case::{Case, Choice};
use crate::search::cuts::{choices, image};
use crate::search::random::{Random, joined};
use life::{Lived, live};

/// How much is tried of each life.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Images judged at one boundary, at most.
    pub images_per_boundary: usize,
    /// One boundary of so many is examined, a different one for each seed.
    pub boundary_stride: usize,
}

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 2, boundary_stride: 4 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 8, boundary_stride: 1 };

/// Random subsets among the choices of a boundary.
const RANDOM_CHOICES: usize = 6;

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

/// A life or a cut after which something is not as it was decided or told.
#[derive(Debug, Clone)]
pub struct Failure {
    case: Option<Case>,
    seed: u64,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let run = format!("again: cargo run{release} -p duramen-sim -- replica");
        match &self.case {
            Some(case) => write!(f, "{run} {case}"),
            None => write!(f, "{run} --seed {} --seconds 1", self.seed),
        }
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
    let mut cursor = lived.trace.cursor();
    let offset = random.below(budget.boundary_stride);
    loop {
        let op = cursor.at();
        if (op + offset).is_multiple_of(budget.boundary_stride) {
            let found = choices(cursor.pending_len(), RANDOM_CHOICES, false, &mut random);
            let mut all: Vec<Choice> = found.plain.into_iter().chain(found.random).collect();
            random.shuffle(&mut all);
            for choice in all.into_iter().take(budget.images_per_boundary) {
                let disk = image(&cursor, &choice);
                if !seen.insert(disk.image_hash()) {
                    continue;
                }
                report.behind += u64::from(judge(&lived, Case { seed, op, choice }, &disk)?);
                report.cuts += 1;
            }
        }
        if stop() || !cursor.advance() {
            return Ok(report);
        }
    }
}

/// Makes one cut again.
///
/// # Errors
/// What is not as it was decided or told.
pub fn replay(case: Case) -> Result<(), Failure> {
    let lived = record(case.seed)?;
    let mut cursor = lived.trace.cursor();
    cursor.seek(case.op.min(lived.trace.len()));
    judge(&lived, case, &image(&cursor, &case.choice)).map(drop)
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
    guarded(|| live(seed)).map_err(|what| Failure {
        seed,
        case: None,
        what: format!("seed {seed}, before any cut: {what}"),
    })
}

/// Judges one image. Returns whether its database had less than was decided.
fn judge(lived: &Lived, case: Case, disk: &duramen_disk::MemDisk) -> Result<bool, Failure> {
    let mut random = Random::new(joined(case.seed, case.op as u64));
    guarded(|| lived.survive(case.op, disk, &mut random)).map_err(|what| Failure {
        seed: case.seed,
        case: Some(case),
        what: format!("after {case}: {what}"),
    })
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("a panic (see above)".to_owned()))
}

fn text(error: duramen_engine::Error) -> String {
    format!("{error} ({})", error.code())
}
