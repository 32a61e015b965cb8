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
use crate::value::msgpack::{DEPTH_MAX, Reader};
use crate::value::tuple::{Element, Encoder, check_length, directed};
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
    let (last_field, first_fields) = spec.key.split_last().expect("a view has a key field");
    let value = value_fields.iter().flat_map(|field| field.unwrap_or(NULL)).copied().collect::<Vec<u8>>();
    let mut first = Vec::with_capacity(first_fields.len());
    for (field, stored) in first_fields.iter().zip(key_fields) {
        let value = Value::from_stored(stored.unwrap_or(NULL))?;
        let inside = if field.is_path() { field.as_path().inside(&value) } else { &value };
        let Some(element) = element(spec, inside)? else { return Ok(rows) };
        first.push(element);
    }
    let last = Value::from_stored(key_fields[first.len()].unwrap_or(NULL))?;
    for item in &items(spec, last_field, &last) {
        let Some(last) = element(spec, item)? else { continue };
        rows.insert(row_key(spec, &first, &last, key)?, value.clone());
    }
    Ok(rows)
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

/// The element of a key field; `None` for a null that makes no row.
fn element(spec: &ViewSpec, value: &Value) -> Result<Option<Element>> {
    match value.to_element() {
        Some(Element::Null) if !spec.nulls => Ok(None),
        Some(element) => Ok(Some(element)),
        None => Err(Error::invalid(format!(
            "the view {} has a key field that holds a map, which has no order",
            spec.name
        ))),
    }
}

fn row_key(spec: &ViewSpec, first: &[Element], last: &Element, key: &[u8]) -> Result<Vec<u8>> {
    let mut row = Vec::with_capacity(key.len() + 32);
    let mut encoder = Encoder::new(&mut row);
    for (position, element) in first.iter().chain([last]).enumerate() {
        if spec.is_descending(position) {
            encoder.descending(|encoder| encoder.element(element))?;
        } else {
            encoder.element(element)?;
        }
    }
    if spec.is_descending(spec.key.len()) {
        row.extend(directed(key, |_| true)?);
    } else {
        row.extend_from_slice(key);
    }
    check_length(&row).map_err(|error| {
        Error::new(error.code(), format!("the row of the view {}: {}", spec.name, error.message()))
            .with_hint("a view's key and the document's share the length of one key: make either shorter")
    })?;
    Ok(row)
}

/// The bytes of the fields that the view reads: its key fields, then its values.
fn fields<'d>(spec: &ViewSpec, schema: &'d Schema, document: &'d [u8]) -> Result<Vec<Option<&'d [u8]>>> {
    let wanted = || spec.key.iter().map(KeyField::own_field).chain(spec.values.iter().map(String::as_str));
    let mut found = vec![None; wanted().count()];
    let mut stored_fields = Fields::of(schema, document)?;
    while let Some((name, stored)) = stored_fields.next()? {
        for (place, _) in wanted().enumerate().filter(|(_, field)| schema.same_field(field.as_bytes(), name))
        {
            found[place] = Some(stored);
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
