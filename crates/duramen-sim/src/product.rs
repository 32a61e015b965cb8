//! The crash search over everything that a program stores.
//!
//! One seeded life of a database has documents, views, references, key-values, blobs, a consumer of its
//! changes, migrations, compactions, copies and a clock that jumps. The power is cut anywhere in it, and what
//! survives is compared with a model of plain maps.
//!
//! The engine's own search is [`search`](crate::search); cuts, choices and cases come from there. Nothing
//! here touches the real disk; the clock is read only to stop a long search.

pub mod feed;
pub mod judge;
pub mod life;
pub mod model;
pub mod references;
pub mod report;
pub mod shop;
pub mod survive;
pub mod tally;
pub mod views;
pub mod writes;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use duramen_disk::memory::Cursor;
use duramen_disk::{Disk, MemDisk};

use crate::lives;
use crate::search::case::{Case, Choice};
use crate::search::cuts::{LOG_DISK, choices, image};
use crate::search::kinds::Kind;
use crate::search::random::{Random, joined};
use judge::failed;
use life::{Event, Life, PATH, open, options_of};
use model::{History, State};
use report::Report;
use shop::Release;
use survive::{Recorded, survive};

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Distinct images judged at one boundary, at most.
    pub images_per_boundary: usize,
    /// One boundary of so many is examined, a different one for each seed.
    pub boundary_stride: usize,
}

/// Random subsets among the choices of a boundary: about a third of them.
const RANDOM_CHOICES: usize = 10;

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 3, boundary_stride: 5 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 6, boundary_stride: 2 };

/// Long events, which are alike in most lives, are examined this many times more rarely.
const LONG_EVENTS_STRIDE: usize = 6;

/// Events of one life.
const EVENT_COUNT: usize = 44;

/// A cut that the database did not survive, or a life that failed without one.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The life.
    pub seed: u64,
    /// The cut; `None` if the life failed without one.
    pub case: Option<Case>,
    /// What is wrong.
    pub what: String,
    /// The operations before the cut.
    pub around: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        if !self.around.is_empty() {
            writeln!(f, "{}", self.around)?;
        }
        // Some bounds of the engine are smaller with debug assertions: the other build makes another life.
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let run = format!("again: cargo run{release} -p duramen-sim -- product");
        match &self.case {
            Some(case) => write!(f, "{run} {case}"),
            None => write!(f, "{run} --seed {}", self.seed),
        }
    }
}

/// Records the life of a seed; a failing or panicking one is a failure.
///
/// # Errors
/// A failure without any cut.
pub fn record(seed: u64) -> Result<Recorded, Failure> {
    let failure = |what: String| Failure { seed, case: None, what, around: String::new() };
    catch_unwind(AssertUnwindSafe(|| live(seed)))
        .unwrap_or_else(|_| Err("the life panicked (see above)".to_owned()))
        .map_err(|what| failure(format!("seed {seed}, before any cut: {what}")))
}

fn live(seed: u64) -> Result<Recorded, String> {
    let mut random = Random::new(joined(seed, 11));
    let options = options_of(seed);
    let disk = MemDisk::new(seed);
    if options.wal_dir.is_some() {
        disk.create_dir(LOG_DISK.as_ref()).map_err(|error| error.to_string())?;
        disk.sync_dir("/".as_ref()).map_err(|error| error.to_string())?;
    }
    disk.record();
    let db = open(&disk, PATH, &options).map_err(failed("open"))?;
    let created_at = disk.recorded_len();
    let release = *random.pick(&[Release::Plain, Release::Viewed, Release::Viewed, Release::Changed]);
    let state = State::default();
    let history = History::starting(db.stats().commit.published.0, Arc::new(state.clone()));
    let mut life = Life::over(db, (disk.clone(), options), (history, state), (release, release), random, "")?;
    life.found()?;
    for _ in 0..EVENT_COUNT {
        life.event()?;
    }
    let ended = life.end();
    Ok(Recorded { seed, trace: disk.stop_recording(), ended, created_at })
}

/// Cuts the life of one seed at its boundaries.
///
/// # Errors
/// The first cut that was not survived.
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let recorded = record(seed)?;
    let apart = recorded.ended.options.wal_dir.is_some();
    let mut report = Report { seeds: 1, operations: recorded.trace.len() as u64, ..Report::default() };
    report.events = recorded.ended.events;
    report.tally = recorded.ended.tally;
    let mut random = Random::new(joined(seed, 13));
    let mut seen = Seen::default();
    let mut cursor = recorded.trace.cursor();
    let offset = random.below(budget.boundary_stride);
    let begins: HashSet<usize> = recorded.trace.marks().map(|(at, _)| at + 1).collect();
    loop {
        let op = cursor.at();
        let event = recorded.trace.mark_before(op);
        let stride = budget.boundary_stride * if is_long(event) { LONG_EVENTS_STRIDE } else { 1 };
        let images_max = match (op + offset).is_multiple_of(stride) {
            true => budget.images_per_boundary,
            // Events that may do nothing are examined, too.
            false => usize::from(begins.contains(&op)),
        };
        let found = choices(cursor.pending_len(), RANDOM_CHOICES, apart, &mut random);
        let mut all: Vec<Choice> = found.plain;
        all.extend(found.random);
        random.shuffle(&mut all);
        let mut judged = 0;
        for choice in all {
            if judged >= images_max {
                break;
            }
            let case = Case { seed, op, choice };
            judged += usize::from(cut(&recorded, &cursor, case, &mut seen, &mut report)?);
        }
        if stop() || !cursor.advance() {
            return Ok(report);
        }
    }
}

/// Whether an event takes many operations: those in which the database is opened or copied.
fn is_long(event: Option<&str>) -> bool {
    let long = [Event::Backup, Event::Upgrade, Event::Visit, Event::Closed, Event::Killed];
    event.is_none_or(|event| long.iter().any(|long| long.name() == event))
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
    cursor: &Cursor<'_>,
    case: Case,
    seen: &mut Seen,
    report: &mut Report,
) -> Result<bool, Failure> {
    let fail = |what: String| Failure {
        seed: case.seed,
        case: Some(case),
        what,
        around: around(recorded, case.op, &case.choice),
    };
    let image = image(cursor, &case.choice);
    let hash = image.image_hash();
    let floor = recorded.ended.history.floor(case.op);
    if let Some(seq) = seen.first.get(&hash) {
        // The same bytes recover to the same commit; but more may have been promised since.
        if *seq < floor {
            return Err(fail(format!("recovered commit {seq}; {floor} was promised")));
        }
        return Ok(false);
    }
    let survival = survive(recorded, case.op, &image).map_err(fail)?;
    seen.first.insert(hash, survival.seq);
    let event = recorded.event_before(case.op);
    report.cut(Kind::of(&case.choice, cursor.pending_len()), event);
    report.tally.add(&survival.tally);
    report.lost += u64::from(survival.seq < recorded.ended.history.ceiling(case.op));
    report.kept += u64::from(survival.seq > floor);
    if !seen.first.contains_key(&survival.second) && seen.second.insert(survival.second) {
        report.second_cut(survival.kind);
    }
    Ok(true)
}

/// The last operations before a cut, and the changes it could lose.
fn around(recorded: &Recorded, op: usize, choice: &Choice) -> String {
    let trace = &recorded.trace;
    let mut lines = vec![format!("seed {}, cut after {op} operations, {choice}", recorded.seed)];
    lines.push(format!("event: {}", trace.mark_before(op).unwrap_or("creation")));
    lines.extend((op.saturating_sub(12)..op).map(|at| format!("  op {at}: {}", trace.describe(at))));
    let mut cursor = trace.cursor();
    cursor.seek(op);
    let pending = cursor.pending();
    lines.extend(pending.iter().take(40).enumerate().map(|(at, info)| format!("  pending {at}: {info}")));
    lines.join("\n")
}

/// Reproduces one cut. Returns the commit that it recovered to.
///
/// # Errors
/// What is wrong with the image.
pub fn replay(case: Case) -> Result<u64, Failure> {
    let recorded = record(case.seed)?;
    let mut cursor = recorded.trace.cursor();
    cursor.seek(case.op.min(recorded.trace.len()));
    let image = image(&cursor, &case.choice);
    survive(&recorded, case.op, &image).map(|survival| survival.seq).map_err(|what| Failure {
        seed: case.seed,
        case: Some(case),
        what,
        around: around(&recorded, case.op, &case.choice),
    })
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
    Ok(Report { elapsed: found.elapsed, next_seed: found.next_seed, ..found.report })
}
