//! The bytes of a retained file: its header and the headers of its frames. Encoding and decoding only.
//!
//! D4 rests here. A frame's checksum covers its bytes and is seeded with database, log, file and offset; each
//! frame contains the checksum of the one before it. Format: docs/format.md, "The change feed".

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128, xxh3_128_with_seed};

use crate::alarm::invariant;
use crate::ids::{CommitSeq, DatabaseId, LogId};
use crate::limits::FEED_FRAME_BYTES;
use crate::wal::LogIdentity;

/// Bytes of a file's header; zeroes fill its block.
pub(super) const FILE_HEADER_BYTES: usize = 96;

/// Bytes of a frame's header.
pub(super) const FRAME_HEADER_BYTES: usize = 64;

const FILE_MAGIC: [u8; 8] = *b"DURAMFED";
const FRAME_MAGIC: [u8; 4] = *b"DuFe";
const VERSION: u32 = 1;
const WHOLE: u32 = 1;
const CHECKSUM_AT: usize = FILE_HEADER_BYTES - 16;

/// The smallest and the largest block that a file can have.
const BLOCK_RANGE: RangeInclusive<u32> = 512..=65536;

const _: () =
    assert!(FILE_HEADER_BYTES <= *BLOCK_RANGE.start() as usize, "a file's header lies in one block");
const _: () =
    assert!(FRAME_HEADER_BYTES <= *BLOCK_RANGE.start() as usize, "a frame's header lies in one block");
// Version and features; number and position; block; codec and key id.
const _: () = assert!(
    FILE_MAGIC.len()
        + 2 * size_of::<u32>()
        + size_of::<LogIdentity>()
        + 2 * size_of::<u64>()
        + size_of::<u32>()
        + 12
        == CHECKSUM_AT,
    "the checksum follows the fields of a file's header"
);
// Flags, payload, room; position and time; checksum of the one before.
const _: () = assert!(
    FRAME_HEADER_BYTES
        == size_of::<u128>()
            + FRAME_MAGIC.len()
            + 3 * size_of::<u32>()
            + 2 * size_of::<u64>()
            + size_of::<u128>(),
    "a frame's header is its checksum and its fields"
);
const _: () = assert!(FEED_FRAME_BYTES <= u32::MAX as usize, "the header of a frame holds its length");

/// The header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// The database and log of the changes.
    pub identity: LogIdentity,
    /// Its number, from 1.
    pub number: u64,
    /// Frames begin at multiples of this.
    pub block_bytes: u32,
    /// It holds every change after this commit.
    pub after: CommitSeq,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Bytes after the header.
    pub payload_bytes: u32,
    /// Whether it ends a commit.
    pub whole: bool,
    /// The file holds every change up to this commit at the frame's end, if `whole`.
    pub through: CommitSeq,
    /// Commit time of the newest commit in the file at its end; 0 if there is none.
    pub time_ns: u64,
    /// Checksum of the frame before it, or of the file's header.
    pub previous: u128,
}

/// Why bytes are not a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Intact, but of a later release.
    Later(u32),
    /// Anything else.
    Bad(String),
}

/// The path of a file number.
pub(super) fn file_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:012}.feed"))
}

/// The number that a file name stands for, if it is the name of a retained file.
pub(super) fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(".feed")?;
    let number = digits.parse().ok()?;
    (number > 0 && number < u64::MAX / 2 && format!("{number:012}") == digits).then_some(number)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    bytes.get(offset..offset + 16).and_then(|b| b.try_into().ok()).map_or(0, u128::from_le_bytes)
}

impl FileHeader {
    /// The header's bytes, and its checksum.
    pub(crate) fn encode(&self) -> (Vec<u8>, u128) {
        let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
        out.extend_from_slice(&FILE_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        // Features that a reader must support: none yet.
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&self.identity.database.0.to_le_bytes());
        out.extend_from_slice(&self.identity.log.0.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.after.0.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        // Codec and key id of a later release.
        out.resize(CHECKSUM_AT, 0);
        let checksum = xxh3_128(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        (out, checksum)
    }

    /// Reads a header and its checksum. The caller checks whether it belongs to this database.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(FileHeader, u128), Fault> {
        if bytes.len() < FILE_HEADER_BYTES || bytes[..8] != FILE_MAGIC {
            return Err(Fault::Bad("no header of a feed file".to_owned()));
        }
        let (found, wanted) = (u128_at(bytes, CHECKSUM_AT), xxh3_128(&bytes[..CHECKSUM_AT]));
        if found != wanted {
            return Err(Fault::Bad(format!("header checksum {found:032x}, want {wanted:032x}")));
        }
        let version = u32_at(bytes, 8);
        let reserved = &bytes[68..CHECKSUM_AT];
        if version != VERSION || u32_at(bytes, 12) != 0 || reserved.iter().any(|byte| *byte != 0) {
            return Err(Fault::Later(version));
        }
        let block_bytes = u32_at(bytes, 64);
        if !block_bytes.is_power_of_two() || !BLOCK_RANGE.contains(&block_bytes) {
            return Err(Fault::Bad(format!("frames in blocks of {block_bytes} bytes, want 512 to 65536")));
        }
        let header = FileHeader {
            identity: LogIdentity {
                database: DatabaseId(u128_at(bytes, 16)),
                log: LogId(u128_at(bytes, 32)),
            },
            number: u64_at(bytes, 48),
            after: CommitSeq(u64_at(bytes, 56)),
            block_bytes,
        };
        Ok((header, found))
    }
}

/// The position of a frame: part of its checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct FramePlace {
    /// Database and log.
    pub identity: LogIdentity,
    /// Number of the file.
    pub number: u64,
    /// Offset in the file.
    pub offset: u64,
}

impl FramePlace {
    fn checksum(&self, covered: &[u8]) -> u128 {
        let mut seed = Vec::with_capacity(48);
        seed.extend_from_slice(&self.identity.database.0.to_le_bytes());
        seed.extend_from_slice(&self.identity.log.0.to_le_bytes());
        seed.extend_from_slice(&self.number.to_le_bytes());
        seed.extend_from_slice(&self.offset.to_le_bytes());
        xxh3_128_with_seed(covered, xxh3_64(&seed))
    }
}

impl FrameHeader {
    /// Header and payload as bytes, and their checksum.
    pub(super) fn encode(&self, payload: &[u8], place: &FramePlace) -> (Vec<u8>, u128) {
        invariant!(
            self.payload_bytes as usize == payload.len() && payload.len() <= FEED_FRAME_BYTES,
            "a frame of {} bytes is announced as one of {}",
            payload.len(),
            self.payload_bytes
        );
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&FRAME_MAGIC);
        out.extend_from_slice(&(if self.whole { WHOLE } else { 0 }).to_le_bytes());
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&self.through.0.to_le_bytes());
        out.extend_from_slice(&self.time_ns.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.extend_from_slice(payload);
        let checksum = place.checksum(&out[16..]);
        out[..16].copy_from_slice(&checksum.to_le_bytes());
        (out, checksum)
    }

    /// Reads a frame's header; its payload must not exceed `payload_bytes_max`. [`FrameHeader::verify`]
    /// checks the rest.
    pub(super) fn decode(bytes: &[u8], payload_bytes_max: u64) -> Result<FrameHeader, String> {
        if bytes.len() < FRAME_HEADER_BYTES || bytes[16..20] != FRAME_MAGIC {
            return Err("no frame begins here".to_owned());
        }
        let flags = u32_at(bytes, 20);
        let payload_bytes = u32_at(bytes, 24);
        if flags & !WHOLE != 0 || u32_at(bytes, 28) != 0 || u64::from(payload_bytes) > payload_bytes_max {
            return Err("the frame's header makes no sense".to_owned());
        }
        Ok(FrameHeader {
            payload_bytes,
            whole: flags & WHOLE != 0,
            through: CommitSeq(u64_at(bytes, 32)),
            time_ns: u64_at(bytes, 40),
            previous: u128_at(bytes, 48),
        })
    }

    /// Checks a whole frame, header and payload, and returns its checksum.
    pub(super) fn verify(bytes: &[u8], place: &FramePlace) -> Result<u128, String> {
        let (found, wanted) = (u128_at(bytes, 0), place.checksum(&bytes[16..]));
        if found == wanted {
            Ok(found)
        } else {
            Err(format!("frame checksum {found:032x}, want {wanted:032x}"))
        }
    }
}
