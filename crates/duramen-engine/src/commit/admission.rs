//! Whether commits are accepted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use super::Submission;
use crate::alarm::{Alarm, locked};
use crate::error::{Code, Error, Result};

/// Why commits are refused before they are validated.
#[derive(Debug)]
pub(super) struct Admission {
    alarm: Arc<Alarm>,
    /// The process that opened the database.
    process: u32,
    closed: AtomicBool,
    /// Whether `feed_refusal` is set. Only then a commit takes its lock.
    refuses: AtomicBool,
    /// Why writers are refused: the change feed has no room for what it must keep.
    feed_refusal: RwLock<Option<Error>>,
}

impl Admission {
    /// Accepts commits of this process until the alarm is raised.
    #[must_use]
    pub(super) fn new(alarm: Arc<Alarm>) -> Admission {
        Admission {
            alarm,
            process: duramen_disk::process_id(),
            closed: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            feed_refusal: RwLock::new(None),
        }
    }

    /// Whether commits are accepted.
    ///
    /// # Errors
    /// `Poisoned` after a failed sync; `Invalid` after a close.
    pub(super) fn usable(&self) -> Result<()> {
        self.alarm.check()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(Code::Closed, "the database is closed").with_hint("open it again"));
        }
        Ok(())
    }

    /// Refuses all further commits.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Fails in a process that was forked from the one that opened the database. Otherwise both would write.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn same_process(&self) -> Result<()> {
        if self.process == duramen_disk::process_id() { Ok(()) } else { Err(Error::forked()) }
    }

    /// Refuses writers, or accepts them again. Writers are refused while the change feed must keep more than
    /// its bound.
    pub(super) fn refuse_writers(&self, why: Option<Error>) {
        self.refuses.store(why.is_some(), Ordering::Release);
        *locked(self.feed_refusal.write()) = why;
    }

    /// Fails for a transaction that puts something while writers are refused, unless it advances a consumer
    /// of the feed.
    pub(super) fn not_refused(&self, submission: &Submission) -> Result<()> {
        if !self.refuses.load(Ordering::Acquire)
            || submission.serves_feed
            || submission.frees_room
            || submission.changes.only_deletes()
        {
            return Ok(());
        }
        match &*locked(self.feed_refusal.read()) {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}
