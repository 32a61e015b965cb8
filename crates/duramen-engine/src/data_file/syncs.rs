//! Syncs of one file that concurrent callers share.
//!
//! A sync covers what was written before it began. So a caller needs the end of any sync that begins after
//! its call: the next one, by any caller. Callers that come while a sync runs share the one after it.
//!
//! One sync at a time, and none after a failure (D6). The system reports pages that it could not write only
//! once, to the next sync. A later sync would succeed wrongly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::alarm::invariant;
use crate::error::{Code, Error, Result};

/// The syncs of a file, by number: the first is 1.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// The number of the last sync that began.
    begun: AtomicU64,
    /// Held across a sync.
    ended: Mutex<Ended>,
}

#[derive(Debug, Default)]
struct Ended {
    /// The number of the last sync that succeeded.
    last: u64,
    /// The first failure.
    failed: Option<Error>,
}

impl Syncs {
    /// The number of the first sync that covers what is written by now.
    pub(super) fn next(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + 1
    }

    /// Returns once the sync with this number, or a later one, has succeeded; makes it if no caller has.
    ///
    /// # Errors
    /// The first failure of a sync, then and at every call after it.
    pub(super) fn through(&self, number: u64, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &ended.failed {
            return Err(error.clone());
        }
        if ended.last >= number {
            return Ok(());
        }
        let begins = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        invariant!(begins >= number, "sync {begins} begins after the call that wants sync {number}");
        // For a sync that panics: what it has not written would not be reported again.
        ended.failed = Some(Error::new(Code::System, "a sync of the data file did not end"));
        let result = sync();
        ended.failed = result.as_ref().err().cloned();
        if result.is_ok() {
            ended.last = begins;
        }
        result
    }

    /// Runs `write_out` between syncs, unless one has failed. Its failure counts as that of a sync.
    pub(super) fn between(&self, write_out: impl FnOnce() -> Result<()>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.failed.is_none() {
            ended.failed = write_out().err();
        }
    }
}
