//! Reading a log that is damaged: every commit up to the damage, and how much lies behind it.
//!
//! Owns the count of what is lost. What a frame is and which one follows, chain.rs decides, and whether the end is a torn tail,
//! evidence.rs: so that a salvaged log is a prefix as a replayed one is (D2), and no frame behind a hole is ever delivered.
//! Reads only.

use std::path::Path;

use duramen_disk::Disk;

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord};
use super::evidence;
use super::survey::{Content, FoundFile, Survey};
use super::{LogIdentity, LogPosition};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// How far a log could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Salvaged {
    /// The last commit delivered; that of the starting position if there was none.
    pub last_seq: CommitSeq,
    /// Commits delivered.
    pub record_count: u64,
    /// What could not be; `None` if the log is whole.
    pub lost: Option<LogLoss>,
}

/// The part of a log behind damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLoss {
    /// The newest commit that anything names which can still be read. The same as the last one delivered where nothing tells.
    pub until: CommitSeq,
    /// Whole frames of later commits that lie behind the damage. They are not applied: a hole is before them.
    pub frame_count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is damaged, with file and offset.
    pub why: String,
}

/// What to do about a log that is not where it was looked for.
const ELSEWHERE: &str =
    "if the log lies elsewhere, name its directory (`--wal DIR`, `DbOptions::wal_dir`), or mount its disk";

/// Makes sure that there is something of a log in `dir`, before all that was in it is taken for lost.
///
/// # Errors
/// `LogMissing` if there is no directory, no segment in it, or only those of other logs; `Unsupported` if one is of a later release.
/// A segment that is damaged is one: its log is here.
pub fn refuse_no_log(disk: &dyn Disk, dir: &Path, identity: LogIdentity, geometry: &Geometry) -> Result<()> {
    let (survey, wrong) = Survey::load_readable(disk, dir, identity, geometry)?;
    let is_ours = |file: &FoundFile| !matches!(file.content, Content::Headless(_));
    match wrong.filter(|error| error.code() == Code::LogMissing) {
        Some(error) if !survey.files.iter().any(is_ours) => Err(error.with_hint(format!(
            "{ELSEWHERE}; if it is lost, `duramen recover --without-log DB NEW` (`DbOptions::recover_without_log`) goes on without its commits"
        ))),
        _ => Ok(()),
    }
}

/// Reads the log from `from` as far as its commits follow one another, delivering each. `durable` is a commit that is known to
/// have been in it.
///
/// # Errors
/// What `visit` said; `Unsupported` if a segment is of a later release. What is wrong with the log is in the result.
pub fn salvage(
    disk: &dyn Disk,
    dir: &Path,
    (identity, geometry): (LogIdentity, &Geometry),
    from: &LogPosition,
    durable: CommitSeq,
    visit: &mut dyn FnMut(ReplayedRecord) -> Result<()>,
) -> Result<Salvaged> {
    let (survey, unread) = Survey::load_readable(disk, dir, identity, geometry)?;
    let mut salvaged = Salvaged { last_seq: from.seq, record_count: 0, lost: None };
    let mut chain = match Chain::start(&survey, from) {
        Ok(chain) => chain,
        Err(error) => {
            let nowhere = vec![None; survey.files.len()];
            let damage = unread.unwrap_or(error);
            salvaged.lost = Some(behind(&survey, &nowhere, from.seq.max(durable), from.seq, &damage));
            return Ok(salvaged);
        }
    };
    let mut refused = None;
    let mut deliver = |record: ReplayedRecord, ()| {
        let seq = record.seq;
        visit(record).inspect_err(|error| refused = Some(error.clone()))?;
        (salvaged.last_seq, salvaged.record_count) = (seq, salvaged.record_count + 1);
        Ok(())
    };
    let ran = chain.run(&Reading::IN_TURN, &mut deliver);
    if let Some(refused) = refused {
        return Err(refused);
    }
    let last = salvaged.last_seq;
    let too_short = || {
        (last < durable).then(|| {
            let what = format!("the log ends after commit {last}, and {durable} was durable");
            Error::damaged_log(&chain.file().path, chain.next_offset, what)
        })
    };
    let damage = ran.err().or_else(|| evidence::search(&survey, &chain, 1).err()).or_else(too_short);
    let damage = damage.or(unread);
    salvaged.lost = damage.map(|damage| behind(&survey, &chain.ends, last.max(durable), last, &damage));
    Ok(salvaged)
}

/// Counts the whole frames of commits after `last` that lie behind where the chain ends.
fn behind(
    survey: &Survey,
    ends: &[Option<u64>],
    until: CommitSeq,
    last: CommitSeq,
    damage: &Error,
) -> LogLoss {
    let why = match damage.code() {
        Code::LogMissing => format!("{}; {ELSEWHERE}", damage.message()),
        _ => damage.message().to_owned(),
    };
    let mut lost = LogLoss { until, frame_count: 0, bytes: 0, why };
    for (file, end) in survey.files.iter().zip(ends) {
        lost.until = lost.until.max(file.durable_seq());
        let mut offset = end.unwrap_or(survey.block_bytes);
        while offset + survey.block_bytes <= file.bytes {
            // A block that cannot be read holds no frame that can.
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
