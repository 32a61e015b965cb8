//! The definitions of types that clients send.

use duramen::error::{Code, Error, Result};
use duramen::wire::{self, TypeDefinition};
use duramen::{LocalReads as _, Reference, Schema, Transaction, Value};
use duramen_proto::{document, v1};

use super::collections;
use crate::auth::{Caller, Named, Right};

/// The most definitions of a call: those of a type and of those to which it refers.
const DEFINITIONS_MAX: usize = 64;

/// Their most bytes.
const BYTES_MAX: usize = 256 << 10;

/// The memory that they take once they are decoded.
///
/// # Errors
/// `TooLarge` (E0203) for too many of them, or too long ones.
pub(super) fn cost(request: &v1::EnsureTypeRequest) -> Result<usize> {
    let bytes: usize = request.definitions.iter().map(bytes::Bytes::len).sum();
    if request.definitions.len() > DEFINITIONS_MAX || bytes > BYTES_MAX {
        let what =
            format!("a call takes {DEFINITIONS_MAX} definitions of types, of {BYTES_MAX} bytes together");
        return Err(Error::new(Code::TooLarge, what).with_hint("give the type fewer references or fields"));
    }
    let parts = request.definitions.iter().map(|definition| Value::parts_of_msgpack(definition));
    // A definition is a document with another one in it, of at most as many parts as it has bytes.
    Ok(parts.sum::<usize>() * document::PART_BYTES + bytes * document::PART_BYTES)
}

/// Fits collections to the definitions, and returns that of the last one, and the names of those that were
/// changed. A caller without the right to change them may ask: nothing is changed then.
///
/// # Errors
/// As [`wire::ensure_types`]; `Forbidden` (E1102) if a collection does not fit yet, and the caller may not
/// change it.
pub(super) fn ensure(
    tx: &mut Transaction<'_>,
    definitions: &[TypeDefinition],
    caller: &Caller,
) -> Result<(v1::Collection, Vec<String>)> {
    for name in definitions.iter().map(TypeDefinition::name) {
        if !caller.knows(Named::Collection, name)? {
            caller.needs(Right::Schema, Some((Named::Collection, name)))?;
        }
    }
    // A reference changes the collection to which it leads, too: deletes there look at who refers to them.
    let schemas: Vec<Schema> = definitions.iter().map(TypeDefinition::schema).collect();
    let targets = schemas.iter().flat_map(|schema| schema.references().iter().map(Reference::to));
    let mut before = Vec::new();
    for name in definitions.iter().map(TypeDefinition::name).chain(targets) {
        before.push((name, message_of(tx, name)?));
    }
    let schema = wire::ensure_types(tx, definitions)?;
    let mut changed = Vec::new();
    for (name, before) in before {
        if message_of(tx, name)? != before {
            caller.needs(Right::Schema, Some((Named::Collection, name)))?;
            changed.push(name.to_owned());
        }
    }
    Ok((collections::message(tx, &schema)?, changed))
}

/// Whether a caller may change the collections of all definitions.
pub(super) fn may_change(definitions: &[TypeDefinition], caller: &Caller) -> Result<bool> {
    for definition in definitions {
        if !caller.has(Right::Schema, Some((Named::Collection, definition.name())))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A collection as a message; `None` if there is none.
fn message_of(tx: &Transaction<'_>, name: &str) -> Result<Option<v1::Collection>> {
    match tx.documents(name).schema() {
        Ok(schema) => collections::message(tx, &schema).map(Some),
        Err(error) if error.code() == Code::NoSuchTree => Ok(None),
        Err(error) => Err(error),
    }
}

/// The definitions.
///
/// # Errors
/// `InvalidArgument` (E0201) for one that is none.
pub(super) fn definitions(request: &v1::EnsureTypeRequest) -> Result<Vec<TypeDefinition>> {
    request.definitions.iter().map(|bytes| TypeDefinition::from_bytes(bytes)).collect()
}
