//! Documents in key order, lent as bytes or as documents, or as an iterator; and batches of rows to write.
//!
//! Owns no state of a database. A batch holds encoded rows in one buffer, so a bulk load allocates nothing
//! per row.

use std::sync::Arc;

use crate::catalog::cell::{BadCell, RowEncoder};
use crate::catalog::entries::Entry;
use crate::catalog::forms;
use crate::catalog::schema::Schema;
use crate::store::Cursor;
use crate::store::error::Result;
use crate::value::document::Document;
use crate::value::msgpack::begins_with_a_shape;
use crate::value::version;

/// Stored documents of a range, lent one at a time: as bytes or as a [`Document`].
pub struct Rows {
    cursor: Cursor,
    /// The collection's entry, for the names of fields.
    entry: Option<Arc<Entry>>,
    named: Vec<u8>,
    /// The last document that was lent, and the shape that it has.
    document: Document,
    shape: Option<u32>,
}

/// A document of [`Rows`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LentDocument<'r> {
    /// Its key.
    pub key: &'r [u8],
    /// The document.
    pub document: &'r Document,
    /// It is known to have the same fields as the one before, in the same order. `false` says nothing.
    pub has_same_fields: bool,
}

impl Rows {
    /// Plain bytes.
    pub(crate) fn new(cursor: Cursor) -> Rows {
        Rows { cursor, entry: None, named: Vec::new(), document: Document::new(), shape: None }
    }

    /// Documents of a collection.
    pub(crate) fn of(cursor: Cursor, entry: Arc<Entry>) -> Rows {
        Rows { entry: Some(entry), ..Rows::new(cursor) }
    }

    /// The next key and stored document, valid until the next call; `None` after the last.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    #[expect(clippy::should_implement_trait, reason = "it lends, which an Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.shape = None;
        let Some((key, stored)) = self.cursor.next()? else { return Ok(None) };
        let Some(entry) = &self.entry else { return Ok(Some((key, stored))) };
        let (version, document) = version::split(stored)?;
        self.named.clear();
        let is_named_now = forms::name(&entry.schema, version, document, &mut self.named)?;
        Ok(Some((key, if is_named_now { &self.named } else { document })))
    }

    /// The next document with its key, valid until the next call; `None` after the last.
    ///
    /// Its memory is used again for the one after it: the fastest way to read many documents of the same
    /// fields.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for bytes that are no document.
    pub fn next_document(&mut self) -> Result<Option<LentDocument<'_>>> {
        let before = self.shape.take();
        let Some((key, stored)) = self.cursor.next()? else { return Ok(None) };
        let Some(entry) = &self.entry else {
            self.document = Document::from_bytes(stored)?;
            return Ok(Some(LentDocument { key, document: &self.document, has_same_fields: false }));
        };
        let document = version::split(stored)?.1;
        if !begins_with_a_shape(document) {
            self.document = forms::document(&entry.schema, stored)?;
            return Ok(Some(LentDocument { key, document: &self.document, has_same_fields: false }));
        }
        let (shape, values) = entry.schema.shapes().split(document)?;
        let has_same_fields = before == Some(shape.number());
        if has_same_fields {
            shape.document_again(values, &mut self.document)?;
        } else {
            self.document = shape.document(values)?;
        }
        self.shape = Some(shape.number());
        Ok(Some(LentDocument { key, document: &self.document, has_same_fields }))
    }

    /// The next document for its own.
    fn next_own(&mut self) -> Result<Option<Document>> {
        let Some((_, stored)) = self.cursor.next()? else { return Ok(None) };
        let Some(entry) = &self.entry else { return Document::from_bytes(stored).map(Some) };
        forms::document(&entry.schema, stored).map(Some)
    }
}

/// Documents of a range, as an iterator.
pub struct DocumentIter {
    rows: Rows,
}

impl DocumentIter {
    pub(crate) fn new(rows: Rows) -> DocumentIter {
        DocumentIter { rows }
    }
}

impl Iterator for DocumentIter {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Result<Document>> {
        self.rows.next_own().transpose()
    }
}

/// Rows encoded and ready to be written, in the order they were added.
#[derive(Debug, Clone, Default)]
pub struct RowBatch {
    keys: Vec<u8>,
    documents: Vec<u8>,
    /// Where each row's key and document end.
    ends: Vec<(usize, usize)>,
}

impl RowBatch {
    /// A batch without rows.
    #[must_use]
    pub fn new() -> RowBatch {
        RowBatch::default()
    }

    /// Adds a row of cells.
    ///
    /// # Errors
    /// [`BadCell`]; the batch is then as it was.
    pub fn push_cells<'a>(
        &mut self,
        encoder: &RowEncoder,
        cell: impl Fn(usize) -> &'a [u8],
    ) -> std::result::Result<(), BadCell> {
        let added = encoder.encode(cell, &mut self.keys, &mut self.documents);
        self.settle(added)
    }

    /// Adds a document and makes it fit the schema. The schema grows with new fields.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if the document does not fit the schema or has no key; `KeyTooLong` (E0202).
    /// The batch is then as it was; the schema may have new fields.
    pub fn push_document(&mut self, schema: &mut Schema, mut document: Document) -> Result<bool> {
        let grew = schema.admit(&mut document)?;
        let mut key = Vec::new();
        schema.write_key(&document, &mut key)?;
        let stored = document.to_bytes()?;
        self.keys.extend_from_slice(&key);
        self.documents.extend_from_slice(&stored);
        self.ends.push((self.keys.len(), self.documents.len()));
        Ok(grew)
    }

    /// Keeps a row that was added completely, removes an incomplete one.
    fn settle<E>(&mut self, added: std::result::Result<(), E>) -> std::result::Result<(), E> {
        if added.is_ok() {
            self.ends.push((self.keys.len(), self.documents.len()));
        } else {
            let (keys, documents) = self.ends.last().copied().unwrap_or_default();
            self.keys.truncate(keys);
            self.documents.truncate(documents);
        }
        added
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all keys and documents.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.documents.len()
    }

    /// The rows: key and stored document.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.ends.len()).map(|index| {
            let (key, document) = if index == 0 { (0, 0) } else { self.ends[index - 1] };
            let (key_end, document_end) = self.ends[index];
            (&self.keys[key..key_end], &self.documents[document..document_end])
        })
    }
}
