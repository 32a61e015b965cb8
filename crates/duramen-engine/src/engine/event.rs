//! Events that the engine reports to a program's hook.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::ids::CommitSeq;

/// An event that no call returns.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The database was opened and the log replayed.
    Recovered {
        /// Records replayed.
        record_count: u64,
        /// Groups after the newest durable watermark. Only these could have been confused with a torn tail.
        unmarked_group_count: u64,
        /// The last run ended in the middle of a write.
        torn: bool,
    },
    /// Level `Disk` was requested, and syncs mean nothing where the database lies. Reported at opening.
    /// Commits wait for syncs all the same.
    DiskLevelNotKept {
        /// Why, in words.
        why: String,
    },
    /// A checkpoint begins: reported before any of it is written. `Checkpoint` follows, unless it fails.
    CheckpointBegins,
    /// A checkpoint became durable.
    Checkpoint {
        /// The last commit in it.
        seq: CommitSeq,
        /// Bytes written for it.
        written_bytes: u64,
    },
    /// Changes that a consumer had not read are gone. The feed reached its bound, the disk has no room, or
    /// retaining them has failed for a minute. Readers that need them get `FeedGap`.
    FeedLetGo {
        /// The last commit that is gone.
        through: CommitSeq,
        /// Why.
        why: Error,
    },
    /// The log had no room for a group, and commits in it that had returned at level `Memory` were dropped.
    /// Their receipts return the same error. Reported by the next step of the background.
    CommitsDropped {
        /// Number of commits.
        count: u64,
        /// The last commit before them, which was kept.
        after: CommitSeq,
        /// Why the group could not be written.
        why: Error,
    },
    /// Work in the background failed; it will be tried again unless the engine is poisoned.
    BackgroundFailed(Error),
    /// A sync failed: nothing is acknowledged any more.
    Poisoned(Error),
    /// Closing while being dropped failed.
    CloseFailed(Error),
}

/// The program's function for events.
pub type EventHook = Arc<dyn Fn(&Event) + Send + Sync>;

/// The hook, if there is one. It is called outside locks.
#[derive(Clone, Default)]
pub(super) struct Events(pub(super) Option<EventHook>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Events").field(&self.0.is_some()).finish()
    }
}

impl Events {
    /// Calls the hook.
    pub(super) fn tell(&self, event: &Event) {
        if let Some(hook) = &self.0 {
            hook(event);
        }
    }
}
