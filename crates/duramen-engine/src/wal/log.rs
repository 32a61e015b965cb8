//! The open log: writes groups, syncs them, hands out and takes back segments.
//!
//! One writer at a time, the leader of a group. `prepare_spare`, `recycle`, `sync` and `stats` may run beside
//! it. The state's lock is never held across I/O. Two mutexes are, `syncing` and `preparing`: a thread waits
//! for one only to do the same work, and the holder's result may serve it. D1, D6 and D7 rest here: see
//! `write`, `sync` and `plan`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use duramen_disk::{Disk, SyncMethod};

use super::buffer::AlignedBuffer;
use super::place::{Place, frame_bytes, place};
use super::segment::Segment;
use super::spare::{HURRIED_SLICE_BYTES, Making, SLICE_BYTES, SegmentFactory, check_geometry};
use super::state::{Head, State, spare_order};
use super::survey;
use super::writing::{Outcome, Writing, check_group, draw, failure_of};
use super::{Group, LogIdentity, LogPosition, LogStats, LogWriteError, SegmentSlot, SyncFailure, Written};
use crate::alarm::{invariant, locked};
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
    /// Reused from write to write; the writer takes it out while it works.
    buffer: Mutex<AlignedBuffer>,
    /// Held across a sync. A waiter then finds its writes synced, or the failure noted. Without it a second
    /// sync of a file could succeed before the first has reported its failure.
    syncing: Mutex<()>,
    /// The segment under construction; locked for one slice at a time. Slots are created in order, without
    /// gaps.
    pub(super) preparing: Mutex<Option<Making>>,
    /// A thread waits for the background to end.
    hurried: Mutex<bool>,
    hurry: Condvar,
    /// The log is being closed: prepare only what the next opening needs.
    ending: AtomicBool,
}

/// The background rests this many times as long as a slice took.
const REST_PARTS: u64 = 3;

impl Log {
    /// Creates a log with one segment and an empty first frame, which the commit after `begins_after`
    /// follows. All is durable but the directory's own name.
    ///
    /// Files of a creation that was cut short are removed. The caller holds the directory's lock, so that no
    /// other process has a log open there.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if the directory holds a log with commits; `InvalidArgument` (E0201) for sizes
    /// that no log can have; `DiskFull` (E0301); `System` (E1001).
    pub fn create(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        identity: LogIdentity,
        geometry: Geometry,
        sync: SyncMethod,
        begins_after: CommitSeq,
    ) -> Result<(Log, LogPosition)> {
        check_geometry(&geometry, sync)?;
        survey::clear_unborn(&**disk, dir)?;
        let factory = SegmentFactory { disk: &**disk, dir, identity, geometry, sync };
        let segment = factory.make(spare_order(SegmentSlot(1), &geometry))?;
        let head = Head {
            epoch: Epoch(0),
            incarnation: draw(&**disk),
            offset: segment.bytes,
            last: LogPosition { seq: begins_after, ..LogPosition::default() },
            commit_time_ns: 0,
            segment: Arc::clone(&segment),
        };
        let mut state = State::new(head);
        // The "segment" before the first has no room left, so that the first mark frame begins a segment as
        // usual.
        state.used.clear();
        state.ready.push_back(segment);
        let log = Log::assemble(disk, &factory, state);
        let written = log.write_mark(begins_after).map_err(|error| error.error().clone())?;
        log.sync().map_err(|failure| failure.0)?;
        Ok((log, written.position))
    }

    pub(super) fn assemble(disk: &Arc<dyn Disk>, factory: &SegmentFactory<'_>, state: State) -> Log {
        debug_assert!(state.slots_are_distinct(), "every segment has one use");
        Log {
            disk: Arc::clone(disk),
            dir: factory.dir.to_owned(),
            identity: factory.identity,
            geometry: factory.geometry,
            sync: factory.sync,
            state: Mutex::new(state),
            buffer: Mutex::new(AlignedBuffer::default()),
            syncing: Mutex::new(()),
            preparing: Mutex::new(None),
            hurried: Mutex::new(false),
            hurry: Condvar::new(),
            ending: AtomicBool::new(false),
        }
    }

    /// The position after the last frame. A superblock stores it once everything before it is durable.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        self.state().head.last
    }

    /// The epoch of the current segment. The last frame may be of an earlier one.
    #[must_use]
    pub fn current_epoch(&self) -> Epoch {
        self.state().head.epoch
    }

    /// Whether the disk had no room for the last segment to be prepared.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.state().refused
    }

    /// Whether there was no room for a segment that is still wanted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let state = self.state();
        state.refused && state.needs_spare()
    }

    /// Whether a segment is ready for use.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        !self.state().ready.is_empty()
    }

    /// Writes a group without a sync: one write, even if it begins a segment. A group of more than 1 MiB
    /// takes several writes, one larger than a segment several frames.
    ///
    /// # Errors
    /// [`LogWriteError`]. After `Full` and `Refused` the log ends where it ended before.
    pub fn write(&self, group: &Group<'_>) -> std::result::Result<Written, LogWriteError> {
        self.write_at_time(group, self.disk.wall_ns(), false).map(|(written, _)| written)
    }

    /// Writes a group and makes it and everything before it durable. With `Fdatasync` that is a write and a
    /// sync; with the other methods one durable write, if nothing else is unsynced.
    ///
    /// # Errors
    /// [`LogWriteError`]; a failed sync is `InDoubt`.
    pub fn write_and_sync(&self, group: &Group<'_>) -> std::result::Result<Written, LogWriteError> {
        let now = self.disk.wall_ns();
        if self.sync != SyncMethod::Fdatasync {
            let syncing = locked(self.syncing.lock());
            if self.state().unsynced.is_empty() {
                let (written, durable) = self.write_at_time(group, now, true)?;
                drop(syncing);
                return if durable { Ok(written) } else { self.sync_after(written) };
            }
        }
        let (written, _) = self.write_at_time(group, now, false)?;
        self.sync_after(written)
    }

    /// The monotonic clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.disk.monotonic_ns()
    }

    /// The wall clock.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        self.disk.wall_ns()
    }

    /// Writes a mark frame with the durable watermark, and the watermark to a spare segment's header too.
    ///
    /// Not synced; the next sync covers both files. The copy in the spare proves loss even if the whole
    /// newest segment is gone or shows an older state.
    ///
    /// # Errors
    /// [`LogWriteError`].
    pub fn write_mark(&self, durable: CommitSeq) -> std::result::Result<Written, LogWriteError> {
        let written = self.write(&Group { records: &[], durable, use_reserve: true })?;
        self.write_witness(durable);
        Ok(written)
    }

    /// Whether a group must wait for a segment to be made. Earlier writes whose sync is due within a bounded
    /// time must then be synced first, because their sync would wait for this group.
    #[must_use]
    pub fn lacks_segment(&self, group: &Group<'_>) -> bool {
        let (head, rooms) = {
            let state = self.state();
            // Nearly every group fits into the current segment: its layout is computed once, by the write.
            let bytes = frame_bytes(group.records.iter().map(|record| record.bytes.len()));
            if bytes <= state.head.segment.bytes - state.head.offset {
                return false;
            }
            (state.head.clone(), state.usable(group.use_reserve))
        };
        self.places(&head, &lengths(group), &rooms).is_none()
    }

    /// Makes segments until a group has room, also if a mark is written before it.
    ///
    /// # Errors
    /// [`LogWriteError`]: `Full` or `Refused`; nothing has changed.
    pub fn make_room(&self, group: &Group<'_>) -> std::result::Result<(), LogWriteError> {
        let mut head = self.state().head.clone();
        head.offset = (head.offset + self.geometry.block_bytes as u64).min(head.segment.bytes);
        self.plan(&head, &lengths(group), group.use_reserve).map(|_| ())
    }

    /// Makes segments until groups of so many bytes in all have room, whichever way they are put together.
    ///
    /// # Errors
    /// As [`Log::make_room`].
    pub fn make_room_for(&self, bytes: usize, use_reserve: bool) -> std::result::Result<(), LogWriteError> {
        let (head, bytes) = self.any_groups(bytes, use_reserve);
        self.plan(&head, &[bytes], use_reserve).map(|_| ())
    }

    /// The same for groups behind a cut, which begins a segment.
    ///
    /// # Errors
    /// As [`Log::make_room`].
    pub fn make_room_behind_a_cut(&self, bytes: usize) -> std::result::Result<(), LogWriteError> {
        let mut head = self.state().head.clone();
        head.offset = head.segment.bytes;
        self.plan(&head, &[2 * bytes], true).map(|_| ())
    }

    /// Whether groups of so many bytes in all have room without another segment.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize, use_reserve: bool) -> bool {
        let (head, bytes) = self.any_groups(bytes, use_reserve);
        self.places(&head, &[bytes], &self.state().usable(use_reserve)).is_some()
    }

    /// The end of the log, and as many bytes as groups of these take there at most. One that does not fit
    /// into the rest of a segment leaves that rest, which is smaller than the group: all of them take at most
    /// twice their bytes, from the next segment on.
    fn any_groups(&self, bytes: usize, use_reserve: bool) -> (Head, usize) {
        let state = self.state();
        let mut head = state.head.clone();
        // On a full disk without a segment ahead the log is in its reserve.
        let is_reserve = state.refused && state.ready.is_empty();
        let fits = frame_bytes([bytes].into_iter()) <= head.segment.bytes - head.offset;
        if fits && (use_reserve || !is_reserve) {
            return (head, bytes);
        }
        head.offset = head.segment.bytes;
        (head, 2 * bytes)
    }

    /// Makes everything written so far durable and returns the end it covers. At most one sync for each
    /// segment written since the last sync; none if another caller's sync covered it.
    ///
    /// # Errors
    /// [`SyncFailure`] at the first failure, and at every call after it (D6).
    pub fn sync(&self) -> std::result::Result<LogPosition, SyncFailure> {
        let _syncing = locked(self.syncing.lock());
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
        self.state().set_synced(write_number, covered.seq);
        Ok(covered)
    }

    /// Whether a background caller should call [`Log::prepare_spare`].
    #[must_use]
    pub fn needs_spare(&self) -> bool {
        self.state().needs_spare()
    }

    /// Prepares one segment ahead if one is wanted: zeroes and syncs it slice by slice.
    ///
    /// After each slice it calls `between` without a lock, with the nanoseconds for which the disk should
    /// rest. On a slow disk a segment takes many seconds; work that must not wait that long is done there.
    ///
    /// # Errors
    /// `DiskFull` (E0301): nothing has changed, and the last ready segment is now reserved. `System` (E1001)
    /// if a segment cannot be made.
    pub fn prepare_spare(&self, between: &mut dyn FnMut(u64)) -> Result<()> {
        while let Some(busy_ns) = self.prepare_slice()? {
            between(busy_ns * REST_PARTS);
        }
        Ok(())
    }

    /// Makes one slice of a segment and returns how long it took; `None` without another slice to make.
    fn prepare_slice(&self) -> Result<Option<u64>> {
        let mut making = locked(self.preparing.lock());
        let ends = self.ending.load(Ordering::Relaxed);
        // The next opening goes on in a ready segment, which a full disk could not provide then (D7).
        let is_enough =
            if ends { !self.state().ready.is_empty() } else { !self.needs_spare() && making.is_none() };
        if is_enough {
            return Ok(None);
        }
        let begun_ns = self.disk.monotonic_ns();
        let is_made = self.make_slice(&mut making, if ends { HURRIED_SLICE_BYTES } else { SLICE_BYTES })?;
        Ok((!is_made).then(|| self.disk.monotonic_ns().saturating_sub(begun_ns)))
    }

    /// Waits for this long. Returns `false` if [`Log::hurry`] ended the wait early.
    pub fn rest(&self, ns: u64) -> bool {
        let hurried = locked(self.hurried.lock());
        let wait = self.hurry.wait_timeout_while(hurried, Duration::from_nanos(ns), |hurried| !*hurried);
        !*locked(wait).0
    }

    /// Ends rests from now on, because a thread waits for the background to end.
    pub fn hurry(&self) {
        *locked(self.hurried.lock()) = true;
        self.hurry.notify_all();
    }

    /// Ends rests and preparation: the log is about to be closed.
    pub fn end_preparing(&self) {
        self.ending.store(true, Ordering::Relaxed);
        self.hurry();
    }

    /// Allows reuse of the segments before the one of `keep_from`.
    ///
    /// Called with the position of the older superblock, once the newer is durable.
    pub fn recycle(&self, keep_from: &LogPosition) {
        self.state().recycle(keep_from.epoch);
    }

    /// Bytes of the segments in use, from the one of a place on.
    #[must_use]
    pub fn bytes_from(&self, place: &LogPosition) -> u64 {
        self.state().bytes_from(place.epoch)
    }

    /// Statistics of the log.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.state().stats()
    }

    /// Only the writer takes spares, and it is busy here. A failure loses only this watermark: the header of
    /// a spare is rewritten before use, and recovery zeroes a segment with a torn header again.
    fn write_witness(&self, durable: CommitSeq) {
        let spare = self.state().ready.back().cloned();
        spare.iter().for_each(|spare| self.witness_in(spare, durable));
    }

    pub(super) fn witness_in(&self, spare: &Arc<Segment>, durable: CommitSeq) {
        {
            let state = self.state();
            // D3: replay finds no frame after the header of an unused segment.
            invariant!(!state.is_used(spare.slot), "segment {} is a spare", spare.slot.0);
            invariant!(
                durable <= state.synced_seq,
                "commit {durable} is synced before a spare calls it durable, and {} was",
                state.synced_seq
            );
        }
        let factory = self.factory();
        let header = factory.unused_header(spare.slot, spare.bytes, durable);
        if spare.file.write_at(&factory.first_block(&header), 0).is_ok() {
            let mut state = self.state();
            state.stats.write_count += 1;
            state.add_unsynced(spare);
        }
    }

    pub(super) fn sync_after(&self, written: Written) -> std::result::Result<Written, LogWriteError> {
        let sync_began_ns = Some(self.now_ns());
        self.sync().map_err(|failure| LogWriteError::InDoubt(failure.0))?;
        Ok(Written { sync_began_ns, ..written })
    }

    pub(super) fn write_at_time(
        &self,
        group: &Group<'_>,
        now_ns: u64,
        durable: bool,
    ) -> std::result::Result<(Written, bool), LogWriteError> {
        let head = self.state().head.clone();
        self.write_after(head, group, now_ns, durable)
    }

    /// Writes a group after `head`: the end of the log, or that end with less room in its segment.
    pub(super) fn write_after(
        &self,
        head: Head,
        group: &Group<'_>,
        now_ns: u64,
        durable: bool,
    ) -> std::result::Result<(Written, bool), LogWriteError> {
        let synced = {
            let state = self.state();
            state.check().map_err(LogWriteError::Refused)?;
            state.synced_seq
        };
        check_group(group, head.last.seq).map_err(LogWriteError::Refused)?;
        invariant!(
            group.durable <= synced,
            "commit {} is synced before a frame calls it durable, and {synced} was",
            group.durable
        );
        let begun = head.last;
        let (places, rooms) = self.plan(&head, &lengths(group), group.use_reserve)?;
        let mut writing = Writing {
            factory: self.factory(),
            group,
            durable: durable && places.len() == 1,
            fresh: Vec::new(),
            touched: Vec::new(),
            bytes: 0,
            write_count: 0,
            head: Head { commit_time_ns: head.commit_time_ns.max(now_ns), ..head },
        };
        let mut buffer = std::mem::take(&mut *locked(self.buffer.lock()));
        let outcome = writing.run(&places, &rooms, &mut buffer);
        *locked(self.buffer.lock()) = buffer;
        let mut state = self.state();
        state.stats.write_count += writing.write_count;
        match outcome {
            Outcome::Written { durable } => {
                let position = writing.head.last;
                invariant!(state.head.last == begun, "one thread writes after commit {}", begun.seq);
                state.stats.written_bytes += writing.bytes;
                state.stats.frame_count += places.len() as u64;
                state.stats.sync_count += u64::from(durable);
                if !durable {
                    writing.touched.iter().for_each(|segment| state.add_unsynced(segment));
                }
                state.advance(writing.head, &writing.fresh);
                if durable {
                    invariant!(state.unsynced.is_empty(), "one durable write leaves nothing unsynced");
                    state.set_durable(position.seq);
                }
                Ok((Written { position, bytes: writing.bytes, sync_began_ns: None }, durable))
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

    /// Decides where the group goes, and makes segments until there is room. All segments are ready before
    /// the first byte is written, so that a full disk refuses the group as a whole (D7).
    fn plan(
        &self,
        head: &Head,
        record_bytes: &[usize],
        use_reserve: bool,
    ) -> std::result::Result<(Vec<Place>, Vec<Arc<Segment>>), LogWriteError> {
        loop {
            let rooms = self.state().usable(use_reserve);
            if let Some(places) = self.places(head, record_bytes, &rooms) {
                return Ok((places, rooms));
            }
            let mut making = locked(self.preparing.lock());
            if self.state().usable(use_reserve).len() > rooms.len() {
                continue;
            }
            let refused = |error: Error| match error.kind() {
                ErrorKind::Full => LogWriteError::Full(error),
                _ => LogWriteError::Refused(error),
            };
            while !self.make_slice(&mut making, HURRIED_SLICE_BYTES).map_err(refused)? {}
        }
    }

    /// Lays records out after `head` and in these fresh segments; `None` without room.
    fn places(&self, head: &Head, record_bytes: &[usize], rooms: &[Arc<Segment>]) -> Option<Vec<Place>> {
        let block = self.geometry.block_bytes as u64;
        let fresh_rooms: Vec<u64> = rooms.iter().map(|segment| segment.bytes - block).collect();
        place(record_bytes, head.segment.bytes - head.offset, &fresh_rooms)
    }

    /// Makes the next slice of the current segment under construction, or the first of a new one. Returns
    /// whether it was the last.
    fn make_slice(&self, making: &mut Option<Making>, slice_bytes: u64) -> Result<bool> {
        let order = {
            let state = self.state();
            state.check()?;
            state.next_spare(&self.geometry)
        };
        let factory = self.factory();
        let made = match making {
            Some(making) => factory.go_on(making, slice_bytes),
            None => factory.begin(order).and_then(|begun| factory.go_on(making.insert(begun), slice_bytes)),
        };
        let mut state = self.state();
        match made {
            Ok(Some(segment)) => {
                *making = None;
                state.add_spare(segment);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => {
                *making = None;
                state.refused = true;
                Err(error)
            }
        }
    }

    pub(super) fn factory(&self) -> SegmentFactory<'_> {
        SegmentFactory {
            disk: &*self.disk,
            dir: &self.dir,
            identity: self.identity,
            geometry: self.geometry,
            sync: self.sync,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(self.state.lock())
    }
}

fn lengths(group: &Group<'_>) -> Vec<usize> {
    group.records.iter().map(|record| record.bytes.len()).collect()
}
