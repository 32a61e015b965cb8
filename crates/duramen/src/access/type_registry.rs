//! The types that programs have used: whether they fit what the catalogue says, and the views that they declare.
//!
//! Owns no truth: a type is held against the entry of its collection again as soon as that says something else.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::access::typed::Asked;
use crate::access::views::coded::{Code, RowsOf};
use crate::catalog::entries::Entry;
use crate::store::TreeMark;
use crate::view::spec::ViewSpec;

const POISON: &str = "nothing panics while the types are locked";

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct TypeRegistry {
    types: Mutex<HashMap<TypeId, Fitting>>,
    /// What the types that were used say of their collections.
    declared: Mutex<HashMap<TypeId, Declared>>,
}

/// What a type says of its collection.
#[derive(Debug)]
struct Declared {
    collection: &'static str,
    /// The version of the documents that it writes.
    version: u32,
    views: Vec<ViewSpec>,
    codes: Vec<Code>,
}

/// What a type may do with the collection that an entry describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Read: the type says more than the entry, which must grow before it writes.
    Reads,
    /// Read and write.
    Writes,
}

/// The entry that a type was held against, and fits.
#[derive(Debug)]
struct Fitting {
    entry: Arc<Entry>,
    fits: Fits,
    /// A state of the catalogue in which the entry was found.
    seen: Option<TreeMark>,
}

impl TypeRegistry {
    /// The entry of a collection says something else than before: every type is held against it again, for another may have made
    /// documents what it cannot read.
    pub(crate) fn forget_fits(&self, collection: &str) {
        lock(&self.types).retain(|_, known| known.entry.schema.name() != collection);
    }

    /// The entry that a type fits, to read and write, as of some state.
    pub(crate) fn fitting(&self, kind: TypeId) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        types.get(&kind).filter(|known| known.fits == Fits::Writes).map(|known| Arc::clone(&known.entry))
    }

    /// The entry whose documents a type reads, as of some state.
    pub(crate) fn readable(&self, kind: TypeId) -> Option<Arc<Entry>> {
        lock(&self.types).get(&kind).map(|known| Arc::clone(&known.entry))
    }

    /// The entry whose documents a type reads in a state of this catalogue.
    pub(crate) fn readable_in(&self, kind: TypeId, is_of: impl Fn(&TreeMark) -> bool) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        let known = types.get(&kind).filter(|known| known.seen.as_ref().is_some_and(is_of));
        known.map(|known| Arc::clone(&known.entry))
    }

    /// Remembers that a type fits an entry of a published state, and in which state of the catalogue that was seen.
    pub(crate) fn remember_fitting(
        &self,
        kind: TypeId,
        entry: &Arc<Entry>,
        fits: Fits,
        seen: Option<TreeMark>,
    ) {
        let mut types = lock(&self.types);
        match types.get_mut(&kind).filter(|known| Arc::ptr_eq(&known.entry, entry)) {
            Some(known) => {
                known.seen = seen.or(known.seen.take());
                known.fits = if known.fits == Fits::Writes { Fits::Writes } else { fits };
            }
            None => {
                types.insert(kind, Fitting { entry: Arc::clone(entry), fits, seen });
            }
        }
    }

    /// Learns what a type declares. Returns whether that is news.
    pub(crate) fn declare(&self, asked: Asked) -> bool {
        let mut declared = lock(&self.declared);
        if declared.contains_key(&asked.kind) {
            return false;
        }
        let views = asked.schema().views().to_vec();
        let (collection, version, codes) = (asked.name, asked.version, asked.codes());
        declared.insert(asked.kind, Declared { collection, version, views, codes });
        true
    }

    /// Whether a type that was used since the database was opened declares a view with these terms.
    pub(crate) fn is_declared(&self, collection: &str, view: &ViewSpec) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        of_collection.flat_map(|of| &of.views).any(|known| known.same_terms(view))
    }

    /// The code of a view, if a type that was used has it: one of documents of this version, for others read them otherwise.
    pub(crate) fn code(&self, collection: &str, version: u32, view: &ViewSpec) -> Option<RowsOf> {
        let declared = lock(&self.declared);
        let of_version = declared.values().filter(|of| of.collection == collection && of.version == version);
        of_version.flat_map(|of| &of.codes).find(|code| code.spec.same_terms(view)).map(|code| code.rows)
    }

    /// Whether a program says that a view is followed by another one, and may answer for it.
    pub(crate) fn is_followed(&self, collection: &str, view: &ViewSpec, by: &ViewSpec) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        let is_followed = |code: &Code| {
            code.spec.same_terms(view) && code.followed_by.as_ref().is_some_and(|next| next.same_terms(by))
        };
        of_collection.flat_map(|of| &of.codes).any(is_followed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}
