//! A state of the database that never changes, for reading.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::catalogue::{self, Entry, OpenView};
use crate::clock::Millis;
use crate::engine::{self, Source, TreeId, TreeInfo, TreeShape};
use crate::error::Result;
use crate::known::{Fits, Known};
use crate::reads::{Reads, sealed};
use crate::typed::Asked;

/// One state of the whole database. Cheap to take, never blocks a writer, and may be sent to another thread.
///
/// Its reads are the methods of [`Reads`]. While it lives, the space of what it shows is not used again.
pub struct Snapshot {
    inner: engine::Snapshot,
    known: Arc<Known>,
    now: OnceLock<Millis>,
}

impl Snapshot {
    pub(crate) fn new(inner: engine::Snapshot, known: Arc<Known>) -> Snapshot {
        Snapshot { inner, known, now: OnceLock::new() }
    }

    /// Rows that lie where reductions of a view are not on disk, from a row on and at most so many.
    pub(crate) fn stale_rows(&self, view: &OpenView, from: &[u8], at_most: usize) -> Result<Vec<Vec<u8>>> {
        if !self.inner.has_tree(view.tree) {
            return Ok(Vec::new());
        }
        self.inner.stale_keys(view.tree, from, at_most)
    }

    pub(crate) fn shape(
        &self,
        tree: TreeId,
        told: &mut dyn FnMut(&TreeShape) -> Result<()>,
    ) -> Result<TreeShape> {
        self.inner.tree_shape(tree, told)
    }

    pub(crate) fn info(&self, tree: TreeId) -> Result<TreeInfo> {
        self.inner.tree_info(tree)
    }

    /// The trees whose names begin so.
    pub(crate) fn trees_from(&self, prefix: &str) -> Result<Vec<(String, TreeId)>> {
        self.inner.trees_from(prefix)
    }

    fn find(&self, collection: &str) -> Result<Option<Arc<Entry>>> {
        let found = catalogue::find(&self.inner, &self.known, collection)?;
        if let Some(entry) = &found {
            self.known.remember_entry(entry);
        }
        Ok(found)
    }
}

impl sealed::Readable for Snapshot {
    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        self.find(collection)?.ok_or_else(|| catalogue::unknown(collection))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting(&self, asked: Asked) -> Result<Option<Arc<Entry>>> {
        // Ids of trees are never used again: where the tree is here, the documents are this entry's.
        if let Some(entry) = self.known.readable(asked.kind).filter(|entry| self.inner.has_tree(entry.tree)) {
            return Ok(Some(entry));
        }
        self.fitting_now(asked)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting_now(&self, asked: Asked) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) = self.known.readable_in(asked.kind, |seen| self.inner.is_as_marked(seen)) {
            return Ok(Some(entry));
        }
        let Some(entry) = self.find(asked.name)? else { return Ok(None) };
        let is_this = |known: Arc<Entry>| Arc::ptr_eq(&known, &entry);
        let is_known = self.known.readable(asked.kind).is_some_and(is_this);
        if !is_known && self.known.declare(asked) && !asked.codes().is_empty() {
            self.known.wake();
        }
        let fits = if is_known || asked.fit(&mut entry.schema.clone())? { Fits::Reads } else { Fits::Writes };
        let seen = catalogue::tree(&self.inner)?.and_then(|tree| self.inner.mark(tree));
        self.known.remember_fitting(asked.kind, &entry, fits, seen);
        Ok(Some(entry))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn known(&self) -> &Known {
        &self.known
    }

    fn may_change(&self) -> bool {
        false
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn now(&self) -> Millis {
        *self.now.get_or_init(|| self.known.clock().now())
    }
}

impl Reads for Snapshot {}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        // Copies answer alike, and so have one time.
        let now = OnceLock::from(sealed::Readable::now(self));
        Snapshot { inner: self.inner.clone(), known: Arc::clone(&self.known), now }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}
