//! The in-memory state of an open log: its end, its used, ready and unfinished segments, its unsynced writes.
//!
//! Every method runs under the log's lock for a moment. None does I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use super::segment::{EPOCH_NONE, Segment};
use super::{LogPosition, LogStats, SegmentSlot};
use crate::alarm::invariant;
use crate::error::Error;
use crate::ids::{CommitSeq, Epoch};
use crate::options::Geometry;

/// Segments to keep ready: the next one, and one reserved for a full disk.
pub(super) const SPARES_WANTED: usize = 2;

/// Segments of the least size: the current one, the next and the reserve. Later ones double.
const SEGMENTS_OF_LEAST_SIZE: u64 = 3;

const _: () = assert!(
    SEGMENTS_OF_LEAST_SIZE == 1 + SPARES_WANTED as u64,
    "the current segment and those kept ready are of the least size"
);
const _: () = assert!(SPARES_WANTED >= 2, "beside the reserve there is a segment for every write");

/// The end of the log, and the values that the next frame is built from.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) segment: Arc<Segment>,
    pub(super) epoch: Epoch,
    pub(super) incarnation: u128,
    /// Offset of the next frame.
    pub(super) offset: u64,
    /// The position after the last frame.
    pub(super) last: LogPosition,
    pub(super) commit_time_ns: u64,
}

/// A segment that replay may need, under the epoch of its use.
#[derive(Debug, Clone)]
pub(super) struct UsedSegment {
    pub(super) epoch: Epoch,
    pub(super) segment: Arc<Segment>,
}

/// A segment with writes that no sync has covered, and the number of its newest write.
#[derive(Debug, Clone)]
pub(super) struct Unsynced {
    pub(super) segment: Arc<Segment>,
    pub(super) write_number: u64,
}

/// The segment to prepare next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpareOrder {
    pub(super) slot: SegmentSlot,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) head: Head,
    /// In order of epoch, the current segment last.
    pub(super) used: Vec<UsedSegment>,
    /// Zeroed or recycled, in the order of their use.
    pub(super) ready: VecDeque<Arc<Segment>>,
    /// Files whose creation was cut short. They are zeroed again before a new file is created.
    pub(super) unfinished: VecDeque<SegmentSlot>,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) slot_last: SegmentSlot,
    /// Everything up to this commit is durable.
    pub(super) synced_seq: CommitSeq,
    /// The segments of older uses than this were released for reuse.
    pub(super) kept_from: Epoch,
    /// The disk had no room for a segment at the last attempt to prepare one.
    pub(super) refused: bool,
    /// The failure after which the log refuses all writes (D6).
    pub(super) failure: Option<String>,
    pub(super) stats: LogStats,
}

impl State {
    pub(super) fn new(head: Head) -> State {
        State {
            used: vec![UsedSegment { epoch: head.epoch, segment: Arc::clone(&head.segment) }],
            ready: VecDeque::new(),
            unfinished: VecDeque::new(),
            unsynced: Vec::new(),
            slot_last: head.segment.slot,
            synced_seq: head.last.seq,
            kept_from: EPOCH_NONE,
            refused: false,
            failure: None,
            stats: LogStats::default(),
            head,
        }
    }

    /// Fails if the log refuses all writes.
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.failure {
            Some(cause) => Err(Error::poisoned(cause)),
            None => Ok(()),
        }
    }

    /// Keeps the first failure.
    pub(super) fn fail(&mut self, cause: &Error) {
        if self.failure.is_none() {
            self.failure = Some(cause.message().to_owned());
        }
    }

    pub(super) fn needs_spare(&self) -> bool {
        self.ready.len() < SPARES_WANTED
    }

    /// The ready segments that a write may take. While the disk has room that includes the reserve, since
    /// another segment will be prepared. Once the disk was full, the reserve needs `use_reserve`.
    pub(super) fn usable(&self, use_reserve: bool) -> Vec<Arc<Segment>> {
        let held_back = usize::from(self.refused && !use_reserve);
        let count = self.ready.len().saturating_sub(held_back);
        self.ready.iter().take(count).cloned().collect()
    }

    /// The file to prepare next: an unfinished one before a new one, so that the slot numbers have no gap.
    pub(super) fn next_spare(&self, geometry: &Geometry) -> SpareOrder {
        let slot = self.unfinished.front().copied().unwrap_or(SegmentSlot(self.slot_last.0 + 1));
        spare_order(slot, geometry)
    }

    /// Notes that an order of [`State::next_spare`] was carried out.
    pub(super) fn add_spare(&mut self, segment: Arc<Segment>) {
        let is_begun = self.unfinished.front() == Some(&segment.slot);
        invariant!(
            is_begun || segment.slot.0 == self.slot_last.0 + 1,
            "segment {} follows segment {}, so that the slots have no gap",
            segment.slot.0,
            self.slot_last.0
        );
        if is_begun {
            self.unfinished.pop_front();
        }
        self.slot_last = self.slot_last.max(segment.slot);
        self.refused = false;
        self.ready.push_back(segment);
        debug_assert!(self.slots_are_distinct(), "every segment has one use");
    }

    /// Makes the outcome of a write the new end. `fresh` are segments from the front of the ready ones.
    pub(super) fn advance(&mut self, head: Head, fresh: &[UsedSegment]) {
        self.check_growth(&head);
        for taken in fresh {
            let first = self.ready.pop_front();
            invariant!(
                first.is_some_and(|segment| segment.slot == taken.segment.slot),
                "only the one writer takes ready segments, and in their order"
            );
            let newest = self.used.last().map_or(EPOCH_NONE, |used| used.epoch);
            invariant!(newest < taken.epoch, "a segment begins epoch {} after {newest}", taken.epoch);
            invariant!(!self.is_used(taken.segment.slot), "segment {} has one use", taken.segment.slot.0);
            self.used.push(taken.clone());
        }
        invariant!(
            self.used.last().is_some_and(|used| used.epoch == head.epoch),
            "the current segment, of epoch {}, is the last of those used",
            head.epoch
        );
        self.head = head;
    }

    /// Checks that the log ends further on than before, and inside its segment.
    fn check_growth(&self, head: &Head) {
        let (before, after) = (&self.head.last, &head.last);
        invariant!(
            (before.epoch, before.offset) < (after.epoch, after.offset) && before.seq <= after.seq,
            "the log grows: commit {} at {}/{:#x} follows {} at {}/{:#x}",
            after.seq,
            after.epoch,
            after.offset,
            before.seq,
            before.epoch,
            before.offset
        );
        invariant!(
            after.offset < head.offset && head.offset <= head.segment.bytes,
            "the log ends after {:#x}, in its segment of {} bytes, at {:#x}",
            after.offset,
            head.segment.bytes,
            head.offset
        );
        invariant!(
            self.head.commit_time_ns <= head.commit_time_ns,
            "commit time {} is not before {}",
            head.commit_time_ns,
            self.head.commit_time_ns
        );
    }

    /// Whether replay may need this segment.
    pub(super) fn is_used(&self, slot: SegmentSlot) -> bool {
        self.used.iter().any(|used| used.segment.slot == slot)
    }

    /// Whether no segment is in two of the lists, or twice in one.
    pub(super) fn slots_are_distinct(&self) -> bool {
        let used = self.used.iter().map(|used| used.segment.slot);
        let ready = self.ready.iter().map(|segment| segment.slot);
        let mut slots: Vec<_> = used.chain(ready).chain(self.unfinished.iter().copied()).collect();
        slots.sort_unstable();
        slots.is_sorted_by(|a, b| a < b)
    }

    pub(super) fn add_unsynced(&mut self, segment: &Arc<Segment>) {
        let write_number = self.stats.write_count;
        match self.unsynced.iter_mut().find(|unsynced| unsynced.segment.slot == segment.slot) {
            Some(unsynced) => unsynced.write_number = write_number,
            None => self.unsynced.push(Unsynced { segment: Arc::clone(segment), write_number }),
        }
    }

    /// Notes that every write up to this number is durable, and with them the commits up to this one.
    pub(super) fn set_synced(&mut self, write_number: u64, through: CommitSeq) {
        self.set_durable(through);
        self.unsynced.retain(|unsynced| unsynced.write_number > write_number);
    }

    /// Notes that the commits up to this one are durable.
    pub(super) fn set_durable(&mut self, through: CommitSeq) {
        invariant!(
            self.synced_seq <= through && through <= self.head.last.seq,
            "commit {through} is synced, after {} and up to {}",
            self.synced_seq,
            self.head.last.seq
        );
        self.synced_seq = through;
    }

    /// Moves the segments used before `keep_from` to the ready ones.
    pub(super) fn recycle(&mut self, keep_from: Epoch) {
        let current = self.head.epoch;
        invariant!(
            self.kept_from <= keep_from && keep_from <= current,
            "the log is kept from epoch {keep_from}, after {} and up to {current}",
            self.kept_from
        );
        self.kept_from = keep_from;
        let (free, used): (Vec<UsedSegment>, Vec<UsedSegment>) = std::mem::take(&mut self.used)
            .into_iter()
            .partition(|used| used.epoch < keep_from && used.epoch < current);
        self.used = used;
        // D3: a later sync of a write from before would be one of another use.
        for free in &free {
            let slot = free.segment.slot;
            let is_synced = self.unsynced.iter().all(|unsynced| unsynced.segment.slot != slot);
            invariant!(is_synced, "segment {} of epoch {} is synced before its reuse", slot.0, free.epoch);
        }
        self.refused &= free.is_empty();
        self.ready.extend(free.into_iter().map(|used| used.segment));
        debug_assert!(self.slots_are_distinct(), "every segment has one use");
    }

    /// Makes the smallest ready segment the next one. Returns whether it is smaller than the current one; a
    /// reserve held back for a full disk stays where it is.
    pub(super) fn next_is_smallest(&mut self) -> bool {
        let count = self.usable(false).len();
        let smallest = (0..count).min_by_key(|index| self.ready[*index].bytes);
        let Some(smallest) = smallest.filter(|index| self.ready[*index].bytes < self.head.segment.bytes)
        else {
            return false;
        };
        self.ready.swap(0, smallest);
        true
    }

    /// Removes the ready segments beyond so many, the largest first.
    pub(super) fn take_spares_beyond(&mut self, kept: usize) -> Vec<Arc<Segment>> {
        let mut taken = Vec::new();
        while self.ready.len() > kept {
            let largest = (0..self.ready.len()).max_by_key(|index| self.ready[*index].bytes);
            taken.extend(largest.and_then(|index| self.ready.remove(index)));
        }
        taken
    }

    /// Bytes of the segments in use, from the one of this epoch on.
    pub(super) fn bytes_from(&self, epoch: Epoch) -> u64 {
        let later = self.used.iter().filter(|used| used.epoch >= epoch);
        later.map(|used| used.segment.bytes).sum()
    }

    pub(super) fn stats(&self) -> LogStats {
        let used = self.used.iter().map(|used| used.segment.bytes);
        let ready = self.ready.iter().map(|segment| segment.bytes);
        LogStats {
            segment_count: (self.used.len() + self.ready.len() + self.unfinished.len()) as u64,
            segment_bytes: used.chain(ready).sum(),
            spare_count: self.ready.len() as u64,
            used_count: self.used.len() as u64,
            ..self.stats
        }
    }
}

/// The size of a slot's segment.
pub(super) fn spare_order(slot: SegmentSlot, geometry: &Geometry) -> SpareOrder {
    let doublings = slot.0.saturating_sub(SEGMENTS_OF_LEAST_SIZE).min(62);
    let bytes = geometry.segment_bytes_min.saturating_mul(1u64 << doublings).min(geometry.segment_bytes_max);
    SpareOrder { slot, bytes }
}
