//! One collection of documents, each call a transaction or a snapshot of its own.

use duramen_engine::Receipt;

use crate::db::Db;
use crate::document::Document;
use crate::error::Result;
use crate::reads::{Reads, Reduction};
use crate::rows::Documents;
use crate::schema::Schema;
use crate::span::Span;
use crate::tuple::Key;

/// A collection of a [`Db`]: the verbs that need no transaction around them.
#[derive(Debug, Clone)]
pub struct Collection {
    db: Db,
    name: String,
}

impl Collection {
    pub(crate) fn new(db: Db, name: String) -> Collection {
        Collection { db, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the catalogue says about it.
    ///
    /// # Errors
    /// `NoSuchTree` if it is not there.
    pub fn schema(&self) -> Result<Schema> {
        self.db.snapshot()?.schema(&self.name)
    }

    /// Stores a document under its key columns, in the place of any that is there.
    ///
    /// # Errors
    /// As [`Transaction::put`](crate::Transaction::put), and those of a commit.
    pub fn put(&self, document: impl Into<Document>) -> Result<Receipt> {
        let document = document.into();
        self.db.write(|tx| tx.put(&self.name, document.clone()))
    }

    /// Stores a document whose key is not there yet.
    ///
    /// # Errors
    /// As [`Collection::put`], and `AlreadyExists`.
    pub fn insert(&self, document: impl Into<Document>) -> Result<Receipt> {
        let document = document.into();
        self.db.write(|tx| tx.insert(&self.name, document.clone()))
    }

    /// Deletes the document under a key. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.delete(&self.name, &key))
    }

    /// The document under a key.
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn get(&self, key: impl Key) -> Result<Option<Document>> {
        self.db.snapshot()?.get(&self.name, key)
    }

    /// The documents of a range of one state, in order of their keys.
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn scan(&self, span: Span) -> Result<Documents> {
        self.db.snapshot()?.scan(&self.name, span)
    }

    /// How many documents a range holds, in O(log n).
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn count(&self, span: Span) -> Result<u64> {
        self.db.snapshot()?.count(&self.name, span)
    }

    /// Count and sums over a range, in O(log n).
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn reduce(&self, span: Span) -> Result<Reduction> {
        self.db.snapshot()?.reduce(&self.name, span)
    }

    /// How many documents have a smaller key, in O(log n).
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn rank(&self, key: impl Key) -> Result<u64> {
        self.db.snapshot()?.rank(&self.name, key)
    }

    /// The document with this many before it, in O(log n).
    ///
    /// # Errors
    /// As [`Reads`].
    pub fn nth(&self, index: u64) -> Result<Option<Document>> {
        self.db.snapshot()?.nth(&self.name, index)
    }
}
