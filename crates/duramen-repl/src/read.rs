//! Linearizable reads: the leader confirms that it leads, and tells up to where a read has to see. Reads
//! that come while it does share the next round: one round of messages answers all of them.
//!
//! A read that may see a state of some age needs no round if one began that recently, by the clock of this
//! node alone, and what that told is published. Such reads begin the next round before that one is too old.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duramen_engine::CommitSeq;
use futures_channel::oneshot;
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::metrics::RaftMetrics;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft_rt::Select2;

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
    /// Of the last rounds, from the newest one whose index was published when it was last looked at.
    told: VecDeque<Told>,
}

/// So many rounds are remembered that told more than is published.
const TOLD_MAX: usize = 64;

/// What a round has told.
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
        let known = age_max.map_or(Known::Nothing, |age_max| {
            self.waiting().known(age_max, R::uptime(), applied(&raft.metrics().borrow_watched()))
        });
        match known {
            Known::Published { index, is_new } => {
                if !is_new {
                    // For later reads.
                    drop(self.ask(raft, links, within));
                }
                Ok(CommitSeq(index))
            }
            Known::Nothing => self.catch_up_to_newest(raft, links, within).await,
            // The newest may be published later. Or the leader that told this index is gone, and no other one
            // gets so far.
            Known::Unpublished { index } => {
                let newest = pin!(self.catch_up_to_newest(raft, links, within));
                match R::select2(pin!(published(raft, index)), newest).await {
                    Select2::First(published) => published.map(|()| CommitSeq(index)),
                    Select2::Second(newest) => newest,
                }
            }
        }
    }

    async fn catch_up_to_newest<R: Runtime>(
        self: &Arc<Self>,
        raft: &Raft<R>,
        links: &Links,
        within: Duration,
    ) -> Result<CommitSeq, String> {
        let index = self.ask(raft, links, within).await.map_err(|_| STOPPED.to_owned())??;
        published(raft, index).await?;
        Ok(CommitSeq(index))
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
                self.waiting().is_told(Told { asked, index });
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

/// What the last rounds say about a state of some age.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    /// It is published, up to here. `is_new` if that will do for a while, or another round is under way.
    Published { index: u64, is_new: bool },
    /// It goes up to here, and is not published.
    Unpublished { index: u64 },
    /// No round began so recently.
    Nothing,
}

impl Waiting {
    fn is_told(&mut self, told: Told) {
        if self.told.len() == TOLD_MAX {
            self.told.pop_back();
        }
        self.told.push_back(told);
    }

    fn known(&mut self, age_max: Duration, now: Duration, applied: u64) -> Known {
        while self.told.get(1).is_some_and(|next| next.index <= applied) {
            self.told.pop_front();
        }
        let age = |told: &Told| now.saturating_sub(told.asked);
        let is_new = self.has_task || self.told.back().is_some_and(|last| age(last) <= age_max / 3);
        match self.told.iter().find(|told| age(told) <= age_max) {
            Some(told) if told.index <= applied => Known::Published { index: told.index, is_new },
            Some(told) => Known::Unpublished { index: told.index },
            None => Known::Nothing,
        }
    }
}

/// The last entry that this node has applied; 0 before any.
pub(crate) fn applied<R: Runtime>(now: &RaftMetrics<Types<R>>) -> u64 {
    now.last_applied.map_or(0, |applied| applied.index)
}

/// Waits until this node has published an entry.
///
/// # Errors
/// If the node has stopped.
pub(crate) async fn published<R: Runtime>(raft: &Raft<R>, index: u64) -> Result<(), String> {
    // An entry is applied once it is published.
    let mut metrics = raft.metrics();
    while applied(&metrics.borrow_watched()) < index {
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

#[cfg(test)]
mod tests {
    //! A state that is taken for younger than it is would be a wrong answer.
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn told(rounds: &[(u64, u64)]) -> Waiting {
        let mut waiting = Waiting::default();
        rounds.iter().for_each(|(asked, index)| waiting.is_told(Told { asked: ms(*asked), index: *index }));
        waiting
    }

    #[test]
    fn a_state_of_some_age_is_known_by_the_oldest_round_that_is_young_enough() {
        let mut waiting = told(&[(100, 5), (200, 7), (300, 9)]);
        assert_eq!(waiting.known(ms(50), ms(400), 4), Known::Nothing);
        // The newest one is published only later.
        assert_eq!(waiting.known(ms(250), ms(400), 7), Known::Published { index: 7, is_new: false });
        assert_eq!(waiting.known(ms(150), ms(400), 7), Known::Unpublished { index: 9 });
        assert_eq!(waiting.known(ms(300), ms(400), 9), Known::Published { index: 9, is_new: true });
        assert_eq!(waiting.told.len(), 1);
        waiting.has_task = true;
        assert_eq!(waiting.known(ms(100), ms(400), 9), Known::Published { index: 9, is_new: true });
        assert_eq!(waiting.known(ms(99), ms(400), 9), Known::Nothing);
    }

    #[test]
    fn a_later_leader_may_not_get_as_far() {
        let mut waiting = told(&[(100, 101), (200, 90)]);
        assert_eq!(waiting.known(ms(500), ms(400), 90), Known::Published { index: 90, is_new: false });
    }

    #[test]
    fn few_rounds_are_remembered_and_the_newest_among_them() {
        let rounds: Vec<_> = (0..10 * TOLD_MAX as u64).map(|number| (number, number)).collect();
        let mut waiting = told(&rounds);
        assert_eq!(waiting.told.len(), TOLD_MAX);
        assert_eq!(waiting.told.back().map(|last| last.index), rounds.last().map(|(_, index)| *index));
        assert_eq!(waiting.known(ms(10), ms(640), 1), Known::Unpublished { index: 639 });
    }
}
