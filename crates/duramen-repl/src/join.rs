//! New members: how the leader admits one, and how a directory becomes a node of an existing cluster.
//!
//! The id of a new node is above the sequence of every entry before its admission, and at most that of the
//! admission itself: so no id is used twice. The node receives every entry from then on, and does not vote.
//! It copies the state of the node that has admitted it, which has that commit, and then starts as any node
//! does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duramen::DbOptions;
use duramen::wire::begin_node;
use duramen_disk::Disk;
use duramen_engine::{Ident, RaftLog};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, ServerState};
use openraft_rt::Instant as _;

use crate::copying::{Asking, PAUSE, copy, unexpected};
use crate::net::{Lane, Transport};
use crate::node::{GONE_AFTER, NodeError};
use crate::runtime::Runtime;
use crate::seed::head_of;
use crate::state::State;
use crate::types::{Peer, Types};
use crate::wire::{Answer, Asked, Join, Joined, SeedHead};

type Raft<R> = openraft::Raft<Types<R>, State>;

/// Admits a node, if this one leads. The caller admits one at a time.
///
/// # Errors
/// Why it does not.
pub(crate) async fn admit<R: Runtime>(
    raft: &Raft<R>,
    ident: Ident,
    log: &RaftLog,
    join: Join,
) -> Result<Answer, String> {
    let now = raft.metrics().borrow_watched().clone();
    let members: BTreeMap<u64, Peer> =
        now.membership_config.nodes().map(|(node, peer)| (*node, peer.clone())).collect();
    if now.state != ServerState::Leader {
        let leader = now.current_leader.and_then(|leader| members.get(&leader));
        return Ok(Answer::LeaderIsAt(leader.map_or_else(String::new, |leader| leader.address.clone())));
    }
    let before = members.iter().find(|(_, peer)| peer.address == join.address).map(|(node, _)| *node);
    if let Some(before) = before {
        if now.membership_config.voter_ids().any(|voter| voter == before) {
            return Ok(Answer::NotAdmitted(format!(
                "node {before} at {} votes: remove it first, with `duramen cluster remove`",
                join.address
            )));
        }
        let answered = now.heartbeat.as_ref().and_then(|all| all.get(&before).and_then(|at| *at));
        if answered.is_some_and(|at| at.elapsed() < GONE_AFTER) {
            // One that was stopped a moment ago is gone soon.
            return Err(format!("node {before} runs at {}: stop it, or give another address", join.address));
        }
        // It was admitted, and has not got as far as a node: it comes back under a new id.
        let removed = ChangeMembers::RemoveNodes([before].into());
        raft.change_membership(removed, true).await.map_err(|error| error.to_string())?;
    }
    // The log has every member that was added before.
    let node = members.keys().copied().max().unwrap_or_default().max(log.end().id.seq.0) + 1;
    let peer = Peer { address: join.address, serves: join.serves };
    let added = raft.add_learner(node, peer.clone(), false).await.map_err(|error| error.to_string())?;
    let named = added.membership.as_ref().and_then(|members| members.get_node(&node));
    if named != Some(&peer) {
        return Err(format!("another node was admitted as {node} at the same time: try again"));
    }
    Ok(Answer::Joined(Joined { cluster: ident.cluster.to_be_bytes().to_vec(), node }))
}

/// How a directory becomes a node.
pub struct Joining {
    /// Where the node can be reached by the others.
    pub own: Peer,
    /// Addresses of peer ports of the cluster.
    pub at: Vec<String>,
    /// How requests reach them.
    pub transport: Arc<dyn Transport>,
    /// How long a leader is looked for.
    pub within: Duration,
    /// Is told why it takes long.
    pub watch: Arc<dyn Watch>,
}

/// Watches a node that joins, or copies the state anew.
pub trait Watch: Send + Sync {
    /// It is not admitted yet, for this reason, and tries again; or it has no copy, for this reason.
    fn waits(&self, why: &str);

    /// Whether it is to end before that is done.
    fn is_stopped(&self) -> bool;
}

impl std::fmt::Debug for Joining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joining").field("own", &self.own).field("at", &self.at).finish_non_exhaustive()
    }
}

/// Makes a new directory a node of an existing cluster, which it asks for admission and for its state. The
/// node is not started. What an earlier call has left unfinished there is made anew.
///
/// # Errors
/// `Refused` if no leader admits it; those of making a copy.
pub async fn join<R: Runtime>(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: DbOptions,
    joining: Joining,
) -> Result<Ident, NodeError> {
    let (leader, ident) = ask_for_admission::<R>(&joining).await?;
    let at_leader = Asking { transport: joining.transport, peer: leader, ident: Some(ident) };
    let path = path.to_owned();
    let begin = move |head: &SeedHead| begin_node(options, disk, &path, head_of(head), ident).map(Some);
    copy::<R>(&at_leader, (ident.node, joining.own.address), begin).await?;
    Ok(ident)
}

/// The peer that has admitted this node, and which node it is.
async fn ask_for_admission<R: Runtime>(joining: &Joining) -> Result<(Peer, Ident), NodeError> {
    let Peer { address, serves } = joining.own.clone();
    if joining.at.contains(&address) {
        return Err(NodeError::Refused(format!(
            "{address} is the address of this node: name one of a member"
        )));
    }
    let asked = Asked::Join(Join { address, serves });
    let until = Types::<R>::now() + joining.within;
    let mut why = "no address was given".to_owned();
    let mut leader = String::new();
    for at in joining.at.iter().cycle() {
        if Types::<R>::now() > until {
            break;
        }
        let at = if leader.is_empty() { at.clone() } else { std::mem::take(&mut leader) };
        let peer = Peer { address: at.clone(), ..Peer::default() };
        let asking = Asking { transport: Arc::clone(&joining.transport), peer, ident: None };
        match asking.ask::<R>(Lane::Control, asked.clone()).await {
            Ok(Answer::Joined(Joined { cluster, node })) => {
                let cluster = <[u8; 16]>::try_from(&cluster[..]);
                let cluster =
                    cluster.map_err(|_| NodeError::Refused("a cluster without an id".to_owned()))?;
                return Ok((asking.peer, Ident { cluster: u128::from_be_bytes(cluster), node }));
            }
            Ok(Answer::LeaderIsAt(known)) => {
                why = format!("{at}: no node leads");
                leader = known;
                if !leader.is_empty() {
                    continue;
                }
            }
            Ok(Answer::NotAdmitted(why)) => return Err(NodeError::Refused(why)),
            Ok(answer) => return Err(unexpected(&answer)),
            Err(failed) => why = format!("{at}: {failed}"),
        }
        joining.watch.waits(&why);
        Types::<R>::sleep(PAUSE).await;
    }
    Err(NodeError::Refused(why))
}
