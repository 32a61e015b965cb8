//! The methods of a [`Db`] for typed documents, where each call is a transaction or a snapshot of its own.

use crate::store::Receipt;

use crate::access::collection::{AssignedKey, Collection};
use crate::access::handle::Db;
use crate::access::query::Query;
use crate::access::reads::LocalReads;
use crate::access::reads::Reads;
use crate::access::references::Deleted;
use crate::access::revision::{ReplaceError, Revision, Versioned};
use crate::access::selection::Of;
use crate::access::views::View;
use crate::access::views::query::ViewQuery;
use crate::store::error::{Code, Result};
use crate::value::range::IntoSpan;
use crate::value::tuple::KeyFor;

/// Documents deleted per transaction.
const DELETED_AT_A_TIME: u64 = 1_000;

impl Db {
    /// The documents of a typed collection.
    #[must_use]
    pub fn collection<C: Collection>(&self) -> Query<'_, C> {
        Query::new(Of::Db(self))
    }

    /// The rows of a view.
    #[must_use]
    pub fn view<V: View>(&self) -> ViewQuery<'_, V> {
        ViewQuery::new(Of::Db(self))
    }

    /// The document under a key, of the newest state.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        self.snapshot()?.get(key)
    }

    /// The document under a key and its revision.
    ///
    /// # Errors
    /// As [`Query`].
    pub fn get_versioned<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<Versioned<C>>> {
        self.snapshot()?.get_versioned(key)
    }

    /// Stores a document, replacing any with its key.
    ///
    /// # Errors
    /// As [`Transaction::put`](crate::Transaction::put), and those of a [commit](crate::Error#commits).
    pub fn put<C: Collection>(&self, document: &C) -> Result<Receipt> {
        self.write(|tx| tx.put(document))
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`Db::put`]; `AlreadyExists` (E0210) if there is one.
    pub fn insert<C: Collection>(&self, document: &C) -> Result<Receipt> {
        self.write(|tx| tx.insert(document))
    }

    /// Replaces the document with the same key, which must exist.
    ///
    /// # Errors
    /// As [`Db::put`]; `NoSuchKey` (E0903) if there is none.
    pub fn update<C: Collection>(&self, document: &C) -> Result<Receipt> {
        self.write(|tx| tx.update(document))
    }

    /// Replaces a document if its revision has not changed since it was read. Returns the new revision.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    /// # struct Note { #[key] id: u64, text: String }
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// db.put(&Note { id: 1, text: "first".into() })?;
    /// let read = db.get_versioned::<Note>(1)?.expect("it was just put");
    /// db.put(&Note { id: 1, text: "somebody else's".into() })?;
    /// match db.replace(&Note { id: 1, text: "mine".into() }, read.revision) {
    ///     Err(ReplaceError::Changed(Some(now))) => assert_eq!(now.document.text, "somebody else's"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ReplaceError::Changed`] with the document as it is now; else as [`Db::put`], also
    /// `Unreadable` (E0213) if that document does not decode as its type.
    pub fn replace<C: Collection>(
        &self,
        document: &C,
        revision: Revision,
    ) -> std::result::Result<Revision, ReplaceError<C>> {
        self.try_transact(|tx| tx.replace(document, revision))
    }

    /// Changes a document in place, retrying after conflicts. Returns the new document; `None` if there is
    /// none.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Serialize, Deserialize, Collection)]
    /// # struct Page { #[key] path: String, views: u64 }
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// # db.put(&Page { path: "/".into(), views: 0 })?;
    /// db.modify::<Page>("/", |page| {
    ///     page.views += 1;
    ///     Ok(())
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What `change` returned; `InvalidArgument` (E0201) if it changed the key; `Unreadable` (E0213) if the
    /// document does not decode as its type; else as [`Db::put`].
    pub fn modify<C: Collection>(
        &self,
        key: impl KeyFor<C::Key>,
        mut change: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<Option<C>> {
        self.transact(|tx| tx.modify::<C>(&key, &mut change))
    }

    /// Changes the document with the key of `or_else`, or stores `or_else` if there is none.
    ///
    /// # Errors
    /// As [`Db::modify`].
    pub fn upsert<C: Collection>(
        &self,
        or_else: &C,
        mut change: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<Receipt> {
        self.write(|tx| tx.upsert(or_else, &mut change))
    }

    /// Assigns a new key to a document, stores it, and returns it. The key was never assigned before.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// #[derive(Serialize, Deserialize, Collection)]
    /// struct Ticket {
    ///     #[key(assigned)]
    ///     id: u64,
    ///     text: String,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let ticket = db.push(Ticket { id: 0, text: "the printer is on fire".into() })?;
    /// assert_eq!(ticket.id, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Db::put`]; `InvalidArgument` (E0201) when the ids have run out.
    pub fn push<C: AssignedKey>(&self, mut document: C) -> Result<C> {
        self.transact(|tx| tx.push_in(&mut document))?;
        Ok(document)
    }

    /// Deletes a document. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::delete`](crate::Transaction::delete), and those of a [commit](crate::Error#commits).
    pub fn delete<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<bool> {
        self.transact(|tx| tx.delete::<C>(&key))
    }

    /// As [`Db::delete`], and counts the documents that followed because they referred to it.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// #[derive(Serialize, Deserialize, Collection)]
    /// struct User {
    ///     #[key]
    ///     id: u64,
    /// }
    ///
    /// #[derive(Serialize, Deserialize, Collection)]
    /// struct Comment {
    ///     #[key]
    ///     id: u64,
    ///     #[references(User, on_delete = cascade)]
    ///     author: u64,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// db.put(&User { id: 1 })?;
    /// db.put(&Comment { id: 7, author: 1 })?;
    /// let deleted = db.delete_counting::<User>(1)?;
    /// assert_eq!((deleted.documents, deleted.followed.cascaded), (1, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Db::delete`].
    pub fn delete_counting<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Deleted> {
        self.transact(|tx| {
            let documents = u64::from(tx.delete::<C>(&key)?);
            Ok(Deleted { documents, followed: tx.followed() })
        })
    }

    /// Deletes the documents of a range, at most 1,000 per transaction. Returns how many there were.
    ///
    /// Documents that are put into the range concurrently may be deleted or stay.
    ///
    /// # Errors
    /// As [`Db::delete`]. Documents deleted before the error stay deleted.
    pub fn delete_range<C: Collection>(&self, range: impl IntoSpan<C::Key>) -> Result<u64> {
        let span = range.into_span()?;
        let (mut deleted, mut at_a_time) = (0, DELETED_AT_A_TIME);
        loop {
            match self.transact(|tx| tx.delete_range::<C>(span.clone(), at_a_time)) {
                // Documents with many rows in views make the transaction too large.
                Err(error) if error.code() == Code::TooLarge && at_a_time > 1 => at_a_time /= 2,
                Err(error) => return Err(error),
                Ok(some) if some < at_a_time => return Ok(deleted + some),
                Ok(some) => deleted += some,
            }
        }
    }
}
