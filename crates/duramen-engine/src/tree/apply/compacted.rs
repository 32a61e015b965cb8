//! Builds the nodes of a tree that compaction writes anew: the same entries, in other nodes.

use std::ops::Range;
use std::sync::Arc;

use super::super::bounds::Bounds;
use super::super::compact::{Compacting, packed_bytes};
use super::super::inner::{Changed, Inner, Piece};
use super::super::leaf::{Entry, Leaf, StoredValue};
use super::super::node::{Body, Node};
use super::super::slot::Slot;
use super::{Apply, ApplyError, Outcome, shared_bytes, splice};
use crate::alarm::invariant;

/// A range of keys: from one on, to before another.
#[derive(Debug, Clone, Copy)]
struct Span<'a> {
    from: &'a [u8],
    to: Option<&'a [u8]>,
}

impl Span<'_> {
    /// The children of a node that have keys in it.
    fn children(self, inner: &Inner) -> Range<usize> {
        let separators = inner.separators();
        let first = separators.child_of(self.from);
        let end = self.to.map_or(separators.len(), |to| {
            let last = separators.child_of(to);
            // A child that begins at the end of the range has no key in it.
            last - usize::from(last > first && separators.get(last - 1) == to)
        });
        first..end + 1
    }
}

impl Apply<'_> {
    /// The tree with nodes in a range of keys written anew. Its entries stay as they are.
    ///
    /// # Errors
    /// [`ApplyError`]; the tree is as before.
    pub(crate) fn compacted(
        &mut self,
        root: &Slot,
        from: &[u8],
        to: Option<&[u8]>,
        compacting: Compacting,
    ) -> Result<Slot, ApplyError> {
        let anew = self.anew(root, Span { from, to }, compacting, Bounds::default())?;
        self.under_one_root(root, anew)
    }

    /// The tree with another reference to the same big value under a key. `None` if the key does not have
    /// this value any more.
    ///
    /// # Errors
    /// [`ApplyError`]; the tree is as before.
    pub(crate) fn with_value_moved(
        &mut self,
        root: &Slot,
        key: &[u8],
        (old, new): (&[u8], &[u8]),
    ) -> Result<Option<Slot>, ApplyError> {
        match self.value_moved(root, key, (old, new), Bounds::default())? {
            Outcome::Same => Ok(None),
            anew => {
                self.dropped_values.push(old.to_vec());
                self.under_one_root(root, anew).map(Some)
            }
        }
    }

    pub(super) fn under_one_root(&mut self, root: &Slot, outcome: Outcome) -> Result<Slot, ApplyError> {
        let mut pieces = match outcome {
            Outcome::Same => return Ok(root.clone()),
            Outcome::Pieces(pieces) => pieces,
        };
        while pieces.len() > 1 {
            let level = pieces[0].slot.peek().expect("a piece just built is in memory").level() + 1;
            pieces = self.inner_pieces(level, pieces);
        }
        let new = self.collapse(pieces.pop().expect("no entry was removed").slot)?;
        let (before, after) = (root.count, new.count);
        invariant!(before == after, "a tree of {before} entries is written anew, and has {after}");
        Ok(new)
    }

    fn value_moved(
        &mut self,
        slot: &Slot,
        key: &[u8],
        (old, new): (&[u8], &[u8]),
        bounds: Bounds<'_>,
    ) -> Result<Outcome, ApplyError> {
        let node = self.load(slot)?;
        bounds.check(self.pages, &node)?;
        let pieces = match node.body() {
            Body::Inner(inner) => {
                let child = inner.separators().child_of(key);
                let bounds = bounds.of_child(inner, child);
                match self.value_moved(inner.slot(child), key, (old, new), bounds)? {
                    Outcome::Same => return Ok(Outcome::Same),
                    Outcome::Pieces(pieces) => {
                        self.inner_anew(&node, inner, vec![(child, pieces)], bounds, false)?
                    }
                }
            }
            Body::Leaf(leaf) => {
                let held = leaf.find(key).ok();
                let is_there = |index: &usize| leaf.value(*index) == StoredValue { big: true, bytes: old };
                let Some(index) = held.filter(is_there) else { return Ok(Outcome::Same) };
                let mut entries: Vec<Entry<'_>> = (0..leaf.len()).map(|index| leaf.entry(index)).collect();
                entries[index].value.bytes = new;
                vec![self.leaf_anew(&node, Leaf::build(self.pages, &entries, self.birth.0))]
            }
        };
        self.replace(&node);
        Ok(Outcome::Pieces(pieces))
    }

    fn anew(
        &mut self,
        slot: &Slot,
        span: Span<'_>,
        compacting: Compacting,
        bounds: Bounds<'_>,
    ) -> Result<Outcome, ApplyError> {
        let node = self.load(slot)?;
        bounds.check(self.pages, &node)?;
        let is_moved = compacting.moves(slot);
        let pieces = match node.body() {
            Body::Leaf(leaf) if compacting.rewrites(slot) => {
                vec![self.leaf_anew(&node, leaf.rebuilt(self.pages, self.birth.0))]
            }
            Body::Leaf(_) => return Ok(Outcome::Same),
            Body::Inner(inner) => {
                let changed = self.children_anew(inner, span, compacting, bounds)?;
                if changed.is_empty() && !is_moved {
                    return Ok(Outcome::Same);
                }
                self.inner_anew(&node, inner, changed, bounds, compacting.packs)?
            }
        };
        self.replace(&node);
        Ok(Outcome::Pieces(pieces))
    }

    /// A node with some of its children replaced.
    fn inner_anew(
        &mut self,
        node: &Node,
        inner: &Inner,
        changed: Changed,
        bounds: Bounds<'_>,
        merges: bool,
    ) -> Result<Vec<Piece>, ApplyError> {
        let is_same = changed.iter().all(|(_, pieces)| is_whole(pieces));
        let pieces = splice(inner, changed);
        let merged = if merges { self.merge_underfull(pieces, bounds)? } else { pieces };
        let built = self.inner_pieces(inner.level, merged);
        node.keep_shared(built.iter().map(|piece| &piece.slot));
        if let ([only], true) = (&built[..], is_same) {
            same_reduction(node, only);
        }
        Ok(built)
    }

    fn children_anew(
        &mut self,
        inner: &Inner,
        span: Span<'_>,
        compacting: Compacting,
        bounds: Bounds<'_>,
    ) -> Result<Changed, ApplyError> {
        let which = span.children(inner);
        if inner.level == 1 && compacting.packs(self.pages, self.geometry, inner, which.clone()) {
            return self.packed(inner, which, bounds);
        }
        let mut changed = Vec::new();
        for child in which {
            let slot = inner.slot(child);
            // A leaf that stays need not be read.
            if inner.level == 1 && !compacting.rewrites(slot) {
                continue;
            }
            let bounds = bounds.of_child(inner, child);
            if let Outcome::Pieces(pieces) = self.anew(slot, span, compacting, bounds)? {
                changed.push((child, pieces));
            }
        }
        Ok(changed)
    }

    /// The entries of neighbouring leaves in as few leaves as hold them.
    fn packed(
        &mut self,
        inner: &Inner,
        which: Range<usize>,
        bounds: Bounds<'_>,
    ) -> Result<Changed, ApplyError> {
        let mut nodes = Vec::with_capacity(which.len());
        for child in which.clone() {
            let node = self.load(inner.slot(child))?;
            bounds.of_child(inner, child).check_to_join(self.pages, &node)?;
            nodes.push(node);
        }
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for node in &nodes {
            let Body::Leaf(leaf) = node.body() else {
                let what = "an inner node where its neighbours are leaves";
                return Err(super::super::bounds::corrupt(self.pages, node, what).into());
            };
            entries.extend((0..leaf.len()).map(|index| leaf.entry(index)));
        }
        let shared = match &entries[..] {
            [first, .., last] => shared_bytes(&first.key(), &last.key()),
            _ => 0,
        };
        let pieces = self.leaf_pieces_of(&entries, false, packed_bytes(self.geometry, shared));
        nodes.iter().for_each(|node| self.replace(node));
        let gone = which.clone().skip(1).map(|child| (child, Vec::new()));
        Ok([(which.start, pieces)].into_iter().chain(gone).collect())
    }

    /// A leaf with the same entries as another node, without a page.
    pub(super) fn leaf_anew(&self, old: &Node, leaf: Leaf) -> Piece {
        let node = Arc::new(Node::of_leaf(self.pages, leaf, self.birth, !self.private));
        let slot = Slot::resident(self.pages.meter(), node);
        let piece = Piece { separator: Vec::new(), slot, small: false };
        same_reduction(old, &piece);
        piece
    }
}

/// Whether one node with a known reduction took the place of another.
fn is_whole(pieces: &[Piece]) -> bool {
    matches!(pieces, [only] if only.slot.reduction_bytes().is_some())
}

/// A node with the same entries has the same reduction: it is kept even where the reducer is not registered.
pub(super) fn same_reduction(old: &Node, new: &Piece) {
    if let (Some(reduction), Some(node)) = (old.reduction().get(), new.slot.peek()) {
        drop(node.reduction().set(reduction.clone()));
    }
}
