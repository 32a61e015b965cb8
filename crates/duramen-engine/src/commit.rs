//! Commits: many writers, one order, one log, and one sync for all commits that arrived during the last sync.
//!
//! Stage one (`order`) runs under the order lock, without the disk. It validates, takes a sequence, applies
//! the changes to the latest root (`latest`), and joins the forming group. One thread at a time does this,
//! for its own commit and for those that other threads have queued meanwhile (`requests`, `serve`). Stage two
//! runs in one leader at a time, with no lock held (`lead`). It writes the group, syncs if a member wants it
//! and publishes (`pipeline`), hands leadership on, and wakes the members. `watermarks` has what is durable;
//! `levels` waits for it. `admission` and `throttle` refuse and delay commits, `alone` runs one without
//! others, `drops` counts those that were dropped after their calls had returned.
//!
//! These promises rest here: D1 (a commit is acknowledged only after its sync), D2 and I1 (one order), D6 (a
//! failed sync poisons the engine), and D7 (a group that does not fit is dropped whole).

mod admission;
mod alone;
mod apply;
mod changes;
mod conditions;
mod drops;
mod group;
mod key_map;
mod lead;
mod levels;
mod order;
mod order_lock;
mod pipeline;
mod reads;
mod recent;
mod relocate;
mod replica;
mod requests;
mod serve;
#[cfg(test)]
mod tests;
mod throttle;
mod timings;
mod wait;
mod watch;
mod watermarks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::alarm::{Wakes, invariant};
use crate::catalog::Root;
use crate::checkpoint::Store;
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::options::Durability;
use crate::page_cache::Buffered;
use crate::snapshot::{Idle, Newest, Registration};
use crate::wal::Log;

pub(crate) use apply::{Applied, Applying, apply_changes, named};
pub(crate) use changes::{Changes, ENTRY_BYTES, OwnedValue, RecordChange, decode_record};
pub use conditions::Condition;
pub(crate) use conditions::Conditions;
pub(crate) use drops::Dropped;
pub(crate) use reads::Reads;
pub(crate) use relocate::{MovedRange, MovedValue, Relocation};
pub(crate) use replica::members;
pub use replica::{Fate, Proposer, Role};
pub(crate) use throttle::{Throttle, checkpoint_bytes};
pub(crate) use timings::Timed;
pub use timings::{HotKey, SlowCommit, Timings};
pub(crate) use watch::Watch;
pub use watch::Woken;

use admission::Admission;
use drops::Drops;
use order_lock::OrderLock;
use pipeline::Pipeline;
use recent::Recent;
use replica::time::OrderClock;

/// The commits of an open database.
#[derive(Debug)]
pub(crate) struct Committer {
    store: Arc<Store>,
    admission: Admission,
    /// Delays commits while memory fills.
    pub throttle: Throttle,
    order: OrderLock,
    /// The latest root: every ordered commit, published or not. New transactions start from it.
    latest: Newest,
    pipeline: Pipeline,
    drops: Drops,
    counters: Counters,
    next_tree: AtomicU64,
    /// A majority decides on the commits.
    is_replica: AtomicBool,
    /// What it does then, and how far it is.
    standing: Arc<replica::Standing>,
    order_clock: OrderClock,
}

/// Counters of [`CommitStats`]; the others are in `pipeline` and `drops`.
#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    conflicts: AtomicU64,
    compared: AtomicU64,
    empty: AtomicU64,
}

/// A position in the commit order. Sequences of a group dropped for want of room are reused; the rollback
/// epoch (`rollback_epoch`) tells the two uses apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ordered {
    /// The sequence.
    pub seq: CommitSeq,
    rollback_epoch: u64,
}

/// A transaction ready to commit.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The registered root that it read. Validation may have to read it again.
    pub base: Registration,
    /// What it read there.
    pub reads: Reads,
    /// What must hold when it takes its place in the order.
    pub conditions: Conditions,
    /// What it writes.
    pub changes: Changes,
    /// The memory charged for its writes.
    pub buffered: Buffered,
    /// Pages of the big values it wrote, already durable.
    pub values: Vec<PagePointer>,
    /// What it moves, if it is a commit of compaction: it changes nothing then.
    pub relocation: Option<Relocation>,
    /// The level that it waits for.
    pub level: Durability,
    /// It advances a consumer of the feed, and is accepted while other writers are refused.
    pub serves_feed: bool,
    /// It frees more than it takes, and may use the room that is kept for deletes.
    pub frees_room: bool,
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

/// Counters of commits since the database was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitStats {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions refused because something they read had changed.
    pub conflicts: u64,
    /// Validations of transactions older than the recent commits kept in memory. What they had read was
    /// compared value by value.
    pub compared: u64,
    /// Empty commits. The engine makes them to compact, and when no other commit arrives, so that dropped
    /// trees give back their pages.
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
        let root = Arc::new(root);
        Committer {
            admission: Admission::new(Arc::clone(&store.alarm)),
            order: OrderLock::new(seq),
            latest: Newest::new(Arc::clone(&root)),
            pipeline: Pipeline::new(Arc::clone(&store), log, root),
            drops: Drops::default(),
            counters: Counters::default(),
            next_tree: AtomicU64::new(next_tree.0),
            is_replica: AtomicBool::new(false),
            standing: Arc::default(),
            order_clock: OrderClock::default(),
            store,
            throttle,
        }
    }

    /// The data file and the state that belongs to it.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The published root, which new snapshots read.
    pub(crate) fn published(&self) -> Arc<Root> {
        self.pipeline.published.get()
    }

    /// Registers the published root.
    pub(crate) fn hold_published(&self) -> Registration {
        self.store.registry.register(&self.pipeline.published)
    }

    /// The latest root, on which a new transaction builds.
    pub(crate) fn latest(&self) -> Arc<Root> {
        self.latest.get()
    }

    /// Registers the latest root.
    pub(crate) fn hold_latest(&self) -> Registration {
        self.store.registry.register(&self.latest)
    }

    /// Registers a root whose commits are all in the log: the published one, or the latest if it has no
    /// others. They differ after a group was dropped: the published root is of the rollback epoch before, and
    /// what begins there conflicts.
    pub(crate) fn hold_in_log(&self) -> Registration {
        let published = self.hold_published();
        let latest = self.hold_latest();
        if latest.root().seq == published.root().seq { latest } else { published }
    }

    /// Registers the root that a transaction begins with: what it reads is decided, in a node of a cluster.
    pub(crate) fn hold_to_begin(&self) -> Registration {
        if self.is_replica() { self.hold_published() } else { self.hold_latest() }
    }

    /// As [`Committer::hold_latest`], for a caller that holds the order lock. The caller must drop the second
    /// value only after unlocking: that may free much memory.
    fn hold_latest_and_leave(&self) -> (Registration, Idle) {
        self.store.registry.register_and_leave(&self.latest)
    }

    /// How long commits take.
    pub(crate) fn timed(&self) -> &Timed {
        &self.pipeline.timed
    }

    /// The log.
    pub(crate) fn log(&self) -> &Log {
        &self.pipeline.log
    }

    /// Newest commit that is acknowledged, if it waited for a power cut to be survived: by this disk, or by
    /// those of a majority.
    pub(crate) fn acknowledged_through(&self) -> CommitSeq {
        if self.is_replica() { self.published().seq } else { self.durable() }
    }

    /// Newest commit that survives a power cut of this machine alone.
    pub(crate) fn durable(&self) -> CommitSeq {
        self.pipeline.watermarks.durable()
    }

    /// Bytes written to the log since the last checkpoint began.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.pipeline.watermarks.log_bytes()
    }

    /// Starts counting for the next checkpoint. Returns what was counted for the one that begins now.
    pub(crate) fn restart_log_bytes(&self) -> u64 {
        self.pipeline.watermarks.restart_log_bytes()
    }

    /// Adds log bytes after the newest checkpoint: those of a checkpoint that failed, or those found at
    /// open.
    pub(crate) fn add_log_bytes(&self, bytes: u64) {
        self.pipeline.watermarks.add_log_bytes(bytes);
    }

    /// Opening found the log durable up to a commit, which may not be in the trees yet.
    pub(crate) fn found_durable(&self, seq: CommitSeq) {
        let published = self.published().seq;
        invariant!(published <= seq, "what opening published is durable: {published}, {seq}");
        self.pipeline.note_durable(seq);
    }

    /// Refuses writers, or accepts them again. Writers are refused while the change feed must keep more than
    /// its bound.
    pub(crate) fn refuse_writers(&self, why: Option<Error>) {
        self.admission.refuse_writers(why);
    }

    /// A new tree id. An id is never used twice.
    pub(crate) fn new_tree_id(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    /// The next tree gets this id: in a copy that keeps those of the original.
    pub(crate) fn set_next_tree(&self, next: TreeId) {
        self.next_tree.store(next.0, Ordering::Relaxed);
    }

    /// Another node has given tree ids below this one.
    pub(crate) fn raise_next_tree(&self, next: TreeId) {
        self.next_tree.fetch_max(next.0, Ordering::Relaxed);
    }

    /// A lower bound for the ids of new trees.
    pub(crate) fn next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Ordering::Relaxed))
    }

    /// The counters.
    pub(crate) fn stats(&self) -> CommitStats {
        CommitStats {
            commits: self.counters.commits.load(Ordering::Relaxed),
            conflicts: self.counters.conflicts.load(Ordering::Relaxed),
            compared: self.counters.compared.load(Ordering::Relaxed),
            empty: self.counters.empty.load(Ordering::Relaxed),
            groups: self.pipeline.group_count(),
            dropped: self.drops.count(),
            durable: self.durable(),
            published: self.published().seq,
        }
    }

    /// Bytes of the log that were written and not synced.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.pipeline.watermarks.unsynced_bytes()
    }

    /// Wakes readers of the change feed that wait for a durable commit.
    pub(crate) fn watch(&self) -> &Watch {
        &self.pipeline.watch
    }

    /// Takes the count of commits dropped after their calls had returned, since the last call.
    pub(crate) fn take_dropped(&self) -> Option<Dropped> {
        self.drops.take()
    }

    /// Fails in a process that was forked from the one that opened the database. Otherwise both would write.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn same_process(&self) -> Result<()> {
        self.admission.same_process()
    }

    /// Whether commits are accepted.
    ///
    /// # Errors
    /// `Poisoned` after a failed sync; `Invalid` after a close.
    pub(crate) fn usable(&self) -> Result<()> {
        self.admission.usable()
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

    /// Poisons the engine after a failed sync: nothing is acknowledged from now on (D6). The caller may hold
    /// locks, so the callbacks of the program are left to the background.
    pub(crate) fn poison(&self, cause: Error) {
        self.store.alarm.raise(cause);
    }

    /// Wakes those that wait, to check again whether they may go on.
    pub(crate) fn wake(&self, wakes: Wakes) {
        self.throttle.wake();
        self.order.wake();
        match wakes {
            Wakes::Threads => self.pipeline.watch.wake_threads(),
            Wakes::All => self.pipeline.watch.wake(),
        }
    }

    /// Refuses all further commits.
    pub(crate) fn close(&self) {
        self.admission.close();
        self.throttle.wake();
        self.pipeline.watch.wake();
    }

    /// Makes the big values that were written durable. D1: extents must be before a frame names them.
    ///
    /// # Errors
    /// `Poisoned` if the sync fails.
    pub(crate) fn sync_values(&self) -> Result<()> {
        self.store.pages.data().sync().map_err(|error| {
            self.poison(error.clone());
            Error::poisoned(error.message())
        })
    }

    /// Whether a root is free of dropped commits.
    pub(crate) fn is_kept(&self, root: &Root) -> bool {
        self.store.registry.is_kept(root.seq, root.rollback_epoch)
    }

    /// Removes fully reclaimed dropped trees from the roots. This is no commit: no reader can see the
    /// difference.
    pub(crate) fn forget_trees(&self, ids: &[TreeId]) {
        let _within = self.store.alarm.enter();
        let order = self.order.lock();
        if order.is_led() || !order.forming.is_empty() || order.is_closed() {
            return;
        }
        self.check_all_published();
        // The published one: its end in the log may be a later frame than that of its last commit. After a
        // drop the latest one is of a later epoch.
        let published = self.published();
        let mut trees = published.trees.clone();
        ids.iter().for_each(|id| trees.set(*id, None));
        let (rollback_epoch, position) = (order.rollback_epoch, published.position.clone());
        let (seq, time_ns) = (published.seq, published.time_ns);
        self.set_both_roots(Root { seq, rollback_epoch, time_ns, trees, position });
    }

    /// Installs the root of the deferred redo, with the log's tail in its trees. Nothing was ordered before
    /// it.
    pub(crate) fn replayed(&self, root: &Arc<Root>) {
        let _within = self.store.alarm.enter();
        let mut order = self.order.lock();
        invariant!(order.forming.is_empty(), "nothing is ordered before the log is in the trees");
        self.check_all_published();
        let (seq, before, durable) = (root.seq, self.published().seq, self.durable());
        invariant!(before < seq, "the log leads from {before} on, to {seq}");
        invariant!(seq <= durable, "the log was durable through {seq} before it was read, not {durable}");
        order.recent = Recent::new(root.seq);
        self.latest.set(Arc::clone(root));
        self.pipeline.published.set(Arc::clone(root));
    }

    /// Nothing is ordered and not published. The caller holds the order lock, no thread leads, and no commit
    /// has joined the forming group.
    fn check_all_published(&self) {
        let (latest, published) = (self.latest().seq, self.published().seq);
        invariant!(latest == published, "the latest root {latest} is the published one, {published}");
    }
}
