//! What peers say to each other, as bytes: requests of consensus and their replies.

use std::sync::Arc;

use duramen_engine::{CommitSeq, Entry, EntryId, EntryKind, Ident, Incarnation, OrderedOn, Vote};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest, VoteResponse,
};
use prost::Message;
use prost::bytes::Bytes;

use crate::retain::Lacked;
use crate::room::Space;
use crate::runtime::Runtime;
use crate::types::{Id, LogEntry, Types, VoteOf, id_of, stored_vote, vote_of};

/// A request to a peer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(oneof = "Asked", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub(crate) asked: Option<Asked>,
    /// The cluster of the node that asks, sixteen bytes; empty if it has none yet.
    #[prost(bytes = "vec", tag = "14")]
    pub(crate) cluster: Vec<u8>,
    /// The node that is asked; 0 for the node at that address.
    #[prost(uint64, tag = "15")]
    pub(crate) to: u64,
    /// The node that asks; 0 if it joins.
    #[prost(uint64, tag = "16")]
    pub(crate) from: u64,
    /// The incarnation of the node that asks; none if it joins or copies the state.
    #[prost(message, optional, tag = "17")]
    pub(crate) incarnation: Option<WireIncarnation>,
    /// The newest incarnation that it knows of the node that is asked.
    #[prost(message, optional, tag = "18")]
    pub(crate) expects: Option<WireIncarnation>,
}

impl Request {
    /// What a node asks of the one with this id; a node of a cluster if `own` is given.
    pub(crate) fn new(own: Option<Ident>, to: u64, asked: Asked) -> Request {
        let cluster = own.map_or_else(Vec::new, |own| own.cluster.to_be_bytes().to_vec());
        let from = own.map_or(0, |own| own.node);
        Request { asked: Some(asked), cluster, to, from, ..Request::default() }
    }
}

/// One opening of a node's directory.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireIncarnation {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(fixed64, tag = "2")]
    id: u64,
}

impl WireIncarnation {
    /// Whether another one has the same number.
    pub(crate) fn is_as_late_as(&self, other: &WireIncarnation) -> bool {
        self.number == other.number
    }
}

impl From<Incarnation> for WireIncarnation {
    fn from(Incarnation { number, id }: Incarnation) -> WireIncarnation {
        WireIncarnation { number, id }
    }
}

impl From<WireIncarnation> for Incarnation {
    fn from(WireIncarnation { number, id }: WireIncarnation) -> Incarnation {
        Incarnation { number, id }
    }
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Asked {
    #[prost(message, tag = "1")]
    Append(Append),
    #[prost(message, tag = "2")]
    Vote(AskVote),
    /// Whether the peer would vote so: asked before a term begins.
    #[prost(message, tag = "3")]
    PreVote(AskVote),
    #[prost(message, tag = "4")]
    Transfer(Transfer),
    /// What a read sees that begins now, at the leader.
    #[prost(message, tag = "5")]
    ReadIndex(ReadIndex),
    /// A database that is no node yet wants to become one. To the leader.
    #[prost(message, tag = "6")]
    Join(Join),
    /// A node wants the state, part by part.
    #[prost(message, tag = "7")]
    Seed(Seed),
    /// The next piece of it.
    #[prost(message, tag = "8")]
    NextPiece(NextPiece),
    /// The member lacks entries that the leader has let go of: it needs a copy of the state.
    #[prost(message, tag = "9")]
    NeedsCopy(NeedsCopy),
}

/// The answer to a request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reply {
    #[prost(oneof = "Answer", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
    pub(crate) answer: Option<Answer>,
    /// The incarnation of the node that answers.
    #[prost(message, optional, tag = "14")]
    pub(crate) incarnation: Option<WireIncarnation>,
    /// The incarnation that it knows of the node that asks, if that is another one.
    #[prost(message, optional, tag = "15")]
    pub(crate) expects: Option<WireIncarnation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Answer {
    #[prost(message, tag = "1")]
    Append(AppendReply),
    #[prost(message, tag = "2")]
    Vote(VoteReply),
    /// Why the peer does not begin to lead; empty if it tries.
    #[prost(string, tag = "3")]
    Transfer(String),
    /// Why the peer cannot answer.
    #[prost(string, tag = "4")]
    Failed(String),
    /// The last entry that the read has to see.
    #[prost(uint64, tag = "5")]
    ReadIndex(u64),
    #[prost(message, tag = "6")]
    Joined(Joined),
    #[prost(message, tag = "7")]
    SeedHead(SeedHead),
    #[prost(message, tag = "8")]
    Piece(Piece),
    /// Another node leads, at this address of a peer port; empty if none is known.
    #[prost(string, tag = "9")]
    LeaderIsAt(String),
    /// The node that asks was removed from the cluster, by this entry or one before.
    #[prost(uint64, tag = "10")]
    Removed(u64),
    /// Why a node does not become a member, also if it asks again.
    #[prost(string, tag = "11")]
    NotAdmitted(String),
    #[prost(message, tag = "12")]
    CopyReply(CopyReply),
}

/// Where the new node can be reached.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Join {
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    #[prost(string, tag = "2")]
    pub(crate) serves: String,
}

/// Which node it is.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Joined {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) cluster: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
}

/// What a member needs a copy of.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NeedsCopy {
    /// The state after this entry, or after a later one.
    #[prost(message, required, tag = "1")]
    pub(crate) at_least: WireId,
    /// The address of the leader's peer port.
    #[prost(string, tag = "2")]
    pub(crate) leader: String,
    /// About how many bytes the state takes.
    #[prost(uint64, tag = "3")]
    pub(crate) bytes: u64,
}

/// How far a member is that was told to copy the state.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CopyReply {
    /// For whom it has voted, as consensus there knows when it answers: the leader takes a success for a sign
    /// that the member still follows it.
    #[prost(message, required, tag = "1")]
    pub(crate) vote: WireVote,
    /// Up to here it has what the leader has, on its disk: the last entry that it has applied, or the one
    /// that the leader has named, if its log has that.
    #[prost(uint64, tag = "2")]
    pub(crate) has: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Seed {
    /// The state must have this commit.
    #[prost(uint64, tag = "1")]
    pub(crate) at_least: u64,
    /// The address of the new node. What it has asked for before is let go.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
}

/// What the state is, and under which number its pieces are asked for.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SeedHead {
    #[prost(fixed64, tag = "1")]
    pub(crate) seed: u64,
    #[prost(message, required, tag = "2")]
    pub(crate) last: WireId,
    #[prost(fixed64, tag = "3")]
    pub(crate) chain: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) time_ns: u64,
    #[prost(uint64, tag = "5")]
    pub(crate) next_tree: u64,
    #[prost(uint64, tag = "6")]
    pub(crate) entries: u64,
    /// What the state takes on a disk, about.
    #[prost(uint64, tag = "7")]
    pub(crate) bytes: u64,
}

/// The piece of this number, or the one before it once more.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct NextPiece {
    #[prost(fixed64, tag = "1")]
    pub(crate) seed: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) number: u64,
}

/// A part of the state, or the end with the digest of all parts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Piece {
    /// The tree of the part.
    #[prost(uint64, tag = "1")]
    pub(crate) tree: u64,
    #[prost(message, optional, tag = "2")]
    pub(crate) begins: Option<TreeBegins>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) rows: Vec<WireRow>,
    /// Sixteen bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) digest: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TreeBegins {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) reducer: Option<WireReducer>,
    #[prost(uint64, tag = "3")]
    pub(crate) features: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireReducer {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) version: u32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) params: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireRow {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReadIndex {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireId {
    #[prost(uint64, tag = "1")]
    pub(crate) term: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) seq: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireVote {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    node: u64,
    #[prost(bool, tag = "3")]
    leads: bool,
}

/// Entries of the leader, after one that the follower should have.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Append {
    #[prost(message, required, tag = "1")]
    vote: WireVote,
    #[prost(message, optional, tag = "2")]
    prev: Option<WireId>,
    #[prost(message, optional, tag = "3")]
    decided: Option<WireId>,
    #[prost(message, repeated, tag = "4")]
    entries: Vec<WireEntry>,
    /// The chain after `prev`, if the leader has it at hand.
    #[prost(fixed64, optional, tag = "5")]
    prev_chain: Option<u64>,
    /// What the leader has to keep of its log for others: the follower keeps it, too.
    #[prost(uint64, tag = "6")]
    lacked_by_lagging: u64,
    #[prost(uint64, tag = "7")]
    lacked_by_joining: u64,
    /// An entry that the follower has acknowledged to this leader, and seems to lack.
    #[prost(message, optional, tag = "8")]
    forgotten: Option<WireId>,
}

#[derive(Clone, PartialEq, Message)]
struct WireEntry {
    #[prost(message, required, tag = "1")]
    id: WireId,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(uint64, tag = "3")]
    ordered_term: u64,
    #[prost(uint64, tag = "4")]
    ordered_lineage: u64,
    #[prost(uint64, tag = "5")]
    ordered_seq: u64,
    #[prost(fixed64, tag = "6")]
    ordered_chain: u64,
    #[prost(fixed64, tag = "7")]
    time_ns: u64,
    #[prost(bytes = "bytes", tag = "8")]
    content: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AppendReply {
    #[prost(oneof = "Appended", tags = "1, 2, 3, 4")]
    appended: Option<Appended>,
    /// The follower takes nothing that needs room.
    #[prost(bool, tag = "5")]
    is_full: bool,
    /// What is free on its disk.
    #[prost(uint64, tag = "6")]
    free_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
enum Appended {
    #[prost(bool, tag = "1")]
    All(bool),
    /// Up to this entry.
    #[prost(message, tag = "2")]
    UpTo(WireId),
    /// The follower does not have the entry before them.
    #[prost(bool, tag = "3")]
    Conflict(bool),
    /// The follower knows of a later leader or candidate.
    #[prost(message, tag = "4")]
    Higher(WireVote),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AskVote {
    #[prost(message, required, tag = "1")]
    vote: WireVote,
    #[prost(message, optional, tag = "2")]
    last: Option<WireId>,
    /// The leader has asked this candidate to take over.
    #[prost(bool, tag = "3")]
    is_transfer: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct VoteReply {
    #[prost(message, required, tag = "1")]
    vote: WireVote,
    #[prost(bool, tag = "2")]
    is_granted: bool,
    #[prost(message, optional, tag = "3")]
    last: Option<WireId>,
}

/// The leader asks a follower to take over.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Transfer {
    #[prost(message, required, tag = "1")]
    from: WireVote,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(message, optional, tag = "3")]
    last: Option<WireId>,
}

impl From<Id> for WireId {
    fn from(id: Id) -> WireId {
        WireId { term: id.leader_id.term, seq: id.index }
    }
}

impl From<WireId> for Id {
    fn from(id: WireId) -> Id {
        id_of(EntryId { term: id.term, seq: CommitSeq(id.seq) })
    }
}

impl From<&VoteOf> for WireVote {
    fn from(vote: &VoteOf) -> WireVote {
        let Vote { term, node, leads } = stored_vote(vote);
        WireVote { term, node, leads }
    }
}

impl From<WireVote> for VoteOf {
    fn from(WireVote { term, node, leads }: WireVote) -> VoteOf {
        vote_of(Vote { term, node, leads })
    }
}

impl WireEntry {
    fn new(entry: LogEntry, before_ns: u64) -> WireEntry {
        let Entry { id, ordered, time_ns, kind, bytes } = entry.into_stored(before_ns);
        WireEntry {
            id: WireId { term: id.term, seq: id.seq.0 },
            kind: match kind {
                EntryKind::Changes => 0,
                EntryKind::Blank => 1,
                EntryKind::Members => 2,
                EntryKind::Clock => 3,
            },
            ordered_term: ordered.term,
            ordered_lineage: ordered.lineage,
            ordered_seq: ordered.seq.0,
            ordered_chain: ordered.chain,
            time_ns,
            content: Bytes::from_owner(bytes),
        }
    }

    fn into_entry(self) -> Result<LogEntry, String> {
        let kind = match self.kind {
            0 => EntryKind::Changes,
            1 => EntryKind::Blank,
            2 => EntryKind::Members,
            3 => EntryKind::Clock,
            kind => return Err(format!("an entry of kind {kind}, which this build does not know")),
        };
        LogEntry::from_stored(Entry {
            id: EntryId { term: self.id.term, seq: CommitSeq(self.id.seq) },
            ordered: OrderedOn {
                term: self.ordered_term,
                lineage: self.ordered_lineage,
                seq: CommitSeq(self.ordered_seq),
                chain: self.ordered_chain,
            },
            time_ns: self.time_ns,
            kind,
            bytes: Arc::from(&self.content[..]),
        })
    }
}

/// What a follower lacks of the entries of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// The first that it does not have: the one before the entries, or one of them.
    pub(crate) first: EntryId,
    /// How many of the entries; none if it lacks the one before them, since consensus takes none then.
    pub(crate) entries: usize,
    /// Their bytes.
    pub(crate) bytes: usize,
}

impl Append {
    pub(crate) fn new<R: Runtime>(
        request: AppendEntriesRequest<Types<R>>,
        prev_chain: Option<u64>,
        lacked: Lacked,
    ) -> Append {
        let mut before_ns = 0;
        let entries = request.entries.into_iter().map(|entry| {
            let entry = WireEntry::new(entry, before_ns);
            before_ns = entry.time_ns;
            entry
        });
        Append {
            vote: WireVote::from(&request.vote),
            prev: request.prev_log_id.map(WireId::from),
            decided: request.leader_commit.map(WireId::from),
            entries: entries.collect(),
            prev_chain,
            lacked_by_lagging: lacked.by_lagging,
            lacked_by_joining: lacked.by_joining,
            forgotten: None,
        }
    }

    /// Whether this vote is not for a later leader than that of the entries.
    pub(crate) fn is_of_no_earlier_leader(&self, vote: &VoteOf) -> bool {
        *vote <= VoteOf::from(self.vote)
    }

    /// Tells the follower of an entry that it has acknowledged to this leader, and seems to lack.
    pub(crate) fn forgotten(self, forgotten: Option<Id>) -> Append {
        Append { forgotten: forgotten.map(WireId::from), ..self }
    }

    /// The entry that the follower has acknowledged to this leader, and seems to lack.
    pub(crate) fn seems_to_lack(&self) -> Option<EntryId> {
        let id = self.forgotten?;
        Some(EntryId { term: id.term, seq: CommitSeq(id.seq) })
    }

    /// What the leader has to keep of its log for others.
    pub(crate) fn lacked(&self) -> Lacked {
        Lacked { by_lagging: self.lacked_by_lagging, by_joining: self.lacked_by_joining }
    }

    /// The entry that the follower should have, and the chain after it at the leader.
    pub(crate) fn continues(&self) -> Option<(EntryId, u64)> {
        let prev = self.prev?;
        Some((EntryId { term: prev.term, seq: CommitSeq(prev.seq) }, self.prev_chain?))
    }

    /// What a follower lacks, whose log `has` some of the entries; `None` if it has all of them.
    pub(crate) fn lacking(&self, has: impl Fn(EntryId) -> bool) -> Option<Lacking> {
        let id_of = |id: &WireId| EntryId { term: id.term, seq: CommitSeq(id.seq) };
        if let Some(prev) = self.prev.as_ref().map(id_of).filter(|prev| !has(*prev)) {
            return Some(Lacking { first: prev, entries: 0, bytes: 0 });
        }
        let mut lacking = self.entries.iter().skip_while(|entry| has(id_of(&entry.id))).peekable();
        let first = id_of(&lacking.peek()?.id);
        let (entries, bytes) =
            lacking.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.content.len()));
        Some(Lacking { first, entries, bytes })
    }

    /// Whether all of them are of consensus itself.
    pub(crate) fn are_of_consensus(&self) -> bool {
        // Those of the database are of kind 0.
        self.entries.iter().all(|entry| entry.kind != 0)
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.content.len()).sum()
    }

    /// # Errors
    /// What is wrong with an entry.
    pub(crate) fn into_request<R: Runtime>(self) -> Result<AppendEntriesRequest<Types<R>>, String> {
        Ok(AppendEntriesRequest {
            vote: self.vote.into(),
            prev_log_id: self.prev.map(Id::from),
            entries: self.entries.into_iter().map(WireEntry::into_entry).collect::<Result<_, _>>()?,
            leader_commit: self.decided.map(Id::from),
        })
    }
}

impl Answer {
    /// An answer to entries, which says how much room is left.
    pub(crate) fn with_space(self, space: Space) -> Answer {
        match self {
            Answer::Append(reply) => {
                let Space { is_full, free_bytes } = space;
                Answer::Append(AppendReply { is_full, free_bytes, ..reply })
            }
            answer => answer,
        }
    }
}

impl AppendReply {
    pub(crate) fn new<R: Runtime>(response: &AppendEntriesResponse<Types<R>>) -> AppendReply {
        let appended = match response {
            AppendEntriesResponse::Success => Appended::All(true),
            AppendEntriesResponse::PartialSuccess(id) => {
                Appended::UpTo(id.map(WireId::from).unwrap_or_default())
            }
            AppendEntriesResponse::Conflict => Appended::Conflict(true),
            AppendEntriesResponse::HigherVote(vote) => Appended::Higher(vote.into()),
        };
        AppendReply { appended: Some(appended), is_full: false, free_bytes: 0 }
    }

    /// How much room the follower has.
    pub(crate) fn space(&self) -> Space {
        Space { is_full: self.is_full, free_bytes: self.free_bytes }
    }

    /// The last entry of those that were sent that the follower has, the last one sent being `last`.
    pub(crate) fn acknowledged(&self, last: Option<Id>) -> Option<Id> {
        match self.appended? {
            Appended::All(_) => last,
            Appended::UpTo(id) => (id.seq > 0).then(|| id.into()),
            Appended::Conflict(_) | Appended::Higher(_) => None,
        }
    }

    /// Whether the follower lacks the entry before those that were sent.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.appended, Some(Appended::Conflict(_)))
    }

    /// Whether the follower knows of a later leader or candidate.
    pub(crate) fn is_of_a_later_leader(&self) -> bool {
        matches!(self.appended, Some(Appended::Higher(_)))
    }

    /// `None` if this build does not know the answer.
    pub(crate) fn into_response<R: Runtime>(self) -> Option<AppendEntriesResponse<Types<R>>> {
        Some(match self.appended? {
            Appended::All(_) => AppendEntriesResponse::Success,
            // Sequence 0 is before every entry.
            Appended::UpTo(id) => AppendEntriesResponse::PartialSuccess((id.seq > 0).then(|| id.into())),
            Appended::Conflict(_) => AppendEntriesResponse::Conflict,
            Appended::Higher(vote) => AppendEntriesResponse::HigherVote(vote.into()),
        })
    }
}

impl AskVote {
    pub(crate) fn new<R: Runtime>(request: &VoteRequest<Types<R>>) -> AskVote {
        AskVote {
            vote: WireVote::from(&request.vote),
            last: request.last_log_id.map(WireId::from),
            is_transfer: request.leadership_transfer,
        }
    }

    pub(crate) fn into_request<R: Runtime>(self) -> VoteRequest<Types<R>> {
        VoteRequest {
            vote: self.vote.into(),
            last_log_id: self.last.map(Id::from),
            leadership_transfer: self.is_transfer,
        }
    }
}

impl VoteReply {
    pub(crate) fn new<R: Runtime>(response: &VoteResponse<Types<R>>) -> VoteReply {
        VoteReply {
            vote: WireVote::from(&response.vote),
            is_granted: response.vote_granted,
            last: response.last_log_id.map(WireId::from),
        }
    }

    pub(crate) fn into_response<R: Runtime>(self) -> VoteResponse<Types<R>> {
        VoteResponse {
            vote: self.vote.into(),
            vote_granted: self.is_granted,
            last_log_id: self.last.map(Id::from),
        }
    }
}

impl Transfer {
    pub(crate) fn new<R: Runtime>(request: &TransferLeaderRequest<Types<R>>) -> Transfer {
        Transfer {
            from: WireVote::from(request.from_leader()),
            to: *request.to_node_id(),
            last: request.last_log_id().copied().map(WireId::from),
        }
    }

    pub(crate) fn into_request<R: Runtime>(self) -> TransferLeaderRequest<Types<R>> {
        TransferLeaderRequest::new(self.from.into(), self.to, self.last.map(Id::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries that are sent again, since the answer was lost, take no room on a full disk.
    #[test]
    fn entries_that_the_follower_has_need_no_room() {
        let entry = |seq: u64| WireEntry {
            id: WireId { term: 2, seq },
            content: Bytes::from(vec![7; 100]),
            ..WireEntry::default()
        };
        let append = Append { entries: (5..9).map(entry).collect(), ..Append::default() };
        let lacks = |first, entries| {
            let first = EntryId { term: 2, seq: CommitSeq(first) };
            Some(Lacking { first, entries, bytes: 100 * entries })
        };
        assert_eq!(append.lacking(|_| false), lacks(5, 4));
        assert_eq!(append.lacking(|id| id.seq <= CommitSeq(6)), lacks(7, 2));
        assert_eq!(append.lacking(|_| true), None);
        let behind = Append { prev: Some(WireId { term: 2, seq: 4 }), ..append.clone() };
        assert_eq!(behind.lacking(|_| false), lacks(4, 0), "consensus takes none of the entries then");
        // What follows one that it lacks is not the same, whatever stands there.
        assert_eq!(append.lacking(|id| id.seq != CommitSeq(5)), lacks(5, 4));
    }
}
