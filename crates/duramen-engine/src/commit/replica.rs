//! Commits of a node of a cluster: ordered here, decided by a majority, published once they are decided.
//!
//! A node that leads orders transactions as any database does. Instead of writing a group to the log, it
//! proposes the group's entries (`propose`), and the order is **closed** until they are decided or given up:
//! nothing is ordered on a state that may never be. Decided entries come back in their order, on every node
//! alike (`apply`): a group of one's own is published from the roots that were made when it was ordered;
//! other entries are applied like transactions. Both are written to the engine's log without a sync, because
//! Raft's log has them. `fates` tells each waiting thread what became of its commit.
//!
//! What new transactions see is the published root, which is decided. So no answer, no error and no condition
//! rests on what may never happen.
//!
//! **The rule of a stale order.** An entry changes something only if its term, its sequence and the chain of
//! the entry before it are those that it was ordered with. Otherwise it is an empty commit, on every node
//! alike: an entry may come to stand where it was not ordered, on a state that it was not validated against.
//!
//! **An order that is given up** ends a lineage (a rollback epoch): of both the latest and the published
//! root. A transaction that began before conflicts, even if it has read nothing: its ids were given then.
//!
//! Considered: ordering ahead of the decision, as embedded commits are ordered ahead of the sync. It overlaps
//! work with waiting; what is built on an undecided group must then be given up with it. Decision 0053.

mod apply;
mod content;
mod fates;
pub(crate) mod members;
mod propose;
mod standing;
pub(super) mod time;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::group::CommitEffects;
use super::order::{EnterError, conflict};
use super::order_lock::Order;
use super::throttle::RoomFor;
use super::{Committer, Ordered};
use crate::alarm::invariant;
use crate::catalog::Root;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::raft_log::{Entry, LogEnd, OrderedOn};
use crate::sync::MutexGuard;
use crate::wal::Record;

pub use fates::Fate;
use fates::Fates;
pub(super) use standing::Standing;

/// Takes what a leader has ordered.
pub trait Proposer: Send + Sync {
    /// Takes the entries of a group, in their order: all of them or none. It returns at once. What becomes of
    /// them is told by [`Replica::apply`](crate::Replica::apply) or
    /// [`Replica::refused`](crate::Replica::refused). A proposer that does not lead in this term refuses
    /// them.
    fn propose(&self, term: u64, entries: Vec<Entry>);

    /// Sees to it that entries can be written, here and by a majority, before they are proposed. `frees` says
    /// that they only delete: they may use what is kept for that. A proposer without a log has room.
    ///
    /// # Errors
    /// `DiskFull` (E0301): they are not proposed.
    fn make_room(&self, entries: &[Entry], frees: bool) -> Result<()> {
        let _ = (entries, frees);
        Ok(())
    }
}

/// What the order of a node needs beyond that of a database alone.
pub(super) struct ReplicaOrder {
    proposer: Arc<dyn Proposer>,
    standing: Arc<Standing>,
    /// The group that was taken from the order, without what is published of it.
    in_flight: VecDeque<InFlight>,
    /// Commits of it are being published.
    is_publishing: bool,
    /// The tree that has the row of the cluster's members.
    members: Option<TreeId>,
    fates: Fates,
    /// Until then, by the monotonic clock, what takes room is refused for this reason. Otherwise what only
    /// deletes would be in a group with it again and again.
    no_room: Option<(u64, Error)>,
}

impl fmt::Debug for ReplicaOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOrder").field("standing", &self.standing).finish_non_exhaustive()
    }
}

/// What a node does with transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes none: another node leads, or none does.
    Follows,
    /// It takes them, as the leader of a term.
    Leads {
        /// The term.
        term: u64,
    },
    /// It leads, and its last order was given up: they wait for [`Replica::lead`](crate::Replica::lead).
    Waits,
}

/// A commit that was taken from the order and is not published.
#[derive(Debug)]
struct InFlight {
    /// The entry that it was proposed as; `None` until then.
    entry: Option<Entry>,
    record: Record,
    effects: CommitEffects,
    root: Arc<Root>,
}

impl Order {
    /// Whether a group is undecided, or an order was given up and the next has not begun: nothing enters.
    pub(super) fn is_closed(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| {
            !replica.in_flight.is_empty() || replica.is_publishing || replica.standing.role() == Role::Waits
        })
    }

    /// Whether a transaction that began at a root of this rollback epoch may enter.
    pub(super) fn admits(&self, rollback_epoch: u64) -> std::result::Result<(), EnterError> {
        let Some(replica) = &self.replica else { return Ok(()) };
        if replica.standing.role() == Role::Follows {
            return Err(EnterError::Failed(not_leader()));
        }
        if self.is_closed() {
            return Err(EnterError::Failed(no_quorum()));
        }
        // Also if it has read nothing: what it writes may have ids that were given in another order.
        if rollback_epoch != self.rollback_epoch {
            return Err(EnterError::Failed(conflict()));
        }
        Ok(())
    }

    /// Fails for a transaction that takes room shortly after there was none.
    pub(super) fn has_room_for(
        &self,
        wanted: RoomFor,
        now_ns: impl FnOnce() -> u64,
    ) -> std::result::Result<(), EnterError> {
        let no_room = self.replica.as_ref().and_then(|replica| replica.no_room.as_ref());
        match no_room {
            Some((until_ns, why)) if wanted != RoomFor::Deletes && now_ns() < *until_ns => {
                Err(EnterError::Failed(why.clone()))
            }
            _ => Ok(()),
        }
    }

    fn replica(&mut self) -> &mut ReplicaOrder {
        self.replica.as_mut().expect("only called for a node of a cluster")
    }
}

impl Committer {
    /// Makes this the database of a node. Nothing was ordered before.
    pub(crate) fn become_replica(&self, proposer: Arc<dyn Proposer>) {
        let mut order = self.order.lock();
        self.check_all_published();
        order.replica = Some(Box::new(ReplicaOrder {
            proposer,
            standing: Arc::clone(&self.standing),
            in_flight: VecDeque::new(),
            is_publishing: false,
            members: None,
            fates: Fates::default(),
            no_room: None,
        }));
        self.is_replica.store(true, Ordering::Release);
    }

    /// The published root is this entry, and the row of the members is in this tree.
    pub(crate) fn replica_begins(&self, end: LogEnd, members: Option<TreeId>) {
        let published = self.published().seq;
        invariant!(end.id.seq == published, "the node goes on after {published}, not {}", end.id.seq);
        let mut order = self.order.lock();
        let replica = order.replica();
        replica.standing.set_end(end);
        replica.members = members;
        let root = self.published();
        let (trees, position) = (root.trees.clone(), root.position.clone());
        let (seq, rollback_epoch) = (root.seq, order.rollback_epoch);
        self.set_both_roots(Root { seq, rollback_epoch, time_ns: end.time_ns, trees, position });
    }

    /// Whether a majority decides on the commits of this database.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Acquire)
    }

    /// The entry whose commit is the published root. Waits for nothing.
    pub(crate) fn replica_end(&self) -> LogEnd {
        self.standing.end()
    }

    /// What this node does with transactions. Waits for nothing.
    pub(crate) fn role(&self) -> Role {
        self.standing.role()
    }

    /// Whether this node leads.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.role(), Role::Leads { .. })
    }

    /// How often something was refused since the disk has no room.
    pub(crate) fn refusals_for_room(&self) -> u64 {
        self.throttle.refusals()
    }

    /// Whether a transaction would enter the order at once.
    pub(crate) fn is_open(&self) -> bool {
        let order = self.order.lock();
        let leads = order.replica.as_ref().is_none_or(|_| self.leads());
        leads && !order.is_closed()
    }

    /// Opens the order in a term: everything that was ever decided is applied.
    ///
    /// # Errors
    /// `InvalidArgument` if the published root is not `end`.
    pub(crate) fn lead_in(&self, term: u64, end: LogEnd) -> Result<()> {
        let mut order = self.take_log();
        let known = self.replica_end();
        let result = if known == end {
            // The time first: a clock that is set for the new lineage must not be that of the last commit.
            self.start_time(end.time_ns);
            // What began before the new lineage conflicts.
            self.give_up(&mut order, Proposed::No, &conflict());
            self.standing.set_role(Role::Leads { term });
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "the node cannot lead after entry {} of term {}: its last commit is {} of term {}",
                end.id.seq, end.id.term, known.id.seq, known.id.term
            )))
        };
        self.lay_down_log(order);
        result
    }

    /// Closes the order: another node leads, or none does. What was proposed may still be decided.
    pub(crate) fn follow_others(&self) {
        let mut order = self.take_log();
        self.give_up(&mut order, Proposed::MayBeDecided, &not_leader());
        self.standing.set_role(Role::Follows);
        self.order_clock.stop();
        self.lay_down_log(order);
    }

    /// The group that begins with this order was not taken: it never happens. The order is closed until this
    /// node leads anew. A group that is not in flight any more is not meant.
    pub(crate) fn proposal_refused(&self, first: &OrderedOn) {
        let mut order = self.take_log();
        let entry = order.replica().in_flight.front().and_then(|first| first.entry.as_ref());
        if entry.is_some_and(|entry| entry.ordered == *first) {
            self.give_up(&mut order, Proposed::No, &conflict());
            self.standing.set_role(Role::Waits);
        }
        self.lay_down_log(order);
    }

    /// Takes back what is ordered and not published, and ends its lineage. What was proposed may be decided
    /// all the same; the rest never happened, for this reason.
    ///
    /// The caller has the log: no other thread publishes.
    fn give_up(&self, order: &mut Order, proposed: Proposed, why: &Error) {
        let published = self.published();
        let kept = published.seq;
        let forming = std::mem::take(&mut order.forming);
        let lineage = order.rollback_epoch;
        let replica = order.replica();
        let in_flight = std::mem::take(&mut replica.in_flight);
        let last = in_flight.back().filter(|_| proposed == Proposed::MayBeDecided);
        let (term, undecided) = match last.and_then(|last| last.entry.as_ref()) {
            Some(entry) => (entry.id.term, entry.id.seq),
            None => (0, kept),
        };
        replica.fates.ended(lineage, term, kept, undecided, why);
        order.rollback_epoch += 1;
        self.store.registry.drop_after(kept);
        order.recent.rewind(kept);
        let (trees, position) = (published.trees.clone(), published.position.clone());
        let (rollback_epoch, time_ns) = (order.rollback_epoch, published.time_ns);
        // Both: a transaction that begins at the published root would conflict for ever.
        self.set_both_roots(Root { seq: kept, rollback_epoch, time_ns, trees, position });
        for effects in in_flight.iter().map(|commit| &commit.effects).chain(forming.members()) {
            self.forget_commit(effects);
        }
    }

    /// Nothing is ordered that is not published: the latest root is the published one.
    pub(super) fn set_both_roots(&self, root: Root) {
        let root = Arc::new(root);
        self.latest.set(Arc::clone(&root));
        self.pipeline.published.set(root);
    }

    /// Undoes what a commit that is taken back has done beside its root. Transactions begin at published
    /// roots, so only commits on their way read that root, and they look afterwards whether it was dropped.
    fn forget_commit(&self, effects: &CommitEffects) {
        effects.reinstate();
        self.store.space.value_aborted(&effects.values);
    }

    /// Waits until no other thread writes the log or publishes, and keeps them from it.
    fn take_log(&self) -> MutexGuard<'_, Order> {
        let mut order = self.order.lock();
        while order.is_led() {
            order = self.order.wait(order);
        }
        order.lead();
        order
    }

    /// Lets other threads write the log and publish, and wakes those that wait for a decision.
    fn lay_down_log(&self, mut order: MutexGuard<'_, Order>) {
        let next = order.pass_leadership();
        invariant!(next.is_none(), "no thread of a node waits in a group");
        self.order.unlock_and_wake(order);
        self.pipeline.watch.wake();
    }

    /// What became of a commit. In a closure that runs alone, and in a condition, that is not told: the
    /// thread holds the order.
    pub(crate) fn fate(&self, ordered: Ordered) -> Fate {
        if self.not_alone().is_err() {
            return Fate::Open;
        }
        self.fate_in(&mut self.order.lock(), ordered)
    }

    fn fate_in(&self, order: &mut Order, ordered: Ordered) -> Fate {
        if ordered.rollback_epoch != order.rollback_epoch {
            return order.replica().fates.of(ordered.rollback_epoch, ordered.seq);
        }
        if self.published().seq >= ordered.seq { Fate::Happened } else { Fate::Open }
    }
}

/// What may become of the group in flight when its order is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proposed {
    /// It never happens.
    No,
    /// If it was proposed, the entries that are applied later tell.
    MayBeDecided,
}

/// The error of a write while no majority decides.
fn no_quorum() -> Error {
    Error::new(Code::NoQuorum, "no majority of the cluster answers this node, and nothing was ordered")
}

/// The error of a write on a node that does not lead.
pub(super) fn not_leader() -> Error {
    Error::new(Code::NotLeader, "this node does not lead the cluster, and takes no writes")
}
