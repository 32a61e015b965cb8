//! Members that vote: the leader lets new ones vote once they have caught up, so that an odd number does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft_rt::Instant as _;

use crate::change;
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;

type Raft<R> = openraft::Raft<Types<R>, State>;

/// A node that lacks fewer entries than this has caught up.
const BEHIND_MAX: u64 = 1000;
/// A node that has not answered for so long may be gone.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// No more vote: each commit waits for a majority of them.
const VOTERS_MAX: usize = 5;

/// Lets members vote.
#[derive(Debug, Default)]
pub(crate) struct Promoting {
    is_under_way: Arc<AtomicBool>,
}

impl Promoting {
    /// Begins to let those vote that have caught up, if this node leads.
    pub(crate) fn promote<R: Runtime>(&mut self, raft: &Raft<R>, now: &RaftMetrics<Types<R>>) {
        let Some(voters) = next_voters(now) else { return };
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let (raft, is_under_way) = (raft.clone(), Arc::clone(&self.is_under_way));
        drop(Types::<R>::spawn(async move {
            // If it fails, the next change of metrics tries again.
            drop(change::voters(&raft, voters).await);
            Types::<R>::sleep(Duration::from_millis(raft.config().heartbeat_interval)).await;
            is_under_way.store(false, Ordering::Release);
        }));
    }
}

/// The voters that there can be now, if more can vote.
fn next_voters<R: Runtime>(now: &RaftMetrics<Types<R>>) -> Option<BTreeSet<u64>> {
    let members = now.membership_config.membership();
    let [voters] = &members.get_joint_config()[..] else { return None };
    let (ServerState::Leader, Some(replication)) = (now.state, &now.replication) else { return None };
    let last = now.last_log_index?;
    let is_there = |node: &u64| {
        let answered = now.heartbeat.as_ref().and_then(|all| all.get(node).and_then(|at| *at));
        *node == now.id || answered.is_some_and(|at| at.elapsed() < SILENT_MAX)
    };
    let has_caught_up = |node: &u64| {
        let matched = replication.get(node).and_then(|matched| *matched);
        is_there(node) && matched.is_some_and(|matched| matched.index + BEHIND_MAX > last)
    };
    let ready: Vec<u64> = members.learner_ids().filter(has_caught_up).collect();
    let room = ready.len().min(VOTERS_MAX.saturating_sub(voters.len()));
    // An even number survives no more losses than one fewer.
    let count = (1..=room).rev().find(|count| (voters.len() + count) % 2 == 1)?;
    Some(voters.iter().copied().chain(ready.into_iter().take(count)).collect())
}
