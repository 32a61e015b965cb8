//! State of building views: the lock, the size of a step, and failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::access::views::failures::Failures;

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    pub(crate) failures: Failures,
    building: Mutex<()>,
    /// How many documents the last step of a build took.
    step_documents: AtomicU64,
}

impl Builds {
    /// Held while a view is built: two concurrent steps would conflict every time.
    pub(crate) fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data, so a panic leaves nothing inconsistent.
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of documents for the next step: the maximum or, after conflicts, about as many as last
    /// succeeded.
    pub(crate) fn step_documents(&self, at_most: u64) -> u64 {
        match self.step_documents.load(Ordering::Relaxed) {
            0 => at_most,
            last => last.saturating_mul(2).min(at_most),
        }
    }

    /// Records the size of a successful step.
    pub(crate) fn step_took(&self, documents: u64) {
        self.step_documents.store(documents, Ordering::Relaxed);
    }
}
