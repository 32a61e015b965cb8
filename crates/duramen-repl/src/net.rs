//! Requests of consensus to peers: encoded here, carried by a transport.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use duramen_disk::Disk;
use duramen_engine::{Code, CommitSeq, EntryId, Error, Ident, RaftLog};
use futures_util::{Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::metrics::RaftMetrics;
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{OptionalSend, Raft, RaftNetworkFactory, RaftNetworkV2, ServerState};
use openraft_rt::{Instant as _, Select2};
use prost::Message;

use crate::copying::CopyOf;
use crate::merge::merged;
use crate::node::GONE_AFTER;
use crate::openings::Openings;
use crate::retain::Retained;
use crate::room::Rooms;
use crate::runtime::Runtime;
use crate::seed::Seeds;
use crate::state::{State, StateAt};
use crate::types::{Peer, Types, VoteOf, id_of};
use crate::wire::{
    Answer, Append, AppendReply, AskVote, Asked, CopyReply, NeedsCopy, NextPiece, Reply, Request, Seed,
    Transfer, VoteReply, WireId, WireIncarnation, WireVote,
};
use crate::{join, read};

/// What followers answer to entries, one after the other.
type Appended<'s, R> = BoxStream<'s, Result<StreamAppendResult<Types<R>>, RPCError<Types<R>>>>;

/// The answer of a peer, or why there is none.
pub type Called = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send>>;

/// What carries requests to peers. A request may be lost, be late, or arrive twice.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and waits for the answer.
    fn call(&self, node: u64, peer: &Peer, lane: Lane, request: Vec<u8>) -> Called;
}

/// What waits for what: requests of different lanes do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Votes, heartbeats, reads. Nothing large.
    Control,
    /// Entries.
    Log,
    /// The state, for a new node.
    Bulk,
}

/// A member that needs a copy of the state is told this often.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Entries are sent anew if a follower has not answered for so long: long enough for a slow link and disk.
/// The limit that consensus gives, a heartbeat, would cut large entries short for ever.
fn time_for(bytes: usize) -> Duration {
    Duration::from_secs(1) + Duration::from_micros(4) * u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The way to all peers, of a node.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) ident: Ident,
    /// A node that stops closes it.
    pub(crate) log: Weak<RaftLog>,
    pub(crate) retained: Arc<Retained>,
    pub(crate) rooms: Arc<Rooms>,
    /// What this node gives of its state.
    pub(crate) seeds: Weak<Seeds>,
    /// The newest entry of which a leader said that it names the members, without this node; 0 if none did.
    pub(crate) removed_by: Arc<AtomicU64>,
    pub(crate) openings: Arc<Openings>,
}

impl Links {
    /// Asks a member, and waits for the answer so long at most.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn ask<R: Runtime>(
        &self,
        (node, peer): (u64, &Peer),
        lane: Lane,
        asked: Asked,
        within: Duration,
    ) -> Result<Answer, String> {
        let openings = &self.openings;
        if let Some(why) = openings.retired() {
            return Err(why.message().to_owned());
        }
        let request = Request {
            incarnation: openings.own(),
            expects: openings.newest_of(node),
            ..Request::new(Some(self.ident), node, asked)
        };
        let reply = ask::<R>(&*self.transport, peer, lane, request, within).await?;
        if let Some(expected) = reply.expects {
            openings.hears_of::<R>(expected, true).await;
        }
        let met = reply.incarnation;
        if let Some(met) = met {
            openings.meet::<R>(node, met).await.map_err(|_| not_the_newest(node))?;
        }
        let answer = reply.into_answer()?;
        if let Some(why) = openings.retired() {
            return Err(why.message().to_owned());
        }
        if met.is_none() {
            return Err(not_the_newest(node));
        }
        if let Answer::Removed(by) = answer {
            self.removed_by.fetch_max(by, Ordering::Relaxed);
            return Err(removed(self.ident).message().to_owned());
        }
        Ok(answer)
    }

    /// A member was told to copy the state after an entry, or after a later one: just now, or before.
    fn is_told(&self, peer: &Peer, seq: u64, is_new: bool) {
        if let Some(seeds) = self.seeds.upgrade() {
            seeds.tell(&peer.address, seq, is_new);
        }
    }

    /// The chain after an entry, if it is at hand.
    fn chain_after(&self, seq: u64) -> Option<u64> {
        let (log, seq) = (self.log.upgrade()?, CommitSeq(seq));
        if !log.is_in_memory(seq) {
            return None;
        }
        log.end_after(seq).ok().map(|end| end.chain)
    }
}

/// Whether the members that are decided lack a node, and were named after its admission: the number of a node
/// is above those of all entries before that.
pub(crate) fn is_no_member<R: Runtime>(now: &RaftMetrics<Types<R>>, node: u64) -> bool {
    let named = now.membership_config.log_id().map_or(0, |named| named.index);
    let is_decided = now.last_applied.is_some_and(|applied| applied.index >= named);
    named > node && is_decided && now.membership_config.get_node(&node).is_none()
}

/// Whether this node leads, and a majority has just confirmed it.
pub(crate) fn is_confirmed<R: Runtime>(now: &RaftMetrics<Types<R>>) -> bool {
    let is_alone = now.membership_config.voter_ids().eq([now.id]);
    let is_confirmed = || now.last_quorum_acked.is_some_and(|at| at.elapsed() < GONE_AFTER);
    now.state == ServerState::Leader && (is_alone || is_confirmed())
}

/// The error of a node that was removed from its cluster.
pub(crate) fn removed(ident: Ident) -> Error {
    let what = format!("node {} was removed from its cluster, and takes no more part", ident.node);
    Error::new(Code::IdentityRetired, what)
        .with_hint("move its directory away; an empty one can join with `duramen serve DB --join`")
}

/// The way to one peer.
pub(crate) struct Link {
    links: Links,
    node: u64,
    peer: Peer,
    lane: Lane,
}

impl<R: Runtime> RaftNetworkFactory<Types<R>> for Links {
    type Network = Link;

    async fn new_client(&mut self, node: u64, peer: &Peer) -> Link {
        Link { links: self.clone(), node, peer: peer.clone(), lane: Lane::Log }
    }

    async fn new_heartbeat_client(&mut self, node: u64, peer: &Peer) -> Link {
        Link { links: self.clone(), node, peer: peer.clone(), lane: Lane::Control }
    }
}

impl Link {
    async fn call<R: Runtime>(
        &self,
        lane: Lane,
        asked: Asked,
        option: &RPCOption,
    ) -> Result<Answer, RPCError<Types<R>>> {
        let within = match (lane, &asked) {
            (Lane::Log, Asked::Append(append)) => time_for(append.bytes()),
            _ => option.hard_ttl(),
        };
        let answered = self.links.ask::<R>((self.node, &self.peer), lane, asked, within);
        answered.await.map_err(|why| RPCError::Unreachable(Unreachable::from_string(why)))
    }

    /// Tells the member that it needs a copy of the state after an entry, until it has that or a later one.
    /// Consensus goes on behind that entry then: it fails once the entry is let go of here. Returns the vote
    /// of the member.
    async fn tell_until_copied<R: Runtime>(
        &self,
        at_least: EntryId,
        leader: String,
    ) -> Result<VoteOf, String> {
        let at = WireId { term: at_least.term, seq: at_least.seq.0 };
        let mut is_told = false;
        loop {
            let bytes = self.links.seeds.upgrade().map_or(0, |seeds| seeds.state_bytes());
            let asked = Asked::NeedsCopy(NeedsCopy { at_least: at, leader: leader.clone(), bytes });
            let to = (self.node, &self.peer);
            let answer = self.links.ask::<R>(to, Lane::Control, asked, GONE_AFTER).await;
            let is_purged = || self.links.log.upgrade().is_none_or(|log| log.purged().id.seq > at_least.seq);
            match answer {
                Ok(Answer::CopyReply(reply)) if reply.has >= at.seq => return Ok(reply.vote.into()),
                _ if is_purged() => return Err(format!("node {} has no copy of the state", self.node)),
                answer => {
                    // Once, and while it copies: a member that does not begin must not hold the log for ever.
                    let is_new = !is_told && matches!(answer, Ok(Answer::CopyReply(_)));
                    is_told |= is_new;
                    self.links.is_told(&self.peer, at.seq, is_new);
                }
            }
            R::sleep(TELL_EVERY).await;
        }
    }

    async fn ask_vote<R: Runtime>(
        &self,
        asked: Asked,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        match self.call::<R>(Lane::Control, asked, option).await? {
            Answer::Vote(reply) => Ok(reply.into_response()),
            answer => Err(misplaced(&answer)),
        }
    }
}

/// Asks a peer, and waits for the answer so long at most.
///
/// # Errors
/// Why there is none.
pub(crate) async fn ask<R: Runtime>(
    transport: &dyn Transport,
    peer: &Peer,
    lane: Lane,
    request: Request,
    within: Duration,
) -> Result<Reply, String> {
    let called = transport.call(request.to, peer, lane, request.encode_to_vec());
    let no_answer = |_| format!("{} has not answered within {within:?}", peer.address);
    let reply = R::timeout(within, called).await.map_err(no_answer)??;
    Reply::decode(&reply[..]).map_err(text)
}

impl Reply {
    fn failed(why: String) -> Reply {
        Reply { answer: Some(Answer::Failed(why)), ..Reply::default() }
    }

    /// The answer.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn into_answer(self) -> Result<Answer, String> {
        match self.answer {
            Some(Answer::Failed(why)) => Err(why),
            Some(answer) => Ok(answer),
            None => Err("an answer that this build does not know".to_owned()),
        }
    }
}

fn not_the_newest(node: u64) -> String {
    format!("what answers for node {node} is an older copy of it, or a second one")
}

fn misplaced<R: Runtime>(answer: &Answer) -> RPCError<Types<R>> {
    RPCError::Unreachable(Unreachable::from_string(format!("an answer to something else: {answer:?}")))
}

impl<R: Runtime> RaftNetworkV2<Types<R>> for Link {
    type SnapshotData = StateAt;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types<R>>, RPCError<Types<R>>> {
        let prev_chain = rpc.prev_log_id.and_then(|prev| self.links.chain_after(prev.index));
        let (vote, prev) = (rpc.vote, rpc.prev_log_id);
        let last = rpc.entries.last().map(|entry| entry.id).or(prev);
        let forgotten = self.links.openings.lacked_by(self.node, &vote);
        let append = Append::new(rpc, prev_chain, self.links.retained.get()).forgotten(forgotten);
        let asked = Asked::Append(append);
        let answer = self.call::<R>(self.lane, asked, &option).await?;
        match answer {
            Answer::Append(reply) => {
                self.links.rooms.tells(self.node, reply.space());
                let openings = &self.links.openings;
                if let Some(id) = reply.acknowledged(last) {
                    openings.acknowledged(self.node, &vote, id);
                }
                // Consensus takes this for impossible. The member is told with the next request.
                if let Some(prev) = prev.filter(|_| reply.is_conflict())
                    && openings.lacks(self.node, &vote, prev.index)
                {
                    let why = format!("node {} lacks an entry that it has acknowledged", self.node);
                    return Err(RPCError::Unreachable(Unreachable::from_string(why)));
                }
                reply.into_response().ok_or_else(|| misplaced(&Answer::Failed(String::new())))
            }
            answer => Err(misplaced(&answer)),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<Appended<'s, R>, RPCError<Types<R>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types<R>>> + OptionalSend + Unpin + 'static,
    {
        match self.lane {
            Lane::Log => stream_append_sequential(self, merged::<R>(input).boxed(), option),
            // Of heartbeats each is one of its own.
            Lane::Control | Lane::Bulk => stream_append_sequential(self, input, option),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        self.ask_vote(Asked::Vote(AskVote::new(&rpc)), &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<R>>, RPCError<Types<R>>> {
        self.ask_vote(Asked::PreVote(AskVote::new(&rpc)), &option).await
    }

    /// Sends nothing of the state: the member is told that it needs a copy, and fetches one.
    async fn full_snapshot(
        &mut self,
        vote: VoteOf,
        snapshot: SnapshotOf<Types<R>, StateAt>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<R>>, StreamingError<Types<R>>> {
        let at_least = snapshot.snapshot.end.id;
        let leader = snapshot.meta.last_membership.get_node(&self.links.ident.node);
        let leader = leader.map_or_else(String::new, |leader| leader.address.clone());
        match R::select2(pin!(cancel), pin!(self.tell_until_copied::<R>(at_least, leader))).await {
            Select2::First(canceled) => Err(StreamingError::Closed(canceled)),
            Select2::Second(Ok(voted)) => {
                self.links.openings.acknowledged(self.node, &vote, id_of(at_least));
                Ok(SnapshotResponse::new(voted))
            }
            Select2::Second(Err(why)) => Err(StreamingError::Unreachable(Unreachable::from_string(why))),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types<R>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<R>>, RPCError<Types<R>>> {
        let asked = Asked::Transfer(Transfer::new(&request));
        match self.call::<R>(Lane::Control, asked, &option).await? {
            Answer::Transfer(why) if why.is_empty() => Ok(Ok(())),
            Answer::Transfer(why) => Err(RPCError::Unreachable(Unreachable::from_string(why))),
            answer => Err(misplaced(&answer)),
        }
    }
}

/// What a node answers requests with.
pub(crate) struct Answering<R: Runtime> {
    pub(crate) raft: Raft<Types<R>, State>,
    pub(crate) ident: Ident,
    pub(crate) log: Weak<RaftLog>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) retained: Arc<Retained>,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) disk: Arc<dyn Disk>,
    /// Held while a member is admitted.
    pub(crate) admits: futures_util::lock::Mutex<()>,
    pub(crate) openings: Arc<Openings>,
    /// Why this node takes nothing from its leader.
    pub(crate) refuses: OnceLock<Error>,
    /// When the node that leads was last heard, by the disk's monotonic clock.
    pub(crate) heard_ns: AtomicU64,
    /// What a leader has last said that this node lacks.
    needed: Mutex<Option<Needed>>,
}

/// The state after an entry, or a later one, and where it is.
struct Needed {
    seq: u64,
    copy: CopyOf,
}

impl<R: Runtime> Answering<R> {
    pub(crate) fn new(
        links: &Links,
        raft: Raft<Types<R>, State>,
        seeds: Arc<Seeds>,
        disk: Arc<dyn Disk>,
    ) -> Answering<R> {
        let Links { ident, log, retained, rooms, openings, .. } = links.clone();
        let (admits, refuses, heard_ns, needed) = Default::default();
        Answering {
            raft,
            ident,
            log,
            seeds,
            retained,
            rooms,
            openings,
            disk,
            admits,
            refuses,
            heard_ns,
            needed,
        }
    }

    /// Answers a request of a peer.
    pub(crate) async fn answer(&self, request: &[u8]) -> Vec<u8> {
        let reply = match Request::decode(request) {
            Ok(request) if self.is_for_this_node(&request) => self.reply(request).await,
            Ok(_) => {
                let own = self.ident.node;
                Reply::failed(format!(
                    "node {own} of another cluster is at this address, or another node of this one"
                ))
            }
            Err(error) => Reply::failed(error.to_string()),
        };
        reply.encode_to_vec()
    }

    fn is_for_this_node(&self, Request { asked, cluster, to, .. }: &Request) -> bool {
        // A database that is no node yet knows no cluster.
        let wants_to_join = cluster.is_empty() && matches!(asked, Some(Asked::Join(_)));
        let is_ours = *cluster == self.ident.cluster.to_be_bytes() && (*to == 0 || *to == self.ident.node);
        is_ours || wants_to_join
    }

    async fn reply(&self, request: Request) -> Reply {
        let mut expects = None;
        let answer = match self.are_both_the_newest(&request, &mut expects).await {
            Ok(()) => self.answer_request(request).await,
            Err(why) => Err(why),
        };
        // It may have retired meanwhile: nothing that was on its way is said then.
        let answer = self.openings.retired().map_or(answer, |why| Err(why.message().to_owned()));
        let answer = Some(answer.unwrap_or_else(Answer::Failed));
        Reply { answer, incarnation: self.openings.own(), expects }
    }

    /// Fails if one of both nodes is an older copy. `expects` becomes the incarnation that is known of the
    /// node that asks, if that is another one.
    async fn are_both_the_newest(
        &self,
        request: &Request,
        expects: &mut Option<WireIncarnation>,
    ) -> Result<(), String> {
        let Request { asked, from, incarnation, .. } = request;
        let is_of_consensus = !matches!(asked, Some(Asked::Join(_) | Asked::Seed(_) | Asked::NextPiece(_)));
        match incarnation {
            Some(incarnation) => {
                if let Err(newest) = self.openings.meet::<R>(*from, *incarnation).await {
                    let metrics = self.raft.metrics();
                    let leads = is_confirmed(&metrics.borrow_watched());
                    *expects = newest.filter(|newest| leads || !newest.is_as_late_as(incarnation));
                    return Err(not_the_newest(*from));
                }
            }
            None if is_of_consensus => return Err(not_the_newest(*from)),
            None => {}
        }
        if let Some(expected) = request.expects {
            let vote = self.raft.metrics().borrow_watched().vote;
            let is_led = |append: &Append| append.is_of_no_earlier_leader(&vote);
            let decides = matches!(asked, Some(Asked::Append(append)) if is_led(append));
            self.openings.hears_of::<R>(expected, decides).await;
        }
        Ok(())
    }

    async fn answer_request(&self, request: Request) -> Result<Answer, String> {
        let Request { asked, from, .. } = request;
        let asked = asked.ok_or("a request that this build does not know")?;
        if let Some(by) = (from != 0).then(|| self.removed_by(from)).flatten() {
            return Ok(Answer::Removed(by));
        }
        match asked {
            Asked::Join(join) => {
                let log = self.log.upgrade().ok_or("the node has stopped")?;
                // Two at once would get the same id.
                let _one = self.admits.lock().await;
                join::admit(&self.raft, self.ident, &log, join).await
            }
            Asked::Seed(Seed { at_least, address }) => {
                read::published(&self.raft, at_least).await?;
                let seeds = Arc::clone(&self.seeds);
                let begun = R::run_blocking(move || seeds.begin(address)).await.map_err(text)?;
                begun.map(Answer::SeedHead)
            }
            Asked::NextPiece(NextPiece { seed, number }) => {
                let seeds = Arc::clone(&self.seeds);
                let piece = R::run_blocking(move || seeds.piece(seed, number)).await.map_err(text)?;
                piece.map(Answer::Piece)
            }
            Asked::NeedsCopy(needed) => self.needs_copy(needed).await,
            Asked::Append(append) => {
                self.is_same_log(&append)?;
                if let Some(id) = append.seems_to_lack() {
                    self.has_not_forgotten(id, &append).await?;
                }
                let lacked = append.lacked();
                let room = self.rooms.hold::<R>(self.ident.node, &append).await?;
                let answer = answer_to(&self.raft, Asked::Append(append)).await?.with_space(self.rooms.own());
                drop(room);
                if matches!(&answer, Answer::Append(reply) if !reply.is_of_a_later_leader()) {
                    self.retained.set(lacked);
                    self.heard_ns.store(self.disk.monotonic_ns(), Ordering::Relaxed);
                }
                Ok(answer)
            }
            asked => answer_to(&self.raft, asked).await,
        }
    }

    /// The entry that names the members, if they lack a node, and this one leads, as a majority confirms. A
    /// leader that was suspended may not know that it leads no more: a node does not believe it if it knows a
    /// later entry that names the members.
    fn removed_by(&self, node: u64) -> Option<u64> {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        let named = now.membership_config.log_id().as_ref()?.index;
        (is_confirmed(&now) && is_no_member(&now, node)).then_some(named)
    }

    /// Notes whom to ask for a copy of the state, unless the log of this node has the entry: that is
    /// decided, and so is all before it. It need not be applied here: consensus tells a node what is
    /// decided only up to where it knows that both logs agree. Answers how far this node is.
    async fn needs_copy(&self, needs: NeedsCopy) -> Result<Answer, String> {
        let NeedsCopy { at_least, leader, bytes } = needs;
        let log = self.log.upgrade().ok_or("the node has stopped")?;
        let id = EntryId { term: at_least.term, seq: CommitSeq(at_least.seq) };
        let look = move || {
            let (end, purged) = (log.end().id.seq, log.purged().id.seq);
            let is_here = id.seq > purged && id.seq <= end;
            let has_it = if is_here { log.end_after(id.seq)?.id == id } else { id.seq <= purged };
            Ok::<_, Error>((has_it, has_it && id.seq <= log.synced()))
        };
        let (has_it, is_synced) = R::run_blocking(look).await.map_err(text)?.map_err(text)?;
        if !has_it {
            let copy = CopyOf { ident: self.ident, from: leader, bytes };
            let needed = Needed { seq: at_least.seq, copy };
            *self.needed.lock().unwrap_or_else(PoisonError::into_inner) = Some(needed);
        }
        // As consensus knows it, after all that has come before.
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await.map_err(text)?;
        let has = if is_synced { self.applied().max(at_least.seq) } else { self.applied() };
        Ok(Answer::CopyReply(CopyReply { vote: WireVote::from(&vote), has }))
    }

    fn applied(&self) -> u64 {
        read::applied(&self.raft.metrics().borrow_watched())
    }

    /// What this node needs a copy of.
    pub(crate) fn needs_copy_of(&self) -> Option<CopyOf> {
        let needed = self.needed.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have got what it lacked meanwhile.
        needed.as_ref().filter(|needed| self.applied() < needed.seq).map(|needed| needed.copy.clone())
    }

    /// Fails if this node lacks an entry that it has acknowledged, as the leader says. A later leader may
    /// rightly have taken the entry back: this node has voted for that one then.
    async fn has_not_forgotten(&self, id: EntryId, append: &Append) -> Result<(), String> {
        if !self.openings.lacks_here::<R>(id).await? {
            return Ok(());
        }
        // After the look: no vote for a later leader came before it.
        let vote = self.raft.with_raft_state(|state| *state.vote_ref()).await.map_err(text)?;
        if !append.is_of_no_earlier_leader(&vote) {
            return Ok(());
        }
        Err(self.openings.retire_without::<R>(id).await)
    }

    /// Fails if the log of this node has another history than the leader's: the same entry stands on others.
    /// Which of both is wrong is not known here.
    fn is_same_log(&self, append: &Append) -> Result<(), String> {
        let Some(((id, chain), log)) = append.continues().zip(self.log.upgrade()) else { return Ok(()) };
        if !log.is_in_memory(id.seq) || id.seq > log.end().id.seq {
            return Ok(());
        }
        let is_other = log.end_after(id.seq).is_ok_and(|own| own.id == id && own.chain != chain);
        if !is_other {
            return Ok(());
        }
        let what = format!(
            "node {} has another history than its leader up to entry {} of term {}: it takes nothing more from it",
            self.ident.node, id.seq, id.term
        );
        let hint = "look whether its directory is a copy of another one; remove it from the cluster, and join with an empty directory";
        let why = self.refuses.get_or_init(|| Error::new(Code::WrongCluster, what).with_hint(hint));
        Err(why.message().to_owned())
    }
}

async fn answer_to<R: Runtime>(raft: &Raft<Types<R>, State>, asked: Asked) -> Result<Answer, String> {
    Ok(match asked {
        Asked::Join(_) | Asked::Seed(_) | Asked::NextPiece(_) | Asked::NeedsCopy(_) => {
            return Err("consensus does not know that request".to_owned());
        }
        Asked::Append(append) => {
            let response = raft.append_entries(append.into_request()?).await.map_err(text)?;
            Answer::Append(AppendReply::new(&response))
        }
        Asked::Vote(ask) => Answer::Vote(VoteReply::new(&raft.vote(ask.into_request()).await.map_err(text)?)),
        Asked::PreVote(ask) => {
            Answer::Vote(VoteReply::new(&raft.pre_vote(ask.into_request()).await.map_err(text)?))
        }
        Asked::ReadIndex(_) => Answer::ReadIndex(read::index_here(raft).await?),
        Asked::Transfer(transfer) => {
            let taken = raft.handle_transfer_leader(transfer.into_request()).await.map_err(text)?;
            Answer::Transfer(taken.err().map_or_else(String::new, text))
        }
    })
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
