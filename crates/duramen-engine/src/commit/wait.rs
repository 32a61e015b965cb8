//! Waiting for a group: one parked thread per member, each woken separately.

use std::sync::Arc;

use crate::alarm::{invariant, locked};
use crate::error::Result;
use crate::sync::{Condvar, Mutex};

/// A waiting committer.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    reason: Mutex<Option<WakeReason>>,
    changed: Condvar,
}

/// Why a waiter wakes.
#[derive(Debug, Clone)]
pub(super) enum WakeReason {
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
    /// Wakes the waiter with a reason.
    pub(super) fn wake(&self, reason: WakeReason) {
        let before = locked(self.reason.lock()).replace(reason);
        self.changed.notify_one();
        // A leadership that was replaced would be lost, and every later commit would wait.
        invariant!(before.is_none(), "a waiter that was woken with {before:?} is woken once");
    }

    /// Waits for a reason to wake.
    pub(super) fn wait(&self) -> WakeReason {
        let mut reason = locked(self.reason.lock());
        loop {
            if let Some(reason) = reason.take() {
                return reason;
            }
            reason = locked(self.changed.wait(reason));
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
