//! Leading and following: the database takes transactions while this node leads, and everything that was ever
//! decided is applied.

use std::sync::Weak;

use duramen_engine::{LogEnd, Replica, Role};
use futures_channel::mpsc::{Receiver, Sender, channel};
use futures_util::StreamExt;
use openraft::ServerState;
use openraft::metrics::RaftMetrics;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft_rt::Select2;

use crate::change::Finishing;
use crate::promote::Promoting;
use crate::runtime::Runtime;
use crate::state::State;
use crate::types::Types;

type Raft<R> = openraft::Raft<Types<R>, State>;

/// Lets the roles be looked at again.
#[derive(Debug, Clone)]
pub(crate) struct Nudge(Sender<()>);

/// Nudges that were given.
pub(crate) struct Nudges(Receiver<()>);

pub(crate) fn nudges() -> (Nudge, Nudges) {
    let (sender, receiver) = channel(0);
    (Nudge(sender), Nudges(receiver))
}

impl Nudge {
    pub(crate) fn give(&self) {
        // A nudge that waits is enough for all.
        drop(self.0.clone().try_send(()));
    }
}

/// Keeps the database's role that of the node, until consensus ends. Lets members vote, if it `promotes`.
pub(crate) async fn keep<R: Runtime>(
    raft: Raft<R>,
    replica: Weak<Replica>,
    mut nudges: Nudges,
    promotes: bool,
) {
    let mut metrics = raft.metrics();
    let (mut finishing, mut promoting) = (Finishing::default(), Promoting::default());
    let mut confirming = 0;
    loop {
        let Some(changed) = replica.upgrade() else { return };
        let term = led_term::<R>(&metrics.borrow_watched());
        if let Some(term) = term.filter(|term| *term > confirming) {
            // A majority confirms a leader by the answers to its heartbeats, and the next one may be far.
            confirming = term;
            if raft.trigger().heartbeat().await.is_err() {
                break;
            }
        }
        let wanted = {
            let now = metrics.borrow_watched();
            finishing.finish(&raft, &now);
            if promotes {
                promoting.promote(&raft, &now);
            }
            wanted::<R>(&changed, &now)
        };
        if changed.failure().is_some() {
            // A leader that cannot write would keep the others from electing.
            drop(raft.shutdown().await);
            return;
        }
        if let Some(change) = wanted {
            let has_changed = R::run_blocking(move || change.make(&changed)).await;
            if has_changed.is_err() {
                return;
            }
        } else {
            // While nothing changes, this does not keep the database open.
            drop(changed);
        }
        match R::select2(metrics.changed(), nudges.0.next()).await {
            Select2::First(Ok(())) | Select2::Second(Some(())) => {}
            Select2::First(Err(_)) | Select2::Second(None) => break,
        }
    }
    if let Some(replica) = replica.upgrade() {
        drop(R::run_blocking(move || replica.follow()).await);
    }
}

/// What a database must do to have the role of its node.
enum Change {
    Follow,
    Lead(u64, LogEnd),
}

/// The term in which this node leads.
fn led_term<R: Runtime>(now: &RaftMetrics<Types<R>>) -> Option<u64> {
    (now.state == ServerState::Leader && now.running_state.is_ok()).then_some(now.current_term)
}

/// What is to be changed, if anything is. Metrics change several times a commit, and this waits for nothing.
fn wanted<R: Runtime>(replica: &Replica, now: &RaftMetrics<Types<R>>) -> Option<Change> {
    let role = replica.role().ok()?;
    let Some(term) = led_term::<R>(now) else {
        return (role != Role::Follows).then_some(Change::Follow);
    };
    let end = replica.end().ok()?;
    // The first entry of its term follows everything that was ever decided.
    let has_all = end.id.term == term && Some(end.id.seq.0) == now.last_log_index;
    (role != (Role::Leads { term }) && has_all).then_some(Change::Lead(term, end))
}

impl Change {
    /// Waits for what publishes now. Its errors are those of a database that is closed.
    fn make(self, replica: &Replica) {
        match self {
            Change::Follow => drop(replica.follow()),
            // Refused if more was applied meanwhile: that is looked at again.
            Change::Lead(term, end) => drop(replica.lead(term, end)),
        }
    }
}
