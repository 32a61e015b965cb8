//! Which blocks the space map of a checkpoint calls used, as far as the map can be read.

use crate::allocator::map_words;
use crate::data_file::{DataFile, POINTER_BYTES, PageKind, PagePointer, Superblock};
use crate::ids::CommitSeq;

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
    /// The checkpoint does not reach it, and it is older.
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
        let pages = data.read(&pointer, PageKind::SpaceIndex).ok().map(|page| {
            let words = |entry| {
                let page = data.read(&PagePointer::decode(entry)?, PageKind::SpaceMap).ok()?;
                map_words(page.payload())
            };
            page.payload().chunks_exact(POINTER_BYTES).map(words).collect()
        });
        UsedBlocks { pages, list, seq }
    }

    /// What is known of a node at these blocks that commit `birth` made.
    pub(crate) fn standing(&self, at: &PagePointer, birth: CommitSeq) -> Standing {
        match self.says(at) {
            // Blocks that a later checkpoint freed may have been used again.
            Some(true) if birth <= self.seq => Standing::Current,
            Some(false) if birth <= self.seq => Standing::Old,
            _ => Standing::Uncertain,
        }
    }

    /// Whether the map calls every block of an extent used; `None` if it cannot be read there.
    pub(crate) fn says(&self, at: &PagePointer) -> Option<bool> {
        let pages = self.pages.as_ref()?;
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
    let words_per_page = crate::allocator::PAGE_WORDS as u64;
    let Some(page) = usize::try_from(word / words_per_page).ok().and_then(|page| pages.get(page)) else {
        return Some(0);
    };
    let index = usize::try_from(word % words_per_page).expect("less than the words of a page");
    page.as_ref().map(|words| words[index])
}
