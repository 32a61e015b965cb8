//! The in-memory state of an open log: its end, its used, ready and unfinished segments, its unsynced writes.
//!
//! Every method runs under the log's lock for a moment. None does I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use super::segment::Segment;
use super::{LogPosition, LogStats, SegmentSlot};
use crate::error::Error;
use crate::ids::Epoch;
use crate::options::Geometry;

/// Segments to keep ready: the next one, and one reserved for a full disk.
const SPARES_WANTED: usize = 2;

/// Segments of the least size: the current one, the next and the reserve. Later ones double.
const SEGMENTS_OF_LEAST_SIZE: u64 = 3;

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
        if self.unfinished.front() == Some(&segment.slot) {
            self.unfinished.pop_front();
        }
        self.slot_last = self.slot_last.max(segment.slot);
        self.refused = false;
        self.ready.push_back(segment);
    }

    /// Makes the outcome of a write the new end. `fresh` are segments from the front of the ready ones.
    pub(super) fn advance(&mut self, head: Head, fresh: &[UsedSegment]) {
        for taken in fresh {
            let first = self.ready.pop_front();
            assert!(
                first.is_some_and(|segment| segment.slot == taken.segment.slot),
                "only the one writer takes ready segments, and in their order"
            );
            self.used.push(taken.clone());
        }
        self.head = head;
    }

    pub(super) fn add_unsynced(&mut self, segment: &Arc<Segment>) {
        let write_number = self.stats.write_count;
        match self.unsynced.iter_mut().find(|unsynced| unsynced.segment.slot == segment.slot) {
            Some(unsynced) => unsynced.write_number = write_number,
            None => self.unsynced.push(Unsynced { segment: Arc::clone(segment), write_number }),
        }
    }

    /// Notes that every write up to this number is durable.
    pub(super) fn set_synced(&mut self, write_number: u64) {
        self.unsynced.retain(|unsynced| unsynced.write_number > write_number);
    }

    /// Moves the segments used before `keep_from` to the ready ones.
    pub(super) fn recycle(&mut self, keep_from: Epoch) {
        let current = self.head.epoch;
        let (free, used) = std::mem::take(&mut self.used)
            .into_iter()
            .partition(|used: &UsedSegment| used.epoch < keep_from && used.epoch < current);
        self.used = used;
        self.refused &= free.is_empty();
        self.ready.extend(free.into_iter().map(|used: UsedSegment| used.segment));
    }

    /// Removes the ready segments beyond those wanted, the largest first.
    pub(super) fn take_spares_beyond_wanted(&mut self) -> Vec<Arc<Segment>> {
        let mut taken = Vec::new();
        while self.ready.len() > SPARES_WANTED {
            let largest = (0..self.ready.len()).max_by_key(|index| self.ready[*index].bytes);
            taken.extend(largest.and_then(|index| self.ready.remove(index)));
        }
        taken
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
