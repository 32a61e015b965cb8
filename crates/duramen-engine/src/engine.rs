//! The engine: a database opened, used and closed.
//!
//! It connects the parts and owns none of their work. D8 rests here: the lock is taken before a byte is read,
//! and released after the last was written.

mod ages;
mod compact;
mod copy;
mod deferred_redo;
mod directory;
mod event;
mod feed;
mod feeding;
mod maintenance;
mod method;
mod observe;
mod open;
mod repair;
mod replica;
mod stats;
#[cfg(test)]
mod tests;
mod timings;
mod warm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::{Disk, SyncMethod};

use crate::alarm::locked;
use crate::checkpoint::Store;
pub use crate::commit::Woken;
use crate::commit::{Committer, Ordered, Wait};
use crate::data_file::Superblock;
use crate::error::{Code, Error, Result};
use crate::feed::{FeedRule, Retained};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::CONFLICTS_MAX;
use crate::options::{Background, Durability, Options};
use crate::snapshot::{Locks, Newest, Registry};
use crate::threads::Threads;
use crate::transaction::{Receipt, Snapshot, Transaction};
use crate::tree::{Reducers, Slot};
use crate::verify::{Check, CheckReport};
use crate::wal::{LogIdentity, read_through};

pub use compact::{CompactProgress, CompactReport, HeldSnapshot};
pub use copy::{CopyPart, CopyProgress, CopySource, CopyTarget, NodeHead, NodeTarget};
use deferred_redo::DeferredRedo;
pub use event::{Event, EventHook};
pub use feed::{FeedReader, FeedStop, Wants};
use maintenance::Maintenance;
pub use observe::{ObserveFrom, Observed, Observer};
pub use repair::{FoundEntries, Keep, LostCommits, Repair, RepairProgress, TreeLoss, UncertainTree};
pub use replica::{Founding, OpenReplica, Replica};
pub use stats::{DurabilityStatus, RecoveryStats, Stats};

/// What a program plugs into the engine.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Reducers of its own.
    pub reducers: Reducers,
    /// Called for events that no function call can report. Any thread may call it, also one that commits wait
    /// for. Inside it, calls that commit, wait for a commit, checkpoint or close this
    /// database fail with `Invalid`: they could wait for their own thread.
    pub on_event: Option<EventHook>,
    /// Selects the changes for the change feed, and names its consumers. Without a rule all changes are fed,
    /// and there is no consumer.
    pub feed: Option<Arc<dyn FeedRule>>,
}

/// An open database. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    mode: Mode,
    /// The deferred redo of what opening found in the log.
    deferred_redo: Arc<DeferredRedo>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_dir: PathBuf,
    options: Options,
    /// How log writes become durable, and the reason.
    sync: (SyncMethod, String),
    recovered: stats::RecoveryStats,
    feed: Arc<Retained>,
    feed_rule: Option<Arc<dyn FeedRule>>,
    log_identity: LogIdentity,
    threads: Mutex<Option<Threads>>,
    /// Keeps other processes out. The last handle or reader releases it.
    locks: Arc<Locks>,
    process: u32,
    left: AtomicBool,
}

#[derive(Debug)]
enum Mode {
    Write { committer: Arc<Committer>, maintenance: Arc<Maintenance> },
    Read { root: Arc<Newest>, roots: Option<Slot>, catalogue: Option<Slot>, superblock: Box<Superblock> },
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the database in the directory `path`, or creates it there.
    ///
    /// Opening reads the log since the newest checkpoint and answers reads at once. A thread applies it to
    /// the trees. Writes, checkpoints, [`Engine::check`] and [`Engine::close`] need the trees and wait for
    /// that. Creating returns once the database survives a power cut, its directory and that directory's
    /// parent included.
    ///
    /// # Errors
    /// Those of [opening](crate::Error#opening).
    pub fn open(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: Options,
        hooks: Hooks,
    ) -> Result<Engine> {
        copy::refuse_unfinished(&*disk, path.as_ref())?;
        open::open(disk, path.as_ref(), options, hooks)
    }

    /// Begins a transaction on the latest root.
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `Closed` (E0207) after a close;
    /// `ForkedHandle` (E0206) in a forked process; `EnginePoisoned` (E0601) after a failed sync.
    /// `CorruptData` (E0501) or `System` (E1001) if the log could not be applied to the trees after opening.
    pub fn begin(&self) -> Result<Transaction> {
        let (committer, _) = self.parts()?;
        self.inner.deferred_redo.not_failed()?;
        committer.usable()?;
        let (held, overlay) = self.inner.deferred_redo.hold(|| committer.hold_to_begin());
        Ok(Transaction::begin(committer, held, overlay))
    }

    /// Begins a transaction on the published root: what it reads is in the log and is never taken back by a
    /// log without room. It conflicts with all commits that are ordered and not published yet and wrote what
    /// it reads.
    ///
    /// # Errors
    /// As [`Engine::begin`].
    pub fn begin_published(&self) -> Result<Transaction> {
        let (committer, _) = self.parts()?;
        self.inner.deferred_redo.not_failed()?;
        committer.usable()?;
        let (held, overlay) = self.inner.deferred_redo.hold(|| committer.hold_in_log());
        Ok(Transaction::begin(committer, held, overlay))
    }

    /// Runs `body` in a transaction, commits it, and repeats both after a conflict. After [`CONFLICTS_MAX`]
    /// conflicts it runs alone. On a full disk it makes room once and tries again.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits), and any error of `body`: nothing is written then, and
    /// nothing is waited for, so what it read may not be in the log yet. If it read commits that were dropped
    /// meanwhile, it runs again instead. `WriteConflict` (E0101) only if the commits that it read were
    /// dropped in every run, or from a condition of its own.
    pub fn transact<T>(
        &self,
        level: Durability,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        self.run(level, Wait::Here, body)
    }

    /// As [`Engine::transact`], but returns once the commit has its position in the order. The receipt
    /// [waits](Receipt::waited) for the level, in any thread. The commit is written by the first of these: a
    /// thread that waits for the receipt, another commit that leads, [`Engine::close`], or the background's
    /// next tick. No snapshot shows it before that. The transaction may have read commits that are not
    /// durable yet: do not act on what it returned before the receipt has waited.
    ///
    /// # Errors
    /// As [`Engine::transact`], as far as known on return. The receipt reports the rest: `DiskFull` (E0301)
    /// if the commit, or what it read, was dropped. It may run again then.
    pub fn transact_and_wait_later<T>(
        &self,
        level: Durability,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        self.run(level, Wait::Later, body)
    }

    fn run<T>(
        &self,
        level: Durability,
        wait: Wait,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        let mut room_made = false;
        let mut conflicts = 0;
        loop {
            let attempt = match conflicts < CONFLICTS_MAX {
                true => self.attempt(level, wait, &mut body),
                false => self.attempt_alone(level, wait, &mut body),
            };
            match attempt {
                // Run alone, a transaction is tried again only if the commits that it read were dropped.
                Err(error) if error.is_retryable() && conflicts < 2 * CONFLICTS_MAX => {
                    conflicts += 1;
                    if error.code() == Code::WritersHoldMemory {
                        self.writer()?.0.throttle.let_others_end();
                    }
                }
                // Only for a full disk: if the feed is full, room on the disk does not help.
                Err(error) if error.code() == Code::DiskFull && !room_made => {
                    room_made = true;
                    self.give_up_old_space().map_err(|_| error)?;
                }
                done => return done,
            }
        }
    }

    fn attempt<T>(
        &self,
        level: Durability,
        wait: Wait,
        body: &mut impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        let mut transaction = self.begin()?;
        transaction.caller_makes_room();
        // The error of a closure counts only if the commits that it read were not dropped.
        let out = body(&mut transaction).map_err(|error| transaction.must_run_again().unwrap_or(error))?;
        Ok((out, transaction.commit_and(level, wait)?))
    }

    /// Runs and commits while no other thread can order a commit.
    fn attempt_alone<T>(
        &self,
        level: Durability,
        wait: Wait,
        body: &mut impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        let (committer, _) = self.writer()?;
        let mut read = None;
        let mut left = Vec::new();
        let (out, ordered) = committer.submit_alone(|root| {
            read = Some(Arc::clone(&root));
            let (held, idle) = self.inner.store.registry.register_root(&root);
            left.push(idle);
            let mut transaction = Transaction::begin_alone(committer, held);
            let out = body(&mut transaction)?;
            Ok((out, transaction.take_submission(level, wait)?))
        })?;
        let read = read.expect("the closure ran");
        let receipt = match (ordered, wait) {
            (Some(ordered), Wait::Here) => Receipt::new(committer, ordered, level),
            (Some(ordered), Wait::Later) => Receipt::under_way(committer, ordered),
            (None, Wait::Here) => Receipt::new(committer, committer.finish_read(&read, level)?, level),
            (None, Wait::Later) => Receipt::new(committer, Ordered::of(&read), Durability::Memory),
        };
        Ok((out, receipt))
    }

    /// Fails if this thread may not commit: the database is read-only, or the thread is in an event hook or
    /// in a closure that runs alone.
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `ForkedHandle` (E0206) in a forked process;
    /// `InvalidArgument` (E0201) in an event hook or a closure that runs alone.
    pub fn may_commit(&self) -> Result<()> {
        let (committer, _) = self.parts()?;
        committer.not_alone()
    }

    /// Registers the published root. Works after [`Engine::close`] too, which ends commits and not reads.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a process that was forked after the database was opened.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.same_process()?;
        let (held, overlay) = self.inner.deferred_redo.hold(|| match &self.inner.mode {
            Mode::Write { committer, .. } => committer.hold_published(),
            Mode::Read { root, .. } => self.inner.store.registry.register(root),
        });
        Ok(Snapshot::new(held, overlay))
    }

    /// The newest published value of a key, read from its own [snapshot](Engine::snapshot).
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if there is no such tree.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.snapshot()?.get(tree, key)
    }

    /// Writes a checkpoint now. The log before it is no longer needed then.
    ///
    /// # Errors
    /// Those of a [checkpoint](crate::Error#checkpoints); `ReadOnly` (E0204) if the database was opened
    /// read-only; `ForkedHandle` (E0206) in a forked process.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_with(&mut || ())
    }

    /// Writes a checkpoint, calling `between` after each slice of its writes. For simulations.
    ///
    /// # Errors
    /// As [`Engine::checkpoint`].
    pub fn checkpoint_with(&self, between: &mut dyn FnMut()) -> Result<()> {
        let (committer, maintenance) = self.writer()?;
        // After a close the files stay as they are: a program may copy them.
        committer.usable()?;
        maintenance.checkpoint(between).map(|_| ())
    }

    /// Runs the background work that is due, once. For databases opened with [`Background::Stepped`].
    ///
    /// # Errors
    /// As [`Engine::checkpoint`]: the first failure of the steps.
    pub fn step(&self) -> Result<()> {
        let (committer, maintenance) = self.writer()?;
        committer.not_alone()?;
        let logged = maintenance.log_step();
        if committer.poison_cause().is_some() {
            return logged;
        }
        // All steps run, as in threads: the checkpoint must not wait for a log without room, since it makes
        // that room.
        maintenance.evict();
        let written_back = maintenance.write_leaves_when_due().and(maintenance.write_back_snapshots());
        let written = maintenance.checkpoint_when_due();
        let reviewed = maintenance.review_feed();
        let reclaimed = maintenance.reclaim_when_quiet();
        logged.and(written_back).and(written).and(reviewed).and(reclaimed)
    }

    /// Reads and checks everything. Of the data file: each page of the newest state, order, counts,
    /// recomputed reductions, and each extent accounted for once. Of the log: each frame and commit after
    /// the newest checkpoint, and that it does not end before what is known to be durable. Older frames are
    /// not needed and not checked.
    ///
    /// Commits go on meanwhile. A checkpoint waits while the log and the tree of roots are read.
    ///
    /// # Errors
    /// `SnapshotExpired` (E0801) if the snapshot that is checked was ended to free its space;
    /// `System` (E1001) if a file of the change feed cannot be read; `ForkedHandle` (E0206) in a forked
    /// process. Shortly after opening `CorruptData` (E0501) or `System` (E1001) if the log could not be
    /// applied to the trees. Everything else that cannot be read is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.inner.deferred_redo.wait()?;
        let store = &self.inner.store;
        let newest = || match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance.checkpointer().superblock().generation,
            Mode::Read { superblock, .. } => superblock.generation,
        };
        let begin = |roots: Option<&Slot>, reclaiming: &BTreeMap<TreeId, Option<Vec<u8>>>| {
            let snapshot = self.snapshot()?;
            let mut check = Check::begin(store, snapshot.root(), roots, reclaiming);
            let durable = match &self.inner.mode {
                Mode::Write { committer, .. } => committer.durable(),
                Mode::Read { .. } => snapshot.seq(),
            };
            check.superblocks(newest());
            check.log(self.read_log(), durable);
            Ok((check, snapshot))
        };
        let feed = self.inner.feed.check();
        let begun = || match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance.checkpointer().begun(),
            Mode::Read { .. } => 0,
        };
        let ((check, snapshot), before) = match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance
                .checkpointer()
                .at_rest(|roots, reclaiming| Ok::<_, Error>((begin(roots, reclaiming)?, begun())))?,
            Mode::Read { roots, .. } => (begin(roots.as_ref(), &BTreeMap::new())?, begun()),
        };
        let mut report = check.finish(snapshot.root(), &|| begun() == before);
        // If the snapshot was ended, its pages may have been reused.
        snapshot.not_ended()?;
        feed.into_iter().for_each(|what| report.problem(what));
        Ok(report)
    }

    /// Reads the log from the newest checkpoint on.
    fn read_log(&self) -> Result<(CommitSeq, u64)> {
        let superblock = match &self.inner.mode {
            Mode::Write { maintenance, .. } => maintenance.checkpointer().superblock(),
            Mode::Read { superblock, .. } => Superblock::clone(superblock),
        };
        let inner = &self.inner;
        read_through(
            &*inner.disk,
            &inner.wal_dir,
            inner.log_identity,
            &superblock.geometry,
            &superblock.replay,
        )
    }

    /// The directory of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Changes the target for all memory, from [`Options::memory_bytes`]. More memory is used as pages are
    /// read and written. After a lower target the next evictions and checkpoints free what is too much.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) below 4 MiB.
    pub fn set_memory_bytes(&self, memory_bytes: usize) -> Result<()> {
        let inner = &self.inner;
        open::check_memory(memory_bytes, &inner.options)?;
        inner.store.pages.set_memory_bytes(memory_bytes);
        Ok(())
    }

    /// Refuses further commits, waits for those under way, and writes a last checkpoint. The lock is released
    /// when the last handle, snapshot, transaction, cursor, and receipt of a commit that is not on disk is
    /// dropped. Until then what is published can be read.
    ///
    /// # Errors
    /// Those of a [checkpoint](crate::Error#checkpoints). Everything acknowledged is safe in the log all the
    /// same. `EnginePoisoned` (E0601) in a poisoned database, where nothing is written: commits that were not
    /// acknowledged at level `Disk` may be missing after opening again. None in a forked process, where
    /// nothing is written either.
    pub fn close(&self) -> Result<()> {
        self.may_close()?;
        if self.inner.left.swap(true, Ordering::AcqRel) {
            return self.inner.not_poisoned();
        }
        self.inner.finish()
    }

    /// Fails where [`Engine::close`] is refused: inside an event hook, a transaction that runs alone, or the
    /// function that learns of a compaction's progress.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201).
    pub fn may_close(&self) -> Result<()> {
        if let Mode::Write { committer, maintenance } = &self.inner.mode {
            committer.not_alone()?;
            if maintenance.compacts_here() {
                let what = "close is not allowed in the function that learns of a compaction's progress";
                return Err(Error::invalid(what)
                    .with_hint("return an error from it, which stops the compaction; then close"));
            }
        }
        Ok(())
    }

    /// Ends without a checkpoint and without a durable watermark, as a crash would. For simulations.
    pub fn abandon(self) {
        self.inner.left.store(true, Ordering::Release);
        self.inner.stop_threads();
    }

    /// Writes two checkpoints to free space on a full disk (D7). They release the pages that only the older
    /// checkpoint needs, and log that is no longer needed. They write into the room kept back for them.
    fn give_up_old_space(&self) -> Result<()> {
        let (_, maintenance) = self.writer()?;
        for _ in 0..2 {
            maintenance.checkpoint(&mut || ())?;
        }
        Ok(())
    }

    /// The committer and its maintenance (`Maintenance`), after the deferred redo is done.
    fn writer(&self) -> Result<(&Arc<Committer>, &Arc<Maintenance>)> {
        let parts = self.parts()?;
        self.inner.deferred_redo.wait()?;
        Ok(parts)
    }

    fn parts(&self) -> Result<(&Arc<Committer>, &Arc<Maintenance>)> {
        self.same_process()?;
        match &self.inner.mode {
            Mode::Write { committer, maintenance } => Ok((committer, maintenance)),
            Mode::Read { .. } => Err(Error::new(Code::ReadOnly, "the database was opened read-only")),
        }
    }

    fn same_process(&self) -> Result<()> {
        if self.inner.process == duramen_disk::process_id() { Ok(()) } else { Err(Error::forked()) }
    }
}

impl Inner {
    fn stop_threads(&self) {
        if let Mode::Write { maintenance, .. } = &self.mode {
            maintenance.end_preparing();
        }
        drop(locked(self.threads.lock()).take());
    }

    fn finish(&self) -> Result<()> {
        self.stop_threads();
        let Mode::Write { committer, maintenance } = &self.mode else { return Ok(()) };
        if self.process != duramen_disk::process_id() {
            return Ok(());
        }
        let finished = self.finish_writing(committer, maintenance);
        // Reported here: no later step of the background would.
        maintenance.tell_dropped();
        finished
    }

    fn finish_writing(&self, committer: &Committer, maintenance: &Maintenance) -> Result<()> {
        self.deferred_redo.wait()?;
        self.not_poisoned()?;
        if committer.is_replica() {
            committer.follow_others();
        }
        committer.close();
        maintenance.wait_for_compaction();
        maintenance.close()
    }

    fn not_poisoned(&self) -> Result<()> {
        match &self.mode {
            Mode::Write { committer, .. } => committer.not_poisoned(),
            Mode::Read { .. } => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _at_last = Ending(&self.store.registry);
        self.leave();
    }
}

/// Ends the registry when dropped, even if an event hook panics. Otherwise the locks would never be released.
struct Ending<'a>(&'a Registry);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Inner {
    fn leave(&self) {
        if self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.finish()
            && let Mode::Write { maintenance, .. } = &self.mode
        {
            maintenance.tell(&Event::CloseFailed(error));
        }
    }
}

fn start_threads(
    maintenance: &Arc<Maintenance>,
    deferred_redo: &Arc<DeferredRedo>,
    options: &Options,
    locks: &Arc<Locks>,
) -> Result<Option<Threads>> {
    if options.background == Background::Stepped {
        // The clock does not advance during a rest of a simulation.
        maintenance.hurry();
        return Ok(None);
    }
    // Ahead of the first commit. On a full disk that commit fails with the same error.
    drop(maintenance.make_room());
    let mut threads = Threads::new();
    let log = Arc::clone(maintenance);
    // D8: an event hook may drop the last handle inside a step, and the rest of that step still writes.
    let (held_by_log, held_by_space) = (Arc::clone(locks), Arc::clone(locks));
    threads.start(
        "duramen-log",
        move || {
            let _held = &held_by_log;
            if log.is_poisoned() {
                return;
            }
            if let Err(error) = log.log_step() {
                log.failed(error);
            }
        },
        gave_up(maintenance),
    )?;
    let space = Arc::clone(maintenance);
    let deferred_redo = Arc::clone(deferred_redo);
    threads.start(
        "duramen-space",
        move || {
            let _held = &held_by_space;
            // A failure poisons the engine, which the next line reports.
            drop(deferred_redo.run());
            if space.is_poisoned() {
                return;
            }
            space.let_go_of_old_roots();
            space.store().pages.meter().free_evicted();
            space.store().pages.meter().evict_again();
            space.evict();
            let written_back = space.write_leaves_when_due().and(space.write_back_snapshots());
            let written = space.checkpoint_when_due();
            let reviewed = space.review_feed();
            let reclaimed = space.reclaim_when_quiet();
            let room = space.make_room();
            if let Err(error) = written_back.and(written).and(reviewed).and(reclaimed).and(room) {
                space.failed(error);
            }
        },
        gave_up(maintenance),
    )?;
    Ok(Some(threads))
}

/// Poisons the engine if one of its threads ends.
fn gave_up(maintenance: &Arc<Maintenance>) -> impl FnOnce(Error) + Send + use<> {
    let maintenance = Arc::downgrade(maintenance);
    move |error| {
        if let Some(maintenance) = maintenance.upgrade() {
            maintenance.give_up(error);
        }
    }
}
