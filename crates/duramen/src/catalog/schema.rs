//! The catalogue entry of a collection: its name, key columns, column types, summed fields, null marker.
//!
//! Owns the stored form of the entry (MessagePack with names, versioned: docs/format.md, section "Documents
//! and collections") and the rules by which a document fits. Never touches a tree.

mod decoded_by;
mod field;
mod references;
mod shape;
mod stored;
#[cfg(test)]
mod tests;

pub use crate::catalog::reference::{OnDelete, Reference, Referrer};
pub(crate) use crate::value::column::exact_float;
pub use crate::value::column::{Column, ColumnType};
pub use crate::view::spec::NAME_BYTES_MAX;
use decoded_by::DecodedBy;
pub use field::Field;
use shape::Ended;
pub(crate) use shape::Older;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::tuple::{Encoder, check_length};
use crate::value::version;
use crate::view::kinds::Reduce;
use crate::view::spec::{GENERATIONS_MAX, VIEWS_MAX, ViewSpec};
use crate::view::sums::{FLOATS, Sums};

/// The definition of a collection: made with builder methods, stored in the catalogue, extended by new
/// columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    name: String,
    key: Vec<String>,
    columns: Vec<Column>,
    sums: Vec<String>,
    null_marker: Option<String>,
    positional: Vec<String>,
    views: Vec<ViewSpec>,
    /// The generation given last to a view. None is given twice, so that each tree of rows has its own name.
    view_generation: u64,
    /// Typed programs write documents too, so documents may have fields that are not columns.
    typed: bool,
    /// The fields of this version's documents, as far as types wrote them.
    fields: Vec<Field>,
    version: u32,
    /// Versions that documents may still have, oldest first; empty unless a migration is in progress.
    older: Vec<Older>,
    /// Positional versions that no document has any more, oldest first.
    ended: Vec<Ended>,
    references: Vec<Reference>,
    /// The references of other collections, and its own, to its documents.
    referred_by: Vec<Referrer>,
    decoded_by: DecodedBy,
}

impl Schema {
    /// A collection of this name. It needs a key before it can be created.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Schema {
        Schema {
            name: name.into(),
            key: Vec::new(),
            columns: Vec::new(),
            sums: Vec::new(),
            null_marker: None,
            positional: Vec::new(),
            views: Vec::new(),
            view_generation: 0,
            typed: false,
            fields: Vec::new(),
            version: version::FIRST,
            older: Vec::new(),
            ended: Vec::new(),
            references: Vec::new(),
            referred_by: Vec::new(),
            decoded_by: DecodedBy::default(),
        }
    }

    /// Makes these columns the key, in this order. The key is the order of the documents.
    #[must_use]
    pub fn key<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Schema {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps exact sums of these integer columns over every range.
    #[must_use]
    pub fn sum<T: Into<String>>(mut self, columns: impl IntoIterator<Item = T>) -> Schema {
        self.sums = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Gives a column a type, or changes it. Columns without one take the type of their first value.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, kind: ColumnType) -> Schema {
        self.set_column(name.into(), kind);
        self
    }

    /// As [`Schema::column`] for many columns. Of a name that comes twice the last type counts.
    #[must_use]
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = Column>) -> Schema {
        let known = self.columns.iter().enumerate().map(|(at, column)| (column.name.clone(), at));
        let mut places: HashMap<String, usize> = known.collect();
        for column in columns {
            match places.entry(column.name.clone()) {
                Entry::Occupied(at) => self.columns[*at.get()].kind = column.kind,
                Entry::Vacant(place) => {
                    place.insert(self.columns.len());
                    self.columns.push(column);
                }
            }
        }
        self
    }

    pub(crate) fn set_column(&mut self, name: impl Into<String>, kind: ColumnType) {
        let name = name.into();
        match self.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.kind = kind,
            None => self.columns.push(Column { name, kind }),
        }
    }

    /// The text that stands for null in CSV.
    #[must_use]
    pub fn null_marker(mut self, marker: impl Into<String>) -> Schema {
        self.null_marker = Some(marker.into());
        self
    }

    /// Allows documents to be stored as lists without names, of these fields in this order.
    #[must_use]
    pub fn positional<T: Into<String>>(mut self, fields: impl IntoIterator<Item = T>) -> Schema {
        self.positional = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a view.
    #[must_use]
    pub fn view(mut self, view: ViewSpec) -> Schema {
        self.views.push(view);
        self
    }

    /// A collection of another name for the same documents, without views, sums and references.
    pub(crate) fn beside(&self, name: &str) -> Schema {
        let beside = Schema { name: name.to_owned(), sums: Vec::new(), views: Vec::new(), ..self.clone() };
        beside.without_references()
    }

    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key columns, in order.
    #[must_use]
    pub fn key_columns(&self) -> &[String] {
        &self.key
    }

    /// The columns known so far, in the order in which they were added.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The summed columns, in order.
    #[must_use]
    pub fn sum_columns(&self) -> &[String] {
        &self.sums
    }

    /// The text that stands for null in CSV, if one was set.
    #[must_use]
    pub fn null(&self) -> Option<&str> {
        self.null_marker.as_deref()
    }

    /// The fields of documents that are stored without names, in order; none if all have names.
    #[must_use]
    pub fn positional_fields(&self) -> &[String] {
        &self.positional
    }

    /// Its views, including those being built.
    #[must_use]
    pub fn views(&self) -> &[ViewSpec] {
        &self.views
    }

    pub(crate) fn views_mut(&mut self) -> impl Iterator<Item = &mut ViewSpec> {
        self.views.iter_mut()
    }

    /// Adds a view, to be built, unless one of its name has the same definition. Returns whether anything
    /// changed.
    pub(crate) fn adopt_view(&mut self, view: &ViewSpec) -> bool {
        if self.views.iter().any(|known| known.same_terms(view)) {
            return false;
        }
        self.view_generation += 1;
        self.views.push(ViewSpec { generation: self.view_generation, ready: false, ..view.clone() });
        true
    }

    /// As [`adopt_view`](Self::adopt_view), for a view from outside: a column that cannot be reduced as the
    /// view asks is known before a single document is read.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201).
    pub(crate) fn adopt_new_view(&mut self, view: &ViewSpec) -> Result<bool> {
        if !self.views.iter().any(|known| known.same_terms(view)) {
            self.check_reductions(view)?;
        }
        Ok(self.adopt_view(view))
    }

    fn check_reductions(&self, view: &ViewSpec) -> Result<()> {
        for reduce in view.reductions() {
            let Some(field) = view.value_fields().get(reduce.value()) else { continue };
            // A column of any type may hold nothing but numbers.
            let kind = self.kind(field).filter(|kind| *kind != ColumnType::Any).unwrap_or_default();
            match (reduce, kind) {
                (Reduce::Sum(_), kind) => check_sum(field, kind)?,
                (Reduce::Quantiles(_), ColumnType::Text | ColumnType::Bool | ColumnType::Time) => {
                    let message =
                        format!("the column {field} has no quantiles: it holds {kind}, not numbers");
                    return Err(Error::invalid(message));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the generations of a view that are not complete. Returns them.
    pub(crate) fn remove_unfinished(&mut self, name: &str) -> Vec<ViewSpec> {
        self.views.extract_if(.., |view| view.name() == name && !view.ready).collect()
    }

    /// Removes one generation of a view.
    pub(crate) fn drop_generation(&mut self, view: &ViewSpec) {
        self.views.retain(|own| !own.same_rows(view));
    }

    /// Removes every view of a name, and returns them.
    pub(crate) fn remove_view(&mut self, name: &str) -> Vec<ViewSpec> {
        self.views.extract_if(.., |view| view.name() == name).collect()
    }

    /// Whether typed programs write its documents too.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        self.typed
    }

    /// Marks the collection as typed. Returns whether it was not typed before.
    pub(crate) fn set_typed(&mut self) -> bool {
        !std::mem::replace(&mut self.typed, true)
    }

    /// Whether it is what a type declares: nothing that only a collection has which exists.
    pub(crate) fn is_declaration(&self) -> bool {
        let is_new = |view: &ViewSpec| view.generation == 0 && !view.ready && view.of_reference.is_none();
        let is_added = |reference: &Reference| reference.generation > 0 || reference.ready;
        self.view_generation == 0
            && self.views.iter().all(is_new)
            && !self.references.iter().any(is_added)
            && self.referred_by.is_empty()
            && self.older.is_empty()
            && self.ended.is_empty()
    }

    /// Adds a new generation of a view with the same definition, to be built. Returns whether there is a view
    /// of that name.
    pub(crate) fn renew_view(&mut self, name: &str) -> bool {
        let newest = self.views.iter().filter(|view| view.name() == name).max_by_key(|view| view.generation);
        let Some(newest) = newest.cloned() else { return false };
        self.view_generation += 1;
        self.views.push(ViewSpec { generation: self.view_generation, ready: false, ..newest });
        true
    }

    /// Marks a view as complete. Removes and returns older ones of its name.
    ///
    /// Older ones with another definition stay if `wanted` returns true for them.
    pub(crate) fn view_is_ready(
        &mut self,
        view: &ViewSpec,
        wanted: impl Fn(&ViewSpec) -> bool,
    ) -> Vec<ViewSpec> {
        let replaced = |known: &ViewSpec| {
            let is_older = known.name() == view.name() && known.generation < view.generation;
            is_older && (known.same_terms(view) || !wanted(known))
        };
        let gone = self.views.extract_if(.., |known| replaced(known)).collect();
        self.views.iter_mut().filter(|known| *known == view).for_each(|known| known.ready = true);
        gone
    }

    /// The type of a column, if it is known.
    #[must_use]
    pub fn kind(&self, column: &str) -> Option<ColumnType> {
        self.columns.iter().find(|known| known.name == column).map(|known| known.kind)
    }

    /// The reducer that keeps the sums.
    ///
    /// # Errors
    /// As [`Sums::new`].
    pub fn reducer(&self) -> Result<Sums> {
        Sums::new(&self.sums)
    }

    /// Checks that the schema is valid for a collection.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) with what is missing or wrong.
    pub fn validate(&self) -> Result<()> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control)
        {
            return Err(Error::invalid(format!(
                "{:?} cannot be the name of a collection: 1 to {NAME_BYTES_MAX} bytes without control characters can",
                self.name
            )));
        }
        if self.key.is_empty() {
            return Err(Error::invalid(format!("the collection {} has no key", self.name))
                .with_hint("name the columns that tell its documents apart"));
        }
        if let Some(i) = (1..self.key.len()).find(|&i| self.key[..i].contains(&self.key[i])) {
            return Err(Error::invalid(format!("the column {} is in the key twice", self.key[i])));
        }
        self.validate_view_count()?;
        self.views.iter().try_for_each(ViewSpec::validate)?;
        self.validate_versions()?;
        self.validate_references()?;
        if let Some(i) =
            (1..self.views.len()).find(|&i| self.views[..i].iter().any(|view| view.same_rows(&self.views[i])))
        {
            return Err(Error::invalid(format!("the view {} is there twice", self.views[i].name())));
        }
        self.reducer()?;
        if !self.positional.is_empty() && !self.sums.is_empty() {
            return Err(Error::invalid(format!(
                "the collection {} sums {}, and its documents are positional: a sum finds its field by its name",
                self.name, self.sums[0]
            ))
            .with_hint("store them with names, or leave the sums out"));
        }
        if let Some(view) = self.views.iter().find(|view| view.has_paths() && !self.positional.is_empty()) {
            return Err(Error::invalid(format!(
                "the view {} has a part of a field in its key, and the documents of {} are positional: parts have no names \
                 there",
                view.name(),
                self.name
            ))
            .with_hint("store them with names, or make the part a field of its own"));
        }
        for column in &self.sums {
            check_sum(column, self.kind(column).unwrap_or(ColumnType::Unknown))?;
        }
        Ok(())
    }

    /// Counts views: one that is being replaced counts once, with all its generations.
    fn validate_view_count(&self) -> Result<()> {
        let is_first =
            |index: &usize| self.views[..*index].iter().all(|view| view.name() != self.views[*index].name());
        let of = |count: usize, what: &str, max: usize| {
            let name = &self.name;
            Err(Error::invalid(format!("the collection {name} has {count} {what}, and can have {max}")))
        };
        let generations = self.views.len();
        if generations > GENERATIONS_MAX {
            return of(generations, "views with those that are being replaced", GENERATIONS_MAX);
        }
        match (0..generations).filter(is_first).count() {
            0..=VIEWS_MAX => Ok(()),
            count => of(count, "views", VIEWS_MAX),
        }
    }

    /// Adds columns of another schema that are new here, or whose type was unknown here. Returns whether
    /// anything changed.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a column of another type, naming both.
    pub fn merge(&mut self, other: &Schema) -> Result<bool> {
        let mut grew = false;
        for theirs in &other.columns {
            let Some(ours) = self.columns.iter_mut().find(|column| column.name == theirs.name) else {
                self.columns.push(theirs.clone());
                grew = true;
                continue;
            };
            if ours.kind == ColumnType::Unknown && theirs.kind != ColumnType::Unknown {
                ours.kind = theirs.kind;
                grew = true;
            } else if theirs.kind != ColumnType::Unknown && ours.kind != theirs.kind {
                return Err(Error::invalid(format!(
                    "the column {} of {} holds {}, not {} as requested",
                    ours.name, self.name, ours.kind, theirs.kind
                )));
            }
        }
        for view in &other.views {
            grew |= self.adopt_new_view(view)?;
        }
        for reference in &other.references {
            grew |= self.adopt_reference(reference);
        }
        if !other.positional.is_empty() && self.positional != other.positional {
            return Err(Error::invalid(format!(
                "the collection {} holds positional documents of ({}), not of ({}) as requested",
                self.name,
                self.positional.join(", "),
                other.positional.join(", ")
            )));
        }
        if self.null_marker.is_none() && other.null_marker.is_some() {
            self.null_marker.clone_from(&other.null_marker);
            grew = true;
        }
        Ok(grew)
    }

    /// Makes a document fit. Returns whether the schema grew.
    ///
    /// Each value must have its column's type; integers widen to float where that is exact. Key columns must
    /// exist, and summed columns must be integers. New fields become columns.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) with the field, its value's type and its column's type. The document may be
    /// changed in part.
    pub fn admit(&mut self, document: &mut Document) -> Result<bool> {
        let mut grew = false;
        for (index, (name, value)) in document.iter_mut().enumerate() {
            if self.columns.get(index).is_none_or(|column| column.name != name) {
                grew |= self.admit_field(name, value)?;
            } else {
                grew |= self.columns[index].admit(value)?;
            }
        }
        for column in &self.key {
            if matches!(document.get(column), None | Some(Value::Null)) {
                return Err(Error::invalid(format!(
                    "the document has no {column}, which is part of the key of {}",
                    self.name
                )));
            }
        }
        if grew {
            self.validate()?;
        }
        Ok(grew)
    }

    /// Checks the fields of a document that a type has written against the columns.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a value of another type than its column.
    pub(crate) fn check_typed(&self, document: &Document) -> Result<()> {
        for column in &self.columns {
            if let Some(value) = document.get(&column.name) {
                column.clone().admit(&mut value.clone())?;
            }
        }
        Ok(())
    }

    fn admit_field(&mut self, name: &str, value: &mut Value) -> Result<bool> {
        if let Some(column) = self.columns.iter_mut().find(|column| column.name == name) {
            return column.admit(value);
        }
        self.columns.push(Column { name: name.to_owned(), kind: ColumnType::of(value) });
        Ok(true)
    }

    /// Appends the key of a document that fits.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a missing key column, a map in one, or an integer that does not fit in
    /// 64 bits; `KeyTooLong` (E0202).
    pub fn write_key(&self, document: &Document, out: &mut Vec<u8>) -> Result<()> {
        let mut encoder = Encoder::new(out);
        for column in &self.key {
            let element = document.get(column).and_then(Value::to_element).ok_or_else(|| {
                Error::invalid(format!(
                    "the document has no {column} that can be part of the key of {}",
                    self.name
                ))
            })?;
            encoder.element(&element)?;
        }
        check_length(out)
    }

    /// Checks that another import or call may use the collection with the same definition.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if `other` names another key or other sums.
    pub fn check_same_terms(&self, other: &Schema) -> Result<()> {
        for (what, flag, stored, asked) in
            [("key", "--key", &self.key, &other.key), ("sums", "--sum", &self.sums, &other.sums)]
        {
            if stored != asked {
                return Err(Error::invalid(format!(
                    "the collection {} has the {what} ({}), not ({}) as requested",
                    self.name,
                    stored.join(","),
                    asked.join(",")
                ))
                .with_hint(format!("leave {flag} out to use what is stored, or choose another collection")));
            }
        }
        Ok(())
    }
}

/// Whether a column of this type can be summed.
fn check_sum(column: &str, kind: ColumnType) -> Result<()> {
    match kind {
        ColumnType::Int | ColumnType::Unknown => Ok(()),
        ColumnType::Float => {
            Err(Error::invalid(format!("the column {column} cannot be summed: it holds floats, {FLOATS}")))
        }
        other => Err(Error::invalid(format!(
            "the column {column} cannot be summed: it holds {other}, not integers"
        ))),
    }
}

impl Document {
    /// The value of a field as the collection's views find it, under any of the names that the field has had.
    ///
    /// If a document has several of the names, the last one counts.
    #[must_use]
    pub fn get_in(&self, schema: &Schema, name: &str) -> Option<&Value> {
        let is_called = |field: &str| schema.same_field(name.as_bytes(), field.as_bytes());
        self.iter().filter(|(field, _)| is_called(field)).last().map(|(_, value)| value)
    }
}
