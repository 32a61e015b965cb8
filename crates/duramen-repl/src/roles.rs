//! Leading and following: the database takes transactions while this node leads, and everything that was ever
//! decided is applied.

use std::sync::Weak;

use duramen_engine::{Replica, Role};
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
    loop {
        let now = metrics.borrow_watched().clone();
        finishing.finish(&raft, &now);
        if promotes {
            promoting.promote(&raft, &now);
        }
        let Some(changed) = replica.upgrade() else { return };
        if changed.failure().is_some() {
            // A leader that cannot write would keep the others from electing.
            drop(raft.shutdown().await);
            return;
        }
        let has_changed = R::run_blocking(move || change::<R>(&changed, &now)).await;
        if has_changed.is_err() {
            return;
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

/// Lets the database lead or follow, as consensus does. Its errors are those of a database that is closed.
fn change<R: Runtime>(replica: &Replica, now: &RaftMetrics<Types<R>>) {
    let Ok(role) = replica.role() else { return };
    let leads = now.state == ServerState::Leader && now.running_state.is_ok();
    let term = now.current_term;
    if !leads {
        if role != Role::Follows {
            drop(replica.follow());
        }
        return;
    }
    let Ok(end) = replica.end() else { return };
    // The first entry of its term follows everything that was ever decided.
    let has_all = end.id.term == term && Some(end.id.seq.0) == now.last_log_index;
    if role != (Role::Leads { term }) && has_all {
        // Refused if more was applied meanwhile: that is looked at again.
        drop(replica.lead(term, end));
    }
}
