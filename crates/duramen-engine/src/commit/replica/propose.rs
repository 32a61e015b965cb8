//! Proposing the forming group, and waiting for the decision.

use std::sync::Arc;
use std::time::Duration;

use super::{Fate, InFlight, Proposed, Role, no_quorum, not_leader};
use crate::alarm::invariant;
use crate::commit::group::CommitEffects;
use crate::commit::order::conflict;
use crate::commit::order_lock::Order;
use crate::commit::{Committer, Ordered};
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::limits::DECISION_MS_MAX;
use crate::raft_log::{Entry, EntryId, EntryKind, LogEnd, OrderedOn};
use crate::sync::MutexGuard;
use crate::wal::Record;

/// Waiting threads look this often whether the engine was poisoned: that may come between their last look and
/// their wait.
const LOOK_MS: u64 = 500;

/// What is needed of a group to make its entries.
struct Taken {
    /// With their times.
    records: Vec<(Record, u64)>,
    term: u64,
    lineage: u64,
    end: LogEnd,
    /// It may use the segment reserved for a full disk.
    only_deletes: bool,
}

/// Why a group was not proposed: the commit that it is the fault of, if it is of one.
struct NotProposed {
    of: Option<CommitSeq>,
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
            if order.replica().role == Role::Follows {
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
        let (term, lineage) = (taken.term, taken.lineage);
        match self.entries_of(taken) {
            Ok(entries) => {
                let mut order = self.order.lock();
                // Otherwise the order was given up meanwhile.
                if order.rollback_epoch == lineage {
                    let replica = order.replica();
                    for (commit, entry) in replica.in_flight.iter_mut().zip(&entries) {
                        commit.entry = Some(entry.clone());
                    }
                    let proposer = Arc::clone(&replica.proposer);
                    drop(order);
                    proposer.propose(term, entries);
                }
            }
            Err(NotProposed { of, why }) => {
                let mut order = self.take_log();
                if order.rollback_epoch == lineage {
                    let others = if of.is_some() { conflict() } else { why.clone() };
                    self.give_up(&mut order, Proposed::No, &others);
                    if let Some(seq) = of {
                        order.replica().fates.failed(lineage, seq, why);
                    }
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
        let only_deletes = !group.takes_room;
        let (records, members) = group.into_parts();
        let lineage = order.rollback_epoch;
        let replica = order.replica();
        let Role::Leads { term } = replica.role else { return None };
        let in_flight = |(record, mut effects): (Record, CommitEffects)| {
            let root = effects.root.take().expect("a commit of a node keeps its root");
            InFlight { entry: None, record, effects, root }
        };
        replica.in_flight = records.into_iter().zip(members).map(in_flight).collect();
        let records = replica.in_flight.iter().map(|commit| (commit.record.clone(), commit.root.time_ns));
        Some(Taken { records: records.collect(), term, lineage, end: replica.end, only_deletes })
    }

    /// Makes the entries of a group. Their records have room in the engine's log before they are proposed: a
    /// decided commit that cannot be written would stop the node.
    fn entries_of(&self, taken: Taken) -> std::result::Result<Vec<Entry>, NotProposed> {
        let Taken { records, term, lineage, mut end, only_deletes } = taken;
        let (records, times): (Vec<Record>, Vec<u64>) = records.into_iter().unzip();
        self.pipeline.make_room(&records, only_deletes).map_err(|why| NotProposed { of: None, why })?;
        let mut entries = Vec::with_capacity(records.len());
        for (record, time_ns) in records.iter().zip(times) {
            let seq = end.id.seq.next();
            invariant!(record.seq == seq, "commit {} is proposed after {}", record.seq, end.id.seq);
            let bytes = self.content_of(record).map_err(|why| NotProposed { of: Some(seq), why })?;
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
        Ok(entries)
    }
}

fn may_propose(order: &Order) -> bool {
    let leads = order.replica.as_ref().is_some_and(|replica| matches!(replica.role, Role::Leads { .. }));
    leads && !order.forming.is_empty() && !order.is_closed()
}
