//! Bounds: the keys that may lie below a node, by the separators of the nodes above it.
//!
//! A page that is read is sound in itself ([`Node::read`]), but with a valid checksum it may still hold keys
//! that belong elsewhere. Changes merge neighbours and move separators between nodes. They rely on the order
//! across nodes, so each node from disk is compared with its bounds before it takes part in a change. A node
//! in memory only was built from nodes that were compared.

use super::inner::{Inner, Piece};
use super::node::{Body, Node};
use super::separators::Separators;
use crate::alarm::invariant;
use crate::error::{Error, Result};
use crate::page_cache::Pages;

/// The separators on both sides of a node. `None` where there is no other node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds<'a> {
    from: Option<Separator<'a>>,
    to: Option<Separator<'a>>,
}

/// A separator where it lies: bounds are carried down on every path, and rarely compared.
#[derive(Debug, Clone, Copy)]
enum Separator<'a> {
    Packed(&'a Separators, usize),
    Key(&'a [u8]),
}

impl Separator<'_> {
    fn key(self) -> Vec<u8> {
        match self {
            Separator::Packed(separators, index) => separators.get(index),
            Separator::Key(key) => key.to_vec(),
        }
    }
}

impl<'a> Bounds<'a> {
    /// The bounds of a child of a node with these bounds.
    pub(super) fn of_child(self, parent: &'a Inner, child: usize) -> Bounds<'a> {
        let separators = parent.separators();
        let at = |index: usize| (index < separators.len()).then_some(Separator::Packed(separators, index));
        Bounds { from: child.checked_sub(1).and_then(at).or(self.from), to: at(child).or(self.to) }
    }

    /// The bounds of a piece among the children of a node with these bounds.
    pub(super) fn of_piece(self, pieces: &'a [Piece], index: usize) -> Bounds<'a> {
        let before = |piece: &'a Piece| {
            // Without a separator it is the first child.
            (!piece.separator.is_empty()).then_some(Separator::Key(&piece.separator))
        };
        Bounds {
            from: pieces.get(index).and_then(before).or(self.from),
            to: pieces.get(index + 1).and_then(before).or(self.to),
        }
    }

    /// Checks that a node lies within.
    ///
    /// # Errors
    /// `CorruptData` if a key or a separator lies outside.
    pub(super) fn check(self, pages: &Pages, node: &Node) -> Result<()> {
        if node.pointer().is_none() {
            debug_assert!(self.admits(node), "a node built of compared ones lies within its bounds");
            return Ok(());
        }
        if self.admits(node) {
            return Ok(());
        }
        Err(corrupt(pages, node, "keys outside the bounds that the parent records"))
    }

    /// As [`Bounds::check`], for a node that becomes one with its neighbour: what was built is compared, too.
    pub(super) fn check_to_join(self, pages: &Pages, node: &Node) -> Result<()> {
        if node.pointer().is_none() {
            let (height, count) = (node.level(), node.count());
            invariant!(self.admits(node), "{count} entries at height {height} lie within their bounds");
        }
        self.check(pages, node)
    }

    /// Within a node the order was checked when it was read: the first and the last key stand for all.
    fn admits(self, node: &Node) -> bool {
        let from = self.from.map(Separator::key);
        let is_before_end = |key: &[u8]| self.to.is_none_or(|to| *key < *to.key());
        match node.body() {
            Body::Leaf(leaf) => {
                let Some(last) = leaf.len().checked_sub(1) else { return true };
                from.is_none_or(|from| leaf.entry(0).key() >= from) && is_before_end(&leaf.entry(last).key())
            }
            Body::Inner(inner) => {
                let separators = inner.separators();
                let Some(last) = separators.len().checked_sub(1) else { return true };
                separators.get(0) > from.unwrap_or_default() && is_before_end(&separators.get(last))
            }
        }
    }
}

/// The error for a node whose page contradicts the nodes around it.
pub(super) fn corrupt(pages: &Pages, node: &Node, what: &str) -> Error {
    let data = pages.data();
    let offset = node.pointer().map_or(0, |pointer| data.offset(pointer.page.block));
    Error::corrupt_data(data.path(), offset, what)
}
