//! Proposing the forming group, and waiting for the decision.

use std::sync::Arc;
use std::time::Duration;

use super::{Fate, InFlight, Proposed, Proposer, Role, no_quorum, not_leader};
use crate::alarm::invariant;
use crate::commit::group::CommitEffects;
use crate::commit::order::conflict;
use crate::commit::order_lock::Order;
use crate::commit::{Committer, Ordered};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::limits::DECISION_MS_MAX;
use crate::raft_log::{Entry, EntryId, EntryKind, LogEnd, OrderedOn};
use crate::sync::MutexGuard;
use crate::wal::Record;

/// Waiting threads look this often whether the engine was poisoned: that may come between their last look and
/// their wait.
const LOOK_MS: u64 = 500;

/// For so long nothing that takes room enters the order after there was none.
const NO_ROOM_MS: u64 = 200;

/// What is needed of a group to make its entries.
struct Taken {
    /// With their times.
    records: Vec<(Record, u64)>,
    term: u64,
    lineage: u64,
    end: LogEnd,
    /// The commits that put or move something. Without any of them the group may use the segment reserved for
    /// a full disk.
    take_room: Vec<CommitSeq>,
    proposer: Arc<dyn Proposer>,
}

/// Why a group was not proposed, and the commits that it is the fault of; without any it is of none.
struct NotProposed {
    of: Vec<CommitSeq>,
    why: Error,
}

impl Committer {
    /// Waits while nothing may enter the order, as long as a commit waits for its decision.
    pub(in crate::commit) fn wait_open<'a>(
        &'a self,
        mut order: MutexGuard<'a, Order>,
    ) -> MutexGuard<'a, Order> {
        if !order.is_closed() {
            return order;
        }
        let until_ns = self.log().now_ns().saturating_add(DECISION_MS_MAX * 1_000_000);
        while order.is_closed() && self.usable().is_ok() && self.log().now_ns() < until_ns {
            order = self.order.wait_for(order, Duration::from_millis(LOOK_MS));
        }
        order
    }

    /// Takes the order while everything in it is published, for a transaction that runs alone: what it reads
    /// is decided.
    pub(in crate::commit) fn wait_decided_order(&self) -> Result<MutexGuard<'_, Order>> {
        let mut order = self.order.lock();
        loop {
            self.usable()?;
            if self.role() == Role::Follows {
                return Err(not_leader());
            }
            if order.is_closed() {
                order = self.wait_open(order);
                if order.is_closed() {
                    return Err(no_quorum());
                }
            } else if order.forming.is_empty() {
                return Ok(order);
            } else {
                drop(order);
                self.propose_forming();
                order = self.order.lock();
            }
        }
    }

    /// Waits until a commit is published, or will never be.
    ///
    /// # Errors
    /// `Conflict` or `NotLeader` if it never happens; `InDoubt` if that is not known after
    /// [`DECISION_MS_MAX`], or if the engine was poisoned.
    pub(crate) fn wait_decided(&self, ordered: Ordered) -> Result<()> {
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let until_ns = self.log().now_ns().saturating_add(DECISION_MS_MAX * 1_000_000);
        let mut order = self.order.lock();
        loop {
            match self.fate_in(&mut order, ordered) {
                Fate::Happened => return Ok(()),
                Fate::Never(_) => {
                    let why = order.replica().fates.why(ordered.rollback_epoch, ordered.seq);
                    return Err(why.expect("a lineage that has ended has a reason"));
                }
                Fate::Open => {}
            }
            if let Some(cause) = self.poison_cause() {
                return Err(Error::in_doubt(cause));
            }
            if may_propose(&order) {
                drop(order);
                self.propose_forming();
                order = self.order.lock();
                continue;
            }
            let left_ns = until_ns.saturating_sub(self.log().now_ns());
            if left_ns == 0 {
                return Err(self.not_decided());
            }
            order = self.order.wait_for(order, Duration::from_nanos(left_ns.min(LOOK_MS * 1_000_000)));
        }
    }

    /// The error of a commit whose decision did not come in time.
    fn not_decided(&self) -> Error {
        let what = format!("no majority has decided on it within {DECISION_MS_MAX} ms");
        Error::in_doubt(&Error::invalid(what))
    }

    /// Proposes the forming group, if there is one and the order is open.
    pub(in crate::commit) fn propose_forming(&self) {
        let _within = self.store.alarm.enter();
        let Some(taken) = self.take_forming() else { return };
        let (term, lineage, proposer) = (taken.term, taken.lineage, Arc::clone(&taken.proposer));
        match self.entries_of(taken) {
            Ok(entries) => {
                let mut order = self.order.lock();
                // Otherwise the order was given up meanwhile.
                if order.rollback_epoch == lineage {
                    let replica = order.replica();
                    for (commit, entry) in replica.in_flight.iter_mut().zip(&entries) {
                        commit.entry = Some(entry.clone());
                    }
                    drop(order);
                    proposer.propose(term, entries);
                }
            }
            Err(NotProposed { of, why }) => {
                let mut order = self.take_log();
                if order.rollback_epoch == lineage {
                    let others = if of.is_empty() { why.clone() } else { conflict() };
                    self.give_up(&mut order, Proposed::No, &others);
                    let now_ns = self.log().now_ns();
                    let replica = order.replica();
                    if why.code() == Code::DiskFull {
                        replica.no_room = Some((now_ns + NO_ROOM_MS * 1_000_000, why.clone()));
                    }
                    replica.fates.failed(lineage, of, why);
                }
                self.lay_down_log(order);
            }
        }
    }

    /// Takes the forming group out of the order, which is closed until it is published or given up.
    fn take_forming(&self) -> Option<Taken> {
        let mut order = self.order.lock();
        if !may_propose(&order) {
            return None;
        }
        let group = std::mem::take(&mut order.forming);
        let (records, members) = group.into_parts();
        let lineage = order.rollback_epoch;
        let replica = order.replica();
        let Role::Leads { term } = replica.standing.role() else { return None };
        let in_flight = |(record, mut effects): (Record, CommitEffects)| {
            let root = effects.root.take().expect("a commit of a node keeps its root");
            InFlight { entry: None, record, effects, root }
        };
        replica.in_flight = records.into_iter().zip(members).map(in_flight).collect();
        let proposer = Arc::clone(&replica.proposer);
        let commits = || replica.in_flight.iter();
        let records = commits().map(|commit| (commit.record.clone(), commit.root.time_ns)).collect();
        let take_room = commits().map(|commit| &commit.effects).filter(|effects| effects.takes_room);
        let take_room = take_room.map(|effects| effects.seq).collect();
        Some(Taken { records, term, lineage, end: replica.standing.end(), take_room, proposer })
    }

    /// Makes the entries of a group. They have room in both logs before they are proposed: a decided commit
    /// that cannot be written would stop the node, and so would an entry of Raft's log.
    fn entries_of(&self, taken: Taken) -> std::result::Result<Vec<Entry>, NotProposed> {
        let Taken { records, term, lineage, mut end, take_room, proposer } = taken;
        let (records, times): (Vec<Record>, Vec<u64>) = records.into_iter().unzip();
        let frees = take_room.is_empty();
        let no_room = |why: Error| {
            let of = if why.code() == Code::DiskFull { take_room.clone() } else { Vec::new() };
            NotProposed { of, why }
        };
        self.pipeline.make_room(&records, frees).map_err(|why| {
            if why.code() == Code::DiskFull {
                self.throttle.refused_for_room();
            }
            no_room(why)
        })?;
        let mut entries = Vec::with_capacity(records.len());
        for (record, time_ns) in records.iter().zip(times) {
            let seq = end.id.seq.next();
            invariant!(record.seq == seq, "commit {} is proposed after {}", record.seq, end.id.seq);
            let bytes = self.content_of(record).map_err(|why| NotProposed { of: vec![seq], why })?;
            let entry = Entry {
                id: EntryId { term, seq },
                ordered: OrderedOn { term, lineage, seq, chain: end.chain },
                time_ns,
                kind: EntryKind::Changes,
                bytes,
            };
            end = end.after(&entry);
            entries.push(entry);
        }
        proposer.make_room(&entries, frees).map_err(no_room)?;
        Ok(entries)
    }
}

fn may_propose(order: &Order) -> bool {
    let leads =
        order.replica.as_ref().is_some_and(|replica| matches!(replica.standing.role(), Role::Leads { .. }));
    leads && !order.forming.is_empty() && !order.is_closed()
}
