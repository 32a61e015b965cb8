//! Threads for the asynchronous calls of another crate, by the pool of this one.

use std::fmt;
use std::sync::Arc;

use super::pool::Crew;
use super::task::{Step, submit};
use crate::store::error::Result;

/// Threads on which calls run that block. Clones share them; the last one waits for the calls that have
/// begun.
#[derive(Clone)]
pub struct CallThreads {
    crew: Arc<Crew>,
}

impl CallThreads {
    /// At most so many. They start on demand, and end after a second without a call.
    #[must_use]
    pub fn new(threads: usize) -> CallThreads {
        CallThreads { crew: Arc::new(Crew::new(threads)) }
    }

    /// Runs a call on one of them. If the future is dropped before a thread has taken the call, it does not
    /// run; if it is dropped later, the call runs to its end.
    ///
    /// # Errors
    /// What the call returned; `System` (E1001) if the system gives no thread.
    ///
    /// # Panics
    /// If the call panics.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        submit(self.crew.pool(), move || Step::Done(call())).await
    }
}

impl fmt::Debug for CallThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.crew.fmt(f)
    }
}
