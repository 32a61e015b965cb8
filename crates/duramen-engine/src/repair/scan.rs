//! Reads a data file from its first block to its last, and finds every whole node in it.
//!
//! A node is found by its mark, without a pointer to it. Where a sector cannot be read, the scan goes on
//! after it. It holds one window of the file in memory, and one page.

use crate::data_file::{DataFile, INNER_FLAG, PAGE_HEADER_BYTES, PagePointer, TreeNumber, node_bytes};
use crate::error::{Error, Result};
use crate::ids::CommitSeq;

/// So many bytes are read at once.
const WINDOW_BYTES: usize = 1024 * 1024;

/// A whole node, found without a pointer to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundNode {
    /// A pointer to it, made from its bytes.
    pub pointer: PagePointer,
    /// The tree it was written for.
    pub tree: TreeNumber,
    /// The commit that made it.
    pub birth: CommitSeq,
}

impl FoundNode {
    /// Whether it has children.
    pub(crate) fn is_inner(&self) -> bool {
        self.pointer.flags & INNER_FLAG != 0
    }
}

/// A pass over a data file.
pub(crate) struct Scan<'a> {
    window: Window<'a>,
    block: u64,
    block_count: u64,
}

impl<'a> Scan<'a> {
    /// Begins at the first block.
    ///
    /// # Errors
    /// `System` (E1001) if the file cannot be measured.
    pub(crate) fn of(data: &'a DataFile) -> Result<Scan<'a>> {
        let file_bytes = data.file().len().map_err(|error| Error::io("measure", data.path(), &error))?;
        let window = Window { data, file_bytes, first: 0, bytes: Vec::new() };
        Ok(Scan { window, block: 0, block_count: file_bytes / data.block_bytes() as u64 })
    }
}

impl Iterator for Scan<'_> {
    type Item = FoundNode;

    /// The next whole node, in the order of blocks.
    fn next(&mut self) -> Option<FoundNode> {
        while self.block < self.block_count {
            self.window.fill(self.block, self.block_count);
            match self.window.node_at(self.block) {
                Some(node) => {
                    self.block += u64::from(node.pointer.block_count);
                    return Some(node);
                }
                None => self.block += 1,
            }
        }
        None
    }
}

/// A part of the file in memory.
struct Window<'a> {
    data: &'a DataFile,
    file_bytes: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Makes the window begin at `block`, unless it holds that.
    fn fill(&mut self, block: u64, block_count: u64) {
        let block_bytes = self.data.block_bytes();
        let held = (self.bytes.len() / block_bytes) as u64;
        if block < self.first + held {
            return;
        }
        let blocks = (block_count - block).min((WINDOW_BYTES / block_bytes) as u64);
        self.first = block;
        self.bytes.resize(usize::try_from(blocks).expect("at most a window") * block_bytes, 0);
        let offset = self.data.offset(block);
        if self.data.file().read_at(&mut self.bytes, offset).is_err() {
            // Block by block: only what cannot be read is missing.
            for (index, bytes) in self.bytes.chunks_exact_mut(block_bytes).enumerate() {
                if self.data.file().read_at(bytes, self.data.offset(block + index as u64)).is_err() {
                    bytes.fill(0);
                }
            }
        }
    }

    /// The whole node that begins at a block of the window.
    fn node_at(&self, block: u64) -> Option<FoundNode> {
        let start = usize::try_from(block - self.first).ok()? * self.data.block_bytes();
        let bytes = node_bytes(self.bytes.get(start..start + PAGE_HEADER_BYTES)?)?;
        if let Some(page) = self.bytes.get(start..start.checked_add(bytes)?) {
            return self.data.node_at(page, block).map(FoundNode::of);
        }
        if self.data.offset(block).saturating_add(bytes as u64) > self.file_bytes {
            return None;
        }
        let mut page = vec![0; bytes];
        self.data.file().read_at(&mut page, self.data.offset(block)).ok()?;
        self.data.node_at(&page, block).map(FoundNode::of)
    }
}

impl FoundNode {
    fn of((pointer, tree, birth): (PagePointer, TreeNumber, u64)) -> FoundNode {
        FoundNode { pointer, tree, birth: CommitSeq(birth) }
    }
}
