//! What this node's database proposes, handed to consensus.
//!
//! The engine calls from any thread and never waits. One task takes its groups in turn. Consensus takes a
//! group in one message: all of it or nothing. What becomes of it is told by the database when it applies;
//! only a refusal is told here.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen_engine::{Entry, OrderedOn, Proposer, Replica};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use openraft::errors::ClientWriteError;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::roles::Nudge;
use crate::room::Rooms;
use crate::runtime::Runtime;
use crate::types::{Change, Types};

type Raft<R> = openraft::Raft<Types<R>, crate::state::State>;

struct Group {
    term: u64,
    entries: Vec<Entry>,
}

/// Takes the groups of the database. At most one is undecided, so that few wait here.
pub(crate) struct Groups {
    sender: Mutex<UnboundedSender<Group>>,
    rooms: Arc<Rooms>,
}

impl Groups {
    pub(crate) fn new(rooms: Arc<Rooms>) -> (Arc<Groups>, Proposals) {
        let (sender, groups) = unbounded();
        (Arc::new(Groups { sender: Mutex::new(sender), rooms }), Proposals { groups })
    }
}

impl Proposer for Groups {
    fn propose(&self, term: u64, entries: Vec<Entry>) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a receiver the node has stopped, and its database is told that it follows.
        drop(sender.unbounded_send(Group { term, entries }));
    }

    fn make_room(&self, entries: &[Entry], frees: bool) -> duramen_engine::Result<()> {
        self.rooms.make_room(entries, frees)
    }
}

/// What is left to propose.
pub(crate) struct Proposals {
    groups: UnboundedReceiver<Group>,
}

impl Proposals {
    /// Proposes groups until the node stops.
    pub(crate) async fn run<R: Runtime>(mut self, raft: Raft<R>, replica: Weak<Replica>, nudge: Nudge) {
        let heartbeat = Duration::from_millis(raft.config().heartbeat_interval);
        while let Some(Group { term, entries }) = self.groups.next().await {
            let Some(first) = entries.first().map(|entry| entry.ordered) else { continue };
            let refusals = Refusals { replica: Weak::clone(&replica), first };
            if raft.metrics().borrow_watched().current_term != term {
                refusals.tell::<R>().await;
                nudge.give();
                continue;
            }
            let Ok(mut results) = raft.client_write_many(entries.into_iter().map(Change::from)).await else {
                return;
            };
            let nudge = nudge.clone();
            // All of a group have the same answer. It comes once they are applied, and the next group before.
            drop(Types::<R>::spawn(async move {
                if let Some(Ok(Err(ClientWriteError::ForwardToLeader(_)))) = results.next().await {
                    // If answers of a majority lack, they come with heartbeats, and until then the next group
                    // would be refused, too. If another node leads, the roles tell it at once.
                    Types::<R>::sleep(heartbeat).await;
                    refusals.tell::<R>().await;
                    nudge.give();
                }
            }));
        }
    }
}

/// Tells the database that consensus has not taken a group.
struct Refusals {
    replica: Weak<Replica>,
    first: OrderedOn,
}

impl Refusals {
    async fn tell<R: Runtime>(self) {
        // A closed database needs no refusal.
        if let Some(replica) = self.replica.upgrade() {
            drop(R::run_blocking(move || replica.refused(&self.first)).await);
        }
    }
}
