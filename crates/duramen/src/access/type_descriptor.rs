//! Matches a Rust type with its stored collection.
//!
//! `definition` decides whether a type fits the catalogue entry, and what the type adds to the entry. Tools
//! that know only the catalogue and programs that know only the type then read and write the same documents.
//! A type that could not read every document is refused before it reads one.

mod advice;
mod definition;
mod fields;
mod lacking;
mod sample;

use std::any::TypeId;

pub use self::definition::TypeDefinition;
use crate::access::codec;
use crate::access::collection::Collection;
use crate::access::views::coded::Code;
use crate::catalog::schema::{Reference, Schema};
use crate::catalog::shapes::Shapes;
use crate::store::error::Result;

/// A Rust type whose collection is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypeDescriptor {
    pub(crate) kind: TypeId,
    pub(crate) name: &'static str,
    schema: fn() -> Schema,
    codes: fn() -> Vec<Code>,
    older: fn() -> Vec<Schema>,
    targets: fn() -> Vec<StoredType>,
    /// Decodes a stored document, given with its key.
    decodes: fn(&Shapes, &[u8], &[u8]) -> Result<()>,
    /// As `decodes`, of a document with the names of its fields.
    decodes_named: fn(&[u8], &[u8]) -> Result<()>,
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

/// A type whose documents are stored. For `#[derive(Collection)]`, and for clients of a server.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct StoredType(pub(crate) TypeDescriptor);

impl StoredType {
    /// The type `C`.
    #[must_use]
    pub fn of<C: Collection>() -> StoredType {
        StoredType(TypeDescriptor::of::<C>())
    }

    /// What tells it from other types.
    #[must_use]
    pub fn id(&self) -> TypeId {
        self.0.kind
    }

    /// The name of its collection.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Checks that the type can read the documents of a collection in another process.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it could not read every document; `Unsupported` (E0211) if they have
    /// another version.
    pub fn check(&self, stored: &Schema, is_empty: &dyn Fn() -> Result<bool>) -> Result<()> {
        self.0.definition().check_version(stored)?;
        let about = Circumstances { is_declared: &|_| true, is_empty, writes: true };
        self.0.fit(&mut stored.clone(), &about).map(drop)
    }

    /// What the type declares, behind what all types declare to which it leads by references.
    ///
    /// # Errors
    /// As [`Schema::to_bytes`].
    pub fn definitions(&self) -> Result<Vec<Vec<u8>>> {
        let mut all = vec![self.0];
        let mut next = 0;
        while let Some(of) = all.get(next).copied() {
            for target in of.targets() {
                if all.iter().all(|known| known.kind != target.kind) {
                    all.push(target);
                }
            }
            next += 1;
        }
        all.iter().rev().map(|of| of.definition().to_bytes()).collect()
    }

    /// Whether stored documents may have insides that the definitions do not tell.
    #[must_use]
    pub fn looks_inside(&self, stored: &Schema) -> bool {
        self.0.looks_inside(stored)
    }

    /// Decodes a sample of so many stored documents, which have the names of their fields.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if the type reads less than half of the sample; those of `nth`.
    pub fn read_sample(
        &self,
        count: u64,
        nth: impl FnMut(u64) -> Result<Option<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<()> {
        self.0.judge_sample(count, nth, self.0.decodes_named)
    }
}

impl TypeDescriptor {
    pub(crate) fn of<C: Collection>() -> TypeDescriptor {
        TypeDescriptor {
            kind: TypeId::of::<C>(),
            name: C::NAME,
            schema: C::schema,
            codes: C::codes,
            older: C::older,
            targets: C::referred_types,
            decodes: |shapes, key, stored| codec::from_bytes::<C>(shapes, key, stored).map(drop),
            decodes_named: |key, named| codec::from_named::<C>(key, named).map(drop),
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
        self.definition().schema()
    }

    /// The type's name, without its path.
    fn short_name(&self) -> &'static str {
        self.type_name.rsplit("::").next().unwrap_or_default()
    }

    /// As [`TypeDefinition::fit`].
    pub(crate) fn fit(&self, stored: &mut Schema, about: &Circumstances<'_>) -> Result<bool> {
        self.definition().fit(stored, about)
    }

    /// As [`TypeDefinition::check_references`].
    pub(crate) fn check_references(
        &self,
        stored: &Schema,
        is_declared: impl Fn(&Reference) -> bool,
    ) -> Result<()> {
        self.definition().check_references(stored, is_declared)
    }

    /// What it declares, as data.
    pub(crate) fn definition(&self) -> TypeDefinition {
        let type_name = self.short_name().to_owned();
        TypeDefinition { own: self.own(), older: (self.older)(), type_name }
    }
}
