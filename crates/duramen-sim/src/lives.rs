//! Seeded lives, one after the other on several threads: the loop that all searches share.
//!
//! Owns when a search ends: all seeds are done, its time is over, or a life has failed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a search has done.
#[derive(Debug)]
pub struct Searched<R> {
    /// The reports of all lives, added up.
    pub report: R,
    /// Time taken.
    pub elapsed: Duration,
    /// The seed to begin the next search at.
    pub next_seed: u64,
}

/// Runs `life` with each seed, and adds up the reports. `life` must return early once its second argument
/// returns true.
///
/// # Errors
/// The first failure of a life.
pub fn search<R: Default + Send, F: Send>(
    seeds: &Range<u64>,
    thread_count: usize,
    time: Option<Duration>,
    life: impl Fn(u64, &(dyn Fn() -> bool + Sync)) -> Result<R, F> + Sync,
    add: impl Fn(&mut R, &R) + Sync,
) -> Result<Searched<R>, F> {
    let started = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let outcome: Mutex<Result<R, F>> = Mutex::new(Ok(R::default()));
    let is_over = || {
        time.is_some_and(|time| started.elapsed() >= time)
            || outcome.lock().unwrap_or_else(PoisonError::into_inner).is_err()
    };
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || is_over() {
                return;
            }
            let found = life(seed, &is_over);
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *outcome, found) {
                (Ok(sum), Ok(report)) => add(sum, &report),
                (Ok(_), Err(failure)) => *outcome = Err(failure),
                (Err(_), _) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(work);
        }
    });
    let next_seed = next.into_inner().min(seeds.end);
    let report = outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    Ok(Searched { report, elapsed: started.elapsed(), next_seed })
}
