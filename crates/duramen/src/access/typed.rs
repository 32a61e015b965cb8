//! How a type and the collection in the database come together.
//!
//! Owns the decision whether a type fits what the catalogue says, and what the type adds to it. Both tools that know
//! only the catalogue and programs that know only the type then read and write the same documents, and a type that could not
//! read every document is refused before it reads one.

mod advice;
mod fields;

use std::any::TypeId;

use self::fields::Problems;
use crate::access::collection::Collection;
use crate::access::views::coded::Code;
use crate::catalog::schema::{Column, ColumnType, Older, Schema};
use crate::store::error::Result;

/// A type, as somebody asks for its collection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) kind: TypeId,
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    schema: fn() -> Schema,
    codes: fn() -> Vec<Code>,
    older: fn() -> Vec<Schema>,
    type_name: &'static str,
}

impl Asked {
    pub(crate) fn of<C: Collection>() -> Asked {
        Asked {
            kind: TypeId::of::<C>(),
            name: C::NAME,
            version: C::VERSION,
            schema: C::schema,
            codes: C::codes,
            older: C::older,
            type_name: std::any::type_name::<C>(),
        }
    }

    /// The code of its views.
    pub(crate) fn codes(&self) -> Vec<Code> {
        (self.codes)()
    }

    /// What the type says about its collection.
    fn own(&self) -> Schema {
        let mut schema = (self.schema)();
        schema.set_typed();
        schema
    }

    /// The entry of a collection that is made for the type.
    pub(crate) fn schema(&self) -> Schema {
        let mut schema = self.own();
        schema.set_fields(schema.fields_to_keep());
        schema
    }

    /// The type's name, without its path.
    fn short_name(&self) -> &'static str {
        self.type_name.rsplit("::").next().unwrap_or_default()
    }

    /// Makes a stored entry one that the type fits, too. Returns whether it changed.
    ///
    /// # Errors
    /// `InvalidArgument` if the type could not read every document, or others not what it writes: what is in the way, and what to
    /// write.
    pub(crate) fn fit(&self, stored: &mut Schema) -> Result<bool> {
        let own = self.own();
        if own.version() < stored.version() {
            return Err(self.older_than(stored));
        }
        let begins = own.version() > stored.version();
        let versions = stored.versions();
        let earlier = if begins { &versions[..] } else { &versions[..versions.len() - 1] };
        earlier.iter().try_for_each(|version| self.fit_earlier(stored, version))?;
        if begins {
            self.check_sums(stored, &own)?;
            stored.begin_version(&own);
            return Ok(true);
        }
        let mut grew = self.fit_this_version(stored, &own)?;
        grew |= stored.set_typed();
        for view in own.views() {
            grew |= stored.adopt_view(view);
        }
        Ok(grew)
    }

    fn fit_this_version(&self, stored: &mut Schema, own: &Schema) -> Result<bool> {
        let mut problems = Problems::default();
        problems.key(own.key_columns(), stored.key_columns());
        let fields = problems.fields(own, stored);
        for column in own.columns() {
            problems.column(stored, column);
        }
        self.refuse(problems, stored)?;
        let mut grew = self.fit_compact(stored, own)?;
        for column in own.columns() {
            grew |= fit_column(stored, column);
        }
        if fields != stored.fields() {
            stored.set_fields(fields);
            grew = true;
        }
        Ok(grew)
    }

    /// One of the type's ancestors must read the documents of an earlier version.
    fn fit_earlier(&self, stored: &Schema, earlier: &Older) -> Result<()> {
        let ancestors = (self.older)();
        let Some(ancestor) = ancestors.iter().find(|ancestor| ancestor.version() == earlier.version) else {
            return Err(self.no_ancestor(stored, earlier));
        };
        let mut problems = Problems::default();
        problems.key(ancestor.key_columns(), &earlier.key);
        problems.reads(ancestor.fields(), &earlier.fields);
        problems.compact(ancestor, &earlier.compact);
        self.refuse_ancestor(problems, stored, earlier)
    }

    /// The names of compact documents' values become those of the type, which may have more of them.
    fn fit_compact(&self, stored: &mut Schema, own: &Schema) -> Result<bool> {
        let mut problems = Problems::default();
        problems.compact(own, stored.compact_fields());
        self.refuse(problems, stored)?;
        let held = stored.compact_fields();
        let fields: Vec<&str> = own.columns().iter().map(|column| column.name.as_str()).collect();
        let wanted = if own.compact_fields().is_empty() { held.len() } else { fields.len() };
        if held == &fields[..wanted] {
            return Ok(false);
        }
        let grown = stored.clone().compact(fields[..wanted].iter().copied());
        grown.validate()?;
        *stored = grown;
        Ok(true)
    }
}

/// The type of a column that holds what it held, and what a type writes. `None` if tools could not tell one from the other.
fn joined(stored: &Schema, own: &Column) -> Option<ColumnType> {
    let summed = stored.sum_columns().contains(&own.name);
    match (stored.kind(&own.name).unwrap_or(ColumnType::Unknown), own.kind) {
        (held, own) if held == own => Some(held),
        (ColumnType::Unknown, own) => Some(own),
        (ColumnType::Any, _) => Some(ColumnType::Any),
        // The tree's reducer goes on to insist on integers.
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
