//! Serving: one thread enters its own transaction into the order, and then those that other threads have
//! queued meanwhile ([`Requests`](super::requests::Requests)).
//!
//! The queued transaction goes to the thread that serves and back with the answer. What can go wrong:
//!
//! - It cannot enter now: pages are missing, or there is no room. Its own thread is woken with that, makes
//!   what is lacking without the lock, and queues again.
//! - It has many changes, or the thread that serves has served many: the thread of that transaction serves
//!   from there on. No caller waits long for others.
//! - Its entry panics. The engine is poisoned, and it and all that follow are refused. The thread that serves
//!   goes on, or those that it has put into a group would wait for ever.
//! - The thread that serves returns without waiting for its group. If no thread leads, the first transaction
//!   of the group that waits does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::lead::Taken;
use super::order::{EnterError, Prepared};
use super::order_lock::Order;
use super::wait::{Waiter, WakeReason};
use super::{Committer, Ordered, Wait};
use crate::alarm::invariant;
use crate::error::Result;
use crate::ids::CommitSeq;
use crate::options::Durability;
use crate::sync::MutexGuard;

/// A thread serves no more changes of others than this.
const SERVED_CHANGES_MAX: usize = 64;

/// The result of entering, or the result of the group that it entered.
pub(super) type Entered = std::result::Result<Result<Ordered>, EnterError>;

/// While a thread serves. If it panics, those that are queued are told.
struct Serving<'a>(&'a Committer);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store.alarm.raise_after_panic();
            while let Some(waiter) = self.0.order.requests.next() {
                waiter.wake(WakeReason::Answered(Err(self.0.poisoned())));
            }
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
            reason => {
                let result = self.follow(reason, &prepared);
                (prepared, Ok(result))
            }
        }
    }

    /// Enters the transaction of this thread, and those that are queued.
    fn serve(&self, mut prepared: Prepared) -> (Prepared, Entered) {
        let serving = Serving(self);
        let mut order = self.order.lock();
        let entered = self.enter(&mut order, &mut prepared);
        let waits = entered.map(|seq| self.place(&mut order, seq, &mut prepared));
        let answers = self.serve_queued(&mut order);
        drop(serving);
        let result = match waits {
            Ok(waits) => Ok(self.see_through(order, &prepared, waits, answers)),
            Err(halt) => {
                self.appoint(order, answers);
                Err(halt)
            }
        };
        (prepared, result)
    }

    /// Enters the transactions that are queued, but for those that their own threads should. Returns the
    /// answers, which are given without the lock.
    fn serve_queued(&self, order: &mut Order) -> Answers {
        let (mut answers, mut changes) = (Answers::default(), 0);
        while let Some(waiter) = self.order.requests.next() {
            let mut prepared = waiter.take_request();
            changes += prepared.change_count().max(1);
            if changes > SERVED_CHANGES_MAX {
                waiter.give_back(prepared);
                answers.0.push((waiter, WakeReason::Serve));
                break;
            }
            let entered = catch_unwind(AssertUnwindSafe(|| self.enter(order, &mut prepared)));
            let entered = entered.unwrap_or_else(|_| {
                self.store.alarm.raise_after_panic();
                Err(self.poisoned())
            });
            let waits = entered.map(|seq| self.place(order, seq, &mut prepared));
            let ordered = prepared.ordered;
            waiter.give_back(prepared);
            match (waits, ordered) {
                (Ok(true), _) => order.forming.waiters.push(waiter),
                (Ok(false), Some(ordered)) => answers.0.push((waiter, WakeReason::Answered(Ok(ordered)))),
                (Ok(false), None) => unreachable!("a transaction that entered has its place"),
                (Err(halt), _) => answers.0.push((waiter, WakeReason::Answered(Err(halt)))),
            }
        }
        answers
    }

    fn poisoned(&self) -> EnterError {
        EnterError::Failed(self.not_poisoned().expect_err("the alarm was raised"))
    }

    /// Notes the place of the newest transaction in the order. Returns whether its thread waits for the
    /// group, or leads.
    pub(super) fn place(&self, order: &mut Order, seq: CommitSeq, prepared: &mut Prepared) -> bool {
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        prepared.ordered = Some(Ordered { seq, rollback_epoch: order.rollback_epoch });
        let is_memory = prepared.level == Durability::Memory;
        order.forming.wants_sync |= prepared.level == Durability::Disk;
        // Commits at level `Memory` block too once the write queue exceeds its limit.
        let queues_much = self.store.pages.meter().queues_much();
        let is_later = prepared.wait == Wait::Later;
        let waits = queues_much || !is_later && (!is_memory || !order.is_led());
        if !waits && is_memory {
            order.forming.newest_returns();
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
            answers.give();
            return self.lead_through(taken, prepared);
        }
        let waiter = Arc::new(Waiter::default());
        order.forming.waiters.push(Arc::clone(&waiter));
        drop(order);
        answers.give();
        self.follow(waiter.wait(), prepared)
    }

    fn lead_through(&self, taken: Taken, prepared: &Prepared) -> Result<Ordered> {
        self.lead_group(taken).map(|()| self.acknowledged(prepared.place(), prepared.level))
    }

    /// Does what a thread was woken for whose transaction is in a group.
    fn follow(&self, reason: WakeReason, prepared: &Prepared) -> Result<Ordered> {
        match reason {
            WakeReason::Lead => self.lead().map(|()| self.acknowledged(prepared.place(), prepared.level)),
            WakeReason::Done(outcome, index) => {
                outcome.pass_on(index);
                outcome.result.clone().map(|()| self.acknowledged(prepared.place(), prepared.level))
            }
            WakeReason::Serve | WakeReason::Answered(_) => {
                unreachable!("a transaction in a group is not queued")
            }
        }
    }

    /// Lets the first waiter of the forming group lead, if it has one and no thread leads.
    fn appoint(&self, mut order: MutexGuard<'_, Order>, answers: Answers) {
        let next = if order.is_led() { None } else { order.pass_leadership() };
        drop(order);
        answers.give();
        if let Some(next) = next {
            next.wake(WakeReason::Lead);
        }
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
pub(super) struct Answers(Vec<(Arc<Waiter>, WakeReason)>);

impl Answers {
    fn give(self) {
        for (waiter, reason) in self.0 {
            waiter.wake(reason);
        }
    }
}
