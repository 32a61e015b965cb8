//! Where nodes run: threads and real time, or one thread and a virtual clock under a seed.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use openraft_rt::{AsyncRuntime, Instant as _};
use openraft_rt_tokio::TokioRuntime;
#[cfg(feature = "simulation")]
use rand::Rng as _;

/// A runtime on which nodes run.
pub trait Runtime: AsyncRuntime {
    /// Runs a call that may wait for a disk or a lock.
    ///
    /// # Errors
    /// If the runtime is being closed.
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;

    /// The time since some moment, by a clock that is never set.
    fn uptime() -> Duration;
}

impl Runtime for TokioRuntime {
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send {
        // On its pool of threads: that of the trait starts a thread for each call.
        let called = tokio::task::spawn_blocking(call);
        async { called.await.map_err(io::Error::other) }
    }

    fn uptime() -> Duration {
        type Instant = <TokioRuntime as AsyncRuntime>::Instant;
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        now.saturating_duration_since(*FIRST.get_or_init(|| now))
    }
}

/// One thread: engines do their work when they are stepped, and nothing waits. A call takes a drawn time, in
/// which others go on.
#[cfg(feature = "simulation")]
impl Runtime for openraft_rt_sim::SimRuntime {
    async fn run_blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let mut draw = <Self as AsyncRuntime>::thread_rng();
        let mut rest = move || {
            let most_us = if draw.next_u32().is_multiple_of(20) { 20_000 } else { 300 };
            Self::sleep(Duration::from_micros(u64::from(draw.next_u32()) % most_us))
        };
        rest().await;
        let result = call();
        rest().await;
        Ok(result)
    }

    fn uptime() -> Duration {
        openraft_rt_sim::SimInstant::now().elapsed_since_start()
    }
}
