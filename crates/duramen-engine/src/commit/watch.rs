//! Wakes readers of the change feed that wait for newer durable commits.
//!
//! Without such a reader, a commit pays one load. The locks are those of the standard library: they are held
//! briefly, and no other lock is taken under them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::alarm::locked;

/// A callback for one wake-up. It must return soon, since a committing thread calls it.
pub type Woken = Box<dyn FnOnce() + Send>;

/// Wakes readers that wait for newer durable commits.
#[derive(Default)]
pub(crate) struct Watch {
    waiting: AtomicUsize,
    /// At most one entry per reader.
    calls: Mutex<Vec<(u64, Woken)>>,
    next_reader: AtomicU64,
    changed: Condvar,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Watch {
    /// Wakes all waiting readers. Call it after the change that they wait for, with sequentially consistent
    /// ordering.
    pub(crate) fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (calls, counted) = {
            let mut calls = locked(self.calls.lock());
            let counted = self.waiting.fetch_sub(calls.len(), Ordering::SeqCst);
            (std::mem::take(&mut *calls), counted)
        };
        debug_assert!(counted >= calls.len(), "each callback is counted as a waiting reader");
        self.changed.notify_all();
        for (_, call) in calls {
            // A panic of the program's callback must not end the commit that calls it. The panic hook has
            // reported it already.
            drop(catch_unwind(AssertUnwindSafe(call)));
        }
    }

    /// Wakes threads that wait, and no callback: the caller may hold locks.
    pub(crate) fn wake_threads(&self) {
        self.changed.notify_all();
    }

    /// Waits until `is_done`, or for a time limit by a clock in nanoseconds. Returns whether it is done.
    pub(crate) fn wait(
        &self,
        is_done: &dyn Fn() -> bool,
        at_most: Option<Duration>,
        now_ns: &dyn Fn() -> u64,
    ) -> bool {
        if is_done() {
            return true;
        }
        // Noted before the last check: a thread that makes it true after that check sees the note.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let done = self.wait_noted(is_done, at_most, now_ns);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        done
    }

    fn wait_noted(
        &self,
        is_done: &dyn Fn() -> bool,
        at_most: Option<Duration>,
        now_ns: &dyn Fn() -> u64,
    ) -> bool {
        let begun = now_ns();
        let mut calls = locked(self.calls.lock());
        loop {
            if is_done() {
                return true;
            }
            let Some(at_most) = at_most else {
                calls = locked(self.changed.wait(calls));
                continue;
            };
            let waited = Duration::from_nanos(now_ns().saturating_sub(begun));
            let Some(left) = at_most.checked_sub(waited) else { return false };
            let (again, outcome) = locked(self.changed.wait_timeout(calls, left));
            if outcome.timed_out() {
                return is_done();
            }
            calls = again;
        }
    }

    /// A number for a reader that will register a [callback](Watch::call).
    pub(crate) fn new_reader(&self) -> u64 {
        self.next_reader.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers `woken` for the next change, in place of the reader's previous one. Calls it at once if it
    /// `is_done` already.
    pub(crate) fn call(&self, reader: u64, is_done: &dyn Fn() -> bool, woken: Woken) {
        // Dropped outside the lock: dropping a closure may run any code.
        let replaced = {
            let mut calls = locked(self.calls.lock());
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let replaced = self.take(&mut calls, reader);
            if !is_done() {
                calls.push((reader, woken));
                drop(calls);
                drop(replaced);
                return;
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            replaced
        };
        drop(replaced);
        woken();
    }

    /// Removes a reader with its callback.
    pub(crate) fn forget(&self, reader: u64) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut calls = locked(self.calls.lock());
        let forgotten = self.take(&mut calls, reader);
        drop(calls);
        drop(forgotten);
    }

    fn take(&self, calls: &mut Vec<(u64, Woken)>, reader: u64) -> Option<Woken> {
        let at = calls.iter().position(|(of, _)| *of == reader)?;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Some(calls.swap_remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    //! A reader that is not woken waits for ever; one that polls keeps a processor busy.
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::threads::side_by_side;

    #[test]
    fn who_comes_too_late_does_not_wait_and_who_waits_is_woken() {
        let watch = Arc::new(Watch::default());
        let done = Arc::new(AtomicBool::new(false));
        let called = Arc::new(AtomicBool::new(false));
        let is_done = {
            let done = Arc::clone(&done);
            move || done.load(Ordering::SeqCst)
        };
        assert!(!watch.wait(&is_done, Some(Duration::ZERO), &|| 0));
        let note = Arc::clone(&called);
        watch.call(0, &is_done, Box::new(move || note.store(true, Ordering::SeqCst)));
        assert!(!called.load(Ordering::SeqCst), "nothing has changed yet");
        let waited = side_by_side(&[true, false], |waits| {
            if waits {
                return watch.wait(&is_done, None, &|| 0);
            }
            done.store(true, Ordering::SeqCst);
            watch.wake();
            true
        });
        assert_eq!(waited, [true, true]);
        assert!(called.load(Ordering::SeqCst));
        let note = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&note);
        watch.call(0, &is_done, Box::new(move || told.store(true, Ordering::SeqCst)));
        assert!(note.load(Ordering::SeqCst), "it had changed already");
        assert_eq!(watch.waiting.load(Ordering::SeqCst), 0);
    }

    /// A task that registers again at each poll must not fill memory. One that panics must not end the commit
    /// that wakes it.
    #[test]
    fn a_reader_is_called_once_and_a_panic_of_it_harms_nobody() {
        let watch = Watch::default();
        let called = Arc::new(AtomicUsize::new(0));
        let count = || {
            let called = Arc::clone(&called);
            Box::new(move || {
                called.fetch_add(1, Ordering::SeqCst);
            })
        };
        let (first, second, third) = (watch.new_reader(), watch.new_reader(), watch.new_reader());
        watch.call(first, &|| false, Box::new(|| panic!("of the program's")));
        for _ in 0..10 {
            watch.call(second, &|| false, count());
        }
        watch.call(third, &|| false, count());
        watch.forget(third);
        assert_eq!(watch.waiting.load(Ordering::SeqCst), 2);
        watch.wake();
        assert_eq!(called.load(Ordering::SeqCst), 1);
        assert_eq!(watch.waiting.load(Ordering::SeqCst), 0);
    }
}
