//! Documents with the entries of their maps in one order.
//!
//! A `HashMap` is written in another order each time. In the order of their encoded keys, the entries of
//! equal maps are equal bytes.

use super::{DEPTH_MAX, Reader, Token};
use crate::store::error::Result;

/// A document with the entries of each map in the order of their encoded keys. What follows it stays as it
/// is.
///
/// # Errors
/// `InvalidArgument` if the bytes do not begin with a document.
pub(crate) fn in_key_order(document: &[u8]) -> Result<Vec<u8>> {
    let mut reader = Reader::new(document);
    let mut out = Vec::with_capacity(document.len());
    append(&mut reader, &mut out, 0)?;
    out.extend_from_slice(&document[reader.at..]);
    Ok(out)
}

fn append(reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(reader.wrong(&format!("lists and maps in a document nest at most {DEPTH_MAX} deep")));
    }
    let from = reader.at;
    let token = reader.unchecked()?;
    out.extend_from_slice(&reader.bytes[from..reader.at]);
    match token {
        Token::List(count) => (0..count).try_for_each(|_| append(reader, out, depth + 1)),
        Token::Map(count) => append_entries(reader, out, count, depth + 1),
        _ => Ok(()),
    }
}

fn append_entries(reader: &mut Reader<'_>, out: &mut Vec<u8>, count: usize, depth: usize) -> Result<()> {
    let begin = out.len();
    // The encoded keys, and where their entries are in `out`.
    let mut entries = Vec::new();
    for _ in 0..count {
        let from = out.len();
        let key = reader.raw()?;
        out.extend_from_slice(key);
        append(reader, out, depth)?;
        entries.push((key, from - begin..out.len() - begin));
    }
    if !entries.is_sorted_by_key(|(key, _)| *key) {
        let unordered = out.split_off(begin);
        entries.sort_by_key(|(key, _)| *key);
        entries.into_iter().for_each(|(_, entry)| out.extend_from_slice(&unordered[entry]));
    }
    Ok(())
}
