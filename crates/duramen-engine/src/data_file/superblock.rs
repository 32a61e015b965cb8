//! The two superblocks: the identity of a database and its newest checkpoint. A pure codec.
//!
//! They lie in different blocks and are never written in one sync (D2, D3); `checkpoint::make_durable`
//! explains it.

use xxhash_rust::xxh3::xxh3_128;

use super::page_pointer::{POINTER_BYTES, PagePointer};
use super::sync_choice::{self, SYNC_CHOICE_BYTES, SyncChoice};
use crate::features::Features;
use crate::ids::{CommitSeq, DatabaseId, Generation, LogId, TreeId};
use crate::options::Geometry;
use crate::wal::LogPosition;

/// The format this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes of an encoded superblock, within one device sector.
pub const SUPERBLOCK_BYTES: usize = 512;

/// Byte offsets of the two. Generation g lies in slot g mod 2.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 16384];

const SUPERBLOCK_AREA_END: u64 = 32768;
const MAGIC: [u8; 8] = *b"DURAMEN\x1a";
const CHECKSUM_AT: usize = SUPERBLOCK_BYTES - 16;

/// Where the fields end: magic number, version, features; identities; numbers; pointers; sizes; the rest.
const FIELDS_END: usize = (8 + 4 + 3 * 8)
    + 2 * 16
    + (8 + LogPosition::ENCODED_BYTES + 8)
    + 3 * (1 + POINTER_BYTES)
    + 2 * 8
    + (5 * 4 + 2 * 8)
    + (1 + SYNC_CHOICE_BYTES);

const _: () = assert!(FIELDS_END <= CHECKSUM_AT, "the fields leave room for the checksum");
const _: () = assert!(SUPERBLOCK_BYTES <= 512, "a power cut tears no sector of a device");
const _: () = assert!(
    SUPERBLOCK_OFFSETS[0] + 4096 <= SUPERBLOCK_OFFSETS[1],
    "no write of one superblock reaches a sector of the other"
);
const _: () = assert!(
    SUPERBLOCK_OFFSETS[1] + SUPERBLOCK_BYTES as u64 <= SUPERBLOCK_AREA_END,
    "no page lies in a superblock"
);

/// The first block that pages may use.
#[must_use]
pub fn first_free_block(block_bytes: usize) -> u64 {
    SUPERBLOCK_AREA_END.div_ceil(block_bytes as u64)
}

/// A checkpoint's position in the data file, and what it needs of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Features that a writer must support. This build supports and sets none: it only reads such a database.
    pub write_features: u64,
    /// Features that every build must know to open the database.
    pub features: Features,
    /// Identity of the database.
    pub database: DatabaseId,
    /// Identity of its log.
    pub log: LogId,
    /// The number of the checkpoint.
    pub generation: Generation,
    /// Replay begins after this frame; the checkpoint contains everything up to its sequence.
    pub replay: LogPosition,
    /// The log must reach at least this sequence, else part of it is missing.
    pub marked: CommitSeq,
    /// Root of the tree of roots.
    pub roots: Option<PagePointer>,
    /// List of the space map's pages.
    pub space: Option<PagePointer>,
    /// The hot-page list of a clean shutdown.
    pub hot: Option<PagePointer>,
    /// Blocks from here on were unused at the checkpoint.
    pub end_block: u64,
    /// The least id of the next tree.
    pub next_tree: TreeId,
    /// Sizes, fixed at creation.
    pub geometry: Geometry,
    /// Whether the database was closed with nothing left to replay.
    pub clean: bool,
    /// The sync method chosen at creation, if one was.
    pub sync: Option<SyncChoice>,
}

struct Writer<'a> {
    out: &'a mut [u8; SUPERBLOCK_BYTES],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u32(&mut self, value: usize) {
        let value = u32::try_from(value).expect("sizes of a geometry fit 32 bits");
        self.put(&value.to_le_bytes());
    }

    fn pointer(&mut self, pointer: Option<&PagePointer>) {
        let mut bytes = vec![u8::from(pointer.is_some())];
        match pointer {
            Some(pointer) => pointer.encode(&mut bytes),
            None => bytes.extend_from_slice(&[0; POINTER_BYTES]),
        }
        self.put(&bytes);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes =
            self.bytes[self.at..self.at + N].try_into().expect("a superblock has room for its fields");
        self.at += N;
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }

    fn pointer(&mut self) -> Option<PagePointer> {
        let present = self.take::<1>()[0] != 0;
        let bytes: [u8; POINTER_BYTES] = self.take();
        if present { PagePointer::decode(&bytes) } else { None }
    }
}

impl Superblock {
    /// The encoded form.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut out = [0; SUPERBLOCK_BYTES];
        let mut w = Writer { out: &mut out, at: 0 };
        w.put(&MAGIC);
        w.put(&FORMAT_VERSION.to_le_bytes());
        // Compatible features: a writer clears those it does not know, since it would not maintain them.
        w.put(&[0; 8]);
        w.put(&self.write_features.to_le_bytes());
        w.put(&self.features.bits().to_le_bytes());
        w.put(&self.database.0.to_le_bytes());
        w.put(&self.log.0.to_le_bytes());
        w.put(&self.generation.0.to_le_bytes());
        w.put(&self.replay.encode());
        w.put(&self.marked.0.to_le_bytes());
        w.pointer(self.roots.as_ref());
        w.pointer(self.space.as_ref());
        w.pointer(self.hot.as_ref());
        w.put(&self.end_block.to_le_bytes());
        w.put(&self.next_tree.0.to_le_bytes());
        w.u32(self.geometry.block_bytes);
        w.u32(self.geometry.leaf_bytes_max);
        w.u32(self.geometry.inner_bytes_max);
        w.u32(self.geometry.big_value_bytes);
        w.u32(self.geometry.big_value_extent_bytes);
        w.put(&self.geometry.segment_bytes_min.to_le_bytes());
        w.put(&self.geometry.segment_bytes_max.to_le_bytes());
        w.put(&[u8::from(self.clean)]);
        w.put(&sync_choice::encode(self.sync.as_ref()));
        debug_assert_eq!(w.at, FIELDS_END);
        let checksum = xxh3_128(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the encoded form.
    ///
    /// # Errors
    /// [`SuperblockError`]: what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let superblock = Superblock::of_bytes(bytes)?;
        if superblock.is_plausible() { Ok(superblock) } else { Err(SuperblockError::Corrupt) }
    }

    /// Reads the encoded form, whether its numbers are plausible or not.
    fn of_bytes(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        if bytes.len() < SUPERBLOCK_BYTES || bytes[..8] != MAGIC {
            return Err(SuperblockError::NotOne);
        }
        let bytes = &bytes[..SUPERBLOCK_BYTES];
        let found = u128::from_le_bytes(bytes[CHECKSUM_AT..].try_into().expect("sixteen bytes"));
        if found != xxh3_128(&bytes[..CHECKSUM_AT]) {
            return Err(SuperblockError::Corrupt);
        }
        let mut r = Reader { bytes, at: 8 };
        let version = r.u32();
        if version != FORMAT_VERSION {
            return Err(SuperblockError::OtherFormat(version));
        }
        let _compatible = r.u64();
        let write_features = r.u64();
        let Some(features) = Features::from_bits(r.u64()) else {
            return Err(SuperblockError::OtherFeatures);
        };
        let superblock = Superblock {
            write_features,
            features,
            database: DatabaseId(r.u128()),
            log: LogId(r.u128()),
            generation: Generation(r.u64()),
            replay: LogPosition::decode(&r.take()),
            marked: CommitSeq(r.u64()),
            roots: r.pointer(),
            space: r.pointer(),
            hot: r.pointer(),
            end_block: r.u64(),
            next_tree: TreeId(r.u64()),
            geometry: Geometry {
                block_bytes: r.u32() as usize,
                leaf_bytes_max: r.u32() as usize,
                inner_bytes_max: r.u32() as usize,
                big_value_bytes: r.u32() as usize,
                big_value_extent_bytes: r.u32() as usize,
                segment_bytes_min: r.u64(),
                segment_bytes_max: r.u64(),
            },
            clean: r.take::<1>()[0] != 0,
            sync: sync_choice::decode(&r.take()),
        };
        debug_assert_eq!(r.at, FIELDS_END);
        Ok(superblock)
    }

    /// Whether bytes that [`Superblock::encode`] returned hold what they should. Implausible numbers count:
    /// those of a hostile file may be one below the bound.
    pub(crate) fn reads_back(&self, bytes: &[u8]) -> bool {
        Superblock::of_bytes(bytes).as_ref() == Ok(self)
    }

    /// Whether its sizes are consistent, and its numbers leave room for later ones.
    fn is_plausible(&self) -> bool {
        let Superblock { geometry, generation, replay, marked, next_tree, .. } = self;
        geometry.is_sound()
            && generation.is_plausible()
            && replay.seq.is_plausible()
            && replay.epoch.is_plausible()
            && marked.is_plausible()
            && next_tree.is_plausible()
    }
}

/// Why bytes are not a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuperblockError {
    /// They lack the magic number.
    NotOne,
    /// They have the magic number but not the right checksum, or contradictory values.
    Corrupt,
    /// They are of another format version.
    OtherFormat(u32),
    /// They need features that this build does not have.
    OtherFeatures,
}
