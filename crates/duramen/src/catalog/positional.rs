//! Positional documents: lists without names, shown with the names that the catalogue keeps.

use crate::catalog::schema::Schema;
use crate::store::error::Result;
use crate::value::document::Document;
use crate::value::msgpack::{Reader, Token, write};
use crate::value::version;

/// Whether a document is a list.
pub(crate) fn is_positional(document: &[u8]) -> bool {
    matches!(document.first(), Some(0x90..=0x9f | 0xdc | 0xdd))
}

/// A stored document, with field names.
///
/// # Errors
/// `InvalidArgument` for bytes that are no document of this collection.
pub(crate) fn document(schema: &Schema, stored: &[u8]) -> Result<Document> {
    let (version, document) = version::split(stored)?;
    if !is_positional(document) {
        return Document::from_bytes(document);
    }
    let mut named = Vec::with_capacity(2 * document.len());
    name(schema.positional_of(version)?, document, &mut named)?;
    Document::from_bytes(&named)
}

/// Appends a positional document with its names. A shorter list predates the last added fields.
///
/// # Errors
/// `InvalidArgument` for more values than names, or bytes that are no list.
pub(crate) fn name(fields: &[String], stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut reader = Reader::new(stored);
    let Token::List(count) = reader.next()? else { return Err(reader.wrong("a list was wanted")) };
    if count > fields.len() {
        return Err(
            reader.wrong(&format!("a list of {count} values, and the collection has {} names", fields.len()))
        );
    }
    write::map(out, count)?;
    for field in &fields[..count] {
        write::text(out, field)?;
        out.extend_from_slice(reader.raw()?);
    }
    if reader.at_end() { Ok(()) } else { Err(reader.wrong("something follows the document")) }
}
