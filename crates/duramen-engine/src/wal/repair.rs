//! Reads a corrupt log: every commit up to the corruption, and how much lies after it.
//!
//! Counts what is lost. chain.rs decides what a frame is and which one follows; evidence.rs decides whether
//! the end is a torn tail. What this delivers is therefore a prefix, as in repair (D2): no frame after a
//! gap. Reads only.

use std::path::Path;

use duramen_disk::{Access, Disk};

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord, read_again};
use super::evidence;
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use super::survey::{Content, ELSEWHERE, FoundFile, Survey, slots_in, without_log};
use super::{LogIdentity, LogPosition};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// How far a log could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// The last commit delivered; that of the starting position if there was none.
    pub last_seq: CommitSeq,
    /// Commits delivered.
    pub record_count: u64,
    /// Pieces of an unfinished write lie after the end of a log that is intact otherwise.
    pub torn: bool,
    /// What could not be read; `None` if the log is intact.
    pub lost: Option<LogLoss>,
}

/// The part of a log after corruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLoss {
    /// The newest commit named by anything that can still be read. The last one delivered if nothing names a
    /// later one.
    pub until: CommitSeq,
    /// Complete frames of later commits after the corruption. They are not applied: commits before them are
    /// missing.
    pub frame_count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is corrupt, with file and offset.
    pub why: String,
}

/// Checks that `dir` holds some part of this log, before all of it is taken for lost.
///
/// # Errors
/// `LogMissing` (E0503) if there is no directory, no segment in it, or only segments of other logs;
/// `Unsupported` (E0211) if one is of a later release; `System` (E1001). A corrupt segment with a valid
/// header counts as part of the log.
pub fn refuse_no_log(disk: &dyn Disk, dir: &Path, identity: LogIdentity, geometry: &Geometry) -> Result<()> {
    let (survey, wrong) = Survey::load_readable(disk, dir, identity, geometry)?;
    let is_ours = |file: &FoundFile| !matches!(file.content, Content::Headless(_));
    match wrong.filter(|error| error.code() == Code::LogMissing) {
        Some(error) if !survey.files.iter().any(is_ours) => Err(error.with_hint(without_log())),
        _ => Ok(()),
    }
}

/// The log that most segments of a directory belong to, and the bytes of a block: what the first header
/// says that can be read. A database without a superblock is known by it.
pub fn identity_left(disk: &dyn Disk, dir: &Path) -> Option<(LogIdentity, usize)> {
    let slots = slots_in(disk, dir).ok()?;
    let headers = slots.into_iter().filter_map(|slot| {
        let file = disk.open(&segment_path(dir, slot), Access::READ).ok()?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut bytes, 0).ok()?;
        let header = SegmentHeader::decode(&bytes).ok()?;
        Some((header.identity, header.block_bytes as usize))
    });
    let found: Vec<_> = headers.collect();
    found.iter().max_by_key(|one| found.iter().filter(|other| other == one).count()).copied()
}

/// Delivers the commits from `from` as far as they follow one another. `durable` is a commit that is known to
/// have been in the log.
///
/// # Errors
/// What `visit` returned; `Unsupported` (E0211) for a segment of a later release; `System` (E1001) if the
/// directory cannot be listed. What is wrong with the log is in the result.
pub fn repair(
    disk: &dyn Disk,
    dir: &Path,
    identity: LogIdentity,
    geometry: &Geometry,
    from: &LogPosition,
    durable: CommitSeq,
    visit: &mut dyn FnMut(ReplayedRecord) -> Result<()>,
) -> Result<Repaired> {
    let (survey, unread) = Survey::load_readable(disk, dir, identity, geometry)?;
    let mut repaired = Repaired { last_seq: from.seq, record_count: 0, torn: false, lost: None };
    let mut chain = match Chain::start(&survey, from) {
        Ok(chain) => chain,
        Err(error) => {
            let nowhere = vec![None; survey.files.len()];
            let corruption = unread.unwrap_or(error);
            repaired.lost = Some(count_lost(&survey, &nowhere, from.seq.max(durable), from.seq, &corruption));
            return Ok(repaired);
        }
    };
    let mut refused = None;
    let mut deliver = |record: ReplayedRecord, ()| {
        let seq = record.seq;
        visit(record).inspect_err(|error| refused = Some(error.clone()))?;
        (repaired.last_seq, repaired.record_count) = (seq, repaired.record_count + 1);
        Ok(())
    };
    let ran = chain.run(&Reading::IN_TURN, &mut deliver);
    if let Some(refused) = refused {
        return Err(refused);
    }
    let last = repaired.last_seq;
    let too_short = || {
        (last < durable).then(|| {
            let what = format!("the log ends after commit {last}, and {durable} was durable");
            Error::corrupt_log(&chain.file().path, chain.next_offset, what)
        })
    };
    let mut look_after = || match evidence::search(&survey, &chain, 1) {
        Ok(leftovers) => {
            repaired.torn = leftovers.torn;
            None
        }
        Err(corruption) => Some(corruption),
    };
    let corruption = ran.err().or_else(&mut look_after).or_else(too_short);
    let corruption = corruption.or(unread);
    repaired.lost =
        corruption.map(|corruption| count_lost(&survey, &chain.ends, last.max(durable), last, &corruption));
    Ok(repaired)
}

/// Delivers each record that lies whole in one frame of any file of the log, without the chain of frames.
///
/// A crash may have dropped the commit of such a record: nothing may be applied from it. Files and frames
/// that cannot be read are skipped.
///
/// # Errors
/// `Unsupported` (E0211) for a segment of a later release.
pub fn records_left(
    disk: &dyn Disk,
    dir: &Path,
    identity: LogIdentity,
    geometry: &Geometry,
    visit: &mut dyn FnMut(CommitSeq, &[u8]),
) -> Result<()> {
    let (survey, _) = Survey::load_readable(disk, dir, identity, geometry)?;
    for file in &survey.files {
        let mut offset = survey.block_bytes;
        while offset + survey.block_bytes <= file.bytes {
            let Some(frame) = survey.frame_at(file, offset).ok().flatten() else {
                offset += survey.block_bytes;
                continue;
            };
            let mut at = frame.payload_offset;
            for part in &frame.parts {
                if part.first
                    && part.last
                    && let Ok(bytes) = read_again(file, part, at)
                {
                    visit(part.seq, &bytes);
                }
                at += part.bytes;
            }
            offset = frame.end_offset;
        }
    }
    Ok(())
}

/// Counts the complete frames of commits after `last` that lie beyond the end of the chain.
fn count_lost(
    survey: &Survey,
    ends: &[Option<u64>],
    until: CommitSeq,
    last: CommitSeq,
    corruption: &Error,
) -> LogLoss {
    let why = match corruption.code() {
        Code::LogMissing => format!("{}; {ELSEWHERE}", corruption.message()),
        _ => corruption.message().to_owned(),
    };
    let mut lost = LogLoss { until, frame_count: 0, bytes: 0, why };
    for (file, end) in survey.files.iter().zip(ends) {
        lost.until = lost.until.max(file.durable_seq());
        let mut offset = end.unwrap_or(survey.block_bytes);
        while offset + survey.block_bytes <= file.bytes {
            // A block that cannot be read is skipped like one without a frame.
            let frame = survey.frame_at(file, offset).ok().flatten();
            match frame.filter(|frame| frame.header.last_seq > last) {
                Some(frame) => {
                    lost.until = lost.until.max(frame.header.last_seq).max(frame.header.durable_seq);
                    lost.frame_count += 1;
                    lost.bytes += frame.end_offset - offset;
                    offset = frame.end_offset;
                }
                None => offset += survey.block_bytes,
            }
        }
    }
    lost
}
