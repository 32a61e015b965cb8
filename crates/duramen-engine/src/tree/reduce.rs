//! Reductions of ranges: two paths from the root, whole subtrees answered from their parents.

use super::KeyRange;
use super::big::BigRef;
use super::leaf::{Leaf, StoredValue};
use super::node::{Body, Node};
use super::place::Reduction;
use super::reducer::{Fold, Reducer};
use super::slot::Slot;
use crate::error::{Error, Result};
use crate::page_cache::Pages;

/// A reduced range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reduced {
    /// The joined reduction; `None` if the range is empty.
    pub value: Option<Vec<u8>>,
    /// Nodes looked into: at most four times the height of the tree, once reductions are known.
    pub nodes_touched: u64,
}

struct Walk<'a> {
    pages: &'a Pages,
    reducer: &'a dyn Reducer,
    fold: Fold<'a>,
    nodes_touched: u64,
    key: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(pages: &'a Pages, reducer: &'a dyn Reducer) -> Walk<'a> {
        Walk { pages, reducer, fold: Fold::new(reducer), nodes_touched: 0, key: Vec::new() }
    }
}

/// Reduces a range of a tree.
///
/// # Errors
/// `Corrupt` or `Io` if a page cannot be read; `Invalid` if the reducer refuses or panics.
pub fn reduce(
    pages: &Pages,
    root: Option<&Slot>,
    reducer: &dyn Reducer,
    range: &KeyRange,
) -> Result<Reduced> {
    let Some(root) = root.filter(|_| !range.is_empty()) else { return Ok(Reduced::default()) };
    let mut walk = Walk::new(pages, reducer);
    let from = (!range.from.is_empty()).then_some(range.from.as_slice());
    walk.slot(root, from, range.to.as_deref())?;
    Ok(Reduced { nodes_touched: walk.nodes_touched, value: walk.fold.finish() })
}

/// The reduction of everything below a node, computed once and kept in it.
///
/// # Errors
/// As [`reduce`].
pub fn node_reduction<'n>(pages: &Pages, node: &'n Node, reducer: &dyn Reducer) -> Result<&'n [u8]> {
    if let Some(known) = node.reduction().get() {
        return Ok(known.bytes().unwrap_or_default());
    }
    let mut walk = Walk::new(pages, reducer);
    walk.inside(node, None, None)?;
    let value = walk.fold.finish().ok_or_else(|| Error::invalid("an empty node has no reduction"))?;
    Ok(node.reduction().get_or_init(|| Reduction::of(&value)).bytes().unwrap_or_default())
}

/// The reduction of a node computed anew from its entries, or from what its children's pages say.
///
/// # Errors
/// As [`reduce`].
pub fn fresh_reduction(pages: &Pages, node: &Node, reducer: &dyn Reducer) -> Result<Vec<u8>> {
    let mut walk = Walk::new(pages, reducer);
    walk.inside(node, None, None)?;
    walk.fold.finish().ok_or_else(|| Error::invalid("an empty node has no reduction"))
}

impl Walk<'_> {
    fn slot(&mut self, slot: &Slot, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        if from.is_none()
            && to.is_none()
            && let Some(place) = slot.place()
            && let Some(reduction) = place.reduction.bytes()
        {
            return self.fold.add(reduction);
        }
        let node = slot.load(self.pages, false)?;
        if from.is_none() && to.is_none() {
            self.nodes_touched += u64::from(node.reduction().get().is_none());
            return self.fold.add(node_reduction(self.pages, &node, self.reducer)?);
        }
        self.nodes_touched += 1;
        self.inside(&node, from, to)
    }

    fn inside(&mut self, node: &Node, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        match node.body() {
            Body::Leaf(leaf) => {
                let first = from.map_or(0, |key| leaf.lower_bound(key));
                let end = to.map_or(leaf.len(), |key| leaf.lower_bound(key));
                (first..end).try_for_each(|index| self.entry(leaf, index))
            }
            Body::Inner(inner) => {
                let first = from.map_or(0, |key| inner.separators().child_of(key));
                let last = to.map_or(inner.len() - 1, |key| inner.separators().child_of(key));
                for child in first..=last {
                    let from = from.filter(|_| child == first);
                    let to = to.filter(|_| child == last);
                    self.slot(inner.slot(child), from, to)?;
                }
                Ok(())
            }
        }
    }

    fn entry(&mut self, leaf: &Leaf, index: usize) -> Result<()> {
        match leaf.value(index) {
            StoredValue { big: false, bytes } => {
                leaf.key_into(index, &mut self.key);
                self.fold.add_entry(&self.key, bytes)
            }
            StoredValue { big: true, bytes } => match BigRef::decode(bytes)?.one {
                Some(one) => self.fold.add(&one),
                None => Err(Error::invalid("a streamed value has no reduction")),
            },
        }
    }
}
