//! Statistics and durability status, for the command line, dashboards and metrics.

use std::path::PathBuf;

use duramen_disk::SyncMethod;

use super::{Engine, Mode};
use crate::allocator::SpaceStats;
use crate::commit::CommitStats;
use crate::feed::FeedStats;
use crate::ids::{CommitSeq, DatabaseId};
use crate::options::{Durability, Geometry};
use crate::wal::{LogStats, Recovered};

/// Counters since the database was opened, and its size now.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// Commits, conflicts, groups.
    pub commit: CommitStats,
    /// The log.
    pub log: LogStats,
    /// The data file, in blocks.
    pub space: SpaceStats,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of nodes in memory.
    pub resident_bytes: u64,
    /// Bytes of evicted nodes that stay in memory until readers that may have found them have finished: the
    /// time of one lookup.
    pub evicted_bytes: u64,
    /// Bytes of nodes that are not on disk yet, with the patches that their pages will have.
    pub dirty_bytes: u64,
    /// Bytes of the patches in memory: what has changed in leaves since their pages were written.
    pub patch_bytes: u64,
    /// Leaves into which patches were merged, to make room for others.
    pub leaves_merged: u64,
    /// Bytes of writes not committed yet, or not in the log yet. Small transactions count once they commit.
    pub buffered_bytes: u64,
    /// Pages read from disk.
    pub pages_read: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Microseconds that commits were delayed because memory was filling.
    pub delayed_us: u64,
    /// Registered snapshots, transactions and cursors.
    pub snapshots: u64,
    /// The change feed.
    pub feed: FeedStats,
    /// What opening found.
    pub recovery: RecoveryStats,
}

/// The durability status: what the database promises now, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityStatus {
    /// Identity of the database.
    pub database: DatabaseId,
    /// Its directory.
    pub path: PathBuf,
    /// The directory of its log.
    pub wal_dir: PathBuf,
    /// The default level of commits.
    pub durability: Durability,
    /// The call that a commit at level `Disk` waits for, by its name on this system. In a read-only database,
    /// the call that a writer would use.
    pub sync_call: &'static str,
    /// The reason for that call: an option, or what was measured when the database was created.
    pub sync_reason: String,
    /// The file system, if the system reports it.
    pub file_system: String,
    /// Newest commit that survives a power cut.
    pub durable: CommitSeq,
    /// Newest commit that snapshots see.
    pub published: CommitSeq,
    /// The first failure, if the engine is poisoned.
    pub poisoned: Option<String>,
    /// Opened read-only.
    pub read_only: bool,
    /// Sizes, fixed at creation.
    pub geometry: Geometry,
    /// Memory target in bytes.
    pub memory_bytes: u64,
}

/// What opening found in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryStats {
    /// Records replayed.
    pub record_count: u64,
    /// Groups after the newest durable watermark.
    pub unmarked_group_count: u64,
    /// The last run ended in the middle of a write.
    pub torn: bool,
}

impl RecoveryStats {
    pub(super) fn new(log: &Recovered) -> RecoveryStats {
        let (record_count, unmarked_group_count) = (log.record_count, log.unmarked_group_count);
        RecoveryStats { record_count, unmarked_group_count, torn: log.torn }
    }
}

/// The system's name for the call that makes a commit durable. Systems are named as in
/// `std::env::consts::OS`.
fn sync_call(system: &str, method: SyncMethod) -> &'static str {
    match (system, method) {
        ("linux", SyncMethod::Fdatasync) => "fdatasync",
        ("linux", SyncMethod::Dsync) => "pwritev2(RWF_DSYNC)",
        ("linux", SyncMethod::DirectDsync) => "pwritev2(RWF_DSYNC) on O_DIRECT",
        // On other systems no write is durable by itself: every method ends in a file sync.
        ("macos" | "ios", _) => "fcntl(F_FULLFSYNC)",
        ("windows", _) => "FlushFileBuffers",
        _ => "the system's sync of a file",
    }
}

impl Engine {
    /// Figures since the database was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = &self.inner;
        let meter = inner.store.pages.meter();
        let (mut commit, log, (checkpoints, leaves_merged), delayed_us) = match &inner.mode {
            Mode::Write { committer, maintenance } => (
                committer.stats(),
                committer.log().stats(),
                (maintenance.checkpoint_count(), maintenance.merged_count()),
                committer.throttle.delayed_us(),
            ),
            Mode::Read { .. } => (CommitStats::default(), LogStats::default(), (0, 0), 0),
        };
        // What opening found is durable and visible before it is in the trees.
        commit.durable = commit.durable.max(inner.deferred_redo.seq());
        commit.published = commit.published.max(inner.deferred_redo.seq());
        Stats {
            commit,
            log,
            space: inner.store.space.stats(),
            block_bytes: inner.store.geometry.block_bytes as u64,
            resident_bytes: meter.resident_bytes() as u64,
            evicted_bytes: meter.waiting_bytes() as u64,
            dirty_bytes: meter.all_dirty_bytes() as u64,
            patch_bytes: meter.patch_bytes() as u64,
            leaves_merged,
            buffered_bytes: meter.buffered_bytes() as u64,
            pages_read: meter.pages_read(),
            checkpoints,
            delayed_us,
            snapshots: inner.store.registry.held().len() as u64,
            feed: self.feed_stats(),
            recovery: inner.recovered,
        }
    }

    /// The durability status now.
    #[must_use]
    pub fn durability_status(&self) -> DurabilityStatus {
        let inner = &self.inner;
        let stats = self.stats();
        let poisoned = match &inner.mode {
            Mode::Write { committer, .. } => committer.poison_cause().map(|cause| cause.message().to_owned()),
            Mode::Read { .. } => None,
        };
        let file_system =
            inner.disk.file_system(&inner.path).map_or_else(|_| "unknown".to_owned(), |f| f.name);
        DurabilityStatus {
            database: inner.store.pages.data().database(),
            path: inner.path.clone(),
            wal_dir: inner.wal_dir.clone(),
            durability: inner.options.durability,
            sync_call: sync_call(std::env::consts::OS, inner.sync.0),
            sync_reason: inner.sync.1.clone(),
            file_system,
            durable: stats.commit.durable,
            published: stats.commit.published,
            poisoned,
            read_only: inner.options.read_only,
            geometry: inner.store.geometry,
            memory_bytes: inner.store.pages.meter().memory_bytes() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    //! The status must name a call that the system has; otherwise it promises something unfounded.
    use super::*;

    #[test]
    fn the_sync_is_called_by_the_systems_own_name() {
        let check = |system, method, name| assert_eq!(sync_call(system, method), name);
        check("linux", SyncMethod::Fdatasync, "fdatasync");
        check("linux", SyncMethod::Dsync, "pwritev2(RWF_DSYNC)");
        for method in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
            check("macos", method, "fcntl(F_FULLFSYNC)");
            check("windows", method, "FlushFileBuffers");
            assert!(!sync_call("freebsd", method).contains("fdatasync"));
        }
    }
}
