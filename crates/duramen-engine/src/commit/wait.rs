//! Waiting for the thread that serves, and for a group: one parked thread per member, each woken separately.

use std::fmt;
use std::sync::Arc;

use super::Ordered;
use super::lead::Panic;
use super::order::{EnterError, Prepared};
use crate::alarm::{invariant, locked};
use crate::error::Result;
use crate::sync::{Condvar, Mutex};

/// A waiting committer.
#[derive(Default)]
pub(super) struct Waiter {
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Waiter {
    /// Without the transaction, which is the program's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    reason: Option<WakeReason>,
    sleeps: bool,
    /// The transaction, while it is queued and once it has been served.
    request: Option<Prepared>,
}

/// Why a waiter wakes.
#[derive(Debug)]
pub(super) enum WakeReason {
    /// It enters its transaction, and those that are queued after it.
    Serve,
    /// Its transaction has its place and waits for no group, or did not enter.
    Answered(std::result::Result<Ordered, EnterError>),
    /// Entering its transaction panicked with this.
    Panicked(Panic),
    /// It leads: it writes the forming group.
    Lead,
    /// The group is done.
    Done(Arc<GroupOutcome>, usize),
}

/// The outcome of a group, and its waiters.
#[derive(Debug)]
pub(super) struct GroupOutcome {
    /// The result for every member.
    pub result: Result<()>,
    /// The members that wait.
    pub waiters: Vec<Arc<Waiter>>,
}

impl Waiter {
    /// For a transaction that another thread enters.
    #[must_use]
    pub(super) fn with(request: Prepared) -> Waiter {
        let state = State { request: Some(request), ..State::default() };
        Waiter { state: Mutex::new(state), ..Waiter::default() }
    }

    /// Takes the transaction.
    pub(super) fn take_request(&self) -> Prepared {
        locked(self.state.lock()).request.take().expect("a queued transaction has one owner at a time")
    }

    /// Gives the transaction back to its thread.
    pub(super) fn give_back(&self, request: Prepared) {
        locked(self.state.lock()).request = Some(request);
    }

    /// Wakes the waiter with a reason.
    pub(super) fn wake(&self, reason: WakeReason) {
        let (before, sleeps) = {
            let mut state = locked(self.state.lock());
            (state.reason.replace(reason), state.sleeps)
        };
        if sleeps {
            self.changed.notify_one();
        }
        // A leadership that was replaced would be lost, and every later commit would wait.
        invariant!(before.is_none(), "a waiter that was woken with {before:?} is woken once");
    }

    /// Waits for a reason to wake.
    pub(super) fn wait(&self) -> WakeReason {
        let mut state = locked(self.state.lock());
        loop {
            if let Some(reason) = state.reason.take() {
                return reason;
            }
            state.sleeps = true;
            state = locked(self.changed.wait(state));
        }
    }
}

impl GroupOutcome {
    /// Wakes the first waiter. Each waiter wakes two more, so that no thread wakes them all.
    pub(super) fn announce(self: &Arc<GroupOutcome>) {
        self.tell(0);
    }

    /// Wakes the next two waiters after the one with this index.
    pub(super) fn pass_on(self: &Arc<GroupOutcome>, index: usize) {
        self.tell(2 * index + 1);
        self.tell(2 * index + 2);
    }

    fn tell(self: &Arc<GroupOutcome>, index: usize) {
        if let Some(waiter) = self.waiters.get(index) {
            waiter.wake(WakeReason::Done(Arc::clone(self), index));
        }
    }
}
