//! The write-ahead log: a chain of checksummed frames over recycled segment files.
//!
//! Owns the files of the log directory and nothing else. It does not decide what is committed, does not
//! interpret records, and does not retry a failed sync. Promises that rest here: D1 (a synced group survives
//! a crash), D2 (recovery yields a prefix), D3 (a synced block is overwritten only after recycling), D4 and
//! D5 (corruption is told apart from a torn tail), D6 (one failed sync ends the log), D7 (a full disk refuses
//! before the first byte).
//!
//! Reading order: [`LogPosition`], [`Record`], [`Log`], [`recover`], [`Log::reopen`]. Format: docs/format.md.

mod ahead;
mod at_rest;
mod buffer;
mod chain;
mod evidence;
mod frame;
mod layout;
mod log;
mod place;
mod recover;
mod reopen;
mod repair;
mod segment;
mod spare;
mod state;
mod survey;
mod tail;
#[cfg(test)]
pub(crate) mod tests;
mod writing;

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

use crate::error::Error;
use crate::ids::{CommitSeq, DatabaseId, Epoch, LogId};

pub use ahead::Reading;
pub use chain::ReplayedRecord;
pub use log::Log;
pub use recover::{Recovered, read_through, recover};
pub use reopen::Continued;
pub use repair::{identity_left, records_left, refuse_no_log, repair};
pub use survey::missing;
pub use tail::{Enough, LogPlace, Stretch};
pub use writing::draw;

/// The database and log that a file belongs to. Part of every checksum: files of another log never verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogIdentity {
    /// The database.
    pub database: DatabaseId,
    /// Its log: a random number drawn when the log is created.
    pub log: LogId,
}

/// The number of a segment file, from 1. A slot is reused many times, each time under a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SegmentSlot(pub u64);

/// A position in the log: right after one frame. The superblock holds one; replay begins there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// The segment file that holds the frame.
    pub slot: SegmentSlot,
    /// The epoch of that use of the segment.
    pub epoch: Epoch,
    /// Where in the segment the frame begins, in bytes.
    pub offset: u64,
    /// The last commit that is complete at this position.
    pub seq: CommitSeq,
    /// The frame's checksum.
    pub checksum: u128,
}

impl LogPosition {
    /// Bytes of an encoded position.
    pub const ENCODED_BYTES: usize = 48;

    /// The position as bytes. Format: docs/format.md, "The log".
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        layout::put(&mut bytes, 0, &self.slot.0.to_le_bytes());
        layout::put(&mut bytes, 8, &self.epoch.0.to_le_bytes());
        layout::put(&mut bytes, 16, &self.offset.to_le_bytes());
        layout::put(&mut bytes, 24, &self.seq.0.to_le_bytes());
        layout::put(&mut bytes, 32, &self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a position. The enclosing structure's checksum covers the bytes; [`recover`] checks the
    /// position.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> LogPosition {
        LogPosition {
            slot: SegmentSlot(layout::u64_at(bytes, 0)),
            epoch: Epoch(layout::u64_at(bytes, 8)),
            offset: layout::u64_at(bytes, 16),
            seq: CommitSeq(layout::u64_at(bytes, 24)),
            checksum: layout::u128_at(bytes, 32),
        }
    }
}

const _: () = assert!(
    LogPosition::ENCODED_BYTES
        == size_of::<SegmentSlot>()
            + size_of::<Epoch>()
            + size_of::<u64>()
            + size_of::<CommitSeq>()
            + size_of::<u128>(),
    "an encoded position is its fields"
);

/// One transaction as the log sees it: bytes with their checksum.
///
/// The committing thread makes it, so that the leader of a group only gathers and writes. One sequence has
/// one record: only writes in the same record are replayed together.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Its position in the order of commits; assigned under the order lock, covered by the frame's checksum.
    pub seq: CommitSeq,
    /// Whether it can be derived from other records (view rows), so that feed and replicas may leave it out.
    pub derived: bool,
    bytes: Vec<u8>,
    checksum: u128,
}

impl Record {
    /// Takes a record's bytes and computes their checksum. The caller sets the sequence.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Record {
        let checksum = xxh3_128(&bytes);
        Record { seq: CommitSeq(0), derived: false, bytes, checksum }
    }

    /// The record's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What one write of the log takes.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Records in sequence order, the first following the log's last. Empty: a mark frame.
    pub records: &'a [Record],
    /// The newest commit known durable now.
    pub durable: CommitSeq,
    /// May take the segment reserved for a full disk: for deletes and other work that frees space.
    pub use_reserve: bool,
}

/// What a write of the log did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Right after the last frame written.
    pub position: LogPosition,
    /// Bytes of log the group took, headers and padding included.
    pub bytes: u64,
    /// When its sync began, by the monotonic clock. `None` without a sync, or if the write itself was
    /// durable.
    pub sync_began_ns: Option<u64>,
}

/// Why a group was not written.
#[derive(Debug, Clone)]
pub enum LogWriteError {
    /// No room. No byte was written; the log ends where it ended before.
    Full(Error),
    /// Another reason. No byte was written; the log ends where it ended before.
    Refused(Error),
    /// Bytes may have been written, or a sync failed (D6). The log refuses all further writes.
    InDoubt(Error),
}

impl LogWriteError {
    /// The error itself.
    #[must_use]
    pub fn error(&self) -> &Error {
        match self {
            LogWriteError::Full(error) | LogWriteError::Refused(error) | LogWriteError::InDoubt(error) => {
                error
            }
        }
    }

    /// Whether the log refuses all further writes.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, LogWriteError::InDoubt(_))
    }
}

impl fmt::Display for LogWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

impl std::error::Error for LogWriteError {}

/// A sync of the log failed. What was not durable before is in doubt; all further writes are refused (D6).
#[derive(Debug, Clone)]
pub struct SyncFailure(pub Error);

impl fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for SyncFailure {}

/// Figures of a log since it was opened, and its size now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStats {
    /// Segment files.
    pub segment_count: u64,
    /// Bytes of all segment files.
    pub segment_bytes: u64,
    /// Segments ready to be used next, the reserve included.
    pub spare_count: u64,
    /// Segments that replay may still need, the current one included.
    pub used_count: u64,
    /// Frames written.
    pub frame_count: u64,
    /// Write calls to the system for them.
    pub write_count: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Sync calls to the system, durable writes included.
    pub sync_count: u64,
}
