//! Leadership: one leader writes the forming group, hands leadership on, and wakes the members.
//!
//! Leadership is the flag `leading` under the order lock; the leader itself holds no lock. Only the leader
//! writes the log and publishes. A commit joins the forming group first. If no thread leads, its thread, or
//! the thread that serves it, sets the flag and takes the group (`see_through` in `serve.rs`), or lets the
//! first waiter do so. Otherwise it queues a waiter, unless its level needs no wait. `lay_down` ends
//! leadership: it passes the flag, still set, to the first waiter of the forming group, or clears it. Either
//! way it wakes the leadership condition.
//!
//! The steps of `lead_group`, in this order, and what breaks without it. Steps 2 to 4 are
//! `Pipeline::write_group`:
//!
//! 1. Take the forming group and the latest root in one critical section. Apart, the root could hold later
//!    commits.
//! 2. Write and sync. Check for poison afterwards, too: a sync of the data file may have failed meanwhile
//!    (D6).
//! 3. `defer_free`: put replaced pages on the pending-free list. Otherwise a checkpoint of the new root would
//!    persist them as used, and a crash after it would leak them.
//! 4. Publish, then note durability. A thread woken for a commit must find it in a snapshot.
//! 5. After a failure, `drop_group` instead of 3 and 4: it rolls back the group and all commits built on it.
//!    It comes before step 6, or the next leader would write commits whose base never happened.
//! 6. Hand on. After publishing, since roots are a chain: if a later leader published first, the older root
//!    would replace its root, and snapshots would go back in time (I1, decision 0002). Before waking, so that
//!    the next write starts early.
//! 7. Wake the members, and only then write a group without waiters (`write_unwaited`), so that they do not
//!    wait for it. At most one such group: the leader has a caller of its own.
//!
//! Interleavings: a commit joins and queues its waiter in one critical section, and `lay_down` looks for
//! waiters in one. A commit therefore either finds the flag clear or is found; none is left behind. The
//! waiter that leads next leaves the list, so that `announce` does not wake it again. A thread in
//! `sync_through` sets `wants_sync` and waits on the leadership condition without joining. Such a group does
//! not count as one without waiters: leadership is laid down, and the woken thread leads and pays for its own
//! sync. Without that wake-up it could wait for ever. The scheduler tests in `tests/it/interleavings.rs`
//! report that as a deadlock.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::Committer;
use super::drops::Dropped;
use super::group::{CommitEffects, Forming};
use super::order_lock::Order;
use super::wait::{GroupOutcome, WakeReason};
use crate::alarm::invariant;
use crate::catalog::Root;
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::sync::MutexGuard;

/// What a thread panicked with.
pub(super) type Panic = Box<dyn std::any::Any + Send>;

/// A group that is written, and the root that it leads to.
pub(super) struct Taken {
    group: Forming,
    root: Arc<Root>,
}

impl Committer {
    /// Leads once: takes the forming group, writes it, and hands leadership on. The caller has set `leading`.
    pub(super) fn lead(&self) -> Result<()> {
        let _within = self.store.alarm.enter();
        let taken = self.take_group(&mut self.order.lock());
        self.lead_group(taken)
    }

    /// Takes the forming group, with the root that has its commits.
    pub(super) fn take_group(&self, order: &mut Order) -> Taken {
        invariant!(order.is_led(), "a thread that leads has taken leadership");
        Taken { group: std::mem::take(&mut order.forming), root: self.latest() }
    }

    /// Writes a group, and hands leadership on.
    pub(super) fn lead_group(&self, Taken { group, root }: Taken) -> Result<()> {
        let (result, panic) = self.write_or_drop(&group, &root);
        let keeps = self.hand_on();
        Arc::new(GroupOutcome { result: result.clone(), waiters: group.waiters }).announce();
        if keeps {
            self.write_unwaited();
        }
        panic.map_or(result, |panic| resume_unwind(panic))
    }

    /// Writes a group, or drops it. A panic is returned, with the alarm raised: the leader first hands on, or
    /// its followers would wait for ever.
    fn write_or_drop(&self, group: &Forming, root: &Arc<Root>) -> (Result<()>, Option<Panic>) {
        let written = catch_unwind(AssertUnwindSafe(|| self.pipeline.write_group(group, root)));
        let (result, panic) = match written {
            // An alarm that was raised since the group was written: it is durable, and nothing is
            // acknowledged.
            Ok(Ok(())) => (self.in_doubt_if_poisoned(), None),
            Ok(result) => (result, None),
            Err(panic) => {
                self.store.alarm.raise_after_panic();
                (self.in_doubt_if_poisoned(), Some(panic))
            }
        };
        if let Err(error) = &result {
            self.drop_group(group, error);
        }
        (result, panic)
    }

    fn in_doubt_if_poisoned(&self) -> Result<()> {
        self.poison_cause().map_or(Ok(()), |cause| Err(Error::in_doubt(cause)))
    }

    /// Rolls back a group that was not written, with all commits built on it.
    fn drop_group(&self, group: &Forming, error: &Error) {
        let mut order = self.order.lock();
        let built_on_it = std::mem::take(&mut order.forming);
        let published = self.published();
        let (kept, latest) = (published.seq, self.latest().seq);
        // No panic in here: it would leave the members of both groups waiting for ever.
        let require = |holds, what: fmt::Arguments<'_>| self.store.alarm.require(holds, what);
        require(
            latest >= kept,
            format_args!("the latest root {latest} is not before the published one {kept}"),
        );
        if latest > kept {
            let durable = self.durable();
            require(
                durable <= kept,
                format_args!("commits after {kept} are dropped, and {durable} is durable"),
            );
            order.rollback_epoch += 1;
            self.store.registry.drop_after(published.seq);
            order.recent.rewind(published.seq);
            let (trees, position) = (published.trees.clone(), published.position.clone());
            self.latest.set(Arc::new(Root {
                seq: published.seq,
                rollback_epoch: order.rollback_epoch,
                time_ns: published.time_ns,
                trees,
                position,
            }));
        }
        group.members().iter().chain(built_on_it.members()).for_each(CommitEffects::reinstate);
        let is_clean = self.poison_cause().is_none();
        if is_clean {
            let (dropped, count) = (latest.0 - kept.0, group.records().len() + built_on_it.records().len());
            require(
                dropped == count as u64,
                format_args!("{count} commits are dropped, all {dropped} after {kept}"),
            );
            // Under the lock: a thread that finds the commits gone also finds them counted.
            self.note_dropped(group.returned_count() + built_on_it.returned_count(), published.seq, error);
        }
        drop(order);
        if is_clean {
            // If the outcome is in doubt, their extents stay allocated until the database is opened again.
            for member in group.members().iter().chain(built_on_it.members()) {
                self.store.space.value_aborted(&member.values);
            }
        }
        let error = self.not_poisoned().err().unwrap_or_else(|| error.clone());
        Arc::new(GroupOutcome { result: Err(error), waiters: built_on_it.waiters }).announce();
    }

    /// Counts dropped commits of calls that have returned. The background reports them.
    fn note_dropped(&self, count: u64, after: CommitSeq, why: &Error) {
        if count == 0 {
            return;
        }
        self.throttle.ask_for_room(why);
        self.drops.add(Dropped { count, after, why: why.clone() });
    }

    /// Hands leadership to the next group's first waiter. If only members without a waiter joined, this
    /// thread keeps leading. It must then call [`write_unwaited`](Self::write_unwaited) after waking its own
    /// members. Returns whether it keeps leading.
    #[must_use]
    fn hand_on(&self) -> bool {
        let order = self.order.lock();
        if order.forming.is_unwaited() && order.replica.is_none() {
            return true;
        }
        self.lay_down(order);
        false
    }

    /// Writes one group of members without a waiter, then hands on. Later members are left to the next
    /// committer or to the background, since this thread's caller waits.
    pub(super) fn write_unwaited(&self) {
        let mut panic = None;
        let mut order = self.order.lock();
        if order.forming.is_unwaited() {
            let group = std::mem::take(&mut order.forming);
            let root = self.latest();
            drop(order);
            panic = self.write_or_drop(&group, &root).1;
            order = self.order.lock();
        }
        self.lay_down(order);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Passes leadership to the first waiter, or clears it.
    fn lay_down(&self, mut order: MutexGuard<'_, Order>) {
        let what = format_args!("a thread that lays down leadership has it");
        self.store.alarm.require(order.is_led(), what);
        let next = order.pass_leadership();
        self.order.unlock_and_wake(order);
        if let Some(next) = next {
            next.wake(WakeReason::Lead);
        }
    }

    /// Writes the forming group if no thread leads: commits at level `Memory`, and commits with a receipt to
    /// wait on.
    ///
    /// # Errors
    /// What writing it returned; its transactions never happened then.
    pub(crate) fn write_pending(&self) -> Result<()> {
        if self.is_replica() {
            self.propose_forming();
            return Ok(());
        }
        {
            let mut order = self.order.lock();
            if order.forming.is_empty() || !order.take_leadership() {
                return Ok(());
            }
        }
        self.lead()
    }

    /// Runs `work` as the leader, after everything that was ordered is written: no other thread writes the
    /// log meanwhile.
    ///
    /// # Errors
    /// What writing returned; `Poisoned`.
    pub(crate) fn as_leader<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let mut order = self.order.lock();
        loop {
            self.not_poisoned()?;
            if order.is_led() {
                order = self.order.wait(order);
                continue;
            }
            if order.replica.is_some() {
                // What is ordered there is not for the log, until it is decided.
                order.lead();
                break;
            }
            if order.forming.is_empty() {
                self.check_all_published();
                order.lead();
                break;
            }
            order.lead();
            drop(order);
            self.lead()?;
            order = self.order.lock();
        }
        drop(order);
        let done = catch_unwind(AssertUnwindSafe(work));
        if done.is_err() {
            // Before the next thread leads.
            self.store.alarm.raise_after_panic();
        }
        self.lay_down(self.order.lock());
        done.map_or_else(|panic| resume_unwind(panic), Ok)
    }

    /// Lets the log go on in its smallest segment, so that a checkpoint frees the larger ones. Returns
    /// whether it does.
    ///
    /// # Errors
    /// As [`Committer::as_leader`]; `Poisoned` if the log is in doubt.
    pub(crate) fn begin_smallest_segment(&self) -> Result<bool> {
        self.as_leader(|| self.pipeline.begin_smallest_segment())?
    }

    /// Lets the published root end in the current segment, if no commit is in it yet.
    ///
    /// # Errors
    /// As [`Committer::sync_through`].
    pub(crate) fn end_in_current_segment(&self) -> Result<()> {
        self.as_leader(|| self.pipeline.end_in_current_segment())?
    }

    /// Writes and syncs a durable watermark, unless the last one covers every durable commit or commits are
    /// on their way. Returns whether it did.
    ///
    /// # Errors
    /// As [`Committer::sync_through`].
    pub(crate) fn mark(&self) -> Result<bool> {
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let durable = self.durable();
        if self.pipeline.watermarks.marked() >= durable {
            return Ok(false);
        }
        {
            let mut order = self.order.lock();
            if !order.forming.is_empty() || self.poison_cause().is_some() || !order.take_leadership() {
                return Ok(false);
            }
        }
        let marked = catch_unwind(AssertUnwindSafe(|| self.pipeline.write_mark(durable)));
        if marked.is_err() {
            self.store.alarm.raise_after_panic();
        }
        let result = marked.as_ref().map_or_else(|_| self.not_poisoned(), Clone::clone);
        if self.hand_on() {
            self.write_unwaited();
        }
        if let Err(panic) = marked {
            resume_unwind(panic);
        }
        result.map(|()| true)
    }
}
