//! How far the log is durable, how much of it is not, and how much the next checkpoint will cover.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::CommitSeq;

/// What was written to the log, and what of it survives a power cut. Only the leader changes it; checkpoints
/// count `log_bytes` anew, and opening sets the first values.
#[derive(Debug)]
pub(super) struct Watermarks {
    durable: AtomicU64,
    marked: AtomicU64,
    unsynced_bytes: AtomicU64,
    log_bytes: AtomicU64,
    /// In a node of a cluster: what was decided since the last checkpoint began. Raft's log has large values
    /// in it, and the engine's only names them.
    decided_bytes: AtomicU64,
}

impl Watermarks {
    /// Beginning with a root that is durable.
    #[must_use]
    pub(super) fn new(durable: CommitSeq) -> Watermarks {
        Watermarks {
            durable: AtomicU64::new(durable.0),
            marked: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            decided_bytes: AtomicU64::new(0),
        }
    }

    /// Newest commit that survives a power cut.
    pub(super) fn durable(&self) -> CommitSeq {
        CommitSeq(self.durable.load(Ordering::SeqCst))
    }

    /// Notes that a commit survives a power cut.
    pub(super) fn set_durable(&self, seq: CommitSeq) {
        self.durable.fetch_max(seq.0, Ordering::SeqCst);
    }

    /// Newest commit that a durable watermark in the log covers.
    pub(super) fn marked(&self) -> CommitSeq {
        CommitSeq(self.marked.load(Ordering::Relaxed))
    }

    /// Notes that a watermark in the log covers a commit.
    pub(super) fn set_marked(&self, seq: CommitSeq) {
        self.marked.store(seq.0, Ordering::Relaxed);
    }

    /// Bytes of the log that were written and not synced.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes.load(Ordering::Relaxed)
    }

    /// Notes bytes written to the log, for the leader.
    pub(super) fn written(&self, bytes: u64, is_synced: bool) {
        self.add_log_bytes(bytes);
        let unsynced_bytes = if is_synced { 0 } else { self.unsynced_bytes() + bytes };
        self.unsynced_bytes.store(unsynced_bytes, Ordering::Relaxed);
    }

    /// Notes that all that was written is synced.
    pub(super) fn all_synced(&self) {
        self.unsynced_bytes.store(0, Ordering::Relaxed);
    }

    /// Notes decided entries of so many bytes.
    pub(super) fn decided(&self, bytes: u64) {
        self.decided_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes written to the log since the last checkpoint began: in a node, to the one of both that has more.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed).max(self.decided_bytes.load(Ordering::Relaxed))
    }

    /// Starts counting for the next checkpoint. Returns what was counted for the one that begins now.
    pub(super) fn restart_log_bytes(&self) -> u64 {
        self.log_bytes.swap(0, Ordering::Relaxed).max(self.decided_bytes.swap(0, Ordering::Relaxed))
    }

    /// Adds bytes of the log that the newest checkpoint does not cover.
    pub(super) fn add_log_bytes(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
