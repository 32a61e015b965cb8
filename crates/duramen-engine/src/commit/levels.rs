//! Waits outside of the committing call, until a commit is published or durable: for receipts, reads and
//! syncs.

use super::order::conflict;
use super::replica::Fate;
use super::{Committer, Ordered};
use crate::alarm::invariant;
use crate::catalog::Root;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Durability;

impl Committer {
    /// Whether a commit survives a power cut.
    pub(crate) fn reached_disk(&self, ordered: Ordered) -> bool {
        if self.is_replica() {
            return self.fate(ordered) == Fate::Happened;
        }
        // `durable` must be read first. A commit that reuses a dropped sequence becomes durable only after
        // the drop.
        self.durable() >= ordered.seq && self.still_there(ordered).is_ok()
    }

    /// Waits until a commit survives a power cut.
    ///
    /// # Errors
    /// `Full` if it was dropped because its group could not be written; `InDoubt` or `Poisoned` if the sync
    /// fails.
    pub(crate) fn wait_disk(&self, ordered: Ordered) -> Result<()> {
        if self.is_replica() {
            return self.wait_decided(ordered);
        }
        let _within = self.store.alarm.enter();
        self.wait_written(ordered)?;
        self.sync_through(ordered.seq)?;
        invariant!(self.reached_disk(ordered), "commit {} was waited for and is durable", ordered.seq);
        Ok(())
    }

    fn still_there(&self, ordered: Ordered) -> Result<()> {
        if self.store.registry.is_kept(ordered.seq, ordered.rollback_epoch) {
            return Ok(());
        }
        Err(Error::new(
            Code::DiskFull,
            format!("commit {} never happened: its group could not be written to the log", ordered.seq),
        ))
    }

    /// Whether nothing is left to be written for a commit: it is on disk, or was dropped, or the engine is
    /// poisoned.
    pub(crate) fn is_settled(&self, ordered: Ordered) -> bool {
        if self.is_replica() {
            return self.fate(ordered) != Fate::Open || self.not_poisoned().is_err();
        }
        self.reached_disk(ordered) || self.still_there(ordered).is_err() || self.not_poisoned().is_err()
    }

    /// The result of a commit for a thread that may not write the log any more.
    ///
    /// # Errors
    /// As [`Committer::wait_disk`]; `InDoubt` if it has not reached the level.
    pub(crate) fn result_without_writing(&self, ordered: Ordered, level: Durability) -> Result<()> {
        if self.is_replica() && self.fate(ordered) == Fate::Happened {
            return Ok(());
        }
        let still_there = self.still_there(ordered);
        let is_written = level < Durability::Disk && self.published().seq >= ordered.seq;
        if still_there.is_ok() && (is_written || self.durable() >= ordered.seq) {
            return Ok(());
        }
        self.not_poisoned()?;
        still_there?;
        let what = "the last handle was dropped where it could not close the database";
        Err(Error::in_doubt(&Error::new(Code::Closed, what)))
    }

    /// Waits until a commit is published. It is in the log then.
    ///
    /// # Errors
    /// `Full` if it was dropped because its group could not be written; `Poisoned`.
    pub(crate) fn wait_written(&self, ordered: Ordered) -> Result<()> {
        if self.is_replica() {
            return self.wait_decided(ordered);
        }
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let mut order = self.order.lock();
        loop {
            let still_there = self.still_there(ordered);
            if still_there.is_ok() && self.published().seq >= ordered.seq {
                return Ok(());
            }
            // Checked before the commit is reported as dropped: what a failed sync has dropped may be on the
            // disk.
            self.not_poisoned()?;
            still_there?;
            if !order.take_leadership() {
                order = self.order.wait(order);
                continue;
            }
            drop(order);
            self.lead()?;
            order = self.order.lock();
        }
    }

    /// Ends a transaction that wrote nothing. Waits until what it read is published, and durable at level
    /// `Disk`.
    ///
    /// # Errors
    /// As [`Committer::wait_disk`].
    pub(crate) fn finish_read(&self, root: &Root, level: Durability) -> Result<Ordered> {
        let read = Ordered::of(root);
        if self.is_replica() {
            // Transactions read what is decided.
            return Ok(read);
        }
        self.wait_written(read)
            .map_err(|error| if error.code() == Code::DiskFull { conflict() } else { error })?;
        if level == Durability::Disk {
            self.sync_through(read.seq)?;
        }
        Ok(read)
    }

    /// Waits until everything published up to a commit survives a power cut.
    ///
    /// # Errors
    /// `InDoubt` or `Poisoned` if the sync fails.
    pub(crate) fn sync_through(&self, seq: CommitSeq) -> Result<()> {
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        if self.is_replica() {
            // Not as the leader: decided commits would wait for this sync.
            self.not_poisoned()?;
            return if self.durable() < seq { self.pipeline.sync_beside() } else { Ok(()) };
        }
        loop {
            let mut order = self.order.lock();
            if self.durable() >= seq {
                return Ok(());
            }
            self.not_poisoned()?;
            order.forming.wants_sync = true;
            if !order.take_leadership() {
                drop(self.order.wait(order));
                continue;
            }
            drop(order);
            match self.lead() {
                // A group without room does not matter here: the commit waited for may have been written long
                // ago. With that group dropped, the next round syncs it.
                Err(error) if self.poison_cause().is_some() => return Err(error),
                _ => {}
            }
        }
    }
}
