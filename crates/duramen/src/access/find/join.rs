//! Joins: for each document the one of another collection whose key its fields have.

use std::sync::Arc;

use super::path::Path;
use crate::access::reads::sealed::Readable;
use crate::catalog::entries::Entry;
use crate::catalog::forms;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::tuple::{Element, encode};

/// A collection whose documents are found by their keys, for each document of a query.
///
/// The document that is found stands under the collection's name: paths reach it, `planes.year`.
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::find::{Aggregate, Join};
///
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let flights = db.ensure(&Schema::new("flights").key(["id"]))?;
/// let planes = db.ensure(&Schema::new("planes").key(["tailnum"]))?;
/// planes.put(doc! { "tailnum": "N1", "year": 1999 })?;
/// flights.put(doc! { "id": 1, "tail": "N1" })?;
/// flights.put(doc! { "id": 2, "tail": "N2" })?;
///
/// let all = flights.find([]).join(Join::left("planes", ["tail"])).fields(["id", "planes.year"]);
/// let found = all.iter()?.collect::<Result<Vec<_>>>()?;
/// assert_eq!(found[0], doc! { "id": 1, "planes.year": 1999 });
/// assert_eq!(found[1].get("planes.year"), Some(&Value::Null));
/// let known = flights.find([]).join(Join::inner("planes", ["tail"]));
/// assert_eq!(known.count()?, 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    pub(super) collection: String,
    pub(super) on: Vec<String>,
    pub(super) name: String,
    pub(super) is_left: bool,
}

impl Join {
    /// Leaves out documents without a counterpart. `on` are the fields whose values are the counterpart's
    /// key, in the order of the key.
    #[must_use]
    pub fn inner<T: Into<String>>(collection: impl Into<String>, on: impl IntoIterator<Item = T>) -> Join {
        let collection = collection.into();
        let on = on.into_iter().map(Into::into).collect();
        Join { name: collection.clone(), collection, on, is_left: false }
    }

    /// As [`Join::inner`], but documents without a counterpart have null there.
    #[must_use]
    pub fn left<T: Into<String>>(collection: impl Into<String>, on: impl IntoIterator<Item = T>) -> Join {
        Join { is_left: true, ..Join::inner(collection, on) }
    }

    /// Makes it a left join.
    #[must_use]
    pub fn or_null(self) -> Join {
        Join { is_left: true, ..self }
    }

    /// Puts the counterpart under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Join {
        self.name = name.into();
        self
    }

    /// The collection whose documents are joined.
    #[must_use]
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Parses `planes=tailnum`, `weather=origin,time_hour`, and `arrival:airports=dest` for another name; as
    /// an inner join.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a text without a collection or a field.
    pub fn parse(text: &str) -> Result<Join> {
        let parsed = text.split_once('=').and_then(|(collection, fields)| {
            let (name, collection) = collection.split_once(':').unwrap_or((collection, collection));
            let is_whole = !name.is_empty()
                && !collection.is_empty()
                && fields.split(',').all(|field| !field.is_empty());
            is_whole.then(|| Join::inner(collection, fields.split(',')).named(name))
        });
        parsed.ok_or_else(|| {
            Error::invalid(format!("{text:?} is no join"))
                .with_hint("write COLLECTION=FIELD,... with the fields that have the collection's key")
        })
    }
}

/// A join with what it needs of the catalogue.
pub(super) struct Joined {
    entry: Arc<Entry>,
    paths: Vec<Path>,
    kinds: Vec<ColumnType>,
    name: String,
    pub(super) is_left: bool,
}

impl Joined {
    /// The join for documents of a schema, to which the counterpart's name is added.
    ///
    /// # Errors
    /// `NoSuchTree` for an unknown collection; `InvalidArgument` for another number of fields than its key
    /// has, fields of other types, and a name that a field has.
    pub(super) fn of(state: &dyn Readable, schema: &mut Schema, join: &Join) -> Result<Joined> {
        let Join { collection, on, name, is_left } = join;
        let entry = state.entry(collection)?;
        let key = entry.schema.key_columns();
        if key.len() != on.len() {
            let message = format!(
                "the key of {collection} is ({}), and the join names ({})",
                key.join(","),
                on.join(",")
            );
            return Err(
                Error::invalid(message).with_hint("name a field for each part of the key, in its order")
            );
        }
        if schema.kind(name).is_some() {
            let message =
                format!("{} has a field {name}, so nothing can be joined under that name", schema.name());
            return Err(Error::invalid(message)
                .with_hint("give the join another name (Join::named, NAME:COLLECTION=FIELD)"));
        }
        let paths = on.iter().map(|field| Path::of(schema, field)).collect::<Result<Vec<_>>>()?;
        let kinds: Vec<ColumnType> =
            key.iter().map(|column| entry.schema.kind(column).unwrap_or_default()).collect();
        for ((path, own), column) in paths.iter().zip(&kinds).zip(key) {
            let kind = schema.kind(path.text()).filter(|_| path.is_column()).unwrap_or(ColumnType::Any);
            let is_open = |kind: ColumnType| matches!(kind, ColumnType::Any | ColumnType::Unknown);
            let is_converted = matches!(
                (kind, own),
                (ColumnType::Int, ColumnType::Float) | (ColumnType::Text, ColumnType::Time)
            );
            if path.is_each() || !(kind == *own || is_open(kind) || is_open(*own) || is_converted) {
                let field = path.text();
                let message = format!(
                    "the field {field} is of type {kind}, and {column} of {collection} of type {own}: they never match"
                );
                return Err(Error::invalid(message).with_hint("join by a field that has values of the key"));
            }
        }
        schema.set_column(name.clone(), ColumnType::Any);
        Ok(Joined { entry, paths, kinds, name: name.clone(), is_left: *is_left })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The counterpart of a document.
    pub(super) fn counterpart(
        &self,
        state: &dyn Readable,
        schema: &Schema,
        document: &Document,
    ) -> Result<Option<Value>> {
        let mut key: Vec<Element> = Vec::with_capacity(self.paths.len());
        for (path, kind) in self.paths.iter().zip(&self.kinds) {
            let mut value = path.value(schema, document).clone();
            // No part of a key is null.
            if value == Value::Null || !kind.admit(&mut value) {
                return Ok(None);
            }
            let Some(element) = value.to_element() else { return Ok(None) };
            key.push(element);
        }
        let key = match encode(&key) {
            Err(error) if error.code() == Code::KeyTooLong => return Ok(None),
            key => key?,
        };
        let Some(stored) = state.source().get(self.entry.tree, &key)? else { return Ok(None) };
        forms::document(&self.entry.schema, &stored).map(|document| Some(Value::Map(document)))
    }
}
