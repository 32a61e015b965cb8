//! Views and references of fields that stored documents may lack.
//!
//! Owns the rule that both must find the value that their type reads. They take stored documents: where a
//! field is absent they find null. A type with `#[serde(default)]` reads a value there.

use super::TypeDefinition;
use super::fields::Problems;
use crate::catalog::schema::{Field, Schema};
use crate::store::error::Result;
use crate::view::key_field::KeyField;

/// A view or reference of a field that documents may lack, and for which the type then reads a value.
pub(crate) struct Lacking<'a> {
    /// The name of the view; `None` for the reference of the field.
    view: Option<&'a str>,
    field: &'a Field,
}

/// The first view or reference of a type that would miss values, if documents have these fields.
pub(crate) fn first<'a>(own: &'a Schema, fields: &[Field]) -> Option<Lacking<'a>> {
    let in_every = |field: &Field| {
        own.key_columns().contains(&field.name)
            || fields.iter().any(|held| held.is_called(&field.name) && held.always)
    };
    let may_lack =
        |name: &str| own.fields().iter().find(|field| field.name == name && field.filled && !in_every(field));
    let of_view = own.views().iter().find_map(|view| {
        let keys = view.key.iter().map(KeyField::own_field);
        let field = keys.chain(view.values.iter().map(String::as_str)).find_map(may_lack)?;
        Some(Lacking { view: Some(view.name()), field })
    });
    of_view.or_else(|| {
        let field = own.references().iter().find_map(|reference| may_lack(reference.field()))?;
        Some(Lacking { view: None, field })
    })
}

impl Problems {
    /// Notes a view or reference that would miss values, if documents have these fields.
    pub(crate) fn lacking(&mut self, own: &Schema, fields: &[Field]) {
        let Some(Lacking { view, field }) = first(own, fields) else { return };
        let (name, kind) = (&field.name, field.type_name());
        let (what, subject) = match view {
            Some(view) => ("view", format!("its view {view}")),
            None => ("reference", "its reference".to_owned()),
        };
        if !field.always {
            self.add(
                format!(
                    "{subject} is of {name}, which skip_serializing_if leaves out of documents: the {what} finds no \
                     value there, and the type reads one"
                ),
                format!("take the skip_serializing_if of {name} away"),
            );
        }
        if field.always || fields != own.fields_to_keep() {
            let option = if field.nullable { kind } else { format!("Option<{kind}>") };
            let rows =
                if view.is_some() { ", and `nulls` in the view gives these documents rows" } else { "" };
            self.add(
                format!(
                    "{subject} is of {name}, which stored documents may lack: the {what} finds no value there, and the \
                     type reads its default"
                ),
                format!("make {name} an {option} without a default of its own: None where it is absent{rows}"),
            );
        }
    }
}

impl TypeDefinition {
    /// Checks the views and references of a type whose documents are the only ones of its version.
    pub(crate) fn check_views_of_new_documents(&self, own: &Schema) -> Result<()> {
        let mut problems = Problems::default();
        problems.lacking(own, &own.fields_to_keep());
        self.refuse(problems, own)
    }
}
