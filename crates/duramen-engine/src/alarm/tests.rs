//! A broken invariant is known to all threads before the first lock is released.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::threads::side_by_side;

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

fn number(of: u32) -> u32 {
    invariant!(of < 5, "{of} is below five");
    of
}

#[test]
fn a_broken_invariant_raises_the_alarm_of_the_innermost_database_and_panics() {
    let (outer, inner) = (Alarm::new(), Alarm::new());
    let within_outer = outer.enter();
    let within_inner = inner.enter();
    assert_eq!(number(4), 4);
    assert!(panics(|| _ = number(5)));
    assert!(inner.cause().unwrap().message().contains("5 is below five"));
    assert!(inner.check().is_err() && outer.check().is_ok());
    drop(within_inner);
    assert!(panics(|| _ = number(6)));
    assert!(outer.cause().unwrap().message().contains("6 is below five"));
    drop(within_outer);
    assert!(panics(|| _ = number(7)), "outside of any database");
}

// The lock is released by the unwinding thread, when the alarm must have been raised already.
#[test]
fn a_thread_that_takes_the_lock_afterwards_finds_the_alarm_raised() {
    let alarm = Alarm::new();
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    alarm.wake_by(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
    let state = Mutex::new(1);
    /// Looks at the alarm when it is dropped, before the lock that was taken earlier is released.
    struct Look<'a>(&'a Alarm);
    impl Drop for Look<'_> {
        fn drop(&mut self) {
            assert!(self.0.check().is_err());
        }
    }
    assert!(panics(|| {
        let _within = alarm.enter();
        let mut state = locked(state.lock());
        let _look = Look(&alarm);
        *state = 9;
        number(*state);
    }));
    assert_eq!(*locked(state.lock()), 9, "no second panic");
    assert!(wakes.load(Ordering::Relaxed) > 0);
}

// A panic that is no invariant: the next thread that takes the lock raises the alarm, or the scope's end
// does.
#[test]
fn any_panic_raises_the_alarm() {
    let (first, second) = (Alarm::new(), Alarm::new());
    let state = Mutex::new(());
    assert!(panics(|| {
        let _guard = state.lock();
        panic!("while it is locked");
    }));
    let within = first.enter();
    drop(locked(state.lock()));
    assert!(first.cause().unwrap().message().contains("held a lock"));
    drop(within);
    assert!(panics(|| {
        let _within = second.enter();
        panic!("with no lock");
    }));
    assert!(second.cause().unwrap().message().contains("a thread panicked"));
}

#[test]
fn a_thread_that_shares_the_work_raises_the_same_alarm() {
    let alarm = Alarm::new();
    let within = alarm.enter();
    // The first runs in this thread, the second in one that is started for it.
    assert!(panics(|| drop(side_by_side(&[1, 8], number))));
    assert!(alarm.cause().unwrap().message().contains("8 is below five"));
    drop(within);
}

// A second panic while the thread unwinds would end the process.
#[test]
fn an_invariant_that_breaks_while_the_thread_unwinds_only_raises_the_alarm() {
    struct Broken;
    impl Drop for Broken {
        fn drop(&mut self) {
            assert_eq!(number(9), 9, "it goes on");
        }
    }
    let alarm = Alarm::new();
    assert!(panics(|| {
        let _within = alarm.enter();
        let _broken = Broken;
        number(5);
    }));
    assert!(alarm.cause().unwrap().message().contains("5 is below five"), "the first counts");
}

// A thread that shares the work of another one: that one may hold locks, which a callback of the program
// could want.
#[test]
fn only_the_thread_that_entered_wakes_callbacks() {
    let alarm = Alarm::new();
    let woken = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&woken);
    alarm.wake_by(move |wakes| locked(seen.lock()).push(wakes));
    let shared = alarm.enter();
    let here = Here::note();
    drop(shared);
    assert!(panics(|| {
        let _within = here.enter();
        number(5);
    }));
    assert!(locked(woken.lock()).iter().all(|wakes| *wakes == Wakes::Threads));
    assert!(panics(|| {
        let _within = alarm.enter();
        number(6);
    }));
    assert_eq!(locked(woken.lock()).last(), Some(&Wakes::All));
}
