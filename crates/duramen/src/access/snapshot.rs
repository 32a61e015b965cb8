//! Snapshots: immutable states of the database, for reading.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::access::open_state::OpenState;
use crate::access::reads::{LocalReads, sealed};
use crate::access::type_descriptor::TypeDescriptor;
use crate::access::type_registry::Fits;
use crate::catalog::entries::{self, Entry, OpenView};
use crate::store::error::Result;
use crate::store::{self, CommitSeq, Source, TreeId, TreeInfo, TreeMark, TreeShape};
use crate::value::clock::Millis;

/// One state of the whole database. Cheap to take, never blocks a writer, and may be sent to another thread.
///
/// Its reads are the methods of [`Reads`](crate::Reads) and [`LocalReads`]. While it exists, none of its
/// space is reused.
pub struct Snapshot {
    inner: store::Snapshot,
    state: Arc<OpenState>,
    now: OnceLock<Millis>,
}

impl Snapshot {
    pub(crate) fn new(inner: store::Snapshot, state: Arc<OpenState>) -> Snapshot {
        Snapshot { inner, state, now: OnceLock::new() }
    }

    /// The newest commit that it contains.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.inner.seq()
    }

    /// Rows in leaves whose reductions of a view are not on disk: from a row on, at most `at_most`.
    pub(crate) fn stale_rows(&self, view: &OpenView, from: &[u8], at_most: usize) -> Result<Vec<Vec<u8>>> {
        if !self.inner.has_tree(view.tree) {
            return Ok(Vec::new());
        }
        self.inner.stale_keys(view.tree, from, at_most)
    }

    /// The state of a tree, to be recognised later.
    pub(crate) fn mark(&self, tree: TreeId) -> Option<TreeMark> {
        self.inner.mark(tree)
    }

    /// Whether a tree is in the state that was marked.
    pub(crate) fn is_as_marked(&self, mark: &TreeMark) -> bool {
        self.inner.is_as_marked(mark)
    }

    /// The key at an index of a tree, counted from 0. O(log n).
    pub(crate) fn nth_key(&self, tree: TreeId, index: u64) -> Result<Option<Vec<u8>>> {
        self.inner.nth_key(tree, index)
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

    /// The trees whose names begin with a prefix.
    pub(crate) fn trees_from(&self, prefix: &str) -> Result<Vec<(String, TreeId)>> {
        self.inner.trees_from(prefix)
    }

    fn find(&self, collection: &str) -> Result<Option<Arc<Entry>>> {
        let found = entries::find(&self.inner, &self.state.catalog, collection)?;
        if let Some(entry) = &found {
            self.state.remember_entry(entry);
        }
        Ok(found)
    }
}

impl sealed::Readable for Snapshot {
    fn may_change(&self) -> bool {
        false
    }

    fn as_snapshot(&self) -> Option<&Snapshot> {
        Some(self)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn source(&self) -> &dyn Source {
        &self.inner
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn entry(&self, collection: &str) -> Result<Arc<Entry>> {
        self.find(collection)?.ok_or_else(|| entries::unknown(collection))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>> {
        // Ids of trees are never reused: if the tree exists here, the documents are this entry's.
        if let Some(entry) =
            self.state.types.readable(descriptor.kind).filter(|entry| self.inner.has_tree(entry.tree))
        {
            return Ok(Some(entry));
        }
        self.fitting_now(descriptor)
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn fitting_now(&self, descriptor: TypeDescriptor) -> Result<Option<Arc<Entry>>> {
        if let Some(entry) =
            self.state.types.readable_in(descriptor.kind, |seen| self.inner.is_as_marked(seen))
        {
            return Ok(Some(entry));
        }
        let Some(entry) = self.find(descriptor.name)? else { return Ok(None) };
        let is_this = |known: Arc<Entry>| Arc::ptr_eq(&known, &entry);
        let is_known = self.state.types.readable(descriptor.kind).is_some_and(is_this);
        if !is_known && self.state.types.declare(descriptor) && !descriptor.codes().is_empty() {
            self.state.wake();
        }
        let fits = if is_known { Fits::Reads } else { self.state.fits(&self.inner, descriptor, &entry)? };
        let seen = entries::tree(&self.inner)?.and_then(|tree| self.inner.mark(tree));
        self.state.types.remember_fitting(descriptor.kind, &entry, fits, seen);
        Ok(Some(entry))
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn open_state(&self) -> &OpenState {
        &self.state
    }

    #[allow(private_interfaces, reason = "sealed: nobody else can call or implement it")]
    fn now(&self) -> Millis {
        *self.now.get_or_init(|| match self.inner.time_ns() {
            0 => self.state.clock.now(),
            time_ns => Millis::of_log(time_ns),
        })
    }
}

impl LocalReads for Snapshot {}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        // A clone must answer alike, so it gets the same time.
        let now = OnceLock::from(sealed::Readable::now(self));
        Snapshot { inner: self.inner.clone(), state: Arc::clone(&self.state), now }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}
