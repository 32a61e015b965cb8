//! The crash search: a seeded run of the engine on a recording disk, then the power cut at every operation.
//!
//! Every surviving image is opened, compared with the model, used again and cut again. Tests D1, D2 and D3 as
//! far as a search can. Nothing here touches the real disk; the clock is read only to stop a long search.

pub mod alone;
pub mod case;
pub mod compare;
pub mod cuts;
pub mod feed;
pub mod kinds;
pub mod model;
pub mod phases;
pub mod random;
pub mod recovery;
pub mod report;
pub mod run;
pub mod shapes;
pub mod writer;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use duramen_disk::memory::{CrashChoice, Trace};

use crate::features::{LZ4_PAGES, PATCHES, features_of};
use crate::lives;
use case::{Case, Choice};
use kinds::Kind;
use phases::{Phase, phases_of};
use random::{Random, joined};
use recovery::survive;
use report::Report;
use run::{PATH, Recorded, run};

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Distinct images judged at one boundary, at most. A third of them is kept for random subsets.
    pub images_per_boundary: usize,
    /// Random subsets tried at one boundary, at most.
    pub random_choices: usize,
    /// One boundary of so many is examined, a different one for each seed.
    pub boundary_stride: usize,
}

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 6, random_choices: 4, boundary_stride: 2 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 40, random_choices: 16, boundary_stride: 1 };

/// A cut that the database did not survive, or a run that failed without one.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// The cut; `None` if the run failed without one.
    pub case: Option<Case>,
    /// What is wrong.
    pub what: String,
    /// The operations before the cut, and what was pending.
    pub around: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        if !self.around.is_empty() {
            writeln!(f, "{}", self.around)?;
        }
        // Some bounds of the engine are smaller with debug assertions: the other build makes another run.
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let run = format!("again: cargo run{release} -p duramen-sim -- replay");
        match &self.case {
            Some(case) => write!(f, "{run} {case}"),
            None => write!(f, "{run} --seed {}", self.seed),
        }
    }
}

/// Records the run of a seed; a failing or panicking run is a failure.
///
/// # Errors
/// A failure without any cut.
pub fn record(seed: u64) -> Result<Recorded, Failure> {
    let failure = |what: String| Failure { seed, case: None, what, around: String::new() };
    catch_unwind(AssertUnwindSafe(|| run(seed)))
        .unwrap_or_else(|_| Err("the run panicked (see above)".to_owned()))
        .map_err(|what| failure(format!("seed {seed}, before any cut: {what}")))
}

/// A hash of everything a run did to its disk: equal for equal runs.
#[must_use]
pub fn trace_hash(trace: &Trace) -> u64 {
    let mut hash = trace.len() as u64;
    for at in 0..trace.len() {
        hash = trace.describe(at).bytes().fold(hash, |hash, byte| joined(hash, u64::from(byte)));
    }
    let mut cursor = trace.cursor();
    while cursor.at() < trace.len() {
        cursor.seek((cursor.at() + 97).min(trace.len()));
        hash = joined(hash, cursor.image_hash(&CrashChoice::All));
    }
    hash
}

/// Cuts the run of one seed at its boundaries.
///
/// # Errors
/// The first cut that was not survived.
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let recorded = record(seed)?;
    let phases = phases_of(&recorded.trace, recorded.created_at, &recorded.options.geometry);
    let apart = recorded.options.wal_dir.is_some();
    let mut report = Report { seeds: 1, operations: recorded.trace.len() as u64, ..Report::default() };
    let mut random = Random::new(joined(seed, 3));
    let mut seen = Seen::default();
    let mut cursor = recorded.trace.cursor();
    let offset = random.below(budget.boundary_stride);
    loop {
        let op = cursor.at();
        if (op + offset).is_multiple_of(budget.boundary_stride) {
            let choices = cuts::choices(cursor.pending_len(), budget.random_choices, apart, &mut random);
            let plain_max = budget.images_per_boundary - budget.images_per_boundary / 3;
            let mut judged = 0;
            for (choices, judged_max) in
                [(choices.plain, plain_max), (choices.random, budget.images_per_boundary)]
            {
                for choice in choices {
                    if judged >= judged_max {
                        break;
                    }
                    let case = Case { seed, op, choice };
                    let fresh = cut(&recorded, &cursor, case, phases[op], &mut seen, &mut report)?;
                    judged += usize::from(fresh);
                }
            }
        }
        if stop() || !cursor.advance() {
            return Ok(report);
        }
    }
}

/// Images judged, by their hashes.
#[derive(Default)]
struct Seen {
    /// Images left by first cuts, and the commit that each recovered to.
    first: HashMap<u64, u64>,
    /// Images left by second cuts.
    second: HashSet<u64>,
}

/// Judges one image; `false` if the same image was judged before.
fn cut(
    recorded: &Recorded,
    cursor: &duramen_disk::memory::Cursor<'_>,
    case: Case,
    phases: phases::Phases,
    seen: &mut Seen,
    report: &mut Report,
) -> Result<bool, Failure> {
    let (floor, ceiling) = (recorded.history.floor(case.op), recorded.history.ceiling(case.op));
    let fail =
        |what: String| Failure { around: around(recorded, case.op, &case.choice), ..failure(case, what) };
    let image = cuts::image(cursor, &case.choice);
    let hash = image.image_hash();
    if let Some(seq) = seen.first.get(&hash) {
        // The same bytes recover to the same commit; but more may have been promised since.
        if *seq < floor {
            return Err(fail(format!("recovered commit {seq}; {floor} was promised")));
        }
        return Ok(false);
    }
    let features = features_of(&image, PATH);
    report.compressed += u64::from(features & LZ4_PAGES != 0);
    report.patched += u64::from(features & PATCHES != 0);
    let survival = survive(recorded, &case, &image).map_err(fail)?;
    seen.first.insert(hash, survival.seq);
    let separate = recorded.options.wal_dir.is_some();
    report.cuts += 1;
    let kind = Kind::of(&case.choice, cursor.pending_len());
    report.opened(recorded.options.sync.unwrap_or_default(), separate, kind);
    let second = survival.second;
    if !seen.first.contains_key(&second.image) && seen.second.insert(second.image) {
        report.second_cuts += 1;
        report.opened(survival.sync, separate, second.kind);
        report.phase(Phase::Recovery, u64::from(second.in_recovery));
        report.phase(Phase::Copying, u64::from(second.in_copy));
    }
    report.lost += u64::from(survival.seq < ceiling);
    report.kept += u64::from(survival.seq > floor);
    for phase in Phase::ALL {
        report.phase(*phase, u64::from(phases.has(*phase)));
    }
    Ok(true)
}

fn failure(case: Case, what: String) -> Failure {
    Failure { seed: case.seed, case: Some(case), what, around: String::new() }
}

/// The last operations before a cut, and the changes it could lose.
pub(crate) fn around(recorded: &Recorded, op: usize, choice: &Choice) -> String {
    let trace = &recorded.trace;
    let mut lines = vec![format!("seed {}, cut after {op} operations, {choice}", recorded.seed)];
    lines.push(format!("phase: {}", trace.mark_before(op).unwrap_or("creation")));
    lines.extend((op.saturating_sub(12)..op).map(|at| format!("  op {at}: {}", trace.describe(at))));
    let mut cursor = trace.cursor();
    cursor.seek(op);
    let pending = cursor.pending();
    lines.extend(pending.iter().take(40).enumerate().map(|(at, info)| format!("  pending {at}: {info}")));
    lines.join("\n")
}

/// Reproduces one cut.
///
/// # Errors
/// What is wrong with the image.
pub fn replay(case: Case) -> Result<u64, Failure> {
    let recorded = record(case.seed)?;
    let mut cursor = recorded.trace.cursor();
    cursor.seek(case.op.min(recorded.trace.len()));
    let image = cuts::image(&cursor, &case.choice);
    let judged = survive(&recorded, &case, &image);
    judged
        .map(|survival| survival.seq)
        .map_err(|what| Failure { around: around(&recorded, case.op, &case.choice), ..failure(case, what) })
}

/// Searches seeds one after the other on several threads, until all are done or the time is over.
///
/// # Errors
/// The first cut that was not survived.
pub fn search(
    seeds: std::ops::Range<u64>,
    budget: &Budget,
    thread_count: usize,
    time: Option<Duration>,
) -> Result<Report, Failure> {
    let found =
        lives::search(&seeds, thread_count, time, |seed, stop| search_seed(seed, budget, stop), Report::add)?;
    Ok(Report { elapsed: found.elapsed, ..found.report })
}
