//! A worker runs while there is work, and ends, with everything it held, when it is stopped.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A worker that reports the number of each step, and rests as the test chooses.
fn told(rests: Receiver<Rest>) -> (Worker, Receiver<usize>) {
    let (tell, steps): (Sender<usize>, _) = channel();
    let (rests, taken) = (Mutex::new(rests), AtomicUsize::new(0));
    let work = move || {
        tell.send(taken.fetch_add(1, Ordering::Relaxed)).unwrap();
        rests.lock().unwrap().recv().unwrap_or(Rest::UntilWoken)
    };
    (Worker::new("told", work, |error| panic!("{error}")), steps)
}

// An idle worker must cost nothing, and a call while it falls asleep must not be missed.
#[test]
fn a_worker_sleeps_until_it_is_woken_and_misses_no_call() {
    let (rest, rests) = channel();
    let (worker, steps) = told(rests);
    worker.wake();
    assert_eq!(steps.recv().unwrap(), 0);
    // A step is running: woken now, the worker must take another.
    worker.wake();
    rest.send(Rest::UntilWoken).unwrap();
    assert_eq!(steps.recv().unwrap(), 1);
    rest.send(Rest::None).unwrap();
    assert_eq!(steps.recv().unwrap(), 2);
    rest.send(Rest::For(Duration::from_secs(3_600))).unwrap();
    worker.wake();
    assert_eq!(steps.recv().unwrap(), 3);
    rest.send(Rest::UntilWoken).unwrap();
    drop(rest);
    worker.stop();
    worker.wake();
    assert!(steps.recv().is_err(), "its work was dropped");
}

// A thread that drops the last handle of a database in its own step must not wait for itself.
#[test]
fn stopped_in_its_own_step_it_ends_after_it() {
    let own: Arc<Mutex<Option<Worker>>> = Arc::default();
    let (tell, told) = channel();
    let stopped = Arc::clone(&own);
    let work = move || {
        stopped.lock().unwrap().as_ref().unwrap().stop();
        tell.send(()).unwrap();
        Rest::None
    };
    let worker = Worker::new("own", work, |error| panic!("{error}"));
    *own.lock().unwrap() = Some(worker.clone());
    worker.wake();
    assert!(told.recv().is_ok());
    assert!(told.recv().is_err(), "there was no other step, and its work was dropped");
    worker.stop();
}

#[test]
fn a_step_that_panics_ends_the_worker_and_is_told() {
    let (tell, told) = channel();
    let worker = Worker::new("broken", || panic!("on purpose"), move |error| tell.send(error).unwrap());
    worker.wake();
    assert!(told.recv().unwrap().message().contains("the thread broken panicked"));
    worker.stop();
}
