//! Room for entries that are about to be appended.
//!
//! A log that cannot write an append is at its end: consensus cannot take an entry back. So room is looked
//! for before consensus hears of entries. On a full disk what deletes may use a segment that is kept for it,
//! but not its last blocks: consensus appends entries of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Inner, RaftLog};
use crate::error::Result;
use crate::ids::CommitSeq;

/// What an entry takes beside its bytes, at most.
pub(super) const ENTRY_BYTES: usize = 128;

/// Blocks that are left to entries of consensus itself, each of which takes one, if segments are long.
const BLOCKS_OF_CONSENSUS: usize = 16;

/// What entries are for. It decides how much of the room that a full disk has left they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntriesFor {
    /// Puts: not the segment that is kept for the others.
    Puts,
    /// Deletes: not the last blocks.
    Deletes,
    /// Consensus: all of it.
    Consensus,
}

/// Room in Raft's log, for entries that are appended before this is dropped.
#[derive(Debug)]
pub struct Room {
    inner: Arc<Inner>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.inner.promised.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl RaftLog {
    /// Holds room for so many entries, of so many bytes in all, until it is dropped. It makes segments if
    /// need be; [`RaftLog::has_room`] does not.
    ///
    /// # Errors
    /// `DiskFull` (E0301): nothing is held. `System` (E1001) if a segment cannot be made.
    pub fn hold_room(&self, entries: usize, bytes: usize, wanted: EntriesFor) -> Result<Room> {
        let (room, bytes) = self.promise(entries, bytes, wanted);
        let made = self.inner.writer.log.make_room_for(bytes, wanted != EntriesFor::Puts);
        made.map_err(|error| error.error().clone()).map(|()| room)
    }

    /// The same for a cut behind an entry, and the entries that follow. A cut begins a segment with a copy of
    /// what no watermark covers, and may take the last one. This reads what the cut would copy.
    ///
    /// # Errors
    /// As [`RaftLog::hold_room`]; as [`RaftLog::entries`].
    pub fn hold_room_to_cut(&self, kept: CommitSeq, entries: usize, bytes: usize) -> Result<Room> {
        let marked = self.inner.writer.lock().marked();
        let copied =
            if kept > marked { self.entries(marked.next()..kept.next(), usize::MAX)? } else { Vec::new() };
        // At worst each has a frame of its own, behind one with a watermark.
        let block = self.inner.writer.geometry.block_bytes;
        let copied: usize =
            copied.iter().map(|entry| entry.bytes.len() + ENTRY_BYTES + block).sum::<usize>() + block;
        let (room, bytes) = self.promise(entries, bytes + copied, EntriesFor::Consensus);
        let made = self.inner.writer.log.make_room_behind_a_cut(bytes);
        made.map_err(|error| error.error().clone()).map(|()| room)
    }

    /// As [`RaftLog::hold_room`], if there is room already.
    #[must_use]
    pub fn has_room(&self, entries: usize, bytes: usize, wanted: EntriesFor) -> Option<Room> {
        let (room, bytes) = self.promise(entries, bytes, wanted);
        self.inner.writer.log.has_room_for(bytes, wanted != EntriesFor::Puts).then_some(room)
    }

    /// Whether the disk has no room for a segment that is wanted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inner.writer.log.is_full()
    }

    fn promise(&self, entries: usize, bytes: usize, wanted: EntriesFor) -> (Room, usize) {
        let geometry = &self.inner.writer.geometry;
        let block = geometry.block_bytes;
        let bytes = bytes + entries * ENTRY_BYTES + block;
        let promised = self.inner.promised.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let room = Room { inner: Arc::clone(&self.inner), bytes };
        let in_a_segment = usize::try_from(geometry.segment_bytes_min).unwrap_or(usize::MAX) / block;
        let left = BLOCKS_OF_CONSENSUS.min(in_a_segment / 4) * block;
        (room, promised + if wanted == EntriesFor::Consensus { 0 } else { left })
    }
}
