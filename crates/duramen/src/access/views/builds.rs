//! Building views: one step at a time, how large it is, and what failed.

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
    /// Held while a view is built: one step at a time, or two would conflict at every step.
    pub(crate) fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        // No data is guarded: a panic leaves nothing half done.
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many documents a step of a build is to take: as many as may be, and where others get in between, about as many as went
    /// well last.
    pub(crate) fn step_documents(&self, at_most: u64) -> u64 {
        match self.step_documents.load(Ordering::Relaxed) {
            0 => at_most,
            last => last.saturating_mul(2).min(at_most),
        }
    }

    /// A step took so many documents.
    pub(crate) fn step_took(&self, documents: u64) {
        self.step_documents.store(documents, Ordering::Relaxed);
    }
}
