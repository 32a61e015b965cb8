//! How a type and the collection in the database come together.
//!
//! Owns the decision whether a type fits what the catalogue says, and what the type adds to it. Both tools that know
//! only the catalogue and programs that know only the type then read and write the same documents.

use std::any::TypeId;

use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, Schema};
use crate::view::Code;

/// A type, as somebody asks for its collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) kind: TypeId,
    pub(crate) name: &'static str,
    schema: fn() -> Schema,
    codes: fn() -> Vec<Code>,
    type_name: &'static str,
}

impl Asked {
    pub(crate) fn of<C: Collection>() -> Asked {
        Asked {
            kind: TypeId::of::<C>(),
            name: C::NAME,
            schema: C::schema,
            codes: C::codes,
            type_name: std::any::type_name::<C>(),
        }
    }

    /// The code of its views.
    pub(crate) fn codes(&self) -> Vec<Code> {
        (self.codes)()
    }

    /// What the type says about its collection.
    pub(crate) fn schema(&self) -> Schema {
        let mut schema = (self.schema)();
        schema.set_typed();
        schema
    }

    /// Makes a stored entry one that the type fits, too. Returns whether it changed.
    ///
    /// # Errors
    /// `InvalidArgument` if the keys differ, or a column holds what the type cannot read.
    pub(crate) fn fit(&self, stored: &mut Schema) -> Result<bool> {
        let own = self.schema();
        if own.key_columns() != stored.key_columns() {
            return Err(self.misfit(&format!(
                "its key is ({}), and the type's is ({})",
                stored.key_columns().join(", "),
                own.key_columns().join(", ")
            )));
        }
        let mut grew = self.fit_compact(stored, &own)? | stored.set_typed();
        for column in own.columns() {
            grew |= self.fit_column(stored, column)?;
        }
        for view in own.views() {
            grew |= stored.adopt_view(view);
        }
        Ok(grew)
    }

    /// Compact documents are told apart by the places of their fields: whoever reads them must have these first, in this
    /// order.
    fn fit_compact(&self, stored: &mut Schema, own: &Schema) -> Result<bool> {
        let held = stored.compact_fields();
        let fields: Vec<&str> = own.columns().iter().map(|column| column.name.as_str()).collect();
        if held.len() > fields.len() || held.iter().zip(&fields).any(|(held, own)| held != own) {
            return Err(self.misfit(&format!(
                "its compact documents hold ({}) in this order, and the type has ({})",
                held.join(", "),
                fields.join(", ")
            )));
        }
        if own.compact_fields().len() <= held.len() {
            return Ok(false);
        }
        let grown = stored.clone().compact(own.compact_fields());
        grown.validate()?;
        *stored = grown;
        Ok(true)
    }

    fn fit_column(&self, stored: &mut Schema, own: &Column) -> Result<bool> {
        let summed = stored.sum_columns().contains(&own.name);
        let held = stored.kind(&own.name).unwrap_or(ColumnType::Unknown);
        let joined = match (held, own.kind) {
            (held, own) if held == own => held,
            (ColumnType::Unknown, own) => own,
            (ColumnType::Any, _) => ColumnType::Any,
            // The tree's reducer goes on to insist on integers.
            (held, ColumnType::Any) if summed => held,
            (_, ColumnType::Any) => ColumnType::Any,
            (held, own_kind) => {
                return Err(self.misfit(&format!(
                    "its field {} holds {held}, and the type has {own_kind} there",
                    own.name
                )));
            }
        };
        if joined == held && stored.kind(&own.name).is_some() {
            return Ok(false);
        }
        stored.set_column(&own.name, joined);
        Ok(true)
    }

    #[cold]
    fn misfit(&self, why: &str) -> Error {
        let kind = self.type_name.rsplit("::").next().unwrap_or_default();
        Error::invalid(format!("the collection {} in the database does not fit {kind}: {why}", self.name)).with_hint(
            "change the type back, store it under another name with #[collection(name = \"...\")], or write the \
             documents anew",
        )
    }
}
