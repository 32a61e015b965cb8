//! Writes for a server of this database: what a client's typed calls ask for.
//!
//! Owns marks: a client has read the definition of a collection, and fits its type to that; a mark tells
//! whether the collection still has it. A document comes with its key, and is checked as one without a type
//! is.

use std::mem::discriminant;

use xxhash_rust::xxh3::xxh3_64;

use crate::access::collection::IdOrder;
use crate::access::documents::writes::already_there;
use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable as _;
use crate::access::transaction::{Before, Transaction};
use crate::access::type_descriptor::{Circumstances, TypeDefinition};
use crate::catalog::ids;
use crate::catalog::schema::{Reference, Schema};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::msgpack::check;
use crate::value::tuple::{Element, decode, encode, show};

/// What a typed write wants of the document that has the key.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// It may be there or not.
    Any,
    /// It must not be there.
    Absent,
    /// It must be there.
    Present,
}

/// The mark of a definition.
#[doc(hidden)]
#[must_use]
pub fn mark_of(definition: &[u8]) -> [u8; 8] {
    xxh3_64(definition).to_be_bytes()
}

/// Checks that a collection has the definition of this mark; with an empty one, that it does not exist.
///
/// # Errors
/// `SchemaChanged` (E1112) if it has another one.
#[doc(hidden)]
pub fn check_mark<S: LocalReads>(state: &S, collection: &str, mark: &[u8]) -> Result<()> {
    let is_same = match state.entry(collection) {
        Ok(entry) => mark_of(&entry.stored) == mark,
        Err(error) if error.code() == Code::NoSuchTree => mark.is_empty(),
        Err(error) => return Err(error),
    };
    if is_same {
        return Ok(());
    }
    let what = format!("the collection {collection} was changed since its type was fitted to it");
    Err(Error::new(Code::SchemaChanged, what)
        .with_hint("nothing was changed: read its definition again, and send the call with its new mark"))
}

/// Creates the collection of a type, or gives it what the type declares. The definitions of types to which
/// its documents refer come before its own. Returns the resulting schema.
///
/// # Errors
/// As [`Transaction::put`]; `Unsupported` (E0211) if the documents have another version than the type.
#[doc(hidden)]
pub fn ensure_types(tx: &mut Transaction<'_>, definitions: &[TypeDefinition]) -> Result<Schema> {
    let Some((own, targets)) = definitions.split_last() else {
        return Err(Error::invalid("the definition of the type is missing"));
    };
    let mut new = Vec::new();
    for definition in definitions {
        if tx.find(definition.name())?.is_none() {
            tx.created(&definition.schema())?;
            new.push(definition.name());
        }
    }
    // Now that all are there, for they may refer to each other.
    for target in targets.iter().filter(|target| new.contains(&target.name())) {
        ensure(tx, target)?;
    }
    ensure(tx, own)
}

/// Notes what types of another process declare, once their collections were committed.
///
/// # Errors
/// As [`TypeDefinition::to_bytes`].
#[doc(hidden)]
pub fn declare_types(db: &Db, definitions: &[TypeDefinition]) -> Result<()> {
    let types = &db.open_state().types;
    definitions.iter().try_for_each(|definition| types.declare_definition(definition))
}

fn ensure(tx: &Transaction<'_>, definition: &TypeDefinition) -> Result<Schema> {
    let entry = tx.entry(definition.name())?;
    definition.check_version(&entry.schema)?;
    let types = &tx.open_state().types;
    let is_declared = |known: &Reference| types.refers(definition.name(), known);
    definition.check_references(&entry.schema, is_declared)?;
    let is_empty = || Ok(tx.source().nth(entry.tree, 0)?.is_none());
    let about = Circumstances { is_declared: &is_declared, is_empty: &is_empty, writes: true };
    let mut schema = entry.schema.clone();
    if definition.fit(&mut schema, &about)? {
        return Ok(tx.grow(&entry, schema)?.schema.clone());
    }
    Ok(schema)
}

/// Stores a document as its type writes it. It adds no columns.
///
/// # Errors
/// As [`Transaction::put`]; `InvalidArgument` (E0201) if its fields do not fit the columns, or its key is
/// another one than that of its fields; `AlreadyExists` (E0210), `NoSuchKey` (E0903).
#[doc(hidden)]
pub fn put_typed(
    tx: &Transaction<'_>,
    collection: &str,
    key: &[u8],
    document: &[u8],
    wanted: Wanted,
) -> Result<()> {
    let entry = tx.entry(collection)?;
    if entry.schema.is_migrating() {
        return Err(Error::new(
            Code::Rebuilding,
            format!("the documents of {collection} are being migrated"),
        )
        .with_hint("write it again once the program that has the type has called Db::migrate"));
    }
    check(document)?;
    let fields = Document::from_bytes(document)?;
    entry.schema.check_typed(&fields)?;
    check_key(entry.schema.key_columns(), &fields, key)?;
    let before = if wanted == Wanted::Any { None } else { Some(tx.stored(&entry, key)?) };
    match (wanted, &before) {
        (Wanted::Absent, Some(Some(_))) => return Err(already_there(collection, key)),
        (Wanted::Present, Some(None)) => {
            return Err(Error::new(Code::NoSuchKey, format!("{collection} has no document {}", show(key)))
                .with_hint("put() stores it whether or not there is one"));
        }
        _ => {}
    }
    let before = before.as_ref().map_or(Before::Unread, |before| Before::Read(before.as_deref()));
    tx.write(&entry, key, before, Some(document))
}

/// Checks the key with which a document was sent against its fields. A type may store another form of a field
/// than it has in the key, such as the bytes of a UUID: those are not compared.
fn check_key(columns: &[String], fields: &Document, key: &[u8]) -> Result<()> {
    let elements = decode(key)?;
    let differs =
        |(column, element): (&String, &Element)| match fields.get(column).and_then(Value::to_element) {
            Some(own) => discriminant(&own) == discriminant(element) && own != *element,
            None => !fields.iter().any(|(name, _)| name == column),
        };
    if elements.len() == columns.len() && !columns.iter().zip(&elements).any(differs) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the document was sent with the key {}, which its fields do not have",
        show(key)
    )))
}

/// Assigns an id to a document that is to be stored next. It was never assigned before, and no document has
/// it.
///
/// # Errors
/// As [`Transaction::push`].
#[doc(hidden)]
pub fn new_id(tx: &Transaction<'_>, collection: &str, order: IdOrder) -> Result<u64> {
    let entry = tx.entry(collection)?;
    if entry.schema.key_columns().len() != 1 {
        return Err(Error::invalid(format!(
            "the key of {collection} has several fields: none of them is assigned"
        )));
    }
    loop {
        let id = match order {
            IdOrder::Spread => tx.spread_id(collection, entry.tree)?,
            IdOrder::Sequential => {
                tx.last_id(entry.tree)?.checked_add(1).ok_or_else(|| ids::run_out(collection))?
            }
        };
        if tx.stored(&entry, &encode(&Element::Int(id.into()))?)?.is_none() {
            return Ok(id);
        }
        tx.pass_ids(collection, entry.tree)?;
    }
}
