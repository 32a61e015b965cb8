//! Transactions that run alone, and calls that would wait for their own thread.
//!
//! Beside the loop of `order.rs` there is another one: `Engine::run` (engine.rs) runs the closure again after
//! a conflict. After `CONFLICTS_MAX` of them it calls `submit_alone`, which holds the order lock while the
//! closure runs. No other commit is ordered then, so validation succeeds. Without it a long transaction
//! beside short ones could starve. It runs alone again, `CONFLICTS_MAX` times at most, if commits that it
//! read were dropped. On a full disk `run` writes two checkpoints, once, and tries again. The steps of
//! `submit_alone`:
//!
//! 1. Wait for memory before taking the lock: the checkpoint that frees memory needs the lock, too.
//! 2. Mark the thread. A commit inside the closure then fails with `Invalid`, and does not wait for itself.
//! 3. Run the closure and catch a panic. Release the lock before resuming it, or the lock is poisoned.
//! 4. Use the transaction's own registration. A new one would free, under the lock, what an older root held.
//! 5. Enter with loading allowed, and make room as often as needed: no other commit can take it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::order::EnterError;
use super::serve::Answers;
use super::{Committer, Ordered, Submission};
use crate::alarm::invariant;
use crate::catalog::Root;
use crate::error::{Error, Result};
use crate::tree::{Loading, Patches};

thread_local! {
    /// The databases whose order lock this thread holds while it runs code of the program, innermost last.
    static ALONE: RefCell<Vec<*const Committer>> = const { RefCell::new(Vec::new()) };
    /// The databases in whose event hooks this thread is, innermost last.
    static TELLING: RefCell<Vec<*const Committer>> = const { RefCell::new(Vec::new()) };
}

/// Exists while this thread runs an event hook.
struct Telling;

impl Telling {
    fn enter(of: &Committer) -> Telling {
        TELLING.with_borrow_mut(|telling| telling.push(of));
        Telling
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLING.with_borrow_mut(Vec::pop);
    }
}

/// Exists while this thread runs code of the program and holds the order lock.
struct Alone;

impl Alone {
    fn enter(of: &Committer) -> Alone {
        ALONE.with_borrow_mut(|alone| alone.push(of));
        Alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        ALONE.with_borrow_mut(Vec::pop);
    }
}

impl Committer {
    /// Runs `build` and commits what it returns while no other thread can order a commit.
    ///
    /// # Errors
    /// As [`Committer::submit`], without `Conflict`; and any error from `build`.
    pub(crate) fn submit_alone<T>(
        &self,
        build: impl FnOnce(Arc<Root>) -> Result<(T, Option<Submission>)>,
    ) -> Result<(T, Option<Ordered>)> {
        self.not_alone()?;
        self.throttle.wait(&self.store, &|| self.usable())?;
        let order = if self.is_replica() { self.wait_decided_order()? } else { self.order.lock() };
        let alone = Alone::enter(self);
        let built = catch_unwind(AssertUnwindSafe(|| build(self.latest())));
        drop(alone);
        let built = match built {
            Ok(built) => built,
            Err(panic) => {
                drop(order);
                resume_unwind(panic);
            }
        };
        let (out, submission) = built?;
        let Some(submission) = submission else { return Ok((out, None)) };
        let call_ns = self.log().now_ns();
        // After the closure: its panic is the program's own. The lock is released before the note.
        let _within = self.store.alarm.enter();
        let mut order = order;
        let mut prepared = self.prepare(submission, call_ns)?;
        prepared.loading = Loading::Allowed;
        let read = prepared.base.root();
        invariant!(self.latest.is(read), "commit {} was the latest while a closure ran alone", read.seq);
        if let Err(error) = self.fit_memory(&prepared, &prepared.base, Patches::AsTheyAre) {
            return Err(self.abandon(error, &prepared.values));
        }
        loop {
            let halt = match self.enter(&mut order, &mut prepared) {
                Ok(seq) => {
                    let waits = self.place(&mut order, seq, &mut prepared, false);
                    let ordered = self.see_through(order, &prepared, waits, Answers::default());
                    let ordered = self.decided(ordered, prepared.wait)?;
                    return Ok((out, Some(ordered)));
                }
                Err(halt) => halt,
            };
            let again = match halt {
                EnterError::Failed(error) => Err(error),
                EnterError::Missing => unreachable!("loading is allowed"),
                EnterError::NoRoom(bytes) => self.throttle.ensure_room(&self.store, bytes),
            };
            if let Err(error) = again {
                return Err(self.abandon(error, &prepared.values));
            }
        }
    }

    /// Runs a condition of a transaction under the order lock: what would wait for its own thread is refused
    /// inside it.
    ///
    /// # Errors
    /// That of the condition; `Invalid` if it panics.
    pub(super) fn run_condition(&self, condition: impl FnOnce() -> Result<()>) -> Result<()> {
        let _alone = Alone::enter(self);
        let panicked = |_| Err(Error::invalid("a condition of the transaction panicked"));
        catch_unwind(AssertUnwindSafe(condition)).unwrap_or_else(panicked)
    }

    /// Runs an event hook of the program. The calling thread may be one that commits wait for.
    pub(crate) fn while_telling(&self, hook: impl FnOnce()) {
        let _telling = Telling::enter(self);
        hook();
    }

    /// Fails where a commit would wait for its own thread: in a closure that runs alone, and in an event
    /// hook. The hook may run in the thread that makes room for commits.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn not_alone(&self) -> Result<()> {
        if TELLING.with_borrow(|telling| telling.contains(&std::ptr::from_ref(self))) {
            let what = "commits, waits, checkpoints and close are not allowed inside an event hook";
            return Err(Error::invalid(what).with_hint("send the event to another thread and write there"));
        }
        if ALONE.with_borrow(|alone| alone.contains(&std::ptr::from_ref(self))) {
            let what =
                "a commit inside the closure of another transaction that runs alone, or inside a condition";
            return Err(Error::invalid(what).with_hint("use the transaction that the closure was given"));
        }
        Ok(())
    }
}
