//! The thread that serves a client's connections, and waiting for an answer on the thread of the caller.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use duramen::error::{Code, Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinHandle, unconstrained};

/// What serves the connections of a client.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// Until it is dropped.
    owned: Option<tokio::runtime::Runtime>,
    handle: Handle,
}

impl Runtime {
    /// # Errors
    /// `System` (E1001) if the system gives no thread.
    pub(crate) fn new() -> Result<Runtime> {
        // A thread of its own answers the server's pings while the caller does something else.
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("duramen-client").enable_all().build();
        let owned = runtime
            .map_err(|error| Error::new(Code::System, format!("the system gives no runtime: {error}")))?;
        Ok(Runtime { handle: owned.handle().clone(), owned: Some(owned) })
    }

    /// Waits for a future on this thread.
    ///
    /// A thread of an asynchronous program may do so, too: its other tasks wait meanwhile. The method of the
    /// same name of `tokio` would panic there.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.handle.enter();
        // The budget of the task that waits here would never be renewed.
        let mut future = pin!(unconstrained(future));
        let waiting = Arc::new(Waiting { thread: thread::current(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&waiting));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            while !waiting.is_woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }
    }

    /// Runs a future on the thread of the connections.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(future)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // To wait for its thread would panic on a thread of an asynchronous program.
        if let Some(runtime) = self.owned.take() {
            runtime.shutdown_background();
        }
    }
}

/// A thread that waits.
struct Waiting {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
