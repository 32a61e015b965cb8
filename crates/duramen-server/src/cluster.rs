//! The cluster that a served database is a node of, as far as a server needs to know it.
//!
//! A server answers with what was acknowledged anywhere before a call came, on every node: it waits for
//! that before each call that reads, unless the call allows an older state. What a leader commits needs no
//! such wait: it is validated after everything that is acknowledged before, and a leader with a successor
//! acknowledges nothing. Writes are taken by the node that leads; the others refuse them with `NotLeader`
//! (E1201), and tell in `Hello` where it serves.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use duramen::CommitSeq;
use duramen::error::{Code, Error, Result};
use duramen_proto::freshness::{self, Freshness};
use duramen_proto::v1;
use http::HeaderMap;
use tokio::time::timeout_at;

use crate::call::{self, Call};

/// What a cluster does, later.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// The cluster of a node.
pub trait Cluster: fmt::Debug + Send + Sync {
    /// Waits until this node has published everything that was acknowledged anywhere before this call.
    ///
    /// # Errors
    /// `NoQuorum` (E1202) if no majority confirms a leader in time.
    fn catch_up(&self) -> Doing<'_>;

    /// Waits until this node has published everything that was acknowledged anywhere this long before this
    /// call.
    ///
    /// # Errors
    /// `StateTooOld` (E1203) if that is not known in time.
    fn catch_up_to_age(&self, age_max: Duration) -> Doing<'_>;

    /// Waits until this node has published this commit, without a limit.
    ///
    /// # Errors
    /// `Draining` (E1106) if the node is going down.
    fn published(&self, seq: CommitSeq) -> Doing<'_>;

    /// Whether this node leads, and takes transactions. It may have a successor that it does not know of.
    fn leads(&self) -> bool;

    /// The members, and what is known of them here.
    fn state(&self) -> v1::ClusterReply;

    /// Lets another member lead.
    ///
    /// # Errors
    /// `NotLeader` (E1201) if this node does not lead; `InvalidArgument` (E0201) if that is no member that
    /// votes.
    fn transfer(&self, to: u64) -> Doing<'_>;

    /// Removes a member for good.
    ///
    /// # Errors
    /// `NotLeader` (E1201) if this node does not lead; `InvalidArgument` (E0201) if that is no member, or
    /// this node.
    fn remove(&self, node: u64) -> Doing<'_>;
}

/// How old the state may be that a call reads.
///
/// # Errors
/// `InvalidArgument` (E0201) if its header says nothing of the kind.
pub(crate) fn freshness(headers: &HeaderMap) -> Result<Freshness> {
    let Some(value) = headers.get(freshness::HEADER) else { return Ok(Freshness::Newest) };
    value.to_str().ok().and_then(Freshness::of_header).ok_or_else(|| {
        Error::invalid(format!("the header {} is no age", freshness::HEADER))
            .with_hint("it is a number of milliseconds, or `any`")
    })
}

/// Waits until the state of this node is as new as a call wants it.
///
/// # Errors
/// Those of [`Cluster::catch_up`] and [`Cluster::catch_up_to_age`]; at the deadline of the call
/// `DeadlinePassed` (E1108), or `StateTooOld` (E1203) for a state of some age.
pub(crate) async fn catch_up(cluster: &dyn Cluster, call: &Call) -> Result<()> {
    let (caught_up, age) = match call.freshness {
        Freshness::Newest => (cluster.catch_up(), None),
        Freshness::MaxAge(age) => (cluster.catch_up_to_age(age), Some(age)),
        Freshness::Any => return Ok(()),
    };
    timeout_at(call.answer_by(), caught_up).await.unwrap_or_else(|_| {
        Err(age.map_or_else(call::deadline_passed, |age| too_old(age, "the deadline of the call has passed")))
    })
}

/// The error of a read that may see a state of some age, if that is not known to be there.
#[must_use]
pub fn too_old(age_max: Duration, why: &str) -> Error {
    Error::new(Code::StateTooOld, format!("the state of this node may be older than {age_max:?}: {why}"))
        .with_hint("nothing was read: allow a greater age, or `any`, or ask another node")
}

/// Where the leader serves, if it is not this node, and where all members do.
pub(crate) fn addresses(state: &v1::ClusterReply) -> (String, Vec<String>) {
    let leads = |member: &&v1::Member| member.node == state.leader && member.node != state.node;
    let leader = state.members.iter().find(leads).map(|member| member.serves.clone()).unwrap_or_default();
    let all = state.members.iter().map(|member| member.serves.clone()).filter(|serves| !serves.is_empty());
    (leader, all.collect())
}

/// A majority has confirmed a leader within this time, or it may lead no longer.
const CONFIRMED_MS_MAX: u64 = 1_500;

/// Whether this node leads, as far as it can know.
pub(crate) fn takes_writes(state: &v1::ClusterReply) -> bool {
    let voters = state.members.iter().filter(|member| member.votes).count();
    let is_confirmed = state.confirmed_ms_ago.is_some_and(|ms| ms < CONFIRMED_MS_MAX);
    state.leader == state.node && (voters == 1 || is_confirmed)
}
