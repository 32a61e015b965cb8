//! Batches of rows to write.
//!
//! Owns no state of a database. All rows are in one buffer, so a bulk load allocates nothing per row. Rows of
//! cells are values only: their names are kept once.

use std::sync::Arc;

use crate::access::transaction::Transaction;
use crate::catalog::cell::{BadCell, RowEncoder};
use crate::catalog::entries::Entry;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::{Layout, Shape};
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};

/// Rows encoded and ready to be written, in the order they were added.
#[derive(Debug, Clone, Default)]
pub struct RowBatch {
    keys: Vec<u8>,
    documents: Vec<u8>,
    /// Where each row's key and document end.
    ends: Vec<(usize, usize)>,
    runs: Vec<Run>,
    /// Bytes of the names that rows of cells have, once for each row.
    names_bytes: usize,
}

/// Rows in the same form: from this one to the next run.
#[derive(Debug, Clone)]
struct Run {
    from: usize,
    /// The layout of rows that are values; `None` for documents with names.
    layout: Option<Arc<Layout>>,
    /// Bytes of the names in it.
    names_bytes: usize,
}

/// A row of a batch.
#[derive(Clone, Copy)]
pub(crate) struct BatchRow<'b> {
    pub(crate) key: &'b [u8],
    document: &'b [u8],
    layout: Option<&'b Layout>,
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
        if added.is_ok() {
            self.added(Some(encoder.layout()));
        } else {
            let (keys, documents) = self.ends.last().copied().unwrap_or_default();
            self.keys.truncate(keys);
            self.documents.truncate(documents);
        }
        added
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
        self.added(None);
        Ok(grew)
    }

    /// Keeps the row that the buffers now end with.
    fn added(&mut self, layout: Option<&Arc<Layout>>) {
        let is_of_run = |run: &Run| match (&run.layout, layout) {
            (Some(of_run), Some(layout)) => Arc::ptr_eq(of_run, layout),
            (None, None) => true,
            _ => false,
        };
        if !self.runs.last().is_some_and(is_of_run) {
            let names_bytes = layout.map_or(0, |layout| layout.names_bytes());
            self.runs.push(Run { from: self.ends.len(), layout: layout.cloned(), names_bytes });
        }
        self.names_bytes += self.runs.last().map_or(0, |run| run.names_bytes);
        self.ends.push((self.keys.len(), self.documents.len()));
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

    /// Bytes of all keys and documents, with the names of their fields. Documents that are stored by shape
    /// take less.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.documents.len() + self.names_bytes
    }

    /// The keys of the rows.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.rows().map(|row| row.key)
    }

    /// How many values and names of fields the document of a row has.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if there is no such row.
    pub fn count_parts(&self, index: usize) -> Result<usize> {
        let row = self.checked_row(index)?;
        Ok(match row.layout {
            // Cells hold no other values.
            Some(layout) => 1 + 2 * layout.names().len(),
            None => Value::parts_of_msgpack(row.document),
        })
    }

    fn checked_row(&self, index: usize) -> Result<BatchRow<'_>> {
        match index < self.len() {
            true => Ok(self.row(index)),
            false => Err(Error::invalid(format!("the batch has no row {index}"))),
        }
    }

    /// Appends the document of a row, with the names of its fields, as [`Document::to_bytes`] has it.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if there is no such row.
    pub fn write_document(&self, index: usize, out: &mut Vec<u8>) -> Result<()> {
        let row = self.checked_row(index)?;
        match row.layout {
            Some(layout) => layout.write_named(row.document, out)?,
            None => out.extend_from_slice(row.document),
        }
        Ok(())
    }

    /// The rows.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = BatchRow<'_>> {
        (0..self.len()).map(|index| self.row(index))
    }

    fn row(&self, index: usize) -> BatchRow<'_> {
        let (key, document) = if index == 0 { (0, 0) } else { self.ends[index - 1] };
        let (key_end, document_end) = self.ends[index];
        let run = self.runs.partition_point(|run| run.from <= index) - 1;
        BatchRow {
            key: &self.keys[key..key_end],
            document: &self.documents[document..document_end],
            layout: self.runs[run].layout.as_deref(),
        }
    }
}

/// Turns rows of batches into documents of a collection as they are stored.
pub(crate) struct RowForms<'t, 'db> {
    within: &'t Transaction<'db>,
    entry: &'t Entry,
    /// The layout of the last row, and the shape of such rows, if they have one.
    last: Option<(&'t Layout, Option<&'t Shape>)>,
    document: Vec<u8>,
}

impl<'t, 'db> RowForms<'t, 'db> {
    pub(crate) fn new(within: &'t Transaction<'db>, entry: &'t Entry) -> RowForms<'t, 'db> {
        RowForms { within, entry, last: None, document: Vec::new() }
    }

    /// The document of a row, without version: of a shape, or with names.
    ///
    /// # Errors
    /// Those of a write: the shape may be new.
    pub(crate) fn document<'d>(&'d mut self, row: BatchRow<'t>) -> Result<&'d [u8]>
    where
        't: 'd,
    {
        let Some(layout) = row.layout else { return Ok(row.document) };
        let shape = match self.last {
            Some((last, shape)) if std::ptr::eq(last, layout) => shape,
            _ => self.within.shape_of(self.entry, layout)?,
        };
        self.last = Some((layout, shape));
        self.document.clear();
        if let Some(shape) = shape {
            shape.begin(&mut self.document);
            self.document.extend_from_slice(row.document);
        } else {
            layout.write_named(row.document, &mut self.document)?;
        }
        Ok(&self.document)
    }
}
