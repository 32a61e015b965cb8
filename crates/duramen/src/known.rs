//! What the handles of an open database remember together: catalogue entries that were decoded, types that were
//! held against them, counters of assigned ids.
//!
//! Owns no truth: every transaction reads the entry's bytes, so that what is remembered is used only while the
//! catalogue still says the same.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::catalogue::Entry;
use crate::ids::IdCounter;

const POISON: &str = "nothing panics while what is known is locked";

/// Shared by all clones of a [`Db`](crate::Db), its snapshots and transactions.
#[derive(Debug, Default)]
pub(crate) struct Known {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    /// The entry that a type was held against, and fits.
    types: Mutex<HashMap<TypeId, Arc<Entry>>>,
    counters: Mutex<HashMap<&'static str, Arc<IdCounter>>>,
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
        lock(&self.types).get(&kind).cloned()
    }

    /// Remembers that a type fits an entry of a published state.
    pub(crate) fn remember_fitting(&self, kind: TypeId, entry: &Arc<Entry>) {
        lock(&self.types).insert(kind, Arc::clone(entry));
    }

    /// The counter of a collection's ids.
    pub(crate) fn counter(&self, collection: &'static str) -> Arc<IdCounter> {
        Arc::clone(lock(&self.counters).entry(collection).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISON)
}
