//! Compaction of a tree: what of it is written anew, so that the data file can be cut.
//!
//! A node whose page lies beyond the aimed end of the file is moved: a copy of it, and of the path to it, is
//! dirty, and the next checkpoint writes it to the first free blocks. Neighbouring leaves that would fit into
//! fewer blocks are packed. Both leave every entry as it is. This module only decides; `apply/compacted.rs`
//! builds the new nodes.
//!
//! Decisions are made for groups of neighbouring leaves below one node. The page pointers in that node say
//! how large the leaves are, and where: the walk reads inner nodes only.

use std::ops::Range;

use super::inner::Inner;
use super::leaf::LEAF_HEAD_BYTES;
use super::node::Body;
use super::slot::Slot;
use crate::data_file::PAGE_HEADER_BYTES;
use crate::error::Result;
use crate::options::Geometry;
use crate::page_cache::Pages;

/// Leaves are packed if that saves at least this part of their blocks.
const SAVED_PART: u64 = 8;

/// Bytes of a page of a leaf besides its prefix and its entries.
const LEAF_PAGE_BYTES: usize = PAGE_HEADER_BYTES + LEAF_HEAD_BYTES;

/// What is written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacting {
    /// Nodes with a block from here on are moved.
    pub end_block: u64,
    /// Whether leaves are packed.
    pub packs: bool,
}

/// Neighbouring leaves below one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Where the keys of its first leaf begin.
    pub from: Vec<u8>,
    /// Where the keys of its last leaf end.
    pub to: Option<Vec<u8>>,
    /// Bytes of the pages that are written anew, of nodes above it too.
    pub bytes: usize,
    /// Blocks of the leaves now.
    pub blocks: u64,
    /// Blocks of the leaves if none were compressed.
    pub whole_blocks: u64,
    /// Blocks of the leaves when they are packed.
    pub packed_blocks: u64,
    /// One of its leaves is moved, or the leaves are packed, or it is the first group below a node that is
    /// moved.
    pub is_due: bool,
}

impl Compacting {
    /// Whether the node in a slot is moved.
    pub(super) fn moves(&self, slot: &Slot) -> bool {
        let end = |page: &crate::data_file::PagePointer| page.block + u64::from(page.block_count);
        slot.pointer().is_some_and(|pointer| end(&pointer.page) > self.end_block)
    }

    /// Whether leaves of these blocks are packed.
    fn is_worth_it(&self, blocks: u64, packed_blocks: u64) -> bool {
        self.packs && packed_blocks + (blocks / SAVED_PART).max(1) <= blocks
    }

    /// Whether these children of a node above leaves are packed.
    pub(super) fn packs(&self, pages: &Pages, of: &Geometry, inner: &Inner, which: Range<usize>) -> bool {
        let (blocks, _, packed_blocks) = blocks(pages, of, inner, which);
        self.is_worth_it(blocks, packed_blocks)
    }
}

/// Bytes of entries in a packed leaf whose keys share `prefix_bytes`: as many as whole blocks hold.
pub(super) fn packed_bytes(geometry: &Geometry, prefix_bytes: usize) -> usize {
    let besides = LEAF_PAGE_BYTES + prefix_bytes;
    let whole = (geometry.leaf_bytes_max + besides) / geometry.block_bytes * geometry.block_bytes;
    match whole.checked_sub(besides) {
        Some(bytes) if bytes >= geometry.leaf_bytes_max / 2 => bytes.min(geometry.leaf_bytes_max),
        _ => geometry.leaf_bytes_max,
    }
}

/// Bytes of the page of a leaf, written or not.
fn page_bytes(slot: &Slot) -> usize {
    if let Some(pointer) = slot.pointer() {
        return pointer.page.raw_bytes as usize;
    }
    slot.peek().map_or(0, |node| match node.body() {
        Body::Leaf(leaf) => leaf.page_bytes_max(),
        Body::Inner(_) => 0,
    })
}

/// The blocks that the page of a leaf takes, or will take at most.
fn blocks_now(pages: &Pages, slot: &Slot) -> u64 {
    let written = slot.pointer().map(|pointer| u64::from(pointer.page.block_count));
    written.unwrap_or_else(|| u64::from(pages.data().blocks_of(page_bytes(slot))))
}

/// The blocks of these children now, if none were compressed, and when they are packed. Compressed ones are taken to compress as well as
/// they do now.
fn blocks(pages: &Pages, geometry: &Geometry, inner: &Inner, which: Range<usize>) -> (u64, u64, u64) {
    let blocks_of = |bytes: usize| u64::from(pages.data().blocks_of(bytes));
    let blocks: u64 = which.clone().map(|child| blocks_now(pages, inner.slot(child))).sum();
    let sizes: Vec<usize> = which.map(|child| page_bytes(inner.slot(child))).collect();
    let whole: u64 = sizes.iter().map(|bytes| blocks_of(*bytes)).sum();
    let total: usize = sizes.iter().map(|bytes| bytes.saturating_sub(LEAF_PAGE_BYTES)).sum();
    let count = total.div_ceil(packed_bytes(geometry, 0)).max(1);
    let packed = count as u64 * blocks_of(total.div_ceil(count) + LEAF_PAGE_BYTES);
    (blocks, whole, (packed * blocks).div_ceil(whole.max(1)))
}

/// A walk over the groups of trees.
#[derive(Clone, Copy)]
pub(crate) struct GroupWalk<'a> {
    /// Where the trees are.
    pub pages: &'a Pages,
    /// Sizes.
    pub geometry: &'a Geometry,
    /// What is due.
    pub compacting: Compacting,
    /// A group has leaves of this many bytes at most, and at least one leaf.
    pub group_bytes: usize,
    /// Whether leaves that are due are read, so that they are in memory when they are written anew.
    pub loads: bool,
}

impl GroupWalk<'_> {
    /// Visits the groups of a tree in order, from the one with key `from` on, until `visit` returns `false`.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a node cannot be read; the error of `visit`.
    pub(crate) fn run(
        self,
        root: &Slot,
        from: &[u8],
        visit: &mut dyn FnMut(Group) -> Result<bool>,
    ) -> Result<()> {
        let place = Place { lower: &[], upper: None };
        Walk { with: self, visit, above_bytes: 0 }.node(root, from, place).map(drop)
    }
}

struct Walk<'a> {
    with: GroupWalk<'a>,
    visit: &'a mut dyn FnMut(Group) -> Result<bool>,
    /// Bytes of the moved nodes on the way to the next group. A range moves the nodes above it, so the first
    /// group below a node moves that node, and the others need not.
    above_bytes: usize,
}

/// The keys that may lie below a node.
#[derive(Clone, Copy)]
struct Place<'a> {
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

impl Walk<'_> {
    /// Returns whether to go on.
    fn node(&mut self, slot: &Slot, from: &[u8], place: Place<'_>) -> Result<bool> {
        if self.with.compacting.moves(slot) {
            self.above_bytes += page_bytes(slot);
        }
        let is_leaf = slot.pointer().is_some_and(|pointer| !pointer.page.is_inner());
        let node = if is_leaf { None } else { Some(slot.load(self.with.pages, true)?) };
        let Some(Body::Inner(inner)) = node.as_ref().map(|node| node.body()) else {
            return self.lone_leaf(slot, place);
        };
        if inner.level == 1 {
            return self.leaves(inner, from, place);
        }
        let first = inner.separators().child_of(from);
        for child in first..inner.len() {
            let (lower, upper) = (lower(inner, child, place), upper(inner, child, place));
            let place = Place { lower: &lower, upper: upper.as_deref() };
            if !self.node(inner.slot(child), if child == first { from } else { &[] }, place)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The root of a tree of one leaf.
    fn lone_leaf(&mut self, slot: &Slot, place: Place<'_>) -> Result<bool> {
        let blocks = blocks_now(self.with.pages, slot);
        let bytes = std::mem::take(&mut self.above_bytes);
        (self.visit)(Group {
            from: place.lower.to_vec(),
            to: place.upper.map(<[u8]>::to_vec),
            bytes,
            blocks,
            whole_blocks: u64::from(self.with.pages.data().blocks_of(page_bytes(slot))),
            packed_blocks: blocks,
            is_due: bytes > 0,
        })
    }

    fn leaves(&mut self, inner: &Inner, from: &[u8], place: Place<'_>) -> Result<bool> {
        let mut start = inner.separators().child_of(from);
        while start < inner.len() {
            let (mut end, mut bytes) = (start, 0);
            while end < inner.len()
                && (end == start || bytes + page_bytes(inner.slot(end)) <= self.with.group_bytes)
            {
                bytes += page_bytes(inner.slot(end));
                end += 1;
            }
            let (blocks, whole_blocks, packed_blocks) =
                blocks(self.with.pages, self.with.geometry, inner, start..end);
            let is_packed = self.with.compacting.is_worth_it(blocks, packed_blocks);
            let is_due = |slot: &&Slot| is_packed || self.with.compacting.moves(slot);
            let due: Vec<&Slot> = (start..end).map(|child| inner.slot(child)).filter(is_due).collect();
            if self.with.loads {
                due.iter().try_for_each(|slot| slot.load(self.with.pages, false).map(drop))?;
            }
            let above_bytes = std::mem::take(&mut self.above_bytes);
            let group = Group {
                from: lower(inner, start, place),
                to: upper(inner, end - 1, place),
                bytes: above_bytes + due.iter().copied().map(page_bytes).sum::<usize>(),
                blocks,
                whole_blocks,
                packed_blocks: if is_packed { packed_blocks } else { blocks },
                is_due: above_bytes > 0 || !due.is_empty(),
            };
            if !(self.visit)(group)? {
                return Ok(false);
            }
            start = end;
        }
        Ok(true)
    }
}

/// Where the keys below a child begin.
fn lower(inner: &Inner, child: usize, place: Place<'_>) -> Vec<u8> {
    child.checked_sub(1).map_or_else(|| place.lower.to_vec(), |before| inner.separators().get(before))
}

/// Where the keys below a child end.
fn upper(inner: &Inner, child: usize, place: Place<'_>) -> Option<Vec<u8>> {
    match child < inner.separators().len() {
        true => Some(inner.separators().get(child)),
        false => place.upper.map(<[u8]>::to_vec),
    }
}
