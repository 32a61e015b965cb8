//! Reductions of ranges: two paths from the root, whole subtrees taken from their parents.

use std::ops::Range;
use std::sync::OnceLock;

use super::KeyRange;
use super::big::BigRef;
use super::leaf::{Leaf, RUN_ENTRIES, StoredValue};
use super::node::{Body, Node};
use super::pointer::Reduction;
use super::reducer::{Fold, Reducer};
use super::slot::Slot;
use crate::alarm::invariant;
use crate::error::{Error, Result};
use crate::limits::REDUCTION_BYTES_MAX;
use crate::page_cache::Pages;

/// Longer reductions of runs in leaves are not cached: there are many of them, and they are not charged as
/// memory.
const RUN_REDUCTION_BYTES_MAX: usize = 64;

/// Longer reductions of chunks of children are not cached either.
const CHUNK_REDUCTION_BYTES_MAX: usize = 512;

/// A reduced range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reduced {
    /// The joined reduction; `None` if the range is empty.
    pub value: Option<Vec<u8>>,
    /// Entries in the range.
    pub count: u64,
    /// Nodes visited: at most four times the height of the tree, once reductions are known.
    pub nodes_touched: u64,
}

struct Walk<'a> {
    pages: &'a Pages,
    reducer: &'a dyn Reducer,
    fold: Fold<'a>,
    nodes_touched: u64,
    count: u64,
    key: Vec<u8>,
    /// Whether cached reductions of chunks and runs are used, and new ones cached.
    remembers: bool,
}

impl<'a> Walk<'a> {
    fn new(pages: &'a Pages, reducer: &'a dyn Reducer) -> Walk<'a> {
        let (fold, key) = (Fold::new(reducer), Vec::new());
        Walk { pages, reducer, fold, nodes_touched: 0, count: 0, key, remembers: true }
    }
}

/// Reduces a range of a tree.
///
/// # Errors
/// `Corrupt` or `Io` if a page cannot be read; `Invalid` if the reducer refuses or panics.
pub(crate) fn reduce(
    pages: &Pages,
    root: Option<&Slot>,
    reducer: &dyn Reducer,
    range: &KeyRange,
) -> Result<Reduced> {
    let Some(root) = root.filter(|_| !range.is_empty()) else { return Ok(Reduced::default()) };
    let mut walk = Walk::new(pages, reducer);
    let from = (!range.from.is_empty()).then_some(range.from.as_slice());
    walk.slot(root, from, range.to.as_deref())?;
    let Walk { nodes_touched, count, fold, .. } = walk;
    debug_assert!(count <= root.count, "{count} entries of a range are among {}", root.count);
    Ok(Reduced { nodes_touched, count, value: fold.finish()? })
}

/// The reduction of everything below a node, computed once and cached in it.
///
/// # Errors
/// As [`reduce`].
pub(super) fn node_reduction<'n>(pages: &Pages, node: &'n Node, reducer: &dyn Reducer) -> Result<&'n [u8]> {
    if let Some(known) = node.reduction().get() {
        return Ok(known.bytes().unwrap_or_default());
    }
    let mut walk = Walk::new(pages, reducer);
    walk.inside(node, None, None)?;
    let value = walk.fold.finish()?.ok_or_else(|| Error::invalid("an empty node has no reduction"))?;
    let length = value.len();
    invariant!(length <= REDUCTION_BYTES_MAX, "a reduction has {length} of {REDUCTION_BYTES_MAX} bytes");
    Ok(node.reduction().get_or_init(|| Reduction::of(&value)).bytes().unwrap_or_default())
}

/// The reduction of entries, given as key and value, after what has the reduction `before`.
///
/// # Errors
/// `Invalid` if the reducer refuses or panics.
pub(super) fn with_entries<'e>(
    reducer: &dyn Reducer,
    before: &[u8],
    mut entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
) -> Result<Vec<u8>> {
    let mut fold = Fold::new(reducer);
    fold.add_all(|taking| {
        taking.reduction(before)?;
        entries.try_for_each(|(key, value)| taking.entry(key, value))
    })?;
    Ok(fold.finish()?.expect("it has what was before"))
}

/// The reduction of a node computed anew from its entries, or from those in its children's page pointers.
///
/// # Errors
/// As [`reduce`].
pub(crate) fn fresh_reduction(pages: &Pages, node: &Node, reducer: &dyn Reducer) -> Result<Vec<u8>> {
    let mut walk = Walk { remembers: false, ..Walk::new(pages, reducer) };
    walk.inside(node, None, None)?;
    walk.fold.finish()?.ok_or_else(|| Error::invalid("an empty node has no reduction"))
}

impl Walk<'_> {
    fn slot(&mut self, slot: &Slot, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<()> {
        if from.is_none() && to.is_none() {
            self.count += slot.count;
            if let Some(added) = slot.with_reduction(|reduction| self.fold.add(reduction)) {
                return added;
            }
        }
        // With a counted reference and no pin: a walk may read every page below, and evicted nodes must be
        // freed meanwhile.
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
                let end = to.map_or(leaf.len(), |key| leaf.lower_bound_from(first, key));
                self.count += end.saturating_sub(first) as u64;
                self.leaf(leaf, first..end)
            }
            Body::Inner(inner) => {
                let first = from.map_or(0, |key| inner.separators().child_of(key));
                let last = to.map_or(inner.len() - 1, |key| inner.separators().child_of(key));
                let mut child = first;
                while child <= last {
                    let from = from.filter(|_| child == first);
                    let to_here = to.filter(|_| child == last);
                    // Children before this one are whole.
                    let end = if to.is_none() { inner.len() } else { last };
                    let may_be_whole = from.is_none() && self.remembers;
                    let chunk = may_be_whole.then(|| inner.chunk_from(child, end)).flatten();
                    if let Some((slots, cell)) = chunk {
                        self.chunk(slots, cell)?;
                        child += slots.len();
                    } else {
                        self.slot(inner.slot(child), from, to_here)?;
                        child += 1;
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds all children of a chunk: joined once, and cached if the result is short.
    fn chunk(&mut self, slots: &[Slot], cell: &OnceLock<Reduction>) -> Result<()> {
        if self.fold.is_running() {
            return slots.iter().try_for_each(|slot| self.slot(slot, None, None));
        }
        self.count += slots.iter().map(|slot| slot.count).sum::<u64>();
        self.once(cell, CHUNK_REDUCTION_BYTES_MAX, |walk| {
            slots.iter().try_for_each(|slot| walk.slot(slot, None, None))
        })
    }

    /// Adds entries of a leaf; whole runs of them are joined once, and cached.
    fn leaf(&mut self, leaf: &Leaf, range: Range<usize>) -> Result<()> {
        if self.fold.is_running() {
            return self.entries(leaf, range);
        }
        let mut next = range.start;
        while next < range.end {
            let run = leaf.run_from(next).filter(|_| self.remembers && next + RUN_ENTRIES <= range.end);
            let end = match run {
                Some(_) => next + RUN_ENTRIES,
                None => range.end.min((next + 1).next_multiple_of(RUN_ENTRIES)),
            };
            match run {
                Some(cell) => {
                    self.once(cell, RUN_REDUCTION_BYTES_MAX, |walk| walk.entries(leaf, next..end))?
                }
                None => self.entries(leaf, next..end)?,
            }
            next = end;
        }
        Ok(())
    }

    /// Adds the reduction cached in a cell. If there is none, `join` adds to a separate walk; its result is
    /// added, and cached if it is short enough.
    fn once(
        &mut self,
        cell: &OnceLock<Reduction>,
        bytes_max: usize,
        join: impl FnOnce(&mut Walk<'_>) -> Result<()>,
    ) -> Result<()> {
        if let Some(known) = cell.get().and_then(Reduction::bytes) {
            return self.fold.add(known);
        }
        let mut walk = Walk::new(self.pages, self.reducer);
        join(&mut walk)?;
        self.nodes_touched += walk.nodes_touched;
        let value = walk.fold.finish()?.ok_or_else(|| Error::invalid("an empty node has no reduction"))?;
        self.fold.add(&value)?;
        if value.len() <= bytes_max {
            cell.get_or_init(|| Reduction::of(&value));
        }
        Ok(())
    }

    fn entries(&mut self, leaf: &Leaf, range: Range<usize>) -> Result<()> {
        let reads_keys = self.reducer.reads_keys();
        let (pages, key) = (self.pages, &mut self.key);
        self.fold.add_all(|taking| {
            for index in range {
                let StoredValue { big, bytes } = leaf.value(index);
                let big = if big { Some(BigRef::decode(bytes)?) } else { None };
                if reads_keys {
                    leaf.key_into(index, key);
                }
                match big {
                    None => taking.entry(key, bytes)?,
                    Some(BigRef { one: Some(one), .. }) => taking.reduction(&one)?,
                    // Written while the reducer was not registered.
                    Some(value) => taking.entry(key, &value.read(pages)?)?,
                }
            }
            Ok(())
        })
    }
}
