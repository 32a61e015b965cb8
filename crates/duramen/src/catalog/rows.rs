//! From a stored document to its rows in a declared view.
//!
//! A row's key is the view's key followed by the document's, in the direction of the last element. Its value
//! is the kept fields one after the other, in stored form. Rows are a function of the document: computed
//! twice, they are the same. Pure functions on bytes.

use std::collections::BTreeMap;

use crate::catalog::forms::Fields;
use crate::catalog::reference;
use crate::catalog::schema::Schema;
use crate::store::error::{Error, Result};
use crate::value::document::Value;
use crate::value::msgpack::{DEPTH_MAX, Reader, Token};
use crate::value::tuple::{Encoder, check_length, directed};
use crate::value::version;
use crate::view::key_field::KeyField;
use crate::view::spec::ViewSpec;

/// The stored nil of an absent field.
const NULL: &[u8] = &[0xc0];

/// Rows by their keys.
pub(crate) type ViewRows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The rows of a document under `key` in a view of the collection `schema`.
///
/// A document of an earlier version has none: its rows come with its conversion.
///
/// # Errors
/// `InvalidArgument` for a field that cannot be in a key; `KeyTooLong`, naming the view.
pub(crate) fn rows(spec: &ViewSpec, schema: &Schema, key: &[u8], stored: &[u8]) -> Result<ViewRows> {
    let mut rows = ViewRows::new();
    let (version, document) = version::split(stored)?;
    if version != schema.version() {
        return Ok(rows);
    }
    let fields = fields(spec, schema, document)?;
    if let Some(elements) = spec.of_reference {
        return reference::rows(spec, elements, key, fields[0]);
    }
    let (key_fields, value_fields) = fields.split_at(spec.key.len());
    let value = value_fields.iter().flat_map(|field| field.unwrap_or(NULL)).copied().collect::<Vec<u8>>();
    let (last, others) = spec.key.split_last().expect("a view has a key field");
    let mut row = Vec::with_capacity(key.len() + 32);
    for (position, field) in others.iter().enumerate() {
        let stored = key_fields[position].unwrap_or(NULL);
        let is_there = match scalar(field, stored)? {
            Some(found) => write_scalar(spec, position, &found, &mut row)?,
            None => {
                let found = Value::from_stored(stored)?;
                let inside = if field.is_path() { field.as_path().inside(&found) } else { &found };
                write_element(spec, position, inside, &mut row)?
            }
        };
        if !is_there {
            return Ok(rows);
        }
    }
    let stored = key_fields[others.len()].unwrap_or(NULL);
    if let Some(found) = scalar(last, stored)? {
        if write_scalar(spec, others.len(), &found, &mut row)? {
            end_row(spec, &mut row, key)?;
            rows.insert(row, value);
        }
        return Ok(rows);
    }
    for item in &items(spec, last, &Value::from_stored(stored)?) {
        let mut row = row.clone();
        if write_element(spec, others.len(), item, &mut row)? {
            end_row(spec, &mut row, key)?;
            rows.insert(row, value.clone());
        }
    }
    Ok(rows)
}

/// The value of a key field that is a whole field, if it is a scalar.
fn scalar<'d>(field: &KeyField, stored: &'d [u8]) -> Result<Option<Token<'d>>> {
    let mut reader = Reader::new(stored);
    if field.is_path() || reader.is_before_items() { Ok(None) } else { reader.next().map(Some) }
}

/// The values that the last element of the key takes, one for each row. `field` is the stored field.
fn items<'d>(spec: &ViewSpec, last: &KeyField, field: &'d Value) -> Vec<&'d Value> {
    let mut items = if !last.is_path() {
        vec![field]
    } else if last.as_path().is_each() {
        last.as_path().all_inside(field)
    } else {
        vec![last.as_path().inside(field)]
    };
    if let ([Value::List(inside)], true) = (&items[..], spec.each && !last.as_path().is_each()) {
        items = inside.iter().collect();
    }
    if items.is_empty() {
        items.push(&Value::Null);
    }
    items
}

/// Appends a value as an element of the key. `false` for a null that makes no row.
fn write_element(spec: &ViewSpec, position: usize, value: &Value, row: &mut Vec<u8>) -> Result<bool> {
    let (Value::List(_) | Value::Map(_)) = value else {
        return write_scalar(spec, position, &value.token(), row);
    };
    let element = value.to_element().ok_or_else(|| {
        Error::invalid(format!("the view {} has a key field that holds a map, which has no order", spec.name))
    })?;
    let mut encoder = Encoder::new(row);
    if spec.is_descending(position) {
        encoder.descending(|encoder| encoder.element(&element))?;
    } else {
        encoder.element(&element)?;
    }
    Ok(true)
}

/// As [`write_element`], of a value that is no list or map.
fn write_scalar(spec: &ViewSpec, position: usize, value: &Token<'_>, row: &mut Vec<u8>) -> Result<bool> {
    if *value == Token::Null && !spec.nulls {
        return Ok(false);
    }
    let mut encoder = Encoder::new(row);
    if spec.is_descending(position) {
        encoder.descending(|encoder| encode_scalar(value, encoder))?;
    } else {
        encode_scalar(value, &mut encoder)?;
    }
    Ok(true)
}

fn encode_scalar(value: &Token<'_>, encoder: &mut Encoder<'_>) -> Result<()> {
    match value {
        Token::Null => encoder.null(),
        Token::Bool(value) => encoder.bool(*value),
        Token::Int(value) => return encoder.int(*value),
        Token::Float(value) => encoder.float(*value),
        Token::Text(value) => encoder.text(value),
        Token::Bytes(value) => encoder.bytes(value),
        Token::Time(value) => encoder.time(*value),
        Token::UncheckedText(_) | Token::List(_) | Token::Map(_) => unreachable!("it is a scalar"),
    }
    Ok(())
}

/// Appends the document's key to a row.
fn end_row(spec: &ViewSpec, row: &mut Vec<u8>, key: &[u8]) -> Result<()> {
    if spec.is_descending(spec.key.len()) {
        row.extend(directed(key, |_| true)?);
    } else {
        row.extend_from_slice(key);
    }
    check_length(row).map_err(|error| {
        Error::new(error.code(), format!("the row of the view {}: {}", spec.name, error.message()))
            .with_hint("a view's key and the document's share the length of one key: make either shorter")
    })
}

/// The bytes of the fields that the view reads: its key fields, then its values.
fn fields<'d>(spec: &ViewSpec, schema: &'d Schema, document: &'d [u8]) -> Result<Vec<Option<&'d [u8]>>> {
    let wanted = || spec.key.iter().map(KeyField::own_field).chain(spec.values.iter().map(String::as_str));
    let mut found = vec![None; spec.key.len() + spec.values.len()];
    let has_renamed = schema.has_renamed_fields();
    let mut stored_fields = Fields::of(schema, document)?;
    while let Some((name, stored)) = stored_fields.next()? {
        for (place, field) in wanted().enumerate() {
            let field = field.as_bytes();
            if name == field || has_renamed && schema.same_field(field, name) {
                found[place] = Some(stored);
            }
        }
    }
    Ok(found)
}

impl Value {
    /// A value from its stored form.
    pub(crate) fn from_stored(stored: &[u8]) -> Result<Value> {
        Value::read(&mut Reader::new(stored), DEPTH_MAX)
    }
}
