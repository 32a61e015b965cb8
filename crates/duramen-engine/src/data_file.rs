//! The file `data`: pages with a header, addressed by pointers that carry their checksum.
//!
//! Owns the page header, the checksum rule and the superblocks. The allocator decides where a page goes, and
//! the checkpoint when it is durable. D4 rests here: no byte leaves this module before it matched the
//! checksum in its page pointer.

mod buffers;
mod codec;
mod mark;
mod page;
mod page_pointer;
mod superblock;
mod sync_choice;
mod syncs;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_disk::File;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use codec::decompress;
use syncs::Syncs;

use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::DatabaseId;

pub use buffers::Buffers;
pub use codec::Compressor;
pub use mark::TreeNumber;
pub use page::{INDEX_SLACK_BYTES, PAGE_HEADER_BYTES, Page, PageKind, node_bytes};
use page::{generation_of, is_compressed, is_inner, payload_bytes_of, stored_bytes_of};
pub use page_pointer::{INNER_FLAG, LZ4_FLAG, POINTER_BYTES, PagePointer};
pub use superblock::{
    FORMAT_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, SuperblockError, first_free_block,
};
pub use sync_choice::{Measured, SyncChoice};

/// The data file, open.
#[derive(Debug, Clone)]
pub struct DataFile {
    file: Arc<dyn File>,
    path: PathBuf,
    database: DatabaseId,
    block_bytes: usize,
    buffers: Arc<Buffers>,
    syncs: Arc<Syncs>,
    /// A length that the file is known to have.
    seen_bytes: Arc<AtomicU64>,
    /// Whether pages are compressed when they are written.
    compresses: bool,
    /// The features that pages have.
    features: Arc<AtomicU64>,
}

impl DataFile {
    /// Wraps an open file with a superblock that was read or is about to be written.
    #[must_use]
    pub fn new(file: Arc<dyn File>, path: &Path, database: DatabaseId, block_bytes: usize) -> DataFile {
        assert!(block_bytes.is_power_of_two(), "blocks are a power of two");
        DataFile {
            file,
            path: path.to_owned(),
            database,
            block_bytes,
            buffers: Buffers::new(),
            syncs: Arc::default(),
            seen_bytes: Arc::default(),
            compresses: false,
            features: Arc::default(),
        }
    }

    /// Compresses leaves when they are written, where that saves a block.
    #[must_use]
    pub fn compressing(mut self, compresses: bool) -> DataFile {
        self.compresses = compresses;
        self
    }

    /// Whether leaves are compressed when they are written.
    pub(crate) fn compresses(&self) -> bool {
        self.compresses
    }

    /// Notes that there are pages with these features.
    pub(crate) fn note(&self, features: Features) {
        self.features.fetch_or(features.bits(), Ordering::Relaxed);
    }

    /// What a build must know to read the pages.
    pub(crate) fn features(&self) -> Features {
        Features::from_bits(self.features.load(Ordering::Relaxed)).expect("only known ones are noted")
    }

    /// The file itself, for syncs and its length.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Makes everything written to the file durable. Concurrent callers share a sync that begins after their
    /// calls.
    ///
    /// # Errors
    /// `System` (E1001) if a sync fails, then and at every call after it (D6).
    pub fn sync(&self) -> Result<()> {
        self.sync_through(self.syncs.next())
    }

    fn sync_through(&self, number: u64) -> Result<()> {
        let sync = || self.file.sync_data().map_err(|error| Error::io("sync", &self.path, &error));
        self.syncs.through(number, sync)
    }

    /// Passes writes in a range to the device ahead of the next [`DataFile::sync`], which reports a failure.
    /// Not beside a sync, because the system reports a failure only once.
    pub fn write_out(&self, range: &Range<u64>) {
        let write_out = || self.file.write_out(range.start, range.end - range.start);
        self.syncs.between(|| write_out().map_err(|error| Error::io("write out", &self.path, &error)));
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The identity of its database.
    #[must_use]
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The pool of page buffers.
    #[must_use]
    pub fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Unit of space in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// How many blocks a page of this many bytes takes.
    #[must_use]
    pub fn blocks_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(self.block_bytes)).expect("pages are at most a mebibyte and a bit")
    }

    /// The pointer to `page` at `block`: its checksum is bound to database, address and generation.
    #[must_use]
    pub fn locate(&self, page: &Page, block: u64) -> PagePointer {
        self.pointer_to(page.bytes(), block)
    }

    /// The pointer to a node's page at `block`, whose header gets the mark of its tree.
    #[must_use]
    pub fn locate_node(&self, page: &mut [u8], block: u64, tree: TreeNumber) -> PagePointer {
        self.mark(page, block, tree);
        self.pointer_to(page, block)
    }

    /// The pointer to a page as it is stored.
    fn pointer_to(&self, page: &[u8], block: u64) -> PagePointer {
        let payload = payload_bytes_of(page).expect("a page has a header");
        let raw_bytes = u32::try_from(PAGE_HEADER_BYTES + payload).expect("a payload's length has 32 bits");
        PagePointer {
            block,
            block_count: self.blocks_of(page.len()),
            raw_bytes,
            flags: flag(is_inner(page), INNER_FLAG) | flag(is_compressed(page), LZ4_FLAG),
            tag: self.tag(page, block).to_le_bytes(),
        }
    }

    /// Reads the page of a pointer and checks it (D4). A page that reads as corrupt is read once more. A read
    /// can go wrong while the stored bytes are fine, and a corrupt page is given up for good.
    ///
    /// # Errors
    /// `CorruptData` (E0501) with file and offset if the bytes differ from those written; `System` (E1001) if
    /// reading failed.
    pub fn read(&self, pointer: &PagePointer, kind: PageKind) -> Result<Page> {
        self.check(pointer, kind)?;
        match self.read_once(pointer, kind) {
            Err(error) if error.is_corruption() => self.read_once(pointer, kind),
            answer => answer,
        }
    }

    fn read_once(&self, pointer: &PagePointer, kind: PageKind) -> Result<Page> {
        let offset = self.offset(pointer.block);
        let mut page = Page::unread(&self.buffers, pointer.raw_bytes as usize);
        let corrupt = |what: String| Error::corrupt_data(&self.path, offset, what);
        if pointer.is_compressed() {
            let stored = self.read_stored(pointer, &corrupt)?;
            decompress(stored.bytes(), page.bytes_mut(), kind).map_err(corrupt)?;
        } else {
            self.file.read_at(page.bytes_mut(), offset).map_err(|error| self.read_error(offset, &error))?;
            self.check_tag(pointer, page.bytes()).map_err(corrupt)?;
        }
        page.check(kind).map_err(corrupt)?;
        Ok(page)
    }

    /// The bytes of a compressed page, which match the pointer's checksum.
    fn read_stored(&self, pointer: &PagePointer, corrupt: &dyn Fn(String) -> Error) -> Result<Page> {
        let offset = self.offset(pointer.block);
        let room = u64::from(pointer.block_count) * self.block_bytes as u64;
        // The padding of the last page may be cut off.
        let bytes = room.min(self.length_for(offset + room)?.saturating_sub(offset));
        let bytes = usize::try_from(bytes).expect("fewer than those of the page");
        let mut stored = Page::unread(&self.buffers, bytes);
        self.file.read_at(stored.bytes_mut(), offset).map_err(|error| self.read_error(offset, &error))?;
        let found = stored_bytes_of(stored.bytes()).map(|bytes| PAGE_HEADER_BYTES + bytes);
        let Some(length) = found.filter(|length| *length <= bytes) else {
            return Err(corrupt("no compressed page starts here".to_owned()));
        };
        stored.truncate(length);
        self.check_tag(pointer, stored.bytes()).map_err(corrupt)?;
        Ok(stored)
    }

    /// Checks the bytes of a page, as they are stored, against its pointer. Returns what is wrong.
    fn check_tag(&self, pointer: &PagePointer, stored: &[u8]) -> std::result::Result<(), String> {
        let (found, wanted) = (self.tag(stored, pointer.block), u128::from_le_bytes(pointer.tag));
        if found == wanted {
            return Ok(());
        }
        Err(format!("page at block {}: checksum {found:032x}, want {wanted:032x}", pointer.block))
    }

    /// Checks whether a page of this kind can lie where a pointer says.
    ///
    /// Called before memory is allocated for the page and before its blocks are counted. A pointer with a
    /// right checksum may still be wrong: a hostile program can write both.
    ///
    /// # Errors
    /// `CorruptData` (E0501) with file and offset; `System` (E1001) if the file cannot be measured.
    pub fn check(&self, pointer: &PagePointer, kind: PageKind) -> Result<()> {
        let offset = self.offset(pointer.block);
        let PagePointer { block_count, raw_bytes, flags, .. } = *pointer;
        let bytes = raw_bytes as usize;
        let is_possible = kind == PageKind::Leaf || !pointer.is_compressed();
        if flags & !(INNER_FLAG | LZ4_FLAG) != 0 || !is_possible {
            return Err(Error::corrupt_data(&self.path, offset, "a pointer that this build cannot follow"));
        }
        if !(PAGE_HEADER_BYTES..=PAGE_HEADER_BYTES + kind.payload_bytes_max()).contains(&bytes) {
            let what = format!("a pointer to a page of {bytes} bytes, which no page of its kind has");
            return Err(Error::corrupt_data(&self.path, offset, what));
        }
        let blocks = |bytes: usize| bytes.div_ceil(self.block_bytes);
        let possible = match pointer.is_compressed() {
            true => 1..=blocks(bytes).saturating_sub(1),
            false => blocks(bytes)..=blocks(bytes + kind.slack_bytes()),
        };
        if !possible.contains(&(block_count as usize)) {
            let what = format!("a pointer to {bytes} bytes in {block_count} blocks");
            return Err(Error::corrupt_data(&self.path, offset, what));
        }
        // The last block of a compressed page begins at least.
        let stored = match pointer.is_compressed() {
            true => u64::from(block_count - 1) * self.block_bytes as u64 + 1,
            false => raw_bytes.into(),
        };
        let end = offset.saturating_add(stored);
        if end > self.length_for(end)? {
            return Err(Error::corrupt_data(&self.path, offset, "the file ends before the page does"));
        }
        Ok(())
    }

    /// The length of the file. It is measured if it was not seen to reach this end.
    fn length_for(&self, end: u64) -> Result<u64> {
        let seen = self.seen_bytes.load(Ordering::Relaxed);
        if end <= seen {
            return Ok(seen);
        }
        let file_bytes = self.file.len().map_err(|error| Error::io("measure", &self.path, &error))?;
        self.seen_bytes.store(file_bytes, Ordering::Relaxed);
        Ok(file_bytes)
    }

    /// Byte offset of a block.
    #[must_use]
    pub fn offset(&self, block: u64) -> u64 {
        block.saturating_mul(self.block_bytes as u64)
    }

    fn read_error(&self, offset: u64, error: &std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return Error::corrupt_data(&self.path, offset, "the file ends before the page does");
        }
        Error::new(Code::System, format!("cannot read {} @ {offset:#x}: {error}", self.path.display()))
    }

    /// The checksum of a page as it is stored.
    fn tag(&self, page: &[u8], block: u64) -> u128 {
        xxh3_128_with_seed(page, self.seed(page, block))
    }

    /// The seed of a page's checksums. It binds them to the database, the block and the generation.
    fn seed(&self, page: &[u8], block: u64) -> u64 {
        let mut seed = [0u8; 32];
        seed[..16].copy_from_slice(&self.database.0.to_le_bytes());
        seed[16..24].copy_from_slice(&block.to_le_bytes());
        seed[24..].copy_from_slice(&generation_of(page).to_le_bytes());
        xxh3_64_with_seed(&seed, 0x4455_5241_4d45_4e00)
    }
}

fn flag(is_set: bool, bit: u32) -> u32 {
    if is_set { bit } else { 0 }
}
