//! Threads that repeat one operation for a given time, timing each call.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use duramen_lab::measure::Summary;

use crate::engine::Result;
use crate::machine;

const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

/// Threads and durations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Threads.
    pub threads: usize,
    /// The time before measurements count.
    pub warm_up: Duration,
    /// The time that counts.
    pub time: Duration,
}

/// Controls when a thread stops, and records its times.
pub(crate) struct Pace<'a> {
    phase: &'a AtomicU8,
    samples: Vec<u64>,
}

impl Pace<'_> {
    /// Calls `work` until the time is up.
    ///
    /// # Errors
    /// The first error of `work`.
    pub(crate) fn keep(&mut self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            let phase = self.phase.load(Ordering::Relaxed);
            if phase == OVER {
                return Ok(());
            }
            let begun = Instant::now();
            work()?;
            if phase == MEASURING {
                self.samples.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }
}

/// The results of all threads.
pub(crate) struct Driven<T> {
    /// Nanoseconds of each counted call.
    pub samples: Vec<u64>,
    /// How long they took together.
    pub seconds: f64,
    /// Processor time of this process meanwhile.
    pub cpu_seconds: f64,
    /// What each thread returned.
    pub returned: Vec<T>,
}

impl<T> Driven<T> {
    /// Calls a second.
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 calls")]
    pub(crate) fn rate(&self) -> f64 {
        self.samples.len() as f64 / self.seconds
    }

    /// Rate, quantiles and processor time, with names derived from `what`.
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
    pub(crate) fn figures(&self, what: &str) -> Vec<(String, f64)> {
        let Some(summary) = Summary::of(&self.samples) else { return Vec::new() };
        let us = |ns: u64| ns as f64 / 1e3;
        vec![
            (format!("{what}/s"), self.rate()),
            ("p50 us".to_owned(), us(summary.p50)),
            ("p99 us".to_owned(), us(summary.p99)),
            ("p99.9 us".to_owned(), us(summary.p999)),
            ("max us".to_owned(), us(summary.max)),
            ("cpu us each".to_owned(), self.cpu_seconds * 1e6 / self.samples.len() as f64),
        ]
    }
}

/// Runs `work` on every thread until the time is up. Its arguments are its number and a [`Pace`].
///
/// # Errors
/// The first error of a thread.
pub(crate) fn drive<T: Send>(
    plan: Plan,
    work: impl Fn(usize, &mut Pace<'_>) -> Result<T> + Sync,
) -> Result<Driven<T>> {
    let phase = AtomicU8::new(WARMING);
    let ready = Barrier::new(plan.threads + 1);
    let run = |number| {
        let mut pace = Pace { phase: &phase, samples: Vec::with_capacity(1 << 16) };
        ready.wait();
        let returned = work(number, &mut pace);
        // A thread that fails ends the others too.
        if returned.is_err() {
            phase.store(OVER, Ordering::Relaxed);
        }
        returned.map(|returned| (pace.samples, returned))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..plan.threads).map(|number| scope.spawn(move || run(number))).collect();
        ready.wait();
        std::thread::sleep(plan.warm_up);
        let cpu_before = machine::cpu_seconds();
        let begun = Instant::now();
        let _ = phase.compare_exchange(WARMING, MEASURING, Ordering::Relaxed, Ordering::Relaxed);
        std::thread::sleep(plan.time);
        phase.store(OVER, Ordering::Relaxed);
        let mut driven = Driven { samples: Vec::new(), seconds: 0.0, cpu_seconds: 0.0, returned: Vec::new() };
        for worker in workers {
            let joined = worker.join().map_err(|_| "a thread panicked")?;
            let (samples, returned) = joined?;
            driven.samples.extend(samples);
            driven.returned.push(returned);
        }
        driven.seconds = begun.elapsed().as_secs_f64();
        driven.cpu_seconds = machine::cpu_seconds() - cpu_before;
        Ok(driven)
    })
}
