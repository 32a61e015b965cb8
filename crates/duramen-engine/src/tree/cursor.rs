//! Cursors: the entries of a range in order, forward or in reverse, lent one at a time.

use std::sync::Arc;

use super::leaf::StoredValue;
use super::node::{Body, Node};
use super::slot::Slot;
use super::{KeyRange, Leaf};
use crate::error::Result;
use crate::page_cache::Pages;

/// Most keys are no longer: one allocation for all that a cursor passes.
const KEY_BYTES_USUAL: usize = 64;

/// The direction of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Smallest key first.
    #[default]
    Forward,
    /// Largest key first.
    Reverse,
}

/// Walks a range of one root. Holds its current leaf and the path to it, nothing else.
#[derive(Debug)]
pub(crate) struct Cursor {
    root: Option<Slot>,
    range: KeyRange,
    direction: Direction,
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<Standing>,
    /// Which entry of the leaf is the current one.
    at: Option<usize>,
    /// Whether its value is big.
    is_big: bool,
    /// The current entry's key, if it is there; between entries of one leaf its first part stays.
    key: Vec<u8>,
    /// Whether the key is there. Many readers want only values.
    has_key: bool,
}

/// The current leaf of a cursor, and which of its entries are left.
#[derive(Debug)]
struct Standing {
    node: Arc<Node>,
    from: usize,
    to: usize,
    prefix_bytes: usize,
    last: bool,
}

impl Cursor {
    /// A cursor before the first entry of `range`.
    #[must_use]
    pub(crate) fn new(root: Option<&Slot>, range: KeyRange, direction: Direction) -> Cursor {
        let root = root.filter(|_| !range.is_empty()).cloned();
        Cursor {
            root,
            range,
            direction,
            path: Vec::new(),
            leaf: None,
            at: None,
            is_big: false,
            key: Vec::with_capacity(KEY_BYTES_USUAL),
            has_key: false,
        }
    }

    /// Moves to the next entry, and lends its key until the next call, and its value, still in its leaf.
    ///
    /// `pages` are those of the root.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read; the next call then tries again.
    pub(crate) fn next(&mut self, pages: &Pages) -> Result<Option<(&[u8], StoredValue<'_>)>> {
        let Some(at) = self.step(pages)? else { return Ok(None) };
        let standing = self.leaf.as_ref().expect("a step ends in a leaf");
        let (suffix, value) = leaf_of(&standing.node).suffix_and_value(at);
        self.key.truncate(standing.prefix_bytes);
        self.key.extend_from_slice(suffix);
        debug_assert!(self.range.contains(&self.key), "entry {at} of a leaf lies within the range");
        (self.at, self.is_big, self.has_key) = (Some(at), value.big, true);
        Ok(Some((&self.key, value)))
    }

    /// Moves to the next entry; `false` at the end. Its key is not there until [`Cursor::make_key`].
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub(crate) fn advance(&mut self, pages: &Pages) -> Result<bool> {
        let Some(at) = self.step(pages)? else { return Ok(false) };
        let standing = self.leaf.as_ref().expect("a step ends in a leaf");
        let is_big = leaf_of(&standing.node).value(at).big;
        (self.at, self.is_big, self.has_key) = (Some(at), is_big, false);
        Ok(true)
    }

    /// Makes the key of the current entry, unless it is there.
    pub(crate) fn make_key(&mut self) {
        if let (false, Some(at), Some(standing)) = (self.has_key, self.at, &self.leaf) {
            self.key.truncate(standing.prefix_bytes);
            self.key.extend_from_slice(leaf_of(&standing.node).suffix(at));
            debug_assert!(self.range.contains(&self.key), "entry {at} of a leaf lies within the range");
            self.has_key = true;
        }
    }

    /// Goes to the next entry of a leaf, and returns which it is.
    #[inline(always)]
    fn step(&mut self, pages: &Pages) -> Result<Option<usize>> {
        self.at = None;
        loop {
            if let Some(standing) = &self.leaf {
                if standing.from < standing.to {
                    break;
                }
                if standing.last {
                    return Ok(None);
                }
            }
            if !self.next_leaf(pages)? {
                return Ok(None);
            }
        }
        let standing = self.leaf.as_mut().expect("the loop ends with a leaf");
        let at = match self.direction {
            Direction::Forward => {
                standing.from += 1;
                standing.from - 1
            }
            Direction::Reverse => {
                standing.to -= 1;
                standing.to
            }
        };
        Ok(Some(at))
    }

    /// Whether the value of the current entry is big.
    pub(crate) fn is_big(&self) -> bool {
        self.at.is_some() && self.is_big
    }

    /// The entry to which it moved last; `None` before the first and after the last. Its key must be there.
    pub(crate) fn entry(&self) -> Option<(&[u8], StoredValue<'_>)> {
        let value = self.value()?;
        debug_assert!(self.has_key, "the key of the current entry is there");
        Some((&self.key, value))
    }

    /// The value of the entry to which it moved last; `None` before the first and after the last.
    pub(crate) fn value(&self) -> Option<StoredValue<'_>> {
        let standing = self.leaf.as_ref()?;
        Some(leaf_of(&standing.node).value(self.at?))
    }

    /// Moves to the next leaf; `false` at the end.
    fn next_leaf(&mut self, pages: &Pages) -> Result<bool> {
        if let Some(root) = self.root.take() {
            return self.descend(pages, &root, true).inspect_err(|_| self.root = Some(root)).map(|()| true);
        }
        while let Some((node, child)) = self.path.pop() {
            let Body::Inner(inner) = node.body() else { unreachable!("a path is made of inner nodes") };
            let next = match self.direction {
                Direction::Forward => Some(child + 1).filter(|next| *next < inner.len()),
                Direction::Reverse => child.checked_sub(1),
            };
            if let Some(next) = next {
                self.path.push((Arc::clone(&node), next));
                let descended = self.descend(pages, inner.slot(next), false);
                if descended.is_err()
                    && let Some(here) = self.path.last_mut()
                {
                    here.1 = child;
                }
                return descended.map(|()| true);
            }
        }
        self.leaf = None;
        Ok(false)
    }

    fn descend(&mut self, pages: &Pages, slot: &Slot, seek: bool) -> Result<()> {
        let depth = self.path.len();
        let mut node = self.load(pages, slot, seek)?;
        while let Body::Inner(inner) = node.body() {
            let child = match (self.direction, seek) {
                (Direction::Forward, true) => inner.separators().child_of(&self.range.from),
                (Direction::Forward, false) => 0,
                (Direction::Reverse, true) => {
                    self.range.to.as_ref().map_or(inner.len() - 1, |to| inner.separators().child_of(to))
                }
                (Direction::Reverse, false) => inner.len() - 1,
            };
            let below = inner.slot(child).clone();
            self.path.push((node, child));
            node = self.load(pages, &below, seek).inspect_err(|_| self.path.truncate(depth))?;
        }
        self.stand(node);
        Ok(())
    }

    /// A node below the path. It stays in memory, unless a node of the path was evicted: no root may lead
    /// there any more, and no eviction would find what the cursor reads below.
    fn load(&self, pages: &Pages, slot: &Slot, seek: bool) -> Result<Arc<Node>> {
        let is_cut_off = self.path.iter().any(|(node, _)| node.has_left());
        if is_cut_off { slot.pass_through(pages) } else { slot.load(pages, !seek) }
    }

    fn stand(&mut self, node: Arc<Node>) {
        let leaf = leaf_of(&node);
        let from = leaf.lower_bound(&self.range.from);
        let to = self.range.to.as_ref().map_or(leaf.len(), |to| leaf.lower_bound_from(from, to));
        debug_assert!(
            self.range.to.as_ref().is_none_or(|key| leaf.lower_bound(key) == to),
            "a range begins in a leaf at {from}, and ends there at {to}"
        );
        let last = match self.direction {
            Direction::Forward => to < leaf.len(),
            Direction::Reverse => from > 0,
        };
        self.key.clear();
        self.key.extend_from_slice(leaf.prefix());
        let prefix_bytes = self.key.len();
        self.leaf = Some(Standing { from, to, prefix_bytes, last, node });
    }
}

fn leaf_of(node: &Node) -> &Leaf {
    match node.body() {
        Body::Leaf(leaf) => leaf,
        Body::Inner(_) => unreachable!("a cursor stands in a leaf"),
    }
}
