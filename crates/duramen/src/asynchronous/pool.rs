//! The pool of threads of the asynchronous handle.
//!
//! It is bounded. Threads start on demand and end after a while without work, or with the last handle.
//!
//! Owns the queue: first in, first out. Each waiting call has one place in it, which it gives back when it is
//! dropped. So the queue is never longer than the number of futures alive, and needs no bound of its own:
//! waiting for a place would be the same to the caller as waiting in the queue. Never runs the program's code
//! with a lock held.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use super::flusher::{Flusher, Waiting};
use super::task::Job;
use crate::store::error::{Code, Error, Result};
use crate::store::{Rest, Worker, processors};

const POISON: &str = "nothing panics while the queue is locked";

/// How long a thread stays without work: calls come one after the other, and starting a thread costs more
/// than most calls.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// The minimum of the default size: threads wait for the disk as well as compute.
const THREADS_MIN: usize = 4;

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The threads of a handle and its clones.
///
/// Dropping the last of them finishes what has begun: it waits for commits, and runs the work that follows
/// them.
pub(super) struct Crew(Arc<Pool>);

/// The state that the threads share.
pub(super) struct Pool {
    queue: Mutex<Queue>,
    workers: OnceLock<Vec<Worker>>,
    flusher: Flusher,
    process: u32,
}

#[derive(Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<Ticket, Arc<dyn Job>>,
    /// Workers that found nothing to do and have not been woken since.
    idle: Vec<usize>,
}

/// The default number of threads.
pub(super) fn thread_count() -> usize {
    THREADS_MIN.max(2 * processors())
}

impl Crew {
    /// At most `threads` threads, and one that waits for the disk.
    pub(super) fn new(threads: usize) -> Crew {
        let threads = threads.max(1);
        let queue = Queue { idle: (0..threads).rev().collect(), ..Queue::default() };
        let pool = Arc::new(Pool {
            queue: Mutex::new(queue),
            workers: OnceLock::new(),
            flusher: Flusher::default(),
            process: duramen_disk::process_id(),
        });
        let worker = |name: &str, work: Box<dyn Fn() -> Rest + Send + Sync>| {
            // `wake` returns `false` if a thread does not start. Panics of steps are caught where they run.
            Worker::new(name, work, |_| ())
        };
        let workers = (0..threads).map(|index| {
            let pool = Arc::clone(&pool);
            worker("duramen-async", Box::new(move || pool.step(index)))
        });
        let workers = workers.collect();
        pool.workers.set(workers).expect("set once");
        let flushing = Arc::clone(&pool);
        pool.flusher.by(worker("duramen-flush", Box::new(move || flushing.flusher.step(&flushing))));
        Crew(pool)
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.0
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let pool = &self.0;
        pool.workers().iter().for_each(Worker::stop);
        pool.flusher.stop();
        if pool.process != duramen_disk::process_id() {
            return;
        }
        // The remaining jobs belong to dropped futures: their commits are already ordered.
        loop {
            let job = pool.lock().waiting.pop_first();
            match job {
                Some((_, job)) => {
                    let step = || {
                        if let Some(waiting) = job.step(pool) {
                            pool.wait_for(waiting);
                        }
                    };
                    // A panic in the destructor of a program's value must not lose the jobs that follow.
                    drop(catch_unwind(AssertUnwindSafe(step)));
                }
                None if pool.flusher.flush(pool) => {}
                None => return,
            }
        }
    }
}

impl Pool {
    /// Adds a job to the queue, and wakes an idle thread for it.
    ///
    /// # Errors
    /// If the system gives no thread, or this process was forked. The job is then not in the queue.
    pub(super) fn push(&self, job: &Arc<dyn Job>) -> Result<Ticket> {
        if self.process != duramen_disk::process_id() {
            return Err(Error::forked());
        }
        let mut queue = self.lock();
        let ticket = Ticket(queue.next);
        queue.next += 1;
        queue.waiting.insert(ticket, Arc::clone(job));
        let mut asleep = Vec::new();
        while let Some(index) = queue.idle.pop() {
            // Woken without the lock; meanwhile no list contains it.
            drop(queue);
            if self.workers()[index].wake() {
                self.lock().idle.append(&mut asleep);
                return Ok(ticket);
            }
            asleep.push(index);
            queue = self.lock();
        }
        if asleep.is_empty() {
            return Ok(ticket);
        }
        queue.idle.append(&mut asleep);
        let own = queue.waiting.remove(&ticket);
        // Calls that came meanwhile took the workers tried here for busy ones.
        let is_deserted = queue.idle.len() == self.workers().len();
        let stranded = if is_deserted { std::mem::take(&mut queue.waiting) } else { BTreeMap::new() };
        drop(queue);
        stranded.values().for_each(|job| job.refuse(no_thread()));
        own.map_or(Ok(ticket), |_| Err(no_thread()))
    }

    /// Removes a job that has not begun from the queue, and drops it.
    pub(super) fn take_back(&self, ticket: Ticket) {
        let job = self.lock().waiting.remove(&ticket);
        drop(job);
    }

    /// Has the flusher complete a commit once it has reached its level.
    pub(super) fn wait_for(self: &Arc<Self>, waiting: Waiting) {
        if !self.flusher.push(waiting) {
            // Without a flusher thread, this thread waits for all.
            self.flusher.flush(self);
        }
    }

    /// Completes a commit once it has reached its level: in this thread of the pool if the commit is alone
    /// and there is another thread for what comes, else by the flusher.
    fn see_through(self: &Arc<Self>, waiting: Waiting) {
        let is_spare = {
            let queue = self.lock();
            queue.waiting.is_empty() && !queue.idle.is_empty()
        };
        let alone = if is_spare { self.flusher.flush_alone(self, waiting) } else { Err(waiting) };
        if let Err(waiting) = alone {
            self.wait_for(waiting);
        }
    }

    fn step(self: &Arc<Self>, index: usize) -> Rest {
        let job = {
            let mut queue = self.lock();
            let Some((_, job)) = queue.waiting.pop_first() else {
                return if queue.idle.contains(&index) {
                    Rest::UntilWoken
                } else {
                    queue.idle.push(index);
                    Rest::For(LINGER)
                };
            };
            queue.idle.retain(|idle| *idle != index);
            job
        };
        // A panic in the destructor of a program's value must not end a thread of the pool.
        let step = || {
            if let Some(waiting) = job.step(self) {
                self.see_through(waiting);
            }
        };
        drop(catch_unwind(AssertUnwindSafe(step)));
        Rest::None
    }

    fn workers(&self) -> &[Worker] {
        self.workers.get().expect("set before anybody has the pool")
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect(POISON)
    }
}

fn no_thread() -> Error {
    Error::new(Code::System, "the system gives no thread for asynchronous calls")
        .with_hint("raise the limit of threads of this user or container, or start fewer elsewhere")
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("threads", &self.0.workers().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! A worker that is wrongly counted as idle leaves a caller waiting for ever. So does one that is woken
    //! and not counted.
    use super::*;
    use crate::access::handle::Db;
    use crate::access::reads::Reads as _;
    use crate::asynchronous::task::{Step, submit};
    use crate::store::{Durability, Receipt};
    use std::sync::mpsc::channel;
    use std::thread::{ThreadId, current};

    fn idle(pool: &Pool) -> Vec<usize> {
        let mut idle = pool.lock().idle.clone();
        idle.sort_unstable();
        idle
    }

    /// The test takes the steps of the threads: no thread is woken.
    #[test]
    fn a_worker_is_idle_when_it_found_nothing_and_until_it_is_woken() {
        let crew = Crew::new(2);
        let pool = crew.pool();
        assert_eq!(idle(pool), [0, 1]);
        // Woken for a job that another worker took: it lingers, and counts as idle.
        pool.lock().idle.clear();
        assert_eq!(pool.step(1), Rest::For(LINGER));
        assert_eq!(idle(pool), [1]);
        // No job has come meanwhile.
        assert_eq!(pool.step(1), Rest::UntilWoken);
        assert_eq!(idle(pool), [1]);
        // It finds a job by itself at the end of its rest, so the next call must not count on it.
        pool.lock().idle.clear();
        let first = submit(pool, || Step::Done(Ok(1)));
        pool.lock().idle.push(1);
        assert_eq!(pool.step(1), Rest::None);
        assert!(idle(pool).is_empty());
        drop(first);
    }

    /// The thread that completes a commit which the test's thread has ordered, as the first worker.
    fn completes(threads: usize, is_queued: bool) -> ThreadId {
        let db = Db::in_memory().unwrap();
        let crew = Crew::new(threads);
        let pool = crew.pool();
        // The test takes the place of the first worker, and no other is woken.
        let others = std::mem::take(&mut pool.lock().idle);
        let (done, by) = channel();
        let commit = move || {
            let (_, receipt) = db.transact_with_receipt(|tx| tx.kv("n").put("n", &1)).unwrap();
            let then = move |waited: Result<Receipt>| {
                done.send(current().id()).unwrap();
                Step::Done(waited.map(drop))
            };
            Step::Until(receipt, Durability::Process, Box::new(then))
        };
        let _first = submit(pool, commit);
        let _second = is_queued.then(|| submit(pool, || Step::Done(Ok(()))));
        pool.lock().idle = others.into_iter().filter(|index| *index != 0).collect();
        assert_eq!(pool.step(0), Rest::None);
        by.recv().unwrap()
    }

    #[test]
    fn a_thread_waits_for_its_commit_only_if_nothing_else_needs_it() {
        assert_eq!(completes(2, false), current().id());
        assert_ne!(completes(1, false), current().id(), "no other thread is there for what comes");
        assert_ne!(completes(2, true), current().id(), "a call waits for a thread");
    }

    #[test]
    fn a_place_in_the_queue_is_given_back() {
        let crew = Crew::new(1);
        crew.pool().lock().idle.clear();
        let calls: Vec<_> = (0..1_000).map(|n| submit(crew.pool(), move || Step::Done(Ok(n)))).collect();
        assert_eq!(crew.pool().lock().waiting.len(), 1_000);
        drop(calls);
        assert!(crew.pool().lock().waiting.is_empty());
    }
}
