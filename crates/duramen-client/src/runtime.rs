//! The thread that serves a client's connections, and waiting for an answer on the thread of the caller.

use std::future::Future;
use std::pin::pin;
use std::process;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use duramen::error::{Code, Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinHandle, unconstrained};

/// What serves the connections of a client.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// Until it is dropped.
    owned: Option<tokio::runtime::Runtime>,
    handle: Handle,
    process: u32,
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
        Ok(Runtime { handle: owned.handle().clone(), owned: Some(owned), process: process::id() })
    }

    /// Waits for a future on this thread.
    ///
    /// A thread of an asynchronous program may do so, too: its other tasks wait meanwhile. The method of the
    /// same name of `tokio` would panic there.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a forked process: its thread of the connections is not there.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        if self.is_of_another_process() {
            return Err(Error::forked());
        }
        let _entered = self.handle.enter();
        // The budget of the task that waits here would never be renewed.
        let mut future = pin!(unconstrained(future));
        let waiting = Arc::new(Waiting::default());
        let waker = Waker::from(Arc::clone(&waiting));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return Ok(done);
            }
            waiting.wait();
        }
    }

    fn is_of_another_process(&self) -> bool {
        self.process != process::id()
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
        match self.owned.take() {
            // Its locks may be held by threads that are not there.
            Some(runtime) if self.is_of_another_process() => std::mem::forget(runtime),
            // To wait for its thread would panic on a thread of an asynchronous program.
            Some(runtime) => runtime.shutdown_background(),
            None => {}
        }
    }
}

/// Whether what a thread waits for is to be looked at again. Not `thread::park`, whose wake-ups a program's
/// own executor may wait for on the same thread.
#[derive(Default)]
struct Waiting {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Waiting {
    fn wait(&self) {
        let mut is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_woken {
            is_woken = self.woken.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_woken = false;
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }
}
