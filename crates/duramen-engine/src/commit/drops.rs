//! Commits that were dropped after their calls had returned.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::alarm::locked;
use crate::error::Error;
use crate::ids::CommitSeq;

/// Commits that had returned at level `Memory` before their group was dropped.
#[derive(Debug, Clone)]
pub(crate) struct Dropped {
    /// Number of commits.
    pub count: u64,
    /// The last commit before them, which was kept.
    pub after: CommitSeq,
    /// Why their group could not be written.
    pub why: Error,
}

/// The dropped commits since the database was opened, and those that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Drops {
    count: AtomicU64,
    unreported: Mutex<Option<Dropped>>,
}

impl Drops {
    /// Number of dropped commits.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds dropped commits to those that were not reported yet.
    pub(super) fn add(&self, dropped: Dropped) {
        self.count.fetch_add(dropped.count, Ordering::Relaxed);
        let mut unreported = locked(self.unreported.lock());
        let (count, after) = match unreported.take() {
            Some(earlier) => (earlier.count + dropped.count, earlier.after.min(dropped.after)),
            None => (dropped.count, dropped.after),
        };
        *unreported = Some(Dropped { count, after, why: dropped.why });
    }

    /// Takes the dropped commits that were not reported yet.
    pub(super) fn take(&self) -> Option<Dropped> {
        locked(self.unreported.lock()).take()
    }
}
