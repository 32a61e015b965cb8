//! The one place where threads start: one looks after the log, one after memory and checkpoints, and for a moment
//! some that share one piece of work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Code, Error, Result};

const POISON: &str = "nothing panics while the threads' signal is locked";
const TICK: Duration = Duration::from_millis(10);

/// Background threads; dropped, they are told to stop and waited for.
#[derive(Debug)]
pub struct Threads {
    stop: Arc<Stop>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    /// Waits a tick; `false` once the threads are to stop.
    fn tick(&self) -> bool {
        let guard = self.lock.lock().expect(POISON);
        if !self.asked.load(Ordering::Acquire) {
            drop(self.changed.wait_timeout(guard, TICK).expect(POISON));
        }
        !self.asked.load(Ordering::Acquire)
    }
}

impl Threads {
    /// No threads yet.
    #[must_use]
    pub fn new() -> Threads {
        Threads { stop: Arc::new(Stop::default()), handles: Vec::new() }
    }

    /// Starts a thread that runs `step` about every ten milliseconds. Should a step panic, `failed` is told what it said, and
    /// the thread ends.
    ///
    /// # Errors
    /// `Io` if the system gives no thread.
    #[allow(clippy::disallowed_methods, reason = "threads start here and nowhere else")]
    pub fn start(
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
            let _guard = self.stop.lock.lock().expect(POISON);
            self.stop.asked.store(true, Ordering::Release);
        }
        self.stop.changed.notify_all();
        for handle in self.handles.drain(..) {
            drop(handle.join());
        }
    }
}

/// Runs `work` on each part and returns what came of them in order: the first part in this thread, the others in
/// threads of their own. A part for which the system gives no thread is done here.
///
/// # Panics
/// As `work` does.
#[allow(clippy::disallowed_methods, reason = "threads start here and nowhere else")]
pub fn side_by_side<P: Copy + Send, T: Send>(parts: &[P], work: impl Fn(P) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |part: &P| {
            let part = *part;
            std::thread::Builder::new().spawn_scoped(scope, move || work(part)).map_err(|_| part)
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

/// How many threads can work at once; 1 if the system does not say.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
