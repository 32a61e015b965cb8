//! Threads of a measurement: all start together once the last one exists, and all are joined.
//!
//! Owns the only threads of this crate.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};

/// The start signal of the threads.
#[derive(Debug, Default)]
struct Gate {
    /// Whether to start, once that is decided.
    begins: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) -> bool {
        let mut begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(begins) = *begins {
                return begins;
            }
            begins = self.changed.wait(begins).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self, begins: bool) {
        *self.begins.lock().unwrap_or_else(PoisonError::into_inner) = Some(begins);
        self.changed.notify_all();
    }
}

/// Runs `work` in `count` threads at the same time, each with its number from 0. Returns their results in
/// that order.
///
/// # Errors
/// The system's error if it provided fewer threads; none has started then.
#[allow(clippy::disallowed_methods, reason = "threads of a measurement start here")]
pub(crate) fn together<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> io::Result<Vec<T>> {
    let gate = Gate::default();
    let (gate, work) = (&gate, &work);
    thread::scope(|scope| {
        let begin = |index| {
            let wait = move || gate.wait().then(|| work(index));
            Builder::new().name(format!("duramen-measure-{index}")).spawn_scoped(scope, wait)
        };
        let mut refused = None;
        let mut workers = Vec::with_capacity(count);
        for index in 0..count {
            match begin(index) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        gate.open(refused.is_none());
        let ended: Vec<Option<T>> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        match refused {
            Some(error) => Err(error),
            None => Ok(ended.into_iter().flatten().collect()),
        }
    })
}
