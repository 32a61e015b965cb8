//! The mark in the header of a node's page: the number of its tree, and a checksum of the page itself.
//!
//! Only a repair reads it. A reader follows pointers, and their tags prove a page. Without the pointers a
//! mark shows that a page is whole and which tree it was written for, but not that it is current. Pages
//! of earlier builds have zeroes here.

use super::page::{generation_of, node_bytes};
use super::{DataFile, PagePointer};
use crate::ids::TreeId;
use xxhash_rust::xxh3::Xxh3;

/// Where the fields of the mark lie in the page header.
pub(super) const TREE_AT: usize = 40;
const CHECKSUM_AT: usize = 44;
pub(super) const MARK_END: usize = 48;

/// The number of a tree in the headers of its pages: its id, as far as that has 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeNumber(u32);

impl TreeNumber {
    /// The tree of roots, which has no id.
    pub const ROOTS: TreeNumber = TreeNumber(u32::MAX);

    /// A tree whose id does not fit.
    const UNKNOWN: TreeNumber = TreeNumber(u32::MAX - 1);

    /// The number of a tree.
    #[must_use]
    pub fn of(tree: TreeId) -> TreeNumber {
        u32::try_from(tree.0).map_or(Self::UNKNOWN, |id| TreeNumber(id.min(Self::UNKNOWN.0)))
    }

    /// The tree; `None` for the tree of roots, and for one whose id does not fit.
    #[must_use]
    pub fn tree(self) -> Option<TreeId> {
        (self < Self::UNKNOWN).then(|| TreeId(u64::from(self.0)))
    }
}

impl DataFile {
    /// Writes the mark of a page at `block` into its header. The rest of the page is as it will be on disk.
    pub(super) fn mark(&self, page: &mut [u8], block: u64, tree: TreeNumber) {
        page[TREE_AT..CHECKSUM_AT].copy_from_slice(&tree.0.to_le_bytes());
        page[CHECKSUM_AT..MARK_END].fill(0);
        let checksum = self.checksum(page, block);
        page[CHECKSUM_AT..MARK_END].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The node in a page at `block`: a pointer to it, its tree, and the commit that made it. `None` if
    /// the page is not whole, has no mark, or is no node's.
    #[must_use]
    pub fn node_at(&self, page: &[u8], block: u64) -> Option<(PagePointer, TreeNumber, u64)> {
        if node_bytes(page)? != page.len() {
            return None;
        }
        let tree = self.marked(page, block)?;
        let pointer = self.pointer_to(page, block);
        // No build compresses a page where that saves no block.
        let whole_blocks = self.blocks_of(pointer.raw_bytes as usize);
        let is_possible = !pointer.is_compressed() || pointer.block_count < whole_blocks;
        is_possible.then(|| (pointer, tree, generation_of(page)))
    }

    /// The tree that a page at `block` was written for; `None` if the page is not whole, or has no mark.
    pub(super) fn marked(&self, page: &[u8], block: u64) -> Option<TreeNumber> {
        let found = u32::from_le_bytes(page.get(CHECKSUM_AT..MARK_END)?.try_into().ok()?);
        let tree = u32::from_le_bytes(page[TREE_AT..CHECKSUM_AT].try_into().ok()?);
        (found == self.checksum(page, block)).then_some(TreeNumber(tree))
    }

    /// The checksum of a page, less the bytes of the checksum itself. It is never 0.
    fn checksum(&self, page: &[u8], block: u64) -> u32 {
        let mut hash = Xxh3::with_seed(self.seed(page, block));
        hash.update(&page[..CHECKSUM_AT]);
        hash.update(&page[MARK_END..]);
        let low = u32::try_from(hash.digest() & u64::from(u32::MAX)).expect("32 bits");
        low.max(1)
    }
}
