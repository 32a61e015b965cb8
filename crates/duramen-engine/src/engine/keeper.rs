//! The work behind the scenes, in steps that threads or a simulation run: marks and background syncs, spare
//! segments, checkpoints, eviction, giving space back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::Disk;

use super::event::{Event, Events};
use super::feeding::Feeding;
use crate::catalog::Root;
use crate::checkpoint::{CheckpointAim, CheckpointError, CheckpointReport, Checkpointer, Store};
use crate::commit::{Committer, Dropped};
use crate::data_file::Location;
use crate::error::{Error, Result};
use crate::feed::Letting;
use crate::ids::{CommitSeq, TreeId};
use crate::limits::{MARK_IDLE_MS, PROCESS_SYNC_BYTES_MAX, PROCESS_SYNC_MS_MAX};
use crate::options::Options;
use crate::snapshot::Registration;
use crate::tree::sweep;
use crate::wal::SyncFailure;

const POISON: &str = "nothing panics while the keeper is locked";

/// A checkpoint starts when the log since the last one holds this part of the memory, or so many bytes: opening must read it.
const LOG_MEMORY_PART: u64 = 4;
const LOG_BYTES_MAX: u64 = 256 << 20;

/// Of the room kept ahead in the data file this much stays when the database is closed, and what the space map takes: the next
/// one to open it may find the disk full, and delete (D7).
const REST_SPARE_BYTES: u64 = 24 << 20;

/// While a segment is made, the log is looked after as often as at other times.
const LOG_TICK_NS: u64 = 10_000_000;

/// Memory is swept down to this part of its bound, in percent.
const SWEEP_TO_PERCENT: usize = 80;

/// What only snapshots hold is written out where sweeping leaves memory above this part of its bound, in percent.
const SPILL_FROM_PERCENT: usize = 90;

/// Pages that one checkpoint gives back are free when the second one after it is durable: that one and two more.
const SETTLING_CHECKPOINTS: u64 = 3;

/// Runs the work behind the scenes.
#[derive(Debug)]
pub struct Keeper {
    store: Arc<Store>,
    committer: Arc<Committer>,
    checkpointer: Checkpointer,
    disk: Arc<dyn Disk>,
    events: Events,
    memory_bytes: usize,
    checkpoint_log_bytes: u64,
    snapshot_space_bytes_max: Option<u64>,
    /// Where the eviction's hand stands: a tree and a key in it.
    hand: Mutex<(TreeId, Vec<u8>)>,
    /// The newest commit at the last look, and since when it has been the newest.
    idle_since: Mutex<(CommitSeq, u64)>,
    unsynced_since_ns: AtomicU64,
    checkpoints: AtomicU64,
    /// Checkpoints still to come, after the last dropped tree is gone, until its pages are free.
    settling: AtomicU64,
    /// The commit at which no dropped tree was found any more.
    rested_at: AtomicU64,
    /// The last failure told.
    told: Mutex<Option<String>>,
    told_poisoned: AtomicBool,
    /// Held from taking a root to forgetting what it gave back: a checkpoint of an older root after that of a newer one would
    /// need pages that the newer one has freed, and give back dropped trees twice (D3). Held while roots are spilled, too:
    /// between the two, pages of a newer root would be in the checkpoint's map.
    one_at_a_time: Mutex<()>,
    feeding: Feeding,
    /// What the feed has lost, to be told once nothing is locked.
    let_go: Mutex<Option<Event>>,
}

/// What a checkpoint is for.
#[derive(Debug, Clone, Copy)]
struct Aim {
    /// It is the last one of a clean close.
    clean: bool,
    /// Where the warm pages are listed.
    hot: Option<Location>,
    /// The other superblock is to name it, too; so many bytes are then kept ahead in the data file.
    twin_spare_bytes: Option<u64>,
}

impl Keeper {
    /// Over the parts of an open database.
    pub fn new(
        committer: &Arc<Committer>,
        checkpointer: Checkpointer,
        disk: &Arc<dyn Disk>,
        options: &Options,
        events: Events,
        feeding: Feeding,
    ) -> Keeper {
        Keeper {
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
            hand: Mutex::new((TreeId(0), Vec::new())),
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

    /// The newest checkpoint's keeper.
    pub fn checkpointer(&self) -> &Checkpointer {
        &self.checkpointer
    }

    /// The data file and what belongs to it.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// What snapshots see.
    pub fn published_root(&self) -> Arc<Root> {
        self.committer.published()
    }

    /// Writes a durable mark if none has been written since the last commit.
    ///
    /// # Errors
    /// What the log said.
    pub fn log_mark(&self) -> Result<()> {
        self.committer.mark().map(|_| ())
    }

    /// Writes ordered groups for which no call waits, and reports dropped commits.
    ///
    /// # Errors
    /// What writing it said.
    pub fn write_pending(&self) -> Result<()> {
        let written = self.committer.write_pending();
        self.tell_dropped();
        written
    }

    /// Reports dropped commits that were not reported yet.
    pub fn tell_dropped(&self) {
        if let Some(Dropped { count, after, why }) = self.committer.take_dropped() {
            self.tell(&Event::CommitsDropped { count, after, why });
        }
    }

    /// Tells an event. What is told while work in the background waits must not wait for that work.
    pub fn tell(&self, event: &Event) {
        self.committer.while_telling(|| self.events.tell(event));
    }

    /// Checkpoints since the database was opened.
    pub fn checkpoint_count(&self) -> u64 {
        self.checkpoints.load(Ordering::Relaxed)
    }

    /// Ends the work on the log that can be done later.
    pub fn end_preparing(&self) {
        self.committer.log().end_preparing();
    }

    /// Lets the work on the log go on without rests.
    pub fn hurry(&self) {
        self.committer.log().hurry();
    }

    /// Looks after the log: a mark after idleness, a sync for what only the kernel has, a segment to go on with.
    ///
    /// # Errors
    /// What the log said; a failed sync has poisoned the engine.
    pub fn log_step(&self) -> Result<()> {
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

    /// What is promised within a time: also on a slow disk, on which a segment takes many seconds.
    fn do_what_is_due(&self) -> Result<()> {
        let now = self.disk.monotonic_ns();
        // A group that has no room is not what is to be synced and marked: that was written before it.
        let written = self.write_pending();
        let published = self.committer.published().seq;
        let idle_ms = self.idle_ms(now, published);
        let synced = self.sync_weak(now, published);
        let marks = idle_ms >= MARK_IDLE_MS && self.committer.durable() >= published;
        let marked = if marks { self.committer.mark().map(drop) } else { Ok(()) };
        written.and(synced).and(marked)
    }

    /// For how long no commit has come, as far as these looks tell.
    fn idle_ms(&self, now: u64, published: CommitSeq) -> u64 {
        let mut idle = self.idle_since.lock().expect(POISON);
        if idle.0 != published || idle.1 == 0 {
            *idle = (published, now);
        }
        now.saturating_sub(idle.1) / 1_000_000
    }

    /// Commits at weaker levels are synced after a while, or after so many bytes.
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
    pub fn checkpoint_due(&self) -> bool {
        let meter = self.store.pages.meter();
        let asked = self.committer.throttle.take_request();
        let behind = self.committer.published().seq > self.checkpointer.superblock().replay.seq;
        (asked
            || meter.unfreeable_bytes() >= meter.dirty_bounds().checkpoint_from
            || self.committer.log_bytes() >= self.checkpoint_log_bytes)
            && (behind || asked)
    }

    /// Makes the published root the newest checkpoint, and frees and recycles what that allows.
    ///
    /// # Errors
    /// What writing said. A failed sync has poisoned the engine; otherwise it can be tried again.
    pub fn checkpoint(&self, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.tell_checkpoint(Aim { clean: false, hot: None, twin_spare_bytes: None }, between)
    }

    fn tell_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        self.committer.not_alone()?;
        self.tell(&Event::CheckpointBegins);
        let result = self.try_checkpoint(aim, between);
        let let_go = self.let_go.lock().expect(POISON).take();
        let_go.iter().for_each(|event| self.tell(event));
        if let Ok(report) = &result {
            self.tell(&Event::Checkpoint { seq: report.seq, written_bytes: report.written_bytes });
        }
        self.committer.throttle.checkpoint_ended(result.as_ref().err().cloned());
        result
    }

    /// Writes a checkpoint if one is due, and names it in both superblocks: the log before it can be used again at once, instead of
    /// more being made, and so can pages.
    ///
    /// # Errors
    /// As [`Keeper::checkpoint`].
    pub fn checkpoint_when_due(&self) -> Result<()> {
        if !self.checkpoint_due() {
            return Ok(());
        }
        let aim = Aim { clean: false, hot: None, twin_spare_bytes: Some(self.spare_bytes()) };
        self.tell_checkpoint(aim, &mut || ()).map(|_| ())
    }

    /// Writes the last checkpoint, and gives back what a database at rest does not need: what only the checkpoint before it
    /// held, room kept ahead, log segments.
    ///
    /// # Errors
    /// As [`Keeper::checkpoint`].
    pub fn last_checkpoint(&self, hot: Option<Location>) -> Result<()> {
        let rest = self.spare_bytes().min(REST_SPARE_BYTES + self.store.space.map_bytes());
        let aim = Aim { clean: true, hot, twin_spare_bytes: Some(rest) };
        self.tell_checkpoint(aim, &mut || ())?;
        // A group that is being written has looked at the ready segments already.
        let trimmed = self.committer.while_nobody_writes(|| self.committer.log().trim())?;
        trimmed.map_err(|SyncFailure(error)| {
            self.committer.poison(error.clone());
            error
        })
    }

    /// Room for the next checkpoint stays: see the throttle.
    fn spare_bytes(&self) -> u64 {
        self.memory_bytes as u64 / 4
    }

    fn try_checkpoint(&self, aim: Aim, between: &mut dyn FnMut()) -> Result<CheckpointReport> {
        if let Some(cause) = self.committer.poison_cause() {
            return Err(Error::poisoned(cause.message()));
        }
        let _alone = self.one_at_a_time.lock().expect(POISON);
        self.let_go_of_old_roots();
        let held = self.committer.hold_published();
        // No superblock for a commit that the log does not hold durably.
        self.committer.sync_through(held.root().seq)?;
        // Before the feed is copied: what is committed meanwhile is for the next checkpoint.
        let log_bytes = self.committer.restart_log_bytes();
        let retained = self.retain_for_feed(&held);
        retained.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        let Aim { clean, hot, twin_spare_bytes } = aim;
        let named = CheckpointAim { next_tree: self.committer.next_tree(), clean, hot };
        let written = self.write_once(&held, named, self.spare_bytes(), between);
        let mut report = written.inspect_err(|_| self.committer.add_log_bytes(log_bytes))?;
        // D3: what the first one reaped of a dropped tree, a second one of the same root would reap again.
        let reaps = held.root().trees.iter().any(|tree| tree.dropped_at.is_some());
        if let Some(spare_bytes) = twin_spare_bytes.filter(|_| !reaps) {
            // The checkpoint is durable all the same, and the older superblock has its own.
            match self.write_once(&held, named, spare_bytes, &mut || ()) {
                Ok(second) => report.written_bytes += second.written_bytes,
                Err(error) if self.committer.poison_cause().is_some() => return Err(error),
                Err(error) => self.failed(error),
            }
        }
        drop(held);
        self.store.pages.meter().sweep_anew();
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(report)
    }

    /// Before the superblock names what comes after it, the log and what only it names are there for the feed (D1, D3).
    fn retain_for_feed(&self, held: &Registration) -> Result<()> {
        match self.feeding.retain(&self.store, &self.checkpointer, &self.committer, held) {
            Ok(Letting { why: Some(why), through }) => {
                *self.let_go.lock().expect(POISON) = Some(Event::FeedLetGo { through, why });
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.poison_if_a_sync_failed(failure)),
        }
    }

    /// Lets go of changes that everybody has read, and takes writers again that were refused for their sake.
    ///
    /// # Errors
    /// `Corrupt` or `Io`; nothing is lost.
    pub fn review_feed(&self) -> Result<()> {
        if self.feeding.retained.is_empty() {
            return Ok(());
        }
        // A checkpoint looks itself.
        let Ok(_alone) = self.one_at_a_time.try_lock() else { return Ok(()) };
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

    /// Writes a checkpoint of a root. One of the root that the newest checkpoint has already costs its superblock, a few pages of
    /// the space map and two syncs; both superblocks agree then.
    fn write_once(
        &self,
        held: &Registration,
        aim: CheckpointAim,
        spare_bytes: u64,
        between: &mut dyn FnMut(),
    ) -> Result<CheckpointReport> {
        let mut sweep_too = || {
            self.sweep();
            between();
        };
        let written = self.checkpointer.run(held.root(), aim, &mut sweep_too);
        let report = written.map_err(|failure| self.poison_if_a_sync_failed(failure))?;
        self.committer.log().recycle(&report.keep_log_from);
        let reaped = self.checkpointer.reaped();
        if !reaped.is_empty() {
            self.committer.forget_trees(&reaped);
            let gone = |id: &TreeId| self.committer.published().trees.get(*id).is_none();
            self.checkpointer.forgotten(&reaped.into_iter().filter(gone).collect::<Vec<_>>());
        }
        self.give_space_back(spare_bytes)?;
        Ok(report)
    }

    /// A dropped tree gives its pages back a slice a checkpoint, and a checkpoint is of a commit. Where no commit comes, an
    /// empty one does, until all is given back and both superblocks agree.
    ///
    /// # Errors
    /// What the commit or the checkpoint said.
    pub fn reap_when_quiet(&self) -> Result<()> {
        let root = self.published_root();
        if root.seq > self.checkpointer.superblock().replay.seq
            || self.idle_ms(self.disk.monotonic_ns(), root.seq) < MARK_IDLE_MS
        {
            return Ok(());
        }
        // With many trees a look is not for nothing: one at each new root.
        if self.rested_at.load(Ordering::Relaxed) == root.seq.0 {
            return Ok(());
        }
        if root.trees.iter().any(|tree| tree.dropped_at.is_some()) {
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
            && let Some(oldest) = self.store.registry.held().iter().min()
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
    /// `Full`; the commits will say so themselves.
    pub fn make_room(&self) -> Result<()> {
        self.committer.throttle.make_room_ahead(&self.store)
    }

    /// Lets go of nodes that were not used lately, until memory is within its bound.
    pub fn sweep(&self) {
        let meter = self.store.pages.meter();
        if !meter.sweep_due() {
            return;
        }
        let root = self.published_root();
        // Whoever comes while somebody sweeps goes on without.
        let Ok(mut hand) = self.hand.try_lock() else { return };
        self.store.registry.let_go_before(root.seq);
        if self.store.registry.roots().iter().all(|held| held.seq >= root.seq) {
            self.checkpointer.let_go_of_replaced(&root);
        }
        // Twice around: the first time takes the notes of use away.
        for _ in 0..2 {
            self.sweep_root(&root, &mut hand);
            if meter.eviction_target(SWEEP_TO_PERCENT) == 0 {
                break;
            }
            self.sweep_older_roots(root.seq);
        }
        meter.swept();
    }

    /// What was replaced since an older root was registered stays in memory through it alone.
    fn sweep_older_roots(&self, newest: CommitSeq) {
        let meter = self.store.pages.meter();
        let enough = || meter.eviction_target(SWEEP_TO_PERCENT) == 0;
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            for slot in root.trees.iter().filter_map(|tree| tree.slot.as_ref()) {
                if sweep(slot, &[], &enough).is_some() {
                    return;
                }
            }
        }
    }

    /// Lets go of roots that are only kept for a next reader.
    pub fn let_go_of_old_roots(&self) {
        self.store.registry.let_go_before(self.committer.published().seq);
    }

    /// Lets go of nodes that only older snapshots hold, writing those that have no place first.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub fn spill_snapshots(&self) -> Result<()> {
        // What only older roots hold counts as dirty, and no checkpoint writes it: who waits for less must not wait for ever.
        let commits_are_delayed = self.committer.throttle.delays(&self.store);
        if self.store.pages.meter().excess(SPILL_FROM_PERCENT) == 0 && !commits_are_delayed {
            return Ok(());
        }
        // Not between taking a checkpoint's root and writing it: what is written of a newer root would be in the checkpoint's map,
        // and after a power cut nothing would lead to it.
        let Ok(_alone) = self.one_at_a_time.try_lock() else { return Ok(()) };
        let newest = self.committer.published().seq;
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            // Nobody would ever give back what is written for commits that never happened.
            if !self.committer.is_kept(root) {
                continue;
            }
            self.checkpointer.spill(root, &mut || ())?;
        }
        self.store.pages.meter().sweep_anew();
        self.sweep();
        Ok(())
    }

    fn sweep_root(&self, root: &Root, hand: &mut (TreeId, Vec<u8>)) {
        let meter = self.store.pages.meter();
        let enough = || meter.eviction_target(SWEEP_TO_PERCENT) == 0;
        let start_tree = hand.0;
        let ahead = root.trees.iter().filter(|tree| tree.id >= start_tree);
        let behind = root.trees.iter().filter(|tree| tree.id <= start_tree);
        for tree in ahead.chain(behind) {
            let Some(slot) = &tree.slot else { continue };
            let start = if hand.0 == tree.id { std::mem::take(&mut hand.1) } else { Vec::new() };
            if enough() {
                *hand = (tree.id, start);
                return;
            }
            let resume = sweep(slot, &start, &enough);
            let stopped = resume.is_some();
            *hand = (tree.id, resume.unwrap_or_default());
            if stopped {
                return;
            }
        }
        if let Some(roots) = self.checkpointer.roots() {
            sweep(&roots, &[], &enough);
        }
        *hand = (TreeId(0), Vec::new());
    }

    /// Tells of a failure that nobody waits for: once, however often the same step fails for the same reason.
    pub fn failed(&self, error: Error) {
        let told = self.told.lock().expect(POISON).replace(error.message().to_owned());
        if told.as_deref() != Some(error.message()) {
            self.tell(&Event::BackgroundFailed(error));
        }
    }

    /// Ends commits: the work behind the scenes cannot go on.
    pub fn give_up(&self, error: Error) {
        self.committer.poison(error);
        self.is_poisoned();
    }

    /// Tells, once, that nothing is acknowledged any more; says whether that is so.
    pub fn is_poisoned(&self) -> bool {
        let Some(cause) = self.committer.poison_cause() else { return false };
        if !self.told_poisoned.swap(true, Ordering::Relaxed) {
            self.tell(&Event::Poisoned(cause.clone()));
        }
        true
    }
}
