//! Compressed pages: the header of a page, and its payload as one LZ4 block.
//!
//! Owns that form. It is only on disk: a page in memory is as it was before it was compressed. The mark and
//! the tag of a page are over what is on disk. docs/format.md, "Pages".

#[cfg(test)]
mod tests;

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use super::mark::TREE_AT;
use super::page::{CODEC_AT, LZ4, PAGE_HEADER_BYTES, STORED_BYTES_AT};
use super::{DataFile, Page, PageKind};
use crate::features::Features;

/// Pages of a tree that did not get shorter, before it is taken for one that does not compress.
const FAILED_MAX: u32 = 4;

/// Of a tree that does not compress, one page in so many is tried.
const TRIED_EVERY: u32 = 16;

/// Compresses the pages of one tree after the other.
#[derive(Debug, Default)]
pub struct Compressor {
    stored: Vec<u8>,
    failed: u32,
}

impl Compressor {
    /// The pages that follow are of another tree.
    pub fn begin_tree(&mut self) {
        self.failed = 0;
    }

    /// The page as it is stored: compressed if that takes a block less.
    pub fn stored<'p>(&'p mut self, page: &'p Page, data: &DataFile) -> &'p [u8] {
        // A page of one block saves none.
        let can_save = data.compresses() && data.blocks_of(page.bytes().len()) > 1;
        if !can_save || self.is_skipped() || !self.compress(page) {
            return page.bytes();
        }
        if data.blocks_of(self.stored.len()) >= data.blocks_of(page.bytes().len()) {
            self.failed += 1;
            return page.bytes();
        }
        self.failed = 0;
        data.note(Features::LZ4_PAGES);
        &self.stored
    }

    /// Whether this page of a tree that does not compress is not tried.
    fn is_skipped(&mut self) -> bool {
        let is_skipped = self.failed >= FAILED_MAX && !self.failed.is_multiple_of(TRIED_EVERY);
        self.failed = self.failed.saturating_add(u32::from(is_skipped));
        is_skipped
    }

    /// Compresses a page into the buffer. Returns whether it could.
    fn compress(&mut self, page: &Page) -> bool {
        let payload = page.payload();
        self.stored.resize(PAGE_HEADER_BYTES + get_maximum_output_size(payload.len()), 0);
        let (header, block) = self.stored.split_at_mut(PAGE_HEADER_BYTES);
        header.copy_from_slice(&page.bytes()[..PAGE_HEADER_BYTES]);
        let Ok(bytes) = compress_into(payload, block) else { return false };
        let Ok(stored_bytes) = u32::try_from(bytes) else { return false };
        header[CODEC_AT] = LZ4;
        header[STORED_BYTES_AT..TREE_AT].copy_from_slice(&stored_bytes.to_le_bytes());
        self.stored.truncate(PAGE_HEADER_BYTES + bytes);
        true
    }
}

/// Makes the page of its stored form, whose checksum matched. `page` has the length of the page.
///
/// # Errors
/// What is wrong with the bytes.
pub(super) fn decompress(stored: &[u8], page: &mut [u8], kind: PageKind) -> Result<(), String> {
    let (header, payload) = page.split_at_mut(PAGE_HEADER_BYTES);
    header.copy_from_slice(&stored[..PAGE_HEADER_BYTES]);
    header[CODEC_AT] = 0;
    header[STORED_BYTES_AT..TREE_AT].fill(0);
    let wanted = payload.len();
    match decompress_into(&stored[PAGE_HEADER_BYTES..], payload) {
        Ok(bytes) if bytes == wanted => Ok(()),
        Ok(bytes) => Err(format!("a compressed {kind:?} page makes {bytes} bytes, want {wanted}")),
        Err(error) => Err(format!("a compressed {kind:?} page cannot be read: {error}")),
    }
}
