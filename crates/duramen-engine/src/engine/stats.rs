//! Figures and posture: what command line, dashboards and metrics show.

use std::path::PathBuf;

use duramen_disk::SyncMethod;

use super::{Engine, Mode};
use crate::allocator::SpaceStats;
use crate::commit::CommitStats;
use crate::feed::FeedStats;
use crate::ids::{CommitSeq, DatabaseId};
use crate::options::{Durability, Geometry};
use crate::wal::{LogStats, Recovered};

/// Figures since the database was opened, and its size now.
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
    /// Bytes of nodes that were evicted and are in memory until readers that may have found them have left: a lookup's time.
    pub evicted_bytes: u64,
    /// Bytes of nodes that are not on disk yet.
    pub dirty_bytes: u64,
    /// Bytes of writes that wait to be committed or written to the log; small transactions count once they commit.
    pub buffered_bytes: u64,
    /// Pages read from disk.
    pub pages_read: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Microseconds that commits were held up because memory was filling.
    pub delayed_us: u64,
    /// Registered snapshots, transactions and cursors.
    pub snapshots: u64,
    /// The change feed.
    pub feed: FeedStats,
    /// What opening found.
    pub recovery: RecoveryStats,
}

/// What the database promises right now, and by what means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posture {
    /// Identity of the database.
    pub database: DatabaseId,
    /// Where it lies.
    pub path: PathBuf,
    /// Where its log lies.
    pub wal_dir: PathBuf,
    /// What commits wait for unless they say otherwise.
    pub durability: Durability,
    /// The call that a commit at level `Disk` waits for, by the name this system has for it; for readers, a writer's.
    pub sync_call: &'static str,
    /// Why that call: the options ask for it, or what was measured when the database was created.
    pub sync_reason: String,
    /// The file system, as far as the system says.
    pub file_system: String,
    /// Newest commit that survives a power cut.
    pub durable: CommitSeq,
    /// Newest commit that snapshots see.
    pub published: CommitSeq,
    /// The first failure, if nothing is acknowledged any more.
    pub poisoned: Option<String>,
    /// Opened read-only.
    pub read_only: bool,
    /// Sizes, fixed at creation.
    pub geometry: Geometry,
    /// Target for memory in bytes.
    pub memory_bytes: u64,
}

/// What opening found in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryStats {
    /// Records replayed.
    pub record_count: u64,
    /// Groups after the newest durable mark.
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

/// The name of the call that makes a commit durable on a system, as `std::env::consts::OS` names systems.
fn sync_call(system: &str, method: SyncMethod) -> &'static str {
    match (system, method) {
        ("linux", SyncMethod::Fdatasync) => "fdatasync",
        ("linux", SyncMethod::Dsync) => "pwritev2(RWF_DSYNC)",
        ("linux", SyncMethod::DirectDsync) => "pwritev2(RWF_DSYNC) on O_DIRECT",
        // Elsewhere no write is durable by itself: every method ends in the sync of a file.
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
        let (mut commit, log, checkpoints, delayed_us) = match &inner.mode {
            Mode::Write { committer, keeper } => (
                committer.stats(),
                committer.log().stats(),
                keeper.checkpoint_count(),
                committer.throttle.delayed_us(),
            ),
            Mode::Read { .. } => (CommitStats::default(), LogStats::default(), 0, 0),
        };
        // What opening found is durable, and seen, before it is in the trees.
        commit.durable = commit.durable.max(inner.draining.seq());
        commit.published = commit.published.max(inner.draining.seq());
        Stats {
            commit,
            log,
            space: inner.store.space.stats(),
            block_bytes: inner.store.geometry.block_bytes as u64,
            resident_bytes: meter.resident_bytes() as u64,
            evicted_bytes: meter.waiting_bytes() as u64,
            dirty_bytes: meter.dirty_bytes() as u64,
            buffered_bytes: meter.buffered_bytes() as u64,
            pages_read: meter.pages_read(),
            checkpoints,
            delayed_us,
            snapshots: inner.store.registry.held().len() as u64,
            feed: self.feed_stats(),
            recovery: inner.recovered,
        }
    }

    /// What the database promises right now.
    #[must_use]
    pub fn posture(&self) -> Posture {
        let inner = &self.inner;
        let stats = self.stats();
        let poisoned = match &inner.mode {
            Mode::Write { committer, .. } => committer.poison_cause().map(|cause| cause.message().to_owned()),
            Mode::Read { .. } => None,
        };
        let file_system =
            inner.disk.file_system(&inner.path).map_or_else(|_| "unknown".to_owned(), |f| f.name);
        Posture {
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
            memory_bytes: inner.options.memory_bytes as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    //! A posture that names a call the system does not have would be a promise without ground.
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
