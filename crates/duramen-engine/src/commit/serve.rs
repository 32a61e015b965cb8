//! Serving: one thread enters its own transaction into the order, and then those that other threads have
//! queued meanwhile ([`Requests`](super::requests::Requests)).
//!
//! The queued transaction goes to the thread that serves and back with the answer. What can go wrong:
//!
//! - It cannot enter now: pages are missing, or there is no room. Its own thread is woken with that, makes
//!   what is lacking without the lock, and queues again.
//! - It is much work, or the thread that serves has done much for others: the thread of that transaction
//!   serves from there on. So a caller does a bounded amount of work for others.
//! - Its entry panics. That poisons the engine; its own thread goes on with the panic. All that follow are
//!   refused, by a thread that goes on serving: what it has put into a group would wait for ever.
//! - The thread that serves returns without waiting for its group. If no thread leads, the first transaction
//!   of the group that waits does.
//! - A commit at level `Memory` leads only if no other can: the group may be synced for another member. Where
//!   only such commits were served, their group is written as that of commits that wait later.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::order::{EnterError, Prepared};
use super::order_lock::Order;
use super::wait::{Waiter, WakeReason};
use super::{Committer, Ordered, Wait};
use crate::alarm::invariant;
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::options::Durability;
use crate::sync::MutexGuard;

/// A thread does no more for others, in changes, reads, extents and transactions.
const SERVED_MAX: usize = 128;

/// The result of entering, or the result of the group that it entered.
pub(super) type Entered = std::result::Result<Result<Ordered>, EnterError>;

/// While a thread serves. If it panics, those that are queued are told.
struct Serving<'a>(&'a Committer);

impl Serving<'_> {
    /// It has entered what it serves. A thread that was unwinding before has not panicked here.
    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.store.alarm.raise_after_panic();
        while let Some(waiter) = self.0.order.requests.next() {
            waiter.wake(WakeReason::Answered(Err(self.0.poisoned())));
        }
    }
}

impl Committer {
    /// Enters a transaction into the order, or lets the thread that serves do so, and sees it through.
    pub(super) fn take_turn(&self, prepared: Prepared) -> (Prepared, Entered) {
        let waiter = match self.order.requests.serve_or_queue(prepared) {
            Ok(prepared) => return self.serve(prepared),
            Err(waiter) => waiter,
        };
        let reason = waiter.wait();
        let prepared = waiter.take_request();
        match reason {
            WakeReason::Serve => self.serve(prepared),
            WakeReason::Answered(Ok(ordered)) => (prepared, Ok(Ok(ordered))),
            WakeReason::Answered(Err(halt)) => (prepared, Err(halt)),
            // A second panic would end the process.
            WakeReason::Panicked(_) if std::thread::panicking() => (prepared, Err(self.poisoned())),
            WakeReason::Panicked(panic) => resume_unwind(panic),
            reason => {
                let result = self.follow(reason, &prepared);
                (prepared, Ok(result))
            }
        }
    }

    /// Enters the transaction of this thread, and those that are queued.
    fn serve(&self, mut prepared: Prepared) -> (Prepared, Entered) {
        let mut order = self.wait_open(self.order.lock());
        // Dropped before the lock is released: no thread finds half a change and a silent alarm.
        let serving = Serving(self);
        let entered = self.enter(&mut order, &mut prepared);
        let waits = entered.map(|seq| self.place(&mut order, seq, &mut prepared, false));
        let own = order.forming.members().len();
        let answers = self.serve_queued(&mut order);
        let waits = waits.map(|waits| waits && !self.leaves_to_others(&mut order, &prepared, own));
        serving.end();
        let result = match waits {
            Ok(waits) => Ok(self.see_through(order, &prepared, waits, answers)),
            Err(halt) => {
                self.appoint(order, answers);
                Err(halt)
            }
        };
        (prepared, result)
    }

    /// Whether a commit at level `Memory`, whose thread would have led, returns: another one can lead, and
    /// may wait for a sync. So many members had joined with it.
    fn leaves_to_others(&self, order: &mut Order, prepared: &Prepared, own: usize) -> bool {
        let leaves = prepared.level == Durability::Memory
            && !order.forming.waiters.is_empty()
            && !self.store.pages.meter().queues_much();
        if leaves {
            order.forming.returns(own - 1);
        }
        leaves
    }

    /// Enters the transactions that are queued, but for those that their own threads should. Returns the
    /// answers, which are given without the lock.
    fn serve_queued(&self, order: &mut Order) -> Answers {
        let (mut answers, mut left) = (Answers::default(), SERVED_MAX);
        while let Some(waiter) = self.order.requests.next() {
            let mut prepared = waiter.take_request();
            let Some(rest) = prepared.weight().and_then(|weight| left.checked_sub(weight)) else {
                waiter.give_back(prepared);
                answers.serves = Some(waiter);
                break;
            };
            left = rest;
            let enter = || {
                let seq = self.enter(order, &mut prepared)?;
                let waits = self.place(order, seq, &mut prepared, true);
                Ok((!waits).then(|| prepared.place()))
            };
            let entered = catch_unwind(AssertUnwindSafe(enter));
            waiter.give_back(prepared);
            let reason = match entered {
                Ok(Ok(None)) => {
                    order.forming.waiters.push(waiter);
                    continue;
                }
                Ok(Ok(Some(ordered))) => WakeReason::Answered(Ok(ordered)),
                Ok(Err(halt)) => WakeReason::Answered(Err(halt)),
                Err(panic) => {
                    self.store.alarm.raise_after_panic();
                    WakeReason::Panicked(panic)
                }
            };
            answers.others.push((waiter, reason));
        }
        answers
    }

    fn poisoned(&self) -> EnterError {
        EnterError::Failed(self.not_poisoned().expect_err("the alarm was raised"))
    }

    /// Notes the place of the newest transaction in the order. Returns whether its thread waits for the
    /// group, or leads. Where another thread enters it, it need not lead.
    pub(super) fn place(
        &self,
        order: &mut Order,
        seq: CommitSeq,
        prepared: &mut Prepared,
        is_served: bool,
    ) -> bool {
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        prepared.ordered = Some(Ordered { seq, rollback_epoch: order.rollback_epoch });
        if order.replica.is_some() {
            // It waits for a decision, not for a write of its group.
            return false;
        }
        let is_memory = prepared.level == Durability::Memory;
        order.forming.wants_sync |= prepared.level == Durability::Disk;
        // Commits at level `Memory` block too once the write queue exceeds its limit.
        let queues_much = self.store.pages.meter().queues_much();
        let is_later = prepared.wait == Wait::Later;
        let need_not_lead = order.is_led() || is_served;
        let waits = queues_much || !(is_later || is_memory && need_not_lead);
        if !waits && is_memory {
            order.forming.returns(order.forming.members().len() - 1);
        }
        waits
    }

    /// Leads or waits for the group, if the transaction waits.
    pub(super) fn see_through(
        &self,
        mut order: MutexGuard<'_, Order>,
        prepared: &Prepared,
        waits: bool,
        answers: Answers,
    ) -> Result<Ordered> {
        if !waits {
            self.appoint(order, answers);
            return Ok(prepared.place());
        }
        if order.take_leadership() {
            let taken = self.take_group(&mut order);
            drop(order);
            give(answers.hand_on());
            return self.acknowledge(self.lead_group(taken), prepared);
        }
        let waiter = Arc::new(Waiter::default());
        order.forming.waiters.push(Arc::clone(&waiter));
        drop(order);
        give(answers.hand_on());
        self.follow(waiter.wait(), prepared)
    }

    fn acknowledge(&self, written: Result<()>, prepared: &Prepared) -> Result<Ordered> {
        written.map(|()| self.acknowledged(prepared.place(), prepared.level))
    }

    /// Does what a thread was woken for whose transaction is in a group.
    fn follow(&self, reason: WakeReason, prepared: &Prepared) -> Result<Ordered> {
        match reason {
            WakeReason::Lead => self.acknowledge(self.lead(), prepared),
            WakeReason::Done(outcome, index) => {
                outcome.pass_on(index);
                self.acknowledge(outcome.result.clone(), prepared)
            }
            WakeReason::Serve | WakeReason::Answered(_) | WakeReason::Panicked(_) => {
                unreachable!("a transaction in a group is not queued")
            }
        }
    }

    /// Lets the first waiter of the forming group lead, if it has one and no thread leads.
    fn appoint(&self, mut order: MutexGuard<'_, Order>, answers: Answers) {
        let next = if order.is_led() { None } else { order.pass_leadership() };
        drop(order);
        let others = answers.hand_on();
        if let Some(next) = next {
            next.wake(WakeReason::Lead);
        }
        give(others);
    }

    /// A commit whose group was written, with the level that it waited for (D1).
    pub(super) fn acknowledged(&self, ordered: Ordered, level: Durability) -> Ordered {
        let seq = ordered.seq;
        match level {
            Durability::Disk => {
                let durable = self.durable();
                invariant!(durable >= seq, "commit {seq} is durable when it is acknowledged, not {durable}");
            }
            Durability::Process => {
                let published = self.published().seq;
                invariant!(published >= seq, "commit {seq} is published when it is acknowledged");
            }
            Durability::Memory => {}
        }
        ordered
    }
}

/// What threads are woken with that wait for no group, once the order lock is released.
#[derive(Default)]
pub(super) struct Answers {
    /// The thread that serves from here on.
    serves: Option<Arc<Waiter>>,
    others: Vec<(Arc<Waiter>, WakeReason)>,
}

impl Answers {
    /// Lets the next thread serve, before anything else: until it does, no queued transaction enters.
    fn hand_on(self) -> Vec<(Arc<Waiter>, WakeReason)> {
        if let Some(next) = self.serves {
            next.wake(WakeReason::Serve);
        }
        self.others
    }
}

fn give(answers: Vec<(Arc<Waiter>, WakeReason)>) {
    for (waiter, reason) in answers {
        waiter.wake(reason);
    }
}
