//! Linearizable reads: the leader confirms that it leads, and tells up to where a read has to see.

use std::time::Duration;

use duramen_engine::CommitSeq;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::type_config::async_runtime::WatchReceiver;

use crate::net::{Lane, Links};
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;
use crate::wire::{Answer, Asked, ReadIndex};

type Raft<R> = openraft::Raft<Types<R>, State>;

/// The last entry that a read on the leader has to see, once a majority has confirmed that this node leads.
///
/// # Errors
/// Why this node does not know.
pub(crate) async fn index_here<R: Runtime>(raft: &Raft<R>) -> Result<u64, String> {
    let linearizer = raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
    let linearizer = linearizer.map_err(why_not_confirmed)?;
    Ok(linearizer.read_log_id().index())
}

fn why_not_confirmed<R: Runtime>(error: RaftError<Types<R>, LinearizableReadError<Types<R>>>) -> String {
    match error {
        RaftError::APIError(LinearizableReadError::ForwardToLeader(_)) => {
            "this node does not lead".to_owned()
        }
        RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => {
            "too few of the nodes that vote answer the leader".to_owned()
        }
        error => error.to_string(),
    }
}

/// Waits until everything that was acknowledged before this call is published here.
///
/// # Errors
/// Why that is not known.
pub(crate) async fn catch_up<R: Runtime>(
    raft: &Raft<R>,
    links: &Links,
    within: Duration,
) -> Result<CommitSeq, String> {
    let mut metrics = raft.metrics();
    let (id, leader) = {
        let now = metrics.borrow_watched();
        let leader = now.current_leader;
        let peer = leader.and_then(|leader| now.membership_config.get_node(&leader).cloned());
        (now.id, leader.zip(peer))
    };
    let index = match leader {
        Some((leader, _)) if leader == id => index_here(raft).await?,
        Some((leader, peer)) => {
            let asked = Asked::ReadIndex(ReadIndex {});
            match links.ask::<R>((leader, &peer), Lane::Control, asked, within).await? {
                Answer::ReadIndex(index) => index,
                answer => return Err(format!("node {leader} answers to something else: {answer:?}")),
            }
        }
        None => return Err("no node leads".to_owned()),
    };
    // An entry is applied once it is published.
    while metrics.borrow_watched().last_applied.is_none_or(|applied| applied.index < index) {
        metrics.changed().await.map_err(|_| "the node has stopped".to_owned())?;
    }
    Ok(CommitSeq(index))
}
