//! The receipt of a commit: where it is in the order, and waiting for its level.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::alarm::locked;
use crate::commit::{Committer, Ordered};
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::options::Durability;
use crate::snapshot::Locks;

/// The result of a commit: its position in the order, and the level it has reached.
#[derive(Clone)]
pub struct Receipt {
    committer: Arc<Committer>,
    seq: CommitSeq,
    ordered: Ordered,
    durability: Durability,
    /// The commit wrote something, and its receipt has not been waited on.
    is_under_way: bool,
    /// D8: a thread that waits for a commit on its way may write the log, also once the last handle is
    /// dropped. Shared by clones; empty once one of them has waited until it is on disk or dropped.
    locks: Option<Arc<Mutex<Option<Arc<Locks>>>>>,
}

impl Receipt {
    pub(crate) fn new(committer: &Arc<Committer>, ordered: Ordered, durability: Durability) -> Receipt {
        let committer = Arc::clone(committer);
        Receipt { committer, seq: ordered.seq, ordered, durability, is_under_way: false, locks: None }
    }

    /// The receipt of a transaction that wrote nothing, and saw the commits up to `seq`.
    pub(super) fn of_read(
        committer: &Arc<Committer>,
        read: Ordered,
        durability: Durability,
        seq: CommitSeq,
    ) -> Receipt {
        Receipt { seq, ..Receipt::new(committer, read, durability) }
    }

    /// The receipt of a commit that has its position and has not waited for its level.
    pub(crate) fn under_way(committer: &Arc<Committer>, ordered: Ordered) -> Receipt {
        let locks = committer.store().registry.hold_locks().ok().flatten();
        let locks = Some(Arc::new(Mutex::new(locks)));
        Receipt { is_under_way: true, locks, ..Receipt::new(committer, ordered, Durability::Memory) }
    }

    /// The sequence of the transaction.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.seq
    }

    /// Its place in the order.
    pub(crate) fn ordered(&self) -> Ordered {
        self.ordered
    }

    /// The level that the commit had reached on return, or has reached since.
    #[must_use]
    pub fn durability(&self) -> Durability {
        if self.committer.reached_disk(self.ordered) { Durability::Disk } else { self.durability }
    }

    /// Waits until the transaction has reached a level.
    ///
    /// # Errors
    /// `OutcomeUnknown` (E0401) or `EnginePoisoned` (E0601) if a sync fails. `OutcomeUnknown` (E0401) also if
    /// the last handle is gone and could not close the database. `DiskFull` (E0301) if the commit was
    /// dropped: it never happened. `System` (E1001) if this thread writes the log and cannot.
    /// `InvalidArgument` (E0201) inside an event hook or a closure that runs alone; `ForkedHandle` (E0206) in
    /// a forked process.
    pub fn wait(&self, level: Durability) -> Result<()> {
        let waited = match level {
            Durability::Memory => return Ok(()),
            _ => self.wait_locked(level),
        };
        if let Some(locks) = &self.locks
            && self.committer.is_settled(self.ordered)
        {
            locked(locks.lock()).take();
        }
        waited.map_err(|error| if self.is_under_way { error.of_a_commit_under_way() } else { error })
    }

    /// D8: this thread may have to write the log, which another process may do once the locks are gone.
    fn wait_locked(&self, level: Durability) -> Result<()> {
        let Ok(_held) = self.committer.store().registry.hold_locks() else {
            return self.committer.result_without_writing(self.ordered, level);
        };
        match level {
            Durability::Disk => self.committer.wait_disk(self.ordered),
            _ => self.committer.wait_written(self.ordered),
        }
    }

    /// As [`Receipt::wait`], and returns the receipt at the level reached.
    ///
    /// # Errors
    /// As [`Receipt::wait`]. For a transaction that wrote nothing, `DiskFull` (E0301) means that the commits
    /// it read were dropped.
    pub fn waited(self, level: Durability) -> Result<Receipt> {
        self.wait(level)?;
        Ok(Receipt { durability: self.durability.max(level), is_under_way: false, locks: None, ..self })
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Receipt { seq, durability, .. } = self;
        f.debug_struct("Receipt").field("seq", seq).field("durability", durability).finish_non_exhaustive()
    }
}
