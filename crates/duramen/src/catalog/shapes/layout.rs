//! The names of documents in the order of their values, and the two forms of a document: its values, or a
//! map with names.
//!
//! Pure functions on bytes.

use std::collections::HashMap;

use crate::store::error::Result;
use crate::value::document::{Document, Value};
use crate::value::msgpack::{DEPTH_MAX, Reader, Token, write};

/// The names of documents, in the order in which the values are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// First what the collection sums.
    names: Vec<String>,
    /// The positions of the names in the order in which documents show them; empty if it is the stored order.
    shown: Vec<usize>,
}

impl Layout {
    pub(super) fn new(names: Vec<String>, shown: Vec<usize>) -> Layout {
        Layout { names, shown }
    }

    /// The layout of documents with these names, in the order shown, in a collection that sums these fields.
    ///
    /// `None` if a field that is summed is not among them, or if a name is there twice.
    pub(crate) fn of(shown: &[&str], sums: &[String]) -> Option<Layout> {
        let is_summed = |name: &str| sums.iter().any(|sum| sum == name);
        let others = shown.iter().copied().filter(|name| !is_summed(name));
        let names: Vec<&str> = sums.iter().map(String::as_str).chain(others).collect();
        let mut positions: HashMap<&str, usize> = names.iter().copied().zip(0..).collect();
        if names.len() != shown.len() || positions.len() != names.len() {
            return None;
        }
        // Taken out, so that a name that comes twice is not found again.
        let shown = shown.iter().map(|name| positions.remove(name)).collect::<Option<Vec<usize>>>()?;
        let is_stored_order = shown.iter().copied().eq(0..shown.len());
        let names = names.into_iter().map(str::to_owned).collect();
        Some(Layout { names, shown: if is_stored_order { Vec::new() } else { shown } })
    }

    /// The names, in the order of the values.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The positions of the names in the order in which documents show them; empty if it is the stored order.
    pub(super) fn shown(&self) -> &[usize] {
        &self.shown
    }

    /// Bytes of the names as a document stores them.
    pub(crate) fn names_bytes(&self) -> usize {
        const HEAD_BYTES_MAX: usize = 5;
        self.names.iter().map(|name| HEAD_BYTES_MAX + name.len()).sum()
    }

    /// Whether the values are in the order in which documents show them.
    pub(crate) fn is_in_shown_order(&self) -> bool {
        self.shown.is_empty()
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

    /// The positions of the values in the order in which a document shows them.
    fn in_shown_order(&self) -> impl Iterator<Item = usize> {
        let is_stored_order = self.shown.is_empty();
        (0..self.names.len()).map(move |at| if is_stored_order { at } else { self.shown[at] })
    }

    /// A document with these names. `values` has the values and nothing else.
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

    /// As [`Layout::document`], in place of another document with these names, whose memory is used again.
    ///
    /// # Errors
    /// As [`Layout::document`]; some of the values are then those of this document.
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

    /// Appends a document as a map with names. `values` has the values and nothing else.
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

    /// The values of a document with names, after what `begin` appends; `None` unless its fields are these,
    /// in this order.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(super) fn of_named(&self, named: &[u8], begin: impl Fn(&mut Vec<u8>)) -> Result<Option<Vec<u8>>> {
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
            // Most documents of other shapes end at the first name.
            if out.is_empty() {
                out.reserve(named.len());
                begin(&mut out);
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
