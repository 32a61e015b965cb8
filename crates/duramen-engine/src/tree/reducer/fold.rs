//! Reductions joined from left to right.
//!
//! Owns the calls into reducers: their failures and panics stay inside the call that caused them.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Reducer, Running};
use crate::error::{Code, Error, Result};
use crate::limits::REDUCTION_BYTES_MAX;

/// Most reductions are no longer: one allocation for each.
const REDUCTION_BYTES_USUAL: usize = 64;

/// Joins reductions from left to right.
///
/// Its buffers are reused: folding many entries with a reducer that joins bytes allocates nothing.
pub(crate) struct Fold<'a> {
    reducer: &'a dyn Reducer,
    guard: Guard,
    joined: Joined<'a>,
    empty: bool,
}

/// The join so far.
enum Joined<'a> {
    Bytes { sum: Vec<u8>, next: Vec<u8>, one: Vec<u8> },
    Running(Box<dyn Running + 'a>),
}

/// Whether the reducer is running: a panic is then the reducer's, and the engine's otherwise.
#[derive(Default)]
struct Guard {
    at_work: Cell<bool>,
}

impl Guard {
    /// Calls the reducer.
    fn ask<T>(&self, call: impl FnOnce() -> T) -> T {
        self.at_work.set(true);
        let answer = call();
        self.at_work.set(false);
        answer
    }

    /// Turns a panic of the reducer into an error of this call; resumes a panic of the engine.
    fn run<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            if !self.at_work.take() {
                resume_unwind(panic);
            }
            Err(Error::new(Code::ReducerPanicked, format!("a reducer panicked: {}", words(&*panic))))
        })
    }
}

/// A fold that accepts input.
pub(crate) struct Taking<'f, 'a> {
    reducer: &'a dyn Reducer,
    guard: &'f Guard,
    joined: &'f mut Joined<'a>,
    empty: &'f mut bool,
}

impl Taking<'_, '_> {
    /// Adds one entry on the right.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Taking { reducer, guard, joined, empty } = self;
        match joined {
            Joined::Running(running) => {
                **empty = false;
                refused(guard.ask(|| running.entry(key, value)))
            }
            Joined::Bytes { sum, .. } if **empty => {
                sum.clear();
                sum.reserve(REDUCTION_BYTES_USUAL);
                refused(guard.ask(|| reducer.one(key, value, sum)))?;
                **empty = false;
                check_length(sum)
            }
            Joined::Bytes { sum, next, one } => {
                one.clear();
                refused(guard.ask(|| reducer.one(key, value, one)))?;
                check_length(one)?;
                join(*reducer, guard, empty, sum, next, one)
            }
        }
    }

    /// Adds a reduction on the right.
    pub(crate) fn reduction(&mut self, right: &[u8]) -> Result<()> {
        let Taking { reducer, guard, joined, empty } = self;
        match joined {
            Joined::Running(running) => {
                **empty = false;
                guard.ask(|| running.reduction(right));
                Ok(())
            }
            Joined::Bytes { sum, next, .. } => join(*reducer, guard, empty, sum, next, right),
        }
    }
}

impl<'a> Fold<'a> {
    /// An empty fold.
    pub(crate) fn new(reducer: &'a dyn Reducer) -> Fold<'a> {
        let bytes = || Joined::Bytes { sum: Vec::new(), next: Vec::new(), one: Vec::new() };
        let joined = reducer.running().map_or_else(bytes, Joined::Running);
        Fold { reducer, guard: Guard::default(), joined, empty: true }
    }

    /// Whether the fold joins without encoding at every step. Joining a part separately first then costs more
    /// than it saves.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.joined, Joined::Running(_))
    }

    /// Adds a reduction on the right.
    pub(crate) fn add(&mut self, right: &[u8]) -> Result<()> {
        self.add_all(|taking| taking.reduction(right))
    }

    /// Adds everything that `give` hands over.
    pub(crate) fn add_all(&mut self, give: impl FnOnce(&mut Taking<'_, 'a>) -> Result<()>) -> Result<()> {
        let Fold { reducer, guard, joined, empty } = self;
        guard.run(|| give(&mut Taking { reducer: *reducer, guard, joined, empty }))
    }

    /// The result; `None` if nothing was added.
    ///
    /// # Errors
    /// As for adding: an incremental join is encoded only now.
    pub(crate) fn finish(self) -> Result<Option<Vec<u8>>> {
        let Fold { guard, joined, empty, .. } = self;
        if empty {
            return Ok(None);
        }
        match joined {
            Joined::Bytes { sum, .. } => Ok(Some(sum)),
            Joined::Running(mut running) => guard.run(|| {
                let mut out = Vec::new();
                guard.ask(|| running.finish(&mut out));
                check_length(&out)?;
                Ok(Some(out))
            }),
        }
    }
}

fn join(
    reducer: &dyn Reducer,
    guard: &Guard,
    empty: &mut bool,
    sum: &mut Vec<u8>,
    next: &mut Vec<u8>,
    right: &[u8],
) -> Result<()> {
    if std::mem::take(empty) {
        sum.clear();
        sum.extend_from_slice(right);
        return Ok(());
    }
    next.clear();
    guard.ask(|| reducer.join(sum, right, next));
    check_length(next)?;
    std::mem::swap(sum, next);
    Ok(())
}

/// The reduction of one entry.
pub(crate) fn one(reducer: &dyn Reducer, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let guard = Guard::default();
    guard.run(|| {
        let mut out = Vec::with_capacity(REDUCTION_BYTES_USUAL);
        refused(guard.ask(|| reducer.one(key, value, &mut out)))?;
        check_length(&out)?;
        Ok(out)
    })
}

fn refused(made: std::result::Result<(), String>) -> Result<()> {
    made.map_err(|reason| Error::invalid(format!("the reducer refused an entry: {reason}")))
}

fn check_length(reduction: &[u8]) -> Result<()> {
    if reduction.len() <= REDUCTION_BYTES_MAX {
        return Ok(());
    }
    let length = reduction.len();
    Err(Error::invalid(format!("a reduction of {length} bytes; the limit is {REDUCTION_BYTES_MAX}")))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
