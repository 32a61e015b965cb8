//! What is kept of Raft's log, and what is let go.
//!
//! A node keeps the entries that its own checkpoints need, and those that a member lacks. The leader knows
//! what members lack, and says it with each append: every node keeps that, since each may lead next.
//!
//! What is kept for others is bounded on each node. A member that lags further behind cannot go on: it needs
//! a copy of the state.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen_disk::Disk;
use duramen_engine::{CommitSeq, Error, RaftLog, Replica, Result};
use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::runtime::Runtime;
use crate::seed::Seeds;
use crate::state::State;
use crate::types::Types;

/// Log that is kept for members that lack entries, unless told otherwise.
pub(crate) const LAGGING_BYTES: u64 = 1 << 30;
/// Log that is kept for a node that copies the state. Each segment is an open file: 512 of them.
const JOINING_BYTES: u64 = 4 << 30;

/// A node looks this often whether it can let go of a segment.
const LOOK: Duration = Duration::from_secs(1);

/// The entries after which some member lacks one. By default nothing is known: every entry is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lacked {
    /// A member that has taken entries before.
    pub(crate) by_lagging: u64,
    /// One that copies the state, and then needs what was written meanwhile.
    pub(crate) by_joining: u64,
}

/// What members lack, as the leader has last said.
#[derive(Debug, Default)]
pub(crate) struct Retained(Mutex<Lacked>);

impl Retained {
    pub(crate) fn get(&self) -> Lacked {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, lacked: Lacked) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lacked;
    }
}

/// What a node looks at to let go of its log.
pub(crate) struct Keeper {
    pub(crate) replica: Weak<Replica>,
    pub(crate) log: Weak<RaftLog>,
    pub(crate) retained: Arc<Retained>,
    /// What this node gives of its state.
    pub(crate) seeds: Weak<Seeds>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
    /// Bytes of log that are kept for members that lag.
    pub(crate) lagging_bytes: u64,
}

impl Keeper {
    /// Lets go of the log that nothing needs, as long as the node runs.
    pub(crate) async fn keep<R: Runtime>(self, raft: openraft::Raft<Types<R>, State>) {
        let keeper = Arc::new(self);
        loop {
            Types::<R>::sleep(LOOK).await;
            let now = raft.metrics().borrow_watched().clone();
            if now.running_state.is_err() {
                return;
            }
            // Consensus lets go only of what it knows to be in the state: up to the snapshot.
            let known = now.snapshot.map_or(0, |snapshot| snapshot.index);
            let looking = Arc::clone(&keeper);
            let Ok(Some(found)) = R::run_blocking(move || looking.not_needed(&now)).await else { return };
            // What cannot be read now is looked at again.
            let Ok(Some(through)) = found else { continue };
            let trigger = raft.trigger();
            let purged = trigger.purge_log(through.0.min(known)).await;
            let told = if known < through.0 { trigger.snapshot().await } else { Ok(()) };
            if purged.is_err() || told.is_err() {
                return;
            }
        }
    }

    /// What a member has copied, and then continued, is not held for it any longer.
    fn let_go_of_taken<R: Runtime>(&self, now: &RaftMetrics<Types<R>>) {
        let Some(seeds) = self.seeds.upgrade() else { return };
        let members = now.membership_config.membership();
        seeds.let_go_of_taken(|address| {
            let (node, _) = members.nodes().find(|(_, peer)| peer.address == address)?;
            matched(now, *node)
        });
    }

    /// What nodes that copy the state of this one go on after.
    fn given(&self) -> u64 {
        self.seeds.upgrade().and_then(|seeds| seeds.go_on_after()).unwrap_or(u64::MAX)
    }

    /// The last entry that nothing needs, if a segment would be free then; the outer `None` once the node has
    /// stopped.
    fn not_needed<R: Runtime>(&self, now: &RaftMetrics<Types<R>>) -> Option<Result<Option<CommitSeq>>> {
        let (replica, log) = (self.replica.upgrade()?, self.log.upgrade()?);
        if now.state == ServerState::Leader {
            self.let_go_of_taken(now);
            self.retained.set(lacked(now, log.synced(), self.retained.get(), self.given()));
        }
        Some(self.last_not_needed(&replica, &log))
    }

    fn last_not_needed(&self, replica: &Replica, log: &RaftLog) -> Result<Option<CommitSeq>> {
        let Lacked { by_lagging, by_joining } = self.retained.get();
        let kept = |after: u64, bytes_max: u64| -> Result<CommitSeq> {
            Ok(CommitSeq(after).max(log.end_before_last(bytes_max)?))
        };
        // As much as is free is half of what was free before the log was there.
        let free = free_bytes(&*self.disk, &self.path)?;
        let joining_bytes = self.lagging_bytes.max(free.min(JOINING_BYTES));
        let own = replica.checkpointed()?.min(log.decided()).min(log.synced());
        let through = own.min(kept(by_lagging, self.lagging_bytes)?).min(kept(by_joining, joining_bytes)?);
        Ok(log.would_free(through)?.then_some(through))
    }
}

pub(crate) fn free_bytes(disk: &dyn Disk, path: &Path) -> Result<u64> {
    let found = disk.file_system(path).map_err(|error| Error::io("look at", path, &error))?;
    Ok(found.free_bytes)
}

/// The last entry that a member has, as far as this node, which leads, knows.
fn matched<R: Runtime>(now: &RaftMetrics<Types<R>>, node: u64) -> Option<u64> {
    now.replication.as_ref()?.get(&node).copied().flatten().map(|matched| matched.index)
}

/// What members lack of the log of this node, which leads. What it has not synced it may lack itself after a
/// power cut.
fn lacked<R: Runtime>(now: &RaftMetrics<Types<R>>, synced: CommitSeq, before: Lacked, given: u64) -> Lacked {
    let members = now.membership_config.membership();
    let mut lacked = Lacked { by_lagging: synced.0, by_joining: given };
    for (node, _) in members.nodes().filter(|(node, _)| **node != now.id) {
        let votes = members.voter_ids().any(|voter| voter == *node);
        match matched(now, *node) {
            Some(has) => lacked.by_lagging = lacked.by_lagging.min(has),
            // It has not answered this leader yet. It may have been one that joins until a moment ago.
            None if votes => {
                lacked.by_lagging = lacked.by_lagging.min(before.by_lagging).min(before.by_joining);
            }
            // The state that it copies has its admission, and so the entry of this number.
            None => lacked.by_joining = lacked.by_joining.min(*node),
        }
    }
    lacked
}
