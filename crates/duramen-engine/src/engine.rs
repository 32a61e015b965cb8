//! The engine: a database opened, used and closed.
//!
//! Puts the parts together and owns nothing of their work. D8 rests here (the lock is taken before a byte is read and
//! let go after the last was written).

mod copy;
mod directory;
mod draining;
mod event;
mod feed;
mod feeding;
mod keeper;
mod method;
mod observe;
mod open;
mod recover;
mod stats;
#[cfg(test)]
mod tests;
mod warm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::{Disk, SyncMethod};

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

pub use copy::CopyProgress;
use draining::Draining;
pub use event::{Event, EventHook};
pub use feed::{FeedReader, FeedStop, Wants};
use keeper::Keeper;
pub use observe::{ObserveFrom, Observed, Observer};
pub use recover::{Keep, LostCommits, RecoverProgress, Salvage, TreeLoss};
pub use stats::{Posture, RecoveryStats, Stats};

const POISON: &str = "nothing panics while the threads are locked";

/// What a program plugs into the engine.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Reducers of its own.
    pub reducers: Reducers,
    /// Whom to tell what no call returns. Called outside locks, from any thread, also the one that makes room for commits: what
    /// commits, waits for a commit, checkpoints or closes the database there is refused with `Invalid`, for it could wait for itself.
    pub on_event: Option<EventHook>,
    /// What is for the change feed, and who needs it. Without a rule all changes are, and nobody does.
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
    /// What opening found in the log, on its way into the trees.
    draining: Arc<Draining>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_dir: PathBuf,
    options: Options,
    /// How log writes become durable, and why so.
    sync: (SyncMethod, String),
    recovered: stats::RecoveryStats,
    feed: Arc<Retained>,
    feed_rule: Option<Arc<dyn FeedRule>>,
    log_identity: LogIdentity,
    threads: Mutex<Option<Threads>>,
    /// Keeps other processes out; given back last, by whoever reads last.
    _locks: Arc<Locks>,
    process: u32,
    left: AtomicBool,
}

#[derive(Debug)]
enum Mode {
    Write { committer: Arc<Committer>, keeper: Arc<Keeper> },
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
    /// Opening reads the log since the newest checkpoint and answers from it at once; a thread brings it into the trees, and
    /// what needs the trees (writes, checkpoints, [`Engine::check`], [`Engine::close`]) waits for that. Creating returns once
    /// the database survives a power cut, its directory and that directory's parent included.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` (not a database, another format, a network file system), `Locked`, `Corrupt`, `Full`, `Io`.
    pub fn open(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: Options,
        hooks: Hooks,
    ) -> Result<Engine> {
        copy::refuse_unfinished(&*disk, path.as_ref())?;
        open::open(disk, path.as_ref(), options, hooks)
    }

    /// Begins a transaction on the newest ordered state.
    ///
    /// # Errors
    /// `Invalid` if the database was opened read-only, is closed, or this process was forked; `Poisoned`.
    pub fn begin(&self) -> Result<Transaction> {
        let (committer, _) = self.parts()?;
        self.inner.draining.not_failed()?;
        committer.usable()?;
        let (held, overlay) = self.inner.draining.hold(|| committer.hold_sealed());
        Ok(Transaction::begin(committer, held, overlay))
    }

    /// Runs `body` in a transaction and commits it, again and again while others get in between: at most
    /// [`CONFLICTS_MAX`] times beside them, then alone. On a full disk it makes room once and tries again.
    ///
    /// # Errors
    /// What `body` said (then nothing is written, and nothing is waited for: what it read may still be on its way to the log), unless
    /// it read commits that were dropped meanwhile, for then it runs again; or what [`Transaction::commit`] said; `Conflict` only if the
    /// commits that it read were dropped again and again, each time it ran.
    pub fn transact<T>(
        &self,
        level: Durability,
        body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        self.run(level, Wait::Here, body)
    }

    /// As [`Engine::transact`], and returns once the commit has its place in the order: its receipt [waits](Receipt::waited) for the
    /// level, in any thread. It is written by who waits for it, by any other commit that leads, by [`Engine::close`], or by the
    /// background's next tick, whichever comes first; nobody sees it before. What it read may be as new, and is nobody's to tell
    /// before the receipt has waited.
    ///
    /// # Errors
    /// As [`Engine::transact`], as far as it is known then; the rest the receipt tells: `Full` where it never happened, or what it
    /// read did not, and it may run again.
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
                // Room on the disk does not help where the feed holds too much: its consumers do.
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
        // An error is the closure's own, unless what it was made of never happened.
        let out = body(&mut transaction).map_err(|error| transaction.must_run_again().unwrap_or(error))?;
        Ok((out, transaction.commit_and(level, wait)?))
    }

    /// While no other thread can order a commit.
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

    /// Whether this thread may commit: not in a database that is read-only, and not inside of a closure that runs alone.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn may_commit(&self) -> Result<()> {
        let (committer, _) = self.parts()?;
        committer.not_alone()
    }

    /// Holds the newest published state. Works after [`Engine::close`] too, which ends commits and not reads.
    ///
    /// # Errors
    /// `Invalid` if this process was forked.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.same_process()?;
        let (held, overlay) = self.inner.draining.hold(|| match &self.inner.mode {
            Mode::Write { committer, .. } => committer.hold_published(),
            Mode::Read { root, .. } => self.inner.store.registry.register(root),
        });
        Ok(Snapshot::new(held, overlay))
    }

    /// The newest published value of a key: that of a [snapshot](Engine::snapshot) taken for it.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corrupt` or `Io` if a page cannot be read.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.snapshot()?.get(tree, key)
    }

    /// Writes a checkpoint now: the log before it is no longer needed.
    ///
    /// # Errors
    /// `Full`, `Io`, `Poisoned`.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_with(&mut || ())
    }

    /// Writes a checkpoint, calling `between` after each slice of its writes. For simulations.
    ///
    /// # Errors
    /// As [`Engine::checkpoint`].
    pub fn checkpoint_with(&self, between: &mut dyn FnMut()) -> Result<()> {
        let (_, keeper) = self.writer()?;
        keeper.checkpoint(between).map(|_| ())
    }

    /// Does what is due behind the scenes, once. For databases opened with [`Background::Stepped`].
    ///
    /// # Errors
    /// What failed.
    pub fn step(&self) -> Result<()> {
        let (committer, keeper) = self.writer()?;
        let logged = keeper.log_step();
        if committer.poison_cause().is_some() {
            return logged;
        }
        // As beside each other in threads: a log without room must not keep the checkpoint waiting that makes some.
        keeper.sweep();
        let spilled = keeper.spill_snapshots();
        let written = keeper.checkpoint_when_due();
        let reviewed = keeper.review_feed();
        let reaped = keeper.reap_when_quiet();
        logged.and(spilled).and(written).and(reviewed).and(reaped)
    }

    /// Reads and checks everything: of the data file each page of the newest state, order, counts, reductions recomputed,
    /// each extent accounted for once; of the log each frame and commit behind the newest checkpoint, and that it does
    /// not end before what is known to be durable. Frames before that checkpoint nobody needs, and nobody checks.
    ///
    /// Commits go on meanwhile; a checkpoint waits while the log and the tree of roots are read.
    ///
    /// # Errors
    /// `Io` if something could not be read at all; `Expired` if the state that was checked was ended to free its space; damage
    /// is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.inner.draining.wait()?;
        let store = &self.inner.store;
        let newest = || match &self.inner.mode {
            Mode::Write { keeper, .. } => keeper.checkpointer().superblock().generation,
            Mode::Read { superblock, .. } => superblock.generation,
        };
        let begin = |roots: Option<&Slot>, reaping: &BTreeMap<TreeId, Option<Vec<u8>>>| {
            let snapshot = self.snapshot()?;
            let mut check = Check::begin(store, snapshot.root(), roots, reaping);
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
            Mode::Write { keeper, .. } => keeper.checkpointer().begun(),
            Mode::Read { .. } => 0,
        };
        let ((check, snapshot), before) = match &self.inner.mode {
            Mode::Write { keeper, .. } => keeper
                .checkpointer()
                .at_rest(|roots, reaping| Ok::<_, Error>((begin(roots, reaping)?, begun())))?,
            Mode::Read { roots, .. } => (begin(roots.as_ref(), &BTreeMap::new())?, begun()),
        };
        let mut report = check.finish(snapshot.root(), &|| begun() == before);
        // Of one that was ended, pages may be others' by now.
        snapshot.not_ended()?;
        feed.into_iter().for_each(|what| report.problem(what));
        Ok(report)
    }

    /// Reads the log from the newest checkpoint on.
    fn read_log(&self) -> Result<(CommitSeq, u64)> {
        let superblock = match &self.inner.mode {
            Mode::Write { keeper, .. } => keeper.checkpointer().superblock(),
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

    /// Where the database lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Takes no more commits, waits for those under way, writes a last checkpoint, and gives the lock back when the
    /// last handle is dropped, and the last snapshot, transaction and cursor. Until then what is published can be read.
    ///
    /// # Errors
    /// What the last checkpoint said; everything acknowledged is safe in the log all the same.
    pub fn close(&self) -> Result<()> {
        if let Mode::Write { committer, .. } = &self.inner.mode {
            committer.not_alone()?;
        }
        if self.inner.left.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.inner.finish()
    }

    /// Ends without a checkpoint and without a mark, as a crash would. For simulations.
    pub fn abandon(self) {
        self.inner.left.store(true, Ordering::Release);
        self.inner.stop_threads();
    }

    /// A full disk may hold what only the newest checkpoint but one needs, and log that nobody needs: two checkpoints
    /// let go of both (D7). They write into the room kept back for them.
    fn give_up_old_space(&self) -> Result<()> {
        let (_, keeper) = self.writer()?;
        for _ in 0..2 {
            keeper.checkpoint(&mut || ())?;
        }
        Ok(())
    }

    /// What writes, once everything that opening found is in the trees.
    fn writer(&self) -> Result<(&Arc<Committer>, &Arc<Keeper>)> {
        let parts = self.parts()?;
        self.inner.draining.wait()?;
        Ok(parts)
    }

    fn parts(&self) -> Result<(&Arc<Committer>, &Arc<Keeper>)> {
        self.same_process()?;
        match &self.inner.mode {
            Mode::Write { committer, keeper } => Ok((committer, keeper)),
            Mode::Read { .. } => Err(Error::new(Code::ReadOnly, "the database was opened read-only")),
        }
    }

    fn same_process(&self) -> Result<()> {
        if self.inner.process == duramen_disk::process_id() { Ok(()) } else { Err(Error::forked()) }
    }
}

impl Inner {
    fn stop_threads(&self) {
        if let Mode::Write { keeper, .. } = &self.mode {
            keeper.end_preparing();
        }
        drop(self.threads.lock().expect(POISON).take());
    }

    fn finish(&self) -> Result<()> {
        self.stop_threads();
        let Mode::Write { committer, keeper } = &self.mode else { return Ok(()) };
        if self.process != duramen_disk::process_id() {
            return Ok(());
        }
        let finished = self.finish_writing(committer, keeper);
        // There is no next step of the background that would.
        keeper.tell_dropped();
        finished
    }

    fn finish_writing(&self, committer: &Committer, keeper: &Keeper) -> Result<()> {
        self.draining.wait()?;
        if committer.poison_cause().is_some() {
            return Ok(());
        }
        committer.close();
        keeper.close()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _at_last = Ending(&self.store.registry);
        self.leave();
    }
}

/// Ends the registry when dropped, also where a hook of the user's panics: else the locks were never given back.
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
            && let Mode::Write { keeper, .. } = &self.mode
        {
            keeper.tell(&Event::CloseFailed(error));
        }
    }
}

fn start_threads(
    keeper: &Arc<Keeper>,
    draining: &Arc<Draining>,
    options: &Options,
) -> Result<Option<Threads>> {
    if options.background == Background::Stepped {
        // Its clock does not move while it rests.
        keeper.hurry();
        return Ok(None);
    }
    // Ahead of the first commit; a full disk is for that commit to say.
    drop(keeper.make_room());
    let mut threads = Threads::new();
    let log = Arc::clone(keeper);
    threads.start(
        "duramen-log",
        move || {
            if log.is_poisoned() {
                return;
            }
            if let Err(error) = log.log_step() {
                log.failed(error);
            }
        },
        gave_up(keeper),
    )?;
    let space = Arc::clone(keeper);
    let draining = Arc::clone(draining);
    threads.start(
        "duramen-space",
        move || {
            // A failure ends commits, and the next line tells of it.
            drop(draining.run());
            if space.is_poisoned() {
                return;
            }
            space.let_go_of_old_roots();
            space.store().pages.meter().free_evicted();
            space.store().pages.meter().sweep_anew();
            space.sweep();
            let spilled = space.spill_snapshots();
            let written = space.checkpoint_when_due();
            let reviewed = space.review_feed();
            let reaped = space.reap_when_quiet();
            let room = space.make_room();
            if let Err(error) = spilled.and(written).and(reviewed).and(reaped).and(room) {
                space.failed(error);
            }
        },
        gave_up(keeper),
    )?;
    Ok(Some(threads))
}

/// Without its threads an engine acknowledges nothing more.
fn gave_up(keeper: &Arc<Keeper>) -> impl FnOnce(Error) + Send + use<> {
    let keeper = Arc::downgrade(keeper);
    move |error| {
        if let Some(keeper) = keeper.upgrade() {
            keeper.give_up(error);
        }
    }
}
