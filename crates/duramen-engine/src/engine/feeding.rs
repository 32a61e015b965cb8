//! Work of checkpoints and the background for the change feed: retain changes before their log is released,
//! and release those that were read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duramen_disk::Disk;

use crate::alarm::locked;
use crate::checkpoint::{CheckpointError, Checkpointer, Store};
use crate::commit::Committer;
use crate::error::{Code, Error, Result};
use crate::feed::{FeedNeed, FeedRule, Letting, Retained, Retaining};
use crate::ids::CommitSeq;
use crate::snapshot::Registration;
use crate::transaction::Snapshot;
use crate::wal::{LogIdentity, LogPlace};

/// Maintains the feed of a database opened for writing.
pub(super) struct Feeding {
    /// The retained files.
    pub retained: Arc<Retained>,
    rule: Option<Arc<dyn FeedRule>>,
    disk: Arc<dyn Disk>,
    wal_dir: PathBuf,
    identity: LogIdentity,
    /// The newest commit at the last review.
    looked_at: Mutex<CommitSeq>,
}

impl std::fmt::Debug for Feeding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeding").field("retained", &self.retained).finish_non_exhaustive()
    }
}

impl Feeding {
    /// Over the retained files and the log of an open database.
    pub(super) fn new(
        retained: &Arc<Retained>,
        rule: Option<&Arc<dyn FeedRule>>,
        disk: &Arc<dyn Disk>,
        wal_dir: &Path,
        identity: LogIdentity,
    ) -> Feeding {
        Feeding {
            retained: Arc::clone(retained),
            rule: rule.cloned(),
            disk: Arc::clone(disk),
            wal_dir: wal_dir.to_owned(),
            identity,
            looked_at: Mutex::default(),
        }
    }

    /// Retains the changes whose log a checkpoint of `held` will release. The log is durable through it.
    ///
    /// # Errors
    /// As [`Retained::retain`]: the checkpoint must not go on.
    pub(super) fn retain(
        &self,
        store: &Store,
        checkpointer: &Checkpointer,
        committer: &Committer,
        held: &Registration,
    ) -> std::result::Result<Letting, CheckpointError> {
        let (boundary, catalogue) = checkpointer.boundary();
        let through = held.root().position.get().map_or(held.root().seq, |position| position.seq);
        if through <= boundary.seq {
            return Ok(Letting::default());
        }
        let log = LogPlace {
            disk: &*self.disk,
            dir: &self.wal_dir,
            identity: self.identity,
            geometry: &store.geometry,
        };
        let needs = || self.needs_now(held, committer);
        let job = Retaining {
            log,
            boundary,
            catalogue: catalogue.as_ref(),
            through,
            pages: &store.pages,
            rule: self.rule.as_deref(),
            needs: &needs,
            now_ns: self.disk.wall_ns(),
        };
        let letting = self.retained.retain(&job);
        self.refuse_writers(committer);
        letting
    }

    /// Releases changes that were read since, without a checkpoint.
    ///
    /// # Errors
    /// As [`Retained::review`].
    pub(super) fn review(&self, committer: &Committer) -> std::result::Result<(), CheckpointError> {
        let held = committer.hold_published();
        let seq = held.root().seq;
        // A crash returns to the durable state, with the consumer positions in it.
        if seq > committer.durable() || *locked(self.looked_at.lock()) == seq {
            return Ok(());
        }
        let needs = || self.needs_now(&held, committer);
        let reviewed = self.retained.review(&needs, self.disk.wall_ns());
        // Also if a file could not be removed: a consumer that has read on blocks no writer.
        self.refuse_writers(committer);
        reviewed?;
        *locked(self.looked_at.lock()) = seq;
        Ok(())
    }

    /// The needs in the durable state, to which a crash returns, and in the newest state.
    fn needs_now(&self, held: &Registration, committer: &Committer) -> Result<Vec<FeedNeed>> {
        let mut needs = self.needs(held.clone())?;
        needs.extend(self.needs(committer.hold_published())?);
        Ok(needs)
    }

    /// Refuses writers or accepts them again. A refusal wakes waiting readers, so that they can confirm what
    /// they have read.
    fn refuse_writers(&self, committer: &Committer) {
        let refusal = self.refusal();
        let refuses = refusal.is_some();
        committer.refuse_writers(refusal);
        if refuses {
            committer.watch().wake();
        }
    }

    fn needs(&self, held: Registration) -> Result<Vec<FeedNeed>> {
        match &self.rule {
            // Nothing is kept for consumers whose rows are corrupt: checkpoints must go on.
            Some(rule) => match rule.needs(&Snapshot::new(held, None)) {
                Err(error) if error.is_corruption() => Ok(Vec::new()),
                needs => needs,
            },
            None => Ok(Vec::new()),
        }
    }

    fn refusal(&self) -> Option<Error> {
        self.retained.refusal().map(|why| {
            Error::new(Code::FeedFull, format!("writers are refused: {why}"))
                .with_hint("let the consumer read on, or unregister it; deletes go through")
        })
    }
}
