//! The crash search of many threads: real threads commit on a recording disk, then the power is cut at any
//! call.
//!
//! Tests D1 and D2 across threads. A cut must leave one prefix of the order that the receipts give, with
//! every commit in it that had been acknowledged before that call. New commits must work on it, the check
//! must be clean, and a second cut must be survived, all as [the crash search](crate::search) judges.
//!
//! The same lives test I1: all answers are compared by [the history checker](crate::history), and a third of
//! the lives has transactions older than the ring of recent commits. Threads are not repeatable: a life that
//! fails is kept as a file, and [`replay`] cuts that.

mod coverage;
mod kept;
pub mod live;
mod report;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen_disk::MemDisk;

pub use report::Report;

use self::live::{Life, Lived, live};
use crate::lives;
use crate::search::case::{Case, Choice};
use crate::search::cuts;
use crate::search::kinds::Kind;
use crate::search::model::History;
use crate::search::random::{Random, joined};
use crate::search::recovery::survive;
use crate::search::run::Recorded;

/// How much is tried of one life.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// About one boundary of so many is cut at.
    pub boundary_stride: usize,
    /// Images judged there, at most.
    pub images_per_boundary: usize,
}

/// Random subsets among the choices of a boundary: about a third of them.
const RANDOM_CHOICES: usize = 8;

/// The budget of `cargo test`.
pub const QUICK: Budget = Budget { boundary_stride: 29, images_per_boundary: 2 };

/// The budget of a long search: threads interleave differently in every life, so many lives find more than
/// many cuts.
pub const LONG: Budget = Budget { boundary_stride: 7, images_per_boundary: 3 };

/// A failure, and the life in which it happened.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the life.
    pub seed: u64,
    /// The cut; `None` if the life failed without one.
    pub case: Option<Case>,
    /// What is wrong.
    pub what: String,
    /// The operations before the cut, and what was pending.
    pub around: String,
    /// The life, if it came to its end.
    pub life: Option<Box<Life>>,
    /// Where it is kept.
    pub kept: Option<PathBuf>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        if !self.around.is_empty() {
            writeln!(f, "{}", self.around)?;
        }
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let run = format!("again: cargo run{release} -p duramen-sim --");
        match (&self.case, &self.kept) {
            (Some(Case { op, choice, .. }), Some(kept)) => {
                write!(f, "{run} replay --trace {} --op {op} --choice {choice}", kept.display())
            }
            // Threads interleave differently each time: the seed only makes the failure likely.
            (_, kept) => {
                let kept = kept.as_ref().map(|kept| format!(" (recorded in {})", kept.display()));
                write!(f, "{run} concurrent --seed {} --minutes 1{}", self.seed, kept.unwrap_or_default())
            }
        }
    }
}

impl Failure {
    fn of_life(seed: u64, what: String) -> Failure {
        let what = format!("seed {seed}, before any cut: {what}");
        Failure { seed, case: None, what, around: String::new(), life: None, kept: None }
    }

    /// Writes the life into a directory, which is created if it is missing.
    fn keep(&mut self, directory: &Path) {
        let Some(life) = &self.life else { return };
        let op = self.case.map_or(0, |case| case.op);
        let path = directory.join(format!("concurrent-{}-{op}.life", self.seed));
        let kept = life.encode().and_then(|bytes| {
            let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, bytes));
            written.map_err(|error| error.to_string())
        });
        match kept {
            Ok(()) => self.kept = Some(path),
            Err(why) => self.what = format!("{}\nnot kept in {}: {why}", self.what, path.display()),
        }
    }
}

/// Runs the life of a seed and cuts it.
///
/// # Errors
/// The first cut that was not survived, or a failure without a cut.
#[allow(clippy::result_large_err, reason = "there is one a search")]
pub fn search_seed(seed: u64, budget: &Budget, stop: &(dyn Fn() -> bool + Sync)) -> Result<Report, Failure> {
    let lived = catch_unwind(AssertUnwindSafe(|| live(seed)))
        .unwrap_or_else(|_| Err("the life panicked (see above)".to_owned()));
    let lived = lived.map_err(|what| Failure::of_life(seed, what))?;
    let mut report = Report::of_life(&lived);
    let Lived { life, verdict, .. } = lived;
    let fail = |what: String| Failure { life: Some(Box::new(life.clone())), ..Failure::of_life(seed, what) };
    if !verdict.violations.is_empty() {
        return Err(fail(verdict.violations.join("\n")));
    }
    let recorded = recorded(&life).map_err(fail)?;
    let mut random = Random::new(joined(seed, 23));
    let mut seen = Seen::default();
    let mut cursor = recorded.trace.cursor();
    // Not from the start: the single-threaded search cuts creations.
    cursor.seek(life.created_at);
    loop {
        if random.chance(1, budget.boundary_stride) {
            let (op, apart) = (cursor.at(), recorded.options.wal_dir.is_some());
            let choices = cuts::choices(cursor.pending_len(), RANDOM_CHOICES, apart, &mut random);
            let mut all: Vec<Choice> = choices.plain.into_iter().chain(choices.random).collect();
            random.shuffle(&mut all);
            for choice in all.into_iter().take(budget.images_per_boundary) {
                let image = cuts::image(&cursor, &choice);
                let case = Case { seed, op, choice };
                let kind = Kind::of(&choice, cursor.pending_len());
                judge(&recorded, (&case, kind), &image, &mut seen, &mut report).map_err(|what| Failure {
                    case: Some(case),
                    around: crate::search::around(&recorded, op, &choice),
                    what,
                    ..fail(String::new())
                })?;
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

/// Judges an image, unless the same bytes were judged before.
fn judge(
    recorded: &Recorded,
    (case, kind): (&Case, Kind),
    image: &MemDisk,
    seen: &mut Seen,
    report: &mut Report,
) -> Result<(), String> {
    let (floor, ceiling) = (recorded.history.floor(case.op), recorded.history.ceiling(case.op));
    let hash = image.image_hash();
    if let Some(seq) = seen.first.get(&hash) {
        // More commits may have been acknowledged since.
        return if *seq < floor {
            Err(format!("recovered commit {seq}; {floor} was promised"))
        } else {
            Ok(())
        };
    }
    let survival = survive(recorded, case, image)?;
    seen.first.insert(hash, survival.seq);
    report.cuts += 1;
    let last = case.op.checked_sub(1).map(|at| recorded.trace.op(at));
    let separate = recorded.options.wal_dir.is_some();
    report.coverage.cut(recorded.options.sync.unwrap_or_default(), separate, last.as_ref(), kind);
    let second = survival.second;
    if !seen.first.contains_key(&second.image) && seen.second.insert(second.image) {
        report.second_cuts += 1;
        report.coverage.second_cut(second.kind);
    }
    report.lost += u64::from(survival.seq < ceiling);
    report.kept += u64::from(survival.seq > floor);
    Ok(())
}

/// A life in the form that the crash search judges.
fn recorded(life: &Life) -> Result<Recorded, String> {
    Ok(Recorded {
        seed: life.seed,
        trace: life.trace.clone(),
        history: History::of_commits(life.commits.clone(), &life.promises())?,
        options: life.options.clone(),
        created_at: life.created_at,
        database: life.database.clone(),
    })
}

/// Reproduces a cut of a recorded life.
///
/// # Errors
/// What is wrong with the image, or with the file.
pub fn replay(file: &Path, op: usize, choice: Choice) -> Result<u64, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    replay_life(&Life::decode(&bytes)?, op, choice)
}

/// Reproduces a cut of a life.
///
/// # Errors
/// What is wrong with the image.
pub fn replay_life(life: &Life, op: usize, choice: Choice) -> Result<u64, String> {
    let recorded = recorded(life)?;
    let mut cursor = recorded.trace.cursor();
    cursor.seek(op.min(recorded.trace.len()));
    let case = Case { seed: life.seed, op, choice };
    let survived = survive(&recorded, &case, &cuts::image(&cursor, &choice));
    let around = || crate::search::around(&recorded, op, &choice);
    survived.map(|survival| survival.seq).map_err(|what| format!("{what}\n{}", around()))
}

/// Searches seed after seed, several lives at once, until all are done or the time is over. Lives that fail
/// are kept.
///
/// # Errors
/// The first failure.
#[allow(clippy::result_large_err, reason = "there is one a search")]
pub fn search(
    seeds: std::ops::Range<u64>,
    budget: &Budget,
    lives_at_once: usize,
    time: Option<Duration>,
    keep: &Path,
) -> Result<Report, Failure> {
    let found =
        lives::search(&seeds, lives_at_once, time, |seed, stop| search_seed(seed, budget, stop), Report::add);
    match found {
        Ok(found) => Ok(Report { elapsed: found.elapsed, next_seed: found.next_seed, ..found.report }),
        Err(mut failure) => {
            failure.keep(keep);
            Err(failure)
        }
    }
}
