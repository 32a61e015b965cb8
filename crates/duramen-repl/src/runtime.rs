//! Where nodes run: threads and real time, or one thread and a virtual clock under a seed.

use std::future::Future;
use std::io;
use std::time::Duration;

use openraft_rt::AsyncRuntime;
#[cfg(feature = "simulation")]
use openraft_rt::Instant as _;
use openraft_rt_tokio::TokioRuntime;
#[cfg(feature = "simulation")]
use rand::Rng as _;
use rustix::time::{ClockId, clock_gettime};

/// A runtime on which nodes run.
pub trait Runtime: AsyncRuntime {
    /// Runs a call that may wait for a disk or a lock.
    ///
    /// # Errors
    /// If the runtime is being closed.
    fn run_blocking<T: Send + 'static>(
        call: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;

    /// The time since the machine was started, with that in which it was suspended.
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
        // The monotonic clock of Linux stands still while the machine is suspended.
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
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
