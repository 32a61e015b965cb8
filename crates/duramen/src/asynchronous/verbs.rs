//! The common methods for typed documents. Each is a transaction or a snapshot of its own, as in
//! [`Db`](crate::Db).
//!
//! Documents and keys are passed by value, because another thread uses them.

use crate::store::Receipt;

use super::AsyncDb;
use crate::access::collection::{AssignedKey, Collection};
use crate::access::reads::LocalReads;
use crate::access::reads::Reads;
use crate::access::references::Deleted;
use crate::access::revision::{ReplaceError, Revision, Versioned};
use crate::store::error::Result;
use crate::value::range::IntoSpan;
use crate::value::tuple::KeyFor;

impl AsyncDb {
    /// The document under a key, of the newest state. Dropping the future changes nothing.
    ///
    /// # Errors
    /// As [`Query`](crate::Query).
    pub async fn get<C: Collection + Send>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
    ) -> Result<Option<C>> {
        self.read(move |at| at.get(key)).await
    }

    /// The document under a key with its revision, for [`AsyncDb::replace`].
    ///
    /// # Errors
    /// As [`Query`](crate::Query).
    pub async fn get_versioned<C: Collection + Send>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
    ) -> Result<Option<Versioned<C>>> {
        self.read(move |at| at.get_versioned(key)).await
    }

    /// Stores a document, replacing any with its key. Dropping behaves as for [`AsyncDb::transact`], here and
    /// below.
    ///
    /// # Errors
    /// As [`Db::put`](crate::Db::put).
    pub async fn put<C: Collection + Send>(&self, document: C) -> Result<Receipt> {
        self.write(move |tx| tx.put(&document)).await
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`Db::insert`](crate::Db::insert).
    pub async fn insert<C: Collection + Send>(&self, document: C) -> Result<Receipt> {
        self.write(move |tx| tx.insert(&document)).await
    }

    /// Replaces the document with the same key, which must exist.
    ///
    /// # Errors
    /// As [`Db::update`](crate::Db::update).
    pub async fn update<C: Collection + Send>(&self, document: C) -> Result<Receipt> {
        self.write(move |tx| tx.update(&document)).await
    }

    /// Replaces a document if its revision is still this one. Returns the new revision.
    ///
    /// # Errors
    /// As [`Db::replace`](crate::Db::replace).
    pub async fn replace<C: Collection + Send>(
        &self,
        document: C,
        revision: Revision,
    ) -> std::result::Result<Revision, ReplaceError<C>> {
        self.try_transact(move |tx| tx.replace(&document, revision)).await
    }

    /// Changes a document in place, retrying after conflicts. Returns the new document; `None` if there is
    /// none.
    ///
    /// # Errors
    /// As [`Db::modify`](crate::Db::modify).
    pub async fn modify<C: Collection + Send>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
        mut change: impl FnMut(&mut C) -> Result<()> + Send + 'static,
    ) -> Result<Option<C>> {
        self.transact(move |tx| tx.modify::<C>(&key, &mut change)).await
    }

    /// Changes the document with the key of `or_else`, or stores `or_else` if there is none.
    ///
    /// # Errors
    /// As [`Db::modify`](crate::Db::modify).
    pub async fn upsert<C: Collection + Send>(
        &self,
        or_else: C,
        mut change: impl FnMut(&mut C) -> Result<()> + Send + 'static,
    ) -> Result<Receipt> {
        self.write(move |tx| tx.upsert(&or_else, &mut change)).await
    }

    /// Assigns a new key to a document, stores it, and returns it. The key was never assigned before.
    ///
    /// # Errors
    /// As [`Db::push`](crate::Db::push).
    pub async fn push<C: AssignedKey + Send>(&self, document: C) -> Result<C> {
        let (document, (), _) = self.transact_on(document, |document, tx| tx.push_in(document)).await?;
        Ok(document)
    }

    /// Deletes a document. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Db::delete`](crate::Db::delete).
    pub async fn delete<C: Collection>(&self, key: impl KeyFor<C::Key> + Send + 'static) -> Result<bool> {
        self.transact(move |tx| tx.delete::<C>(&key)).await
    }

    /// As [`AsyncDb::delete`], and counts the documents that followed because they referred to it.
    ///
    /// # Errors
    /// As [`Db::delete`](crate::Db::delete).
    pub async fn delete_counting<C: Collection>(
        &self,
        key: impl KeyFor<C::Key> + Send + 'static,
    ) -> Result<Deleted> {
        self.run(move |db| db.delete_counting::<C>(key)).await
    }

    /// Deletes the documents of a range, at most 1,000 per transaction. Returns how many there were.
    ///
    /// Takes a thread of the pool until it is done.
    ///
    /// # Errors
    /// As [`Db::delete`](crate::Db::delete). Documents deleted before the error stay deleted.
    pub async fn delete_range<C: Collection>(
        &self,
        range: impl IntoSpan<C::Key> + Send + 'static,
    ) -> Result<u64> {
        self.run(move |db| db.delete_range::<C>(range)).await
    }
}
