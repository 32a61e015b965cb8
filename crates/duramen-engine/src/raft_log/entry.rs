//! The entry of Raft's log: its fields, and its bytes in a record. Encoding and decoding only.
//!
//! Format: docs/format.md, "Raft's log".

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::ids::CommitSeq;

/// Bytes of a stored entry before its content.
pub(super) const ENTRY_HEAD_BYTES: usize = 64;

const VERSION: u8 = 1;

// Version, kind and room; term, chain, time; the four numbers of the order.
const _: () = assert!(ENTRY_HEAD_BYTES == 8 + 3 * 8 + 4 * 8, "the head of an entry is its fields");

/// The place of an entry in Raft's log: no two leaders give the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    /// The term of the leader that made it.
    pub term: u64,
    /// Its index, which is the sequence of the commit that it becomes.
    pub seq: CommitSeq,
}

/// The state that a leader ordered a commit on.
///
/// The commit changes nothing unless it stands where it was ordered: on the entry before it that its leader
/// validated it against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OrderedOn {
    /// The term of the leader.
    pub term: u64,
    /// Which of the orders of that leader: each order that is given up ends one.
    pub lineage: u64,
    /// The sequence that it was given.
    pub seq: CommitSeq,
    /// The chain of the entry before it ([`RaftLog::end_after`](super::RaftLog::end_after)).
    pub chain: u64,
}

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Changes of a transaction.
    Changes,
    /// Nothing: the first entry of a leader.
    Blank,
    /// The members of the cluster from here on.
    Members,
    /// Nothing but a time.
    Clock,
}

/// One entry of Raft's log.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub id: EntryId,
    /// What it was ordered on. Only entries with changes are ordered.
    pub ordered: OrderedOn,
    /// The time of its leader in nanoseconds since 1970, never less than that of the entry before.
    pub time_ns: u64,
    /// What it is for.
    pub kind: EntryKind,
    /// Its content: a log record of the engine with the changes, or the members.
    pub bytes: Arc<[u8]>,
}

impl Entry {
    /// The first entry of a leader in a term: nothing.
    #[must_use]
    pub fn blank(after: &LogEnd, term: u64) -> Entry {
        Entry {
            id: EntryId { term, seq: after.id.seq.next() },
            ordered: OrderedOn::default(),
            time_ns: after.time_ns,
            kind: EntryKind::Blank,
            bytes: Arc::from(&[][..]),
        }
    }
}

impl fmt::Debug for Entry {
    /// Without its content, which is the program's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EntryId { term, seq } = self.id;
        write!(f, "{:?} {seq} of term {term}, {} bytes", self.kind, self.bytes.len())
    }
}

/// Where a log ends: what the next entry continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// The last entry.
    pub id: EntryId,
    /// The hash over all entries up to it. Logs with equal chains are equal.
    pub chain: u64,
    /// Its time.
    pub time_ns: u64,
}

impl LogEnd {
    /// The end of the log after one more entry.
    #[must_use]
    pub fn after(&self, entry: &Entry) -> LogEnd {
        let head = head_of(entry, self.chain);
        let mut hasher = Xxh3::with_seed(entry.id.seq.0);
        hasher.update(&head);
        hasher.update(&entry.bytes);
        LogEnd { id: entry.id, chain: hasher.digest(), time_ns: entry.time_ns }
    }
}

/// An entry as it is stored, with the end of the log after it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) entry: Entry,
    pub(super) chain: u64,
}

impl Stored {
    /// The end of the log after it.
    pub(super) fn end(&self) -> LogEnd {
        LogEnd { id: self.entry.id, chain: self.chain, time_ns: self.entry.time_ns }
    }
}

/// The bytes of an entry that follows a log with this chain, and the chain after it.
pub(super) fn encode(entry: &Entry, chain_before: u64) -> (Vec<u8>, u64) {
    let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.bytes.len());
    bytes.extend_from_slice(&head_of(entry, chain_before));
    bytes.extend_from_slice(&entry.bytes);
    let chain = chain_after(entry.id.seq, &bytes);
    (bytes, chain)
}

fn head_of(entry: &Entry, chain_before: u64) -> [u8; ENTRY_HEAD_BYTES] {
    let kind = match entry.kind {
        EntryKind::Changes => 0,
        EntryKind::Blank => 1,
        EntryKind::Members => 2,
        EntryKind::Clock => 3,
    };
    let mut head = [0; ENTRY_HEAD_BYTES];
    head[..2].copy_from_slice(&[VERSION, kind]);
    let OrderedOn { term, lineage, seq, chain } = entry.ordered;
    let numbers = [entry.id.term, chain_before, entry.time_ns, term, lineage, seq.0, chain];
    for (at, number) in (8..).step_by(8).zip(numbers) {
        head[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    head
}

/// The chain after an entry with these bytes. They hold the chain before it.
fn chain_after(seq: CommitSeq, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seq.0)
}

/// Reads an entry, and the chain before it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn decode(seq: CommitSeq, bytes: &[u8]) -> Result<(Stored, u64), &'static str> {
    let (head, content) = bytes.split_at_checked(ENTRY_HEAD_BYTES).ok_or("an entry ends too early")?;
    let kind = match head[..8] {
        [VERSION, 0, 0, 0, 0, 0, 0, 0] => EntryKind::Changes,
        [VERSION, 1, 0, 0, 0, 0, 0, 0] => EntryKind::Blank,
        [VERSION, 2, 0, 0, 0, 0, 0, 0] => EntryKind::Members,
        [VERSION, 3, 0, 0, 0, 0, 0, 0] => EntryKind::Clock,
        [VERSION, ..] => return Err("an entry of a kind that this build does not know"),
        _ => return Err("an entry of another version"),
    };
    let number = |at: usize| {
        let bytes = head[at..at + 8].try_into().expect("eight bytes of the head");
        u64::from_le_bytes(bytes)
    };
    let entry = Entry {
        id: EntryId { term: number(8), seq },
        ordered: OrderedOn {
            term: number(32),
            lineage: number(40),
            seq: CommitSeq(number(48)),
            chain: number(56),
        },
        time_ns: number(24),
        kind,
        bytes: content.into(),
    };
    Ok((Stored { entry, chain: chain_after(seq, bytes) }, number(16)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn entry(kind: EntryKind) -> Entry {
        Entry {
            id: EntryId { term: 3, seq: CommitSeq(9) },
            ordered: OrderedOn { term: 2, lineage: 5, seq: CommitSeq(8), chain: 77 },
            time_ns: 1234,
            kind,
            bytes: Arc::from(&b"changes"[..]),
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        for kind in [EntryKind::Changes, EntryKind::Blank, EntryKind::Members, EntryKind::Clock] {
            let (bytes, chain) = encode(&entry(kind), 4711);
            let (stored, before) = decode(CommitSeq(9), &bytes).unwrap();
            assert_eq!((&stored.entry, stored.chain, before), (&entry(kind), chain, 4711));
            let end = LogEnd { chain: 4711, ..LogEnd::default() };
            assert_eq!(end.after(&entry(kind)), stored.end(), "without its bytes in one place");
        }
    }

    #[test]
    fn the_chain_depends_on_everything_before_and_in_the_entry() {
        let (_, chain) = encode(&entry(EntryKind::Changes), 1);
        let mut others = vec![encode(&entry(EntryKind::Changes), 2).1, encode(&entry(EntryKind::Blank), 1).1];
        for change in [
            |entry: &mut Entry| entry.id.term += 1,
            |entry: &mut Entry| entry.id.seq = entry.id.seq.next(),
            |entry: &mut Entry| entry.ordered.lineage += 1,
            |entry: &mut Entry| entry.time_ns += 1,
            |entry: &mut Entry| entry.bytes = Arc::from(&b"Changes"[..]),
        ] {
            let mut other = entry(EntryKind::Changes);
            change(&mut other);
            others.push(encode(&other, 1).1);
        }
        assert!(others.iter().all(|other| *other != chain), "{chain} is none of {others:?}");
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let (bytes, _) = encode(&entry(EntryKind::Clock), 1);
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            decode(CommitSeq(9), &bytes).unwrap_err()
        };
        assert_eq!(refused(&|bytes| bytes.truncate(63)), "an entry ends too early");
        assert_eq!(refused(&|bytes| bytes[0] = 2), "an entry of another version");
        assert_eq!(refused(&|bytes| bytes[1] = 4), "an entry of a kind that this build does not know");
        assert_eq!(refused(&|bytes| bytes[7] = 1), "an entry of a kind that this build does not know");
    }
}
