//! The segment: the names of its files and the header in its first block. Encoding and decoding only.
//!
//! D4 and D9 rest here. A header names database, log, slot and version. A file of another database, a
//! misnamed file and a file of a later release are therefore reported as such. Format: docs/format.md, "The
//! log".

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::File;
use xxhash_rust::xxh3::xxh3_128;

use super::layout::{BLOCK_BYTES_MIN, Flaw, expect_zero, put, u32_at, u64_at, u128_at};
use super::{LogIdentity, LogPosition, SegmentSlot};
use crate::ids::{CommitSeq, DatabaseId, Epoch, LogId};

/// Bytes of the header; the rest of its block is zero.
pub(super) const SEGMENT_HEADER_BYTES: usize = STORED_HEADER_BYTES as usize;

/// The same, as stored in the header.
const STORED_HEADER_BYTES: u32 = 256;

const MAGIC: [u8; 8] = *b"DURAMWAL";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = SEGMENT_HEADER_BYTES - 16;

const _: () =
    assert!(SEGMENT_HEADER_BYTES <= BLOCK_BYTES_MIN, "the header lies in the first block of any size");
// Version, size, three classes of features, block; size, slot, epoch, first; database, log and incarnation;
// the previous frame; the watermark; codec, key id, nonce; room.
const _: () = assert!(
    MAGIC.len()
        + 6 * size_of::<u32>()
        + 4 * size_of::<u64>()
        + size_of::<LogIdentity>()
        + size_of::<u128>()
        + (size_of::<u128>() + 2 * size_of::<u64>())
        + size_of::<CommitSeq>()
        + 32
        + 56
        == CHECKSUM_AT,
    "the checksum follows the fields of a segment's header"
);
const _: () =
    assert!(SEGMENT_HEADER_BYTES == CHECKSUM_AT + size_of::<u128>(), "the checksum ends the header");

/// The epoch of a segment with durable zeroes that was never used.
pub(super) const EPOCH_NONE: Epoch = Epoch(0);

/// An open segment file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) slot: SegmentSlot,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) file: Arc<dyn File>,
}

/// The contents of a segment's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) identity: LogIdentity,
    pub(super) slot: SegmentSlot,
    /// [`EPOCH_NONE`] in a segment prepared and never used.
    pub(super) epoch: Epoch,
    pub(super) incarnation: u128,
    pub(super) segment_bytes: u64,
    pub(super) block_bytes: u32,
    /// The lowest sequence a frame of this segment may carry.
    pub(super) first_seq: CommitSeq,
    /// The last commit known durable when the header was written.
    pub(super) durable_seq: CommitSeq,
    /// The frame that precedes the segment's first.
    pub(super) previous: PreviousFrame,
}

/// The frame that a segment continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PreviousFrame {
    pub(super) epoch: Epoch,
    pub(super) offset: u64,
    pub(super) checksum: u128,
}

impl From<LogPosition> for PreviousFrame {
    fn from(position: LogPosition) -> PreviousFrame {
        PreviousFrame { epoch: position.epoch, offset: position.offset, checksum: position.checksum }
    }
}

/// Why a first block is not a header of this format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// All zeroes: creation of the file was cut short.
    Blank,
    /// Intact, but of a later release.
    Later(u32),
    /// Anything else.
    Corrupt(Flaw),
}

/// The path of a slot's file.
pub(super) fn segment_path(dir: &Path, slot: SegmentSlot) -> PathBuf {
    dir.join(format!("{:08}.wal", slot.0))
}

/// The slot that a file name stands for, if it is the name of a segment.
pub(super) fn slot_of(path: &Path) -> Option<SegmentSlot> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(".wal")?;
    if digits.len() < 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let slot = SegmentSlot(digits.parse().ok()?);
    (slot.0 > 0 && format!("{:08}", slot.0) == digits).then_some(slot)
}

impl SegmentHeader {
    /// The header's bytes, without the zeroes that fill its block.
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 12, &STORED_HEADER_BYTES.to_le_bytes());
        put(&mut bytes, 28, &self.block_bytes.to_le_bytes());
        put(&mut bytes, 32, &self.segment_bytes.to_le_bytes());
        put(&mut bytes, 40, &self.slot.0.to_le_bytes());
        put(&mut bytes, 48, &self.epoch.0.to_le_bytes());
        put(&mut bytes, 56, &self.first_seq.0.to_le_bytes());
        put(&mut bytes, 64, &self.identity.database.0.to_le_bytes());
        put(&mut bytes, 80, &self.identity.log.0.to_le_bytes());
        put(&mut bytes, 96, &self.incarnation.to_le_bytes());
        put(&mut bytes, 112, &self.previous.checksum.to_le_bytes());
        put(&mut bytes, 128, &self.previous.epoch.0.to_le_bytes());
        put(&mut bytes, 136, &self.previous.offset.to_le_bytes());
        put(&mut bytes, 144, &self.durable_seq.0.to_le_bytes());
        let checksum = xxh3_128(&bytes[..CHECKSUM_AT]);
        put(&mut bytes, CHECKSUM_AT, &checksum.to_le_bytes());
        bytes
    }

    /// Reads a header. The caller checks whether it belongs to this database.
    pub(super) fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(HeaderFault::Blank);
        }
        if bytes.len() < SEGMENT_HEADER_BYTES || bytes[..MAGIC.len()] != MAGIC {
            return Err(HeaderFault::Corrupt(Flaw::new("no segment header")));
        }
        // The checksum has the same offset in every version, so that a later format is not reported as
        // corruption.
        let found = u128_at(bytes, CHECKSUM_AT);
        let wanted = xxh3_128(&bytes[..CHECKSUM_AT]);
        if found != wanted {
            let flaw = Flaw(format!("header checksum {found:032x}, want {wanted:032x}"));
            return Err(HeaderFault::Corrupt(flaw));
        }
        let version = u32_at(bytes, 8);
        let incompatible = u32_at(bytes, 24);
        if version != VERSION || incompatible != 0 {
            return Err(HeaderFault::Later(version));
        }
        if u32_at(bytes, 12) != STORED_HEADER_BYTES {
            return Err(HeaderFault::Corrupt(Flaw(format!("header of {} bytes", u32_at(bytes, 12)))));
        }
        // Codec, key id and nonce: a file with these set is of a later release.
        expect_zero(bytes, 152, 184, "a codec or key").map_err(|_| HeaderFault::Later(version))?;
        let numbers = [u64_at(bytes, 48), u64_at(bytes, 56), u64_at(bytes, 128), u64_at(bytes, 144)];
        if !numbers.into_iter().all(|number| Epoch(number).is_plausible()) {
            return Err(HeaderFault::Corrupt(Flaw::new("an epoch or a commit that no log has come to")));
        }
        Ok(SegmentHeader {
            identity: LogIdentity {
                database: DatabaseId(u128_at(bytes, 64)),
                log: LogId(u128_at(bytes, 80)),
            },
            slot: SegmentSlot(u64_at(bytes, 40)),
            epoch: Epoch(u64_at(bytes, 48)),
            incarnation: u128_at(bytes, 96),
            segment_bytes: u64_at(bytes, 32),
            block_bytes: u32_at(bytes, 28),
            first_seq: CommitSeq(u64_at(bytes, 56)),
            durable_seq: CommitSeq(u64_at(bytes, 144)),
            previous: PreviousFrame {
                epoch: Epoch(u64_at(bytes, 128)),
                offset: u64_at(bytes, 136),
                checksum: u128_at(bytes, 112),
            },
        })
    }
}
