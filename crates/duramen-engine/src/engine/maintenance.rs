//! Maintenance in steps, run by threads or by a simulation: durable watermarks, background syncs, spare
//! segments, checkpoints, eviction, and giving space back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::Disk;

use super::event::{Event, Events};
use super::feeding::Feeding;
use crate::alarm::{Wakes, invariant, locked, locked_if_free};
use crate::catalog::Root;
use crate::checkpoint::{CheckpointAim, CheckpointError, CheckpointReport, Checkpointer, Store};
use crate::commit::{Committer, Dropped};
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::feed::Letting;
use crate::ids::{CommitSeq, TreeId};
use crate::limits::{MARK_IDLE_MS, PROCESS_SYNC_BYTES_MAX, PROCESS_SYNC_MS_MAX};
use crate::options::Options;
use crate::snapshot::Registration;
use crate::tree::evict;
use crate::wal::SyncFailure;

/// A checkpoint starts when the log since the last one exceeds this part of the memory, or this many bytes.
/// Opening must read that log.
const LOG_MEMORY_PART: u64 = 4;
const LOG_BYTES_MAX: u64 = 256 << 20;

/// A clean close keeps this much free room in the data file, and that of the space map. The next open may
/// find the disk full, and must still delete (D7).
const REST_SPARE_BYTES: u64 = 24 << 20;

/// While a segment is made, the other work on the log runs at this interval.
const LOG_TICK_NS: u64 = 10_000_000;

/// Eviction stops at this percentage of the memory bound.
const EVICT_TO_PERCENT: usize = 80;

/// Nodes that only snapshots hold are written back while memory stays above this percentage of its bound
/// after eviction.
const WRITE_BACK_FROM_PERCENT: usize = 90;

const _: () =
    assert!(EVICT_TO_PERCENT < WRITE_BACK_FROM_PERCENT, "an eviction that succeeds writes nothing back");
const _: () = assert!(LOG_TICK_NS < MARK_IDLE_MS * 1_000_000, "a segment being made delays no watermark");
const _: () = assert!(MARK_IDLE_MS < PROCESS_SYNC_MS_MAX, "the limits are looked at often enough");

/// Pages reclaimed by one checkpoint are free once the second checkpoint after it is durable.
const SETTLING_CHECKPOINTS: u64 = 3;

/// Runs the maintenance of an open database (`Maintenance`).
#[derive(Debug)]
pub(super) struct Maintenance {
    store: Arc<Store>,
    committer: Arc<Committer>,
    checkpointer: Checkpointer,
    disk: Arc<dyn Disk>,
    events: Events,
    memory_bytes: usize,
    checkpoint_log_bytes: u64,
    snapshot_space_bytes_max: Option<u64>,
    /// The eviction lock, and the position where the next eviction starts: a tree and a key in it.
    eviction: Mutex<(TreeId, Vec<u8>)>,
    /// The newest commit seen last, and since when it has been the newest.
    idle_since: Mutex<(CommitSeq, u64)>,
    unsynced_since_ns: AtomicU64,
    checkpoints: AtomicU64,
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
    /// Losses of the feed, to be reported once no lock is held.
    let_go: Mutex<Option<Event>>,
}

/// The purpose of a checkpoint.
#[derive(Debug, Clone, Copy)]
struct Aim {
    /// It is the last one, of a clean close.
    clean: bool,
    /// The list of hot pages.
    hot: Option<PagePointer>,
    /// The other superblock names this checkpoint, too. This many bytes are then kept free ahead in the data
    /// file.
    twin_spare_bytes: Option<u64>,
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
            memory_bytes: options.memory_bytes,
            checkpoint_log_bytes: options
                .checkpoint_log_bytes
                .unwrap_or(LOG_BYTES_MAX.min(options.memory_bytes as u64 / LOG_MEMORY_PART)),
            snapshot_space_bytes_max: options.snapshot_space_bytes_max,
            eviction: Mutex::new((TreeId(0), Vec::new())),
            idle_since: Mutex::new((CommitSeq(0), 0)),
            unsynced_since_ns: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            settling: AtomicU64::new(0),
            rested_at: AtomicU64::new(u64::MAX),
            told: Mutex::new(None),
            told_poisoned: AtomicBool::new(false),
            one_at_a_time: Mutex::new(()),
            feeding,
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
        }
        now.saturating_sub(idle.1) / 1_000_000
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

    /// Whether a checkpoint should start now.
    pub(super) fn checkpoint_due(&self) -> bool {
        let meter = self.store.pages.meter();
        let asked = self.committer.throttle.take_request();
        let lags = self.committer.published().seq > self.checkpointer.superblock().replay.seq;
        (asked
            || meter.unfreeable_bytes() >= meter.dirty_bounds().checkpoint_from
            || self.committer.log_bytes() >= self.checkpoint_log_bytes)
            && (lags || asked)
    }

    /// Makes the published root the newest checkpoint, then frees pages and recycles log as far as that
    /// allows.
    ///
    /// # Errors
    /// Any error of writing it. A failed sync has poisoned the engine; otherwise it can be tried again.
    pub(super) fn checkpoint(&self, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.tell_checkpoint(Aim { clean: false, hot: None, twin_spare_bytes: None }, between)
    }

    fn tell_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.committer.not_alone()?;
        self.tell(&Event::CheckpointBegins);
        let result = self.try_checkpoint(aim, between);
        let let_go = locked(self.let_go.lock()).take();
        let_go.iter().for_each(|event| self.tell(event));
        for error in self.checkpointer.take_unreclaimed() {
            self.tell(&Event::BackgroundFailed(error));
        }
        if let Ok(report) = &result {
            self.tell(&Event::Checkpoint { seq: report.seq, written_bytes: report.written_bytes });
        }
        self.committer.throttle.checkpoint_ended(result.as_ref().err().cloned());
        result
    }

    /// Writes a checkpoint if one is due, and names it in both superblocks. The log before it and the pages
    /// it replaced can then be reused at once.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub(super) fn checkpoint_when_due(&self) -> Result<()> {
        if !self.checkpoint_due() {
            return Ok(());
        }
        let aim = Aim { clean: false, hot: None, twin_spare_bytes: Some(self.spare_bytes()) };
        self.tell_checkpoint(aim, &mut || ()).map(|_| ())
    }

    /// Writes the last checkpoint and gives back what a closed database does not need: pages that only the
    /// previous checkpoint held, room kept ahead, and log segments.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub(super) fn last_checkpoint(&self, hot: Option<PagePointer>) -> Result<()> {
        let rest = self.spare_bytes().min(REST_SPARE_BYTES + self.store.space.map_bytes());
        let aim = Aim { clean: true, hot, twin_spare_bytes: Some(rest) };
        self.tell_checkpoint(aim, &mut || ())?;
        // Only while no group is written: a group on its way has already chosen its segments.
        let trimmed = self.committer.as_leader(|| self.committer.log().trim())?;
        trimmed.map_err(|SyncFailure(error)| {
            self.committer.poison(error.clone());
            error
        })
    }

    /// The room kept free for the next checkpoint; see the throttle.
    fn spare_bytes(&self) -> u64 {
        self.memory_bytes as u64 / 4
    }

    fn try_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        let _within = self.store.alarm.enter();
        let _alone = locked(self.one_at_a_time.lock());
        self.store.alarm.check()?;
        self.let_go_of_old_roots();
        let held = self.committer.hold_published();
        // The superblock may name only commits that are durable in the log.
        self.committer.sync_through(held.root().seq).map_err(Error::of_no_commit)?;
        let (end, durable) = (held.root().position.get().copied(), self.committer.durable());
        let named = end.map(|end| end.seq);
        let is_durable = named.is_some_and(|named| named <= durable);
        invariant!(is_durable, "a superblock names {named:?}, and {durable} is durable");
        // Before copying for the feed: log written meanwhile counts for the next checkpoint.
        let log_bytes = self.committer.restart_log_bytes();
        let retained = self.retain_for_feed(&held);
        retained.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        let Aim { clean, hot, twin_spare_bytes } = aim;
        let named = CheckpointAim { next_tree: self.committer.next_tree(), clean, hot };
        let written = self.write_once(&held, named, self.spare_bytes(), between);
        let mut report = written.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        // D3: a second checkpoint of the same root would reclaim the same slice of a dropped tree again.
        let reclaims = held.root().trees.iter().any(|tree| tree.dropped_at.is_some());
        if let Some(spare_bytes) = twin_spare_bytes.filter(|_| !reclaims) {
            // The first checkpoint is durable all the same, and the older superblock keeps its own.
            match self.write_once(&held, named, spare_bytes, &mut || ()) {
                Ok(second) => {
                    let twin = second.keep_log_from;
                    invariant!(Some(twin) == end, "both superblocks replay from {end:?}, not {twin:?}");
                    report.written_bytes += second.written_bytes;
                }
                Err(error) if self.committer.poison_cause().is_some() => return Err(error),
                Err(error) => self.failed(error),
            }
        }
        drop(held);
        self.store.pages.meter().evict_again();
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(report)
    }

    /// Keeps the log, and what only the log names, for the feed. This comes before the superblock names a
    /// later replay position (D1, D3).
    fn retain_for_feed(&self, held: &Registration) -> Result<()> {
        match self.feeding.retain(&self.store, &self.checkpointer, &self.committer, held) {
            Ok(Letting { why: Some(why), through }) => {
                *locked(self.let_go.lock()) = Some(Event::FeedLetGo { through, why });
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.poison_if_a_sync_failed(failure)),
        }
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

    /// Writes a checkpoint of a root. If the newest checkpoint already has that root, it costs a superblock,
    /// a few pages of the space map and two syncs. Both superblocks agree then.
    fn write_once(
        &self,
        held: &Registration,
        aim: CheckpointAim,
        spare_bytes: u64,
        between: &mut dyn FnMut(),
    ) -> Result<CheckpointReport> {
        let mut evict_too = || {
            self.evict();
            between();
        };
        let written = self.checkpointer.run(held.root(), aim, &mut evict_too);
        let report = written.map_err(|failure| self.poison_if_a_sync_failed(failure))?;
        self.committer.log().recycle(&report.keep_log_from);
        let reclaimed = self.checkpointer.reclaimed();
        if !reclaimed.is_empty() {
            self.committer.forget_trees(&reclaimed);
            let gone = |id: &TreeId| self.committer.published().trees.get(*id).is_none();
            self.checkpointer.forgotten(&reclaimed.into_iter().filter(gone).collect::<Vec<_>>());
        }
        self.give_space_back(spare_bytes)?;
        Ok(report)
    }

    /// Makes an empty commit and a checkpoint while dropped trees are not reclaimed and no other commit
    /// comes. Each checkpoint reclaims one slice. It continues until everything is reclaimed and both
    /// superblocks agree.
    ///
    /// # Errors
    /// Any error of the commit or the checkpoint.
    pub(super) fn reclaim_when_quiet(&self) -> Result<()> {
        let root = self.published_root();
        if root.seq > self.checkpointer.superblock().replay.seq
            || self.idle_ms(self.disk.monotonic_ns(), root.seq) < MARK_IDLE_MS
        {
            return Ok(());
        }
        // Checking every tree costs O(trees), so it is done once for each root.
        if self.rested_at.load(Ordering::Relaxed) == root.seq.0 {
            return Ok(());
        }
        // One with a page that cannot be read waits for the checkpoints of other commits.
        if root.trees.iter().any(|tree| tree.dropped_at.is_some() && self.checkpointer.can_reclaim(tree.id)) {
            self.settling.store(SETTLING_CHECKPOINTS, Ordering::Relaxed);
        } else if self.settling.load(Ordering::Relaxed) == 0 {
            self.rested_at.store(root.seq.0, Ordering::Relaxed);
            return Ok(());
        }
        self.committer.submit_nothing()?;
        self.checkpoint(&mut || ())?;
        self.settling.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_space_back(&self, spare_bytes: u64) -> Result<()> {
        let held_blocks = self.checkpointer.release();
        let held_bytes = held_blocks * self.store.geometry.block_bytes as u64;
        if self.snapshot_space_bytes_max.is_some_and(|max| held_bytes > max)
            && let Some(oldest) = oldest_before(&self.store.registry.held(), self.checkpointer.freed_to())
        {
            self.store.registry.expire_before(oldest.next());
            self.checkpointer.release();
        }
        self.store.space.cut_tail(spare_bytes)?;
        // The checkpoint is durable all the same.
        if let Err(error) = self.store.space.punch(spare_bytes) {
            self.failed(error);
        }
        Ok(())
    }

    /// Makes room on the disk before commits need it.
    ///
    /// # Errors
    /// `Full`. Commits fail with the same error later.
    pub(super) fn make_room(&self) -> Result<()> {
        self.committer.throttle.make_room_ahead(&self.store)
    }

    /// Evicts nodes that were not used lately, until memory is within its bound.
    pub(super) fn evict(&self) {
        let meter = self.store.pages.meter();
        if !meter.eviction_due() {
            return;
        }
        let _within = self.store.alarm.enter();
        let root = self.published_root();
        // A thread that finds an eviction running goes on without one.
        let Some(mut hand) = locked_if_free(self.eviction.try_lock()) else { return };
        self.store.registry.let_go_before(root.seq);
        if self.store.registry.roots().iter().all(|held| held.seq >= root.seq) {
            self.checkpointer.let_go_of_replaced(&root);
        }
        // Two rounds: the first clears the use bits.
        for _ in 0..2 {
            self.evict_from(&root, &mut hand);
            if meter.eviction_target(EVICT_TO_PERCENT) == 0 {
                break;
            }
            self.evict_from_older_roots(root.seq);
        }
        meter.evicted();
    }

    /// Evicts from older registered roots. Nodes replaced since then stay in memory only through them.
    fn evict_from_older_roots(&self, newest: CommitSeq) {
        let meter = self.store.pages.meter();
        let enough = || meter.eviction_target(EVICT_TO_PERCENT) == 0;
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            for slot in root.trees.iter().filter_map(|tree| tree.slot.as_ref()) {
                if evict(slot, &[], &enough).is_some() {
                    return;
                }
            }
        }
    }

    /// Drops roots that are kept only for the next reader.
    pub(super) fn let_go_of_old_roots(&self) {
        self.store.registry.let_go_before(self.committer.published().seq);
    }

    /// Evicts nodes that only older snapshots hold. Nodes without a page pointer are written back first.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(super) fn write_back_snapshots(&self) -> Result<()> {
        // Nodes that only older roots hold count as dirty, and no checkpoint writes them. Without this,
        // commits could wait for ever.
        let commits_are_delayed = self.committer.throttle.delays(&self.store);
        if self.store.pages.meter().excess(WRITE_BACK_FROM_PERCENT) == 0 && !commits_are_delayed {
            return Ok(());
        }
        let _within = self.store.alarm.enter();
        // Not while a checkpoint has taken its root and not written it. Pages of a newer root would be in its
        // space map, and leak after a power cut.
        let Some(_alone) = locked_if_free(self.one_at_a_time.try_lock()) else { return Ok(()) };
        let newest = self.committer.published().seq;
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            // Pages written for dropped commits would never be freed.
            if !self.committer.is_kept(root) {
                continue;
            }
            self.checkpointer.write_back(root, &mut || ())?;
        }
        self.store.pages.meter().evict_again();
        self.evict();
        Ok(())
    }

    fn evict_from(&self, root: &Root, hand: &mut (TreeId, Vec<u8>)) {
        let meter = self.store.pages.meter();
        let enough = || meter.eviction_target(EVICT_TO_PERCENT) == 0;
        let start_tree = hand.0;
        let ahead = root.trees.iter().filter(|tree| tree.id >= start_tree);
        let before = root.trees.iter().filter(|tree| tree.id <= start_tree);
        for tree in ahead.chain(before) {
            let Some(slot) = &tree.slot else { continue };
            let start = if hand.0 == tree.id { std::mem::take(&mut hand.1) } else { Vec::new() };
            if enough() {
                *hand = (tree.id, start);
                return;
            }
            let resume = evict(slot, &start, &enough);
            let stopped = resume.is_some();
            *hand = (tree.id, resume.unwrap_or_default());
            if stopped {
                return;
            }
        }
        if let Some(roots) = self.checkpointer.roots() {
            evict(&roots, &[], &enough);
        }
        *hand = (TreeId(0), Vec::new());
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

/// The oldest of the held roots that holds space which is otherwise free: one before the checkpoint of the
/// older superblock. Later roots hold nothing, and new snapshots share the newest of them.
pub(super) fn oldest_before(held: &[CommitSeq], freed_to: CommitSeq) -> Option<CommitSeq> {
    held.iter().copied().filter(|held| *held < freed_to).min()
}
