//! The asynchronous handle: the same database for programs whose tasks await, on any runtime.
//!
//! A thin facade. Work runs on a bounded pool of threads ([`pool`]), and commits wait for the disk without any of them: one thread waits
//! for all ([`flusher`]). Futures are plain ones, woken by their wakers ([`task`]); no runtime is named. Owns nothing of what is stored,
//! and adds nothing to what the blocking calls promise: what is awaited has reached its level. Decision 0021.

mod changes;
mod flusher;
mod pool;
mod task;
mod transact;
mod verbs;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::store::{Durability, Receipt};

use crate::access::handle::Db;
use crate::access::snapshot::Snapshot;
use crate::access::transaction::Transaction;
use crate::db::options::DbOptions;
use crate::store::error::{Error, Result};

pub use changes::{AsyncChangeIter, AsyncChanges};
use pool::Crew;
use task::{Step, submit};

/// An open database for programs that await. Cloning it is cheap, and every clone is the same database with the same threads.
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
/// Closures run on a pool of threads: as many as [`AsyncDb::with_threads`] says, else twice the processors and at least 4. A call for
/// which none is free waits in its place of the queue, as a future: the executor's thread is never kept waiting, and there is no more in
/// the queue than there are futures alive. Waiting for the disk takes no thread of the pool: one more thread does it for all, so
/// that a thousand tasks share each flush. Threads begin when they are needed and end when they have had nothing to do for a second.
/// With the last clone they stop, and that drop waits for what they have begun.
///
/// A writer that the engine slows down, while memory or the disk fills, keeps its thread meanwhile. Reads that must not wait behind such
/// writers have a handle with threads of its own: `AsyncDb::from(db.blocking().clone())`.
///
/// A closure may use the [blocking](AsyncDb::blocking) handle. It must not wait for another call of this one: with all
/// threads waiting so, none is left for what they wait for. Nor must what a closure owns when it is dropped, which may happen on the
/// thread that waits for the disk.
///
/// # Dropping a future
/// Nothing happens before a future is polled. Dropped before a thread took its closure, the closure does not run. Dropped later, it
/// runs to its end, and what it commits is committed as if it had been awaited: made durable, in order. Whoever cancels a call
/// does not learn whether it took place; for that, read.
///
/// # Panics
/// A closure that panics does so where it is awaited, as with the blocking calls; the threads go on.
#[derive(Clone)]
pub struct AsyncDb {
    /// Dropped before the database: what it has begun, it ends.
    crew: Arc<Crew>,
    db: Db,
}

impl From<Db> for AsyncDb {
    fn from(db: Db) -> AsyncDb {
        AsyncDb::with_threads(db, pool::thread_count())
    }
}

impl Db {
    /// The same database for programs that await. Other handles of it stay what they are.
    #[must_use]
    pub fn into_async(self) -> AsyncDb {
        AsyncDb::from(self)
    }
}

impl AsyncDb {
    /// Over a database, with at most so many threads (at least one) for what is asked, and one that waits for the disk.
    #[must_use]
    pub fn with_threads(db: Db, threads: usize) -> AsyncDb {
        AsyncDb { crew: Arc::new(Crew::new(threads)), db }
    }

    /// Opens the database in this directory, or creates it, on a thread of the pool.
    ///
    /// # Errors
    /// As [`Db::open`]. Dropped, it may have created the database all the same.
    pub async fn open(path: impl AsRef<Path>) -> Result<AsyncDb> {
        AsyncDb::open_with(Db::options(), path).await
    }

    /// As [`AsyncDb::open`], with options. The same when it is dropped.
    ///
    /// # Errors
    /// As [`DbOptions::open`].
    pub async fn open_with(options: DbOptions, path: impl AsRef<Path>) -> Result<AsyncDb> {
        let crew = Arc::new(Crew::new(pool::thread_count()));
        let path = path.as_ref().to_owned();
        // Dropped meanwhile, the future leaves its threads to the one that opens: it must not wait for that.
        let of_opening = Arc::clone(&crew);
        let open = move || {
            let opened = options.open(path);
            drop(of_opening);
            Step::Done(opened)
        };
        let db = submit(crew.pool(), open).await?;
        Ok(AsyncDb { crew, db })
    }

    /// The blocking handle: for setting up, and inside of [`AsyncDb::run`]. Reading what is in memory takes it microseconds, less
    /// than a way through the pool; whatever may wait for the disk keeps the executor's thread waiting too.
    #[must_use]
    pub fn blocking(&self) -> &Db {
        &self.db
    }

    /// The same database with another level for what it commits.
    #[must_use]
    pub fn at(&self, level: Durability) -> AsyncDb {
        AsyncDb { crew: Arc::clone(&self.crew), db: self.db.at(level) }
    }

    /// The level commits of this handle wait for.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.db.durability()
    }

    /// Runs a closure with the blocking handle on a thread of the pool: for all that has no method here, such as backups, checks,
    /// building views, or handling changes as a [`Consumer`](crate::Consumer). Its commits wait for their level there.
    ///
    /// Dropped before it began, nothing happened; dropped later, the closure runs to its end.
    ///
    /// # Errors
    /// What the closure returned.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let db = self.db.clone();
        submit(self.crew.pool(), move || Step::Done(work(&db))).await
    }

    /// Reads the newest state: everything the closure asks is of the same moment. Dropped, it has changed nothing.
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
    /// What the closure returned, and as [`Db::snapshot`].
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |db| read(&db.snapshot()?)).await
    }

    /// Runs a transaction and returns what the closure returned, once the commit has reached its level. It is strictly serialisable;
    /// after a conflict the closure runs again, so it should do nothing but read and write `tx`. An error from the closure rolls back.
    ///
    /// Dropped before it began, nothing happened; dropped later, it commits or not as if it had been awaited.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        Ok(self.transact_with_receipt(run).await?.0)
    }

    /// As [`AsyncDb::transact`], for a closure with an error type of its own. The same when it is dropped.
    ///
    /// # Errors
    /// As [`Db::try_transact`].
    pub async fn try_transact<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<T, E> {
        transact::with_own_error(self, run).await
    }

    /// Runs a transaction and returns its receipt. The same when it is dropped as [`AsyncDb::transact`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub async fn write(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<()> + Send + 'static,
    ) -> Result<Receipt> {
        Ok(self.transact_with_receipt(run).await?.1)
    }

    /// As [`AsyncDb::transact`], with the receipt. The same when it is dropped.
    ///
    /// # Errors
    /// As [`Db::transact_with_receipt`].
    pub async fn transact_with_receipt<T: Send + 'static>(
        &self,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(T, Receipt)> {
        let ((), out, receipt) = self.transact_on((), move |(), tx| run(tx)).await?;
        Ok((out, receipt))
    }

    /// A transaction on something that is given back with its outcome.
    async fn transact_on<S: Send + 'static, T: Send + 'static>(
        &self,
        state: S,
        run: impl FnMut(&mut S, &mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<(S, T, Receipt)> {
        let db = self.db.clone();
        submit(self.crew.pool(), move || transact::begin(db, state, run)).await
    }

    /// Waits until a transaction has reached a level, as [`Receipt::wait`] does, without a thread of its own: everybody who waits
    /// shares the flush. Dropped, it changes nothing.
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

    /// Ends the database, as [`Db::close`] does, on a thread of the pool. To be awaited before the last handle is dropped, which else
    /// closes it and keeps its thread waiting. Dropped, it closes all the same.
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
