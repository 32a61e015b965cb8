//! What checkpoints and the background do for the change feed: retain before the log is let go of, and let go of what was read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duramen_disk::Disk;

use crate::checkpoint::{CheckpointError, Checkpointer, Store};
use crate::commit::Committer;
use crate::error::{Code, Error, Result};
use crate::feed::{FeedNeed, FeedRule, Letting, Retained, Retaining};
use crate::ids::CommitSeq;
use crate::snapshot::Registration;
use crate::transaction::Snapshot;
use crate::wal::{LogIdentity, LogPlace};

const POISON: &str = "nothing panics while the feed is looked after";

/// Looks after the feed of a database that is written.
pub struct Feeding {
    /// The retained files.
    pub retained: Arc<Retained>,
    rule: Option<Arc<dyn FeedRule>>,
    disk: Arc<dyn Disk>,
    wal_dir: PathBuf,
    identity: LogIdentity,
    /// The commit at the last look for what may be let go of.
    looked_at: Mutex<CommitSeq>,
}

impl std::fmt::Debug for Feeding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feeding").field("retained", &self.retained).finish_non_exhaustive()
    }
}

impl Feeding {
    /// Over the retained files and the log of an open database.
    pub fn new(
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

    /// Retains what a checkpoint of `held` will let go of. The log is durable through it.
    ///
    /// # Errors
    /// As [`Retained::retain`]: the checkpoint must not go on.
    pub fn retain(
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

    /// Lets go of what was read since, without a checkpoint.
    ///
    /// # Errors
    /// As [`Retained::review`].
    pub fn review(&self, committer: &Committer) -> std::result::Result<(), CheckpointError> {
        let held = committer.hold_published();
        let seq = held.root().seq;
        // A crash goes back to what is durable, and so do those who read.
        if seq > committer.durable() || *self.looked_at.lock().expect(POISON) == seq {
            return Ok(());
        }
        let needs = || self.needs_now(&held, committer);
        let reviewed = self.retained.review(&needs, self.disk.wall_ns());
        // Also if a file could not be removed: a consumer that has read on blocks no writer.
        self.refuse_writers(committer);
        reviewed?;
        *self.looked_at.lock().expect(POISON) = seq;
        Ok(())
    }

    /// As of what is durable, since that is what a crash goes back to; and of whoever came since.
    fn needs_now(&self, held: &Registration, committer: &Committer) -> Result<Vec<FeedNeed>> {
        let mut needs = self.needs(held.clone())?;
        needs.extend(self.needs(committer.hold_published())?);
        Ok(needs)
    }

    /// Refuses writers or takes them again; who holds them up without having anything to do is woken to say how far it is.
    fn refuse_writers(&self, committer: &Committer) {
        let refusal = self.refusal();
        let refuses = refusal.is_some();
        committer.refuse_writers(refusal);
        if refuses {
            committer.watch.wake();
        }
    }

    fn needs(&self, held: Registration) -> Result<Vec<FeedNeed>> {
        match &self.rule {
            // Whose need cannot be read for damage is kept nothing: checkpoints must go on.
            Some(rule) => match rule.needs(&Snapshot::new(held, None)) {
                Err(error) if error.is_damage() => Ok(Vec::new()),
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
