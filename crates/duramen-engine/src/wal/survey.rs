//! Reads the files of a log directory: which exist, what their headers hold, which frame begins at an offset.
//!
//! Reads only, and bounds every size before it allocates. A read that fails is an error, never the end of the
//! log (D4). A file that is missing, belongs to another database or is misnamed is an error that names it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::{Access, Disk, File};

use super::buffer::SLICE_BYTES_MAX;
use super::frame::{self, FrameHeader, FrameKind, Part};
use super::layout::{BLOCK_BYTES_MIN, Flaw, to_usize};
use super::segment::{EPOCH_NONE, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, segment_path, slot_of};
use super::{LogIdentity, SegmentSlot};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// What a segment file is, by its first block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Ready for use. Its header carries a durable watermark.
    Unused {
        /// That watermark.
        durable_seq: CommitSeq,
    },
    /// Used now or before.
    Used(SegmentHeader),
    /// The header cannot be read, and why.
    Headless(Flaw),
    /// Never used, and its header names another size: the power failed while it was given up. Carries a
    /// watermark too.
    Misfit {
        /// How the sizes differ.
        flaw: Flaw,
        /// That watermark.
        durable_seq: CommitSeq,
    },
}

/// One segment file.
#[derive(Debug)]
pub(super) struct FoundFile {
    pub(super) slot: SegmentSlot,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) content: Content,
    file: Arc<dyn File>,
}

/// A frame with a valid header and table. Its parts are not checked yet.
#[derive(Debug, Clone)]
pub(super) struct FoundFrame {
    pub(super) header: FrameHeader,
    pub(super) checksum: u128,
    pub(super) parts: Vec<Part>,
    /// Where its first part begins.
    pub(super) payload_offset: u64,
    /// Where the next frame would begin.
    pub(super) end_offset: u64,
}

/// The files of a log directory, in order of slot.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) dir: PathBuf,
    pub(super) identity: LogIdentity,
    pub(super) block_bytes: u64,
    /// No segment of the log is longer than this.
    segment_bytes_max: u64,
    pub(super) files: Vec<FoundFile>,
}

impl FoundFile {
    /// The header, if the segment was ever used.
    pub(super) fn header(&self) -> Option<&SegmentHeader> {
        match &self.content {
            Content::Used(header) => Some(header),
            Content::Unused { .. } | Content::Headless(_) | Content::Misfit { .. } => None,
        }
    }

    /// The durable watermark in the header; 0 without a header.
    pub(super) fn durable_seq(&self) -> CommitSeq {
        match &self.content {
            Content::Used(header) => header.durable_seq,
            Content::Unused { durable_seq } | Content::Misfit { durable_seq, .. } => *durable_seq,
            Content::Headless(_) => CommitSeq(0),
        }
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_at(buffer, offset).map_err(|error| Error::io("read", &self.path, &error))
    }
}

impl Survey {
    /// Opens every segment file for reading and reads its header.
    pub(super) fn load(
        disk: &dyn Disk,
        dir: &Path,
        identity: LogIdentity,
        geometry: &Geometry,
    ) -> Result<Survey> {
        let slots = match slots_in(disk, dir) {
            Ok(slots) => slots,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(missing(dir, "the directory"));
            }
            Err(error) => return Err(Error::io("list", dir, &error)),
        };
        let mut survey = Survey {
            dir: dir.to_owned(),
            identity,
            block_bytes: geometry.block_bytes as u64,
            segment_bytes_max: geometry.segment_bytes_max,
            files: Vec::new(),
        };
        for (wanted, &slot) in (1u64..).zip(&slots) {
            // Slots are created in order, each durable before the next. A gap therefore is a file that was
            // removed.
            if slot.0 != wanted {
                return Err(missing(&segment_path(dir, SegmentSlot(wanted)), "the file"));
            }
            survey.files.push(survey.look_at(disk, slot)?);
        }
        if survey.files.is_empty() {
            return Err(missing(&segment_path(dir, SegmentSlot(1)), "the file"));
        }
        Ok(survey)
    }

    /// The same for a log that may be corrupt: skips unreadable files and returns the first error.
    ///
    /// # Errors
    /// `Unsupported` for a file of a later release: it is intact, so its contents must not be counted as
    /// lost.
    pub(super) fn load_readable(
        disk: &dyn Disk,
        dir: &Path,
        identity: LogIdentity,
        geometry: &Geometry,
    ) -> Result<(Survey, Option<Error>)> {
        let mut survey = Survey {
            dir: dir.to_owned(),
            identity,
            block_bytes: geometry.block_bytes as u64,
            segment_bytes_max: geometry.segment_bytes_max,
            files: Vec::new(),
        };
        let slots = match slots_in(disk, dir) {
            Ok(slots) => slots,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((survey, Some(missing(dir, "the directory"))));
            }
            Err(error) => {
                let message =
                    format!("{}: the directory of the log cannot be listed: {error}", dir.display());
                let error = Error::new(Code::LogMissing, message).with_hint(without_log());
                return Ok((survey, Some(error)));
            }
        };
        let mut wrong = slots.is_empty().then(|| missing(&segment_path(dir, SegmentSlot(1)), "the file"));
        for (wanted, &slot) in (1u64..).zip(&slots) {
            if slot.0 != wanted {
                wrong.get_or_insert_with(|| missing(&segment_path(dir, SegmentSlot(wanted)), "the file"));
            }
            match survey.look_at(disk, slot) {
                Ok(file) => survey.files.push(file),
                Err(error) if error.code() == Code::Unsupported => return Err(error),
                Err(error) => drop(wrong.get_or_insert(error)),
            }
        }
        Ok((survey, wrong))
    }

    fn look_at(&self, disk: &dyn Disk, slot: SegmentSlot) -> Result<FoundFile> {
        let path = segment_path(&self.dir, slot);
        let file = disk.open(&path, Access::READ).map_err(|error| Error::io("open", &path, &error))?;
        let bytes = file.len().map_err(|error| Error::io("measure", &path, &error))?;
        let mut found = FoundFile {
            slot,
            path,
            bytes,
            content: Content::Headless(Flaw::new("the file is cut short")),
            file,
        };
        if bytes >= self.block_bytes {
            let mut header = [0; SEGMENT_HEADER_BYTES];
            found.read(&mut header, 0)?;
            found.content = self.judge(&found, &header)?;
        }
        Ok(found)
    }

    fn judge(&self, found: &FoundFile, bytes: &[u8]) -> Result<Content> {
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(HeaderFault::Blank) => return Ok(Content::Headless(Flaw::new("the header is all zeroes"))),
            Err(HeaderFault::Corrupt(flaw)) => return Ok(Content::Headless(flaw)),
            Err(HeaderFault::Later(version)) => {
                let message = format!(
                    "{}: log format {version} or a feature of it is of a later release",
                    found.path.display()
                );
                return Err(Error::new(Code::Unsupported, message)
                    .with_hint("open it with the release that wrote it"));
            }
        };
        if header.identity != self.identity {
            let message = format!(
                "{} is a foreign log: it belongs to database {}, log {}; want database {}, log {}",
                found.path.display(),
                header.identity.database,
                header.identity.log,
                self.identity.database,
                self.identity.log
            );
            return Err(Error::new(Code::LogMissing, message).with_hint(without_log()));
        }
        if header.slot != found.slot {
            let what = format!(
                "the file holds segment {}, want {}: files were exchanged",
                header.slot.0, found.slot.0
            );
            return Err(Error::corrupt_log(&found.path, 0, what));
        }
        let is_as_announced =
            header.segment_bytes == found.bytes && u64::from(header.block_bytes) == self.block_bytes;
        if !is_as_announced || found.bytes > self.segment_bytes_max {
            let what = format!(
                "{} bytes in blocks of {}, want {} in blocks of {}, and at most {} bytes",
                found.bytes,
                self.block_bytes,
                header.segment_bytes,
                header.block_bytes,
                self.segment_bytes_max
            );
            // A spare whose last sync failed is emptied and begun again later with another size. After a
            // power cut the file may have one size and its header another. The segment was never used, so
            // nothing is lost.
            let is_ours = u64::from(header.block_bytes) == self.block_bytes;
            if is_ours && header.epoch == EPOCH_NONE {
                return Ok(Content::Misfit { flaw: Flaw::new(what), durable_seq: header.durable_seq });
            }
            return Err(Error::corrupt_log(&found.path, 0, what));
        }
        if found.bytes < 2 * self.block_bytes || !found.bytes.is_multiple_of(self.block_bytes) {
            let what = format!("{} bytes, want whole blocks of {}", found.bytes, self.block_bytes);
            return Err(Error::corrupt_log(&found.path, 0, what));
        }
        let is_unused = header.epoch == EPOCH_NONE;
        Ok(if is_unused {
            Content::Unused { durable_seq: header.durable_seq }
        } else {
            Content::Used(header)
        })
    }

    /// The frame that begins at `offset`, if its header and table are valid.
    pub(super) fn frame_at(&self, file: &FoundFile, offset: u64) -> Result<Option<FoundFrame>> {
        // A sparse file may claim any length: frames are bounded by what a segment can be.
        let room = file.bytes.min(self.segment_bytes_max).saturating_sub(offset);
        if room < self.block_bytes {
            return Ok(None);
        }
        let mut head = vec![0; to_usize(self.block_bytes)];
        file.read(&mut head, offset)?;
        let Ok(header) = frame::decode_header(&head, room) else { return Ok(None) };
        if header.offset != offset {
            return Ok(None);
        }
        let head_bytes = frame::head_bytes(header.part_count);
        if head_bytes > self.block_bytes {
            // Bounded: decode_header has checked that the whole frame lies in the segment.
            head.resize(to_usize(head_bytes), 0);
            let (_, rest) = head.split_at_mut(to_usize(self.block_bytes));
            file.read(rest, offset + self.block_bytes)?;
        }
        let Ok((checksum, parts)) = frame::verify(&head, &header, &self.identity) else { return Ok(None) };
        Ok(Some(FoundFrame {
            checksum,
            parts,
            payload_offset: offset + head_bytes,
            end_offset: offset + header.frame_bytes().next_multiple_of(self.block_bytes),
            header,
        }))
    }
}

/// The hint for a log that is not in the directory given.
pub(super) const ELSEWHERE: &str =
    "if the log is elsewhere, name its directory (`--wal DIR`, `DbOptions::wal_dir`), or mount its disk";

/// The hint for a log that is not there: where it may be, and what to do if it is lost.
pub(super) fn without_log() -> String {
    format!(
        "{ELSEWHERE}; if it is lost, `duramen repair --without-log DB NEW` (`DbOptions::repair_without_log`) continues without its commits"
    )
}

/// The error for a log, or a file of it, that does not exist.
pub fn missing(path: &Path, what: &str) -> Error {
    Error::new(Code::LogMissing, format!("{}: log missing: {what} is not there", path.display()))
        .with_hint(without_log())
}

/// Removes the files of a creation that was cut short.
///
/// Refuses a directory that holds commits of any log: if the data is lost, that log may be all that is left.
pub(super) fn clear_unborn(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let slots = slots_in(disk, dir).map_err(|error| Error::io("list", dir, &error))?;
    for &slot in &slots {
        let path = segment_path(dir, slot);
        if holds_commits(disk, &path)? {
            let message =
                format!("{} holds commits of a log; a new one cannot be created there", path.display());
            return Err(
                Error::new(Code::AlreadyExists, message).with_hint("move the directory away, and keep it")
            );
        }
    }
    // The last file first, so that a crash between two removals leaves no gap.
    for &slot in slots.iter().rev() {
        let path = segment_path(dir, slot);
        disk.remove(&path).map_err(|error| Error::io("remove", &path, &error))?;
    }
    Ok(())
}

/// Whether a group frame begins at any possible offset of a file, whatever the block size of its log.
fn holds_commits(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let file = disk.open(path, Access::READ).map_err(|error| Error::io("open", path, &error))?;
    let bytes = file.len().map_err(|error| Error::io("measure", path, &error))?;
    let mut slice = vec![0; SLICE_BYTES_MAX];
    let mut offset = 0;
    while offset < bytes {
        let count = to_usize((bytes - offset).min(SLICE_BYTES_MAX as u64));
        file.read_at(&mut slice[..count], offset).map_err(|error| Error::io("read", path, &error))?;
        // A frame begins at a multiple of this, whatever the block size of its log.
        for (begin, block) in (offset..).step_by(BLOCK_BYTES_MIN).zip(slice[..count].chunks(BLOCK_BYTES_MIN))
        {
            let frame = frame::decode_header(block, bytes - begin);
            if frame.is_ok_and(|header| header.kind == FrameKind::Group) {
                return Ok(true);
            }
        }
        offset += count as u64;
    }
    Ok(false)
}

pub(super) fn slots_in(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<SegmentSlot>> {
    let mut slots: Vec<SegmentSlot> = disk.list(dir)?.iter().filter_map(|path| slot_of(path)).collect();
    slots.sort_unstable();
    Ok(slots)
}
