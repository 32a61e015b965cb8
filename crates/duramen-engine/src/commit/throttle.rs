//! Slowing commits down while memory fills, and keeping room on the disk for the worst checkpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::checkpoint::Store;
use crate::error::{Code, Error, Result};

const POISON: &str = "nothing panics while the throttle is locked";

const DELAY_US_MAX: u64 = 5000;

/// Room is made for at least this much more than is dirty, before commits need it.
const AHEAD_BYTES_MIN: usize = 1024 * 1024;

/// Keeps dirty memory and disk space within their bounds.
#[derive(Debug)]
pub struct Throttle {
    memory_bytes: usize,
    stepped: bool,
    state: Mutex<()>,
    changed: Condvar,
    last_failure: Mutex<Option<Error>>,
    delayed_us: AtomicU64,
    asked: AtomicBool,
    /// Checkpoints that ended, well or not.
    ended: AtomicU64,
}

impl Throttle {
    /// For a memory target; `stepped` never waits.
    #[must_use]
    pub fn new(memory_bytes: usize, stepped: bool) -> Throttle {
        Throttle {
            memory_bytes,
            stepped,
            state: Mutex::new(()),
            changed: Condvar::new(),
            last_failure: Mutex::new(None),
            delayed_us: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            ended: AtomicU64::new(0),
        }
    }

    /// The memory target.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Microseconds that commits were held up so far.
    pub fn delayed_us(&self) -> u64 {
        self.delayed_us.load(Ordering::Relaxed)
    }

    /// Whether a commit waits for a checkpoint; asking takes the request.
    pub fn take_request(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// A checkpoint is to let go of log.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// A commit found no room on the disk: a checkpoint lets go of log and of pages, for those that come later.
    pub fn ask_for_room(&self, error: &Error) {
        if error.code() == Code::DiskFull {
            self.ask();
        }
    }

    /// A checkpoint ended: with success, or with the reason why there is none. It was asked for while it ran, by commits that
    /// saw two versions of what it wrote: who still finds too much dirty asks again.
    pub fn checkpoint_ended(&self, failure: Option<Error>) {
        self.asked.store(false, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed);
        *self.last_failure.lock().expect(POISON) = failure;
        self.wake();
    }

    /// Lets everybody look again.
    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Whether so much is dirty that commits are delayed.
    pub fn delays(&self, store: &Store) -> bool {
        let meter = store.pages.meter();
        meter.unfreeable_bytes() >= meter.dirty_bounds().delay_from
    }

    /// Waits until so many bytes more can be dirty, for two checkpoints at most: other commits may take the room that these make.
    ///
    /// # Errors
    /// As [`Throttle::wait`].
    pub fn wait_for_room(
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

    /// Waits while too much is dirty.
    ///
    /// # Errors
    /// `Full` if checkpoints fail for want of room, and what else they say; what `usable` says meanwhile.
    pub fn wait(&self, store: &Store, usable: &dyn Fn() -> Result<()>) -> Result<()> {
        let meter = store.pages.meter();
        let (bytes, bounds) = (meter.unfreeable_bytes(), meter.dirty_bounds());
        if bytes < bounds.delay_from || self.stepped {
            return Ok(());
        }
        self.asked.store(true, Ordering::Relaxed);
        let span = (bounds.wait_at - bounds.delay_from).max(1);
        let over = (bytes - bounds.delay_from).min(span) as u64;
        self.pause((DELAY_US_MAX * over / span as u64).max(50));
        while meter.unfreeable_bytes() >= bounds.wait_at {
            usable()?;
            if let Some(failure) = self.last_failure.lock().expect(POISON).clone() {
                return Err(failure);
            }
            self.asked.store(true, Ordering::Relaxed);
            self.pause(DELAY_US_MAX);
        }
        Ok(())
    }

    /// The bytes that must be kept back for the next checkpoint, if they are not. What only deletes may use the reserve that
    /// is never lent to others, and what is free between the blocks in use.
    pub fn lacks_room(&self, store: &Store, only_deletes: bool) -> Option<u64> {
        let wanted = room_wanted(store, 0);
        let kept_back = store.space.kept_back_bytes();
        let there = if only_deletes {
            kept_back + reserve_bytes(store) + store.space.free_between_bytes() / 2
        } else {
            kept_back
        };
        (there < wanted).then_some(wanted)
    }

    /// Makes sure that so many bytes are kept back.
    ///
    /// # Errors
    /// `Full`.
    pub fn ensure_room(&self, store: &Store, bytes: u64) -> Result<()> {
        store.space.keep_back(bytes).map_err(|error| match error.code() {
            Code::DiskFull => Throttle::no_room(),
            _ => error,
        })
    }

    /// The error of a transaction that found no room.
    pub fn no_room() -> Error {
        Error::new(Code::DiskFull, "no room for the transaction and the checkpoint after it")
    }

    /// Makes room ahead of the commits, in the background.
    ///
    /// # Errors
    /// As [`Throttle::ensure_room`]; the commits will say it themselves.
    pub fn make_room_ahead(&self, store: &Store) -> Result<()> {
        let ahead = (store.pages.meter().dirty_bytes() / 4).max(AHEAD_BYTES_MIN);
        store.space.keep_back(room_wanted(store, ahead))
    }

    /// Waits a little for other transactions to let go of memory.
    pub fn let_others_end(&self) {
        if !self.stepped {
            self.pause(DELAY_US_MAX);
        }
    }

    fn pause(&self, us: u64) {
        let state = self.state.lock().expect(POISON);
        drop(self.changed.wait_timeout(state, Duration::from_micros(us)).expect(POISON));
        self.delayed_us.fetch_add(us, Ordering::Relaxed);
    }
}

/// A checkpoint writes what is dirty (already counted in whole blocks), more of it where runs of free blocks do not fit,
/// the tree of roots, and the space map.
fn room_wanted(store: &Store, more_bytes: usize) -> u64 {
    let dirty = (store.pages.meter().dirty_bytes() + more_bytes) as u64;
    dirty + dirty / 4 + store.space.map_bytes() + reserve_bytes(store)
}

/// Kept for deletes, and for what an estimate of a checkpoint may be wrong by.
fn reserve_bytes(store: &Store) -> u64 {
    32 * store.geometry.block_bytes as u64
}
