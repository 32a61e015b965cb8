//! The asynchronous handle: the same database for programs that await, on any runtime.
//!
//! A thin layer. Work runs on a bounded pool of threads ([`pool`]). Commits wait for the disk without a
//! thread of the pool: one thread waits for all of them ([`flusher`]). The futures ([`task`]) depend on no
//! runtime. This module stores nothing and adds no promises to those of the blocking calls: an awaited commit
//! has reached its level. Decision 0021.

mod calls;
mod changes;
mod flusher;
mod pool;
mod requests;
mod task;
mod transact;
mod verbs;
mod whole;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::store::{Durability, Receipt};

use crate::access::handle::Db;
use crate::access::open_transaction::OpenTransaction;
use crate::access::snapshot::Snapshot;
use crate::access::transaction::Transaction;
use crate::db::options::DbOptions;
use crate::store::error::{Error, Result};

pub use calls::CallThreads;
pub use changes::{AsyncChangeIter, AsyncChanges};
use pool::Crew;
use task::{Step, submit};

/// An open database for asynchronous programs. Clones are cheap and share the database and its threads.
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Debug, Serialize, Deserialize, Collection)]
/// struct Account {
///     #[key]
///     id: u64,
///     cents: i64,
/// }
///
/// # fn main() -> Result<()> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
/// # runtime.block_on(async {
/// let db: AsyncDb = Db::in_memory()?.into_async();
/// db.put(Account { id: 1, cents: 100 }).await?;
/// let left = db
///     .transact(|tx| {
///         let mut account: Account = tx.get(1)?.ok_or_else(|| Error::invalid("no account 1"))?;
///         account.cents -= 5;
///         tx.put(&account)?;
///         Ok(account.cents)
///     })
///     .await?;
/// assert_eq!(left, 95);
/// # db.close().await
/// # })
/// # }
/// ```
///
/// # Threads
/// Closures run on a pool of threads. [`AsyncDb::with_threads`] sets its size; the default is twice the
/// number of processors, and at least 4. A call that finds no free thread waits in the queue as a future:
/// it never blocks the executor's thread. The queue is never longer than the number of futures alive. Waiting
/// for the disk takes no thread of the pool: one more thread does it for all commits, so that a thousand
/// tasks share each flush. Only a commit that is alone keeps its thread, while another one is free. Threads
/// start on demand, and end after a second without work. Dropping the last clone stops them, and waits for
/// the calls that they have begun.
///
/// A writer that the engine slows down, because memory or the disk fills, keeps its thread meanwhile. Reads
/// that must not wait for such writers need a handle with its own threads:
/// `AsyncDb::from(db.blocking().clone())`.
///
/// A closure may use the [blocking](AsyncDb::blocking) handle. It must not wait for another call of this
/// handle: if all threads wait like that, none is left to run the calls they wait for. The same holds for the
/// destructors of values that a closure owns. They may also run on the thread that waits for the disk.
///
/// # Dropping a future
/// Nothing happens before a future is polled. If it is dropped before a thread took its closure, the closure
/// does not run. If it is dropped later, the closure runs to its end. Its commit then takes place as if it
/// had been awaited: durable, in order. A cancelled call does not report whether it took place; read the
/// database to find out.
///
/// # Errors
/// Each call also returns `System` (E1001) if the system gives no thread for it.
///
/// # Panics
/// A closure that panics does so where it is awaited, as with the blocking calls. The threads continue.
#[derive(Clone)]
pub struct AsyncDb {
    /// Declared before the database, so dropped first: it finishes the calls that have begun.
    crew: Arc<Crew>,
    db: Db,
}

impl From<Db> for AsyncDb {
    fn from(db: Db) -> AsyncDb {
        AsyncDb::with_threads(db, pool::thread_count())
    }
}

impl Db {
    /// The same database for asynchronous programs. Its other handles do not change.
    #[must_use]
    pub fn into_async(self) -> AsyncDb {
        AsyncDb::from(self)
    }
}

impl AsyncDb {
    /// Wraps a database, with `threads` threads (at least one) for calls and one that waits for the disk.
    #[must_use]
    pub fn with_threads(db: Db, threads: usize) -> AsyncDb {
        AsyncDb { crew: Arc::new(Crew::new(threads)), db }
    }

    /// Opens the database in this directory, or creates it, on a thread of the pool.
    ///
    /// # Errors
    /// As [`Db::open`]. A dropped future may still have created the database.
    pub async fn open(path: impl AsRef<Path>) -> Result<AsyncDb> {
        AsyncDb::open_with(Db::options(), path).await
    }

    /// As [`AsyncDb::open`], with options and the same behaviour when dropped.
    ///
    /// # Errors
    /// As [`DbOptions::open`].
    pub async fn open_with(options: DbOptions, path: impl AsRef<Path>) -> Result<AsyncDb> {
        let crew = Arc::new(Crew::new(pool::thread_count()));
        let path = path.as_ref().to_owned();
        // If the future is dropped meanwhile, the opening thread keeps the pool: the drop must not wait for
        // the opening.
        let of_opening = Arc::clone(&crew);
        let open = move || {
            let opened = options.open(path);
            drop(of_opening);
            Step::Done(opened)
        };
        let db = submit(crew.pool(), open).await?;
        Ok(AsyncDb { crew, db })
    }

    /// The blocking handle: for setup, and inside [`AsyncDb::run`].
    ///
    /// Reads of data in memory take microseconds, less than a call through the pool. A call that may wait for
    /// the disk blocks the executor's thread.
    #[must_use]
    pub fn blocking(&self) -> &Db {
        &self.db
    }

    /// The same database with another durability level for its commits.
    #[must_use]
    pub fn at(&self, level: Durability) -> AsyncDb {
        AsyncDb { crew: Arc::clone(&self.crew), db: self.db.at(level) }
    }

    /// The durability level of this handle's commits.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.db.durability()
    }

    /// Runs a closure with the blocking handle on a thread of the pool.
    ///
    /// Use it for everything without a method here: key-values, blobs, trees of bytes, handling changes as a
    /// [`Consumer`](crate::Consumer). Commits wait for their level on that thread.
    ///
    /// If dropped before the closure began, nothing happens; if dropped later, the closure runs to its end.
    ///
    /// # Errors
    /// What the closure returned; `System` (E1001) if the system gives no thread for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let db = self.db.clone();
        submit(self.crew.pool(), move || Step::Done(work(&db))).await
    }

    /// Runs a closure on a snapshot of the newest state. Dropping the future changes nothing.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Serialize, Deserialize, Collection)]
    /// # struct Order { #[key] id: u64, cents: i64 }
    /// # async fn of(db: &AsyncDb) -> Result<()> {
    /// let first = db.read(|at| at.collection::<Order>().limit(10).to_vec()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What the closure returned; `ForkedHandle` (E0206) in a forked process; `System` (E1001) if the system
    /// gives no thread.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |db| read(&db.snapshot()?)).await
    }

    /// Runs a transaction and returns what the closure returned, once the commit has reached its level.
    ///
    /// It is strictly serialisable. After a conflict the closure runs again, so it should do nothing but read
    /// and write `tx`. An error from the closure rolls back.
    ///
    /// If dropped before the closure began, nothing happens; if dropped later, it commits or not as if it had
    /// been awaited.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        Ok(self.transact_with_receipt(run).await?.0)
    }

    /// As [`AsyncDb::transact`], for a closure with an error type of its own. Dropping behaves the same.
    ///
    /// # Errors
    /// As [`Db::try_transact`].
    pub async fn try_transact<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<T, E> {
        transact::with_own_error(self, run).await
    }

    /// Runs a transaction and returns its receipt. Dropping behaves as for [`AsyncDb::transact`].
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn write(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<()> + Send + 'static,
    ) -> Result<Receipt> {
        Ok(self.transact_with_receipt(run).await?.1)
    }

    /// As [`AsyncDb::transact`], with the receipt. Dropping behaves the same.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact_with_receipt<T: Send + 'static>(
        &self,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Receipt)> {
        let ((), out, receipt) = self.transact_on((), move |(), tx| run(tx)).await?;
        Ok((out, receipt))
    }

    /// Runs a transaction on a value, and returns the value with the outcome.
    async fn transact_on<S: Send + 'static, T: Send + 'static>(
        &self,
        state: S,
        run: impl FnMut(&mut S, &mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(S, T, Receipt)> {
        let db = self.db.clone();
        submit(self.crew.pool(), move || transact::begin(db, state, run)).await
    }

    /// Commits a transaction that rested between calls, as [`OpenTransaction::commit`] does, at this handle's
    /// level. Waiting for the disk takes no thread.
    ///
    /// If dropped before it began, the transaction is rolled back; if dropped later, it commits or not as if
    /// it had been awaited.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # async fn of(db: &AsyncDb) -> Result<()> {
    /// let mut order = db.run(|db| db.begin()).await?;
    /// let order = db
    ///     .run(move |_| {
    ///         order.with(|tx| tx.kv("stock").increment("apples", -1))?;
    ///         Ok(order)
    ///     })
    ///     .await?;
    /// db.commit(order).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`OpenTransaction::commit`].
    pub async fn commit(&self, open: OpenTransaction) -> Result<Receipt> {
        let level = self.db.durability();
        submit(self.crew.pool(), move || transact::commit(open, level)).await
    }

    /// Waits until a transaction has reached a level, as [`Receipt::wait`] does, without a thread of its own.
    ///
    /// All waiters share the flush. Dropping the future changes nothing.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # async fn of(db: &AsyncDb) -> Result<()> {
    /// let quick = db.at(Durability::Process);
    /// let receipt = quick.write(|tx| tx.kv("sessions").put("sid", &42).map(drop)).await?;
    /// db.wait(&receipt, Durability::Disk).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Receipt::wait`].
    pub async fn wait(&self, receipt: &Receipt, level: Durability) -> Result<()> {
        task::wait(self.crew.pool(), receipt.clone(), level).await
    }

    /// Closes the database on a thread of the pool, as [`Db::close`] does.
    ///
    /// Await it before the last handle is dropped; otherwise that drop closes the database and blocks its
    /// thread. A dropped future closes the database all the same.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub async fn close(&self) -> Result<()> {
        self.run(Db::close).await
    }
}

impl fmt::Debug for AsyncDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncDb").field("db", &self.db).field("crew", &self.crew).finish()
    }
}
