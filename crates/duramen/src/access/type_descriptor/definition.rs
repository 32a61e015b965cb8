//! What a type declares, as data: a server fits a client's type to its catalogue by it.
//!
//! Owns the decision whether a type fits the catalogue entry, and what the type adds to the entry.

use std::collections::HashSet;

use super::fields::Problems;
use super::{Circumstances, lacking};
use crate::catalog::schema::{Column, ColumnType, Field, Older, Reference, Schema};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::tuple::EnumForm;

/// The most fields of a type, and values of a view, of another process.
const FIELDS_MAX: usize = 4_096;
const VALUES_MAX: usize = 64;

/// The form of an enum by its names.
const BY_NAME: &str = "name";

/// The integers of enums by their numbers.
const INTEGERS: [&str; 10] = ["i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize"];

/// The declarations of a type.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct TypeDefinition {
    /// The schema that it declares.
    pub(super) own: Schema,
    /// Those of the types that it migrates from, oldest first.
    pub(super) older: Vec<Schema>,
    /// The type's name, without its path.
    pub(super) type_name: String,
}

impl TypeDefinition {
    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.own.name()
    }

    /// Collection and type.
    pub(crate) fn full_name(&self) -> String {
        format!("{}\u{1}{}", self.name(), self.type_name)
    }

    /// The version of documents that it writes.
    pub(crate) fn version(&self) -> u32 {
        self.own.version()
    }

    /// The type's name, without its path.
    pub(super) fn short_name(&self) -> &str {
        &self.type_name
    }

    pub(super) fn migrates(&self) -> bool {
        !self.older.is_empty()
    }

    /// As bytes, for a server.
    ///
    /// # Errors
    /// As [`Schema::to_bytes`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        // Of each field what the catalogue does not keep.
        let field = |field: &Field| {
            let (form, source) = match &field.form {
                None => ("", ""),
                Some((EnumForm::Name, source)) => (BY_NAME, source.as_str()),
                Some((EnumForm::Number(integer), source)) => (*integer, source.as_str()),
            };
            let flags = [field.default, field.filled].map(Value::Bool);
            Value::List(flags.into_iter().chain([form, source].map(Value::from)).collect())
        };
        let fields = self.own.fields().iter().map(field).collect();
        Document::new()
            .with("schema", Value::Bytes(self.own.to_bytes()?))
            .with("fields", Value::List(fields))
            .with("type", self.type_name.as_str())
            .to_bytes()
    }

    /// The definition of another process.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<TypeDefinition> {
        let document = Document::from_bytes(bytes)?;
        let (Some(Value::Bytes(schema)), Some(Value::List(forms)), Some(Value::Text(type_name))) =
            (document.get("schema"), document.get("fields"), document.get("type"))
        else {
            return Err(no_definition("it lacks a part"));
        };
        let mut own = Schema::from_bytes(schema).map_err(|error| no_definition(error.message()))?;
        own.validate()?;
        own.set_typed();
        if !own.is_declaration() {
            return Err(no_definition("it is of a collection that exists"));
        }
        let (columns, fields) = (own.columns(), own.fields());
        if columns.len().max(fields.len()) > FIELDS_MAX {
            return Err(no_definition(&format!("it has more than {FIELDS_MAX} fields")));
        }
        let names: HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let of_fields: HashSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        if names.len() < columns.len() || of_fields.len() < fields.len() {
            return Err(no_definition("a field is there twice"));
        }
        if own.views().iter().any(|view| view.values.len().max(view.reduce.len()) > VALUES_MAX) {
            return Err(no_definition(&format!("a view has more than {VALUES_MAX} values")));
        }
        if forms.len() != own.fields().len() {
            return Err(no_definition("its fields have other forms"));
        }
        let fields = own.fields().iter().zip(forms).map(|(field, form)| formed(field, form));
        let fields = fields.collect::<Option<Vec<Field>>>();
        own.set_fields(fields.ok_or_else(|| no_definition("the form of a field is none"))?);
        Ok(TypeDefinition { own, older: Vec::new(), type_name: type_name.clone() })
    }

    /// The entry of a new collection for the type.
    #[must_use]
    pub fn schema(&self) -> Schema {
        let mut schema = self.own.clone();
        schema.set_fields(schema.fields_to_keep());
        schema
    }

    /// Checks that all documents have the version of the type. Others are converted by code, in the process
    /// that has the database.
    ///
    /// # Errors
    /// `Unsupported` (E0211).
    pub(crate) fn check_version(&self, stored: &Schema) -> Result<()> {
        if self.version() == stored.version() && !stored.is_migrating() {
            return Ok(());
        }
        let (kind, name, own, held) = (self.short_name(), self.name(), self.version(), stored.version());
        let what = format!(
            "the documents of {name} have version {held} or are being migrated, and {kind} has version {own}"
        );
        Err(Error::new(Code::Unsupported, what).with_hint(
            "a migration is code: run it in a program that has the type and opens the database, with Db::migrate",
        ))
    }

    /// Changes a stored entry so that the type fits it. Returns whether it changed.
    ///
    /// # Errors
    /// `InvalidArgument` if the type could not read every document, or other readers not its documents. The
    /// error contains the reason and the change to make.
    pub(crate) fn fit(&self, stored: &mut Schema, about: &Circumstances<'_>) -> Result<bool> {
        let own = &self.own;
        if own.version() < stored.version() {
            return Err(self.older_than(stored));
        }
        let begins = own.version() > stored.version();
        let versions = stored.versions();
        let earlier = if begins { &versions[..] } else { &versions[..versions.len() - 1] };
        earlier.iter().try_for_each(|version| self.fit_earlier(stored, version))?;
        if begins {
            self.check_sums(stored, own)?;
            self.check_views_of_new_documents(own)?;
            stored.begin_version(own);
            return Ok(true);
        }
        let mut grew = self.fit_this_version(stored, own, about)?;
        grew |= stored.set_typed();
        for view in own.views() {
            grew |= stored.adopt_view(view);
        }
        grew |= stored.fit_references(own, about.writes, about.is_declared);
        Ok(grew)
    }

    /// Checks that no other type of the program, as `is_declared` knows, gives a reference other terms: each
    /// write would replace the other's, and check all documents again.
    ///
    /// # Errors
    /// `InvalidArgument` with both.
    pub(crate) fn check_references(
        &self,
        stored: &Schema,
        is_declared: impl Fn(&Reference) -> bool,
    ) -> Result<()> {
        let own = &self.own;
        if !stored.refers() || own.version() != stored.version() {
            return Ok(());
        }
        let Some((known, wanted)) = stored.disputed_reference(own, is_declared) else { return Ok(()) };
        let shown = |reference: &Reference| {
            let each = if reference.is_each() { ", as a list" } else { "" };
            format!("{} (on_delete = {}{each})", reference.to(), reference.action().name())
        };
        Err(Error::invalid(format!(
            "the field {} of {} refers to {} in {}, and to {} in another type of the program",
            wanted.field(),
            self.name(),
            shown(wanted),
            self.short_name(),
            shown(known),
        ))
        .with_hint("write the same #[references] in both types, or in one of them only"))
    }

    fn fit_this_version(&self, stored: &mut Schema, own: &Schema, about: &Circumstances<'_>) -> Result<bool> {
        let mut problems = Problems::default();
        problems.key(own.key_columns(), stored.key_columns());
        let mut fields = problems.fields(own, stored, about.writes);
        let lacks = lacking::first(own, &fields).is_some();
        if lacks || (about.writes && fields != stored.fields()) {
            if (about.is_empty)()? {
                fields = own.fields_to_keep();
            }
            problems.lacking(own, &fields);
        }
        for column in own.columns() {
            problems.column(stored, column);
        }
        problems.key_types(own.key_columns());
        self.refuse(problems, stored)?;
        let mut grew = self.fit_positional(stored, own)?;
        for column in own.columns() {
            grew |= fit_column(stored, column);
        }
        if fields != stored.fields() {
            stored.set_fields(fields);
            grew = true;
        }
        Ok(grew)
    }

    /// Checks that one of the type's ancestors can read the documents of an earlier version.
    fn fit_earlier(&self, stored: &Schema, earlier: &Older) -> Result<()> {
        let Some(ancestor) = self.older.iter().find(|ancestor| ancestor.version() == earlier.version) else {
            return Err(self.no_ancestor(stored, earlier));
        };
        let mut problems = Problems::default();
        problems.key(ancestor.key_columns(), &earlier.key);
        problems.reads(ancestor.fields(), &earlier.fields);
        problems.positional(ancestor, &earlier.positional);
        self.refuse_ancestor(problems, stored, earlier)
    }

    /// Sets the field names of positional documents to those of the type, which may have more fields.
    fn fit_positional(&self, stored: &mut Schema, own: &Schema) -> Result<bool> {
        let mut problems = Problems::default();
        problems.positional(own, stored.positional_fields());
        self.refuse(problems, stored)?;
        let held = stored.positional_fields();
        let fields: Vec<&str> = own.columns().iter().map(|column| column.name.as_str()).collect();
        let wanted = if own.positional_fields().is_empty() { held.len() } else { fields.len() };
        if held == &fields[..wanted] {
            return Ok(false);
        }
        let grown = stored.clone().positional(fields[..wanted].iter().copied());
        grown.validate()?;
        *stored = grown;
        Ok(true)
    }
}

/// A field with what the catalogue does not keep of it.
fn formed(field: &Field, form: &Value) -> Option<Field> {
    let Value::List(parts) = form else { return None };
    let [Value::Bool(default), Value::Bool(filled), Value::Text(form), Value::Text(source)] = &parts[..]
    else {
        return None;
    };
    let form = match form.as_str() {
        "" => None,
        BY_NAME => Some(EnumForm::Name),
        number => Some(EnumForm::Number(INTEGERS.into_iter().find(|known| *known == number)?)),
    };
    let form = form.map(|form| (form, source.clone()));
    Some(Field { default: *default, filled: *filled, form, ..field.clone() })
}

#[cold]
fn no_definition(why: &str) -> Error {
    Error::invalid(format!("the definition of a type is none: {why}"))
        .with_hint("it is made by the client library of the same release")
}

/// The type of a column that holds both the stored values and those of a type. `None` if tools could not
/// distinguish them.
pub(super) fn joined(stored: &Schema, own: &Column) -> Option<ColumnType> {
    let summed = stored.sum_columns().contains(&own.name);
    match (stored.kind(&own.name).unwrap_or(ColumnType::Unknown), own.kind) {
        (held, own) if held == own => Some(held),
        (ColumnType::Unknown, own) => Some(own),
        (ColumnType::Any, _) => Some(ColumnType::Any),
        // The tree's reducer still requires integers.
        (held, ColumnType::Any) if summed => Some(held),
        (_, ColumnType::Any) => Some(ColumnType::Any),
        _ => None,
    }
}

fn fit_column(stored: &mut Schema, own: &Column) -> bool {
    let kind = joined(stored, own).expect("it was checked before");
    let grows = stored.kind(&own.name) != Some(kind);
    if grows {
        stored.set_column(own.name.as_str(), kind);
    }
    grows
}
