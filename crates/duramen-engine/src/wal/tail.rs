//! Reads the log while it is written, from a frame on the chain to a commit known to be durable.
//!
//! Reads only, and does not tell a torn tail from corruption. Segments may be recycled during a read. The
//! chain then seems to end early or to be corrupt; the caller checks whether the log begins elsewhere by now.

use std::path::Path;

use duramen_disk::Disk;

use super::ahead::Reading;
use super::chain::{Chain, ReplayedRecord};
use super::survey::Survey;
use super::{LogIdentity, LogPosition};
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::options::Geometry;

/// A log and where it lies, for readers beside the writer.
#[derive(Debug, Clone, Copy)]
pub struct LogPlace<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// The log's directory.
    pub dir: &'a Path,
    /// The log's identity.
    pub identity: LogIdentity,
    /// The log's sizes.
    pub geometry: &'a Geometry,
}

/// A range of the log to read.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    /// Right before its first frame.
    pub from: LogPosition,
    /// The last commit to read. It must be durable, and the last of a group.
    pub through: CommitSeq,
}

impl LogPlace<'_> {
    /// Delivers the records of a range until `visit` returns [`Enough::Yes`].
    ///
    /// Never stops in the middle of a record. Returns where the next range begins. That is before `through`
    /// if the chain ended early or `visit` stopped.
    ///
    /// Cost: reads each segment's header, and the frames of the range.
    ///
    /// # Errors
    /// As [`repair`](super::recover), but the end of the chain is not judged.
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

    /// How far the log reaches after `from`, which must be durable.
    ///
    /// Cost: reads each segment's header, and the frames after `from`.
    ///
    /// # Errors
    /// As [`repair`](super::recover), but the end of the chain is not judged.
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

/// How far a log reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The last complete commit.
    pub whole: CommitSeq,
    /// The last commit that the log itself proves durable.
    pub durable: CommitSeq,
    /// When that commit was written, in nanoseconds of the wall clock.
    pub durable_at_ns: u64,
}

/// Whether a reader stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// Go on.
    No,
    /// Stop after this frame.
    Yes,
}
