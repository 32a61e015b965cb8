//! What reaches the disk: one thread writes, in the order of the queue.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use duramen_disk::Disk;

use super::entry::LogEnd;
use super::queue::Work;
use super::start::{Start, Vote};
use super::twin::Twin;
use super::view::View;
use crate::alarm::locked;
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::limits::MARK_IDLE_MS;
use crate::options::Geometry;
use crate::wal::{
    Enough, Group, Log, LogIdentity, LogPlace, LogPosition, LogWriteError, Record, ReplayedRecord, Stretch,
};

/// Segments that stay ready: those that one checkpoint lets go are soon used again.
const READY_SEGMENTS_MAX: usize = 16;

/// The files of Raft's log.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) identity: LogIdentity,
    pub(super) geometry: Geometry,
    pub(super) log: Log,
    pub(super) writing: Mutex<Writing>,
    /// Held to read segments; held alone while segments are cut or used again.
    pub(super) layout: RwLock<()>,
}

/// What only the thread that writes uses.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) start: (Twin, Start),
    pub(super) vote: Twin,
    /// The newest watermark that was written.
    pub(super) marked: CommitSeq,
    pub(super) written_at_ns: u64,
    /// Bytes written since a place was noted.
    pub(super) bytes_since_place: u64,
}

/// The right to write.
pub(super) struct Held<'a> {
    writer: &'a Writer,
    writing: MutexGuard<'a, Writing>,
}

impl Writer {
    /// Waits for the right to write.
    pub(super) fn lock(&self) -> Held<'_> {
        Held { writer: self, writing: locked(self.writing.lock()) }
    }

    /// Reads records of the log. Returns where the next range begins. The caller holds the layout.
    pub(super) fn read(
        &self,
        stretch: &Stretch,
        visit: &mut dyn FnMut(ReplayedRecord) -> Result<Enough>,
    ) -> Result<LogPosition> {
        let place =
            LogPlace { disk: &*self.disk, dir: &self.dir, identity: self.identity, geometry: &self.geometry };
        place.read(stretch, visit)
    }

    /// Makes a segment ahead, if one is wanted. A full disk is met by the write that needs it.
    pub(super) fn make_spare(&self) {
        if self.log.needs_spare() {
            drop(self.log.prepare_spare(&mut |rest_ns| {
                self.log.rest(rest_ns);
            }));
        }
    }
}

impl Held<'_> {
    /// Carries out the appends, or the one other piece of work, of a batch.
    pub(super) fn carry_out(&mut self, batch: &[Work], view: &Mutex<View>) -> Result<()> {
        match batch {
            [Work::Vote { vote, .. }] => self.save_vote(*vote),
            [Work::Cut { kept, .. }] => self.cut(*kept, view),
            [Work::Purge { purged, .. }] => self.purge(*purged, view),
            appends => {
                let records: Vec<Record> = appends.iter().flat_map(records_of).cloned().collect();
                self.append(&records, view)
            }
        }
    }

    fn append(&mut self, records: &[Record], view: &Mutex<View>) -> Result<()> {
        let durable = markable(view);
        // What may use the reserve was decided before it was appended: see `room`.
        let group = Group { records, durable, use_reserve: true };
        let written = self.writer.log.write_and_sync(&group).map_err(|error| error_of(&error))?;
        self.writing.marked = durable;
        self.writing.written_at_ns = self.writer.log.now_ns();
        self.writing.bytes_since_place += written.bytes;
        if locked(view.lock()).synced_to(written.position, self.writing.bytes_since_place) {
            self.writing.bytes_since_place = 0;
        }
        Ok(())
    }

    fn save_vote(&mut self, vote: Vote) -> Result<()> {
        self.writing.vote.write(&vote.encode())
    }

    fn cut(&mut self, kept: CommitSeq, view: &Mutex<View>) -> Result<()> {
        let from = {
            let view = locked(view.lock());
            view.place_before(view.decided.next())
        };
        let _layout = locked(self.writer.layout.write());
        let keep_from = self.writing.start.1.place;
        let anchor = self.writer.log.cut_after(kept, &from, keep_from)?;
        self.writing.bytes_since_place = 0;
        locked(view.lock()).cut_done(anchor);
        Ok(())
    }

    fn purge(&mut self, purged: LogEnd, view: &Mutex<View>) -> Result<()> {
        let place = {
            let view = locked(view.lock());
            if purged.id.seq <= view.purged.id.seq {
                return Ok(());
            }
            view.place_before(purged.id.seq.next())
        };
        let start = Start { purged, place, ..self.writing.start.1 };
        self.writing.start.0.write(&start.encode())?;
        self.writing.start.1 = start;
        // Readers of the segments before it have ended, and others begin after it.
        let _layout = locked(self.writer.layout.write());
        locked(view.lock()).begin_at(purged, place);
        self.writer.log.recycle(&place);
        Ok(())
    }

    /// Empties a segment that is ready, if there are many: a member that lagged is back, or given up. One at
    /// a time, since others wait.
    pub(super) fn give_space_back(&self) -> Result<()> {
        self.writer.log.give_back_one(READY_SEGMENTS_MAX).map_err(|failure| failure.0)
    }

    /// The newest watermark that was written.
    pub(super) fn marked(&self) -> CommitSeq {
        self.writing.marked
    }

    /// Writes a watermark, if one is due. Returns whether one will be. On a full disk the room is for
    /// entries: the frame of the next one has the watermark, too.
    pub(super) fn mark(&mut self, view: &Mutex<View>, now: bool) -> Result<bool> {
        let decided = markable(view);
        let idle_ns = self.writer.log.now_ns().saturating_sub(self.writing.written_at_ns);
        if decided <= self.writing.marked || !(now || idle_ns >= MARK_IDLE_MS * 1_000_000) {
            return Ok(decided > self.writing.marked);
        }
        if self.writer.log.is_full() {
            return Ok(false);
        }
        match self.writer.log.write_mark(decided) {
            Ok(_) => {}
            Err(LogWriteError::Full(_)) => return Ok(false),
            Err(error) => return Err(error_of(&error)),
        }
        self.writer.log.sync().map_err(|failure| failure.0)?;
        self.writing.marked = decided;
        Ok(false)
    }
}

/// What the next frame may call durable: synced here, and decided.
fn markable(view: &Mutex<View>) -> CommitSeq {
    let view = locked(view.lock());
    view.decided.min(view.synced)
}

fn records_of(work: &Work) -> &[Record] {
    match work {
        Work::Append { records, .. } => records,
        Work::Vote { .. } | Work::Cut { .. } | Work::Purge { .. } => &[],
    }
}

fn error_of(error: &LogWriteError) -> Error {
    error.error().clone()
}
