//! Reads and writes that happen together or not at all.
//!
//! Owns the writes of documents: each is made to fit its collection, and a field not met before becomes a column in
//! the same transaction.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::catalogue::{self, Entry};
use crate::document::Document;
use crate::documents_of::DocumentsOf;
use crate::engine::{Direction, Shared, Source};
use crate::error::{Code, Error, Result};
use crate::reads::Reads;
use crate::reads::sealed::{self, Readable};
use crate::rows::RowBatch;
use crate::schema::Schema;
use crate::span::Span;
use crate::tuple::{Key, encode};

/// A transaction: sees one state of the database and its own writes. Its reads are the methods of [`Reads`]; documents
/// are read and written through [`Reads::documents`].
pub struct Transaction<'e> {
    inner: Shared<'e>,
    /// Collections looked up so far; kept in step with what this transaction does to the catalogue.
    entries: RefCell<HashMap<String, Arc<Entry>>>,
}

impl<'e> Transaction<'e> {
    pub(crate) fn new(inner: &'e mut duramen_engine::Transaction) -> Self {
        Transaction { inner: Shared::new(inner), entries: RefCell::default() }
    }

    /// Creates a collection.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a schema that cannot be.
    pub fn create(&mut self, schema: &Schema) -> Result<()> {
        schema.validate()?;
        if catalogue::find(&self.inner, schema.name())?.is_some() {
            return Err(Error::new(Code::AlreadyExists, format!("the collection {} exists", schema.name()))
                .with_hint("ensure() takes one that exists under the same terms"));
        }
        catalogue::create(&self.inner, schema)
    }

    /// Creates a collection, or grows an existing one by the columns that are new. Returns what is stored then.
    ///
    /// # Errors
    /// `InvalidArgument` if it exists with another key, other sums or another type for a column.
    pub fn ensure(&mut self, schema: &Schema) -> Result<Schema> {
        schema.validate()?;
        let Some(entry) = catalogue::find(&self.inner, schema.name())? else {
            catalogue::create(&self.inner, schema)?;
            return Ok(schema.clone());
        };
        let mut stored = entry.schema.clone();
        stored.check_same_terms(schema)?;
        if stored.merge(schema)? {
            self.grow(entry, stored.clone())?;
        }
        Ok(stored)
    }

    /// Drops a collection with all its documents. Returns whether it was there.
    ///
    /// # Errors
    /// What the engine said.
    pub fn drop_collection(&mut self, collection: &str) -> Result<bool> {
        self.entries.get_mut().remove(collection);
        catalogue::remove(&self.inner, collection)
    }

    /// Stores a value in a tree of bytes, which is created if it is not there.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that belongs to Duramen; `KeyTooLong`; `TooLarge`.
    pub fn put_bytes(&mut self, tree: &str, key: &[u8], value: &[u8]) -> Result<()> {
        catalogue::check_users_name(tree)?;
        let tree = match self.inner.tree(tree)? {
            Some(tree) => tree,
            None => self.inner.create_tree(tree, None)?,
        };
        self.inner.put(tree, key, value)
    }

    /// Deletes a key of a tree of bytes. Returns whether it was there.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that belongs to Duramen.
    pub fn delete_bytes(&mut self, tree: &str, key: &[u8]) -> Result<bool> {
        if self.get_bytes(tree, key)?.is_none() {
            return Ok(false);
        }
        let tree = self.inner.tree(tree)?.expect("a value was found in it above");
        self.inner.delete(tree, key)?;
        Ok(true)
    }

    fn grow(&self, entry: Arc<Entry>, schema: Schema) -> Result<Arc<Entry>> {
        catalogue::store(&self.inner, &schema)?;
        let name = schema.name().to_owned();
        let grown = Arc::new(Entry { schema, tree: entry.tree });
        self.entries.borrow_mut().insert(name, Arc::clone(&grown));
        Ok(grown)
    }
}

impl DocumentsOf<'_, Transaction<'_>> {
    /// Stores a document under its key columns, in the place of any that is there.
    ///
    /// # Errors
    /// `NoSuchTree`; `InvalidArgument` if it does not fit, naming the field; `KeyTooLong`; `TooLarge`.
    pub fn put(&self, document: impl Into<Document>) -> Result<()> {
        let (entry, key, stored) = self.fit(document.into())?;
        self.within.inner.put(entry.tree, &key, &stored)
    }

    /// Stores a document whose key is not there yet.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`], and `AlreadyExists`.
    pub fn insert(&self, document: impl Into<Document>) -> Result<()> {
        let (entry, key, stored) = self.fit(document.into())?;
        if self.within.inner.get(entry.tree, &key)?.is_some() {
            return Err(already_there(self.name, &key));
        }
        self.within.inner.put(entry.tree, &key, &stored)
    }

    /// Deletes the document under a key. Returns whether it was there.
    ///
    /// # Errors
    /// `NoSuchTree`; `KeyTooLong`.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        let tree = self.within.entry(self.name)?.tree;
        let key = encode(&key)?;
        if self.within.inner.get(tree, &key)?.is_none() {
            return Ok(false);
        }
        self.within.inner.delete(tree, &key)?;
        Ok(true)
    }

    /// Deletes every document of a range. Returns how many there were.
    ///
    /// # Errors
    /// `NoSuchTree`; `TooLarge` for more than a transaction can hold: see [`DocumentsOf::delete_first`].
    pub fn delete_span(&self, span: Span) -> Result<u64> {
        self.delete_first(span, u64::MAX)
    }

    /// Deletes the first documents of a range, at most so many. Returns how many there were: fewer means that none is
    /// left. Large ranges are deleted in several transactions this way.
    ///
    /// # Errors
    /// As [`DocumentsOf::delete_span`].
    pub fn delete_first(&self, span: Span, at_most: u64) -> Result<u64> {
        let tree = self.within.entry(self.name)?.tree;
        let mut keys = Vec::new();
        let mut cursor = self.within.inner.cursor(tree, span.into_bytes(), Direction::Forward)?;
        while (keys.len() as u64) < at_most
            && let Some(key) = cursor.next_key()?
        {
            keys.push(key.to_vec());
        }
        for key in &keys {
            self.within.inner.delete(tree, key)?;
        }
        Ok(keys.len() as u64)
    }

    /// Stores the rows of a batch, in the place of any that are there.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`].
    pub fn put_rows(&self, batch: &RowBatch) -> Result<()> {
        let tree = self.within.entry(self.name)?.tree;
        batch.iter().try_for_each(|(key, stored)| self.within.inner.put(tree, key, stored))
    }

    /// Stores the rows of a batch if none of their keys is there, nor twice in the batch. Otherwise returns the
    /// index of the first row that is in the way, and the transaction is to be rolled back by returning an error.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`].
    pub fn insert_rows(&self, batch: &RowBatch) -> Result<Option<usize>> {
        let tree = self.within.entry(self.name)?.tree;
        for (index, (key, stored)) in batch.iter().enumerate() {
            if self.within.inner.get(tree, key)?.is_some() {
                return Ok(Some(index));
            }
            self.within.inner.put(tree, key, stored)?;
        }
        Ok(None)
    }

    /// Makes a document fit; its key and stored form. The collection grows by fields that are new.
    fn fit(&self, mut document: Document) -> Result<(Arc<Entry>, Vec<u8>, Vec<u8>)> {
        let mut entry = self.within.entry(self.name)?;
        let mut schema = entry.schema.clone();
        if schema.admit(&mut document)? {
            entry = self.within.grow(entry, schema)?;
        }
        let mut key = Vec::new();
        entry.schema.write_key(&document, &mut key)?;
        Ok((entry, key, document.to_bytes()?))
    }
}

fn already_there(collection: &str, key: &[u8]) -> Error {
    let shown = crate::tuple::decode(key).map_or_else(|_| "that key".to_owned(), |elements| show(&elements));
    Error::new(Code::AlreadyExists, format!("{collection} has a document under {shown} already"))
        .with_hint("put() replaces it")
}

/// A key as a person reads it.
fn show(elements: &[crate::tuple::Element]) -> String {
    elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl sealed::Readable for Transaction<'_> {
    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        if let Some(entry) = self.entries.borrow().get(collection) {
            return Ok(Arc::clone(entry));
        }
        let entry = catalogue::get(&self.inner, collection)?;
        self.entries.borrow_mut().insert(collection.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }
}

impl Reads for Transaction<'_> {}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
