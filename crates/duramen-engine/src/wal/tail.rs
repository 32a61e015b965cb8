//! Reading the log's tail beside its writer: from a frame that is known to be on the chain, as far as somebody knows it to be durable.
//!
//! Reads only, and judges nothing. What the reader asks for may be used again under it: the chain then seems to end early, or to be
//! damaged, and whoever asked looks whether the log begins somewhere else by now.

use std::path::Path;

use duramen_disk::Disk;

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord};
use super::survey::Survey;
use super::{LogIdentity, LogPosition};
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// A log as those find it who read it while it is written.
#[derive(Debug, Clone, Copy)]
pub struct LogPlace<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// The log's directory.
    pub dir: &'a Path,
    /// Whose log it is.
    pub identity: LogIdentity,
    /// Its sizes.
    pub geometry: &'a Geometry,
}

/// What of a log is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Right before its first frame.
    pub from: LogPosition,
    /// Its last commit. It must be durable, and the last of a group.
    pub through: CommitSeq,
}

impl LogPlace<'_> {
    /// Delivers each record of a stretch, until `visit` says that it is enough; never stops in the middle of a record. Returns
    /// where the next stretch begins: with a commit before the last one asked for if the chain ended before it, or was left.
    ///
    /// Costs one look at each segment file, and the frames that are read.
    ///
    /// # Errors
    /// As [`recover`](super::recover), but that the end itself is not judged; and what `visit` returned.
    pub fn read(
        &self,
        stretch: &Stretch,
        visit: &mut dyn FnMut(ReplayedRecord) -> Result<Enough>,
    ) -> Result<LogPosition> {
        let survey = Survey::load(self.disk, self.dir, self.identity, self.geometry)?;
        let mut chain = Chain::start(&survey, &stretch.from)?;
        let mut next = stretch.from;
        let mut enough = Enough::No;
        while chain.last.seq < stretch.through && (enough == Enough::No || chain.is_mid_record()) {
            let goes_on = chain.advance(&Reading::IN_TURN, &mut |record, ()| {
                enough = visit(record)?;
                Ok(())
            })?;
            if !goes_on {
                break;
            }
            if !chain.is_mid_record() {
                next = chain.last;
            }
        }
        Ok(next)
    }

    /// How far the log goes behind `from`, which must be durable.
    ///
    /// Costs one look at each segment file, and the frames behind `from`.
    ///
    /// # Errors
    /// As [`LogPlace::read`].
    pub fn reach(&self, from: &LogPosition) -> Result<Reach> {
        let survey = Survey::load(self.disk, self.dir, self.identity, self.geometry)?;
        let mut chain = Chain::start(&survey, from)?;
        chain.run(&Reading::IN_TURN, &mut |_, ()| Ok(()))?;
        Ok(Reach {
            whole: chain.last.seq,
            durable: chain.proven_seq,
            durable_at_ns: chain.anchor.commit_time_ns,
        })
    }
}

/// How far a log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The last commit that is whole.
    pub whole: CommitSeq,
    /// The last one that the log itself calls durable.
    pub durable: CommitSeq,
    /// When that was written, in nanoseconds of the wall clock.
    pub durable_at_ns: u64,
}

/// Whether a reader has had enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// More, please.
    No,
    /// No more frames than this one.
    Yes,
}
