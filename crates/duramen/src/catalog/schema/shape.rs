//! The shape of a collection's documents: their fields and version, and those of earlier versions during a
//! migration.
//!
//! Owns the catalogue entry's content during a migration, and the names of a field.

use super::{Column, Field, Schema};
use crate::store::error::{Code, Error, Result};
use crate::view::spec::ViewSpec;

/// A version that documents may still have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Older {
    pub(crate) version: u32,
    pub(crate) key: Vec<String>,
    pub(crate) positional: Vec<String>,
    pub(crate) fields: Vec<Field>,
}

/// The field names of a positional version that no document has any more. The change feed may still have
/// documents of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) version: u32,
    pub(crate) positional: Vec<String>,
}

impl Schema {
    /// Adds a field of a type, and its column. For `#[derive(Collection)]`.
    #[must_use]
    pub fn field(mut self, field: Field, kind: super::ColumnType) -> Schema {
        self.set_column(field.name.as_str(), kind);
        self.fields.push(field);
        self
    }

    /// Sets the version of documents; 1 unless set.
    #[must_use]
    pub fn at_version(mut self, version: u32) -> Schema {
        self.version = version;
        self
    }

    /// The version of newly written documents.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether there may be documents of earlier versions: call `Db::migrate`, or call it again.
    #[must_use]
    pub fn is_migrating(&self) -> bool {
        !self.older.is_empty()
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Sets the fields. References of a field that has more names now are checked anew.
    pub(crate) fn set_fields(&mut self, fields: Vec<Field>) {
        let before = std::mem::replace(&mut self.fields, fields);
        self.renew_references(&before);
    }

    /// The fields of a new type as the catalogue keeps them. No documents exist yet, so no field has other
    /// names.
    pub(crate) fn fields_to_keep(&self) -> Vec<Field> {
        let kept = |field: &Field| Field { also: Vec::new(), ..field.to_keep() };
        self.fields.iter().map(kept).collect()
    }

    /// The shapes that documents may have, this version last.
    pub(crate) fn versions(&self) -> Vec<Older> {
        let own = Older {
            version: self.version,
            key: self.key.clone(),
            positional: self.positional.clone(),
            fields: self.fields.clone(),
        };
        self.older.iter().cloned().chain([own]).collect()
    }

    /// The field names of a positional document.
    ///
    /// # Errors
    /// `CorruptData` for a version that the collection does not have.
    pub(crate) fn positional_of(&self, version: u32) -> Result<&[String]> {
        if version == self.version {
            return Ok(&self.positional);
        }
        let older = self.older.iter().find(|older| older.version == version);
        older.map(|older| older.positional.as_slice()).ok_or_else(|| {
            let newest = self.version;
            Error::new(
                Code::CorruptData,
                format!("a document of {} is of version {version}, and they are of {newest}", self.name),
            )
        })
    }

    /// The field names of a positional document in the change feed, whose version may have ended since.
    ///
    /// # Errors
    /// `Unreadable` for a version whose names are not known.
    pub(crate) fn names_in_feed(&self, version: u32) -> Result<&[String]> {
        if let Some(ended) = self.ended.iter().find(|ended| ended.version == version) {
            return Ok(&ended.positional);
        }
        self.positional_of(version).map_err(|error| Error::new(Code::Unreadable, error.message()))
    }

    /// The key columns of documents of a version.
    pub(crate) fn key_of(&self, version: u32) -> Option<&[String]> {
        if version == self.version {
            return Some(&self.key);
        }
        self.older.iter().find(|older| older.version == version).map(|older| older.key.as_slice())
    }

    /// This schema with the key columns of an earlier version.
    pub(crate) fn with_key_of(&self, version: u32) -> Option<Schema> {
        Some(Schema { key: self.key_of(version)?.to_vec(), ..self.clone() })
    }

    /// Whether two names are those of one field: documents from before a rename have the other.
    pub(crate) fn same_field(&self, one: &[u8], other: &[u8]) -> bool {
        let called = |field: &Field, name: &[u8]| field.names().any(|own| own.as_bytes() == name);
        let renamed = || self.fields.iter().filter(|field| !field.also.is_empty());
        one == other || renamed().any(|field| called(field, one) && called(field, other))
    }

    /// Whether a field has more than one name. Without one, names are those of one field if they are equal.
    pub(crate) fn has_renamed_fields(&self) -> bool {
        self.fields.iter().any(|field| !field.also.is_empty())
    }

    /// Begins a migration to the version of `own`; existing documents are of earlier versions.
    ///
    /// Views begin empty: they have only rows of documents of this version, of which there are none yet.
    pub(crate) fn begin_version(&mut self, own: &Schema) {
        self.older = self.versions();
        self.version = own.version;
        self.key.clone_from(&own.key);
        self.positional.clone_from(&own.positional);
        self.fields = own.fields_to_keep();
        self.typed = true;
        for Column { name, kind } in &own.columns {
            self.set_column(name.as_str(), *kind);
        }
        let mut views: Vec<ViewSpec> = own.views.clone();
        // Newest first: of a view that is being replaced, the later one stays.
        for view in self.views.drain(..).rev() {
            if views.iter().all(|kept| kept.name() != view.name()) {
                views.push(view);
            }
        }
        for view in &mut views {
            self.view_generation += 1;
            view.generation = self.view_generation;
            view.ready = true;
        }
        self.views = views;
        self.begin_references(own);
    }

    /// Ends the migration: every document is of this version.
    pub(crate) fn end_migration(&mut self) {
        for older in std::mem::take(&mut self.older) {
            let gone = |name: &str| older.fields.iter().any(|field| field.is_called(name));
            let stays = |name: &str| self.fields.iter().any(|field| field.is_called(name));
            let summed = |name: &String| self.sums.contains(name);
            self.columns.retain(|column| !gone(&column.name) || stays(&column.name) || summed(&column.name));
            if !older.positional.is_empty() {
                self.ended.push(Ended { version: older.version, positional: older.positional });
            }
        }
    }

    pub(crate) fn validate_versions(&self) -> Result<()> {
        let versions = self.older.iter().map(|older| older.version).chain([self.version]);
        let versions: Vec<u32> = versions.collect();
        if versions[0] == 0 || versions.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::invalid(format!(
                "the collection {} has the versions {versions:?}: they begin at 1 and rise",
                self.name
            )));
        }
        Ok(())
    }
}
