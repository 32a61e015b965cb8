//! The one thread that waits for the disk, for all who await it.
//!
//! It waits for the newest commit and then tells everybody whose commit that covers: a thousand tasks share a flush, whatever the
//! number of threads that ran their transactions. Owns what is under way between a place in the order and the disk, and keeps it also
//! where the future was dropped. D1 rests here for asynchronous commits: nobody is told before the receipt has waited.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::store::{Durability, Receipt};

use super::pool::{LINGER, Pool};
use crate::store::error::Result;
use crate::store::{Rest, Worker};

const POISON: &str = "nothing panics while the flusher is locked";

/// Is told once, in the flusher's thread.
type Told = Box<dyn FnOnce(&Arc<Pool>, Result<Receipt>) + Send>;

/// A commit, the level it is to reach, and who is to be told.
pub(super) struct Waiting {
    pub(super) receipt: Receipt,
    pub(super) level: Durability,
    pub(super) then: Told,
}

/// Waits for all.
#[derive(Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    worker: OnceLock<Worker>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// It has found nothing to do, and is in its rest or has ended.
    is_idle: bool,
}

impl Flusher {
    /// Gives it its thread.
    pub(super) fn by(&self, worker: Worker) {
        self.worker.set(worker).expect("given once");
    }

    /// Adds somebody; `false` if there is no thread to wait.
    #[must_use]
    pub(super) fn push(&self, waiting: Waiting) -> bool {
        {
            let mut state = self.lock();
            state.waiting.push(waiting);
            // Who came first has woken it, or will as soon as it lets go of this lock; it takes all there are.
            if state.waiting.len() > 1 {
                return true;
            }
            state.is_idle = false;
        }
        self.worker.get().is_some_and(Worker::wake)
    }

    /// A step of its thread.
    pub(super) fn step(&self, pool: &Arc<Pool>) -> Rest {
        if self.flush(pool) {
            return Rest::None;
        }
        let mut state = self.lock();
        if !state.waiting.is_empty() {
            return Rest::None;
        }
        if std::mem::replace(&mut state.is_idle, true) { Rest::UntilWoken } else { Rest::For(LINGER) }
    }

    /// Waits for everybody there is now, and tells them; `false` if nobody was there.
    pub(super) fn flush(&self, pool: &Arc<Pool>) -> bool {
        let waiting = std::mem::take(&mut self.lock().waiting);
        if waiting.is_empty() {
            return false;
        }
        let (disk, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|waiting| waiting.level == Durability::Disk);
        // Those first who need no sync.
        for mut waiting in [others, disk] {
            // The newest waits, and that flush covers the others. An error is each one's own to learn: one that was dropped for want
            // of room says nothing of those before it.
            waiting.sort_unstable_by_key(|waiting| Reverse(waiting.receipt.seq()));
            let wait = |Waiting { receipt, level, then }| (then, receipt.waited(level));
            let waited: Vec<_> = waiting.into_iter().map(wait).collect();
            for (then, waited) in waited.into_iter().rev() {
                // What a program's value does when it is dropped keeps nobody else from being told.
                drop(catch_unwind(AssertUnwindSafe(|| then(pool, waited))));
            }
        }
        true
    }

    /// Ends its thread, after the flush under way.
    pub(super) fn stop(&self) {
        if let Some(worker) = self.worker.get() {
            worker.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISON)
    }
}
