//! The power cut at the boundaries of one seeded life: which operations, and which pending changes survive.
//!
//! Owns the choice of cuts and the text of a failure. What a life does, and what must hold afterwards, is the
//! search's own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use duramen_disk::MemDisk;
use duramen_disk::memory::Trace;

use crate::search::case::{Case, Choice};
use crate::search::cuts::{choices, image};
use crate::search::random::Random;

/// How much is tried of each life.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Images judged at one boundary, at most.
    pub images_per_boundary: usize,
    /// One boundary of so many is examined, a different one for each seed.
    pub boundary_stride: usize,
}

/// Random subsets among the choices of a boundary.
const RANDOM_CHOICES: usize = 6;

/// A life, or a cut in it, after which something does not hold.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The subcommand that searches such lives.
    search: &'static str,
    case: Option<Case>,
    seed: u64,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        // Some bounds of the engine are smaller with debug assertions: the other build makes another life.
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let run = format!("again: cargo run{release} -p duramen-sim -- {}", self.search);
        match &self.case {
            Some(case) => write!(f, "{run} {case}"),
            None => write!(f, "{run} --seed {} --seconds 1", self.seed),
        }
    }
}

/// Runs a life without a cut.
///
/// # Errors
/// What fails in it, a panic included.
pub(crate) fn lived<T>(
    search: &'static str,
    seed: u64,
    life: impl FnOnce() -> Result<T, String>,
) -> Result<T, Failure> {
    guarded(life).map_err(|what| {
        let what = format!("seed {seed}, before any cut: {what}");
        Failure { search, case: None, seed, what }
    })
}

/// Judges what a cut has left.
///
/// # Errors
/// What does not hold, a panic included.
pub(crate) fn judged<T>(
    search: &'static str,
    case: Case,
    judge: impl FnOnce() -> Result<T, String>,
) -> Result<T, Failure> {
    guarded(judge).map_err(|what| Failure {
        search,
        case: Some(case),
        seed: case.seed,
        what: format!("after {case}: {what}"),
    })
}

/// The disk that one cut leaves.
#[must_use]
pub(crate) fn left_by(trace: &Trace, case: &Case) -> MemDisk {
    let mut cursor = trace.cursor();
    cursor.seek(case.op.min(trace.len()));
    image(&cursor, &case.choice)
}

/// Cuts the power at the boundaries of a life, and passes on what is left.
///
/// # Errors
/// The first of `judge`.
pub(crate) fn cut(
    trace: &Trace,
    (seed, has_log_disk): (u64, bool),
    budget: &Budget,
    random: &mut Random,
    stop: &(dyn Fn() -> bool + Sync),
    judge: &mut dyn FnMut(Case, MemDisk) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut cursor = trace.cursor();
    let offset = random.below(budget.boundary_stride);
    loop {
        let op = cursor.at();
        if (op + offset).is_multiple_of(budget.boundary_stride) {
            let found = choices(cursor.pending_len(), RANDOM_CHOICES, has_log_disk, random);
            let mut all: Vec<Choice> = found.plain.into_iter().chain(found.random).collect();
            random.shuffle(&mut all);
            for choice in all.into_iter().take(budget.images_per_boundary) {
                judge(Case { seed, op, choice }, image(&cursor, &choice))?;
            }
        }
        if stop() || !cursor.advance() {
            return Ok(());
        }
    }
}

pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("a panic (see above)".to_owned()))
}
