//! The open log: writes groups, syncs them, hands out and takes back segments.
//!
//! One writer at a time (the leader of a group); `prepare_spare`, `recycle`, `sync` and `stats` may run beside it.
//! The state's lock is held for moments, never across I/O. Two *turns* are held across I/O, `syncing` and
//! `preparing`: each is waited for only by who would do the same work and is served by its outcome.
//! D1, D6 and D7 rest here: see `write`, `sync` and `plan`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duramen_disk::{Disk, SyncMethod};

use super::buffer::AlignedBuffer;
use super::place::{Place, place};
use super::segment::Segment;
use super::spare::{Workshop, check_geometry};
use super::state::{Head, State, spare_order};
use super::survey;
use super::writing::{Outcome, Writing, check_group, draw, failure_of};
use super::{Group, LogIdentity, LogPosition, LogStats, LogWriteError, SegmentSlot, SyncFailure, Written};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{CommitSeq, Epoch};
use crate::options::Geometry;

/// An open write-ahead log.
#[derive(Debug)]
pub struct Log {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) identity: LogIdentity,
    pub(super) geometry: Geometry,
    pub(super) sync: SyncMethod,
    pub(super) state: Mutex<State>,
    /// Kept from write to write; the writer takes it out while it works.
    buffer: Mutex<AlignedBuffer>,
    /// Held across a sync. Who waits finds its writes synced, or the failure noted, when its turn comes:
    /// without it a second sync of a file could return before the first has told that it failed.
    syncing: Mutex<()>,
    /// Held while a segment is made: slots are created one after the other, so that none is left out.
    preparing: Mutex<()>,
    /// Writers that wait for a segment which somebody makes at leisure.
    hurried: Mutex<usize>,
    hurry: Condvar,
}

/// Of the time that making a segment takes, so many parts more are rests.
const REST_PARTS: u64 = 3;

impl Log {
    /// Creates a log with one segment and an empty first frame, durable but for the directory's own name.
    ///
    /// Files left by a creation that was cut short are removed.
    ///
    /// # Errors
    /// `AlreadyExists` if the directory holds a log with commits; `DiskFull`; what the system said.
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        identity: LogIdentity,
        geometry: Geometry,
        sync: SyncMethod,
    ) -> Result<(Log, LogPosition)> {
        check_geometry(&geometry, sync)?;
        survey::clear_unborn(&**disk, dir, &geometry)?;
        let workshop = Workshop { disk: &**disk, dir, identity, geometry, sync };
        let segment = workshop.make(spare_order(SegmentSlot(1), &geometry))?;
        let head = Head {
            epoch: Epoch(0),
            incarnation: draw(&**disk),
            offset: segment.bytes,
            last: LogPosition::default(),
            commit_time_ns: 0,
            segment: Arc::clone(&segment),
        };
        let mut state = State::new(head);
        // No room is left in the segment "before" the first, so that the first mark goes through the ordinary switch.
        state.used.clear();
        state.ready.push_back(segment);
        let log = Log::assemble(disk, &workshop, state);
        let written = log.write_mark(CommitSeq(0)).map_err(|error| error.error().clone())?;
        log.sync().map_err(|failure| failure.0)?;
        Ok((log, written.position))
    }

    pub(super) fn assemble(disk: &Arc<dyn Disk>, workshop: &Workshop<'_>, state: State) -> Log {
        Log {
            disk: Arc::clone(disk),
            dir: workshop.dir.to_owned(),
            identity: workshop.identity,
            geometry: workshop.geometry,
            sync: workshop.sync,
            state: Mutex::new(state),
            buffer: Mutex::new(AlignedBuffer::default()),
            syncing: Mutex::new(()),
            preparing: Mutex::new(()),
            hurried: Mutex::new(0),
            hurry: Condvar::new(),
        }
    }

    /// Right after the last frame: what a superblock stores once everything up to it is durable.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        self.state().head.last
    }

    /// Writes a group, without a sync: one write, also where it begins a new segment. A group of more than
    /// 1 MiB takes several, one larger than a segment several frames.
    ///
    /// # Errors
    /// See [`LogWriteError`]. After `Full` and `Refused` the log ends where it ended before.
    pub fn write(&self, group: &Group<'_>) -> std::result::Result<Written, LogWriteError> {
        self.write_at_time(group, self.disk.wall_ns(), false).map(|(written, _)| written)
    }

    /// Writes a group and makes it durable, with everything before it: with `Fdatasync` a write and a sync, with
    /// the other methods one durable write where nothing else is unsynced.
    ///
    /// # Errors
    /// See [`LogWriteError`]; a failed sync is `InDoubt`.
    pub fn write_and_sync(&self, group: &Group<'_>) -> std::result::Result<Written, LogWriteError> {
        let now = self.disk.wall_ns();
        if self.sync != SyncMethod::Fdatasync {
            let turn = lock(&self.syncing);
            if self.state().unsynced.is_empty() {
                let (written, durable) = self.write_at_time(group, now, true)?;
                drop(turn);
                return if durable { Ok(written) } else { self.sync_after(written) };
            }
        }
        let (written, _) = self.write_at_time(group, now, false)?;
        self.sync_after(written)
    }

    /// Writes a frame that carries nothing but what is durable, and notes the same in a spare segment's header.
    ///
    /// Not synced; the next sync covers two files. The witness in the spare proves loss even if the whole newest
    /// segment is gone or shows an older state of itself.
    ///
    /// # Errors
    /// See [`LogWriteError`].
    pub fn write_mark(&self, durable: CommitSeq) -> std::result::Result<Written, LogWriteError> {
        let written = self.write(&Group { records: &[], durable, use_reserve: true })?;
        self.write_witness(durable);
        Ok(written)
    }

    /// Makes everything written so far durable and returns the end it covers. At most one sync a segment written
    /// since the last; none if another caller's covered it.
    ///
    /// # Errors
    /// [`SyncFailure`] at the first failure and ever after (D6).
    pub fn sync(&self) -> std::result::Result<LogPosition, SyncFailure> {
        let _turn = lock(&self.syncing);
        let (unsynced, covered, write_number) = {
            let state = self.state();
            state.check().map_err(SyncFailure)?;
            (state.unsynced.clone(), state.head.last, state.stats.write_count)
        };
        for unsynced in &unsynced {
            let synced = unsynced.segment.file.sync_data();
            let mut state = self.state();
            state.stats.sync_count += 1;
            if let Err(error) = synced {
                let error = Error::io("sync", &unsynced.segment.path, &error);
                state.fail(&error);
                return Err(SyncFailure(error));
            }
        }
        self.state().set_synced(write_number);
        Ok(covered)
    }

    /// Whether a background caller should call [`Log::prepare_spare`].
    #[must_use]
    pub fn needs_spare(&self) -> bool {
        self.state().needs_spare()
    }

    /// Prepares one segment ahead, if one is wanted: zeroes it and waits until that is durable.
    ///
    /// # Errors
    /// `DiskFull`: nothing has changed, and the last ready segment is now kept for writes that ask for the reserve.
    pub fn prepare_spare(&self) -> Result<()> {
        let _turn = lock(&self.preparing);
        if self.needs_spare() {
            self.make_spare(&mut |busy_ns| self.rest(busy_ns * REST_PARTS))
        } else {
            Ok(())
        }
    }

    /// Waits so long, or until a writer is in a hurry.
    pub(super) fn rest(&self, ns: u64) {
        let hurried = lock(&self.hurried);
        let wait = self.hurry.wait_timeout_while(hurried, Duration::from_nanos(ns), |hurried| *hurried == 0);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends rests from now on: somebody waits for the background to end.
    pub fn hurry(&self) {
        *lock(&self.hurried) += 1;
        self.hurry.notify_all();
    }

    /// The turn to make segments, from whoever makes one now without further rests.
    fn preparing_in_a_hurry(&self) -> MutexGuard<'_, ()> {
        self.hurry();
        let turn = lock(&self.preparing);
        *lock(&self.hurried) -= 1;
        turn
    }

    /// Lets the segments before the one of `keep_from` be used again.
    ///
    /// To be called with the position of the older superblock, once the newer is durable.
    pub fn recycle(&self, keep_from: &LogPosition) {
        self.state().recycle(keep_from.epoch);
    }

    /// Gives back the ready segments that a log at rest does not need: all but the next one and the reserve, the smallest. They are
    /// emptied and keep their names, so that no slot is ever left out, and are made anew when they are wanted.
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub fn trim(&self) -> std::result::Result<(), SyncFailure> {
        let _turn = lock(&self.preparing);
        let taken = self.state().take_spares_beyond_wanted();
        for segment in &taken {
            // One that could not be emptied is made anew all the same.
            drop(segment.file.set_len(0));
            let mut state = self.state();
            state.unfinished.push_back(segment.slot);
            state.add_unsynced(segment);
        }
        if taken.is_empty() { Ok(()) } else { self.sync().map(drop) }
    }

    /// Figures for whoever watches.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.state().stats()
    }

    /// Only the one writer takes spares, and it is busy here. A failure costs the witness and nothing else: the
    /// header of a spare is rewritten before use, and a torn one makes recovery zero the segment again.
    fn write_witness(&self, durable: CommitSeq) {
        let Some(spare) = self.state().ready.back().cloned() else { return };
        let workshop = self.workshop();
        let header = workshop.unused_header(spare.slot, spare.bytes, durable);
        if spare.file.write_at(&workshop.first_block(&header), 0).is_ok() {
            let mut state = self.state();
            state.stats.write_count += 1;
            state.add_unsynced(&spare);
        }
    }

    fn sync_after(&self, written: Written) -> std::result::Result<Written, LogWriteError> {
        self.sync().map_err(|failure| LogWriteError::InDoubt(failure.0))?;
        Ok(written)
    }

    pub(super) fn write_at_time(
        &self,
        group: &Group<'_>,
        now_ns: u64,
        durable: bool,
    ) -> std::result::Result<(Written, bool), LogWriteError> {
        let head = {
            let state = self.state();
            state.check().map_err(LogWriteError::Refused)?;
            state.head.clone()
        };
        check_group(group, head.last.seq).map_err(LogWriteError::Refused)?;
        let (places, rooms) = self.plan(&head, group)?;
        let mut writing = Writing {
            workshop: self.workshop(),
            group,
            durable: durable && places.len() == 1,
            fresh: Vec::new(),
            touched: Vec::new(),
            bytes: 0,
            write_count: 0,
            head: Head { commit_time_ns: head.commit_time_ns.max(now_ns), ..head },
        };
        let mut buffer = std::mem::take(&mut *lock(&self.buffer));
        let outcome = writing.run(&places, &rooms, &mut buffer);
        *lock(&self.buffer) = buffer;
        let mut state = self.state();
        state.stats.write_count += writing.write_count;
        match outcome {
            Outcome::Written { durable } => {
                let position = writing.head.last;
                state.stats.written_bytes += writing.bytes;
                state.stats.frame_count += places.len() as u64;
                state.stats.sync_count += u64::from(durable);
                if !durable {
                    writing.touched.iter().for_each(|segment| state.add_unsynced(segment));
                }
                state.advance(writing.head, &writing.fresh);
                Ok((Written { position, bytes: writing.bytes }, durable))
            }
            Outcome::Failed { error, bytes_taken } => {
                let path = writing.touched.last().map_or(&*self.dir, |segment| &segment.path);
                let error = failure_of(path, error, bytes_taken);
                if error.is_in_doubt() {
                    state.fail(error.error());
                }
                Err(error)
            }
        }
    }

    /// Decides where the group goes, preparing segments until there is room: every segment the group needs is
    /// ready before its first byte is written, so that a full disk refuses it whole (D7).
    fn plan(
        &self,
        head: &Head,
        group: &Group<'_>,
    ) -> std::result::Result<(Vec<Place>, Vec<Arc<Segment>>), LogWriteError> {
        let record_bytes: Vec<usize> = group.records.iter().map(|record| record.bytes.len()).collect();
        let block = self.geometry.block_bytes as u64;
        loop {
            let rooms = self.state().usable(group.use_reserve);
            let fresh_rooms: Vec<u64> = rooms.iter().map(|segment| segment.bytes - block).collect();
            let current_room = head.segment.bytes - head.offset;
            if let Some(places) = place(&record_bytes, current_room, &fresh_rooms) {
                return Ok((places, rooms));
            }
            let _turn = self.preparing_in_a_hurry();
            if self.state().usable(group.use_reserve).len() > rooms.len() {
                continue;
            }
            self.make_spare(&mut |_| ()).map_err(|error| match error.kind() {
                ErrorKind::Full => LogWriteError::Full(error),
                _ => LogWriteError::Refused(error),
            })?;
        }
    }

    /// Prepares one segment; the caller holds the turn.
    fn make_spare(&self, rest: &mut dyn FnMut(u64)) -> Result<()> {
        let order = {
            let state = self.state();
            state.check()?;
            state.next_spare(&self.geometry)
        };
        let made = self.workshop().make_with_rests(order, rest);
        let mut state = self.state();
        match made {
            Ok(segment) => {
                state.add_spare(segment);
                Ok(())
            }
            Err(error) => {
                state.refused = true;
                Err(error)
            }
        }
    }

    pub(super) fn workshop(&self) -> Workshop<'_> {
        Workshop {
            disk: &*self.disk,
            dir: &self.dir,
            identity: self.identity,
            geometry: self.geometry,
            sync: self.sync,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Takes a lock whatever happened to who held it: the state is consistent between statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
