//! Linearizable reads: the leader confirms that it leads, and tells up to where a read has to see. Reads
//! that come while it does share the next round: one round of messages answers all of them.
//!
//! A read that may see a state of some age needs no round if the last one began that recently, by the clock
//! of this node alone. Such reads begin the next round before that one is too old.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duramen_engine::CommitSeq;
use futures_channel::oneshot;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::net::{Lane, Links};
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;
use crate::wire::{Answer, Asked, ReadIndex};

type Raft<R> = openraft::Raft<Types<R>, State>;

const STOPPED: &str = "the node has stopped";

/// The reads of a node that wait for a round.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    reads: Vec<oneshot::Sender<Result<u64, String>>>,
    /// A task makes one round after the other.
    has_task: bool,
    told: Option<Told>,
}

/// What the last round has told.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// When it began: everything that was acknowledged before is up to the index.
    asked: Duration,
    index: u64,
}

impl Rounds {
    /// Waits until everything that was acknowledged before this call, or so long before it, is published
    /// here.
    ///
    /// # Errors
    /// Why that is not known.
    pub(crate) async fn catch_up<R: Runtime>(
        self: &Arc<Self>,
        raft: &Raft<R>,
        links: &Links,
        age_max: Option<Duration>,
        within: Duration,
    ) -> Result<CommitSeq, String> {
        let known = age_max.and_then(|age_max| self.known(age_max, R::uptime()));
        let index = match known {
            Some((told, is_new)) => {
                if !is_new {
                    // For later reads.
                    drop(self.ask(raft, links, within));
                }
                told.index
            }
            None => self.ask(raft, links, within).await.map_err(|_| STOPPED.to_owned())??,
        };
        published(raft, index).await?;
        Ok(CommitSeq(index))
    }

    /// What the last round has told, if it began so recently; and whether that will do for a while, or
    /// another one is under way.
    fn known(&self, age_max: Duration, now: Duration) -> Option<(Told, bool)> {
        let waiting = self.waiting();
        let told = waiting.told?;
        let age = now.saturating_sub(told.asked);
        (age <= age_max).then_some((told, age <= age_max / 3 || waiting.has_task))
    }

    /// Asks for a round that begins later than this.
    fn ask<R: Runtime>(
        self: &Arc<Self>,
        raft: &Raft<R>,
        links: &Links,
        within: Duration,
    ) -> oneshot::Receiver<Result<u64, String>> {
        let (read, is_answered) = oneshot::channel();
        let has_task = {
            let mut waiting = self.waiting();
            waiting.reads.push(read);
            std::mem::replace(&mut waiting.has_task, true)
        };
        if !has_task {
            drop(Types::<R>::spawn(Arc::clone(self).run(raft.clone(), links.clone(), within)));
        }
        is_answered
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes rounds as long as reads wait. A round answers the reads that came before it began, and no
    /// later ones: something may have been acknowledged in between.
    async fn run<R: Runtime>(self: Arc<Self>, raft: Raft<R>, links: Links, within: Duration) {
        let mut rounds = Task { rounds: &self, has_ended: false };
        loop {
            let reads = {
                let mut waiting = self.waiting();
                waiting.has_task = !waiting.reads.is_empty();
                std::mem::take(&mut waiting.reads)
            };
            if reads.is_empty() {
                rounds.has_ended = true;
                return;
            }
            let late = |_| Err(format!("the leader has not answered within {within:?}"));
            let asked = R::uptime();
            let round = R::timeout(within, index(&raft, &links, within)).await;
            let answer = round.unwrap_or_else(late);
            if let Ok(index) = answer {
                self.waiting().told = Some(Told { asked, index });
            }
            // A caller that waits no more needs no answer.
            reads.into_iter().for_each(|read| drop(read.send(answer.clone())));
        }
    }
}

/// The task that makes rounds. If it is ended in between, the reads that wait are told, and the next one
/// begins anew.
struct Task<'a> {
    rounds: &'a Rounds,
    has_ended: bool,
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            *self.rounds.waiting() = Waiting::default();
        }
    }
}

/// Waits until this node has published an entry.
///
/// # Errors
/// If the node has stopped.
pub(crate) async fn published<R: Runtime>(raft: &Raft<R>, index: u64) -> Result<(), String> {
    // An entry is applied once it is published.
    let mut metrics = raft.metrics();
    while metrics.borrow_watched().last_applied.is_none_or(|applied| applied.index < index) {
        metrics.changed().await.map_err(|_| STOPPED.to_owned())?;
    }
    Ok(())
}

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

/// The last entry that a read which has begun has to see, as the leader says.
///
/// # Errors
/// Why that is not known.
async fn index<R: Runtime>(raft: &Raft<R>, links: &Links, within: Duration) -> Result<u64, String> {
    let metrics = raft.metrics();
    let (id, leader) = {
        let now = metrics.borrow_watched();
        let leader = now.current_leader;
        let peer = leader.and_then(|leader| now.membership_config.get_node(&leader).cloned());
        (now.id, leader.zip(peer))
    };
    match leader {
        Some((leader, _)) if leader == id => index_here(raft).await,
        Some((leader, peer)) => {
            let asked = Asked::ReadIndex(ReadIndex {});
            match links.ask::<R>((leader, &peer), Lane::Control, asked, within).await? {
                Answer::ReadIndex(index) => Ok(index),
                answer => Err(format!("node {leader} answers to something else: {answer:?}")),
            }
        }
        None => Err("no node leads".to_owned()),
    }
}
