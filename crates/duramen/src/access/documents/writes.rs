//! Writes of dynamic documents, in a transaction.
//!
//! Owns how a document is made to fit its collection: a new field becomes a column in the same transaction.

use std::sync::Arc;

use crate::access::documents::DocumentsOf;
use crate::access::reads::sealed::Readable;
use crate::access::row_batch::{RowBatch, RowForms};
use crate::access::transaction::{Before, Transaction};
use crate::catalog::entries::Entry;
use crate::store::error::{Code, Error, Result};
use crate::value::document::Document;
use crate::value::span::Span;
use crate::value::tuple::{Key, encode, show};

impl DocumentsOf<'_, Transaction<'_>> {
    /// Stores a document under its key columns, replacing any document under that key.
    ///
    /// # Errors
    /// Those of [writing a document](crate::Error#documents); `NoSuchTree` (E0901); `InvalidArgument` (E0201)
    /// if it does not fit, naming the field; `KeyTooLong` (E0202); `Rebuilding` (E0802) while the documents
    /// are migrated.
    pub fn put(&self, document: impl Into<Document>) -> Result<()> {
        let (entry, key, stored) = self.fit(document.into())?;
        self.within.write(&entry, &key, Before::Unread, Some(&stored))
    }

    /// Stores a document whose key must not exist yet.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`]; `AlreadyExists` (E0210) if there is one.
    pub fn insert(&self, document: impl Into<Document>) -> Result<()> {
        let (entry, key, stored) = self.fit(document.into())?;
        if self.within.stored(&entry, &key)?.is_some() {
            return Err(already_there(self.name, &key));
        }
        self.within.write(&entry, &key, Before::Read(None), Some(&stored))
    }

    /// Deletes the document under a key. Returns whether it was there.
    ///
    /// What refers to it follows: [`Transaction::followed`] counts that.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes), of these `TooLarge` (E0203) if more than 10,000 documents
    /// follow; `NoSuchTree` (E0901) for an unknown collection; `KeyTooLong` (E0202); `InvalidArgument`
    /// (E0201) for an integer in the key that does not fit in 64 bits; `Rebuilding` (E0802) while a reference
    /// to it is being checked.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        let entry = self.within.entry(self.name)?;
        let key = encode(&key)?;
        let before = self.within.stored(&entry, &key)?;
        if before.is_none() {
            return Ok(false);
        }
        self.within.write(&entry, &key, Before::Read(before.as_deref()), None)?;
        Ok(true)
    }

    /// Deletes every document of a range. Returns how many there were.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes), of these `TooLarge` (E0203) for more than a transaction can
    /// hold: see [`DocumentsOf::delete_first`]. `NoSuchTree` (E0901) for an unknown collection.
    pub fn delete_span(&self, span: Span) -> Result<u64> {
        self.delete_first(span, u64::MAX)
    }

    /// Deletes the first documents of a range, at most `at_most`. Returns how many were deleted.
    ///
    /// Fewer than `at_most` means that none is left. Delete large ranges in several transactions this way.
    ///
    /// # Errors
    /// As [`DocumentsOf::delete_span`].
    pub fn delete_first(&self, span: Span, at_most: u64) -> Result<u64> {
        let entry = self.within.entry(self.name)?;
        self.within.delete_span(&entry, span, at_most)
    }

    /// Stores the rows of a batch, replacing documents with the same keys.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`].
    pub fn put_rows(&self, batch: &RowBatch) -> Result<()> {
        let entry = self.settled()?;
        let mut forms = RowForms::new(self.within, &entry);
        for row in batch.rows() {
            self.within.write(&entry, row.key, Before::Unread, Some(forms.document(row)?))?;
        }
        Ok(())
    }

    /// Stores the rows of a batch if all of their keys are new, in the collection and within the batch.
    ///
    /// Otherwise returns the index of the first conflicting row. The caller must then roll back by returning
    /// an error.
    ///
    /// # Errors
    /// As [`DocumentsOf::put`].
    pub fn insert_rows(&self, batch: &RowBatch) -> Result<Option<usize>> {
        let entry = self.settled()?;
        let mut forms = RowForms::new(self.within, &entry);
        for (index, row) in batch.rows().enumerate() {
            if self.within.stored(&entry, row.key)?.is_some() {
                return Ok(Some(index));
            }
            self.within.write(&entry, row.key, Before::Read(None), Some(forms.document(row)?))?;
        }
        Ok(None)
    }

    /// The catalogue entry, if all documents are of one version. During a migration the version of a document
    /// without a type is ambiguous.
    fn settled(&self) -> Result<Arc<Entry>> {
        let entry = self.within.entry(self.name)?;
        if entry.schema.is_migrating() {
            let name = self.name;
            return Err(Error::new(Code::Rebuilding, format!("the documents of {name} are being migrated"))
                .with_hint("write it again once the program that has the type has called Db::migrate"));
        }
        Ok(entry)
    }

    /// Makes a document fit, and returns its key and stored form. New fields become columns of the
    /// collection.
    fn fit(&self, mut document: Document) -> Result<(Arc<Entry>, Vec<u8>, Vec<u8>)> {
        let mut entry = self.settled()?;
        let mut schema = entry.schema.clone();
        if schema.admit(&mut document)? {
            entry = self.within.grow(&entry, schema)?;
        }
        let mut key = Vec::new();
        entry.schema.write_key(&document, &mut key)?;
        Ok((entry, key, document.to_bytes()?))
    }
}

pub(crate) fn already_there(collection: &str, key: &[u8]) -> Error {
    Error::new(Code::AlreadyExists, format!("{collection} has a document under {} already", show(key)))
        .with_hint("put() replaces it")
}
