//! Views of fields that stored documents may lack.
//!
//! Owns the rule that a view must find the value that its type reads. A view takes stored documents: where a
//! field is absent it finds null. A type with `#[serde(default)]` reads a value there.

use super::TypeDescriptor;
use super::fields::Problems;
use crate::catalog::schema::{Field, Schema};
use crate::store::error::Result;
use crate::view::key_field::KeyField;

/// A view of a field that documents may lack, and for which the type then reads a value.
pub(crate) struct Lacking<'a> {
    view: &'a str,
    field: &'a Field,
}

/// The first view of a type that would miss values, if documents have these fields.
pub(crate) fn first<'a>(own: &'a Schema, fields: &[Field]) -> Option<Lacking<'a>> {
    let in_every = |field: &Field| {
        own.key_columns().contains(&field.name)
            || fields.iter().any(|held| held.is_called(&field.name) && held.always)
    };
    own.views().iter().find_map(|view| {
        let keys = view.key.iter().map(KeyField::own_field);
        let mut names = keys.chain(view.values.iter().map(String::as_str));
        let field = names.find_map(|name| {
            own.fields().iter().find(|field| field.name == name && field.filled && !in_every(field))
        })?;
        Some(Lacking { view: view.name(), field })
    })
}

impl Problems {
    /// Notes a view that would miss values, if documents have these fields.
    pub(crate) fn lacking(&mut self, own: &Schema, fields: &[Field]) {
        let Some(Lacking { view, field }) = first(own, fields) else { return };
        let (name, kind) = (&field.name, field.type_name());
        if !field.always {
            self.add(
                format!(
                    "its view {view} is of {name}, which skip_serializing_if leaves out of documents: the view finds no \
                     value there, and the type reads one"
                ),
                format!("take the skip_serializing_if of {name} away"),
            );
        }
        if field.always || fields != own.fields_to_keep() {
            let option = if field.nullable { kind } else { format!("Option<{kind}>") };
            self.add(
                format!(
                    "its view {view} is of {name}, which stored documents may lack: the view finds no value there, and the \
                     type reads its default"
                ),
                format!(
                    "make {name} an {option} without a default of its own: None where it is absent, and `nulls` in the view \
                     gives these documents rows"
                ),
            );
        }
    }
}

impl TypeDescriptor {
    /// Checks the views of a type whose documents are the only ones of its version.
    pub(crate) fn check_views_of_new_documents(&self, own: &Schema) -> Result<()> {
        let mut problems = Problems::default();
        problems.lacking(own, &own.fields_to_keep());
        self.refuse(problems, own)
    }
}
