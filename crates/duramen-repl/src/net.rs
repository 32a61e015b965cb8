//! Requests of consensus to peers: encoded here, carried by a transport.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, Raft, RaftNetworkFactory, RaftNetworkV2};
use prost::Message;

use crate::read;
use crate::runtime::Runtime;
use crate::state::{State, StateAt};
use crate::types::{Peer, Types, VoteOf};
use crate::wire::{Answer, Append, AppendReply, AskVote, Asked, Reply, Request, Transfer, VoteReply};

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
}

/// Entries are sent anew if a follower has not answered for so long: long enough for a slow link and disk.
/// The limit that consensus gives, a heartbeat, would cut large entries short for ever.
fn time_for(bytes: usize) -> Duration {
    Duration::from_secs(1) + Duration::from_micros(4) * u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The way to all peers.
pub(crate) struct Links {
    pub(crate) transport: Arc<dyn Transport>,
}

/// The way to one peer.
pub(crate) struct Link {
    transport: Arc<dyn Transport>,
    node: u64,
    peer: Peer,
    lane: Lane,
}

impl<R: Runtime> RaftNetworkFactory<Types<R>> for Links {
    type Network = Link;

    async fn new_client(&mut self, node: u64, peer: &Peer) -> Link {
        Link { transport: Arc::clone(&self.transport), node, peer: peer.clone(), lane: Lane::Log }
    }

    async fn new_heartbeat_client(&mut self, node: u64, peer: &Peer) -> Link {
        Link { transport: Arc::clone(&self.transport), node, peer: peer.clone(), lane: Lane::Control }
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
        let answered = ask::<R>(&*self.transport, (self.node, &self.peer), lane, asked, within);
        answered.await.map_err(|why| RPCError::Unreachable(Unreachable::from_string(why)))
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
    (node, peer): (u64, &Peer),
    lane: Lane,
    asked: Asked,
    within: Duration,
) -> Result<Answer, String> {
    let request = Request { asked: Some(asked) }.encode_to_vec();
    let called = transport.call(node, peer, lane, request);
    let no_answer = |_| format!("node {node} has not answered within {within:?}");
    let reply = R::timeout(within, called).await.map_err(no_answer)??;
    match Reply::decode(&reply[..]).map_err(text)?.answer {
        Some(Answer::Failed(why)) => Err(why),
        Some(answer) => Ok(answer),
        None => Err("an answer that this build does not know".to_owned()),
    }
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
        let answer = self.call::<R>(self.lane, Asked::Append(Append::new(rpc)), &option).await?;
        match answer {
            Answer::Append(reply) => {
                reply.into_response().ok_or_else(|| misplaced(&Answer::Failed(String::new())))
            }
            answer => Err(misplaced(&answer)),
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

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf,
        _snapshot: SnapshotOf<Types<R>, StateAt>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<R>>, StreamingError<Types<R>>> {
        let why = format!("node {} needs entries that are purged here", self.node);
        Err(StreamingError::Unreachable(Unreachable::from_string(why)))
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

/// Answers a request of a peer.
pub(crate) async fn answer<R: Runtime>(raft: &Raft<Types<R>, State>, request: &[u8]) -> Vec<u8> {
    let answer = match Request::decode(request) {
        Ok(Request { asked: Some(asked) }) => answer_to(raft, asked).await,
        Ok(Request { asked: None }) => Err("a request that this build does not know".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let answer = answer.unwrap_or_else(Answer::Failed);
    Reply { answer: Some(answer) }.encode_to_vec()
}

async fn answer_to<R: Runtime>(raft: &Raft<Types<R>, State>, asked: Asked) -> Result<Answer, String> {
    Ok(match asked {
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
