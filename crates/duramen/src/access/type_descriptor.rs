//! Matches a Rust type with its stored collection.
//!
//! Owns the decision whether a type fits the catalogue entry, and what the type adds to the entry. Tools that
//! know only the catalogue and programs that know only the type then read and write the same documents. A
//! type that could not read every document is refused before it reads one.

mod advice;
mod fields;
mod lacking;
mod sample;

use std::any::TypeId;

use self::fields::Problems;
use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::views::coded::Code;
use crate::catalog::schema::{Column, ColumnType, Older, Reference, Schema};
use crate::catalog::shapes::Shapes;
use crate::store::error::{Error, Result};

/// A Rust type whose collection is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeDescriptor {
    pub(crate) kind: TypeId,
    pub(crate) name: &'static str,
    pub(crate) version: u32,
    schema: fn() -> Schema,
    codes: fn() -> Vec<Code>,
    older: fn() -> Vec<Schema>,
    targets: fn() -> Vec<ReferredType>,
    /// Decodes a stored document, given with its key.
    decodes: fn(&Shapes, &[u8], &[u8]) -> Result<()>,
    type_name: &'static str,
}

/// What the fit of a type depends on, besides the type and the entry.
pub(crate) struct Circumstances<'a> {
    /// Whether another type that was used since opening declares a reference.
    pub(crate) is_declared: &'a dyn Fn(&Reference) -> bool,
    /// Whether the collection has no documents. Called only where it matters.
    pub(crate) is_empty: &'a dyn Fn() -> Result<bool>,
    /// Whether the type is about to write documents.
    pub(crate) writes: bool,
}

/// A type whose documents another type refers to. For `#[derive(Collection)]`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct ReferredType(pub(crate) TypeDescriptor);

impl ReferredType {
    /// The type `C`.
    #[must_use]
    pub fn of<C: Collection>() -> ReferredType {
        ReferredType(TypeDescriptor::of::<C>())
    }
}

impl TypeDescriptor {
    pub(crate) fn of<C: Collection>() -> TypeDescriptor {
        TypeDescriptor {
            kind: TypeId::of::<C>(),
            name: C::NAME,
            version: C::VERSION,
            schema: C::schema,
            codes: C::codes,
            older: C::older,
            targets: C::referred_types,
            decodes: |shapes, key, stored| codec::from_bytes::<C>(shapes, key, stored).map(drop),
            type_name: std::any::type_name::<C>(),
        }
    }

    /// The code of its views.
    pub(crate) fn codes(&self) -> Vec<Code> {
        (self.codes)()
    }

    /// The types whose documents it refers to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = TypeDescriptor> {
        (self.targets)().into_iter().map(|target| target.0)
    }

    /// The schema that the type declares.
    fn own(&self) -> Schema {
        let mut schema = (self.schema)();
        schema.set_typed();
        schema
    }

    /// The entry of a new collection for the type.
    pub(crate) fn schema(&self) -> Schema {
        let mut schema = self.own();
        schema.set_fields(schema.fields_to_keep());
        schema
    }

    /// The type's name, without its path.
    fn short_name(&self) -> &'static str {
        self.type_name.rsplit("::").next().unwrap_or_default()
    }

    /// Changes a stored entry so that the type fits it. Returns whether it changed.
    ///
    /// # Errors
    /// `InvalidArgument` if the type could not read every document, or other readers not its documents. The
    /// error contains the reason and the change to make.
    ///
    pub(crate) fn fit(&self, stored: &mut Schema, about: &Circumstances<'_>) -> Result<bool> {
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
            self.check_views_of_new_documents(&own)?;
            stored.begin_version(&own);
            return Ok(true);
        }
        let mut grew = self.fit_this_version(stored, &own, about)?;
        grew |= stored.set_typed();
        for view in own.views() {
            grew |= stored.adopt_view(view);
        }
        grew |= stored.fit_references(&own, about.writes, about.is_declared);
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
        let own = self.own();
        if !stored.refers() || own.version() != stored.version() {
            return Ok(());
        }
        let Some((known, wanted)) = stored.disputed_reference(&own, is_declared) else { return Ok(()) };
        let shown = |reference: &Reference| {
            let each = if reference.is_each() { ", as a list" } else { "" };
            format!("{} (on_delete = {}{each})", reference.to(), reference.action().name())
        };
        Err(Error::invalid(format!(
            "the field {} of {} refers to {} in {}, and to {} in another type of the program",
            wanted.field(),
            self.name,
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
        let ancestors = (self.older)();
        let Some(ancestor) = ancestors.iter().find(|ancestor| ancestor.version() == earlier.version) else {
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

/// The type of a column that holds both the stored values and those of a type. `None` if tools could not
/// distinguish them.
fn joined(stored: &Schema, own: &Column) -> Option<ColumnType> {
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
