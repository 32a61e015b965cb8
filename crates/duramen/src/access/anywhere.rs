//! Programs that do not know where their database is: in this process, or in another one.
//!
//! Owns the traits that functions ask for. [`Db`], [`Snapshot`] and [`Transaction`] implement them for this
//! process; `Remote` of the crate `duramen-client`, its snapshots and its transactions for another one.

use crate::access::codec;
use crate::access::collection::{AssignedKey, Collection};
use crate::access::handle::Db;
use crate::access::reads::Reads;
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Of, Target};
use crate::access::snapshot::Snapshot;
use crate::access::transaction::Transaction;
use crate::access::type_descriptor::TypeDescriptor;
use crate::store::error::Result;
use crate::value::ttl::Ttl;
use crate::value::tuple::{KeyFor, encode};

/// Where the values of keys are read.
#[doc(hidden)]
pub trait KvRead {
    /// Lends the stored value of a key, which is MessagePack, if there is one.
    ///
    /// # Errors
    /// As [`KvOf`](crate::kv::KvOf); what `read` returned.
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;
}

/// Where key-values are written.
#[doc(hidden)]
pub trait KvWrite: KvRead {
    /// Stores a value, which is MessagePack that was checked.
    ///
    /// # Errors
    /// As [`KvOf::put`](crate::kv::KvOf::put).
    fn put_stored(&self, namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Result<()>;

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`KvOf::delete`](crate::kv::KvOf::delete).
    fn delete_key(&self, namespace: &str, key: &[u8]) -> Result<bool>;

    /// Adds to an integer, and returns the sum.
    ///
    /// # Errors
    /// As [`KvOf::increment`](crate::kv::KvOf::increment).
    fn add(&self, namespace: &str, key: &[u8], by: i64) -> Result<i64>;
}

/// A transaction in this process or in another one: see [`Store`].
pub trait Tx: Reads + KvWrite {
    /// Stores a document, replacing any with its key.
    ///
    /// # Errors
    /// As [`Transaction::put`]. In another process an error may be returned later, at the latest by the
    /// commit.
    fn put<C: Collection>(&mut self, document: &C) -> Result<()>;

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`Tx::put`]; `AlreadyExists` (E0210) if there is one.
    fn insert<C: Collection>(&mut self, document: &C) -> Result<()>;

    /// Replaces the document with the same key, which must exist.
    ///
    /// # Errors
    /// As [`Tx::put`]; `NoSuchKey` (E0903) if there is none.
    fn update<C: Collection>(&mut self, document: &C) -> Result<()>;

    /// Changes a document in place and returns the new document; `None` if there is none.
    ///
    /// # Errors
    /// As [`Transaction::modify`].
    fn modify<C: Collection>(
        &mut self,
        key: impl KeyFor<C::Key>,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<Option<C>>;

    /// Changes the document with the key of `or_else`, or stores `or_else` if there is none.
    ///
    /// # Errors
    /// As [`Transaction::modify`].
    fn upsert<C: Collection>(
        &mut self,
        or_else: &C,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<()> {
        match self.modify::<C>(or_else.key(), change)? {
            Some(_) => Ok(()),
            None => self.put(or_else),
        }
    }

    /// Assigns a new key to a document, stores it, and returns it. The key was never assigned before.
    ///
    /// # Errors
    /// As [`Transaction::push`].
    fn push<C: AssignedKey>(&mut self, document: C) -> Result<C>;

    /// Deletes a document. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    fn delete<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<bool>;

    /// Deletes a document and returns it.
    ///
    /// # Errors
    /// As [`Transaction::take`].
    fn take<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        let taken = self.get::<C>(&key)?;
        if taken.is_some() {
            self.delete::<C>(key)?;
        }
        Ok(taken)
    }
}

/// A database in this process or in another one.
///
/// Functions of it run on a [`Db`] and on a `Remote` of the crate `duramen-client`:
///
/// ```
/// use duramen::prelude::*;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// struct Account { #[key] id: u64, cents: i64 }
///
/// fn pay<T: Tx>(tx: &mut T, from: u64, to: u64, cents: i64) -> Result<()> {
///     for (id, cents) in [(from, -cents), (to, cents)] {
///         let paid = tx.modify::<Account>(id, |account| {
///             account.cents += cents;
///             Ok(())
///         })?;
///         paid.ok_or_else(|| Error::invalid("there is no such account"))?;
///     }
///     Ok(())
/// }
///
/// fn settle<S: Store>(db: &S) -> Result<i64> {
///     db.put(&Account { id: 1, cents: 500 })?;
///     db.put(&Account { id: 2, cents: 0 })?;
///     db.transact(|tx| pay(tx, 1, 2, 300))?;
///     Ok(db.get::<Account>(2)?.map_or(0, |account| account.cents))
/// }
/// # fn main() -> Result<()> {
/// assert_eq!(settle(&Db::in_memory()?)?, 300);
/// # Ok(()) }
/// ```
///
/// Each read of it is of the newest state, and each write a transaction of its own.
pub trait Store: Reads + KvWrite {
    /// Its transactions.
    type Tx<'t>: Tx;

    /// Its snapshots.
    type Snapshot: Reads;

    /// Runs a transaction and returns what the closure returned, as [`Db::transact`] does: strictly
    /// serialisable, and again after a conflict.
    ///
    /// # Errors
    /// What the closure returned, and those of a [commit](crate::Error#commits).
    fn transact<T>(&self, run: impl FnMut(&mut Self::Tx<'_>) -> Result<T>) -> Result<T>;

    /// A snapshot of the newest state.
    ///
    /// # Errors
    /// As [`Db::snapshot`].
    fn snapshot(&self) -> Result<Self::Snapshot>;

    /// As [`Tx::put`], in a transaction of its own.
    ///
    /// # Errors
    /// As [`Db::put`].
    fn put<C: Collection>(&self, document: &C) -> Result<()> {
        self.transact(|tx| tx.put(document))
    }

    /// As [`Tx::insert`], in a transaction of its own.
    ///
    /// # Errors
    /// As [`Db::insert`].
    fn insert<C: Collection>(&self, document: &C) -> Result<()> {
        self.transact(|tx| tx.insert(document))
    }

    /// As [`Tx::update`], in a transaction of its own.
    ///
    /// # Errors
    /// As [`Db::update`].
    fn update<C: Collection>(&self, document: &C) -> Result<()> {
        self.transact(|tx| tx.update(document))
    }

    /// As [`Tx::modify`], in a transaction of its own.
    ///
    /// # Errors
    /// As [`Db::modify`].
    fn modify<C: Collection>(
        &self,
        key: impl KeyFor<C::Key>,
        mut change: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<Option<C>> {
        self.transact(|tx| tx.modify::<C>(&key, &mut change))
    }

    /// As [`Tx::delete`], in a transaction of its own.
    ///
    /// # Errors
    /// As [`Db::delete`].
    fn delete<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<bool> {
        self.transact(|tx| tx.delete::<C>(&key))
    }
}

/// The document under a key of a state in this process.
fn get_here<C: Collection>(state: &impl Readable, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
    let key = encode(&key)?;
    let Some(entry) = state.fitting(TypeDescriptor::of::<C>())? else { return Ok(None) };
    codec::read(state.source(), entry.schema.shapes(), entry.tree, &key)
}

impl Reads for Snapshot {
    fn target(&self) -> Target<'_> {
        Target(Of::State(self))
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        get_here(self, key)
    }
}

impl Reads for Transaction<'_> {
    fn target(&self) -> Target<'_> {
        Target(Of::State(self))
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        get_here(self, key)
    }
}

impl Reads for Db {
    fn target(&self) -> Target<'_> {
        Target(Of::Db(self))
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        get_here(&Db::snapshot(self)?, key)
    }
}

impl Tx for Transaction<'_> {
    fn put<C: Collection>(&mut self, document: &C) -> Result<()> {
        Transaction::put(self, document)
    }

    fn insert<C: Collection>(&mut self, document: &C) -> Result<()> {
        Transaction::insert(self, document)
    }

    fn update<C: Collection>(&mut self, document: &C) -> Result<()> {
        Transaction::update(self, document)
    }

    fn modify<C: Collection>(
        &mut self,
        key: impl KeyFor<C::Key>,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<Option<C>> {
        Transaction::modify(self, key, change)
    }

    fn push<C: AssignedKey>(&mut self, document: C) -> Result<C> {
        Transaction::push(self, document)
    }

    fn delete<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<bool> {
        Transaction::delete::<C>(self, key)
    }
}

impl Store for Db {
    type Tx<'t> = Transaction<'t>;
    type Snapshot = Snapshot;

    fn transact<T>(&self, run: impl FnMut(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        Db::transact(self, run)
    }

    fn snapshot(&self) -> Result<Snapshot> {
        Db::snapshot(self)
    }
}
