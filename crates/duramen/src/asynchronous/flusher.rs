//! Waiting for the disk, on behalf of all awaited commits.
//!
//! One thread waits for the newest commit, then completes every commit that this wait covers. So a thousand
//! tasks share a flush, whatever the number of threads that ran their transactions. A commit that is alone is
//! waited for by the thread that has ordered it. The commits between ordering and the disk are owned here,
//! and kept if their future is dropped. D1 rests here for asynchronous commits: no task completes before its
//! receipt has waited.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::store::{Durability, Receipt};

use super::pool::{LINGER, Pool};
use crate::store::error::{Code, Error, Result};
use crate::store::{Rest, Worker};

const POISON: &str = "nothing panics while the flusher is locked";

/// The completion of a commit, called once in the thread that has waited.
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
    /// Threads that wait for the disk now.
    flushing: usize,
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

    /// Waits for a commit in the calling thread, if no thread waits for others now. Without company the
    /// commit gains nothing from the flusher's thread, and two changes of thread take as long as a fast sync.
    ///
    /// # Errors
    /// Gives the commit back if there is company.
    pub(super) fn flush_alone(&self, pool: &Arc<Pool>, waiting: Waiting) -> std::result::Result<(), Waiting> {
        {
            let mut state = self.lock();
            if state.flushing > 0 || !state.waiting.is_empty() {
                return Err(waiting);
            }
            state.flushing += 1;
        }
        let _flushing = Flushing(self);
        complete(pool, vec![waiting]);
        Ok(())
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
        let waiting = {
            let mut state = self.lock();
            if state.waiting.is_empty() {
                return false;
            }
            state.flushing += 1;
            std::mem::take(&mut state.waiting)
        };
        let _flushing = Flushing(self);
        complete(pool, waiting);
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

/// Counts a thread that waits for the disk, until it is done or panics.
struct Flushing<'a>(&'a Flusher);

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.lock().flushing -= 1;
    }
}

fn panicked() -> Error {
    Error::new(Code::OutcomeUnknown, "the transaction may or may not survive: the wait for the disk panicked")
        .with_hint("this is a fault of the library: report it, and open the database again")
}

/// Waits for commits, and completes them.
fn complete(pool: &Arc<Pool>, waiting: Vec<Waiting>) {
    let (disk, others): (Vec<_>, Vec<_>) =
        waiting.into_iter().partition(|waiting| waiting.level == Durability::Disk);
    // First those that need no sync.
    for mut waiting in [others, disk] {
        // The newest commit waits, and that flush covers the others. Each commit still checks its own
        // receipt: an error of one that was dropped for want of room does not apply to those before it.
        waiting.sort_unstable_by_key(|waiting| Reverse(waiting.receipt.seq()));
        let wait = |Waiting { receipt, level, then }| {
            // Each is completed, whatever comes of its wait: its task would wait for ever.
            let waited = catch_unwind(AssertUnwindSafe(|| receipt.waited(level)));
            (then, waited.unwrap_or_else(|_| Err(panicked())))
        };
        let waited: Vec<_> = waiting.into_iter().map(wait).collect();
        for (then, waited) in waited.into_iter().rev() {
            // A panic in the destructor of a program's value must not prevent the other completions.
            drop(catch_unwind(AssertUnwindSafe(|| then(pool, waited))));
        }
    }
}

#[cfg(test)]
mod tests {
    //! A commit that is waited for twice would complete twice, one that no thread waits for never. Two
    //! threads of the pool that wait would leave fewer for what comes.
    use super::*;
    use crate::access::handle::Db;
    use crate::access::reads::Reads as _;
    use crate::asynchronous::pool::Crew;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread::{ThreadId, current};

    fn waiting(db: &Db, then: impl FnOnce(&Arc<Pool>) + Send + 'static) -> Waiting {
        let (_, receipt) = db.transact_with_receipt(|tx| tx.kv("n").put("n", &1)).unwrap();
        let then = move |pool: &Arc<Pool>, waited: Result<Receipt>| {
            waited.unwrap();
            then(pool);
        };
        Waiting { receipt, level: Durability::Process, then: Box::new(then) }
    }

    #[test]
    fn a_commit_without_company_is_waited_for_by_its_own_thread() {
        let db = Db::in_memory().unwrap();
        let crew = Crew::new(2);
        let flusher = Flusher::default();
        let done: Arc<OnceLock<ThreadId>> = Arc::default();
        let by = Arc::clone(&done);
        let alone = waiting(&db, move |_| by.set(current().id()).unwrap());
        assert!(flusher.flush_alone(crew.pool(), alone).is_ok());
        assert_eq!(done.get(), Some(&current().id()));
    }

    #[test]
    fn a_commit_with_company_is_left_to_the_flusher() {
        let db = Db::in_memory().unwrap();
        let crew = Crew::new(2);
        let (flusher, done) = (Arc::new(Flusher::default()), Arc::new(AtomicU32::new(0)));
        let counted = || {
            let done = Arc::clone(&done);
            waiting(&db, move |_| {
                done.fetch_add(1, Ordering::Relaxed);
            })
        };
        // There is no thread to wake: the commit stays in the queue.
        assert!(!flusher.push(counted()));
        let second = flusher.flush_alone(crew.pool(), counted()).unwrap_err();
        assert!(flusher.push(second));
        assert!(flusher.flush(crew.pool()));
        assert_eq!(done.load(Ordering::Relaxed), 2);
        // While a thread waits for one, another is left, too.
        let (third, inner) = (counted(), Arc::clone(&flusher));
        let outer = waiting(&db, move |pool| {
            let third = inner.flush_alone(pool, third).unwrap_err();
            assert!(!inner.push(third));
        });
        assert!(flusher.flush_alone(crew.pool(), outer).is_ok());
        assert_eq!(done.load(Ordering::Relaxed), 2);
        assert!(flusher.flush(crew.pool()) && !flusher.flush(crew.pool()));
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }
}
