//! Documents in key order, lent as bytes or as documents, or as an iterator.

use std::sync::Arc;

use crate::catalog::entries::Entry;
use crate::catalog::forms;
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
            shape.layout().document_again(values, &mut self.document)?;
        } else {
            self.document = shape.layout().document(values)?;
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
