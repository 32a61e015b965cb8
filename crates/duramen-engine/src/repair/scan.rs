//! Reads a data file from its first block to its last, and finds every whole node in it.
//!
//! A node is found by its mark, without a pointer to it. Where a sector cannot be read, the scan goes on
//! after it. It holds one window of the file in memory, and one page.

use crate::data_file::{DataFile, PAGE_HEADER_BYTES, PagePointer, TreeNumber, node_bytes};
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
        self.pointer.is_inner()
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
        Ok(Scan { window, block: 0, block_count: file_bytes.div_ceil(data.block_bytes() as u64) })
    }
}

impl Iterator for Scan<'_> {
    type Item = Option<FoundNode>;

    /// The next whole node, in the order of blocks. `Some(None)` after each window that was read.
    fn next(&mut self) -> Option<Option<FoundNode>> {
        while self.block < self.block_count {
            if self.window.fill(self.block) {
                return Some(None);
            }
            match self.window.node_at(self.block) {
                Some(node) => {
                    self.block += u64::from(node.pointer.block_count);
                    return Some(Some(node));
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
    /// Makes the window begin at `block`, unless it holds that. Returns whether it was read.
    fn fill(&mut self, block: u64) -> bool {
        let block_bytes = self.data.block_bytes();
        let held = self.bytes.len().div_ceil(block_bytes) as u64;
        if block < self.first + held {
            return false;
        }
        let offset = self.data.offset(block);
        let bytes = self.file_bytes.saturating_sub(offset).min(WINDOW_BYTES as u64);
        self.first = block;
        // The last block of a file that was cut may be there in part.
        self.bytes.resize(usize::try_from(bytes).expect("at most a window"), 0);
        if self.data.file().read_at(&mut self.bytes, offset).is_err() {
            // Block by block: only what cannot be read is missing.
            for (index, bytes) in self.bytes.chunks_mut(block_bytes).enumerate() {
                if self.data.file().read_at(bytes, self.data.offset(block + index as u64)).is_err() {
                    bytes.fill(0);
                }
            }
        }
        true
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
