//! What a node knows of its cluster, for people and programs that look after it.

use std::collections::BTreeMap;
use std::time::Duration;

use duramen_engine::{CommitSeq, Ident};
use openraft::metrics::RaftMetrics;
use openraft_rt::Instant;

use crate::node::GONE_AFTER;
use crate::read;
use crate::room::Rooms;
use crate::runtime::Runtime;
use crate::types::{Peer, Types};

/// What a node knows of its cluster.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    /// Which node tells it, and of which cluster.
    pub ident: Ident,
    /// The node that leads, if one is known.
    pub leader: Option<u64>,
    /// The term.
    pub term: u64,
    /// The last commit that is published here.
    pub published: CommitSeq,
    /// The members, by their ids.
    pub members: BTreeMap<u64, MemberStatus>,
    /// At the leader: how long ago a majority has last confirmed it.
    pub confirmed: Option<Duration>,
}

/// What is known of a member.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// Where it is.
    pub peer: Peer,
    /// Whether it is one of those whose majority decides.
    pub votes: bool,
    /// At the leader: how many entries it lacks.
    pub behind: Option<u64>,
    /// At the leader: whether it lacks entries that the leader does not have any more. It needs a copy of the
    /// state then.
    pub needs_copy: bool,
    /// At the leader, and of this node: whether its disk is full. It takes nothing that needs room then.
    pub is_full: bool,
    /// At the leader: how long ago it has last answered.
    pub answered: Option<Duration>,
}

impl NodeStatus {
    /// Whether a member has answered this node, which leads, a moment ago, and takes entries.
    pub(crate) fn is_there(&self, node: u64) -> bool {
        let takes = |member: &&MemberStatus| !member.needs_copy;
        let answered = self.members.get(&node).filter(takes).and_then(|member| member.answered);
        node == self.ident.node || answered.is_some_and(|ago| ago < GONE_AFTER)
    }
}

pub(crate) fn status<R: Runtime>(
    now: &RaftMetrics<Types<R>>,
    ident: Ident,
    has_heard_leader: bool,
    rooms: &Rooms,
) -> NodeStatus {
    let members = now.membership_config.membership();
    let last = now.last_log_index.unwrap_or_default();
    let purged = now.purged.map_or(0, |purged| purged.index);
    // A majority has the first entry of this term.
    let is_led_here = now.replication.is_some()
        && now.last_applied.is_some_and(|applied| applied.committed_leader_id().term == now.current_term);
    let of_member = |(node, peer): (&u64, &Peer)| {
        let matched = now.replication.as_ref().map(|all| all.get(node).and_then(|matched| *matched));
        let answered = now.heartbeat.as_ref().and_then(|all| all.get(node).and_then(|at| *at));
        let has = matched.flatten().map(|matched| matched.index);
        // One that lacks purged entries answers a new leader, and never has an entry in common with it.
        let only_answers = is_led_here && *node != ident.node && answered.is_some() && purged > 0;
        let member = MemberStatus {
            peer: peer.clone(),
            votes: members.voter_ids().any(|voter| voter == *node),
            is_full: now.replication.is_some() && rooms.is_full(*node)
                || *node == ident.node && rooms.own_is_full(),
            needs_copy: has.map_or(only_answers, |has| has < purged),
            behind: matched.map(|matched| last - matched.map_or(0, |matched| matched.index.min(last))),
            answered: answered.map(|at| at.elapsed()),
        };
        (*node, member)
    };
    NodeStatus {
        ident,
        // A node that hears no leader still knows the last one.
        leader: now
            .current_leader
            .filter(|leader| now.running_state.is_ok() && (*leader == ident.node || has_heard_leader)),
        term: now.current_term,
        published: CommitSeq(read::applied(now)),
        members: members.nodes().map(of_member).collect(),
        confirmed: now.last_quorum_acked.map(|at| at.elapsed()),
    }
}
