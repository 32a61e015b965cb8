//! A database that another process serves, for programs that await.

use duramen::error::Result;
use duramen::tuple::KeyFor;
use duramen::wire::CallThreads;
use duramen::{AssignedKey, Collection, Reads as _, Store as _, Tx as _};
use duramen_proto::v1;

use super::{Remote, RemoteSnapshot, RemoteTransaction};

/// The threads of a handle: they wait for the network more than they compute.
const THREADS: usize = 64;

/// A database that another process serves, for asynchronous programs, on any runtime.
///
/// It is to [`Remote`] what [`AsyncDb`](duramen::AsyncDb) is to [`Db`](duramen::Db), with the same closures.
/// It has the everyday calls; everything else runs with the blocking handle: [`AsyncRemote::run`]. Writes
/// return no receipt, but for [`AsyncRemote::transact_with_receipt`]. Clones share the connection and the
/// threads.
///
/// ```no_run
/// use duramen::prelude::*;
/// use duramen_client::AsyncRemote;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// struct Account { #[key] id: u64, cents: i64 }
///
/// # async fn of() -> Result<()> {
/// let db = AsyncRemote::connect("shop.duramen").await?;
/// db.put(Account { id: 1, cents: 100 }).await?;
/// let left = db
///     .transact(|tx| {
///         let paid = tx.modify::<Account>(1, |account| {
///             account.cents -= 5;
///             Ok(())
///         })?;
///         Ok(paid.map_or(0, |account| account.cents))
///     })
///     .await?;
/// # drop(left); Ok(()) }
/// ```
///
/// # Threads
/// Calls run on threads that wait for the server's answers, at most 64 or as
/// [`AsyncRemote::with_threads`] says: so many calls run at once, 96 transactions among them at most. More
/// calls wait as futures, and what a call may take is counted from the moment when a thread takes it. Threads
/// start on demand, and end after a second without work. Dropping the last clone waits for the calls that
/// have begun. A closure must not wait for another call of this handle: if all threads wait like that, none
/// is left.
///
/// # Dropping a future
/// Nothing happens before a future is polled. If it is dropped before a thread took its closure, the closure
/// does not run. If it is dropped later, the closure runs to its end, and its commit takes place as if it had
/// been awaited.
///
/// # Errors
/// Each call also returns `System` (E1001) if the system gives no thread for it.
///
/// # Panics
/// A closure that panics does so where it is awaited.
#[derive(Debug, Clone)]
pub struct AsyncRemote {
    threads: CallThreads,
    remote: Remote,
}

impl From<Remote> for AsyncRemote {
    fn from(remote: Remote) -> AsyncRemote {
        AsyncRemote::with_threads(remote, THREADS)
    }
}

impl Remote {
    /// The same connection for asynchronous programs.
    #[must_use]
    pub fn into_async(self) -> AsyncRemote {
        AsyncRemote::from(self)
    }
}

impl AsyncRemote {
    /// Connects to a server, as [`Remote::connect`] does.
    ///
    /// # Errors
    /// As [`Remote::connect`].
    pub async fn connect(address: &str) -> Result<AsyncRemote> {
        let (threads, address) = (CallThreads::new(THREADS), address.to_owned());
        // If the future is dropped meanwhile, the thread keeps the threads: the drop must not wait for it.
        let of_call = threads.clone();
        let connect = move || {
            let connected = Remote::connect(&address);
            drop(of_call);
            connected
        };
        let remote = threads.run(connect).await?;
        Ok(AsyncRemote { threads, remote })
    }

    /// Wraps a connection, with at most so many threads for calls, at least one.
    #[must_use]
    pub fn with_threads(remote: Remote, threads: usize) -> AsyncRemote {
        AsyncRemote { threads: CallThreads::new(threads), remote }
    }

    /// The blocking handle. Its calls wait for the server: on an executor's thread, they block it.
    #[must_use]
    pub fn blocking(&self) -> &Remote {
        &self.remote
    }

    /// Runs a closure with the blocking handle on a thread for calls: queries, key-values, blobs, the step of
    /// a consumer.
    ///
    /// # Errors
    /// What the closure returned.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Remote) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let remote = self.remote.clone();
        self.threads.run(move || work(&remote)).await
    }

    /// Runs a closure on a snapshot of the newest state. For a single read, [`AsyncRemote::run`] takes a
    /// round trip less.
    ///
    /// # Errors
    /// What the closure returned; as [`Remote::snapshot`].
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&RemoteSnapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |db| read(&db.snapshot()?)).await
    }

    /// Runs a transaction, as [`Remote::transact`] does, and returns what the closure returned, once the
    /// commit is on disk.
    ///
    /// # Errors
    /// As [`Remote::transact`].
    pub async fn transact<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut RemoteTransaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |db| db.transact(run)).await
    }

    /// As [`AsyncRemote::transact`], with the receipt of the commit.
    ///
    /// # Errors
    /// As [`Remote::transact`].
    pub async fn transact_with_receipt<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut RemoteTransaction) -> Result<T> + Send + 'static,
    ) -> Result<(T, v1::Receipt)> {
        self.run(move |db| db.transact_with_receipt(run)).await
    }

    /// The document under a key, of the newest state.
    ///
    /// # Errors
    /// As [`Reads::get`](duramen::Reads::get).
    pub async fn get<C: Collection + Send>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
    ) -> Result<Option<C>> {
        self.run(move |db| db.get(key)).await
    }

    /// Stores a document, replacing any with its key.
    ///
    /// # Errors
    /// As [`Store::put`](duramen::Store::put).
    pub async fn put<C: Collection + Send>(&self, document: C) -> Result<()> {
        self.run(move |db| db.put(&document)).await
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`Store::insert`](duramen::Store::insert).
    pub async fn insert<C: Collection + Send>(&self, document: C) -> Result<()> {
        self.run(move |db| db.insert(&document)).await
    }

    /// Replaces the document with the same key, which must exist.
    ///
    /// # Errors
    /// As [`Store::update`](duramen::Store::update).
    pub async fn update<C: Collection + Send>(&self, document: C) -> Result<()> {
        self.run(move |db| db.update(&document)).await
    }

    /// Changes a document in place, again after a conflict. Returns the new document; `None` if there is
    /// none.
    ///
    /// # Errors
    /// As [`Store::modify`](duramen::Store::modify).
    pub async fn modify<C: Collection + Send>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
        change: impl FnMut(&mut C) -> Result<()> + Send + 'static,
    ) -> Result<Option<C>> {
        self.run(move |db| db.modify(key, change)).await
    }

    /// Changes the document with the key of `or_else`, or stores `or_else` if there is none.
    ///
    /// # Errors
    /// As [`AsyncRemote::modify`].
    pub async fn upsert<C: Collection + Send>(
        &self,
        or_else: C,
        mut change: impl FnMut(&mut C) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.transact(move |tx| tx.upsert(&or_else, &mut change)).await
    }

    /// Assigns a new key to a document, stores it, and returns it.
    ///
    /// # Errors
    /// As [`Tx::push`](duramen::Tx::push).
    pub async fn push<C: AssignedKey + Send>(&self, mut document: C) -> Result<C> {
        self.run(move |db| {
            db.transact(|tx| tx.push_in(&mut document))?;
            Ok(document)
        })
        .await
    }

    /// Deletes a document. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Store::delete`](duramen::Store::delete).
    pub async fn delete<C: Collection>(&self, key: impl KeyFor<C::Key> + Send + 'static) -> Result<bool> {
        self.run(move |db| db.delete::<C>(key)).await
    }
}
