//! How long each part of a commit takes, which commits were slow, and which keys commits conflict over.
//!
//! Owns what is kept of that, in bounded memory. Histograms are added to under the order lock or by the
//! leader, so that threads do not wait for each other's cache lines.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use super::changes::record_trees;
use super::group::Forming;
use crate::alarm::locked;
use crate::histogram::{Histogram, Recorder};
use crate::ids::{CommitSeq, TreeId};

/// A commit that takes longer is kept as a slow one.
const SLOW_NS: u64 = 250_000_000;

/// Slow commits that are kept, the newest ones.
const SLOW_MAX: usize = 256;

/// Trees that a slow commit names.
const TREES_MAX: usize = 16;

/// Keys that are counted: those with the most conflicts are among them.
const HOT_MAX: usize = 64;

/// How long the parts of commits took, since the database was opened. Each commit passes them in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timings {
    /// From the commit, once its big values are on disk, to the place in the order: waiting for memory,
    /// validation, applying the changes. Of a closure that runs alone from its end on.
    pub order: Histogram,
    /// From there until the write of its group begins: usually while the group before is synced.
    pub queue: Histogram,
    /// The write of a group to the log. None for groups whose write is durable by itself.
    pub write: Histogram,
    /// The sync of a group, or its durable write. What is written without one is synced later, by a receipt
    /// that waits, the background or a checkpoint: those syncs are not here.
    pub sync: Histogram,
    /// From there until a group is visible to snapshots.
    pub publish: Histogram,
    /// Whole checkpoints, which run beside commits.
    pub checkpoint: Histogram,
}

/// A commit that took longer than 250 ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowCommit {
    /// Its sequence.
    pub seq: CommitSeq,
    /// When it was published, in nanoseconds since 1970 by the wall clock.
    pub published_at_ns: u64,
    /// The parts of its time, as in [`Timings`].
    pub order: Duration,
    /// See [`Timings::queue`].
    pub queue: Duration,
    /// See [`Timings::write`].
    pub write: Duration,
    /// See [`Timings::sync`].
    pub sync: Duration,
    /// See [`Timings::publish`].
    pub publish: Duration,
    /// Commits that shared its write.
    pub group_len: usize,
    /// The trees that it changed, the first 16, by name; those that were dropped since by their id.
    pub trees: Vec<String>,
}

impl SlowCommit {
    /// From the commit until it was published.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.order + self.queue + self.write + self.sync + self.publish
    }
}

/// A key that transactions conflicted over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotKey {
    /// The tree, by name; by its id if it was dropped since.
    pub tree: String,
    /// The key.
    pub key: Vec<u8>,
    /// Conflicts, at most: a key that was not counted from the first one may have taken over another's count.
    pub conflicts: u64,
    /// Conflicts, at least.
    pub conflicts_min: u64,
}

/// What a member of a group keeps to be timed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    /// When its call began.
    pub call_ns: u64,
    /// When it took its place in the order.
    pub placed_ns: u64,
}

/// When a group passed each part.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupTimes {
    pub begun_ns: u64,
    /// `None` if the write is durable by itself, or there is no sync.
    pub sync_began_ns: Option<u64>,
    pub ended_ns: u64,
    pub has_sync: bool,
}

/// A slow commit, with the ids of its trees.
#[derive(Debug, Clone)]
pub(crate) struct Slow {
    pub commit: SlowCommit,
    pub trees: Vec<TreeId>,
}

/// A hot key, with the id of its tree.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub tree: TreeId,
    pub key: Vec<u8>,
    pub count: u64,
    /// What it took over from the key that it replaced.
    taken_over: u64,
}

impl Hot {
    /// Its conflicts, at least.
    pub(crate) fn count_min(&self) -> u64 {
        self.count - self.taken_over
    }
}

/// What is kept of the timings of commits.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    order: Recorder,
    queue: Recorder,
    write: Recorder,
    sync: Recorder,
    publish: Recorder,
    checkpoint: Recorder,
    slow: Mutex<VecDeque<Slow>>,
    hot: Mutex<Vec<Hot>>,
}

impl Timed {
    /// Notes that a commit has its place. The caller holds the order lock.
    pub(super) fn ordered(&self, started: Started) {
        self.order.add(started.placed_ns.saturating_sub(started.call_ns));
    }

    /// Notes that a group was published. The caller leads.
    pub(super) fn published(&self, group: &Forming, times: GroupTimes, now_ns: u64, wall: impl Fn() -> u64) {
        let GroupTimes { begun_ns, sync_began_ns, ended_ns, has_sync } = times;
        let written_ns = match sync_began_ns {
            Some(began_ns) => began_ns,
            None if has_sync => begun_ns,
            None => ended_ns,
        };
        if written_ns > begun_ns {
            self.write.add(written_ns - begun_ns);
        }
        if has_sync {
            self.sync.add(ended_ns.saturating_sub(written_ns));
        }
        self.publish.add(now_ns.saturating_sub(ended_ns));
        // Only the newest are kept.
        let kept_from = group.members().len().saturating_sub(SLOW_MAX);
        for (index, (member, record)) in group.members().iter().zip(group.records()).enumerate() {
            let Some(Started { call_ns, placed_ns }) = member.started else { continue };
            self.queue.add(begun_ns.saturating_sub(placed_ns));
            if index < kept_from || now_ns.saturating_sub(call_ns) <= SLOW_NS {
                continue;
            }
            let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
            let commit = SlowCommit {
                seq: member.seq,
                published_at_ns: wall(),
                order: between(call_ns, placed_ns),
                queue: between(placed_ns, begun_ns),
                write: between(begun_ns, written_ns),
                sync: between(written_ns, ended_ns),
                publish: between(ended_ns, now_ns),
                group_len: group.members().len(),
                trees: Vec::new(),
            };
            let trees = record_trees(record.bytes(), TREES_MAX);
            let mut slow = locked(self.slow.lock());
            if slow.len() == SLOW_MAX {
                slow.pop_front();
            }
            slow.push_back(Slow { commit, trees });
        }
    }

    /// Notes how long a checkpoint took.
    pub(crate) fn checkpointed(&self, ns: u64) {
        self.checkpoint.add(ns);
    }

    /// Counts a conflict over a key. Where no place is left, it takes that of the key with the fewest, and
    /// its count (the space-saving sketch): a key with many conflicts is never missing.
    pub(super) fn conflicted(&self, tree: TreeId, key: &[u8]) {
        let mut hot = locked(self.hot.lock());
        if let Some(known) = hot.iter_mut().find(|known| known.tree == tree && known.key == key) {
            known.count += 1;
            return;
        }
        let mut new = Hot { tree, key: key.to_vec(), count: 1, taken_over: 0 };
        if hot.len() < HOT_MAX {
            hot.push(new);
            return;
        }
        let coldest = hot.iter_mut().min_by_key(|known| known.count).expect("there are some");
        (new.count, new.taken_over) = (coldest.count + 1, coldest.count);
        *coldest = new;
    }

    /// The histograms.
    pub(crate) fn read(&self) -> Timings {
        Timings {
            order: self.order.read(),
            queue: self.queue.read(),
            write: self.write.read(),
            sync: self.sync.read(),
            publish: self.publish.read(),
            checkpoint: self.checkpoint.read(),
        }
    }

    /// The newest slow commits, the oldest of them first.
    pub(crate) fn slow(&self) -> Vec<Slow> {
        locked(self.slow.lock()).iter().cloned().collect()
    }

    /// Keys with conflicts, those with the most first.
    pub(crate) fn hot(&self) -> Vec<Hot> {
        let mut hot = locked(self.hot.lock()).clone();
        hot.sort_by(|a, b| (b.count, a.tree, &a.key).cmp(&(a.count, b.tree, &b.key)));
        hot
    }
}

#[cfg(test)]
mod tests {
    //! Keys with many conflicts are kept, whatever comes between.
    use super::*;

    #[test]
    fn a_hot_key_is_not_lost_among_many_cold_ones() {
        let timed = Timed::default();
        for round in 0..1_000_u32 {
            timed.conflicted(TreeId(1), b"hot");
            (0..3_u32).for_each(|other| timed.conflicted(TreeId(2), &(3 * round + other).to_be_bytes()));
        }
        let hot = timed.hot();
        assert_eq!(hot.len(), HOT_MAX);
        assert_eq!((hot[0].tree, &hot[0].key[..]), (TreeId(1), &b"hot"[..]));
        assert_eq!((hot[0].count, hot[0].count_min()), (1_000, 1_000));
        assert!(hot.iter().all(|known| known.count_min() >= 1));
        assert_eq!(hot.iter().map(|known| known.count).sum::<u64>(), 4_000);
    }
}
