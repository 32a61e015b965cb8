//! The types that consensus works with: entries, ids, votes, and how they become those of the engine.
//!
//! The index of an entry is the sequence of the commit that it becomes. There is one leader a term
//! (`leader_id_std`): everything that is said of terms, in the engine and here, rests on that.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use duramen_engine::{CommitSeq, Entry, EntryId, EntryKind, OrderedOn, Vote};
use openraft::entry::{EntryPayload, RaftEntry};
use openraft::impls::leader_id_std::LeaderId;
use openraft::impls::{BoxedErrorSource, InlineBatch, ProgressResponder};
use openraft::vote::RaftLeaderId;
use openraft::{LogId, OptionalSend, RaftTypeConfig};

use crate::members;
use crate::runtime::Runtime;

/// What consensus is made of, on a runtime.
pub(crate) struct Types<R>(PhantomData<fn() -> R>);

impl<R: Runtime> RaftTypeConfig for Types<R> {
    type D = Change;
    type R = ();
    type NodeId = u64;
    type Node = Peer;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = VoteOf;
    type Payload = Payload;
    type Entry = LogEntry;
    type AsyncRuntime = R;
    type Responder<T>
        = ProgressResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type VoteOf = openraft::Vote<LeaderId<u64, u64>>;
pub(crate) type Payload = EntryPayload<Change, u64, Peer>;
pub(crate) type Term = <LeaderId<u64, u64> as RaftLeaderId>::Committed;
pub(crate) type Id = LogId<Term>;
pub(crate) type Membership = openraft::Membership<u64, Peer>;
pub(crate) type StoredMembership = openraft::StoredMembership<Term, u64, Peer>;

/// A member of a cluster, as the others know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    /// Where its peer port listens: `host:port`.
    pub address: String,
    /// Where it serves clients, `host:port`; empty if it does not say.
    pub serves: String,
}

/// What an entry changes, as its leader has ordered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) ordered: OrderedOn,
    pub(crate) time_ns: u64,
    /// An empty entry that lets time pass.
    pub(crate) is_clock: bool,
    pub(crate) bytes: Arc<[u8]>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bytes) = (if self.is_clock { "clock" } else { "changes" }, self.bytes.len());
        write!(f, "{kind} of {bytes} bytes, ordered at {} of term {}", self.ordered.seq, self.ordered.term)
    }
}

impl From<Entry> for Change {
    fn from(entry: Entry) -> Change {
        let is_clock = entry.kind == EntryKind::Clock;
        Change { ordered: entry.ordered, time_ns: entry.time_ns, is_clock, bytes: entry.bytes }
    }
}

/// An entry, as consensus handles it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LogEntry {
    pub(crate) id: Id,
    pub(crate) payload: Payload,
    /// The time of the leader. Consensus makes blank entries and those of members without one; they take that
    /// of the entry before them.
    pub(crate) time_ns: Option<u64>,
    /// The members as their leader has written them: another release may have said more of them, and all
    /// nodes must have the same bytes.
    members: Option<Arc<[u8]>>,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.payload)
    }
}

impl RaftEntry for LogEntry {
    type CommittedLeaderId = Term;
    type Payload = Payload;

    fn new(id: Id, payload: Payload) -> LogEntry {
        let time_ns = match &payload {
            EntryPayload::Normal(change) => Some(change.time_ns),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        LogEntry { id, payload, time_ns, members: None }
    }

    fn log_id_parts(&self) -> (&Term, u64) {
        (&self.id.leader_id, self.id.index)
    }

    fn set_log_id(&mut self, id: Id) {
        self.id = id;
    }

    fn get_membership(&self) -> Option<Membership> {
        match &self.payload {
            EntryPayload::Membership(members) => Some(members.clone()),
            EntryPayload::Blank | EntryPayload::Normal(_) => None,
        }
    }
}

impl LogEntry {
    /// The entry of the engine, which follows one of this time.
    pub(crate) fn into_stored(self, before_ns: u64) -> Entry {
        let id = EntryId { term: self.id.leader_id.term, seq: CommitSeq(self.id.index) };
        let time_ns = self.time_ns.unwrap_or(0).max(before_ns);
        let (kind, ordered, bytes) = match self.payload {
            EntryPayload::Blank => (EntryKind::Blank, OrderedOn::default(), Arc::from([])),
            EntryPayload::Membership(members) => {
                let bytes = self.members.unwrap_or_else(|| members::encode(&members).into());
                (EntryKind::Members, OrderedOn::default(), bytes)
            }
            EntryPayload::Normal(Change { ordered, is_clock, bytes, .. }) => {
                (if is_clock { EntryKind::Clock } else { EntryKind::Changes }, ordered, bytes)
            }
        };
        Entry { id, ordered, time_ns, kind, bytes }
    }

    /// The entry of consensus that was stored so.
    ///
    /// # Errors
    /// If its members cannot be read.
    pub(crate) fn from_stored(entry: Entry) -> Result<LogEntry, String> {
        let id = id_of(entry.id);
        let time_ns = Some(entry.time_ns);
        let members = (entry.kind == EntryKind::Members).then(|| Arc::clone(&entry.bytes));
        let payload = match entry.kind {
            EntryKind::Blank => EntryPayload::Blank,
            EntryKind::Members => EntryPayload::Membership(members::decode(&entry.bytes)?),
            EntryKind::Changes | EntryKind::Clock => EntryPayload::Normal(Change::from(entry)),
        };
        Ok(LogEntry { id, payload, time_ns, members })
    }
}

pub(crate) fn id_of(id: EntryId) -> Id {
    Id::new(Term::new(id.term), id.seq.0)
}

pub(crate) fn stored_vote(vote: &VoteOf) -> Vote {
    Vote { term: vote.leader_id.term, node: vote.leader_id.voted_for, leads: vote.committed }
}

pub(crate) fn vote_of(vote: Vote) -> VoteOf {
    VoteOf { leader_id: LeaderId { term: vote.term, voted_for: vote.node }, committed: vote.leads }
}

// Derived, these would ask the same of the runtime, of which no value is here.
impl<R> fmt::Debug for Types<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Types")
    }
}

impl<R> Clone for Types<R> {
    fn clone(&self) -> Types<R> {
        *self
    }
}

impl<R> Copy for Types<R> {}

impl<R> Default for Types<R> {
    fn default() -> Types<R> {
        Types(PhantomData)
    }
}

impl<R> PartialEq for Types<R> {
    fn eq(&self, _: &Types<R>) -> bool {
        true
    }
}

impl<R> Eq for Types<R> {}

impl<R> PartialOrd for Types<R> {
    fn partial_cmp(&self, other: &Types<R>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Types<R> {
    fn cmp(&self, _: &Types<R>) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// A release that knows less of the members must not change them: all nodes have the same bytes.
    #[test]
    fn members_that_say_more_than_is_known_come_back_as_they_were() {
        let peers = BTreeMap::from([(1, Peer { address: "here:1".to_owned(), ..Peer::default() })]);
        let members = Membership::new(vec![BTreeSet::from([1])], peers).unwrap();
        let unknown_field = [0x78, 0x01];
        let bytes = [&members::encode(&members)[..], &unknown_field].concat();
        let stored = Entry {
            id: EntryId { term: 3, seq: CommitSeq(9) },
            ordered: OrderedOn::default(),
            time_ns: 4,
            kind: EntryKind::Members,
            bytes: bytes.into(),
        };
        let entry = LogEntry::from_stored(stored.clone()).unwrap();
        assert_eq!(entry.get_membership(), Some(members));
        assert_eq!(entry.into_stored(0), stored);
    }
}
