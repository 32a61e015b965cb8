//! Changes of the voters, and the end of a change whose leader is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, Precondition, ServerState};

use crate::node::Members;
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;

type Raft<R> = openraft::Raft<Types<R>, State>;

/// The members that are in effect. While voters change, those after the change.
pub(crate) fn members<R: Runtime>(raft: &Raft<R>) -> Members {
    let metrics = raft.metrics();
    let now = metrics.borrow_watched();
    let members = now.membership_config.membership();
    Members {
        voters: members.get_joint_config().last().cloned().unwrap_or_default(),
        peers: members.nodes().map(|(node, peer)| (*node, peer.clone())).collect(),
    }
}

/// Lets these members vote. The others stay, and vote no more.
///
/// # Errors
/// Why that is not possible now.
pub(crate) async fn voters<R: Runtime>(raft: &Raft<R>, voters: BTreeSet<u64>) -> Result<(), String> {
    let last_membership_log_id = {
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        if now.membership_config.membership().get_joint_config().len() > 1 {
            return Err("another change of the voters is under way".to_owned());
        }
        *now.membership_config.log_id()
    };
    // Two changes that begin at the same members could leave the cluster between them.
    let unchanged = Precondition::LastMembershipLogId { last_membership_log_id };
    let change = ChangeMembers::ReplaceAllVoters(voters);
    let raft = raft.clone();
    // A task of its own: a caller that waits no more does not leave the voters half changed.
    let changed =
        Types::<R>::spawn(async move { raft.change_membership_if(change, true, [unchanged]).await });
    let changed = changed.await.map_err(|_| "the node has stopped".to_owned())?;
    changed.map(drop).map_err(|error| error.to_string())
}

/// Removes a member.
///
/// # Errors
/// Why that is not possible now.
pub(crate) async fn remove<R: Runtime>(raft: &Raft<R>, node: u64, votes: bool) -> Result<(), String> {
    let nodes = BTreeSet::from([node]);
    // Of those that vote none is kept as one that does not.
    let change = if votes { ChangeMembers::RemoveVoters(nodes) } else { ChangeMembers::RemoveNodes(nodes) };
    let raft = raft.clone();
    // A task of its own: a caller that waits no more does not leave the voters half changed.
    let removed = Types::<R>::spawn(async move { raft.change_membership(change, !votes).await });
    let removed = removed.await.map_err(|_| "the node has stopped".to_owned())?;
    removed.map(drop).map_err(|error| error.to_string())
}

/// Ends a change of voters that an earlier leader has begun.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    is_under_way: Arc<AtomicBool>,
}

impl Finishing {
    /// Begins to, if this node leads and the voters have been changing since another one led.
    pub(crate) fn finish<R: Runtime>(&mut self, raft: &Raft<R>, now: &RaftMetrics<Types<R>>) {
        let config = now.membership_config.membership().get_joint_config();
        let named = now.membership_config.log_id().map(|id| id.leader_id.term);
        let (leads, is_inherited) = (now.state == ServerState::Leader, named != Some(now.current_term));
        let [_, after] = &config[..] else { return };
        if !leads || !is_inherited || self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let (raft, after, is_under_way) = (raft.clone(), after.clone(), Arc::clone(&self.is_under_way));
        drop(Types::<R>::spawn(async move {
            let heartbeat = Duration::from_millis(raft.config().heartbeat_interval);
            // If it fails, this node does not lead any more, or tries again after a while.
            drop(raft.change_membership(ChangeMembers::ReplaceAllVoters(after), true).await);
            Types::<R>::sleep(heartbeat).await;
            is_under_way.store(false, Ordering::Release);
        }));
    }
}
