//! What a closed log keeps: its current segment, the next one and the reserve, as small as the log has them.

use std::sync::Arc;

use super::log::Log;
use super::segment::Segment;
use super::state::SPARES_WANTED;
use super::{Group, LogPosition, LogWriteError, SyncFailure, Written};
use crate::alarm::locked;
use crate::ids::CommitSeq;

impl Log {
    /// Goes on in the smallest ready segment if the current one is larger, with a mark frame as its first.
    /// `None` without one. The frame is durable, because a superblock will name it (D1).
    ///
    /// A checkpoint at the new end then lets the larger segment go. The writer alone may call this.
    ///
    /// # Errors
    /// [`LogWriteError`]. After `Full` and `Refused` the log ends where it ended before.
    pub fn begin_smallest_segment(
        &self,
        durable: CommitSeq,
    ) -> std::result::Result<Option<Written>, LogWriteError> {
        let mut head = {
            let mut state = self.state();
            if !state.next_is_smallest() {
                return Ok(None);
            }
            state.head.clone()
        };
        // Without room in the current segment, the frame begins the next one.
        head.offset = head.segment.bytes;
        let mark = Group { records: &[], durable, use_reserve: false };
        let (written, _) = self.write_after(head, &mark, self.disk.wall_ns(), false)?;
        self.sync_after(written).map(Some)
    }

    /// Empties the ready segments that a log at rest does not need: all but the two smallest.
    ///
    /// It keeps the next one and the reserve. The files keep their names, so that the slots have no gap, and
    /// are made anew on demand.
    ///
    /// The headers of those kept are rewritten as unused. With the header of an earlier use, the next opening
    /// would keep the segment for the older superblock. A full disk has no room for another one (D7).
    ///
    /// # Errors
    /// [`SyncFailure`], as for [`Log::sync`].
    pub fn trim(&self) -> std::result::Result<(), SyncFailure> {
        let mut making = locked(self.preparing.lock());
        if let Some(unfinished) = making.take() {
            self.factory().give_up(&unfinished);
        }
        let taken = self.state().take_spares_beyond(SPARES_WANTED);
        let durable = self.empty(&taken)?.seq;
        let kept: Vec<Arc<Segment>> = self.state().ready.iter().cloned().collect();
        kept.iter().for_each(|spare| self.witness_in(spare, durable));
        self.sync().map(drop)
    }

    /// Empties one of the ready segments, if there are more than so many and none is being made. The writer
    /// alone may call this.
    ///
    /// # Errors
    /// [`SyncFailure`], as for [`Log::sync`].
    pub fn give_back_one(&self, kept: usize) -> std::result::Result<(), SyncFailure> {
        let kept = kept.max(SPARES_WANTED);
        // Before the lock, which is held while a slice of a segment is made.
        if self.state().ready.len() <= kept {
            return Ok(());
        }
        let making = locked(self.preparing.lock());
        let taken = {
            let mut state = self.state();
            let one_less = state.ready.len().saturating_sub(1);
            if making.is_some() { Vec::new() } else { state.take_spares_beyond(kept.max(one_less)) }
        };
        if taken.is_empty() { Ok(()) } else { self.empty(&taken).map(drop) }
    }

    /// Empties segments that are ready no more. Their slots are used first when segments are made.
    fn empty(&self, taken: &[Arc<Segment>]) -> std::result::Result<LogPosition, SyncFailure> {
        // Writes to a file are synced before it is emptied. Otherwise the header of its last use could land
        // later, in a file of another length, and opening would report corruption (D1).
        taken.iter().for_each(|segment| self.state().add_unsynced(segment));
        self.sync()?;
        for segment in taken {
            // A segment that could not be emptied is made anew all the same.
            drop(segment.file.set_len(0));
            let mut state = self.state();
            state.unfinished.push_back(segment.slot);
            state.add_unsynced(segment);
        }
        self.sync()
    }
}
