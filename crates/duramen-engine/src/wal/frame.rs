//! The frame: the format of one group of commits on disk. Encoding and decoding only.
//!
//! D4 rests on the checksum. Its seed is database, log, epoch, incarnation and offset, so a frame of another
//! place, time or database does not verify. It covers the list of part checksums, and through them the parts.
//! Format: docs/format.md, "The log".

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use super::LogIdentity;
use super::layout::{BLOCK_BYTES_MIN, Flaw, expect_zero, put, to_usize, u16_at, u32_at, u64_at, u128_at};
use crate::ids::{CommitSeq, Epoch};

/// Bytes of a frame before its table of parts.
pub(super) const FRAME_HEADER_BYTES: usize = STORED_HEADER_BYTES as usize;

/// The same, as stored in the header.
const STORED_HEADER_BYTES: u16 = 160;

/// Bytes of one entry in the table of parts.
pub(super) const PART_ENTRY_BYTES: usize = 40;

const MAGIC: [u8; 4] = *b"DuFr";
const MAGIC_AT: usize = 16;
const CHECKSUM_BYTES: usize = 16;

const PART_FIRST: u32 = 1;
const PART_LAST: u32 = 2;
const PART_DERIVED: u32 = 4;

const _: () =
    assert!(FRAME_HEADER_BYTES <= BLOCK_BYTES_MIN, "a frame's header lies in one block of any size");
const _: () = assert!(MAGIC_AT == CHECKSUM_BYTES, "the magic follows the checksum");
// Kind, sizes and codec; six numbers and the time; key id and nonce; incarnation and previous checksum; room.
const _: () = assert!(
    FRAME_HEADER_BYTES
        == MAGIC_AT + MAGIC.len() + 12 + 7 * size_of::<u64>() + 24 + 2 * size_of::<u128>() + 16,
    "a frame's header is its fields"
);
const _: () = assert!(
    PART_ENTRY_BYTES == 2 * size_of::<u64>() + 2 * size_of::<u32>() + CHECKSUM_BYTES,
    "an entry of the table is its fields"
);
const _: () = assert!(
    PART_FIRST + PART_LAST + PART_DERIVED == PART_FIRST | PART_LAST | PART_DERIVED,
    "each flag of a part is a bit of its own"
);

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Carries parts of records.
    Group,
    /// Carries no parts, only the durable watermark.
    Mark,
}

/// The fields of a frame's header, without its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) part_count: u32,
    /// Bytes of the parts together, after the table.
    pub(super) payload_bytes: u64,
    pub(super) epoch: Epoch,
    /// Offset of the frame in its segment.
    pub(super) offset: u64,
    /// Sequence of the first part; of the next commit, in a mark.
    pub(super) first_seq: CommitSeq,
    /// The last commit that is complete at the end of this frame.
    pub(super) last_seq: CommitSeq,
    /// The durable watermark: the last commit known durable when this frame was written.
    pub(super) durable_seq: CommitSeq,
    /// Wall clock, never less than that of the frame before.
    pub(super) commit_time_ns: u64,
    /// Drawn at each open for writing.
    pub(super) incarnation: u128,
    /// Checksum of the frame before this one.
    pub(super) previous_checksum: u128,
}

/// One entry of the table: a record, or a piece of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bytes: u64,
    pub(super) seq: CommitSeq,
    pub(super) first: bool,
    pub(super) last: bool,
    pub(super) derived: bool,
    pub(super) checksum: u128,
}

/// Bytes from the frame's beginning to its first part.
pub(super) fn head_bytes(part_count: u32) -> u64 {
    FRAME_HEADER_BYTES as u64 + u64::from(part_count) * PART_ENTRY_BYTES as u64
}

impl FrameHeader {
    /// Bytes of the frame without the padding to the next block.
    pub(super) fn frame_bytes(&self) -> u64 {
        head_bytes(self.part_count) + self.payload_bytes
    }
}

/// Whether a block may begin a frame: a cheap test before [`decode_header`].
pub(super) fn has_magic(block: &[u8]) -> bool {
    block.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(&MAGIC[..])
}

/// Header and table as bytes, and their checksum. The parts follow them on disk.
pub(super) fn encode(header: &FrameHeader, parts: &[Part], identity: &LogIdentity) -> (Vec<u8>, u128) {
    debug_assert!(
        parts.iter().map(|part| part.bytes).sum::<u64>() == header.payload_bytes,
        "the parts add up to the payload"
    );
    let mut bytes = vec![0; FRAME_HEADER_BYTES + parts.len() * PART_ENTRY_BYTES];
    put(&mut bytes, MAGIC_AT, &MAGIC);
    bytes[20] = match header.kind {
        FrameKind::Group => 1,
        FrameKind::Mark => 2,
    };
    put(&mut bytes, 22, &STORED_HEADER_BYTES.to_le_bytes());
    put(&mut bytes, 24, &header.part_count.to_le_bytes());
    put(&mut bytes, 32, &header.payload_bytes.to_le_bytes());
    put(&mut bytes, 40, &header.epoch.0.to_le_bytes());
    put(&mut bytes, 48, &header.offset.to_le_bytes());
    put(&mut bytes, 56, &header.first_seq.0.to_le_bytes());
    put(&mut bytes, 64, &header.last_seq.0.to_le_bytes());
    put(&mut bytes, 72, &header.durable_seq.0.to_le_bytes());
    put(&mut bytes, 80, &header.commit_time_ns.to_le_bytes());
    put(&mut bytes, 112, &header.incarnation.to_le_bytes());
    put(&mut bytes, 128, &header.previous_checksum.to_le_bytes());
    for (part, entry) in parts.iter().zip(bytes[FRAME_HEADER_BYTES..].chunks_exact_mut(PART_ENTRY_BYTES)) {
        encode_part(part, entry);
    }
    let checksum = checksum_of(&bytes[CHECKSUM_BYTES..], header, identity);
    put(&mut bytes, 0, &checksum.to_le_bytes());
    (bytes, checksum)
}

/// Reads the fixed part of a frame that has at most `room_bytes` left in its segment.
///
/// Checks structure only, so that sizes are safe to allocate; [`verify`] checks the checksum.
pub(super) fn decode_header(bytes: &[u8], room_bytes: u64) -> Result<FrameHeader, Flaw> {
    if bytes.len() < FRAME_HEADER_BYTES || !has_magic(bytes) {
        return Err(Flaw::new("no frame begins here"));
    }
    let kind = match bytes[20] {
        1 => FrameKind::Group,
        2 => FrameKind::Mark,
        other => return Err(Flaw(format!("kind of frame {other}, want 1 or 2"))),
    };
    let header_bytes = u16_at(bytes, 22);
    if header_bytes != STORED_HEADER_BYTES {
        return Err(Flaw(format!("header of {header_bytes} bytes, want {FRAME_HEADER_BYTES}")));
    }
    expect_zero(bytes, 21, 22, "a flag")?;
    expect_zero(bytes, 28, 32, "a codec")?;
    expect_zero(bytes, 88, 112, "a key or nonce")?;
    expect_zero(bytes, 144, 160, "reserved room")?;
    let header = FrameHeader {
        kind,
        part_count: u32_at(bytes, 24),
        payload_bytes: u64_at(bytes, 32),
        epoch: Epoch(u64_at(bytes, 40)),
        offset: u64_at(bytes, 48),
        first_seq: CommitSeq(u64_at(bytes, 56)),
        last_seq: CommitSeq(u64_at(bytes, 64)),
        durable_seq: CommitSeq(u64_at(bytes, 72)),
        commit_time_ns: u64_at(bytes, 80),
        incarnation: u128_at(bytes, 112),
        previous_checksum: u128_at(bytes, 128),
    };
    let fits =
        head_bytes(header.part_count).checked_add(header.payload_bytes).is_some_and(|all| all <= room_bytes);
    if !fits {
        return Err(Flaw::new("the frame is longer than its segment"));
    }
    if !header.epoch.is_plausible() || !header.last_seq.is_plausible() {
        return Err(Flaw::new("an epoch or a commit that no log has come to"));
    }
    if (kind == FrameKind::Mark) != (header.part_count == 0) || header.durable_seq > header.last_seq {
        return Err(Flaw::new("the frame contradicts itself"));
    }
    Ok(header)
}

/// Checks header and table against the checksum and returns checksum and parts.
///
/// `bytes` must begin with the header that gave `header`; it may be longer than header and table.
pub(super) fn verify(
    bytes: &[u8],
    header: &FrameHeader,
    identity: &LogIdentity,
) -> Result<(u128, Vec<Part>), Flaw> {
    let head = to_usize(head_bytes(header.part_count));
    let Some(bytes) = bytes.get(..head) else {
        return Err(Flaw::new("the table of parts is cut off"));
    };
    let found = u128_at(bytes, 0);
    let wanted = checksum_of(&bytes[CHECKSUM_BYTES..], header, identity);
    if found != wanted {
        return Err(Flaw(format!("frame checksum {found:032x}, want {wanted:032x}")));
    }
    let mut parts = Vec::with_capacity(bytes.len() / PART_ENTRY_BYTES);
    let mut payload_bytes = 0u64;
    for entry in bytes[FRAME_HEADER_BYTES..].chunks_exact(PART_ENTRY_BYTES) {
        let part = decode_part(entry)?;
        payload_bytes = payload_bytes.saturating_add(part.bytes);
        parts.push(part);
    }
    if payload_bytes != header.payload_bytes {
        return Err(Flaw(format!("parts of {payload_bytes} bytes, want {}", header.payload_bytes)));
    }
    Ok((found, parts))
}

fn encode_part(part: &Part, entry: &mut [u8]) {
    let mut flags = 0;
    for (set, flag) in [(part.first, PART_FIRST), (part.last, PART_LAST), (part.derived, PART_DERIVED)] {
        flags |= if set { flag } else { 0 };
    }
    put(entry, 0, &part.bytes.to_le_bytes());
    put(entry, 8, &part.seq.0.to_le_bytes());
    put(entry, 16, &flags.to_le_bytes());
    put(entry, 24, &part.checksum.to_le_bytes());
}

fn decode_part(entry: &[u8]) -> Result<Part, Flaw> {
    let flags = u32_at(entry, 16);
    if flags & !(PART_FIRST | PART_LAST | PART_DERIVED) != 0 || u32_at(entry, 20) != 0 {
        return Err(Flaw(format!("flags of a part {flags:#x}, which this release cannot read")));
    }
    Ok(Part {
        bytes: u64_at(entry, 0),
        seq: CommitSeq(u64_at(entry, 8)),
        first: flags & PART_FIRST != 0,
        last: flags & PART_LAST != 0,
        derived: flags & PART_DERIVED != 0,
        checksum: u128_at(entry, 24),
    })
}

/// The seed binds the frame to its database, log, incarnation, epoch and offset.
fn checksum_of(covered: &[u8], header: &FrameHeader, identity: &LogIdentity) -> u128 {
    let mut seed = [0; 64];
    put(&mut seed, 0, &identity.database.0.to_le_bytes());
    put(&mut seed, 16, &identity.log.0.to_le_bytes());
    put(&mut seed, 32, &header.incarnation.to_le_bytes());
    put(&mut seed, 48, &header.epoch.0.to_le_bytes());
    put(&mut seed, 56, &header.offset.to_le_bytes());
    xxh3_128_with_seed(covered, xxh3_64(&seed))
}
