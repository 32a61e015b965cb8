//! Documents along an access path: one range of an index after the other.
//!
//! Owns the cursor, and reads from a stored document only what a query needs of it. Scans of several threads
//! share the ranges: each takes the next one when it has read its own.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::field_set::FieldSet;
use super::plan::{Index, IndexRange};
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::access::views::found::{lost, order_by};
use crate::catalog::entries::Entry;
use crate::catalog::forms;
use crate::catalog::shapes::Shape;
use crate::store::error::Result;
use crate::store::{Cursor, Direction, KeyRange};
use crate::value::document::{Document, Value};
use crate::value::msgpack::{DEPTH_MAX, Reader, begins_with_a_shape};
use crate::value::span::Span;
use crate::value::tuple::{ascending, split_unread, successor};
use crate::value::version;

/// Ranges for each of several threads: they take unequal times, and none should wait for another at the end.
const RANGES_PER_THREAD: u64 = 8;

/// A range is divided only into ranges of at least so many rows: a thread for fewer would cost more than it
/// saves.
const RANGE_ROWS_MIN: u64 = 4_096;

/// The documents of some ranges of an index, in its order.
pub(super) struct Scan {
    entry: Arc<Entry>,
    index: Index,
    direction: Direction,
    /// The ranges that are still to be read, the next one last.
    spans: Arc<Mutex<Vec<Span>>>,
    /// At the current document, or at its row in a view.
    rows: Option<Cursor>,
    /// Along a view: the key of the current document.
    key: Vec<u8>,
    /// Along a view: the current document as it is stored.
    stored: Vec<u8>,
}

impl Scan {
    pub(super) fn new(entry: Arc<Entry>, range: IndexRange, direction: Direction) -> Scan {
        let IndexRange { index, mut spans, .. } = range;
        if direction == Direction::Forward {
            spans.reverse();
        }
        Scan::of(entry, index, direction, Arc::new(Mutex::new(spans)))
    }

    fn of(entry: Arc<Entry>, index: Index, direction: Direction, spans: Arc<Mutex<Vec<Span>>>) -> Scan {
        Scan { entry, index, direction, spans, rows: None, key: Vec::new(), stored: Vec::new() }
    }

    /// Another scan that shares the ranges with this one: each document is read by one of them.
    pub(super) fn beside(&self) -> Scan {
        Scan::of(Arc::clone(&self.entry), self.index.clone(), self.direction, Arc::clone(&self.spans))
    }

    /// Divides the ranges so that several scans can share them; the documents then come in no order. Returns
    /// for how many scans there are enough rows: at most `threads`. Call it before the first document.
    ///
    /// Costs O(log n) for each range.
    pub(super) fn divide(&self, snapshot: &Snapshot, threads: usize) -> Result<usize> {
        let (tree, source) = (self.index.tree, snapshot.source());
        let whole: Vec<KeyRange> = self.spans().iter().cloned().map(Span::into_bytes).collect();
        let counts: Vec<u64> = whole.iter().map(|range| source.count(tree, range)).collect::<Result<_>>()?;
        let rows: u64 = counts.iter().sum();
        let wanted = (threads as u64).saturating_mul(RANGES_PER_THREAD).min(rows / RANGE_ROWS_MIN);
        if wanted < 2 {
            return Ok(1);
        }
        let each = rows.div_ceil(wanted);
        let mut divided = Vec::new();
        for (KeyRange { mut from, to }, count) in whole.into_iter().zip(counts) {
            let before = source.rank(tree, &from)?;
            for at in (1..).map(|part| part * each).take_while(|at| *at < count) {
                let Some(key) = snapshot.nth_key(tree, before + at)? else { break };
                divided.push(KeyRange { from, to: Some(key.clone()) });
                from = key;
            }
            divided.push(KeyRange { from, to });
        }
        *self.spans() = divided.into_iter().map(Span::of_encoded).collect();
        Ok(threads.min(usize::try_from(wanted).unwrap_or(threads)))
    }

    fn spans(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the order of the rows: that of the collection or of a view.
    pub(super) fn order(&self) -> String {
        let name = self.entry.schema.name();
        let view = self.entry.views.iter().find(|view| view.tree == self.index.tree);
        view.map_or_else(|| name.to_owned(), |view| order_by(name, &view.spec))
    }

    /// Where the current document is in the order: a key, or a row of a view.
    pub(super) fn position(&mut self) -> &[u8] {
        self.rows.as_mut().and_then(Cursor::key).unwrap_or_default()
    }

    /// Leaves out everything up to a row, in the direction of the scan. Call it before the first document.
    pub(super) fn go_on_after(&mut self, row: &[u8]) {
        let left = Span::of_encoded(match self.direction {
            Direction::Forward => KeyRange { from: successor(row), to: None },
            Direction::Reverse => KeyRange { from: Vec::new(), to: Some(row.to_vec()) },
        });
        self.spans().iter_mut().for_each(|span| *span = span.clone().and(left.clone()));
    }

    /// Goes to the next document. `false` after the last.
    pub(super) fn advance(&mut self, state: &dyn Readable) -> Result<bool> {
        loop {
            let Some(rows) = &mut self.rows else {
                let Some(span) = self.spans().pop() else { return Ok(false) };
                let rows = state.source().cursor(self.index.tree, span.into_bytes(), self.direction)?;
                self.rows = Some(rows);
                continue;
            };
            if self.index.view.is_none() {
                if rows.advance()? {
                    return Ok(true);
                }
            } else if let Some(row) = rows.next_key()? {
                let source = state.source();
                let key = &*ascending(&row[split_unread(row, self.index.elements)?..])?;
                if let Some(stored) = source.get(self.entry.tree, key)? {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.stored = stored;
                    return Ok(true);
                }
                // A transaction that deleted the document after the iterator began has deleted the row too.
                if source.get(self.index.tree, row)?.is_some() {
                    return Err(lost(self.entry.schema.name(), key));
                }
                continue;
            }
            self.rows = None;
        }
    }

    /// The key of the current document.
    pub(super) fn key(&mut self) -> &[u8] {
        if self.index.view.is_none() { self.position() } else { &self.key }
    }

    /// The current document as it is stored.
    fn stored(&self) -> &[u8] {
        if self.index.view.is_some() {
            return &self.stored;
        }
        self.rows.as_ref().and_then(Cursor::value).unwrap_or_default()
    }

    /// The shape of the current document and the bytes of its values; `None` for one that has no shape.
    pub(super) fn shaped(&self) -> Result<Option<(&Shape, &[u8])>> {
        let mut document = self.stored();
        // Most documents have no prefix.
        if !begins_with_a_shape(document) {
            document = version::split(document)?.1;
            if !begins_with_a_shape(document) {
                return Ok(None);
            }
        }
        self.entry.schema.shapes().split(document).map(Some)
    }

    /// The current document as a stored map with names.
    pub(super) fn named(&self) -> Result<Cow<'_, [u8]>> {
        let (version, document) = version::split(self.stored())?;
        let mut named = Vec::new();
        let is_named_now = forms::name(&self.entry.schema, version, document, &mut named)?;
        Ok(if is_named_now { Cow::Owned(named) } else { Cow::Borrowed(document) })
    }

    /// The current document, whole.
    pub(super) fn document(&self) -> Result<Document> {
        forms::document(&self.entry.schema, self.stored())
    }

    /// These fields of the current document, under any name that they have had. What comes after the last of
    /// them is not read. `found` gets them: it has those of the last document, or nothing.
    pub(super) fn fields(&self, wanted: &mut FieldSet, found: &mut Document) -> Result<()> {
        let schema = &self.entry.schema;
        let Some((shape, values)) = self.shaped()? else {
            let is_wanted = |name: &[u8]| wanted.has(schema, name);
            *found = Document::fields_from_bytes(&self.named()?, is_wanted)?;
            wanted.forget_positions();
            return Ok(());
        };
        let (positions, is_as_before) = wanted.positions(schema, shape);
        if !is_as_before || found.len() != positions.len() {
            *found = Document::new();
            let names = positions.iter().map(|position| shape.layout().names()[*position].clone());
            names.for_each(|name| found.push(name, Value::Null));
        }
        let (mut reader, mut next) = (Reader::new(values), 0);
        for (position, (_, value)) in positions.iter().zip(found.iter_mut()) {
            reader.skip_values(position - next)?;
            value.read_again(&mut reader, DEPTH_MAX - 1)?;
            next = position + 1;
        }
        Ok(())
    }
}
