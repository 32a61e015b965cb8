//! Directions of the elements of encoded keys: a key with others, and a key without any.
//!
//! Pure. Elements say themselves whether they are descending, so a key is read without its view.

use std::borrow::Cow;

use super::{Element, Encoder, code, decode};
use crate::store::error::Result;

/// The same elements, all ascending: the key of a document from the end of a row.
///
/// # Errors
/// As [`decode`].
pub(crate) fn ascending(key: &[u8]) -> Result<Cow<'_, [u8]>> {
    // All of a document's key have one direction.
    let is_descending = key.first().is_some_and(|first| *first >= code::DESCENDING_MIN);
    Ok(if is_descending { Cow::Owned(directed(key, |_| false)?) } else { Cow::Borrowed(key) })
}

/// The same elements in other directions: whether each is descending, by its position.
///
/// # Errors
/// As [`decode`].
pub(crate) fn directed(key: &[u8], is_descending: impl Fn(usize) -> bool) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(key.len() + 8);
    let mut encoder = Encoder::new(&mut out);
    for (position, element) in decode(key)?.into_iter().enumerate() {
        encoder.element(&element.ascending().directed(is_descending(position)))?;
    }
    Ok(out)
}

/// The elements of a key without their directions.
///
/// # Errors
/// As [`decode`].
pub(crate) fn values(key: &[u8]) -> Result<Vec<Element>> {
    Ok(decode(key)?.into_iter().map(Element::ascending).collect())
}
