//! The file `data`: pages with a header, addressed by locations that carry their checksum.
//!
//! Owns the page header, the checksum rule and the superblocks. It never decides where a page goes (the
//! allocator does) nor when it is durable (the checkpoint does). D4 rests here: no byte leaves this module
//! before it matched the checksum in the pointer that led to it.

mod location;
mod superblock;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::File;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::error::{Code, Error, Result};
use crate::ids::DatabaseId;

pub use location::{INNER_FLAG, LOCATION_BYTES, Location};
pub use superblock::{
    FORMAT_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, SuperblockError, first_free_block,
};

/// Bytes before the payload of every page.
pub const PAGE_HEADER_BYTES: usize = 48;

const PAGE_ROOM_STEP: usize = 2048;

const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"DPAG");

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Entries of a tree.
    Leaf = 1,
    /// Children of a tree node.
    Inner = 2,
    /// A piece of a big value.
    ValueExtent = 3,
    /// The list of a big value's pieces.
    ValueList = 4,
    /// One page of the space map.
    SpaceMap = 5,
    /// The list of the space map's pages.
    SpaceIndex = 6,
    /// Addresses of pages that were warm at a clean shutdown.
    HotPages = 7,
}

/// A page image: header and payload in one buffer, as it lies on disk without the padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    bytes: Vec<u8>,
}

/// An empty buffer with room for `bytes`. Room comes in few sizes, so that what one page gives back fits the next:
/// otherwise a cache of pages of every length takes half as much again of the allocator's memory.
fn page_buffer(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes.next_multiple_of(PAGE_ROOM_STEP))
}

impl Page {
    /// Starts a page image of `payload_bytes`, to be filled by `fill`, which must append exactly that many.
    pub fn build(
        kind: PageKind,
        generation: u64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Page {
        let mut bytes = page_buffer(PAGE_HEADER_BYTES + payload_bytes);
        bytes.extend_from_slice(&PAGE_MAGIC.to_le_bytes());
        bytes.push(kind as u8);
        // Codec and key id: room for compression and encryption, zero in this format.
        bytes.extend_from_slice(&[0; 3]);
        bytes.extend_from_slice(&generation.to_le_bytes());
        // Nonce: room for (incarnation, counter) of an encrypted page.
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&(payload_bytes as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        debug_assert_eq!(bytes.len(), PAGE_HEADER_BYTES);
        fill(&mut bytes);
        assert_eq!(bytes.len(), PAGE_HEADER_BYTES + payload_bytes, "a page is exactly as long as announced");
        Page { bytes }
    }

    /// Header and payload.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of memory it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// What the page holds, without the header.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[PAGE_HEADER_BYTES..]
    }

    /// The number given at its making: for nodes, the commit that made them.
    #[must_use]
    pub fn generation(&self) -> u64 {
        u64::from_le_bytes(self.bytes[8..16].try_into().expect("eight bytes"))
    }

    /// Reads the header of bytes that matched their checksum; says what is wrong with it otherwise.
    fn decode(bytes: Vec<u8>, want: PageKind) -> std::result::Result<Page, String> {
        if bytes.len() < PAGE_HEADER_BYTES {
            return Err(format!("page of {} bytes, want at least {PAGE_HEADER_BYTES}", bytes.len()));
        }
        if bytes[0..4] != PAGE_MAGIC.to_le_bytes() {
            return Err("no page starts here".to_owned());
        }
        if bytes[4] != want as u8 {
            return Err(format!("page kind {}, want {}", bytes[4], want as u8));
        }
        if bytes[5..8] != [0; 3] {
            return Err("page is compressed or encrypted, which this build cannot read".to_owned());
        }
        let payload = u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        if payload != (bytes.len() - PAGE_HEADER_BYTES) as u64 {
            return Err(format!("page payload of {payload} bytes, want {}", bytes.len() - PAGE_HEADER_BYTES));
        }
        Ok(Page { bytes })
    }
}

/// The data file, open.
#[derive(Debug, Clone)]
pub struct DataFile {
    file: Arc<dyn File>,
    path: PathBuf,
    database: DatabaseId,
    block_bytes: usize,
}

impl DataFile {
    /// Wraps an open file whose superblock was read or is about to be written.
    #[must_use]
    pub fn new(file: Arc<dyn File>, path: &Path, database: DatabaseId, block_bytes: usize) -> DataFile {
        assert!(block_bytes.is_power_of_two(), "blocks are a power of two");
        DataFile { file, path: path.to_owned(), database, block_bytes }
    }

    /// The file itself, for syncs and lengths.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Where it lies, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identity of the database it belongs to.
    #[must_use]
    pub fn database(&self) -> DatabaseId {
        self.database
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
    pub fn locate(&self, page: &Page, block: u64) -> Location {
        let raw_bytes = u32::try_from(page.bytes.len()).expect("pages are at most a mebibyte and a bit");
        Location {
            block,
            block_count: self.blocks_of(page.bytes.len()),
            raw_bytes,
            flags: if page.bytes[4] == PageKind::Inner as u8 { INNER_FLAG } else { 0 },
            tag: self.tag(&page.bytes, block, page.generation()),
        }
    }

    /// Reads the page a location points at and checks it (D4).
    ///
    /// # Errors
    /// `Corrupt` with file and offset if the bytes are not those that were written; `Io` if reading failed.
    pub fn read(&self, location: &Location, kind: PageKind) -> Result<Page> {
        let offset = self.offset(location.block);
        let room = location.block_count as usize * self.block_bytes;
        if location.raw_bytes as usize > room || location.flags & !INNER_FLAG != 0 {
            return Err(Error::damaged_data(&self.path, offset, "a pointer that this build cannot follow"));
        }
        let mut bytes = page_buffer(location.raw_bytes as usize);
        bytes.resize(location.raw_bytes as usize, 0);
        self.file.read_at(&mut bytes, offset).map_err(|error| self.read_error(offset, &error))?;
        let generation =
            bytes.get(8..16).map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
        let found = self.tag(&bytes, location.block, generation);
        if found != location.tag {
            let what = format!(
                "page at block {}: checksum {found:032x}, want {:032x}",
                location.block, location.tag
            );
            return Err(Error::damaged_data(&self.path, offset, what));
        }
        Page::decode(bytes, kind).map_err(|what| Error::damaged_data(&self.path, offset, what))
    }

    /// Byte offset of a block.
    #[must_use]
    pub fn offset(&self, block: u64) -> u64 {
        block.saturating_mul(self.block_bytes as u64)
    }

    fn read_error(&self, offset: u64, error: &std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            return Error::damaged_data(&self.path, offset, "the file ends before the page does");
        }
        Error::new(Code::System, format!("cannot read {} @ {offset:#x}: {error}", self.path.display()))
    }

    fn tag(&self, bytes: &[u8], block: u64, generation: u64) -> u128 {
        let mut seed = [0u8; 32];
        seed[..16].copy_from_slice(&self.database.0.to_le_bytes());
        seed[16..24].copy_from_slice(&block.to_le_bytes());
        seed[24..].copy_from_slice(&generation.to_le_bytes());
        xxh3_128_with_seed(bytes, xxh3_64_with_seed(&seed, 0x4455_5241_4d45_4e00))
    }
}
