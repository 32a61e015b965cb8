//! A cache of decoded catalogue entries.
//!
//! Only a cache: every transaction reads the entry's bytes. A cached entry is used only while those bytes are
//! the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::catalog::entries::Entry;
use crate::catalog::shapes::Shapes;

const POISON: &str = "nothing panics while the entries are locked";

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    /// By which documents are decoded.
    pub(crate) shapes: Arc<Shapes>,
}

impl CatalogCache {
    /// The entry of a collection as it was read last.
    pub(crate) fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.lock().get(name).cloned()
    }

    /// Caches an entry of a published state. Returns whether it replaces a different one.
    pub(crate) fn remember(&self, entry: &Arc<Entry>) -> bool {
        let mut entries = self.lock();
        match entries.get_mut(entry.schema.name()) {
            Some(known) if Arc::ptr_eq(known, entry) => return false,
            Some(known) => known.clone_from(entry),
            None => drop(entries.insert(entry.schema.name().to_owned(), Arc::clone(entry))),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock().expect(POISON)
    }
}
