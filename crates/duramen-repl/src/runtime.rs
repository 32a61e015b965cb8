//! Where nodes run: threads and real time, or one thread and a virtual clock under a seed.

use std::future::Future;
use std::io;

use openraft_rt::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;

/// A runtime on which nodes run.
pub trait Runtime: AsyncRuntime {
    /// Runs a call that may wait for a disk or a lock.
    ///
    /// # Errors
    /// If the runtime is being closed.
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;
}

impl Runtime for TokioRuntime {
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send {
        <TokioRuntime as AsyncRuntime>::spawn_blocking(call)
    }
}

/// One thread: engines do their work when they are stepped, and nothing waits.
#[cfg(feature = "simulation")]
impl Runtime for openraft_rt_sim::SimRuntime {
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send {
        std::future::ready(Ok(call()))
    }
}
