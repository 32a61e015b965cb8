//! Transactions that share one write.

use std::sync::Arc;

use super::timings::Started;
use super::wait::Waiter;
use crate::alarm::invariant;
use crate::catalog::Root;
use crate::data_file::PagePointer;
use crate::ids::CommitSeq;
use crate::page_cache::Buffered;
use crate::tree::{Node, StoredPatch};
use crate::wal::Record;

/// Transactions that will share one write.
#[derive(Debug, Default)]
pub(super) struct Forming {
    records: Vec<Record>,
    members: Vec<CommitEffects>,
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) wants_sync: bool,
    /// Whether a member puts or moves something. A group that only deletes may use the segment reserved for a
    /// full disk.
    pub(super) takes_room: bool,
}

/// What a transaction leaves to the group until it is published.
#[derive(Debug)]
pub(super) struct CommitEffects {
    /// Its sequence.
    pub seq: CommitSeq,
    /// Nodes that only older roots reference.
    pub replaced: Vec<Arc<Node>>,
    /// Patches that only older roots have.
    pub superseded: Vec<Arc<StoredPatch>>,
    /// References to big values that only older roots hold.
    pub dropped_values: Vec<Vec<u8>>,
    /// Pages of the big values that it wrote.
    pub values: Vec<PagePointer>,
    /// The memory charged for its record until the group is written.
    pub _buffered: Buffered,
    /// When its call began; `None` if it only moves nodes.
    pub started: Option<Started>,
    /// Its call has returned for good, at level `Memory`. If the group is dropped, no caller is left to
    /// receive the error.
    pub has_returned: bool,
    /// Whether it puts or moves something.
    pub takes_room: bool,
    /// In a node of a cluster: the root with this commit and those before it. A majority may decide on a part
    /// of a group.
    pub root: Option<Arc<Root>>,
}

impl CommitEffects {
    /// The latest root does not use what it replaces.
    pub(super) fn supersede(&self) {
        self.replaced.iter().for_each(|node| node.supersede(true));
        self.superseded.iter().for_each(|patch| patch.supersede(true));
    }

    /// It was dropped: the latest root uses what it replaced again.
    pub(super) fn reinstate(&self) {
        self.replaced.iter().for_each(|node| node.supersede(false));
        self.superseded.iter().for_each(|patch| patch.supersede(false));
    }
}

impl Forming {
    /// Adds a transaction that was ordered and applied.
    pub(super) fn join(&mut self, mut record: Record, effects: CommitEffects) {
        if let Some(Record { seq: last, .. }) = self.records.last() {
            invariant!(effects.seq == last.next(), "commit {} follows {last} in its group", effects.seq);
        }
        record.seq = effects.seq;
        self.records.push(record);
        self.members.push(effects);
    }

    /// Notes that the call of a member, by index, returns for good before the group is written.
    pub(super) fn returns(&mut self, index: usize) {
        let member = &mut self.members[index];
        invariant!(!member.has_returned, "the call of commit {} returns once", member.seq);
        member.has_returned = true;
    }

    pub(super) fn returned_count(&self) -> u64 {
        self.members.iter().filter(|member| member.has_returned).count() as u64
    }

    /// Whether commits joined, none of which has a waiter or wants a sync.
    pub(super) fn is_unwaited(&self) -> bool {
        self.waiters.is_empty() && !self.is_empty() && !self.wants_sync
    }

    /// Each record has its member, and each waiter is one of these: a group without records has neither.
    pub(super) fn check_members(&self) {
        let (records, members, waiters) = (self.records.len(), self.members.len(), self.waiters.len());
        invariant!(records == members, "a group of {records} records has as many members, not {members}");
        invariant!(waiters <= members, "a group of {members} members has {waiters} waiters at most");
    }

    /// The records of its transactions, in their order.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// What its transactions leave, in their order.
    pub(super) fn members(&self) -> &[CommitEffects] {
        &self.members
    }

    /// Takes it apart.
    pub(super) fn into_parts(self) -> (Vec<Record>, Vec<CommitEffects>) {
        (self.records, self.members)
    }

    /// Whether no transaction joined.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}
