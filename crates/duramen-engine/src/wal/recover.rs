//! Recovery: replays the log from a position, and decides whether its end is a torn tail or damage.
//!
//! Reads only, so that a read-only open may use it. Bounded memory: one record, one slice, and what is read ahead.

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

/// What recovery found.
///
/// It names no position for a superblock: an open for writing may go on from before the last frame, so only
/// [`Log::position`](super::Log::position) does.
#[derive(Debug)]
pub struct Recovered {
    /// The last commit delivered; that of the starting position if there was none.
    pub last_seq: CommitSeq,
    /// The newest commit that the log itself calls durable.
    pub marked_seq: CommitSeq,
    /// Groups after it: only these could have been confused with a torn tail, had they been damaged (D5).
    pub unmarked_group_count: u64,
    /// Frames replayed.
    pub frame_count: u64,
    /// Records delivered.
    pub record_count: u64,
    /// Bytes of the records delivered.
    pub record_bytes: u64,
    /// Commit time of the last frame, wall clock in nanoseconds.
    pub last_commit_time_ns: u64,
    /// Parts of an unfinished write stand behind the end: the last run ended in a crash.
    pub torn: bool,
    /// Where replay began.
    pub(super) from: LogPosition,
    /// Where an open for writing goes on.
    pub(super) anchor: Anchor,
    /// Greater than every epoch seen.
    pub(super) next_epoch: Epoch,
    /// For each of the survey's files, whether the chain leads through it.
    pub(super) on_chain: Vec<bool>,
    pub(super) survey: Survey,
}

impl Recovered {
    /// How many segments a replay leads through.
    #[must_use]
    pub fn chain_len(&self) -> usize {
        self.on_chain.iter().filter(|on_chain| **on_chain).count()
    }
}

/// Reads the log from `from` to where its chain ends, checking each frame and record on the way; returns the last
/// commit, and how many there are. Somebody may be writing: what is not whole yet is the end.
///
/// # Errors
/// As [`recover`], but that the end itself is not judged.
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
/// `visit` is called before the end of the log is judged: after an error, what it was given must be dropped.
///
/// # Errors
/// `LogMissing` naming the path if the log, a file of it or the starting frame is not there or is another's;
/// `DamagedLog` naming file and offset if something durable is gone (nothing is cut); `Unsupported` for a later
/// format; what the system said, and what `visit` returned.
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
        frame_count: chain.frame_count,
        record_count: chain.record_count,
        record_bytes: chain.record_bytes,
        last_commit_time_ns: chain.commit_time_ns,
        torn: leftovers.torn,
        from: *from,
        anchor: chain.anchor,
        next_epoch: leftovers.epoch_max.next(),
        on_chain: chain.ends.iter().map(Option::is_some).collect(),
        survey,
    })
}
