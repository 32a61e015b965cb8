//! Gathers pages into slices of neighbouring blocks, so that a checkpoint makes few, long writes. Passes them
//! to the device as it goes, so that the checkpoint's sync has little left to write.

use std::ops::Range;
use std::sync::Arc;

use crate::alarm::invariant;
use crate::allocator::DeferredExtent;
use crate::data_file::{Compressor, Page, PagePointer, TreeNumber, first_free_block};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::ids::TreeId;
use crate::tree::{Body, DeferredPage, Node, NodePointer, NodeSink, Reduction, inner_page_bytes_max};

use super::Store;

/// Pages go to the device in slices of this many bytes, and each slice is waited for. If all were written at
/// the end, the sync of the log, and with it every concurrent commit, would wait for them.
const SLICE_BYTES: usize = 256 * 1024;

/// What has been written and is only in the kernel's cache: the bytes, and their range in the file.
#[derive(Debug, Default)]
struct WriteBehind {
    range: Range<u64>,
    bytes: u64,
}

impl WriteBehind {
    fn add(&mut self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        let Range { start, end: last } = self.range;
        self.range = if self.bytes == 0 { offset..end } else { start.min(offset)..last.max(end) };
        self.bytes += bytes;
    }
}

/// Pages being written to the data file.
pub(super) struct Output<'a> {
    store: &'a Store,
    between: &'a mut dyn FnMut(),
    slice: Vec<u8>,
    compressor: Compressor,
    start_block: u64,
    written_bytes: u64,
    write_behind: WriteBehind,
    /// Nodes whose pages are in the slice. They get their page pointers when it is written.
    pending: Vec<(Arc<Node>, NodePointer)>,
    /// The tree whose nodes are written.
    tree: TreeNumber,
    /// Extents of the new tree of roots, written or not.
    roots: Option<Vec<(u64, u32)>>,
    /// Nodes are written before the commit that needs them: until then their extents are those of values.
    is_ahead: bool,
}

impl<'a> Output<'a> {
    /// Calls `between` after each slice.
    pub(super) fn new(store: &'a Store, between: &'a mut dyn FnMut()) -> Output<'a> {
        Output {
            store,
            between,
            slice: Vec::new(),
            compressor: Compressor::default(),
            start_block: 0,
            written_bytes: 0,
            write_behind: WriteBehind::default(),
            pending: Vec::new(),
            tree: TreeNumber::ROOTS,
            roots: None,
            is_ahead: false,
        }
    }

    /// For nodes of one tree that a later commit puts into it.
    pub(super) fn ahead(store: &'a Store, between: &'a mut dyn FnMut(), tree: TreeId) -> Output<'a> {
        let mut output = Output::new(store, between);
        output.begin_tree(tree);
        output.is_ahead = true;
        output
    }

    /// Later nodes belong to this tree.
    pub(super) fn begin_tree(&mut self, id: TreeId) {
        invariant!(
            self.roots.is_none(),
            "tree {id} is written before the tree of roots, which names its root"
        );
        self.tree = TreeNumber::of(id);
        self.compressor.begin_tree();
    }

    /// Later nodes belong to the tree of roots. No root leads to them before the checkpoint is written, so
    /// the output owns their extents until [`Output::finish`].
    pub(super) fn begin_roots(&mut self) {
        let left = self.pending.len();
        invariant!(left == 0, "nodes of other trees are written, and own their extents, but for {left}");
        self.roots = Some(Vec::new());
        self.tree = TreeNumber::ROOTS;
        self.compressor.begin_tree();
    }

    /// Everything is written; the tree of roots now owns its extents.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.roots = None;
        Ok(())
    }

    /// Bytes given to write calls.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Adds a page that is no node's, for blocks that were allocated for it.
    ///
    /// # Errors
    /// The error of writing an earlier slice.
    pub(super) fn put_at(&mut self, page: &Page, block: u64) -> Result<PagePointer> {
        self.add(page.bytes(), block)?;
        Ok(self.store.pages.data().locate(page, block))
    }

    /// Allocates room for the page of a node, as it is stored, adds it, and marks it as one of the tree.
    fn put_node(&mut self, stored: &[u8]) -> Result<PagePointer> {
        let data = self.store.pages.data();
        let block_count = data.blocks_of(stored.len());
        let space = &self.store.space;
        let block =
            if self.is_ahead { space.allocate_value(block_count) } else { space.allocate(block_count) }?;
        let start = self.add(stored, block).inspect_err(|_| self.free(block, block_count))?;
        let added = &mut self.slice[start..start + stored.len()];
        Ok(data.locate_node(added, block, self.tree))
    }

    fn free(&self, block: u64, block_count: u32) {
        match self.is_ahead {
            true => self.store.space.value_given_up(block, block_count),
            false => self.store.space.give_back(block, block_count),
        }
    }

    /// Adds a page to the slice. Returns where it begins there.
    fn add(&mut self, page: &[u8], block: u64) -> Result<usize> {
        let block_bytes = self.store.pages.data().block_bytes();
        let next = self.start_block + (self.slice.len() / block_bytes) as u64;
        if !self.slice.is_empty() && (next != block || self.slice.len() >= SLICE_BYTES) {
            self.flush()?;
        }
        if self.slice.is_empty() {
            self.start_block = block;
        }
        let start = self.slice.len();
        self.slice.extend_from_slice(page);
        let padded = self.slice.len().next_multiple_of(block_bytes);
        self.slice.resize(padded, 0);
        Ok(start)
    }

    /// Writes the current slice.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.slice.is_empty() {
            let left = self.pending.len();
            invariant!(left == 0, "the pages of {left} nodes are in the slice, and it is empty");
            return Ok(());
        }
        let data = self.store.pages.data();
        let (start, first) = (self.start_block, first_free_block(data.block_bytes()));
        invariant!(start >= first, "a page at block {start} is after the superblocks, from {first} on");
        let offset = data.offset(self.start_block);
        data.file()
            .write_at(&self.slice, offset)
            .map_err(|error| Error::io("write to", data.path(), &error.source))?;
        self.write_behind.add(offset, self.slice.len() as u64);
        if self.write_behind.bytes >= SLICE_BYTES as u64 {
            // Pages between others that are kept may lie far apart: wait once for many of them.
            let WriteBehind { range, .. } = std::mem::take(&mut self.write_behind);
            data.write_out(&range);
        }
        self.written_bytes += self.slice.len() as u64;
        self.slice.clear();
        for (node, pointer) in self.pending.drain(..) {
            if let Some(page) = node.set_pointer(pointer) {
                self.store.space.defer_free([page.into()]);
            }
        }
        (self.between)();
        Ok(())
    }
}

impl NodeSink for Output<'_> {
    fn inner_bytes_max(&self) -> usize {
        self.store.geometry.inner_bytes_max
    }

    fn put(&mut self, node: &Arc<Node>, page: &Page, reduction: Reduction) -> Result<NodePointer> {
        if let Body::Inner(inner) = node.body() {
            let bytes_max = inner_page_bytes_max(self.inner_bytes_max());
            let bytes = page.bytes().len() - inner.patch_bytes();
            invariant!(bytes <= bytes_max, "an inner node of {bytes} bytes was cut at {bytes_max}");
            if inner.patch_bytes() > 0 {
                self.store.pages.data().note(Features::PATCHES);
            }
        }
        let mut compressor = std::mem::take(&mut self.compressor);
        let data = self.store.pages.data();
        let stored = if node.level() == 0 { compressor.stored(page, data) } else { page.bytes() };
        let pointer = self.put_node(stored);
        self.compressor = compressor;
        let pointer = pointer?;
        if let Some(roots) = &mut self.roots {
            roots.push(pointer.extent());
        }
        let pointer = NodePointer::whole(pointer, reduction);
        self.pending.push((Arc::clone(node), pointer.clone()));
        Ok(pointer)
    }
}

impl Drop for Output<'_> {
    /// Gives back what the output still owns, each extent once.
    ///
    /// That is every extent of the tree of roots, or else those of nodes that were not written. A written
    /// node owns its extent, and the next checkpoint finds it there.
    fn drop(&mut self) {
        let unwritten: Vec<_> = self.pending.drain(..).map(|(_, pointer)| pointer.page.extent()).collect();
        let owned = self.roots.take().unwrap_or(unwritten);
        owned.into_iter().for_each(|(block, block_count)| self.free(block, block_count));
    }
}

impl From<DeferredPage> for DeferredExtent {
    fn from(page: DeferredPage) -> DeferredExtent {
        let (block, block_count) = page.pointer.extent();
        DeferredExtent { block, block_count, birth: page.birth, unused_since: page.unused_since }
    }
}
