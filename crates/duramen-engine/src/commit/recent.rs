//! The keys of the newest commits, so that validation need not read the tree.

use std::collections::VecDeque;
use std::sync::Arc;

use super::changes::WrittenKeys;
use super::reads::Reads;
use crate::alarm::invariant;
use crate::ids::CommitSeq;

/// The keys that recent commits wrote, bounded by bytes.
#[derive(Debug)]
pub(super) struct Recent {
    commits: VecDeque<(CommitSeq, Arc<WrittenKeys>)>,
    bytes: usize,
    /// Commits up to this one are forgotten.
    forgotten: CommitSeq,
}

/// The result of comparing a read set with the recent commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing that was read has changed.
    Unchanged,
    /// Something that was read has changed.
    Changed,
    /// The recent commits do not reach back far enough: the roots must be compared.
    TooOld,
}

impl Recent {
    /// Knows no commit up to `from`.
    pub(super) fn new(from: CommitSeq) -> Recent {
        Recent { commits: VecDeque::new(), bytes: 0, forgotten: from }
    }

    /// Adds a commit, and forgets the oldest while there are more than `bytes_max` bytes of keys.
    pub(super) fn push(&mut self, seq: CommitSeq, keys: WrittenKeys, bytes_max: usize) {
        let newest = self.newest();
        invariant!(seq == newest.next(), "commit {seq} follows {newest} among the recent ones");
        self.bytes += keys.bytes();
        self.commits.push_back((seq, Arc::new(keys)));
        while self.bytes > bytes_max {
            let Some((seq, keys)) = self.commits.pop_front() else { break };
            self.bytes -= keys.bytes();
            self.forgotten = seq;
        }
        self.check_gaps();
    }

    /// The newest commit, forgotten or not.
    fn newest(&self) -> CommitSeq {
        self.commits.back().map_or(self.forgotten, |(seq, _)| *seq)
    }

    /// Every commit after the forgotten ones is here: validation would take a missing one for harmless (I1).
    fn check_gaps(&self) {
        let (newest, forgotten, count) = (self.newest(), self.forgotten, self.commits.len());
        let is_whole = forgotten.0.checked_add(count as u64) == Some(newest.0);
        invariant!(is_whole, "{count} commits are kept after {forgotten}, up to {newest}");
        invariant!(count > 0 || self.bytes == 0, "no commit is kept, and {} bytes are counted", self.bytes);
    }

    /// Removes the commits after `seq`, which were dropped.
    pub(super) fn rewind(&mut self, seq: CommitSeq) {
        while self.commits.back().is_some_and(|(newest, _)| *newest > seq) {
            let (_, keys) = self.commits.pop_back().expect("there is a newest one");
            self.bytes -= keys.bytes();
        }
        self.forgotten = self.forgotten.min(seq);
        invariant!(self.newest() == seq, "the newest commit kept is {}, want {seq}", self.newest());
        self.check_gaps();
    }

    /// The commits after `since`, to be compared without the lock. `None` if some are forgotten.
    pub(super) fn after(&self, since: CommitSeq) -> Option<Vec<Arc<WrittenKeys>>> {
        if since < self.forgotten {
            return None;
        }
        let first = self.commits.partition_point(|(seq, _)| *seq <= since);
        Some(self.commits.range(first..).map(|(_, keys)| Arc::clone(keys)).collect())
    }

    /// Compares a read set with the commits after `since`.
    pub(super) fn check(&self, since: CommitSeq, reads: &Reads) -> Verdict {
        if since < self.forgotten {
            return Verdict::TooOld;
        }
        let first = self.commits.partition_point(|(seq, _)| *seq <= since);
        let changed = self.commits.range(first..).any(|(_, keys)| reads.touch(keys));
        if changed { Verdict::Changed } else { Verdict::Unchanged }
    }
}
