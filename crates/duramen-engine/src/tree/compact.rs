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

/// A patch is merged into its leaf if it takes at least this part of it.
const PATCH_PART: usize = 16;

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
    /// The pages that are written anew, of nodes above it too.
    pub moved: Moved,
    /// Entries of the leaves.
    pub entries: u64,
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
        slot.page().is_some_and(|page| end(&page) > self.end_block)
    }

    /// Whether the patch of a leaf is merged into it, because it takes a large part of the room of the leaf.
    fn merges(&self, slot: &Slot) -> bool {
        let patch_bytes = slot.patch_bytes();
        self.packs && patch_bytes > 0 && patch_bytes >= page_bytes(slot) / PATCH_PART
    }

    /// Whether the leaf in a slot is written anew.
    pub(super) fn rewrites(&self, slot: &Slot) -> bool {
        self.moves(slot) || self.merges(slot)
    }

    /// Whether leaves of this room are packed.
    fn is_worth_it(&self, sizes: &Sizes) -> bool {
        self.packs && sizes.packed_blocks + (sizes.blocks / SAVED_PART).max(1) <= sizes.blocks
    }

    /// Whether these children of a node above leaves are packed.
    pub(super) fn packs(&self, pages: &Pages, of: &Geometry, inner: &Inner, which: Range<usize>) -> bool {
        self.is_worth_it(&Sizes::of(pages, of, inner, which))
    }
}

/// Pages that are written anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Their bytes in memory.
    pub bytes: usize,
    /// The blocks that they take now.
    pub blocks: u64,
}

impl Moved {
    fn add(&mut self, pages: &Pages, slot: &Slot) {
        self.bytes += page_bytes(slot);
        self.blocks += blocks_now(pages, slot);
    }
}

/// How much room neighbouring leaves take.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    /// Entries in them.
    entries: u64,
    /// Blocks now.
    blocks: u64,
    /// Blocks if none were compressed.
    whole_blocks: u64,
    /// Blocks when they are packed. Leaves are taken to compress as well as they do now.
    packed_blocks: u64,
}

impl Sizes {
    fn of(pages: &Pages, geometry: &Geometry, inner: &Inner, which: Range<usize>) -> Sizes {
        let blocks_of = |bytes: usize| u64::from(pages.data().blocks_of(bytes));
        let (mut sizes, mut total) = (Sizes::default(), 0);
        let compresses = pages.data().compresses();
        let mut may_compress = compresses;
        for slot in which.clone().map(|child| inner.slot(child)) {
            let (now, whole) = (blocks_now(pages, slot), blocks_of(raw_bytes(slot)));
            // It was tried, and saved no block.
            may_compress &= now < whole || whole == 1;
            sizes.entries += slot.count;
            sizes.blocks += now;
            sizes.whole_blocks += whole;
            total += page_bytes(slot).saturating_sub(LEAF_PAGE_BYTES);
        }
        let count = total.div_ceil(packed_bytes(geometry, 0)).max(1);
        let (leaves, packed_leaves) = (which.len() as u64, count as u64);
        let packed = packed_leaves * blocks_of(total.div_ceil(count) + LEAF_PAGE_BYTES);
        let as_now = (packed * sizes.blocks).div_ceil(sizes.whole_blocks.max(1));
        sizes.packed_blocks = if compresses { as_now } else { packed };
        // Small leaves save few blocks, however well they compress: fewer and larger ones save more.
        if may_compress && packed_leaves + (leaves / SAVED_PART).max(1) <= leaves {
            let saved = (sizes.blocks / SAVED_PART).max(1);
            sizes.packed_blocks = sizes.packed_blocks.min(sizes.blocks.saturating_sub(saved));
        }
        sizes
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

/// About the bytes of the page of a leaf when it is written anew.
fn page_bytes(slot: &Slot) -> usize {
    if let Some(bytes) = slot.merged_page_bytes() {
        return bytes;
    }
    slot.peek().map_or(0, |node| match node.body() {
        Body::Leaf(leaf) => leaf.page_bytes_max(),
        Body::Inner(_) => 0,
    })
}

/// Bytes of the page of a leaf in memory, as it is.
fn raw_bytes(slot: &Slot) -> usize {
    slot.page().map_or_else(|| page_bytes(slot), |page| page.raw_bytes as usize)
}

/// The blocks that the page of a leaf takes, or will take at most.
fn blocks_now(pages: &Pages, slot: &Slot) -> u64 {
    let written = slot.page().map(|page| u64::from(page.block_count));
    written.unwrap_or_else(|| u64::from(pages.data().blocks_of(page_bytes(slot))))
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
        Walk { with: self, visit, above: Moved::default() }.node(root, from, place).map(drop)
    }
}

struct Walk<'a> {
    with: GroupWalk<'a>,
    visit: &'a mut dyn FnMut(Group) -> Result<bool>,
    /// The moved nodes on the way to the next group. A range moves the nodes above it, so the first group
    /// below a node moves that node, and the others need not.
    above: Moved,
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
            self.above.add(self.with.pages, slot);
        }
        let is_leaf = slot.page().is_some_and(|page| !page.is_inner());
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
        let moved = std::mem::take(&mut self.above);
        (self.visit)(Group {
            from: place.lower.to_vec(),
            to: place.upper.map(<[u8]>::to_vec),
            moved,
            entries: slot.count,
            blocks,
            whole_blocks: u64::from(self.with.pages.data().blocks_of(raw_bytes(slot))),
            packed_blocks: blocks,
            is_due: moved != Moved::default(),
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
            let sizes = Sizes::of(self.with.pages, self.with.geometry, inner, start..end);
            let is_packed = self.with.compacting.is_worth_it(&sizes);
            let is_due = |slot: &&Slot| is_packed || self.with.compacting.rewrites(slot);
            let due: Vec<&Slot> = (start..end).map(|child| inner.slot(child)).filter(is_due).collect();
            if self.with.loads {
                due.iter().try_for_each(|slot| slot.load(self.with.pages, false).map(drop))?;
            }
            let above = std::mem::take(&mut self.above);
            let mut moved = above;
            due.iter().for_each(|slot| moved.add(self.with.pages, slot));
            let group = Group {
                from: lower(inner, start, place),
                to: upper(inner, end - 1, place),
                moved,
                entries: sizes.entries,
                blocks: sizes.blocks,
                whole_blocks: sizes.whole_blocks,
                packed_blocks: if is_packed { sizes.packed_blocks } else { sizes.blocks },
                is_due: above != Moved::default() || !due.is_empty(),
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
