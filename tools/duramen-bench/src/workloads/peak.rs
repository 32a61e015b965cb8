//! The most anonymous memory that this process takes while it measures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Result;
use crate::job::Outcome;
use crate::machine;

/// The interval between two readings of this process's memory.
const EVERY: Duration = Duration::from_millis(10);

/// The peak so far.
#[derive(Default)]
pub(super) struct Peak {
    bytes: AtomicU64,
    over: AtomicBool,
}

/// Measures, and adds the peak of anonymous memory meanwhile. `measure` may end the watch earlier.
///
/// # Errors
/// Those of `measure`.
#[allow(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
pub(super) fn with_peak(measure: impl FnOnce(&Peak) -> Result<Outcome>) -> Result<Outcome> {
    let peak = Peak::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| peak.watch());
        let outcome = measure(&peak);
        peak.end();
        outcome
    })?;
    Ok(outcome.with("peak anonymous MB", peak.bytes.into_inner() as f64 / 1e6))
}

impl Peak {
    /// Ends the watch: memory that is taken from here on is not the engine's.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn watch(&self) {
        while !self.over.load(Ordering::Relaxed) {
            self.bytes.fetch_max(machine::anonymous_bytes().unwrap_or(0), Ordering::Relaxed);
            std::thread::sleep(EVERY);
        }
    }
}
