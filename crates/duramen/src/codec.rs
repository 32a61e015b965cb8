//! Typed documents as they are stored: MessagePack by `rmp-serde`, in the form that dynamic documents have.
//!
//! Owns the choice between maps with names and lists without, and the words of a document that does not read as its
//! type. docs/format.md, section "Documents and collections".

use crate::collection::Collection;
use crate::compact::is_compact;
use crate::error::{Code, Error, Result};
use crate::msgpack::check;
use crate::tuple::{self, Encoder, check_length};

/// A document ready to be written.
pub(crate) struct Stored {
    pub(crate) key: Vec<u8>,
    pub(crate) document: Vec<u8>,
}

/// The key and the stored form of a document.
pub(crate) fn store<C: Collection>(document: &C) -> Result<Stored> {
    Ok(Stored { key: key_of(document)?, document: to_bytes(document)? })
}

/// The encoded key of a document.
pub(crate) fn key_of<C: Collection>(document: &C) -> Result<Vec<u8>> {
    let mut key = Vec::with_capacity(64);
    document.write_key(&mut Encoder::new(&mut key))?;
    check_length(&key)?;
    Ok(key)
}

/// The stored form of a document.
pub(crate) fn to_bytes<C: Collection>(document: &C) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    let written = if C::COMPACT {
        rmp_serde::encode::write(&mut out, document)
    } else {
        rmp_serde::encode::write_named(&mut out, document)
    };
    let refused = |why: &str| Error::invalid(format!("a document of {} cannot be stored: {why}", C::NAME));
    written.map_err(|error| refused(&error.to_string()))?;
    if is_compact(&out) != C::COMPACT {
        return Err(refused("it is not written as its fields"));
    }
    check(&out).map_err(|error| refused(error.message()))?;
    Ok(out)
}

/// A document from its stored form, with names or without.
pub(crate) fn from_bytes<C: Collection>(key: &[u8], stored: &[u8]) -> Result<C> {
    rmp_serde::from_slice(stored).map_err(|error| unreadable::<C>(key, &error))
}

#[cold]
fn unreadable<C: Collection>(key: &[u8], error: &rmp_serde::decode::Error) -> Error {
    let kind = std::any::type_name::<C>().rsplit("::").next().unwrap_or_default();
    Error::new(
        Code::Unreadable,
        format!("the document {} of {} does not read as {kind}: {error}", tuple::show(key), C::NAME),
    )
    .with_hint(format!(
        "a new field of {kind} needs #[serde(default)], a renamed one #[serde(alias = \"...\")]; a field of another type \
         needs documents to be rewritten"
    ))
}
