//! The handle of an open database.
//!
//! Owns the access to the engine: transactions, snapshots, collections, trees of bytes, and the engine's
//! figures. Prints nothing and reads no environment variable.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::store::{
    CheckReport, CopyProgress, CopySource, Durability, DurabilityStatus, Engine, Receipt, Stats,
};

use crate::access::after_commit::{AfterCommit, CleanUp};
use crate::access::background_work::BackgroundWork;
use crate::access::bytes::ByteTree;
use crate::access::deadlines::Count;
use crate::access::documents::auto_commit::Documents;
use crate::access::inside::{self, Inside};
use crate::access::last_handle::LastHandle;
use crate::access::open_state::OpenState;
use crate::access::open_transaction::OpenTransaction;
use crate::access::reads::LocalReads;
use crate::access::references;
use crate::access::snapshot::Snapshot;
use crate::access::transaction::{Noted, Transaction};
use crate::access::views::state::ViewState;
use crate::catalog::schema::Schema;
use crate::store::error::{Error, Result};
use crate::store::{self, Event, EventHook};

/// An open database. Clones are cheap and share the database; every method may be called from any thread.
#[derive(Clone)]
pub struct Db {
    /// Declared before `engine`, so dropped first. The last handle of the program stops the background work,
    /// which has a handle of its own.
    last: Option<Arc<LastHandle>>,
    engine: Engine,
    level: Durability,
    state: Arc<OpenState>,
    on_event: Option<EventHook>,
    after_writes: AfterWrites,
}

/// Cleans up after writes: expires values of the due namespaces, collects blobs, forgets requests.
///
/// The transaction is already committed, whatever this does. What is left over waits for the next call.
pub(crate) type AfterWrites = fn(&Db, &CleanUp);

/// The closure that runs inside the engine's transaction.
type Body<'r, T> = &'r mut dyn FnMut(&mut store::Transaction) -> Result<T>;

/// A transaction that is ordered, but has not reached its durability level.
#[cfg(feature = "async")]
pub(crate) struct UnderWay<T> {
    pub(crate) out: T,
    pub(crate) receipt: Receipt,
    pub(crate) effects: AfterCommit,
}

impl Db {
    /// A handle without background work.
    pub(crate) fn new(
        engine: Engine,
        level: Durability,
        state: OpenState,
        on_event: Option<EventHook>,
        after_writes: AfterWrites,
    ) -> Db {
        Db { last: None, engine, level, state: Arc::new(state), on_event, after_writes }
    }

    /// The same database as a handle of the program. The last one stops the background work, if any.
    pub(crate) fn of_program(self, background: Option<Arc<dyn BackgroundWork>>) -> Db {
        let last = Some(Arc::new(LastHandle::new(self.clone(), background)));
        Db { last, ..self }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn open_state(&self) -> &Arc<OpenState> {
        &self.state
    }

    pub(crate) fn hook(&self) -> Option<EventHook> {
        self.on_event.clone()
    }

    /// Reports an error of the background work to the event hook.
    pub(crate) fn tell(&self, error: Error) {
        if let Some(hook) = &self.on_event {
            hook(&Event::BackgroundFailed(error));
        }
    }

    /// The same database, with commits that are published when they return: the next snapshot sees them.
    pub(crate) fn seen_by_all(&self) -> Db {
        self.at(match self.level {
            Durability::Memory => Durability::Process,
            level => level,
        })
    }

    /// Closes the database: gives back the ids that were not assigned, syncs the last groups, writes a last
    /// checkpoint, stops the background work.
    ///
    /// A commit through any clone then fails with `Closed`. Reads work until the last clone is dropped, which
    /// releases the lock.
    ///
    /// # Errors
    /// Those of a [checkpoint](crate::Error#checkpoints); `InvalidArgument` (E0201) inside an event hook:
    /// the database is not closed then. After `EnginePoisoned` (E0601) commits that were not acknowledged at
    /// level `Disk` may be missing when it is opened again. Dropping the last clone closes as well, but
    /// cannot return an error.
    pub fn close(&self) -> Result<()> {
        self.engine.may_close()?;
        self.end_ids();
        // The engine first: the background work then ends soon.
        let closed = self.engine.close();
        if let Some(last) = &self.last {
            last.stop();
        }
        closed
    }

    /// The same database with another durability level for its commits.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let receipt = db.at(Durability::Process).write(|tx| tx.put_bytes("sessions", b"sid", b"42"))?;
    /// receipt.wait(Durability::Disk)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at(&self, level: Durability) -> Db {
        Db { level, ..self.clone() }
    }

    /// Runs a transaction and returns what the closure returned.
    ///
    /// It is strictly serialisable. After a conflict the closure runs again, so it should do nothing but read
    /// and write `tx`. An error from the closure rolls back.
    ///
    /// In the closure, in its thread, every commit through a handle of the same database (`db.put`,
    /// `db.kv(..).put`, another `transact`) is refused with `InvalidArgument`: call it on `tx`. Reads through
    /// such a handle are allowed, and see the newest published state without this transaction's writes; what
    /// they read is not checked at the commit. Other databases may be read and written.
    ///
    /// An error is returned at once, without waiting until the commits that the closure read are in the log.
    /// If those commits were dropped because the log had no room, the closure runs again instead: the error
    /// was about a state that never was.
    ///
    /// # Errors
    /// What the closure returned, and those of a [commit](crate::Error#commits).
    pub fn transact<T>(&self, run: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        Ok(self.transact_with_receipt(run)?.0)
    }

    /// As [`Db::transact`], for a closure with an error type of its own.
    ///
    /// # Errors
    /// What the closure returned, or those of a [commit](crate::Error#commits), converted into `E`.
    pub fn try_transact<T, E: From<Error>>(
        &self,
        mut run: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut own = None;
        let done = self.transact(|tx| {
            own = None;
            run(tx).map_err(|error| {
                tx.wants_to_run_again().unwrap_or_else(|| {
                    own = Some(error);
                    Error::invalid("the closure of the transaction failed")
                })
            })
        });
        done.map_err(|error| own.take().unwrap_or_else(|| E::from(error)))
    }

    /// Runs a transaction and returns its receipt: its sequence, and the durability level it has reached.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn write(&self, run: impl FnMut(&mut Transaction<'_>) -> Result<()>) -> Result<Receipt> {
        Ok(self.transact_with_receipt(run)?.1)
    }

    /// As [`Db::transact`], with the receipt.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_with_receipt<T>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<(T, Receipt)> {
        let (out, receipt, effects) = self.commit(run, |body| self.engine.transact(self.level, body))?;
        self.finish(effects);
        Ok((out, receipt))
    }

    /// As [`Db::transact_with_receipt`], but returns once the commit is ordered.
    ///
    /// The receipt waits for the durability level. Then call [`Db::finish_in_part`].
    #[cfg(feature = "async")]
    pub(crate) fn transact_and_wait_later<T>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<UnderWay<T>> {
        let later = |body: Body<'_, T>| self.engine.transact_and_wait_later(self.level, body);
        let (out, receipt, effects) = self.commit(run, later)?;
        Ok(UnderWay { out, receipt, effects })
    }

    fn commit<T>(
        &self,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T>,
        transact: impl FnOnce(Body<'_, T>) -> Result<(T, Receipt)>,
    ) -> Result<(T, Receipt, AfterCommit)> {
        inside::refuse(&self.state)?;
        let mut effects = AfterCommit::default();
        let (out, receipt) = transact(&mut |tx| {
            let mut transaction = Transaction::new(tx, &self.state, Noted::default());
            let is_inside = Inside::enter(&self.state);
            let out = run(&mut transaction);
            drop(is_inside);
            let out = out.and_then(|out| references::settle(&transaction).map(|()| out));
            let failed = transaction.failed();
            let noted = transaction.into_noted();
            noted.deadlines().hold(Count::Read, tx, &self.state);
            effects = noted.into_effects();
            failed.map_or(out, Err)
        })?;
        Ok((out, receipt, effects))
    }

    /// Begins a transaction that rests between calls: see [`OpenTransaction`].
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `Closed` (E0207) after a close;
    /// `ForkedHandle` (E0206) in a forked process; `EnginePoisoned` (E0601) after a failed sync.
    /// `CorruptData` (E0501) or `System` (E1001) if the log could not be applied to the trees after opening.
    pub fn begin(&self) -> Result<OpenTransaction> {
        Ok(OpenTransaction::new(self.clone(), self.engine.begin_published()?))
    }

    /// The work after a commit: caches, callbacks, expiring and collecting.
    pub(crate) fn finish(&self, effects: AfterCommit) {
        self.publish_shapes(&effects);
        let left = effects.apply(&self.state, self.level);
        (self.after_writes)(self, &left);
    }

    /// Notes which shapes of a commit are published. A commit at level `Memory` may not be, and be dropped.
    fn publish_shapes(&self, effects: &AfterCommit) {
        if effects.shapes.is_empty() {
            return;
        }
        if let Ok(snapshot) = self.engine.snapshot() {
            self.state.catalog.shapes.published(&snapshot, &effects.shapes);
        }
    }

    /// As [`Db::finish`], but returns the part that is slow or calls the program, if any. The rest is done.
    #[cfg(feature = "async")]
    pub(crate) fn finish_in_part(&self, effects: AfterCommit) -> Option<Box<dyn FnOnce() + Send>> {
        let db = self.clone();
        if effects.calls_program() {
            return Some(Box::new(move || db.finish(effects)));
        }
        self.publish_shapes(&effects);
        let left = effects.apply(&self.state, self.level);
        if left.is_empty() {
            return None;
        }
        Some(Box::new(move || (db.after_writes)(&db, &left)))
    }

    /// A snapshot of the newest state. It stays readable after [`Db::close`], and can be taken after it too.
    ///
    /// # Errors
    /// `ForkedHandle` (E0206) in a process that was forked after the database was opened.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::new(self.engine.snapshot()?, Arc::clone(&self.state)))
    }

    /// The documents of a collection by name. Each call checks that the collection exists.
    #[must_use]
    pub fn documents(&self, name: impl Into<String>) -> Documents {
        Documents::new(self.clone(), name.into())
    }

    /// Creates a collection, or opens an existing one with the same definition.
    ///
    /// # Errors
    /// As [`Transaction::ensure`], and those of a [commit](crate::Error#commits).
    pub fn ensure(&self, schema: &Schema) -> Result<Documents> {
        self.transact(|tx| tx.ensure(schema))?;
        Ok(self.documents(schema.name()))
    }

    /// Every collection, by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn collections(&self) -> Result<Vec<Schema>> {
        self.snapshot()?.collections()
    }

    /// Every view of every collection, and its build progress.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn view_states(&self) -> Result<Vec<ViewState>> {
        let snapshot = self.snapshot()?;
        let mut states = Vec::new();
        for schema in snapshot.collections()? {
            states.extend(snapshot.documents(schema.name()).views()?);
        }
        Ok(states)
    }

    /// A tree of plain bytes by name.
    #[must_use]
    pub fn bytes(&self, name: impl Into<String>) -> ByteTree {
        ByteTree::new(self.clone(), name.into())
    }

    /// Counters since the database was opened, and sizes now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Changes the target for all memory of the engine, which [`DbOptions::memory_bytes`] set. More memory is
    /// used as pages are read and written. After a lower target the next evictions and checkpoints free what
    /// is too much.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) below 4 MiB.
    ///
    /// [`DbOptions::memory_bytes`]: crate::DbOptions::memory_bytes
    pub fn set_memory_bytes(&self, bytes: usize) -> Result<()> {
        self.engine.set_memory_bytes(bytes)
    }

    /// A random number of this opening of the database, never 0. All its handles have the same, and the next
    /// opening has another: commits below level `Disk` may be lost in between.
    #[must_use]
    pub fn opening(&self) -> u64 {
        let draw = || u64::try_from(self.state.clock.random() >> 64).map_or(1, |random| random.max(1));
        *self.state.opening.get_or_init(draw)
    }

    /// How durable this database is, and why.
    #[must_use]
    pub fn durability_status(&self) -> DurabilityStatus {
        self.engine.durability_status()
    }

    /// Reads and verifies every page of the newest state, and the log after the newest checkpoint.
    ///
    /// Of the pages it verifies checksums, order, counts and reductions, and that each extent belongs to one
    /// page. Of the log it verifies each frame and commit, and that it does not end before the durable
    /// watermark. Older parts of the log are no longer needed and not verified.
    ///
    /// Opening checks more: whether any segment contains evidence of commits that are missing.
    ///
    /// # Errors
    /// `SnapshotExpired` (E0801) if the snapshot that is checked was ended to free its space;
    /// `System` (E1001) if a file of the change feed cannot be read; `ForkedHandle` (E0206) in a forked
    /// process. Shortly after opening `CorruptData` (E0501) or `System` (E1001) if the log could not be
    /// applied to the trees. Everything else that cannot be read is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.engine.check()
    }

    /// Writes a checkpoint, marks the repair as finished, and allows the database to be opened.
    pub(crate) fn finish_repair(&self) -> Result<()> {
        self.engine.finish_repair()
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint()
    }

    /// Writes a checkpoint, and calls `between` halfway through. For simulations.
    ///
    /// # Errors
    /// `Io`, `Full`, `Poisoned`.
    #[doc(hidden)]
    pub fn checkpoint_with(&self, between: &mut dyn FnMut()) -> Result<()> {
        self.engine.checkpoint_with(between)
    }

    /// Runs one step of the engine's background threads. For simulations, which open with
    /// `Background::Stepped`.
    ///
    /// # Errors
    /// Errors of the log or the data file.
    #[doc(hidden)]
    pub fn step_engine(&self) -> Result<()> {
        self.engine.step()
    }

    /// Ends like a killed process: without a checkpoint and without a durable watermark. For simulations.
    #[doc(hidden)]
    pub fn abandon(self) {
        drop(self.state.ids.end());
        self.engine.abandon();
    }

    pub(crate) fn copy_to(
        &self,
        path: &Path,
        value_in_copy: &dyn Fn(&str, Vec<u8>) -> Vec<u8>,
        progress: &mut dyn FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        self.engine.copy_to(path, value_in_copy, progress)
    }

    pub(crate) fn copy_source(&self) -> Result<CopySource> {
        self.engine.copy_source()
    }

    /// Checks that this thread may commit. Call it before blocking on a lock that guards commits.
    pub(crate) fn may_commit(&self) -> Result<()> {
        inside::refuse(&self.state)?;
        self.engine.may_commit()
    }

    /// The durability level of this handle's commits.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.level
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("level", &self.level).finish_non_exhaustive()
    }
}
