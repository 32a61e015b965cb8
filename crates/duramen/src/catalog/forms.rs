//! The forms of a stored document: a map with names, a list without (positional), or the values of a shape.
//!
//! Owns the fields of a document in any form, and its form with names. Pure functions on bytes, the shapes
//! and the catalogue's names.

use crate::catalog::schema::Schema;
use crate::catalog::shapes::Shapes;
use crate::store::error::Result;
use crate::value::document::Document;
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, write};
use crate::value::version;

/// Whether a document is a list.
pub(crate) fn is_positional(document: &[u8]) -> bool {
    matches!(document.first(), Some(0x90..=0x9f | 0xdc | 0xdd))
}

/// A stored document, with field names.
///
/// # Errors
/// `InvalidArgument` for bytes that are no document of this collection; `CorruptData` for one of a shape that
/// is not there.
pub(crate) fn document(schema: &Schema, stored: &[u8]) -> Result<Document> {
    let (version, document) = version::split(stored)?;
    if begins_with_a_shape(document) {
        let (shape, values) = schema.shapes().split(document)?;
        return shape.layout().document(values);
    }
    let mut named = Vec::new();
    if !name(schema, version, document, &mut named)? {
        return Document::from_bytes(document);
    }
    Document::from_bytes(&named)
}

/// Appends a document with its names, unless it has them. Returns whether it did.
///
/// # Errors
/// As [`document`].
pub(crate) fn name(schema: &Schema, version: u32, document: &[u8], out: &mut Vec<u8>) -> Result<bool> {
    if begins_with_a_shape(document) {
        name_by_shape(schema.shapes(), document, out)?;
    } else if is_positional(document) {
        name_positional(schema.positional_of(version)?, document, out)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Appends a document of a shape with its names.
///
/// # Errors
/// As [`document`].
pub(crate) fn name_by_shape(shapes: &Shapes, document: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let (shape, values) = shapes.split(document)?;
    out.reserve(2 * values.len());
    shape.layout().write_named(values, out)
}

/// Appends a positional document with its names. A shorter list predates the last added fields.
///
/// # Errors
/// `InvalidArgument` for more values than names, or bytes that are no list.
pub(crate) fn name_positional(fields: &[String], stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut reader = Reader::new(stored);
    let Token::List(count) = reader.next()? else { return Err(reader.wrong("a list was wanted")) };
    if count > fields.len() {
        return Err(
            reader.wrong(&format!("a list of {count} values, and the collection has {} names", fields.len()))
        );
    }
    out.reserve(2 * stored.len());
    write::map(out, count)?;
    for field in &fields[..count] {
        write::text(out, field)?;
        out.extend_from_slice(reader.raw()?);
    }
    if reader.at_end() { Ok(()) } else { Err(reader.wrong("something follows the document")) }
}

/// The fields of a document of the collection's version, in any form, in the order in which they are stored.
pub(crate) struct Fields<'d> {
    reader: Reader<'d>,
    count: usize,
    next: usize,
    /// The names, where the document does not have them.
    names: Option<&'d [String]>,
}

impl<'d> Fields<'d> {
    /// The fields of a document without its version prefix.
    ///
    /// # Errors
    /// As [`document`].
    pub(crate) fn of(schema: &'d Schema, document: &'d [u8]) -> Result<Fields<'d>> {
        if begins_with_a_shape(document) {
            let (shape, values) = schema.shapes().split(document)?;
            let (reader, names) = (Reader::new(values), shape.layout().names());
            return Ok(Fields { reader, count: names.len(), next: 0, names: Some(names) });
        }
        let mut reader = Reader::new(document);
        let (count, names) = match reader.next()? {
            Token::Map(count) => (count, None),
            Token::List(count) => (count, Some(schema.positional_fields())),
            _ => return Err(reader.wrong("a document was wanted")),
        };
        Ok(Fields { reader, count, next: 0, names })
    }

    /// The next field's name and value, as they are stored. A positional value without a name has an empty
    /// one.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are no document.
    pub(crate) fn next(&mut self) -> Result<Option<(&'d [u8], &'d [u8])>> {
        if self.next == self.count {
            return Ok(None);
        }
        let name = match self.names {
            None => self.reader.name_bytes()?,
            Some(names) => names.get(self.next).map_or(&[][..], |name| name.as_bytes()),
        };
        self.next += 1;
        Ok(Some((name, self.reader.raw()?)))
    }
}
