//! What the handles of an open database remember together: catalogue entries that were decoded, types that were
//! held against them, counters of assigned ids.
//!
//! Owns no truth: every transaction reads the entry's bytes, so that what is remembered is used only while the
//! catalogue still says the same.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::catalogue::Entry;
use crate::engine::TreeMark;
use crate::ids::IdCounter;

const POISON: &str = "nothing panics while what is known is locked";

/// Shared by all clones of a [`Db`](crate::Db), its snapshots and transactions.
#[derive(Debug, Default)]
pub(crate) struct Known {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    types: Mutex<HashMap<TypeId, Fitting>>,
    counters: Mutex<HashMap<&'static str, Arc<IdCounter>>>,
}

/// The entry that a type was held against, and fits.
#[derive(Debug)]
struct Fitting {
    entry: Arc<Entry>,
    /// A state of the catalogue in which the entry was found.
    seen: Option<TreeMark>,
}

impl Known {
    /// The entry of a collection as it was read last.
    pub(crate) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        lock(&self.entries).get(name).cloned()
    }

    /// Remembers an entry of a published state.
    pub(crate) fn remember_entry(&self, entry: &Arc<Entry>) {
        let mut entries = lock(&self.entries);
        match entries.get_mut(entry.schema.name()) {
            Some(known) => known.clone_from(entry),
            None => {
                entries.insert(entry.schema.name().to_owned(), Arc::clone(entry));
            }
        }
    }

    /// The entry that a type fits, as of some state.
    pub(crate) fn fitting(&self, kind: TypeId) -> Option<Arc<Entry>> {
        lock(&self.types).get(&kind).map(|known| Arc::clone(&known.entry))
    }

    /// The entry that a type fits in a state of this catalogue.
    pub(crate) fn fitting_in(&self, kind: TypeId, is_of: impl Fn(&TreeMark) -> bool) -> Option<Arc<Entry>> {
        let types = lock(&self.types);
        let known = types.get(&kind).filter(|known| known.seen.as_ref().is_some_and(is_of));
        known.map(|known| Arc::clone(&known.entry))
    }

    /// Remembers that a type fits an entry of a published state, and in which state of the catalogue that was seen.
    pub(crate) fn remember_fitting(&self, kind: TypeId, entry: &Arc<Entry>, seen: Option<TreeMark>) {
        let mut types = lock(&self.types);
        match types.get_mut(&kind).filter(|known| Arc::ptr_eq(&known.entry, entry)) {
            Some(known) => known.seen = seen.or(known.seen.take()),
            None => {
                types.insert(kind, Fitting { entry: Arc::clone(entry), seen });
            }
        }
    }

    /// The counter of a collection's ids.
    pub(crate) fn counter(&self, collection: &'static str) -> Arc<IdCounter> {
        Arc::clone(lock(&self.counters).entry(collection).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}
