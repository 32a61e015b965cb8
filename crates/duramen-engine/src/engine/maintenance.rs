//! Maintenance in steps, run by threads or by a simulation: durable watermarks, background syncs and spare
//! segments here; checkpoints, eviction and room in the data file in the files below.

mod checkpoints;
mod eviction;
mod merging;
mod space;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;
use std::time::Duration;

use duramen_disk::Disk;

pub(super) use self::space::oldest_before;
use super::ages::Ages;
use super::event::{Event, Events};
use super::feeding::Feeding;
use crate::alarm::{Wakes, locked, locked_if_free};
use crate::catalog::Root;
use crate::checkpoint::{CheckpointError, Checkpointer, Store};
use crate::commit::{Committer, Dropped};
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::{MARK_IDLE_MS, PROCESS_SYNC_BYTES_MAX, PROCESS_SYNC_MS_MAX};
use crate::options::Options;

/// While a segment is made, the other work on the log runs at this interval.
const LOG_TICK_NS: u64 = 10_000_000;

const _: () = assert!(LOG_TICK_NS < MARK_IDLE_MS * 1_000_000, "a segment being made delays no watermark");
const _: () = assert!(MARK_IDLE_MS < PROCESS_SYNC_MS_MAX, "the limits are looked at often enough");

/// Runs the maintenance of an open database (`Maintenance`).
#[derive(Debug)]
pub(super) struct Maintenance {
    store: Arc<Store>,
    committer: Arc<Committer>,
    checkpointer: Checkpointer,
    disk: Arc<dyn Disk>,
    events: Events,
    checkpoint_log_bytes: Option<u64>,
    snapshot_space_bytes_max: Option<u64>,
    /// The eviction lock, and the position where the next eviction starts: a tree and a key in it.
    eviction: Mutex<(TreeId, Vec<u8>)>,
    /// The newest commit seen last, and since when it has been the newest.
    idle_since: Mutex<(CommitSeq, u64)>,
    ages: Mutex<Ages>,
    unsynced_since_ns: AtomicU64,
    checkpoints: AtomicU64,
    leaves_merged: AtomicU64,
    /// Checkpoints still to write, after the last dropped tree is gone, until its pages are free.
    settling: AtomicU64,
    /// The commit at which no dropped tree was left.
    rested_at: AtomicU64,
    /// The message of the last reported failure.
    told: Mutex<Option<String>>,
    told_poisoned: AtomicBool,
    /// Held from taking a root until its reclaimed trees are forgotten. A checkpoint of an older root after a
    /// newer one would need pages that the newer one freed, and would reclaim dropped trees twice (D3). Also
    /// held while roots are written back: otherwise the checkpoint's space map could hold pages of a newer
    /// root.
    one_at_a_time: Mutex<()>,
    feeding: Feeding,
    /// Held through a compaction, while user code learns of its progress too. A close waits for it.
    compacting: Mutex<()>,
    /// The thread that holds it.
    compactor: Mutex<Option<ThreadId>>,
    /// Losses of the feed, to be reported once no lock is held.
    let_go: Mutex<Option<Event>>,
}

/// The right to compact.
#[derive(Debug)]
pub(super) struct CompactionLock<'a> {
    compactor: &'a Mutex<Option<ThreadId>>,
    _lock: MutexGuard<'a, ()>,
}

impl Drop for CompactionLock<'_> {
    fn drop(&mut self) {
        *locked(self.compactor.lock()) = None;
    }
}

impl Maintenance {
    /// Maintenance over the parts of an open database.
    pub(super) fn new(
        committer: &Arc<Committer>,
        checkpointer: Checkpointer,
        disk: &Arc<dyn Disk>,
        options: &Options,
        events: Events,
        feeding: Feeding,
    ) -> Maintenance {
        Maintenance {
            store: Arc::clone(committer.store()),
            committer: Arc::clone(committer),
            checkpointer,
            disk: Arc::clone(disk),
            events,
            checkpoint_log_bytes: options.checkpoint_log_bytes,
            snapshot_space_bytes_max: options.snapshot_space_bytes_max,
            eviction: Mutex::new((TreeId(0), Vec::new())),
            idle_since: Mutex::new((CommitSeq(0), 0)),
            ages: Mutex::default(),
            unsynced_since_ns: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            leaves_merged: AtomicU64::new(0),
            settling: AtomicU64::new(0),
            rested_at: AtomicU64::new(u64::MAX),
            told: Mutex::new(None),
            told_poisoned: AtomicBool::new(false),
            one_at_a_time: Mutex::new(()),
            feeding,
            compacting: Mutex::default(),
            compactor: Mutex::default(),
            let_go: Mutex::default(),
        }
    }

    /// The checkpointer of this database.
    pub(super) fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    /// The data file and the state that belongs to it.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The published root.
    pub(super) fn published_root(&self) -> Arc<Root> {
        self.committer.published()
    }

    /// Writes a durable watermark, if none was written since the last commit.
    ///
    /// # Errors
    /// Any error of the log.
    pub(super) fn log_mark(&self) -> Result<()> {
        self.committer.mark().map(|_| ())
    }

    /// Writes groups for which no call waits, and reports dropped commits.
    ///
    /// # Errors
    /// Any error of writing a group.
    pub(super) fn write_pending(&self) -> Result<()> {
        let written = self.committer.write_pending();
        self.tell_dropped();
        written
    }

    /// Reports dropped commits that were not reported yet.
    pub(super) fn tell_dropped(&self) {
        if let Some(Dropped { count, after, why }) = self.committer.take_dropped() {
            self.tell(&Event::CommitsDropped { count, after, why });
        }
    }

    /// Sends an event to the hook. The hook must not wait for work of the calling thread: such calls fail
    /// inside it.
    pub(super) fn tell(&self, event: &Event) {
        self.committer.while_telling(|| self.events.tell(event));
    }

    /// Number of checkpoints since the database was opened.
    pub(super) fn checkpoint_count(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    /// Number of leaves merged with their patches since the database was opened.
    pub(super) fn merged_count(&self) -> u64 {
        self.leaves_merged.load(Ordering::Relaxed)
    }

    /// Stops work on the log that can be done later.
    pub(super) fn end_preparing(&self) {
        self.committer.log().end_preparing();
    }

    /// Lets work on the log run without rests.
    pub(super) fn hurry(&self) {
        self.committer.log().hurry();
    }

    /// Does the due work on the log: a watermark when idle, a sync of unsynced commits, a spare segment.
    ///
    /// # Errors
    /// Any error of the log. A failed sync has poisoned the engine.
    pub(super) fn log_step(&self) -> Result<()> {
        let _within = self.store.alarm.enter();
        self.do_what_is_due()?;
        let log = self.committer.log();
        if !log.needs_spare() {
            return Ok(());
        }
        let was_refused = log.is_refused();
        let mut done = Ok(());
        let made = log.prepare_spare(&mut |rest_ns| {
            let mut left_ns = rest_ns;
            loop {
                let due = self.do_what_is_due();
                done = std::mem::replace(&mut done, Ok(())).and(due);
                let ns = left_ns.min(LOG_TICK_NS);
                left_ns -= ns;
                if ns == 0 || !log.rest(ns) {
                    return;
                }
            }
        });
        // Openings after kills have taken the spares of a full disk. A checkpoint gives some back (D7).
        if !was_refused && log.is_refused() && !log.has_spare() {
            self.committer.throttle.ask();
        }
        done.and(made)
    }

    /// Does what is promised within a time limit. It also runs while a segment is made, which takes many
    /// seconds on a slow disk.
    fn do_what_is_due(&self) -> Result<()> {
        let now = self.disk.monotonic_ns();
        // A failure to write a group for want of room does not stop the sync and the watermark of earlier
        // commits.
        let written = self.write_pending();
        let published = self.committer.published().seq;
        let idle_ms = self.idle_ms(now, published);
        let synced = self.sync_weak(now, published);
        let marks = idle_ms >= MARK_IDLE_MS && self.committer.durable() >= published;
        let marked = if marks { self.committer.mark().map(drop) } else { Ok(()) };
        written.and(synced).and(marked)
    }

    /// For how long no commit has been published, as far as these calls can tell.
    fn idle_ms(&self, now: u64, published: CommitSeq) -> u64 {
        let mut idle = locked(self.idle_since.lock());
        if idle.0 != published || idle.1 == 0 {
            *idle = (published, now);
            locked(self.ages.lock()).note(published, now);
        }
        now.saturating_sub(idle.1) / 1_000_000
    }

    /// For how long a commit has not been the newest, at least; `None` if it is, or if that is not known.
    pub(super) fn age_of(&self, seq: CommitSeq) -> Option<Duration> {
        locked(self.ages.lock()).of(seq, self.disk.monotonic_ns())
    }

    /// The right to compact: one thread at a time has it.
    pub(super) fn compaction_lock(&self) -> Option<CompactionLock<'_>> {
        let lock = locked_if_free(self.compacting.try_lock())?;
        *locked(self.compactor.lock()) = Some(std::thread::current().id());
        Some(CompactionLock { compactor: &self.compactor, _lock: lock })
    }

    /// Whether this thread compacts, and so is in the function that learns of its progress.
    pub(super) fn compacts_here(&self) -> bool {
        *locked(self.compactor.lock()) == Some(std::thread::current().id())
    }

    /// Waits until a running compaction ends. After a close it ends at its next step.
    pub(super) fn wait_for_compaction(&self) {
        drop(locked(self.compacting.lock()));
    }

    /// Syncs commits below level `Disk` after a time, or after a number of bytes.
    fn sync_weak(&self, now: u64, published: CommitSeq) -> Result<()> {
        if self.committer.durable() >= published {
            self.unsynced_since_ns.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let since = self.unsynced_since_ns.load(Ordering::Relaxed);
        if since == 0 {
            self.unsynced_since_ns.store(now, Ordering::Relaxed);
        }
        let waited_ms = if since == 0 { 0 } else { now.saturating_sub(since) / 1_000_000 };
        if waited_ms >= PROCESS_SYNC_MS_MAX || self.committer.unsynced_bytes() >= PROCESS_SYNC_BYTES_MAX {
            self.committer.sync_through(published)?;
            self.unsynced_since_ns.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.store.pages.meter().memory_bytes() as u64
    }

    /// Releases changes that all consumers have read. Accepts writers again if they were refused for their
    /// sake.
    ///
    /// # Errors
    /// `Corrupt` or `Io`; nothing is lost.
    pub(super) fn review_feed(&self) -> Result<()> {
        if self.feeding.retained.is_empty() {
            return Ok(());
        }
        // A running checkpoint reviews the feed itself.
        let _within = self.store.alarm.enter();
        let Some(_alone) = locked_if_free(self.one_at_a_time.try_lock()) else { return Ok(()) };
        self.feeding.review(&self.committer).map_err(|failure| self.poison_if_a_sync_failed(failure))
    }

    fn poison_if_a_sync_failed(&self, failure: CheckpointError) -> Error {
        match failure {
            CheckpointError::Failed(error) => error,
            CheckpointError::Poison(error) => {
                self.committer.poison(error.clone());
                error
            }
        }
    }

    /// Reports a failure of the background. A step that fails repeatedly for the same reason is reported
    /// once.
    pub(super) fn failed(&self, error: Error) {
        let told = locked(self.told.lock()).replace(error.message().to_owned());
        if told.as_deref() != Some(error.message()) {
            self.tell(&Event::BackgroundFailed(error));
        }
    }

    /// Ends commits, since maintenance cannot go on.
    pub(super) fn give_up(&self, error: Error) {
        self.committer.poison(error);
        self.is_poisoned();
    }

    /// Returns whether the engine is poisoned, and reports that once.
    pub(super) fn is_poisoned(&self) -> bool {
        let Some(cause) = self.committer.poison_cause() else { return false };
        if !self.told_poisoned.swap(true, Ordering::Relaxed) {
            // A thread that raised the alarm under a lock has woken no callback.
            self.committer.wake(Wakes::All);
            self.tell(&Event::Poisoned(cause.clone()));
        }
        true
    }
}
