//! Typed documents as they are stored: MessagePack by `rmp-serde`, in the form that dynamic documents have.
//!
//! Owns the choice between maps with field names and lists without, and which type reads documents of which
//! version. Also the error text for a document that does not decode as its type. docs/format.md, "Documents
//! and collections".

mod by_shape;
mod why;

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::access::collection::Collection;
use crate::access::revision::Revision;
use crate::catalog::forms::{is_positional, name_by_shape};
use crate::catalog::shapes::Shapes;
use crate::store::error::{Code, Error, Result};
use crate::store::{Source, TreeId};
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, check};
use crate::value::tuple::{self, Encoder, check_length};
use crate::value::version;

/// A document ready to be written.
pub(crate) struct Stored {
    pub(crate) key: Vec<u8>,
    /// Without its version prefix.
    pub(crate) document: Vec<u8>,
}

/// The key and the stored form of a document.
pub(crate) fn store<C: Collection>(document: &C) -> Result<Stored> {
    Ok(Stored { key: key_of(document)?, document: to_bytes(document)? })
}

/// The key of a document, and the document with the names of its fields, whatever form its collection has.
///
/// # Errors
/// `InvalidArgument` (E0201) if it cannot be stored.
#[doc(hidden)]
pub fn store_named<C: Collection>(document: &C) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::with_capacity(128);
    let refused = |why: &str| Error::invalid(format!("a document of {} cannot be stored: {why}", C::NAME));
    rmp_serde::encode::write_named(&mut out, document).map_err(|error| refused(&error.to_string()))?;
    if !matches!(Reader::new(&out).next(), Ok(Token::Map(_))) {
        return Err(refused("it is not written as its fields"));
    }
    check(&out).map_err(|error| refused(error.message()))?;
    Ok((key_of(document)?, out))
}

/// A document of another process.
///
/// # Errors
/// `Unreadable` (E0213) if it does not decode as its type.
#[doc(hidden)]
pub fn read_named<C: Collection>(key: &[u8], named: &[u8]) -> Result<C> {
    from_named(key, named)
}

/// The encoded key of a document.
pub(crate) fn key_of<C: Collection>(document: &C) -> Result<Vec<u8>> {
    let mut key = Vec::with_capacity(64);
    document.write_key(&mut Encoder::new(&mut key))?;
    check_length(&key)?;
    Ok(key)
}

/// A document as MessagePack, without its version prefix.
pub(crate) fn to_bytes<C: Collection>(document: &C) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    let written = if C::POSITIONAL {
        rmp_serde::encode::write(&mut out, document)
    } else {
        rmp_serde::encode::write_named(&mut out, document)
    };
    let refused = |why: &str| Error::invalid(format!("a document of {} cannot be stored: {why}", C::NAME));
    written.map_err(|error| refused(&error.to_string()))?;
    // An integer would be the number of a shape.
    let is_integer = matches!(Reader::new(&out).next(), Ok(Token::Int(_)));
    if is_positional(&out) != C::POSITIONAL || is_integer {
        return Err(refused("it is not written as its fields"));
    }
    check(&out).map_err(|error| refused(error.message()))?;
    Ok(out)
}

/// The document under a key; `None` if there is none.
///
/// # Errors
/// Those of a read; `Unreadable` if it does not decode as its type.
pub(crate) fn read<C: Collection>(
    source: &dyn Source,
    shapes: &Shapes,
    tree: TreeId,
    key: &[u8],
) -> Result<Option<C>> {
    let mut found = None;
    source.lend(tree, key, &mut |stored| found = Some(from_bytes(shapes, key, stored)))?;
    found.transpose()
}

/// Decodes a stored document in any form, of this version or an earlier one.
pub(crate) fn from_bytes<C: Collection>(shapes: &Shapes, key: &[u8], stored: &[u8]) -> Result<C> {
    let (version, body) = version::split(stored)?;
    if version != C::VERSION {
        return converted(key, version, &named(shapes, body)?);
    }
    if !begins_with_a_shape(body) {
        return from_named(key, body);
    }
    let (shape, values) = shapes.split(body)?;
    // A type may keep the order in which it finds the fields.
    if !shape.layout().is_in_shown_order() {
        return from_named(key, &named(shapes, body)?);
    }
    by_shape::read(shape.layout().names(), values).or_else(|error| match named(shapes, body) {
        Ok(named) => from_named(key, &named),
        Err(_) => Err(unreadable::<C>(key, body, &error)),
    })
}

/// Decodes a document with its names, or a positional one: also as a type that is no struct.
pub(crate) fn from_named<C: Collection>(key: &[u8], body: &[u8]) -> Result<C> {
    rmp_serde::from_slice(body).map_err(|error| unreadable::<C>(key, body, &error))
}

/// A document with its names, or without any.
fn named<'b>(shapes: &Shapes, body: &'b [u8]) -> Result<Cow<'b, [u8]>> {
    if !begins_with_a_shape(body) {
        return Ok(Cow::Borrowed(body));
    }
    let mut named = Vec::new();
    name_by_shape(shapes, body, &mut named)?;
    Ok(Cow::Owned(named))
}

/// Whether a stored document has this content, in the form in which `document` was made.
pub(crate) fn is_stored<C: Collection>(shapes: &Shapes, stored: &[u8], document: &[u8]) -> Result<bool> {
    let (version, body) = version::split(stored)?;
    Ok(version == C::VERSION && *named(shapes, body)? == *document)
}

#[cold]
fn converted<C: Collection>(key: &[u8], version: u32, body: &[u8]) -> Result<C> {
    let named = |error: Error| {
        let message = format!(
            "the document {} of {}, of version {version}: {}",
            tuple::show(key),
            C::NAME,
            error.message()
        );
        Error::new(error.code(), message).with_hint(error.hint())
    };
    let document = C::from_version(version, body).map_err(named)?;
    let own = key_of(&document).map_err(named)?;
    if own != key {
        return Err(named(
            Error::new(Code::Unreadable, format!("converted, it has the key {}", tuple::show(&own)))
                .with_hint("a conversion leaves the key as it is: documents with another key are copied to a new collection"),
        ));
    }
    Ok(document)
}

/// The document as a type decodes it, before any conversion.
pub(crate) fn read_body<C: DeserializeOwned>(body: &[u8]) -> Result<C> {
    rmp_serde::from_slice(body).map_err(|error| {
        let kind = kind::<C>();
        let why = why::why::<C>(kind, body).unwrap_or_else(|| error.to_string());
        Error::new(Code::Unreadable, format!("it does not read as {kind}: {why}")).with_hint(format!(
            "{kind} must read what was written: give its fields the types and names they had"
        ))
    })
}

/// The revision of a stored document.
///
/// A document of an earlier version has the revision that it will have after conversion: a migration changes
/// no revision, unless a hashed set makes each conversion another list ([`Revision`]).
pub(crate) fn revision<C: Collection>(shapes: &Shapes, key: &[u8], stored: &[u8]) -> Result<Revision> {
    let (version, body) = version::split(stored)?;
    if version == C::VERSION {
        return Ok(Revision::of(&named(shapes, body)?));
    }
    Ok(Revision::of(&to_bytes::<C>(&from_bytes(shapes, key, stored)?)?))
}

fn kind<C>() -> &'static str {
    std::any::type_name::<C>().rsplit("::").next().unwrap_or_default()
}

#[cold]
fn unreadable<C: Collection>(key: &[u8], body: &[u8], error: &rmp_serde::decode::Error) -> Error {
    let kind = kind::<C>();
    let why = why::why::<C>(kind, body).unwrap_or_else(|| error.to_string());
    Error::new(
        Code::Unreadable,
        format!("the document {} of {} does not read as {kind}: {why}", tuple::show(key), C::NAME),
    )
    .with_hint(format!(
        "a new field of {kind} needs #[serde(default)], a renamed one #[serde(alias = \"...\")]; a field of another type \
         needs #[migrate_from]; an enum by number needs a variant for each stored number; the same goes for structs in its \
         fields"
    ))
}
