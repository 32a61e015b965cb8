//! The crash search on a disk whose calls fail: seeded lives in which any call may fail, once or for good.
//!
//! The power is cut at every operation, in the run and in recoveries that fail themselves. Judges D1, D2, D4,
//! D6 and D7: acknowledged commits are there, commits in doubt may be, refused ones never are. A medium that
//! lied is reported or does no harm. Nothing here touches the real disk; the clock is read only to stop a
//! long search.

pub mod book;
pub mod judge;
pub mod ledger;
pub mod living;
pub mod report;
pub mod storm;
pub mod tally;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use duramen_disk::memory::Cursor;

use crate::lives;
use crate::search::Budget;
use crate::search::case::Choice;
use crate::search::cuts::{choices, image, some_choice};
use crate::search::kinds::Kind;
use crate::search::random::{Random, joined};
use crate::search::recovery::caught;
use crate::search::run::{options_of, prepared};
use book::Book;
use judge::survive;
use living::{Before, Boot, Going, Living};
use report::Report;

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { images_per_boundary: 3, random_choices: 3, boundary_stride: 4 };

/// The budget of a long search.
pub const LONG: Budget = Budget { images_per_boundary: 12, random_choices: 8, boundary_stride: 1 };

/// Boots of one life, at most.
const BOOTS_MAX: usize = 3;

/// Events of one boot.
const EVENT_COUNT: usize = 40;

/// A cut of the life of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The life.
    pub seed: u64,
    /// The boot.
    pub boot: usize,
    /// Operations of the disk that had happened since its start.
    pub op: usize,
    /// Which pending changes survived.
    pub choice: Choice,
}

/// A cut that the database did not survive, or a life that failed without one.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The life.
    pub seed: u64,
    /// The cut; `None` if the life failed without one.
    pub case: Option<Box<Case>>,
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
        write!(f, "again: cargo run{release} -p duramen-sim -- faulty --again --seed {}", self.seed)?;
        match &self.case {
            Some(case) => write!(f, " --boot {} --op {} --choice {}", case.boot, case.op, case.choice),
            None => Ok(()),
        }
    }
}

/// The boots of a seed's life, each from the start of the machine to a power cut.
///
/// # Errors
/// A broken promise without any other cut.
pub fn live(seed: u64) -> Result<Vec<Boot>, Failure> {
    let mut boots = Vec::new();
    let lived = caught(|| live_through(seed, &mut boots));
    let failure = |what: String| Failure {
        seed,
        case: None,
        what: format!("seed {seed}, boot {}, before any other cut: {what}", boots.len()),
        around: String::new(),
    };
    lived.map_err(failure)?;
    Ok(boots)
}

/// Whether the medium lies instead of failing in the life of a seed: in every third one.
#[must_use]
pub fn is_lied_to(seed: u64) -> bool {
    Random::new(joined(seed, 12)).chance(1, 3)
}

fn live_through(seed: u64, boots: &mut Vec<Boot>) -> Result<(), String> {
    let options = options_of(seed);
    let disk = prepared(seed, &options).map_err(|e| e.to_string())?;
    let mut random = Random::new(joined(seed, 13));
    let mut before =
        Before { disk, book: Book::new(), options, database: None, has_lied: false, may_leak: false };
    let is_lied_to = is_lied_to(seed);
    let boot_count = if is_lied_to { 1 } else { random.between(1, BOOTS_MAX + 1) };
    for boot in 0..boot_count {
        let mut living = Living::start(before, joined(seed, boot as u64 + 20));
        let arrived = living.arrive(!is_lied_to && random.chance(1, 3));
        let mut going = arrived.map_err(|what| living.tell(&what))?;
        for event in 0..EVENT_COUNT {
            // Some machines are switched off at the first error.
            if going == Going::Over || living.is_poisoned() && random.chance(1, 4) {
                break;
            }
            let went = living.event(is_lied_to);
            going = went.map_err(|what| living.tell(&format!("event {event}: {what}")))?;
        }
        let ended = living.cut();
        let mut cursor = ended.trace.cursor();
        let op = ended.trace.len() - random.below(ended.trace.len().min(8));
        cursor.seek(op);
        let choice = some_choice(cursor.pending_len(), ended.options.wal_dir.is_some(), &mut random);
        before = ended.before(op, image(&cursor, &choice));
        boots.push(ended);
    }
    Ok(())
}

/// Cuts the life of one seed at its boundaries.
///
/// # Errors
/// The first cut that was not survived.
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let boots = live(seed)?;
    let mut report = Report { seeds: 1, ..Report::default() };
    let mut seen = Seen::default();
    let mut random = Random::new(joined(seed, 3));
    for (index, boot) in boots.iter().enumerate() {
        report.boots += 1;
        report.operations += boot.trace.len() as u64;
        report.tally.add(&boot.tally);
        let mut cursor = boot.trace.cursor();
        let offset = random.below(budget.boundary_stride);
        loop {
            let op = cursor.at();
            if (op + offset).is_multiple_of(budget.boundary_stride) {
                let apart = boot.options.wal_dir.is_some();
                let choices = choices(cursor.pending_len(), budget.random_choices, apart, &mut random);
                let plain_max = budget.images_per_boundary - budget.images_per_boundary / 3;
                let mut judged = 0;
                for (choices, judged_max) in
                    [(choices.plain, plain_max), (choices.random, budget.images_per_boundary)]
                {
                    for choice in choices {
                        if judged >= judged_max {
                            break;
                        }
                        let case = Case { seed, boot: index, op, choice };
                        judged += usize::from(cut(boot, &cursor, case, &mut seen, &mut report)?);
                    }
                }
            }
            if stop() {
                return Ok(report);
            }
            if !cursor.advance() {
                break;
            }
        }
    }
    Ok(report)
}

/// Images judged, by their hashes.
#[derive(Default)]
struct Seen {
    /// Images left by first cuts, and the commit that each recovered to.
    first: HashMap<u64, Option<u64>>,
    /// Images left by second cuts.
    second: HashSet<u64>,
}

/// Judges one image; `false` if the same image was judged before.
fn cut(
    boot: &Boot,
    cursor: &Cursor<'_>,
    case: Case,
    seen: &mut Seen,
    report: &mut Report,
) -> Result<bool, Failure> {
    let image = image(cursor, &case.choice);
    let hash = image.image_hash();
    if let Some(known) = seen.first.get(&hash) {
        // The same bytes recover to the same commit; but more may have been promised since, or the commit
        // taken back.
        return match known {
            Some(seq) if !boot.may_hold(case.op, *seq) => {
                let floor = boot.book.floor(case.op);
                Err(failure(
                    boot,
                    case,
                    format!("found commit {seq}, which may not be there; {floor} was promised"),
                ))
            }
            _ => Ok(false),
        };
    }
    let survival =
        caught(|| survive(boot, case.op, image, case.seed)).map_err(|what| failure(boot, case, what))?;
    seen.first.insert(hash, survival.seq);
    report.cuts += 1;
    report.kinds[Kind::of(&case.choice, cursor.pending_len()) as usize] += 1;
    report.tally.add(&survival.tally);
    if let Some((second, kind)) = survival.second
        && !seen.first.contains_key(&second)
        && seen.second.insert(second)
    {
        report.second_cuts += 1;
        report.kinds[kind as usize] += 1;
    }
    Ok(true)
}

/// Runs a seed's life again and judges the database after one power cut of it.
///
/// # Errors
/// What is wrong with the image.
pub fn replay(case: Case) -> Result<Option<u64>, Failure> {
    let boots = live(case.seed)?;
    let boot = boots.get(case.boot).ok_or_else(|| Failure {
        seed: case.seed,
        case: None,
        what: format!("the life has {} boots", boots.len()),
        around: String::new(),
    })?;
    let mut cursor = boot.trace.cursor();
    cursor.seek(case.op.min(boot.trace.len()));
    let image = image(&cursor, &case.choice);
    let judged = caught(|| survive(boot, case.op, image, case.seed));
    judged.map(|survival| survival.seq).map_err(|what| failure(boot, case, what))
}

fn failure(boot: &Boot, case: Case, what: String) -> Failure {
    let (op, choice) = (case.op, case.choice);
    let mut lines =
        vec![format!("seed {}, boot {}, cut after {op} operations, {choice}", case.seed, case.boot)];
    lines.extend((op.saturating_sub(24)..op).map(|at| format!("  op {at}: {}", boot.trace.describe(at))));
    let mut cursor = boot.trace.cursor();
    cursor.seek(op);
    let pending = cursor.pending();
    lines.extend(pending.iter().take(40).enumerate().map(|(at, info)| format!("  pending {at}: {info}")));
    Failure { seed: case.seed, case: Some(Box::new(case)), what, around: lines.join("\n") }
}

/// Searches seeds one after the other on several threads, until all are done or the time is over.
///
/// # Errors
/// The first cut that was not survived.
pub fn search(
    seeds: Range<u64>,
    budget: &Budget,
    thread_count: usize,
    time: Option<Duration>,
) -> Result<Report, Failure> {
    let found =
        lives::search(&seeds, thread_count, time, |seed, stop| search_seed(seed, budget, stop), Report::add)?;
    Ok(Report { elapsed: found.elapsed, ..found.report })
}
