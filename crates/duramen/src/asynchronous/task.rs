//! One asynchronous call: its steps on the pool, and the future that returns its outcome.
//!
//! Owns the hand-over between threads. A task holds its next step or its outcome, never both. The thread that
//! sets the outcome takes the waker under the same lock, so that no wake-up is lost. Steps belong to the pool
//! and not to the future: dropping the future removes a first step that has not begun, and nothing else. A
//! panic of the program's code is resumed in the task that awaits the future.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::store::{Durability, Receipt};

use super::flusher::Waiting;
use super::pool::{Pool, Ticket};
use crate::store::error::{Error, Result};

const POISON: &str = "nothing panics while a task is locked";

/// A step of a task, on a thread of the pool.
pub(super) type Work<T> = Box<dyn FnOnce() -> Step<T> + Send>;

/// The continuation after a commit. It mostly runs on the flusher's thread, which serves others too, so it
/// must be short.
pub(super) type Then<T> = Box<dyn FnOnce(Result<Receipt>) -> Step<T> + Send>;

/// The result of a step.
pub(super) enum Step<T> {
    /// Nothing more is to be done.
    Done(Result<T>),
    /// More work on a thread of the pool.
    Again(Work<T>),
    /// Wait until a commit has reached a level.
    Until(Receipt, Durability, Then<T>),
}

/// A job in the queue of the pool.
pub(super) trait Job: Send + Sync {
    /// Does the next step. Returns the commit that it must wait for, if it must.
    #[must_use]
    fn step(self: Arc<Self>, pool: &Arc<Pool>) -> Option<Waiting>;

    /// Fails the job, because there is no thread for it.
    fn refuse(&self, error: Error);
}

struct Task<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    work: Option<Work<T>>,
    outcome: Option<std::result::Result<Result<T>, Box<dyn Any + Send>>>,
    waker: Option<Waker>,
}

/// Submits a call to the pool.
pub(super) fn submit<T: Send + 'static>(
    pool: &Arc<Pool>,
    work: impl FnOnce() -> Step<T> + Send + 'static,
) -> Running<T> {
    let state = State { work: Some(Box::new(work)), outcome: None, waker: None };
    let task = Arc::new(Task { state: Mutex::new(state) });
    let job: Arc<dyn Job> = Arc::clone(&task) as Arc<dyn Job>;
    let ticket = match pool.push(&job) {
        Ok(ticket) => Some(ticket),
        Err(error) => {
            job.refuse(error);
            None
        }
    };
    Running { task, pool: Arc::clone(pool), ticket }
}

/// Waits until a commit has reached a level, starting now. That takes no thread of the pool.
pub(super) fn wait(pool: &Arc<Pool>, receipt: Receipt, level: Durability) -> Running<()> {
    let state = State { work: None, outcome: None, waker: None };
    let task = Arc::new(Task { state: Mutex::new(state) });
    let told = Box::new(|waited: Result<Receipt>| Step::Done(waited.map(drop)));
    let waiting = Arc::clone(&task).go_on(pool, Ok(Step::Until(receipt, level, told)));
    pool.wait_for(waiting.expect("that step waits"));
    Running { task, pool: Arc::clone(pool), ticket: None }
}

impl<T: Send + 'static> Task<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect(POISON)
    }

    /// Does what a step has led to. Returns the commit that must be waited for, if one must.
    #[must_use]
    fn go_on(self: Arc<Self>, pool: &Arc<Pool>, step: std::thread::Result<Step<T>>) -> Option<Waiting> {
        match step {
            Ok(Step::Done(result)) => self.end(Ok(result)),
            Ok(Step::Again(work)) => {
                self.lock().work = Some(work);
                let job = self as Arc<dyn Job>;
                // A commit may already have happened: without a thread for the rest, this thread does it.
                if pool.push(&job).is_err() {
                    return job.step(pool);
                }
            }
            Ok(Step::Until(receipt, level, then)) => {
                let then = move |pool: &Arc<Pool>, waited| {
                    let step = catch_unwind(AssertUnwindSafe(|| then(waited)));
                    if let Some(waiting) = self.go_on(pool, step) {
                        pool.wait_for(waiting);
                    }
                };
                return Some(Waiting { receipt, level, then: Box::new(then) });
            }
            Err(panic) => self.end(Err(panic)),
        }
        None
    }

    fn end(&self, outcome: std::thread::Result<Result<T>>) {
        let waker = {
            let mut state = self.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        wake(waker);
    }
}

/// Wakes a task of the program. A panic of the waker must not end a thread of the pool.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
    }
}

impl<T: Send + 'static> Job for Task<T> {
    fn step(self: Arc<Self>, pool: &Arc<Pool>) -> Option<Waiting> {
        let work = self.lock().work.take()?;
        let step = catch_unwind(AssertUnwindSafe(work));
        self.go_on(pool, step)
    }

    fn refuse(&self, error: Error) {
        let work = self.lock().work.take();
        drop(work);
        self.end(Ok(Err(error)));
    }
}

/// The future of a call that was submitted to the pool.
pub(super) struct Running<T> {
    task: Arc<Task<T>>,
    pool: Arc<Pool>,
    /// Its place in the queue; `None` once it has ended.
    ticket: Option<Ticket>,
}

impl<T: Send + 'static> Future for Running<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // Cloned, and the old one dropped, without the lock: both run the program's code.
        let mut waker = Some(context.waker().clone());
        let outcome = {
            let mut state = self.task.lock();
            let outcome = state.outcome.take();
            if outcome.is_none() {
                std::mem::swap(&mut state.waker, &mut waker);
            }
            outcome
        };
        drop(waker);
        match outcome {
            None => Poll::Pending,
            Some(outcome) => {
                self.ticket = None;
                Poll::Ready(outcome.unwrap_or_else(|panic| resume_unwind(panic)))
            }
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.pool.take_back(ticket);
        }
    }
}

impl<T> fmt::Debug for Running<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
