//! Recovery: replays the log from a position, then decides whether its end is a torn tail or corruption.
//!
//! Reads only, so a read-only open can use it. Memory: one record, one slice, and what is read ahead.

use std::path::Path;

use duramen_disk::Disk;

use super::ahead::Reading;
use super::chain::{Anchor, Chain, ReplayedRecord};
use super::evidence;
use super::survey::Survey;
use super::{LogIdentity, LogPosition};
use crate::error::Result;
use crate::ids::{CommitSeq, Epoch};
use crate::options::Geometry;

/// The result of recovery.
///
/// It holds no position for a superblock, because an open for writing may go on from before the last frame.
/// Only [`Log::position`](super::Log::position) returns one.
#[derive(Debug)]
pub struct Recovered {
    /// The last commit delivered; that of the starting position if there was none.
    pub last_seq: CommitSeq,
    /// The durable watermark: the newest commit that the log calls durable.
    pub marked_seq: CommitSeq,
    /// Groups after the watermark. Only corruption in these could pass for a torn tail (D5).
    pub unmarked_group_count: u64,
    /// Records delivered.
    pub record_count: u64,
    /// Bytes of the records delivered.
    pub record_bytes: u64,
    /// Pieces of an unfinished write lie after the end: the last run ended in a crash.
    pub torn: bool,
    /// Where replay began.
    pub(super) from: LogPosition,
    /// The frame from which an open for writing goes on.
    pub(super) anchor: Anchor,
    /// Greater than every epoch found.
    pub(super) next_epoch: Epoch,
    /// For each of the survey's files, whether the chain leads through it.
    pub(super) on_chain: Vec<bool>,
    pub(super) survey: Survey,
}

impl Recovered {
    /// The number of segments that a replay leads through.
    #[must_use]
    pub fn chain_len(&self) -> usize {
        self.on_chain.iter().filter(|on_chain| **on_chain).count()
    }
}

/// Follows the log from `from` to the end of its chain and checks each frame and record. Returns the last
/// commit and the number of records. A writer may be active: an incomplete frame is the end.
///
/// # Errors
/// As [`recover`], but the end of the chain is not judged.
pub fn read_through(
    disk: &dyn Disk,
    dir: &Path,
    identity: LogIdentity,
    geometry: &Geometry,
    from: &LogPosition,
) -> Result<(CommitSeq, u64)> {
    let survey = Survey::load(disk, dir, identity, geometry)?;
    let mut chain = Chain::start(&survey, from)?;
    chain.run(&Reading::IN_TURN, &mut |_, ()| Ok(()))?;
    Ok((chain.last.seq, chain.record_count))
}

/// Replays the log from `from`, delivering each whole record in sequence, with what `reading` noted about it.
///
/// `visit` runs before the end of the log is judged. After an error, the caller must drop what `visit`
/// received.
///
/// # Errors
/// `LogMissing` (E0503) naming the path if the log, a file of it or the starting frame is missing or belongs
/// to another log; `CorruptLog` (E0502) naming file and offset if something durable is lost (nothing is cut);
/// `Unsupported` (E0211) for a later format; `System` (E1001); what `visit` returned.
pub fn recover<N: Send>(
    disk: &dyn Disk,
    dir: &Path,
    identity: LogIdentity,
    geometry: &Geometry,
    from: &LogPosition,
    reading: &Reading<'_, N>,
    visit: &mut dyn FnMut(ReplayedRecord, N) -> Result<()>,
) -> Result<Recovered> {
    let survey = Survey::load(disk, dir, identity, geometry)?;
    let mut chain = Chain::start(&survey, from)?;
    chain.run(reading, visit)?;
    let leftovers = evidence::search(&survey, &chain, reading.threads)?;
    Ok(Recovered {
        last_seq: chain.last.seq,
        marked_seq: chain.marked_seq,
        unmarked_group_count: chain.unmarked_group_count(),
        record_count: chain.record_count,
        record_bytes: chain.record_bytes,
        torn: leftovers.torn,
        from: *from,
        anchor: chain.anchor,
        next_epoch: leftovers.epoch_max.next(),
        on_chain: chain.ends.iter().map(Option::is_some).collect(),
        survey,
    })
}
