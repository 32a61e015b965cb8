//! Merging: leaves that take the place of pages and their patches, so that patches keep little memory.
//!
//! The fullest patches are merged: of all pages they save the most bytes for one that is written. This module
//! finds and builds the leaves. `apply/merged.rs` puts them into the tree.

use std::sync::Arc;

use super::bounds::Bounds;
use super::inner::Inner;
use super::node::{Body, Node};
use super::pointer::Reduction;
use super::reducer::Reducer;
use super::slot::Slot;
use super::write::known_reduction;
use crate::data_file::PagePointer;
use crate::ids::CommitSeq;
use crate::page_cache::Pages;

/// A leaf with its patch merged into it. It is dirty until it is written.
#[derive(Debug)]
pub(crate) struct MergedLeaf {
    /// A key that leads to it.
    pub key: Vec<u8>,
    /// The leaf whose place it takes: its slot, and the node there.
    pub(super) old: (Slot, Arc<Node>),
    /// The leaf.
    pub node: Arc<Node>,
    /// Its reduction, if it is known.
    pub reduction: Reduction,
}

impl MergedLeaf {
    /// Its page, once it is written.
    pub(crate) fn page(&self) -> Option<PagePointer> {
        self.node.page()
    }
}

/// Leaves to be merged by one commit.
#[derive(Debug, Default)]
pub(crate) struct MergeSlice {
    /// The leaves, in order of keys.
    pub leaves: Vec<MergedLeaf>,
    /// The key at which the next slice begins; `None` at the end of the tree.
    pub next: Option<Vec<u8>>,
}

/// What is merged.
pub(crate) struct Merging<'a> {
    /// Where the tree is.
    pub pages: &'a Pages,
    /// Its reducer, if it is registered.
    pub reducer: Option<&'a dyn Reducer>,
    /// The commit whose root is read. No earlier root leads to the leaves that are built.
    pub birth: CommitSeq,
    /// Shorter patches stay.
    pub merged_from: &'a mut MergedFrom,
    /// A slice ends with the leaf that reaches so many bytes.
    pub slice_bytes: usize,
}

/// The lengths from which on patches are merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergedFrom {
    /// Of nodes that have not changed since the last checkpoint, if another length applies to them.
    pub cold: Option<usize>,
    /// Of other nodes, until so many bytes are merged: many patches may be of one length.
    pub hot: (usize, usize),
}

impl MergedFrom {
    /// Whether a patch is merged.
    fn takes(&mut self, patch_bytes: usize, is_cold: bool) -> bool {
        if let Some(least) = self.cold.filter(|_| is_cold) {
            return patch_bytes >= least;
        }
        let (least, left) = self.hot;
        let takes = patch_bytes >= least && left > 0;
        if takes {
            self.hot.1 = left.saturating_sub(patch_bytes);
        }
        takes
    }
}

/// Tells the length of every patch that nodes in memory keep, and whether its node has not changed since the
/// last checkpoint.
pub(crate) fn patch_lengths(root: &Slot, told: &mut dyn FnMut(bool, usize)) {
    let Some(node) = root.peek() else { return };
    match node.body() {
        Body::Inner(inner) if inner.level == 1 => {
            let (is_cold, lengths) = (is_cold(root), inner.slots().map(Slot::patch_bytes));
            lengths.filter(|bytes| *bytes > 0).for_each(|length| told(is_cold, length));
        }
        Body::Inner(inner) => inner.slots().for_each(|slot| patch_lengths(slot, told)),
        Body::Leaf(_) => {}
    }
}

fn is_cold(slot: &Slot) -> bool {
    slot.page().is_some()
}

impl Merging<'_> {
    /// The next slice of a tree, from a key on. Looks only below nodes that are in memory: what others keep
    /// takes none.
    pub(crate) fn slice(mut self, root: &Slot, from: &[u8]) -> MergeSlice {
        let mut slice = MergeSlice::default();
        let mut bytes = 0;
        slice.next = self.node(root, from, Bounds::default(), &mut slice.leaves, &mut bytes);
        slice
    }

    /// Returns where to go on, if the slice is full.
    fn node(
        &mut self,
        slot: &Slot,
        from: &[u8],
        bounds: Bounds<'_>,
        leaves: &mut Vec<MergedLeaf>,
        bytes: &mut usize,
    ) -> Option<Vec<u8>> {
        let node = slot.peek()?;
        let Body::Inner(inner) = node.body() else { return None };
        let first = inner.separators().child_of(from);
        let is_cold = is_cold(slot) && self.merged_from.cold.is_some();
        for child in first..inner.len() {
            if inner.level > 1 {
                let from = if child == first { from } else { &[] };
                let bounds = bounds.of_child(inner, child);
                let next = self.node(inner.slot(child), from, bounds, leaves, bytes);
                if next.is_some() {
                    return next;
                }
            } else if self.merged_from.takes(inner.slot(child).patch_bytes(), is_cold) {
                self.leaf(inner, child, bounds.of_child(inner, child), leaves, bytes);
            }
            // A commit makes a node hot: all of a cold one is merged by one.
            let may_end = inner.level > 1 || !is_cold;
            if *bytes >= self.slice_bytes && may_end && child < inner.separators().len() {
                return Some(inner.separators().get(child));
            }
        }
        None
    }

    fn leaf(
        &self,
        inner: &Inner,
        child: usize,
        bounds: Bounds<'_>,
        leaves: &mut Vec<MergedLeaf>,
        bytes: &mut usize,
    ) {
        let slot = inner.slot(child);
        // A leaf that cannot be read, or has keys of others, stays as it is: it must not stop the rest.
        let Ok(old) = slot.pass_through(self.pages) else { return };
        let Body::Leaf(leaf) = old.body() else { return };
        if leaf.len() == 0 || bounds.check(self.pages, &old).is_err() {
            return;
        }
        let key = leaf.entry(0).key();
        let whole = leaf.rebuilt(self.pages, self.birth.0);
        *bytes += whole.page_bytes_max();
        let node = Arc::new(Node::of_leaf(self.pages, whole, self.birth, true));
        if let Some(known) = old.reduction().get() {
            drop(node.reduction().set(known.clone()));
        }
        let Ok(reduction) = known_reduction(self.pages, &node, self.reducer) else { return };
        leaves.push(MergedLeaf { key, old: (slot.clone(), old), node, reduction });
    }
}
