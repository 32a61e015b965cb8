//! Which blocks the space map of a checkpoint calls used, as far as the map can be read.

use super::{FoundNode, Unreadable};
use crate::allocator::{PAGE_WORDS, map_words};
use crate::data_file::{DataFile, POINTER_BYTES, PageKind, PagePointer, Superblock};
use crate::ids::CommitSeq;

/// No node has more blocks, however small they are.
const NODE_BLOCKS_MAX: u32 = 1 << 13;

/// The space map of a checkpoint.
#[derive(Debug)]
pub(crate) struct UsedBlocks {
    /// Its pages in order, those that can be read; `None` if the list of pages cannot be read.
    pages: Option<Vec<Option<Box<[u64]>>>>,
    /// The extent of the list. It may be longer than its page, and hold old bytes after it.
    list: Option<PagePointer>,
    /// The checkpoint holds the commits up to this one.
    seq: CommitSeq,
}

/// What is known of a whole node that no pointer led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The checkpoint reaches it.
    Current,
    /// The space map there cannot be read, or the node was written after the checkpoint.
    Uncertain,
    /// The checkpoint does not reach it, or reaches a newer node in its place.
    Old,
}

impl UsedBlocks {
    /// Reads the space map of a checkpoint.
    pub(crate) fn read(data: &DataFile, superblock: &Superblock) -> UsedBlocks {
        let list = superblock.space;
        let seq = superblock.replay.seq;
        let Some(pointer) = list else {
            // A checkpoint without a space map, or no superblock at all.
            let pages = (superblock.generation.0 > 0).then(Vec::new);
            return UsedBlocks { pages, list, seq };
        };
        let file_bytes = data.file().len().unwrap_or(0);
        let pages = data.read(&pointer, PageKind::SpaceIndex).ok().and_then(|page| {
            let map_bytes = (page.payload().len() / POINTER_BYTES * PAGE_WORDS * 8) as u64;
            // Each page of the map has blocks of its own. A list that repeats pages would take more
            // memory than the file has bytes.
            if map_bytes > file_bytes {
                return None;
            }
            let words = |entry| {
                let page = data.read(&PagePointer::decode(entry)?, PageKind::SpaceMap).ok()?;
                map_words(page.payload())
            };
            Some(page.payload().chunks_exact(POINTER_BYTES).map(words).collect())
        });
        UsedBlocks { pages, list, seq }
    }

    /// What is known of a node that was found.
    pub(crate) fn standing(&self, node: &FoundNode, unreadable: &Unreadable) -> Standing {
        match (self.says(&node.pointer), unreadable.is_outdated(&node.pointer)) {
            (_, Some(true)) => Standing::Old,
            // Blocks that a later checkpoint freed may have been used again.
            (Some(true), Some(false)) if node.birth <= self.seq => Standing::Current,
            (Some(false), _) if node.birth <= self.seq => Standing::Old,
            _ => Standing::Uncertain,
        }
    }

    /// Whether the map calls every block of an extent used; `None` if it cannot be read there.
    pub(crate) fn says(&self, at: &PagePointer) -> Option<bool> {
        let pages = self.pages.as_ref()?;
        if at.block_count > NODE_BLOCKS_MAX {
            return Some(false);
        }
        let end = at.block.saturating_add(u64::from(at.block_count));
        let is_in_list = self.list.is_some_and(|list| {
            at.block < list.block.saturating_add(u64::from(list.block_count)) && list.block < end
        });
        if is_in_list {
            return Some(false);
        }
        let mut all = true;
        for block in at.block..end {
            all &= word_of(pages, block)? >> (block % 64) & 1 == 1;
        }
        Some(all)
    }
}

/// The word with the bit of a block; `None` if its page cannot be read. Blocks after the map are free.
fn word_of(pages: &[Option<Box<[u64]>>], block: u64) -> Option<u64> {
    let word = block / 64;
    let words_per_page = PAGE_WORDS as u64;
    let Some(page) = usize::try_from(word / words_per_page).ok().and_then(|page| pages.get(page)) else {
        return Some(0);
    };
    let index = usize::try_from(word % words_per_page).expect("less than the words of a page");
    page.as_ref().map(|words| words[index])
}
