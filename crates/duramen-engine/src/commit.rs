//! Commits: many writers, one order, one log, and one sync for all commits that arrived during the last sync.
//!
//! Stage one runs under the order lock, in the committing thread, without the disk. It validates, takes a
//! sequence, applies the changes to the latest root (`latest`), and joins the forming group. Stage two runs
//! in one leader at a time, with no lock held. It writes the group, syncs if a member wants it, publishes,
//! hands leadership on, and wakes the members.
//!
//! These promises rest here: D1 (a commit is acknowledged only after its sync), D2 and I1 (one order), D6 (a
//! failed sync poisons the engine), and D7 (a group that does not fit is dropped whole).

mod apply;
mod changes;
mod group;
mod order;
mod reads;
mod recent;
#[cfg(test)]
mod tests;
mod throttle;
mod wait;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::alarm::{Wakes, invariant, locked};
use crate::catalog::Root;
use crate::checkpoint::Store;
use crate::data_file::PagePointer;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::options::Durability;
use crate::page_cache::Buffered;
use crate::snapshot::{Idle, Newest, Registration};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::wal::Log;

pub(crate) use apply::{Applied, Applying, apply_changes, named};
pub(crate) use changes::{Changes, ENTRY_BYTES, OwnedValue, RecordChange, decode_record};
pub(crate) use group::Dropped;
pub(crate) use reads::Reads;
pub(crate) use throttle::Throttle;
pub(crate) use watch::Watch;
pub use watch::Woken;

use group::Forming;
use order::conflict;
use recent::Recent;

/// The commit pipeline of an open database.
#[derive(Debug)]
pub(crate) struct Committer {
    store: Arc<Store>,
    log: Log,
    /// The published root: what new snapshots read.
    published: Newest,
    /// The latest root: every ordered commit, published or not. New transactions start from it.
    latest: Newest,
    order: Mutex<Order>,
    /// The leadership condition: signalled when leadership changes or something becomes durable.
    turn: Condvar,
    durable: AtomicU64,
    /// Wakes readers of the change feed that wait for `durable`.
    pub watch: Watch,
    /// Why writers are refused: the change feed has no room for what it must keep.
    feed_refusal: RwLock<Option<Error>>,
    refuses: AtomicBool,
    marked: AtomicU64,
    unsynced_bytes: AtomicU64,
    log_bytes: AtomicU64,
    process: u32,
    closed: AtomicBool,
    next_tree: AtomicU64,
    /// Delays commits while memory fills.
    pub throttle: Throttle,
    commits: AtomicU64,
    conflicts: AtomicU64,
    compared: AtomicU64,
    empty: AtomicU64,
    groups: AtomicU64,
    dropped: AtomicU64,
    /// Dropped commits that have not been reported yet.
    unreported: Mutex<Option<Dropped>>,
}

/// A position in the commit order. Sequences of a group dropped for want of room are reused; the rollback
/// epoch (`rollback_epoch`) tells the two uses apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ordered {
    /// The sequence.
    pub seq: CommitSeq,
    rollback_epoch: u64,
}

#[derive(Debug)]
struct Order {
    forming: Forming,
    recent: Recent,
    leading: bool,
    rollback_epoch: u64,
    /// Threads that wait on [`Committer::turn`]. At zero, no thread is notified.
    turn_waiters: usize,
}

/// A transaction ready to commit.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The registered root that it read. Validation may have to read it again.
    pub base: Registration,
    /// What it read there.
    pub reads: Reads,
    /// What it writes.
    pub changes: Changes,
    /// The memory charged for its writes.
    pub buffered: Buffered,
    /// Pages of the big values it wrote, already durable.
    pub values: Vec<PagePointer>,
    /// The level that it waits for.
    pub level: Durability,
    /// It advances a consumer of the feed, and is accepted while other writers are refused.
    pub serves_feed: bool,
    /// Where it waits.
    pub wait: Wait,
}

/// Where a commit waits for its durability level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Inside the committing call.
    Here,
    /// Nowhere until its receipt is waited on. The group is written by the next leader, at the latest at the
    /// background's next tick. It becomes visible when it is published, as any other commit.
    Later,
}

/// Counters of the pipeline since the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions refused because something they read had changed.
    pub conflicts: u64,
    /// Validations of transactions older than the recent commits kept in memory. What they had read was
    /// compared value by value.
    pub compared: u64,
    /// Empty commits. The engine makes them when no other commit arrives, so that dropped trees give back
    /// their pages.
    pub empty: u64,
    /// Groups written.
    pub groups: u64,
    /// Commits that returned at level `Memory` and were dropped later: the log had no room for their group.
    /// [`Event::CommitsDropped`](crate::Event::CommitsDropped) reports them.
    pub dropped: u64,
    /// Newest commit that survives a power cut.
    pub durable: CommitSeq,
    /// Newest commit that snapshots see.
    pub published: CommitSeq,
}

impl Ordered {
    /// The position of the last commit of a root.
    #[must_use]
    pub(crate) fn of(root: &Root) -> Ordered {
        Ordered { seq: root.seq, rollback_epoch: root.rollback_epoch }
    }
}

impl Committer {
    /// Continues after `root`, which is durable and published.
    #[must_use]
    pub(crate) fn new(
        store: Arc<Store>,
        log: Log,
        root: Root,
        next_tree: TreeId,
        throttle: Throttle,
    ) -> Committer {
        let seq = root.seq;
        let place = root.position.get().map(|position| position.seq);
        invariant!(place.is_some_and(|place| place >= seq), "the log holds root {seq}: it ends at {place:?}");
        let recent_bytes = throttle.memory_bytes() / 32;
        let root = Arc::new(root);
        Committer {
            store,
            log,
            published: Newest::new(Arc::clone(&root)),
            latest: Newest::new(root),
            order: Mutex::new(Order {
                forming: Forming::default(),
                recent: Recent::new(seq, recent_bytes),
                leading: false,
                rollback_epoch: 0,
                turn_waiters: 0,
            }),
            turn: Condvar::new(),
            durable: AtomicU64::new(seq.0),
            watch: Watch::default(),
            feed_refusal: RwLock::new(None),
            refuses: AtomicBool::new(false),
            marked: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            process: duramen_disk::process_id(),
            closed: AtomicBool::new(false),
            next_tree: AtomicU64::new(next_tree.0),
            throttle,
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unreported: Mutex::new(None),
        }
    }

    /// The data file and the state that belongs to it.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The published root, which new snapshots read.
    pub(crate) fn published(&self) -> Arc<Root> {
        self.published.get()
    }

    /// Registers the published root.
    pub(crate) fn hold_published(&self) -> Registration {
        self.store.registry.register(&self.published)
    }

    /// The latest root, on which a new transaction builds.
    pub(crate) fn latest(&self) -> Arc<Root> {
        self.latest.get()
    }

    /// Registers the latest root.
    pub(crate) fn hold_latest(&self) -> Registration {
        self.store.registry.register(&self.latest)
    }

    /// As [`Committer::hold_latest`], for a caller that holds the order lock: it drops the second value after
    /// unlocking.
    fn hold_latest_and_leave(&self) -> (Registration, Idle) {
        self.store.registry.register_and_leave(&self.latest)
    }

    /// The log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Newest commit that survives a power cut.
    pub(crate) fn durable(&self) -> CommitSeq {
        CommitSeq(self.durable.load(Ordering::SeqCst))
    }

    /// Bytes written to the log since the last checkpoint began.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// Starts counting for the next checkpoint. Returns what was counted for the one that begins now.
    pub(crate) fn restart_log_bytes(&self) -> u64 {
        self.log_bytes.swap(0, Ordering::Relaxed)
    }

    /// Adds log bytes behind the newest checkpoint: those of a checkpoint that failed, or those found at
    /// open.
    pub(crate) fn add_log_bytes(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Opening found the log durable up to a commit, which may not be in the trees yet.
    pub(crate) fn found_durable(&self, seq: CommitSeq) {
        let published = self.published().seq;
        invariant!(published <= seq, "what opening published is durable: {published}, {seq}");
        self.durable.fetch_max(seq.0, Ordering::SeqCst);
        self.watch.wake();
    }

    /// Refuses writers, or accepts them again. Writers are refused while the change feed must keep more than
    /// its bound.
    pub(crate) fn refuse_writers(&self, why: Option<Error>) {
        self.refuses.store(why.is_some(), Ordering::Release);
        *locked(self.feed_refusal.write()) = why;
    }

    /// Fails for a transaction that puts something while writers are refused, unless it advances a consumer
    /// of the feed.
    fn not_refused(&self, submission: &Submission) -> Result<()> {
        if !self.refuses.load(Ordering::Acquire)
            || submission.serves_feed
            || submission.changes.only_deletes()
        {
            return Ok(());
        }
        match &*locked(self.feed_refusal.read()) {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// A new tree id. An id is never used twice.
    pub(crate) fn new_tree_id(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    /// A lower bound for the ids of new trees.
    pub(crate) fn next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::Relaxed))
    }

    /// The counters.
    pub(crate) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.commits.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            compared: self.compared.load(Ordering::Relaxed),
            empty: self.empty.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            durable: self.durable(),
            published: self.published().seq,
        }
    }

    /// Fails in a process that was forked from the one that opened the database. Otherwise both would write.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn same_process(&self) -> Result<()> {
        if self.process == duramen_disk::process_id() { Ok(()) } else { Err(Error::forked()) }
    }

    /// Whether commits are accepted.
    ///
    /// # Errors
    /// `Poisoned` after a failed sync; `Invalid` after a close.
    pub(crate) fn usable(&self) -> Result<()> {
        self.not_poisoned()?;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(Code::Closed, "the database is closed").with_hint("open it again"));
        }
        Ok(())
    }

    /// Whether the engine is free of failures after which nothing may be acknowledged.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn not_poisoned(&self) -> Result<()> {
        self.store.alarm.check()
    }

    /// The first failure that poisoned the engine, if one did.
    pub(crate) fn poison_cause(&self) -> Option<&Error> {
        self.store.alarm.cause()
    }

    /// Poisons the engine after a failed sync: nothing is acknowledged from now on (D6).
    pub(crate) fn poison(&self, cause: Error) {
        self.store.alarm.raise(cause);
        self.wake(Wakes::All);
    }

    /// Wakes those that wait, to check again whether they may go on.
    pub(crate) fn wake(&self, wakes: Wakes) {
        self.throttle.wake();
        self.turn.notify_all();
        match wakes {
            Wakes::Threads => self.watch.wake_threads(),
            Wakes::All => self.watch.wake(),
        }
    }

    /// Refuses all further commits.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.throttle.wake();
        self.watch.wake();
    }

    /// Whether a commit survives a power cut.
    pub(crate) fn reached_disk(&self, ordered: Ordered) -> bool {
        // `durable` must be read first. A commit that reuses a dropped sequence becomes durable only after
        // the drop.
        self.durable() >= ordered.seq && self.still_there(ordered).is_ok()
    }

    /// Waits until a commit survives a power cut.
    ///
    /// # Errors
    /// `Full` if it was dropped because the log had no room; `InDoubt` or `Poisoned` if the sync fails.
    pub(crate) fn wait_disk(&self, ordered: Ordered) -> Result<()> {
        let _within = self.store.alarm.enter();
        self.wait_written(ordered)?;
        self.sync_through(ordered.seq)?;
        invariant!(self.reached_disk(ordered), "commit {} was waited for and is durable", ordered.seq);
        Ok(())
    }

    /// Whether a root is free of dropped commits.
    pub(crate) fn is_kept(&self, root: &Root) -> bool {
        self.store.registry.is_kept(root.seq, root.rollback_epoch)
    }

    fn still_there(&self, ordered: Ordered) -> Result<()> {
        if self.store.registry.is_kept(ordered.seq, ordered.rollback_epoch) {
            return Ok(());
        }
        Err(Error::new(
            Code::DiskFull,
            format!("the log had no room for commit {}: it never happened", ordered.seq),
        ))
    }

    /// Ends a transaction that wrote nothing. Waits until what it read is published, and durable at level
    /// `Disk`.
    ///
    /// # Errors
    /// As [`Committer::wait_disk`].
    pub(crate) fn finish_read(&self, root: &Root, level: Durability) -> Result<Ordered> {
        let read = Ordered::of(root);
        self.wait_written(read)
            .map_err(|error| if error.code() == Code::DiskFull { conflict() } else { error })?;
        if level == Durability::Disk {
            self.sync_through(read.seq)?;
        }
        Ok(read)
    }

    /// Waits until everything published up to a commit survives a power cut.
    ///
    /// # Errors
    /// `InDoubt` or `Poisoned` if the sync fails.
    pub(crate) fn sync_through(&self, seq: CommitSeq) -> Result<()> {
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        loop {
            let mut order = self.lock();
            if self.durable() >= seq {
                return Ok(());
            }
            self.not_poisoned()?;
            order.forming.wants_sync = true;
            if order.leading {
                drop(self.wait_turn(order));
                continue;
            }
            order.leading = true;
            drop(order);
            match self.lead() {
                // A group without room does not matter here: the commit waited for may have been written long
                // ago. With that group dropped, the next round syncs it.
                Err(error) if self.poison_cause().is_some() => return Err(error),
                _ => {}
            }
        }
    }

    /// Writes and syncs a durable watermark, unless the last one covers every durable commit or commits are
    /// on their way. Returns whether it did.
    ///
    /// # Errors
    /// As [`Committer::sync_through`].
    pub(crate) fn mark(&self) -> Result<bool> {
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let durable = self.durable();
        if CommitSeq(self.marked.load(Ordering::Relaxed)) >= durable {
            return Ok(false);
        }
        {
            let mut order = self.lock();
            if order.leading || !order.forming.is_empty() || self.poison_cause().is_some() {
                return Ok(false);
            }
            order.leading = true;
        }
        let marked = catch_unwind(AssertUnwindSafe(|| {
            let (marked, known) = (self.marked.load(Ordering::Relaxed), self.durable());
            invariant!(marked <= known.0, "what was marked is durable: {marked}, {known}");
            let marked = self.log.write_mark(durable);
            marked.map_err(|error| self.log_failed(&error)).and_then(|_| self.sync_log())
        }));
        if marked.is_err() {
            self.store.alarm.raise_after_panic();
        }
        let result = marked.as_ref().map_or_else(|_| self.not_poisoned(), Clone::clone);
        if result.is_ok() {
            self.marked.store(durable.0, Ordering::Relaxed);
        }
        if self.hand_on() {
            self.write_unwaited();
        }
        if let Err(panic) = marked {
            resume_unwind(panic);
        }
        result.map(|()| true)
    }

    /// Removes fully reclaimed dropped trees from the roots. This is no commit: no reader can see the
    /// difference.
    pub(crate) fn forget_trees(&self, ids: &[TreeId]) {
        let _within = self.store.alarm.enter();
        let order = self.lock();
        let without = |root: &Root| {
            let mut trees = root.trees.clone();
            ids.iter().for_each(|id| trees.set(*id, None));
            let position = root.position.clone();
            Arc::new(Root { seq: root.seq, rollback_epoch: root.rollback_epoch, trees, position })
        };
        if order.leading || !order.forming.is_empty() {
            return;
        }
        self.check_all_published();
        let root = without(&self.latest());
        self.latest.set(Arc::clone(&root));
        self.published.set(root);
    }

    /// Installs the root of the deferred redo, with the log's tail in its trees. Nothing was ordered before
    /// it.
    pub(crate) fn replayed(&self, root: &Arc<Root>) {
        let _within = self.store.alarm.enter();
        let mut order = self.lock();
        invariant!(order.forming.is_empty(), "nothing is ordered before the log is in the trees");
        self.check_all_published();
        let (seq, before, durable) = (root.seq, self.published().seq, self.durable());
        invariant!(before < seq, "the log leads from {before} on, to {seq}");
        invariant!(seq <= durable, "the log was durable through {seq} before it was read, not {durable}");
        order.recent = Recent::new(root.seq, self.throttle.memory_bytes() / 32);
        self.latest.set(Arc::clone(root));
        self.published.set(Arc::clone(root));
    }

    /// Nothing is ordered and not published. The caller holds the order lock, no thread leads, and no commit
    /// has joined the forming group.
    fn check_all_published(&self) {
        let (latest, published) = (self.latest().seq, self.published().seq);
        invariant!(latest == published, "the latest root {latest} is the published one, {published}");
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        locked(self.order.lock())
    }

    /// Waits until a commit is published. It is in the log then.
    ///
    /// # Errors
    /// `Full` if it was dropped because the log had no room; `Poisoned`.
    pub(crate) fn wait_written(&self, ordered: Ordered) -> Result<()> {
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let mut order = self.lock();
        loop {
            let still_there = self.still_there(ordered);
            if still_there.is_ok() && self.published().seq >= ordered.seq {
                return Ok(());
            }
            // Checked before the commit is reported as dropped: what a failed sync has dropped may be on the
            // disk.
            self.not_poisoned()?;
            still_there?;
            if order.leading {
                order = self.wait_turn(order);
                continue;
            }
            order.leading = true;
            drop(order);
            self.lead()?;
            order = self.lock();
        }
    }

    fn wait_turn<'a>(&'a self, mut order: MutexGuard<'a, Order>) -> MutexGuard<'a, Order> {
        order.turn_waiters += 1;
        let mut order = locked(self.turn.wait(order));
        order.turn_waiters -= 1;
        order
    }

    /// Wakes the threads that wait for a change of leadership or for durability.
    fn call_turn(&self, order: MutexGuard<'_, Order>) {
        let waiters = order.turn_waiters;
        drop(order);
        if waiters > 0 {
            self.turn.notify_all();
        }
    }
}
