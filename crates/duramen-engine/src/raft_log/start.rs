//! The files `start` and `vote`: whose log this is and where it begins, and for whom the node has voted.

use crate::ids::{CommitSeq, LogId};
use crate::raft_log::entry::{EntryId, LogEnd};
use crate::raft_log::twin::CONTENT_BYTES_MAX;
use crate::wal::LogPosition;

/// For whom a node has voted, and in which term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The node that has the vote.
    pub node: u64,
    /// A majority has voted for that node: it leads.
    pub leads: bool,
}

impl Vote {
    const BYTES: usize = 24;

    pub(super) fn encode(self) -> [u8; Vote::BYTES] {
        let mut bytes = [0; Vote::BYTES];
        bytes[..8].copy_from_slice(&self.term.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.node.to_le_bytes());
        bytes[16] = u8::from(self.leads);
        bytes
    }

    /// The content of the file of a node that has not voted yet.
    pub(super) const NONE: [u8; 0] = [];

    /// `None` inside if the node has not voted yet; outside if this is no vote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Option<Vote>> {
        if bytes.is_empty() {
            return Some(None);
        }
        let bytes: &[u8; Vote::BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let vote = Vote { term: number(0), node: number(8), leads: bytes[16] == 1 };
        (vote.encode() == *bytes).then_some(Some(vote))
    }
}

/// Which node this is, and of which cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ident {
    /// Drawn when the cluster began.
    pub cluster: u128,
    /// Never used twice in a cluster.
    pub node: u64,
}

/// Where a log begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) log: LogId,
    pub(super) ident: Ident,
    /// The last entry that is purged.
    pub(super) purged: LogEnd,
    /// The frame from which the log is read: at the last purged entry, or before it.
    pub(super) place: LogPosition,
}

const _: () =
    assert!(Start::BYTES <= CONTENT_BYTES_MAX && Vote::BYTES <= CONTENT_BYTES_MAX, "each fits into a copy");

impl Start {
    const BYTES: usize = 72 + LogPosition::ENCODED_BYTES;

    pub(super) fn encode(&self) -> [u8; Start::BYTES] {
        let mut bytes = [0; Start::BYTES];
        bytes[..16].copy_from_slice(&self.log.0.to_le_bytes());
        let LogEnd { id, chain, time_ns } = self.purged;
        for (at, number) in [(16, id.term), (24, id.seq.0), (32, chain), (40, time_ns)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[48..64].copy_from_slice(&self.ident.cluster.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.ident.node.to_le_bytes());
        bytes[72..].copy_from_slice(&self.place.encode());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Start> {
        let bytes: &[u8; Start::BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let purged = LogEnd {
            id: EntryId { term: number(16), seq: CommitSeq(number(24)) },
            chain: number(32),
            time_ns: number(40),
        };
        let long = |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        let (log, ident) = (LogId(long(0)), Ident { cluster: long(48), node: number(64) });
        let place = LogPosition::decode(bytes[72..].try_into().expect("as long as an encoded position"));
        Some(Start { log, ident, purged, place })
    }
}
