//! The types that the program has used: whether they fit the catalogue, and the views that they declare.
//!
//! A cache: a type is checked against the entry of its collection again as soon as that changes.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use xxhash_rust::xxh3::xxh3_64;

use crate::access::type_descriptor::{TypeDefinition, TypeDescriptor};
use crate::access::views::coded::{Code, RowsOf};
use crate::catalog::entries::Entry;
use crate::catalog::schema::{Reference, Schema};
use crate::store::error::Result;
use crate::store::{TreeId, TreeMark};
use crate::view::spec::ViewSpec;

const POISON: &str = "nothing panics while the types are locked";

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct TypeRegistry {
    types: Mutex<HashMap<TypeId, Fitting, BuildHasherDefault<IdHasher>>>,
    /// The declarations of the types that were used.
    declared: Mutex<HashMap<By, Declared>>,
    /// Types that decoded a sample of the documents in a tree, and the collection's name.
    sampled: Mutex<HashMap<TypeId, (TreeId, &'static str)>>,
}

/// What declares: a type of this program, or one of another process, known by the hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    Type(TypeId),
    Definition(u64),
}

/// Definitions of types of other processes that are kept; of more, later ones count as not used.
const DEFINITIONS_BYTES_MAX: usize = 1 << 20;

/// A type's id is a hash already.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.rotate_left(8) ^ number;
    }
}

/// The declarations of a type.
#[derive(Debug)]
struct Declared {
    collection: String,
    /// The document version that it writes.
    version: u32,
    views: Vec<ViewSpec>,
    references: Vec<Reference>,
    codes: Vec<Code>,
    /// Of the definition of a type of another process.
    bytes: usize,
}

impl Declared {
    fn of(schema: &Schema, codes: Vec<Code>) -> Declared {
        Declared {
            collection: schema.name().to_owned(),
            version: schema.version(),
            views: schema.views().to_vec(),
            references: schema.references().to_vec(),
            codes,
            bytes: 0,
        }
    }
}

/// The access that a type has to the collection of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Read only: the type has declarations that the entry must get before it writes.
    Reads,
    /// Read and write.
    Writes,
}

/// The entry that a type was checked against, and fits.
#[derive(Debug)]
struct Fitting {
    entry: Arc<Entry>,
    fits: Fits,
    /// A state of the catalogue that contains the entry.
    seen: Option<TreeMark>,
}

impl TypeRegistry {
    /// Forgets the checks for a collection, because its entry has changed.
    ///
    /// Every type is checked again, since another type may have written documents that it cannot read.
    pub(crate) fn forget_fits(&self, collection: &str) {
        lock(&self.types).retain(|_, known| known.entry.schema.name() != collection);
        lock(&self.sampled).retain(|_, (_, name)| *name != collection);
    }

    /// Whether a type has decoded a sample of the documents in a tree.
    pub(crate) fn has_sampled(&self, descriptor: &TypeDescriptor, tree: TreeId) -> bool {
        lock(&self.sampled).get(&descriptor.kind).is_some_and(|(known, _)| *known == tree)
    }

    /// Notes that a type has decoded a sample of the documents in a tree.
    pub(crate) fn remember_sampled(&self, descriptor: &TypeDescriptor, tree: TreeId) {
        lock(&self.sampled).insert(descriptor.kind, (tree, descriptor.name));
    }

    /// The cached entry that a type may read and write; it may be of an older state.
    pub(crate) fn fitting(&self, kind: TypeId) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        types.get(&kind).filter(|known| known.fits == Fits::Writes).map(|known| Arc::clone(&known.entry))
    }

    /// The cached entry whose documents a type may read; it may be of an older state.
    pub(crate) fn readable(&self, kind: TypeId) -> Option<Arc<Entry>> {
        lock(&self.types).get(&kind).map(|known| Arc::clone(&known.entry))
    }

    /// The cached entry whose documents a type may read, if it is of this catalogue's state.
    pub(crate) fn readable_in(&self, kind: TypeId, is_of: impl Fn(&TreeMark) -> bool) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        let known = types.get(&kind).filter(|known| known.seen.as_ref().is_some_and(is_of));
        known.map(|known| Arc::clone(&known.entry))
    }

    /// Caches that a type fits an entry of a published state, and the state of the catalogue in which it was
    /// found.
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

    /// Registers the declarations of a type. Returns whether they are new.
    pub(crate) fn declare(&self, descriptor: TypeDescriptor) -> bool {
        let mut declared = lock(&self.declared);
        let by = By::Type(descriptor.kind);
        if declared.contains_key(&by) {
            return false;
        }
        declared.insert(by, Declared::of(&descriptor.schema(), descriptor.codes()));
        true
    }

    /// Registers the declarations of a type of another process, in the place of those that an earlier release
    /// of it had.
    pub(crate) fn declare_definition(&self, definition: &TypeDefinition) -> Result<()> {
        let bytes = definition.to_bytes()?.len();
        let by = By::Definition(xxh3_64(definition.full_name().as_bytes()));
        let mut declared = lock(&self.declared);
        let is_other = |known: &&By| matches!(known, By::Definition(_)) && **known != by;
        let others: usize =
            declared.iter().filter(|(known, _)| is_other(known)).map(|(_, of)| of.bytes).sum();
        if others + bytes <= DEFINITIONS_BYTES_MAX {
            declared.insert(by, Declared { bytes, ..Declared::of(&definition.schema(), Vec::new()) });
        }
        Ok(())
    }

    /// Whether a type that was used since opening declares a view with this definition.
    pub(crate) fn is_declared(&self, collection: &str, view: &ViewSpec) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        of_collection.flat_map(|of| &of.views).any(|known| known.same_terms(view))
    }

    /// Whether a type that was used since opening declares a view of this name, in whatever form.
    pub(crate) fn is_named(&self, collection: &str, view: &str) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        of_collection.flat_map(|of| &of.views).any(|known| known.name() == view)
    }

    /// Whether a type that was used since opening declares this reference.
    pub(crate) fn refers(&self, collection: &str, reference: &Reference) -> bool {
        let declared = lock(&self.declared);
        let of_collection = declared.values().filter(|of| of.collection == collection);
        of_collection.flat_map(|of| &of.references).any(|known| known.same_terms(reference))
    }

    /// The code of a view, from a type of this document version; other versions decode documents differently.
    pub(crate) fn code(&self, collection: &str, version: u32, view: &ViewSpec) -> Option<RowsOf> {
        let declared = lock(&self.declared);
        let of_version = declared.values().filter(|of| of.collection == collection && of.version == version);
        of_version.flat_map(|of| &of.codes).find(|code| code.spec.same_terms(view)).map(|code| code.rows)
    }

    /// Whether the program declares that `by` replaces a view, and that the view may answer meanwhile.
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
