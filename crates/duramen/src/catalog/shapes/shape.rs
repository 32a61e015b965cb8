//! One shape: names in the order of the values, and the two forms of a document of that shape.
//!
//! Pure functions on bytes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::put_row;
use super::row::{Row, key_of};
use crate::store::Shared;
use crate::store::error::Result;
use crate::value::document::{Document, Value};
use crate::value::msgpack::{DEPTH_MAX, Reader, Token, write};

/// The shape of some documents.
pub(crate) struct Shape {
    number: u32,
    /// In the order in which the values are stored: first what the collection sums.
    names: Vec<String>,
    /// The positions of the names in the order in which documents show them; empty if it is the stored order.
    shown: Vec<usize>,
    /// The bytes of its row; empty for a shape that was read from its row.
    pub(super) stored: Vec<u8>,
    /// Whether its row is in a published state, and so in all later ones.
    is_published: AtomicBool,
}

impl Shape {
    /// A shape that was read from its row, of a state that is published.
    pub(super) fn of_row(row: Row) -> Shape {
        let Row { number, names, shown, .. } = row;
        Shape { number, names, shown, stored: Vec::new(), is_published: AtomicBool::new(true) }
    }

    /// A shape that this process adds.
    ///
    /// # Errors
    /// `InvalidArgument` for names that are too long.
    pub(super) fn added(row: Row) -> Result<Shape> {
        let stored = row.stored()?;
        Ok(Shape { stored, is_published: AtomicBool::new(false), ..Shape::of_row(row) })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The names, in the order of the values.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the values are in the order in which documents show them.
    pub(crate) fn is_in_shown_order(&self) -> bool {
        self.shown.is_empty()
    }

    /// Puts the row of a shape that this process added, in no published state yet.
    ///
    /// Two transactions may put the same row: it has the same bytes, so they do not conflict.
    ///
    /// # Errors
    /// Those of a write.
    pub(crate) fn put(&self, tx: &Shared<'_>) -> Result<()> {
        put_row(tx, &key_of(self.number)?, &self.stored)
    }

    /// Whether a collection that sums these fields can use it: their values are the first, in this order, and
    /// the others follow in the order in which documents show them.
    pub(super) fn is_for(&self, sums: &[String]) -> bool {
        let others = self.in_shown_order().filter(|at| *at >= sums.len());
        self.names.starts_with(sums) && others.eq(sums.len()..self.names.len())
    }

    /// The names in the order in which documents show them.
    pub(super) fn shown_names(&self) -> impl Iterator<Item = &str> {
        self.in_shown_order().map(|at| self.names[at].as_str())
    }

    /// Whether it is the shape of this row.
    pub(super) fn is_of(&self, row: &Row) -> bool {
        (self.number, &self.names, &self.shown) == (row.number, &row.names, &row.shown)
    }

    /// Whether its row is in a published state. Every transaction that uses it puts its row until then.
    pub(crate) fn is_published(&self) -> bool {
        self.is_published.load(Ordering::Acquire)
    }

    pub(super) fn publish(&self) {
        self.is_published.store(true, Ordering::Release);
    }

    /// The positions of the values in the order in which a document shows them.
    fn in_shown_order(&self) -> impl Iterator<Item = usize> {
        let is_stored_order = self.shown.is_empty();
        (0..self.names.len()).map(move |at| if is_stored_order { at } else { self.shown[at] })
    }

    /// A document of this shape. `values` has the values and nothing else.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not these values.
    pub(crate) fn document(&self, values: &[u8]) -> Result<Document> {
        let mut reader = Reader::new(values);
        let mut document = Document::with_capacity(self.names.len());
        if self.is_in_shown_order() {
            for name in &self.names {
                document.push(name.clone(), Value::read(&mut reader, DEPTH_MAX - 1)?);
            }
        } else {
            let read = |_| Value::read(&mut reader, DEPTH_MAX - 1);
            let mut stored = self.names.iter().map(read).collect::<Result<Vec<_>>>()?;
            for at in self.in_shown_order() {
                document.push(self.names[at].clone(), std::mem::take(&mut stored[at]));
            }
        }
        if reader.at_end() { Ok(document) } else { Err(reader.wrong("something follows the document")) }
    }

    /// As [`Shape::document`], in place of another document of this shape, whose memory is used again.
    ///
    /// # Errors
    /// As [`Shape::document`]; some of the values are then those of this document.
    pub(crate) fn document_again(&self, values: &[u8], document: &mut Document) -> Result<()> {
        if !self.is_in_shown_order() {
            *document = self.document(values)?;
            return Ok(());
        }
        let mut reader = Reader::new(values);
        for (_, value) in document.iter_mut() {
            value.read_again(&mut reader, DEPTH_MAX - 1)?;
        }
        if reader.at_end() { Ok(()) } else { Err(reader.wrong("something follows the document")) }
    }

    /// Appends a document of this shape as a map with names. `values` has the values and nothing else.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are not these values.
    pub(crate) fn write_named(&self, values: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut reader = Reader::new(values);
        write::map(out, self.names.len())?;
        if self.shown.is_empty() {
            for name in &self.names {
                write::text(out, name)?;
                out.extend_from_slice(reader.raw()?);
            }
        } else {
            let stored = self.names.iter().map(|_| reader.raw()).collect::<Result<Vec<_>>>()?;
            for at in self.in_shown_order() {
                write::text(out, &self.names[at])?;
                out.extend_from_slice(stored[at]);
            }
        }
        if reader.at_end() { Ok(()) } else { Err(reader.wrong("something follows the document")) }
    }

    /// The document with names as one of this shape; `None` unless its fields are the shape's, in its order.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(super) fn of_named(&self, named: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut reader = Reader::new(named);
        let Token::Map(count) = reader.next()? else { return Ok(None) };
        if count != self.names.len() {
            return Ok(None);
        }
        let (mut out, mut values) = (Vec::new(), Vec::new());
        for at in self.in_shown_order() {
            if !reader.name_is(&self.names[at])? {
                return Ok(None);
            }
            if out.is_empty() {
                out.reserve(named.len());
                write::int(&mut out, i128::from(self.number))?;
            }
            let value = reader.raw()?;
            if self.shown.is_empty() {
                out.extend_from_slice(value);
            } else {
                values.push((at, value));
            }
        }
        values.sort_unstable_by_key(|(at, _)| *at);
        values.iter().for_each(|(_, value)| out.extend_from_slice(value));
        Ok(Some(out))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ({})", self.number, self.names.join(", "))
    }
}
