//! The one thread that waits for the disk, on behalf of all awaited commits.
//!
//! It waits for the newest commit, then completes every commit that this wait covers. So a thousand tasks
//! share a flush, whatever the number of threads that ran their transactions. It owns the commits between
//! ordering and the disk, and keeps them if their future is dropped. D1 rests here for asynchronous commits:
//! no task completes before its receipt has waited.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::store::{Durability, Receipt};

use super::pool::{LINGER, Pool};
use crate::store::error::Result;
use crate::store::{Rest, Worker};

const POISON: &str = "nothing panics while the flusher is locked";

/// The completion of a commit, called once in the flusher's thread.
type Completion = Box<dyn FnOnce(&Arc<Pool>, Result<Receipt>) + Send>;

/// A commit, the level it must reach, and its completion.
pub(super) struct Waiting {
    pub(super) receipt: Receipt,
    pub(super) level: Durability,
    pub(super) then: Completion,
}

/// The queue of the flusher.
#[derive(Default)]
pub(super) struct Flusher {
    state: Mutex<State>,
    worker: OnceLock<Worker>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// The thread has found nothing to do, and is resting or has ended.
    is_idle: bool,
}

impl Flusher {
    /// Sets the thread.
    pub(super) fn by(&self, worker: Worker) {
        self.worker.set(worker).expect("given once");
    }

    /// Adds a commit; `false` if no thread could be started.
    #[must_use]
    pub(super) fn push(&self, waiting: Waiting) -> bool {
        {
            let mut state = self.lock();
            state.waiting.push(waiting);
            // The commit that came first has woken the thread, or will after this lock is released. The
            // thread takes all.
            if state.waiting.len() > 1 {
                return true;
            }
            state.is_idle = false;
        }
        self.worker.get().is_some_and(Worker::wake)
    }

    /// One step of the thread.
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

    /// Waits for all queued commits, and completes them; `false` if there were none.
    pub(super) fn flush(&self, pool: &Arc<Pool>) -> bool {
        let waiting = std::mem::take(&mut self.lock().waiting);
        if waiting.is_empty() {
            return false;
        }
        let (disk, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|waiting| waiting.level == Durability::Disk);
        // First those that need no sync.
        for mut waiting in [others, disk] {
            // The newest commit waits, and that flush covers the others. Each commit still checks its own
            // receipt: an error of one that was dropped for want of room does not apply to those before it.
            waiting.sort_unstable_by_key(|waiting| Reverse(waiting.receipt.seq()));
            let wait = |Waiting { receipt, level, then }| (then, receipt.waited(level));
            let waited: Vec<_> = waiting.into_iter().map(wait).collect();
            for (then, waited) in waited.into_iter().rev() {
                // A panic in the destructor of a program's value must not prevent the other completions.
                drop(catch_unwind(AssertUnwindSafe(|| then(pool, waited))));
            }
        }
        true
    }

    /// Ends the thread, after the current flush.
    pub(super) fn stop(&self) {
        if let Some(worker) = self.worker.get() {
            worker.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(POISON)
    }
}
