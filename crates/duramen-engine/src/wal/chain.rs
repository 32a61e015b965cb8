//! Follows the chain of frames from a position to its end and delivers the records on it.
//!
//! Torn tail or corruption (D2, D4, D5). The chain ends at the first place without a whole frame that
//! continues it. Two causes leave the same bytes: a power cut during a write, which is normal, and the loss
//! of a durable frame, which is corruption. Only a durable watermark distinguishes them. Every frame and
//! segment header carries one: the last commit that a successful sync covered when the bytes were written.
//!
//! 1. Switch before reading on. If a segment header names the last frame as its predecessor, go on in that
//!    segment, even if frames follow in the old one. Of several such segments take the highest epoch. Where
//!    both go on, an open began the new segment: it had judged the rest as lost or had copied it. The old
//!    frames are still there. Following them would bring back lost commits under sequences since given to
//!    others.
//! 2. Check the head, whose checksum is seeded with database, log, epoch, incarnation and offset, and the
//!    checksum of the predecessor. Then check all parts before any is delivered. A failure of these ends the
//!    chain. Whole frames that contradict the chain are corruption at once: a tear does not produce valid
//!    checksums.
//! 3. A failed read is an error, never the end. The error counts only where the chain needs those bytes.
//! 4. At the end, [`evidence`](super::evidence) reads every block and header off the chain. A valid one whose
//!    watermark lies after the last commit proves loss: `CorruptLog`. Otherwise the end is a torn tail.
//!    Without this step a flipped bit would silently cut off acknowledged commits.
//!
//! Interleavings. Unsynced frames may reach the disk in any order, so a whole frame after a tear proves
//! nothing by itself; its watermark is older. What a crash leaves over has watermarks at or before the end
//! that some open recovered, so it raises no alarm later. Groups after the newest watermark can pass for a
//! tear: the limit of D5. A mark frame therefore follows within 100 ms of idleness and at close. The same
//! watermark goes into a spare segment's header, in case the whole newest segment is lost. Headers that only
//! the page cache holds are the subject of [`Chain::enter_next_segment`].

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_128;

use super::LogPosition;
use super::ahead::{Heads, Link, Parts, Reading};
use super::frame::{FrameHeader, FrameKind, Part};
use super::layout::to_usize;
use super::segment::PreviousFrame;
use super::survey::{Content, FoundFile, FoundFrame, Survey, missing};
use crate::alarm::invariant;
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, Epoch};

/// A record as recovery delivers it: complete and in sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedRecord {
    /// Its position in the order of commits.
    pub seq: CommitSeq,
    /// When its group was written: wall clock, never less than that of the record before.
    pub commit_time_ns: u64,
    /// Whether it can be derived from other records.
    pub derived: bool,
    /// The record's bytes.
    pub bytes: Vec<u8>,
}

/// A frame on the chain that no later frame or header has called durable yet.
#[derive(Debug, Clone, Copy)]
struct Unmarked {
    anchor: Anchor,
    is_group: bool,
    /// It ends a commit and begins no other: the log could go on from here.
    can_anchor: bool,
}

/// A position on the chain from which a later open may continue, with its commit time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Anchor {
    pub(super) position: LogPosition,
    pub(super) commit_time_ns: u64,
}

/// How many of the frames read ahead were taken.
enum Taken {
    /// All of them. The chain may go on after them.
    All,
    /// One is not whole: the chain ends before it.
    Broken,
    /// The chain goes on in another segment.
    Elsewhere,
}

/// A walk along the chain. After [`Chain::run`] it stands at the end.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    survey: &'a Survey,
    /// Index of the current segment among the survey's files.
    pub(super) file_index: usize,
    pub(super) epoch: Epoch,
    incarnation: u128,
    pub(super) last: LogPosition,
    /// Where the next frame of this segment would begin.
    pub(super) next_offset: u64,
    pub(super) commit_time_ns: u64,
    pending: Option<ReplayedRecord>,
    /// For each of the survey's files, where the chain ends in it; `None` where it does not lead through.
    pub(super) ends: Vec<Option<u64>>,
    pub(super) marked_seq: CommitSeq,
    /// The newest commit proven durable: see [`Chain::enter_next_segment`].
    pub(super) proven_seq: CommitSeq,
    /// The newest frame proven durable that the log can go on from.
    pub(super) anchor: Anchor,
    unmarked: VecDeque<Unmarked>,
    pub(super) record_count: u64,
    pub(super) record_bytes: u64,
}

impl<'a> Chain<'a> {
    /// Finds the frame that `from` names, and continues after it.
    pub(super) fn start(survey: &'a Survey, from: &LogPosition) -> Result<Chain<'a>> {
        let path = super::segment::segment_path(&survey.dir, from.slot);
        let wanted =
            format!("the segment of epoch {} with commit {} at {:#x}", from.epoch, from.seq, from.offset);
        let found = survey.files.iter().position(|file| file.slot == from.slot);
        let Some(file_index) = found else { return Err(missing(&path, &wanted)) };
        let file = &survey.files[file_index];
        let header = match &file.content {
            Content::Used(header) => header,
            Content::Unused { .. } => return Err(missing(&path, &wanted)),
            Content::Headless(flaw) | Content::Misfit { flaw, .. } => {
                return Err(Error::corrupt_log(&path, 0, flaw));
            }
        };
        if header.epoch != from.epoch {
            return Err(missing(&path, &wanted));
        }
        if !from.offset.is_multiple_of(survey.block_bytes) || from.offset < survey.block_bytes {
            return Err(missing(&path, &wanted));
        }
        let Some(frame) = survey.frame_at(file, from.offset)? else {
            return Err(Error::corrupt_log(
                &path,
                from.offset,
                "the frame that replay begins at is not whole",
            ));
        };
        if frame.checksum != from.checksum
            || frame.header.epoch != from.epoch
            || frame.header.last_seq != from.seq
        {
            return Err(missing(&path, &wanted));
        }
        let anchor = Anchor { position: *from, commit_time_ns: frame.header.commit_time_ns };
        let mut ends = vec![None; survey.files.len()];
        ends[file_index] = Some(frame.end_offset);
        Ok(Chain {
            survey,
            file_index,
            epoch: header.epoch,
            incarnation: header.incarnation,
            last: *from,
            next_offset: frame.end_offset,
            commit_time_ns: anchor.commit_time_ns,
            pending: None,
            ends,
            marked_seq: from.seq,
            proven_seq: from.seq,
            anchor,
            unmarked: VecDeque::new(),
            record_count: 0,
            record_bytes: 0,
        })
    }

    /// Walks to the end of the chain and delivers each complete record with the note made for it.
    pub(super) fn run<N: Send>(
        &mut self,
        reading: &Reading<'_, N>,
        visit: &mut dyn FnMut(ReplayedRecord, N) -> Result<()>,
    ) -> Result<()> {
        while self.advance(reading, visit)? {}
        Ok(())
    }

    /// Goes on by the frames of one read, or into the next segment. Returns whether the chain may go on
    /// after them.
    pub(super) fn advance<N: Send>(
        &mut self,
        reading: &Reading<'_, N>,
        visit: &mut dyn FnMut(ReplayedRecord, N) -> Result<()>,
    ) -> Result<bool> {
        if self.enter_next_segment()? {
            return Ok(true);
        }
        let link = Link {
            epoch: self.epoch,
            incarnation: self.incarnation,
            checksum: self.last.checksum,
            offset: self.next_offset,
        };
        let is_continued = |frame: &FoundFrame| {
            let FrameHeader { epoch, offset, .. } = frame.header;
            self.continued_in(PreviousFrame { epoch, offset, checksum: frame.checksum }).is_some()
        };
        let Heads { frames, failed } = reading.heads(self.survey, self.file(), link, &is_continued);
        match self.take(&frames, reading, visit)? {
            Taken::Broken => Ok(false),
            Taken::Elsewhere => Ok(true),
            Taken::All => match failed {
                Some(error) => Err(error),
                None => Ok(!frames.is_empty()),
            },
        }
    }

    /// Takes frames in order, up to the end of the chain or to one that another segment continues.
    fn take<N: Send>(
        &mut self,
        frames: &[FoundFrame],
        reading: &Reading<'_, N>,
        visit: &mut dyn FnMut(ReplayedRecord, N) -> Result<()>,
    ) -> Result<Taken> {
        let file = self.file();
        for (frame, parts) in frames.iter().zip(reading.parts(file, frames)) {
            let parts = parts?;
            if matches!(parts, Parts::Broken) {
                return Ok(Taken::Broken);
            }
            // The frame is whole. A contradiction to the chain is corruption, not a tear.
            let header = &frame.header;
            if header.commit_time_ns < self.commit_time_ns || header.durable_seq > self.last.seq {
                let what = "the frame contradicts the one before it";
                return Err(Error::corrupt_log(&file.path, self.next_offset, what));
            }
            self.deliver(frame, parts, reading.note, visit)?;
            self.pass(frame);
            if self.enter_next_segment()? {
                return Ok(Taken::Elsewhere);
            }
        }
        Ok(Taken::All)
    }

    /// The segment the chain stands in.
    pub(super) fn file(&self) -> &'a FoundFile {
        &self.survey.files[self.file_index]
    }

    /// Whether a record was begun and not finished.
    pub(super) fn is_mid_record(&self) -> bool {
        self.pending.is_some()
    }

    /// The number of group frames after the watermark that finish commits.
    pub(super) fn unmarked_group_count(&self) -> u64 {
        let is_unmarked = |frame: &&Unmarked| frame.is_group && frame.anchor.position.seq > self.marked_seq;
        self.unmarked.iter().filter(is_unmarked).count() as u64
    }

    /// The newest segment with this frame as its predecessor.
    fn continued_in(&self, last: PreviousFrame) -> Option<usize> {
        let continues =
            |file: &FoundFile| file.header().is_some_and(|h| h.previous == last && h.epoch > self.epoch);
        (0..self.survey.files.len())
            .filter(|&index| continues(&self.survey.files[index]))
            .max_by_key(|&index| self.survey.files[index].header().map(|header| header.epoch))
    }

    /// Goes on in the segment that continues the last frame, if there is one.
    ///
    /// An open writes this header last, after the synced copy of what it recovered. Its watermark is
    /// therefore true wherever the header is found. But the sync of the header itself may have failed. That
    /// open failed, and the kernel shows as clean a header that is not on the disk. If the log went on after
    /// the copy, a power cut would lose all of it.
    ///
    /// The header therefore proves only commits before its segment. Commits in the segment need the watermark
    /// of a frame, which is written once the header is durable. Without such a frame the next open copies
    /// them again, to a segment that continues what was before. Until then an observer does not report them.
    fn enter_next_segment(&mut self) -> Result<bool> {
        let next = self.continued_in(PreviousFrame::from(self.last));
        let Some(index) = next else { return Ok(false) };
        let file = &self.survey.files[index];
        let header = file.header().expect("only used segments were chosen from");
        if header.first_seq != self.last.seq.next() {
            let what =
                format!("the segment begins at commit {}, want {}", header.first_seq, self.last.seq.next());
            return Err(Error::corrupt_log(&file.path, 0, what));
        }
        self.file_index = index;
        self.epoch = header.epoch;
        self.incarnation = header.incarnation;
        self.next_offset = self.survey.block_bytes;
        self.ends[index] = Some(self.next_offset);
        self.marked_seq = self.marked_seq.max(header.durable_seq);
        self.settle(header.durable_seq.min(self.last.seq));
        Ok(true)
    }

    fn deliver<N>(
        &mut self,
        frame: &FoundFrame,
        parts: Parts<N>,
        note: &dyn Fn(&[u8]) -> N,
        visit: &mut dyn FnMut(ReplayedRecord, N) -> Result<()>,
    ) -> Result<()> {
        let file = self.file();
        let mut held = match parts {
            Parts::Held(parts) => Some(parts.into_iter()),
            Parts::Checked | Parts::Broken => None,
        };
        let mut offset = frame.payload_offset;
        let mut seq = self.last.seq;
        for part in &frame.parts {
            let (bytes, noted) = match held.as_mut().and_then(Iterator::next) {
                Some(held) => held,
                None => (read_again(file, part, offset)?, None),
            };
            offset += part.bytes;
            let continues = self.pending.as_ref().is_some_and(|pending| pending.seq == part.seq);
            if part.first == self.pending.is_some() || (!part.first && !continues) || part.seq != seq.next() {
                let what = format!("part of commit {} follows commit {seq}", part.seq);
                return Err(Error::corrupt_log(&file.path, self.next_offset, what));
            }
            let mut record = match self.pending.take() {
                Some(mut record) => {
                    record.bytes.extend_from_slice(&bytes);
                    record
                }
                None => ReplayedRecord { seq: part.seq, commit_time_ns: 0, derived: part.derived, bytes },
            };
            if part.last {
                record.commit_time_ns = frame.header.commit_time_ns;
                seq = part.seq;
                self.record_count += 1;
                self.record_bytes += record.bytes.len() as u64;
                let noted = noted.unwrap_or_else(|| note(&record.bytes));
                visit(record, noted)?;
            } else {
                self.pending = Some(record);
            }
        }
        if seq != frame.header.last_seq {
            let what = format!("the frame ends at commit {seq}, want {}", frame.header.last_seq);
            return Err(Error::corrupt_log(&file.path, self.next_offset, what));
        }
        Ok(())
    }

    /// Moves past a frame.
    fn pass(&mut self, frame: &FoundFrame) {
        let header = &frame.header;
        // `deliver` has refused a frame that ends with an earlier commit.
        invariant!(
            header.offset == self.next_offset && header.last_seq >= self.last.seq,
            "the frame at {:#x} of commit {} follows, at {:#x} after {}",
            header.offset,
            header.last_seq,
            self.next_offset,
            self.last.seq
        );
        let ends_commit = header.last_seq > self.last.seq;
        self.last = LogPosition {
            slot: self.file().slot,
            epoch: header.epoch,
            offset: header.offset,
            seq: header.last_seq,
            checksum: frame.checksum,
        };
        self.next_offset = frame.end_offset;
        self.ends[self.file_index] = Some(frame.end_offset);
        self.commit_time_ns = header.commit_time_ns;
        self.unmarked.push_back(Unmarked {
            anchor: Anchor { position: self.last, commit_time_ns: header.commit_time_ns },
            is_group: header.kind == FrameKind::Group,
            can_anchor: ends_commit && self.pending.is_none(),
        });
        self.marked_seq = self.marked_seq.max(header.durable_seq);
        self.settle(header.durable_seq);
    }

    /// Applies a watermark to the frames passed so far.
    ///
    /// Only a frame that ends a commit is proven durable by it: a mark frame after it may be in the cache
    /// only.
    fn settle(&mut self, seq: CommitSeq) {
        // A watermark beyond the chain proves loss, not that the rest is durable.
        invariant!(seq <= self.last.seq, "commit {seq} is read before it is proven, as is {}", self.last.seq);
        self.proven_seq = self.proven_seq.max(seq);
        while let Some(&frame) = self.unmarked.front() {
            if frame.anchor.position.seq > self.proven_seq {
                return;
            }
            if frame.can_anchor {
                self.anchor = frame.anchor;
            }
            self.unmarked.pop_front();
        }
    }
}

/// Reads a part of a frame that was too long to be kept when it was checked.
pub(super) fn read_again(file: &FoundFile, part: &Part, offset: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; to_usize(part.bytes)];
    file.read(&mut bytes, offset)?;
    if xxh3_128(&bytes) != part.checksum {
        return Err(Error::corrupt_log(&file.path, offset, "a record changed while it was read"));
    }
    Ok(bytes)
}
