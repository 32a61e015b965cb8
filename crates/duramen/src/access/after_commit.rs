//! What a transaction does besides its writes once it has committed: caches to update, callbacks to run,
//! background work to wake.
//!
//! A transaction collects its effects in one value. A commit moves that value out whole; a rollback drops it.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::access::open_state::OpenState;
use crate::access::type_registry::Fits;
use crate::catalog::entries::Entry;
use crate::catalog::ids::IdCounter;
use crate::store::Durability;

/// The effects of one transaction.
#[derive(Default)]
pub(crate) struct AfterCommit {
    /// Collections looked up so far, kept up to date with the transaction's changes of the catalogue.
    pub(crate) entries: HashMap<String, Arc<Entry>>,
    /// Types that fit the catalogue as the transaction sees it, and for what.
    pub(crate) fitting: Vec<(TypeId, Arc<Entry>, Fits)>,
    /// Bounds of ids that the transaction stored.
    pub(crate) bounds: Vec<(Arc<IdCounter>, u64)>,
    /// Shapes whose rows the transaction put, by number.
    pub(crate) shapes: Vec<u32>,
    /// Callbacks of the program, in the order of registration.
    pub(crate) callbacks: Vec<Box<dyn FnOnce() + Send>>,
    /// What must be there until the commit: uploads that the transaction attaches.
    pub(crate) held: Vec<Arc<dyn Send + Sync>>,
    /// Whether the commit makes background work.
    pub(crate) makes_work: bool,
    /// Whether the first request of a minute was remembered.
    pub(crate) begins_minute: bool,
    /// Whether a value with an expiry was written.
    pub(crate) expires: bool,
    /// Whether blobs were added or removed.
    pub(crate) wrote_blobs: bool,
    /// Writes of key-values, by namespace. Ordered, so that expiry visits namespaces in a deterministic
    /// order.
    kv_writes: BTreeMap<String, u64>,
}

/// What is cleaned up after a commit.
#[derive(Debug, Default)]
pub(crate) struct CleanUp {
    /// Namespaces of key-values that are due for expiry, with their numbers of writes.
    pub(crate) kv_due: Vec<(String, u64)>,
    /// Blobs were added or removed: others may be orphaned.
    pub(crate) wrote_blobs: bool,
    /// Older minutes of requests may be forgotten.
    pub(crate) begins_minute: bool,
}

impl CleanUp {
    /// Whether there is nothing to do.
    #[cfg(feature = "async")]
    pub(crate) fn is_empty(&self) -> bool {
        self.kv_due.is_empty() && !self.wrote_blobs && !self.begins_minute
    }
}

impl AfterCommit {
    /// The entry of a type that fits for reading, or for what is wanted.
    pub(crate) fn fitting_entry(&self, kind: TypeId, wanted: Fits) -> Option<Arc<Entry>> {
        let is_wanted = |fits: Fits| wanted == Fits::Reads || fits == wanted;
        let mut fitting = self.fitting.iter();
        let found = fitting.find(|(known, _, fits)| *known == kind && is_wanted(*fits));
        found.map(|(_, entry, _)| Arc::clone(entry))
    }

    /// Counts a write of a key-value.
    pub(crate) fn count_kv_write(&mut self, namespace: &str) {
        match self.kv_writes.get_mut(namespace) {
            Some(count) => *count += 1,
            None => {
                self.kv_writes.insert(namespace.to_owned(), 1);
            }
        }
    }

    /// Whether the program registered a callback.
    #[cfg(feature = "async")]
    pub(crate) fn calls_program(&self) -> bool {
        !self.callbacks.is_empty()
    }

    /// Updates the caches and runs the callbacks.
    ///
    /// Returns what is left to clean up.
    pub(crate) fn apply(self, state: &OpenState, level: Durability) -> CleanUp {
        self.entries.values().for_each(|entry| state.remember_entry(entry));
        self.fitting
            .iter()
            .for_each(|(kind, entry, fits)| state.types.remember_fitting(*kind, entry, *fits, None));
        // A commit at level `Memory` may still be dropped, and the row of its id bound with it.
        if level > Durability::Memory {
            self.bounds.iter().for_each(|(counter, bound)| counter.bounded(*bound));
        }
        // Checked only now: an expiry that looked before this commit has already set itself to idle.
        if self.makes_work || self.expires && state.expiry.is_background_resting() {
            state.wake();
        }
        self.callbacks.into_iter().for_each(|run| run());
        let due = |(namespace, count): (String, u64)| {
            state.expiry.wrote(&namespace, count).map(|writes| (namespace, writes))
        };
        let kv_due = self.kv_writes.into_iter().filter_map(due).collect();
        CleanUp { kv_due, wrote_blobs: self.wrote_blobs, begins_minute: self.begins_minute }
    }
}
