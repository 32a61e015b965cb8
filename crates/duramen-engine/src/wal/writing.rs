//! One write of the log: builds the frames of a group and writes them to their segments.
//!
//! Works on a copy of the log's end, which replaces the end only if all writes succeeded. A write that failed
//! without taking a byte therefore has nothing to undo (D6).

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, DurableWriteError};
use xxhash_rust::xxh3::xxh3_128;

use super::buffer::{AlignedBuffer, SliceWriter};
use super::frame::{self, FrameHeader, FrameKind, Part};
use super::layout::to_usize;
use super::place::{Piece, Place};
use super::segment::{Segment, SegmentHeader};
use super::spare::{SegmentFactory, block_bytes};
use super::state::{Head, UsedSegment};
use super::{Group, LogPosition, LogWriteError};
use crate::alarm::invariant;
use crate::error::{Error, ErrorKind};
use crate::ids::CommitSeq;

/// How a write of frames ended.
pub(super) enum Outcome {
    /// Everything is written; `durable` if a single durable write did it.
    Written { durable: bool },
    /// Something failed; `bytes_taken` if bytes may have reached the log.
    Failed { error: DurableWriteError, bytes_taken: bool },
}

/// A group while it is written.
pub(super) struct Writing<'a> {
    pub(super) factory: SegmentFactory<'a>,
    pub(super) group: &'a Group<'a>,
    /// Use one durable write if the group needs only one write.
    pub(super) durable: bool,
    /// The end of the log as of the last frame built.
    pub(super) head: Head,
    /// Segments begun.
    pub(super) fresh: Vec<UsedSegment>,
    /// Segments written to, in order.
    pub(super) touched: Vec<Arc<Segment>>,
    pub(super) bytes: u64,
    pub(super) write_count: u64,
}

impl Writing<'_> {
    /// Writes one frame for each place; `rooms[n - 1]` is the fresh segment of room `n`.
    pub(super) fn run(
        &mut self,
        places: &[Place],
        rooms: &[Arc<Segment>],
        buffer: &mut AlignedBuffer,
    ) -> Outcome {
        let mut durable = false;
        for place in places {
            let fresh = place.room_index.checked_sub(1).map(|index| &rooms[index]);
            match self.write_frame(&place.pieces, fresh, buffer) {
                Ok(is_durable) => durable = is_durable,
                Err(error) => {
                    let maybe = match &error {
                        DurableWriteError::Write(error) => error.may_be_partial,
                        DurableWriteError::Sync(_) => true,
                    };
                    let bytes_taken = maybe || self.write_count > 0;
                    return Outcome::Failed { error, bytes_taken };
                }
            }
        }
        Outcome::Written { durable }
    }

    fn write_frame(
        &mut self,
        pieces: &[Piece],
        fresh: Option<&Arc<Segment>>,
        buffer: &mut AlignedBuffer,
    ) -> Result<bool, DurableWriteError> {
        let block = self.factory.geometry.block_bytes;
        let first_block = fresh.map(|segment| self.begin_segment(segment));
        let (header, parts) = self.describe(pieces);
        let (head, checksum) = frame::encode(&header, &parts, &self.factory.identity);
        let frame_bytes = header.frame_bytes().next_multiple_of(block as u64);
        let segment = Arc::clone(&self.head.segment);
        let begin = self.head.offset;
        invariant!(
            begin >= block as u64 && begin.is_multiple_of(block as u64),
            "a frame begins with a block after the first, not at {begin:#x}"
        );
        invariant!(
            frame_bytes <= segment.bytes - begin,
            "a frame of {frame_bytes} bytes at {begin:#x} fits into {} bytes",
            segment.bytes
        );
        if self.touched.last().is_none_or(|last| last.slot != segment.slot) {
            self.touched.push(Arc::clone(&segment));
        }

        // Header block and first frame are one write, so that a new segment costs a single group nothing.
        let lead = first_block.as_deref().unwrap_or(&[]);
        invariant!(
            lead.is_empty() || lead.len() as u64 == begin,
            "the header of a segment ends where its first frame begins, at {begin:#x}"
        );
        buffer.prepare(frame_bytes + lead.len() as u64);
        let mut writer = SliceWriter::new(&*segment.file, buffer, begin - lead.len() as u64);
        let sent = send(&mut writer, lead, &head, pieces, self.group).and_then(|()| {
            writer.push_zeroes(to_usize(frame_bytes - header.frame_bytes()))?;
            invariant!(
                writer.end() == begin + frame_bytes,
                "the parts of a frame of {frame_bytes} bytes add up to it"
            );
            writer.finish(self.durable)
        });
        self.write_count += writer.write_count;
        let durable = sent?;

        self.bytes += frame_bytes + lead.len() as u64;
        self.head.last = LogPosition {
            slot: segment.slot,
            epoch: header.epoch,
            offset: header.offset,
            seq: header.last_seq,
            checksum,
        };
        self.head.offset += frame_bytes;
        Ok(durable)
    }

    /// Moves the end to a fresh segment and returns its first block.
    fn begin_segment(&mut self, segment: &Arc<Segment>) -> Vec<u8> {
        self.head.epoch = self.head.epoch.next();
        self.head.segment = Arc::clone(segment);
        self.head.offset = self.factory.geometry.block_bytes as u64;
        self.fresh.push(UsedSegment { epoch: self.head.epoch, segment: Arc::clone(segment) });
        let header = header_of(&self.factory, &self.head, self.group.durable);
        self.factory.first_block(&header)
    }

    /// Header and table of the next frame.
    fn describe(&self, pieces: &[Piece]) -> (FrameHeader, Vec<Part>) {
        let parts: Vec<Part> = pieces.iter().map(|piece| self.part_of(piece)).collect();
        let seq_before = self.head.last.seq;
        let header = FrameHeader {
            kind: if parts.is_empty() { FrameKind::Mark } else { FrameKind::Group },
            part_count: u32::try_from(parts.len()).expect("check_group bounds the records of a group"),
            payload_bytes: parts.iter().map(|part| part.bytes).sum(),
            epoch: self.head.epoch,
            offset: self.head.offset,
            first_seq: parts.first().map_or(seq_before.next(), |part| part.seq),
            last_seq: parts.iter().rfind(|part| part.last).map_or(seq_before, |part| part.seq),
            durable_seq: self.group.durable,
            commit_time_ns: self.head.commit_time_ns,
            incarnation: self.head.incarnation,
            previous_checksum: self.head.last.checksum,
        };
        // What `Chain` checks when it reads the frame.
        invariant!(
            header.first_seq == seq_before.next(),
            "a frame begins with commit {} after {seq_before}",
            header.first_seq
        );
        let ended = header.last_seq.0.checked_sub(seq_before.0);
        invariant!(
            ended.is_some_and(|ended| ended <= u64::from(header.part_count)),
            "a frame of {} parts ends commit {} after {seq_before}",
            header.part_count,
            header.last_seq
        );
        invariant!(
            header.durable_seq <= seq_before,
            "a frame after commit {seq_before} calls commit {} durable",
            header.durable_seq
        );
        (header, parts)
    }

    fn part_of(&self, piece: &Piece) -> Part {
        let record = &self.group.records[piece.record];
        let bytes = &record.bytes[piece.start..piece.end];
        let is_whole = bytes.len() == record.bytes.len();
        Part {
            bytes: bytes.len() as u64,
            seq: record.seq,
            first: piece.start == 0,
            last: piece.last,
            derived: record.derived,
            checksum: if is_whole { record.checksum } else { xxh3_128(bytes) },
        }
    }
}

fn send(
    writer: &mut SliceWriter<'_>,
    lead: &[u8],
    head: &[u8],
    pieces: &[Piece],
    group: &Group<'_>,
) -> Result<(), DurableWriteError> {
    writer.push(lead)?;
    writer.push(head)?;
    for piece in pieces {
        writer.push(&group.records[piece.record].bytes[piece.start..piece.end])?;
    }
    Ok(())
}

/// The header of the segment that `head` has just moved to.
pub(super) fn header_of(factory: &SegmentFactory<'_>, head: &Head, durable: CommitSeq) -> SegmentHeader {
    SegmentHeader {
        identity: factory.identity,
        slot: head.segment.slot,
        epoch: head.epoch,
        incarnation: head.incarnation,
        segment_bytes: head.segment.bytes,
        block_bytes: block_bytes(&factory.geometry),
        first_seq: head.last.seq.next(),
        durable_seq: durable,
        previous: head.last.into(),
    }
}

/// Refuses a group that does not continue the log.
pub(super) fn check_group(group: &Group<'_>, last: CommitSeq) -> Result<(), Error> {
    if u32::try_from(group.records.len()).is_err() {
        return Err(Error::invalid("a group holds fewer than 2^32 commits"));
    }
    if group.durable > last {
        return Err(Error::invalid(format!(
            "commit {} is called durable and the log ends at {last}",
            group.durable
        )));
    }
    let mut wanted = last;
    for record in group.records {
        wanted = wanted.next();
        if record.seq != wanted {
            return Err(Error::invalid(format!("commit {} follows in the log, want {wanted}", record.seq)));
        }
    }
    Ok(())
}

/// The caller's error for a failed write.
pub(super) fn failure_of(path: &Path, error: DurableWriteError, bytes_taken: bool) -> LogWriteError {
    let error = match error {
        DurableWriteError::Write(error) => Error::io("write", path, &error.source),
        DurableWriteError::Sync(error) => Error::io("sync", path, &error),
    };
    match error.kind() {
        _ if bytes_taken => LogWriteError::InDoubt(error),
        ErrorKind::Full => LogWriteError::Full(error),
        _ => LogWriteError::Refused(error),
    }
}

/// An identity or an incarnation: two random 64-bit numbers.
pub fn draw(disk: &dyn Disk) -> u128 {
    u128::from(disk.random()) << 64 | u128::from(disk.random())
}
