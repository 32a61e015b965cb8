//! Delays commits while memory fills, and keeps room on the disk for the largest next checkpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::Submission;
use crate::alarm::{invariant, locked};
use crate::checkpoint::Store;
use crate::error::{Code, Error, Result};
use crate::threads::processors;

const DELAY_US_MAX: u64 = 5000;

/// The background keeps room for at least this much more than is dirty.
const AHEAD_BYTES_MIN: usize = 1024 * 1024;

/// What a commit needs room for. It decides how much of the room that a full disk has left it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoomFor {
    /// Puts, and moves of compaction. They take room that is kept back, and no other.
    Puts,
    /// Deletes and nothing else, or what frees more than it takes. They may take the reserve, half of the
    /// free blocks between used ones, and the log segment that is kept for them (D7).
    Deletes,
}

impl RoomFor {
    pub(super) fn of(submission: &Submission) -> RoomFor {
        let only_deletes = submission.relocation.is_none() && submission.changes.only_deletes();
        if only_deletes || submission.frees_room { RoomFor::Deletes } else { RoomFor::Puts }
    }
}

/// Keeps dirty memory and disk space within their bounds.
#[derive(Debug)]
pub(crate) struct Throttle {
    stepped: bool,
    /// How many may share the work of a commit.
    threads: usize,
    state: Mutex<()>,
    changed: Condvar,
    last_failure: Mutex<Option<Error>>,
    delayed_us: AtomicU64,
    refusals: AtomicU64,
    asked: AtomicBool,
    /// A commit was delayed by what is dirty. Merging patches may be enough.
    asked_for_memory: AtomicBool,
    /// A commit waits until patches are merged.
    asked_to_merge: AtomicBool,
    /// How many times patches were merged on request, with or without success, and why the last one failed.
    merged: Mutex<(u64, Option<Error>)>,
    /// Checkpoints that ended, with or without success.
    ended: AtomicU64,
}

impl Throttle {
    /// With `stepped` it never waits.
    #[must_use]
    pub(crate) fn new(stepped: bool) -> Throttle {
        Throttle {
            stepped,
            threads: if stepped { 1 } else { processors() },
            state: Mutex::new(()),
            changed: Condvar::new(),
            last_failure: Mutex::new(None),
            delayed_us: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            asked_for_memory: AtomicBool::new(false),
            asked_to_merge: AtomicBool::new(false),
            merged: Mutex::default(),
            ended: AtomicU64::new(0),
        }
    }

    /// How many threads may share the work of a commit. A simulation repeats what one does.
    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Microseconds that commits were delayed so far.
    pub(crate) fn delayed_us(&self) -> u64 {
        self.delayed_us.load(Ordering::Relaxed)
    }

    /// Takes the request for a checkpoint, if there is one. A commit that was delayed has requested one for
    /// as long as too much is dirty.
    pub(crate) fn take_request(&self, store: &Store) -> bool {
        let for_memory = self.asked_for_memory.swap(false, Ordering::Relaxed) && self.delays(store);
        self.asked.swap(false, Ordering::Relaxed) || for_memory
    }

    /// Requests a checkpoint, which releases log.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Requests a checkpoint after a commit found no room on the disk. It releases log and pages for later
    /// commits.
    pub(crate) fn ask_for_room(&self, error: &Error) {
        if error.code() == Code::DiskFull {
            self.ask();
        }
    }

    /// Notes that a checkpoint ended, with its error if it failed. Requests made while it ran end with it:
    /// those commits counted two versions of what it wrote. A commit that still finds too much dirty requests
    /// another.
    pub(crate) fn checkpoint_ended(&self, failure: Option<Error>) {
        self.asked.store(false, Ordering::Relaxed);
        self.asked_for_memory.store(false, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        *locked(self.last_failure.lock()) = failure;
        self.wake();
    }

    /// Memory was relieved without a checkpoint: commits need not fail for one that failed before.
    pub(crate) fn relieved(&self) {
        *locked(self.last_failure.lock()) = None;
        self.wake();
    }

    /// Wakes all waiting commits to check again.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Whether so much is dirty that commits are delayed.
    pub(crate) fn delays(&self, store: &Store) -> bool {
        let meter = store.pages.meter();
        meter.unfreeable_bytes() >= meter.dirty_bounds().delay_from
    }

    /// Waits until this many more bytes can be dirty, for two checkpoints at most: other commits may take the
    /// room that these make.
    ///
    /// # Errors
    /// As [`Throttle::wait`].
    pub(crate) fn wait_for_room(
        &self,
        store: &Store,
        more_bytes: usize,
        usable: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let meter = store.pages.meter();
        let wait_at = meter.dirty_bounds().wait_at;
        let ended_before = self.ended.load(Ordering::Relaxed);
        let fits = || meter.unfreeable_bytes() + more_bytes < wait_at;
        while !self.stepped && !fits() && self.ended.load(Ordering::Relaxed) < ended_before + 2 {
            usable()?;
            self.asked.store(true, Ordering::Relaxed);
            self.pause(DELAY_US_MAX);
        }
        Ok(())
    }

    /// Takes the request to merge patches, if there is one.
    pub(crate) fn take_request_to_merge(&self) -> bool {
        self.asked_to_merge.swap(false, Ordering::Relaxed)
    }

    /// Patches were merged on request, or could not be.
    pub(crate) fn merged(&self, failure: Option<Error>) {
        {
            let mut merged = locked(self.merged.lock());
            *merged = (merged.0 + 1, failure);
        }
        self.wake();
    }

    /// Requests that patches are merged, and waits until that was done.
    ///
    /// # Errors
    /// That of the merge; any error of `usable`.
    pub(super) fn wait_for_merge(&self, usable: &dyn Fn() -> Result<()>) -> Result<()> {
        let merged_before = locked(self.merged.lock()).0;
        self.asked_to_merge.store(true, Ordering::Relaxed);
        if self.stepped {
            return Ok(());
        }
        loop {
            let (merged, failure) = locked(self.merged.lock()).clone();
            if merged != merged_before {
                return failure.map_or(Ok(()), Err);
            }
            usable()?;
            self.pause(DELAY_US_MAX);
        }
    }

    /// Waits while too much is dirty.
    ///
    /// # Errors
    /// `Full` if checkpoints fail for want of room, or the error with which they fail; any error of `usable`.
    pub(crate) fn wait(&self, store: &Store, usable: &dyn Fn() -> Result<()>) -> Result<()> {
        let meter = store.pages.meter();
        let (bytes, bounds) = (meter.unfreeable_bytes(), meter.dirty_bounds());
        if bytes < bounds.delay_from || self.stepped {
            return Ok(());
        }
        self.asked_for_memory.store(true, Ordering::Relaxed);
        let (begin, from, to) = (bounds.checkpoint_from, bounds.delay_from, bounds.wait_at);
        invariant!(begin <= from, "checkpoints begin at {begin} bytes, before commits are delayed at {from}");
        invariant!(from < to, "commits are delayed from {from} bytes and wait from {to}");
        let span = (bounds.wait_at - bounds.delay_from).max(1);
        let over = (bytes - bounds.delay_from).min(span) as u64;
        self.pause((DELAY_US_MAX * over / span as u64).max(50));
        while meter.unfreeable_bytes() >= bounds.wait_at {
            usable()?;
            if let Some(failure) = locked(self.last_failure.lock()).clone() {
                return Err(failure);
            }
            self.asked_for_memory.store(true, Ordering::Relaxed);
            self.pause(DELAY_US_MAX);
        }
        Ok(())
    }

    /// The bytes that must be kept back for the next checkpoint, if they are not.
    pub(super) fn lacks_room(&self, store: &Store, room_for: RoomFor) -> Option<u64> {
        let wanted = room_wanted(store, 0);
        let kept_back = store.space.kept_back_bytes();
        let there = match room_for {
            RoomFor::Puts => kept_back,
            RoomFor::Deletes => kept_back + reserve_bytes(store) + store.space.free_between_bytes() / 2,
        };
        (there < wanted).then_some(wanted)
    }

    /// Keeps this many bytes back.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn ensure_room(&self, store: &Store, bytes: u64) -> Result<()> {
        store.space.keep_back(bytes).map_err(|error| match error.code() {
            Code::DiskFull => {
                self.refused_for_room();
                Throttle::no_room(store, bytes)
            }
            _ => error,
        })
    }

    /// Something was refused since the disk has no room.
    pub(crate) fn refused_for_room(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Keeps the room back that the next checkpoint needs.
    ///
    /// # Errors
    /// `Full`.
    pub(crate) fn ensure_room_for_checkpoint(&self, store: &Store) -> Result<()> {
        self.ensure_room(store, room_wanted(store, 0))
    }

    /// The error of a transaction that found no room. This many bytes must be free for the next checkpoint.
    pub(crate) fn no_room(store: &Store, bytes: u64) -> Error {
        let path = store.pages.data().path();
        let message = format!(
            "no room for the transaction and the checkpoint after it: {bytes} bytes must be free in {} or on its disk",
            path.display()
        );
        Error::new(Code::DiskFull, message)
    }

    /// Makes room before commits need it, in the background.
    ///
    /// # Errors
    /// As [`Throttle::ensure_room`]. Commits meet the same error later.
    pub(crate) fn make_room_ahead(&self, store: &Store) -> Result<()> {
        let ahead = (store.pages.meter().dirty_bytes() / 4).max(AHEAD_BYTES_MIN);
        store.space.keep_back(room_wanted(store, ahead))
    }

    /// Pauses, so that other transactions can release memory.
    pub(crate) fn let_others_end(&self) {
        if !self.stepped {
            self.pause(DELAY_US_MAX);
        }
    }

    fn pause(&self, us: u64) {
        let state = locked(self.state.lock());
        drop(locked(self.changed.wait_timeout(state, Duration::from_micros(us))));
        self.delayed_us.fetch_add(us, Ordering::Relaxed);
    }
}

/// The room that the next checkpoint needs beside the space map; 0 if nothing is dirty.
pub(crate) fn checkpoint_bytes(store: &Store) -> u64 {
    let dirty = store.pages.meter().dirty_bytes() as u64;
    if dirty == 0 { 0 } else { dirty + dirty / 4 + reserve_bytes(store) }
}

/// The room that a checkpoint needs: dirty pages in whole blocks, a quarter more for fragmentation of free
/// blocks, the tree of roots, the space map, and the reserve.
fn room_wanted(store: &Store, more_bytes: usize) -> u64 {
    let dirty = (store.pages.meter().dirty_bytes() + more_bytes) as u64;
    dirty + dirty / 4 + store.space.map_bytes() + reserve_bytes(store)
}

/// Reserved for deletes, and for the error of the estimate of a checkpoint.
fn reserve_bytes(store: &Store) -> u64 {
    32 * store.geometry.block_bytes as u64
}
