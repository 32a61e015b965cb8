//! Alarms: a broken invariant poisons its database before the thread unwinds (D6).
//!
//! An open database has one [`Alarm`]. It holds the first failure after which nothing may be acknowledged: a
//! failed sync, a contradiction in the space map, a broken invariant, a panic. Commits and checkpoints check
//! it before they start and before they return success.
//!
//! [`invariant!`] checks an invariant, in release builds too. Bytes from disk are not its business: they are
//! checked and become errors. The code that checks rarely has the database at hand; a leaf has no pointer to
//! its engine. So the public entry points of writers note in the thread which alarm is theirs
//! ([`Alarm::enter`]). A broken invariant raises that alarm, and only then panics:
//!
//! 1. Raise. From here on no other thread acknowledges a commit.
//! 2. Panic. The locks that this thread holds are released while it unwinds, and may guard half a change.
//! 3. Another thread takes such a lock ([`locked`]) although it is marked. It does not panic as well. It
//!    finds the alarm raised, and returns `Poisoned`.
//!
//! Any other panic raises the alarm twice: when another thread takes a lock that was held during it, and when
//! it leaves the entry point. The first comes in time for what the lock guards. A panic that is caught while
//! others wait for the thread raises it there (`commit/serve.rs`, `commit/lead.rs`).
//!
//! Considered: a hook of `std::panic`, which belongs to the program; a pointer to the alarm in every node,
//! which costs memory. Readers note nothing, since a scan would pay for it with each row. They change nothing
//! that is durable.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LockResult, Mutex, OnceLock, PoisonError, TryLockError, TryLockResult, Weak};

use crate::error::{Code, Error, Result};

/// The number that stands for no alarm.
const NONE: u64 = 0;

static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);

/// The alarms of all open databases of the process. Read only when one is raised from within.
static ALARMS: Mutex<Vec<Weak<Alarm>>> = Mutex::new(Vec::new());

thread_local! {
    /// The number of the alarm of the database in whose code this thread is.
    static WITHIN: Cell<u64> = const { Cell::new(NONE) };
}

type Wake = Box<dyn Fn(Wakes) + Send + Sync>;

/// Whom an alarm wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// Threads that wait inside of the engine. The thread that wakes them may hold any lock.
    Threads,
    /// These, and the callbacks of the program. The thread holds no lock.
    All,
}

/// Why a database acknowledges nothing any more, if it does not.
pub(crate) struct Alarm {
    number: u64,
    cause: OnceLock<Error>,
    wake: OnceLock<Wake>,
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Alarm {
    /// A silent alarm.
    #[must_use]
    pub(crate) fn new() -> Arc<Alarm> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let alarm = Arc::new(Alarm { number, cause: OnceLock::new(), wake: OnceLock::new() });
        let mut alarms = locked_alarms();
        alarms.retain(|alarm| alarm.strong_count() > 0);
        alarms.push(Arc::downgrade(&alarm));
        alarm
    }

    /// Sets what wakes the threads that wait for an acknowledgement.
    pub(crate) fn wake_by(&self, wake: impl Fn(Wakes) + Send + Sync + 'static) {
        drop(self.wake.set(Box::new(wake)));
    }

    /// Raises the alarm. Only the first cause counts.
    pub(crate) fn raise(&self, cause: Error) {
        drop(self.cause.set(cause));
        self.wake(Wakes::Threads);
    }

    /// Raises the alarm, and calls the callbacks of the program, too.
    pub(crate) fn raise_and_call(&self, cause: Error) {
        drop(self.cause.set(cause));
        self.wake(Wakes::All);
    }

    /// Raises the alarm after a panic of this thread that was caught.
    pub(crate) fn raise_after_panic(&self) {
        self.raise(fault("a thread panicked"));
    }

    /// Checks an invariant where a panic would leave threads waiting for ever: raises the alarm, and returns.
    pub(crate) fn require(&self, holds: bool, what: fmt::Arguments<'_>) {
        if !holds {
            self.raise(fault(&format!("an invariant is broken: {what}")));
        }
    }

    fn wake(&self, wakes: Wakes) {
        if let Some(wake) = self.wake.get() {
            wake(wakes);
        }
    }

    /// The first cause, if the alarm was raised.
    pub(crate) fn cause(&self) -> Option<&Error> {
        self.cause.get()
    }

    /// Checks that the alarm is silent.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn check(&self) -> Result<()> {
        self.cause.get().map_or(Ok(()), |cause| Err(Error::poisoned(cause.message())))
    }

    /// Notes that this thread is in the code of this alarm's database, until the result is dropped.
    #[must_use]
    pub(crate) fn enter(&self) -> Within {
        Within::of(self.number, false)
    }
}

/// Exists while a thread is in the code of a database. If it is dropped by a panic, it raises the alarm.
#[derive(Debug)]
pub(crate) struct Within {
    before: u64,
    /// It belongs to a thread that shares the work of another one, which may hold locks.
    is_shared: bool,
    was_panicking: bool,
    /// It belongs to its thread.
    here: PhantomData<*const ()>,
}

impl Within {
    fn of(number: u64, is_shared: bool) -> Within {
        let before = WITHIN.replace(number);
        Within { before, is_shared, was_panicking: std::thread::panicking(), here: PhantomData }
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if !self.was_panicking
            && std::thread::panicking()
            && let Some(alarm) = alarm_here()
        {
            alarm.raise_after_panic();
            // The locks that the thread took since it entered are released.
            if self.before == NONE && !self.is_shared {
                alarm.wake(Wakes::All);
            }
        }
        WITHIN.set(self.before);
    }
}

/// The alarm of this thread, for a thread that it starts to share its work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here(u64);

impl Here {
    /// That of this thread.
    pub(crate) fn note() -> Here {
        Here(WITHIN.get())
    }

    /// Notes it in the thread that shares the work.
    #[must_use]
    pub(crate) fn enter(self) -> Within {
        Within::of(self.0, true)
    }
}

/// The guard of a lock, or what a wait for it returned, whatever happened under the lock before. After a
/// panic under it the alarm of this thread's database is raised.
pub(crate) fn locked<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(after_panic)
}

/// The same for a lock that is not waited for: `None` if another thread holds it.
pub(crate) fn locked_if_free<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(after_panic(poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn after_panic<G>(poisoned: PoisonError<G>) -> G {
    raise_here("a thread panicked while it held a lock");
    poisoned.into_inner()
}

/// Raises the alarm of this thread's database, and panics. If the thread unwinds already, a second panic
/// would end the process: it only raises the alarm.
///
/// # Panics
/// Unless the thread is panicking.
#[cold]
#[inline(never)]
pub(crate) fn broken(what: fmt::Arguments<'_>) {
    let message = format!("an invariant is broken: {what}");
    raise_here(&message);
    assert!(std::thread::panicking(), "{message}");
}

fn raise_here(what: &str) {
    if let Some(alarm) = alarm_here() {
        alarm.raise(fault(what));
    }
}

fn alarm_here() -> Option<Arc<Alarm>> {
    let number = WITHIN.get();
    if number == NONE {
        return None;
    }
    locked_alarms().iter().filter_map(Weak::upgrade).find(|alarm| alarm.number == number)
}

fn fault(what: &str) -> Error {
    let error = Error::new(Code::System, format!("{what}: this is a fault of the engine"));
    error.with_hint("report it, and open the database again")
}

/// Not by [`locked`], which comes here.
fn locked_alarms() -> std::sync::MutexGuard<'static, Vec<Weak<Alarm>>> {
    ALARMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks an invariant of the engine's own state, in release builds too.
///
/// If it does not hold, raises the alarm of the database in whose code the thread is, and panics.
macro_rules! invariant {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            $crate::alarm::broken(format_args!($($what)+))
        }
    };
}
pub(crate) use invariant;

/// Expects that `work` breaks an invariant, with the alarm raised. Returns which.
#[cfg(test)]
pub(crate) fn cause_of(work: impl FnOnce()) -> String {
    let alarm = Alarm::new();
    let within = alarm.enter();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    drop(within);
    let panic = caught.expect_err("an invariant is broken");
    assert!(alarm.cause().is_some(), "the alarm is raised");
    // Not the alarm's own cause: a lock that an earlier panic marked may have raised it first.
    *panic.downcast::<String>().expect("the message of an invariant")
}

#[cfg(test)]
mod tests;
