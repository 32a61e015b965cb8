//! The references of a collection as its entry keeps them, and those of others to it.
//!
//! Owns which definitions are valid together, and what a type adds or takes away.

use super::{Field, Schema};
use crate::catalog::reference::{OnDelete, REFERENCES_MAX, Reference, Referrer};
use crate::store::error::{Error, Result};
use crate::view::spec::{NAME_BYTES_MAX, ViewSpec};

impl Schema {
    /// Adds a reference.
    #[must_use]
    pub fn reference(mut self, reference: Reference) -> Schema {
        self.references.push(reference);
        self
    }

    /// Its references to documents of other collections, or its own.
    #[must_use]
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The collections whose references name this one.
    #[must_use]
    pub fn referred_by(&self) -> &[Referrer] {
        &self.referred_by
    }

    /// Whether documents that are deleted may be referred to.
    pub(crate) fn is_referred_to(&self) -> bool {
        !self.referred_by.is_empty()
    }

    /// Whether documents that are stored may refer to others.
    pub(crate) fn refers(&self) -> bool {
        !self.references.is_empty()
    }

    /// The reference of a field.
    pub(crate) fn reference_of(&self, field: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.field == field)
    }

    pub(crate) fn references_mut(&mut self) -> impl Iterator<Item = &mut Reference> {
        self.references.iter_mut()
    }

    /// The views that the database keeps for the references.
    pub(crate) fn kept_views(&self) -> Vec<ViewSpec> {
        self.references.iter().map(Reference::view).collect()
    }

    /// The same collection without references in either direction.
    pub(crate) fn without_references(mut self) -> Schema {
        self.references.clear();
        self.referred_by.clear();
        self
    }

    /// Adds a reference, to be checked, unless its field has the same one. Returns whether anything changed.
    ///
    /// A different reference of the field is replaced, under whichever of the field's names. One that a type
    /// declares stays declared. A type's reference has the name that the type gives the field.
    pub(crate) fn adopt_reference(&mut self, reference: &Reference) -> bool {
        let names = names_of(&self.fields, &reference.field);
        let is_of_field = |known: &Reference| names.contains(&known.field);
        let is_same = |known: &Reference| {
            known.same_terms(reference)
                || (!reference.declared && is_of_field(known) && known.same_rule(reference))
        };
        let count = self.references.len();
        if let Some(known) = self.references.iter_mut().find(|known| is_same(known)) {
            let (is_news, kept) = (reference.declared && !known.declared, known.generation);
            known.declared |= reference.declared;
            self.references.retain(|known| known.generation == kept || !is_of_field(known));
            return is_news || self.references.len() < count;
        }
        let is_replaced = |known: &&Reference| is_of_field(known);
        let declared = reference.declared
            || self.references.iter().filter(is_replaced).any(|replaced| replaced.declared);
        self.references.retain(|known| !is_of_field(known));
        self.view_generation += 1;
        let generation = self.view_generation;
        self.references.push(Reference { generation, declared, ready: false, ..reference.clone() });
        true
    }

    /// Removes the reference of a field. Returns whether there is one.
    pub(crate) fn remove_reference(&mut self, field: &str) -> bool {
        let count = self.references.len();
        self.references.retain(|reference| reference.field != field);
        self.references.len() < count
    }

    /// Takes over the references of a type. Returns whether anything changed.
    ///
    /// A declared reference goes if a type that writes has its field without the attribute, and `is_declared`
    /// by no other known type. Those of tools stay.
    pub(crate) fn fit_references(
        &mut self,
        own: &Schema,
        writes: bool,
        is_declared: impl Fn(&Reference) -> bool,
    ) -> bool {
        let goes = |known: &Reference| {
            let lost = || own.name_of(&known.field).is_some_and(|name| own.reference_of(name).is_none());
            writes && known.declared && lost() && !is_declared(known)
        };
        let count = self.references.len();
        self.references.retain(|known| !goes(known));
        let mut grew = self.references.len() < count;
        for reference in &own.references {
            grew |= self.adopt_reference(reference);
        }
        grew
    }

    /// The first reference that is another one for the same field of the type `own`, and that `is_declared`
    /// by another type. Returned with that of `own`.
    pub(crate) fn disputed_reference<'a>(
        &'a self,
        own: &'a Schema,
        is_declared: impl Fn(&Reference) -> bool,
    ) -> Option<(&'a Reference, &'a Reference)> {
        own.references.iter().find_map(|wanted| {
            let is_of_field = |known: &&Reference| own.name_of(&known.field) == Some(&*wanted.field);
            let known = self.references.iter().find(is_of_field)?;
            (!known.same_rule(wanted) && is_declared(known)).then_some((known, wanted))
        })
    }

    /// The name that a type has for a stored field.
    fn name_of(&self, stored: &str) -> Option<&str> {
        let mut columns = self.columns.iter().map(|column| column.name.as_str());
        let field = || self.fields.iter().find(|field| field.is_called(stored));
        columns.find(|name| *name == stored).or_else(|| Some(field()?.name.as_str()))
    }

    /// Begins to check references anew whose field has more names than it had among the fields `before`:
    /// documents with such a name have no rows yet.
    pub(crate) fn renew_references(&mut self, before: &[Field]) {
        for reference in &mut self.references {
            let known = names_of(before, &reference.field);
            if names_of(&self.fields, &reference.field).iter().any(|name| !known.contains(name)) {
                self.view_generation += 1;
                reference.generation = self.view_generation;
                reference.ready = false;
            }
        }
    }

    /// Begins the references anew with a version: the rows of a document come with its conversion. Those that
    /// types declared go with their fields.
    pub(crate) fn begin_references(&mut self, own: &Schema) {
        let is_field = |name: &str| own.columns.iter().any(|column| column.name == name);
        self.references.retain(|known| !known.declared || is_field(&known.field));
        self.fit_references(own, true, |_| false);
        for reference in &mut self.references {
            self.view_generation += 1;
            reference.generation = self.view_generation;
            reference.ready = true;
        }
    }

    /// Marks a reference as checked: its view covers every document.
    pub(crate) fn reference_is_ready(&mut self, view: &ViewSpec) {
        let of_view = |reference: &&mut Reference| reference.generation == view.generation;
        self.references.iter_mut().filter(of_view).for_each(|reference| reference.ready = true);
    }

    /// Notes that a collection refers to this one. Returns whether that is new.
    pub(crate) fn add_referrer(&mut self, collection: &str, field: &str) -> bool {
        let referrer = Referrer { collection: collection.to_owned(), field: field.to_owned() };
        let is_new = !self.referred_by.contains(&referrer);
        if is_new {
            self.referred_by.push(referrer);
        }
        is_new
    }

    /// Notes that a collection no longer refers to this one by a field. Returns whether it did.
    pub(crate) fn remove_referrer(&mut self, collection: &str, field: &str) -> bool {
        let count = self.referred_by.len();
        self.referred_by
            .retain(|known| (known.collection.as_str(), known.field.as_str()) != (collection, field));
        self.referred_by.len() < count
    }

    /// Replaces what is known of the references to this collection. For a repair.
    pub(crate) fn set_referrers(&mut self, referred_by: Vec<Referrer>) {
        self.referred_by = referred_by;
    }

    pub(crate) fn retain_references(&mut self, is_kept: impl FnMut(&Reference) -> bool) {
        self.references.retain(is_kept);
    }

    pub(crate) fn validate_references(&self) -> Result<()> {
        let name = &self.name;
        if self.references.len() > REFERENCES_MAX {
            let count = self.references.len();
            let message =
                format!("the collection {name} has {count} references, and can have {REFERENCES_MAX}");
            return Err(Error::invalid(message));
        }
        for (index, reference) in self.references.iter().enumerate() {
            let field = &reference.field;
            let is_name = |name: &str| {
                !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
            };
            if !is_name(field) || !is_name(&reference.to) {
                return Err(Error::invalid(format!(
                    "the reference of {field:?} to {:?} needs names of 1 to {NAME_BYTES_MAX} bytes without control \
                     characters",
                    reference.to
                )));
            }
            if self.references[..index].iter().any(|other| other.field == *field) {
                return Err(Error::invalid(format!("the field {field} of {name} has two references")));
            }
            if reference.action == OnDelete::Clear {
                self.check_clearable(field, reference.each)?;
            }
        }
        Ok(())
    }

    /// Checks that a field may become null; of a list, that items may be removed.
    fn check_clearable(&self, field: &str, each: bool) -> Result<()> {
        let name = &self.name;
        if self.key.iter().any(|key| key == field) {
            return Err(Error::invalid(format!(
                "the field {field} is part of the key of {name}, and on_delete = clear would change it"
            ))
            .with_hint("use restrict or cascade"));
        }
        // The source of a type may spell an Option in ways that are not resolved.
        let is_never_null = |known: &&Field| !known.nullable && !known.kind.contains("Option<");
        if !each && self.fields.iter().filter(is_never_null).any(|known| known.is_called(field)) {
            return Err(Error::invalid(format!(
                "the field {field} of {name} is no Option in its type, and on_delete = clear would make it null"
            ))
            .with_hint("make it an Option, or use restrict or cascade"));
        }
        Ok(())
    }
}

/// All names of a field.
fn names_of(fields: &[Field], field: &str) -> Vec<String> {
    let known = fields.iter().find(|known| known.is_called(field));
    known.map_or_else(|| vec![field.to_owned()], |known| known.names().map(str::to_owned).collect())
}
