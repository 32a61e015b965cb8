//! The one place where threads start. One thread maintains the log, one memory and checkpoints. One runs work
//! of the layers above while there is some. Others share a piece of work for a short time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use crate::alarm::{Here, invariant, locked};
use crate::error::{Code, Error, Result};
use crate::limits::MARK_IDLE_MS;

const TICK: Duration = Duration::from_millis(10);

const _: () = assert!(2 * TICK.as_millis() <= MARK_IDLE_MS as u128, "an idle log is marked in time");

/// Background threads. Dropping this stops and joins them.
#[derive(Debug)]
pub(crate) struct Threads {
    stop: Arc<StopSignal>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct StopSignal {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl StopSignal {
    /// Waits a tick. Returns `false` once the threads must stop.
    fn tick(&self) -> bool {
        let guard = locked(self.lock.lock());
        if !self.asked.load(Ordering::Acquire) {
            drop(locked(self.changed.wait_timeout(guard, TICK)));
        }
        !self.asked.load(Ordering::Acquire)
    }
}

impl Threads {
    /// No threads yet.
    #[must_use]
    pub(crate) fn new() -> Threads {
        Threads { stop: Arc::new(StopSignal::default()), handles: Vec::new() }
    }

    /// Starts a thread that runs `step` about every ten milliseconds. If a step panics, `failed` gets an
    /// error that names the thread, and the thread ends.
    ///
    /// # Errors
    /// `Io` if the system gives no thread.
    #[allow(clippy::disallowed_methods, reason = "threads start here and nowhere else")]
    pub(crate) fn start(
        &mut self,
        name: &str,
        mut step: impl FnMut() + Send + 'static,
        failed: impl FnOnce(Error) + Send + 'static,
    ) -> Result<()> {
        let stop = Arc::clone(&self.stop);
        let thread = name.to_owned();
        let run = move || {
            while stop.tick() {
                if catch_unwind(AssertUnwindSafe(&mut step)).is_err() {
                    let message = format!("the thread {thread} panicked: this is a fault of the engine");
                    failed(
                        Error::new(Code::System, message).with_hint("report it, and open the database again"),
                    );
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let handle =
            started.map_err(|e| Error::new(Code::System, format!("cannot start the thread {name}: {e}")))?;
        self.handles.push(handle);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        {
            let _guard = locked(self.stop.lock.lock());
            self.stop.asked.store(true, Ordering::Release);
        }
        self.stop.changed.notify_all();
        // An event hook may drop the last handle in one of these threads. That thread ends by itself.
        let own = std::thread::current().id();
        for handle in self.handles.drain(..).filter(|handle| handle.thread().id() != own) {
            drop(handle.join());
        }
    }
}

/// When a [`Worker`] takes its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// At once.
    None,
    /// After this long, or when it is woken.
    For(Duration),
    /// When it is woken. Its thread ends, so that an idle worker costs nothing.
    UntilWoken,
}

/// The step of a worker.
type Work = Arc<dyn Fn() -> Rest + Send + Sync>;

/// A thread that exists only while there is work. Clones are handles to the same worker.
#[derive(Clone)]
pub struct Worker {
    shared: Arc<Workplace>,
}

struct Workplace {
    name: String,
    process: u32,
    failed: Box<dyn Fn(Error) + Send + Sync>,
    state: Mutex<Working>,
    changed: Condvar,
}

#[derive(Default)]
struct Working {
    /// None once it was stopped.
    work: Option<Work>,
    woken: bool,
    running: bool,
    thread: Option<ThreadId>,
    handle: Option<JoinHandle<()>>,
}

impl Worker {
    /// A worker without a thread yet. `failed` is called, in the worker's thread, if a step panics, which
    /// ends the worker. It is also called if the system gives no thread.
    #[must_use]
    pub fn new(
        name: &str,
        work: impl Fn() -> Rest + Send + Sync + 'static,
        failed: impl Fn(Error) + Send + Sync + 'static,
    ) -> Worker {
        let state = Working { work: Some(Arc::new(work)), ..Working::default() };
        Worker {
            shared: Arc::new(Workplace {
                name: name.to_owned(),
                process: duramen_disk::process_id(),
                failed: Box::new(failed),
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
        }
    }

    /// Makes it take a step soon: starts its thread if there is none, and ends a rest. Returns whether it
    /// will. It will not once it was stopped, in a forked process, or if the system gives no thread.
    #[allow(clippy::disallowed_methods, reason = "threads start here and nowhere else")]
    pub fn wake(&self) -> bool {
        let mut state = self.shared.lock();
        if state.work.is_none() || self.shared.process != duramen_disk::process_id() {
            return false;
        }
        state.woken = true;
        if state.running {
            self.shared.changed.notify_all();
            return true;
        }
        let (name, thread) = (&self.shared.name, state.thread);
        invariant!(thread.is_none(), "the worker {name} has no thread while none runs: {thread:?}");
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(self.shared.name.clone());
        match thread.spawn(move || shared.run()) {
            Ok(handle) => {
                state.running = true;
                state.handle = Some(handle);
                true
            }
            Err(error) => {
                drop(state);
                let message = format!("cannot start the thread {}: {error}", self.shared.name);
                (self.shared.failed)(Error::new(Code::System, message));
                false
            }
        }
    }

    /// Stops it: waits for the current step and drops its work. Called inside a step, it does not wait, and
    /// the work is dropped after the step.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        let work = state.work.take();
        self.shared.changed.notify_all();
        let is_own = state.thread == Some(std::thread::current().id());
        if is_own || self.shared.process != duramen_disk::process_id() {
            drop(state);
            drop(work);
            return;
        }
        while state.running {
            state = locked(self.shared.changed.wait(state));
        }
        let handle = state.handle.take();
        drop(state);
        drop(work);
        drop(handle.map(JoinHandle::join));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl Workplace {
    fn lock(&self) -> MutexGuard<'_, Working> {
        locked(self.state.lock())
    }

    fn run(&self) {
        self.lock().thread = Some(std::thread::current().id());
        while let Some(work) = self.next() {
            let rest = catch_unwind(AssertUnwindSafe(|| work()));
            // Before the end of the thread is signalled: the work may hold the last handle of a database.
            drop(work);
            if self.rest(rest.ok()) {
                return;
            }
        }
        self.ended(self.lock());
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        state.woken = false;
        state.work.clone()
    }

    /// Rests as long as the step requests; `None` means that it panicked. Returns whether the thread has
    /// ended.
    fn rest(&self, rest: Option<Rest>) -> bool {
        let mut state = self.lock();
        match rest {
            Some(Rest::None) => {}
            Some(Rest::For(time)) => {
                if !state.woken && state.work.is_some() {
                    drop(locked(self.changed.wait_timeout(state, time)));
                }
            }
            Some(Rest::UntilWoken) => {
                if !state.woken {
                    self.ended(state);
                    return true;
                }
            }
            None => {
                let work = state.work.take();
                drop(state);
                drop(work);
                let message = format!("the thread {} panicked: this is a fault of Duramen", self.name);
                (self.failed)(
                    Error::new(Code::System, message).with_hint("report it, and open the database again"),
                );
            }
        }
        false
    }

    fn ended(&self, mut state: MutexGuard<'_, Working>) {
        let is_own = state.running && state.thread == Some(std::thread::current().id());
        invariant!(is_own, "the worker {} ends in its one thread", self.name);
        state.running = false;
        state.thread = None;
        drop(state);
        self.changed.notify_all();
    }
}

/// Runs `work` on each part and returns the results in order. The first part runs in this thread, the others
/// in threads of their own. If the system gives no thread for a part, it runs here, after the first: no part
/// may wait for another.
///
/// # Panics
/// As `work` does.
#[allow(clippy::disallowed_methods, reason = "threads start here and nowhere else")]
pub fn side_by_side<P: Copy + Send, T: Send>(parts: &[P], work: impl Fn(P) -> T + Sync) -> Vec<T> {
    let (work, here) = (&work, Here::note());
    std::thread::scope(|scope| {
        let start = |part: &P| {
            let part = *part;
            let shared = move || {
                let _within = here.enter();
                work(part)
            };
            std::thread::Builder::new().spawn_scoped(scope, shared).map_err(|_| part)
        };
        let (first, others) = parts.split_at(parts.len().min(1));
        let started: Vec<_> = others.iter().map(start).collect();
        let mut done: Vec<T> = first.iter().map(|part| work(*part)).collect();
        done.extend(started.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(part) => work(part),
        }));
        done
    })
}

/// The number of threads that can run at once; 1 if the system does not report it.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests;
