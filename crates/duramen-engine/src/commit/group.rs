//! Stage two: one leader writes the forming group, syncs, publishes, hands leadership on, and wakes the
//! members.
//!
//! Leadership is the flag `leading` under the order lock; the leader itself holds no lock. Only the leader
//! writes the log and publishes. A commit joins the forming group first. If no thread leads, its thread sets
//! the flag and calls `lead`. Otherwise it queues a waiter, unless its level needs no wait. `lay_down` ends
//! leadership: it passes the flag, still set, to the first waiter of the forming group, or clears it. Either
//! way it wakes the leadership condition.
//!
//! The steps of `lead`, in this order, and what breaks without it:
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
use std::sync::atomic::Ordering;

use super::wait::{GroupOutcome, Waiter, WakeReason};
use super::{Committer, Order};
use crate::alarm::{invariant, locked};
use crate::allocator::DeferredExtent;
use crate::catalog::Root;
use crate::data_file::PagePointer;
use crate::error::{Error, Result};
use crate::ids::CommitSeq;
use crate::page_cache::Buffered;
use crate::sync::MutexGuard;
use crate::tree::Node;
use crate::wal::{Group, LogPosition, LogWriteError, Record, SyncFailure};

/// What a thread panicked with.
type Panic = Box<dyn std::any::Any + Send>;

/// Transactions that will share one write.
#[derive(Debug, Default)]
pub(super) struct Forming {
    records: Vec<Record>,
    members: Vec<CommitEffects>,
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) wants_sync: bool,
    /// Whether a member puts something. A group that only frees space may use the segment reserved for a full
    /// disk.
    pub(super) puts: bool,
}

/// What a transaction leaves to the group until it is published.
#[derive(Debug)]
pub(super) struct CommitEffects {
    /// Its sequence.
    pub seq: CommitSeq,
    /// Nodes that only older roots reference.
    pub replaced: Vec<Arc<Node>>,
    /// References to big values that only older roots hold.
    pub dropped_values: Vec<Vec<u8>>,
    /// Pages of the big values that it wrote.
    pub values: Vec<PagePointer>,
    /// The memory charged for its record until the group is written.
    pub _buffered: Buffered,
    /// Its call has returned for good, at level `Memory`. If the group is dropped, no caller is left to
    /// receive the error.
    pub has_returned: bool,
}

/// Commits that had returned at level `Memory` before their group was dropped.
#[derive(Debug, Clone)]
pub(crate) struct Dropped {
    /// Number of commits.
    pub count: u64,
    /// The last commit before them, which was kept.
    pub after: CommitSeq,
    /// Why their group could not be written.
    pub why: Error,
}

impl Forming {
    /// Adds a transaction that was ordered and applied.
    pub(super) fn join(&mut self, mut record: Record, effects: CommitEffects) {
        if let Some(Record { seq: last, .. }) = self.records.last() {
            invariant!(effects.seq == last.next(), "commit {} follows {last} in its group", effects.seq);
        }
        record.seq = effects.seq;
        self.records.push(record);
        self.members.push(effects);
    }

    /// Notes that the call of the newest member returns for good before the group is written.
    pub(super) fn newest_returns(&mut self) {
        let newest = self.members.last_mut().expect("a transaction has just joined");
        invariant!(!newest.has_returned, "the call of commit {} returns once", newest.seq);
        newest.has_returned = true;
    }

    fn returned_count(&self) -> u64 {
        self.members.iter().filter(|member| member.has_returned).count() as u64
    }

    /// Whether commits joined, none of which has a waiter or wants a sync.
    fn is_unwaited(&self) -> bool {
        self.waiters.is_empty() && !self.is_empty() && !self.wants_sync
    }

    /// Each record has its member, and each waiter is one of these: a group without records has neither.
    fn check_members(&self) {
        let (records, members, waiters) = (self.records.len(), self.members.len(), self.waiters.len());
        invariant!(records == members, "a group of {records} records has as many members, not {members}");
        invariant!(waiters <= members, "a group of {members} members has {waiters} waiters at most");
    }

    /// Whether no transaction joined.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Committer {
    /// Leads once: takes the forming group, writes it, and hands leadership on. The caller has set `leading`.
    pub(super) fn lead(&self) -> Result<()> {
        let _within = self.store.alarm.enter();
        let (group, root) = {
            let mut order = self.lock();
            invariant!(order.leading, "a thread that leads has taken leadership");
            (std::mem::take(&mut order.forming), self.latest())
        };
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
        let written = catch_unwind(AssertUnwindSafe(|| self.write_group(group, root)));
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

    /// Writes the group, syncs if a member wants it, and publishes.
    fn write_group(&self, group: &Forming, root: &Arc<Root>) -> Result<()> {
        self.not_poisoned()?;
        group.check_members();
        if group.records.is_empty() {
            return if group.wants_sync { self.sync_log() } else { Ok(()) };
        }
        let before = self.published();
        self.check_continues(group, &before, root);
        let written = match self.write_log(group) {
            Err(error) if group.wants_sync && self.poison_cause().is_none() => {
                // Threads that wait for a sync also wait for commits before this group, which must not depend
                // on its room.
                self.sync_log()?;
                return Err(error);
            }
            written => written?,
        };
        if let Some(cause) = self.poison_cause() {
            return Err(self.in_doubt(cause.clone()));
        }
        self.defer_free(group);
        check_follows(&before, root, written);
        invariant!(root.position.set(written).is_ok(), "the root of commit {} is written once", root.seq);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.published.set(Arc::clone(root));
        // After it: a thread woken for a commit finds it in a snapshot.
        if group.wants_sync {
            self.note_durable(root.seq);
        }
        Ok(())
    }

    /// A group leads from the published root to the one that will be published (D2), before it is written.
    fn check_continues(&self, group: &Forming, before: &Root, root: &Root) {
        let (count, from, to) = (group.records.len() as u64, before.seq, root.seq);
        invariant!(from.0.checked_add(count) == Some(to.0), "{count} commits lead from {from} to {to}");
        let last = group.records.last().map(|record| record.seq);
        invariant!(last == Some(to), "a group that ends at {last:?} makes root {to}");
        let durable = self.durable();
        invariant!(durable <= from, "what is durable is published: {durable}, {from}");
    }

    fn write_log(&self, group: &Forming) -> Result<LogPosition> {
        let batch = |durable| Group { records: &group.records, durable, use_reserve: !group.puts };
        // Sync the commits written before this group first. They need not wait until a segment is made for
        // it.
        if self.durable() < self.published().seq && self.log.lacks_segment(&batch(self.durable())) {
            self.sync_log()?;
        }
        let batch = batch(self.durable());
        let written = if group.wants_sync { self.log.write_and_sync(&batch) } else { self.log.write(&batch) };
        let written = written.map_err(|error| self.log_failed(&error))?;
        self.log_bytes.fetch_add(written.bytes, Ordering::Relaxed);
        let unsynced =
            if group.wants_sync { 0 } else { self.unsynced_bytes.load(Ordering::Relaxed) + written.bytes };
        self.unsynced_bytes.store(unsynced, Ordering::Relaxed);
        Ok(written.position)
    }

    /// Syncs the log. Everything published is durable then.
    pub(super) fn sync_log(&self) -> Result<()> {
        // Only the leader writes, so the published root covers all that is written.
        let written = self.published().seq;
        match self.log.sync() {
            Ok(LogPosition { seq: synced, .. }) => {
                invariant!(synced >= written, "the log is synced through {synced}, {written} is published");
                self.unsynced_bytes.store(0, Ordering::Relaxed);
                self.note_durable(written);
                Ok(())
            }
            Err(SyncFailure(error)) => Err(self.in_doubt(error)),
        }
    }

    /// Maps a failed write to its consequence: a clean failure drops the group, any other poisons (D6, D7).
    pub(super) fn log_failed(&self, error: &LogWriteError) -> Error {
        match error {
            LogWriteError::Full(error) | LogWriteError::Refused(error) => error.clone(),
            LogWriteError::InDoubt(error) => self.in_doubt(error.clone()),
        }
    }

    fn in_doubt(&self, cause: Error) -> Error {
        let error = Error::in_doubt(&cause);
        self.poison(cause);
        error
    }

    fn note_durable(&self, seq: CommitSeq) {
        self.durable.fetch_max(seq.0, Ordering::SeqCst);
        self.watch.wake();
    }

    /// Bytes of the log that were written and not synced.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes.load(Ordering::Relaxed)
    }

    /// Rolls back a group that was not written, with all commits built on it.
    fn drop_group(&self, group: &Forming, error: &Error) {
        let mut order = self.lock();
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
                trees,
                position,
            }));
        }
        let is_clean = self.poison_cause().is_none();
        if is_clean {
            let (dropped, count) = (latest.0 - kept.0, group.records.len() + built_on_it.records.len());
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
            for member in group.members.iter().chain(&built_on_it.members) {
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
        self.dropped.fetch_add(count, Ordering::Relaxed);
        let mut unreported = locked(self.unreported.lock());
        let earlier = unreported.take();
        let count = count + earlier.as_ref().map_or(0, |earlier| earlier.count);
        let after = earlier.map_or(after, |earlier| earlier.after.min(after));
        *unreported = Some(Dropped { count, after, why: why.clone() });
    }

    /// Takes the count of commits dropped after their calls had returned, since the last call.
    pub(crate) fn take_dropped(&self) -> Option<Dropped> {
        locked(self.unreported.lock()).take()
    }

    /// Hands leadership to the next group's first waiter. If only members without a waiter joined, this
    /// thread keeps leading. It must then call [`write_unwaited`](Self::write_unwaited) after waking its own
    /// members. Returns whether it keeps leading.
    #[must_use]
    pub(super) fn hand_on(&self) -> bool {
        let order = self.lock();
        if order.forming.is_unwaited() {
            return true;
        }
        self.lay_down(order);
        false
    }

    /// Writes one group of members without a waiter, then hands on. Later members are left to the next
    /// committer or to the background, since this thread's caller waits.
    pub(super) fn write_unwaited(&self) {
        let mut panic = None;
        let mut order = self.lock();
        if order.forming.is_unwaited() {
            let group = std::mem::take(&mut order.forming);
            let root = self.latest();
            drop(order);
            panic = self.write_or_drop(&group, &root).1;
            order = self.lock();
        }
        self.lay_down(order);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Passes leadership to the first waiter, or clears it.
    fn lay_down(&self, mut order: MutexGuard<'_, Order>) {
        let what = format_args!("a thread that lays down leadership has it");
        self.store.alarm.require(order.leading, what);
        match take_first_waiter(&mut order) {
            Some(next) => {
                self.call_turn(order);
                next.wake(WakeReason::Lead);
            }
            None => {
                order.leading = false;
                self.call_turn(order);
            }
        }
    }

    /// Writes the forming group if no thread leads: commits at level `Memory`, and commits with a receipt to
    /// wait on.
    ///
    /// # Errors
    /// What writing it returned; its transactions never happened then.
    pub(crate) fn write_pending(&self) -> Result<()> {
        {
            let mut order = self.lock();
            if order.leading || order.forming.is_empty() {
                return Ok(());
            }
            order.leading = true;
        }
        self.lead()
    }

    /// Runs `work` as the leader, after everything that was ordered is written: no other thread writes the
    /// log meanwhile.
    ///
    /// # Errors
    /// What writing returned; `Poisoned`.
    pub(crate) fn while_nobody_writes<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let mut order = self.lock();
        loop {
            self.not_poisoned()?;
            if order.leading {
                order = self.wait_turn(order);
                continue;
            }
            if order.forming.is_empty() {
                self.check_all_published();
                order.leading = true;
                break;
            }
            order.leading = true;
            drop(order);
            self.lead()?;
            order = self.lock();
        }
        drop(order);
        let done = catch_unwind(AssertUnwindSafe(work));
        if done.is_err() {
            // Before the next thread leads.
            self.store.alarm.raise_after_panic();
        }
        self.lay_down(self.lock());
        done.map_or_else(|panic| resume_unwind(panic), Ok)
    }

    /// Defers the free of the pages that a published group replaced: puts them on the pending-free list.
    fn defer_free(&self, group: &Forming) {
        let mut extents: Vec<DeferredExtent> = Vec::new();
        for member in &group.members {
            extents.extend(
                member
                    .replaced
                    .iter()
                    .filter_map(|node| node.defer_free(member.seq))
                    .map(DeferredExtent::from),
            );
            for value in &member.dropped_values {
                self.store.defer_free_value(value, member.seq);
            }
        }
        if !extents.is_empty() {
            self.store.space.defer_free(extents);
        }
    }
}

/// A root that is published comes after the one before it, in the order and in the log (D2, I1).
pub(super) fn check_follows(before: &Root, root: &Root, written: LogPosition) {
    let (from, to) = (before.seq, root.seq);
    invariant!(from < to, "root {to} is published after {from}");
    invariant!(written.seq == to, "root {to} ends where its log does, at {}", written.seq);
    let place = |position: &LogPosition| (position.epoch, position.offset);
    let is_behind = before.position.get().is_some_and(|before| place(before) < place(&written));
    invariant!(is_behind, "the log of root {to} lies behind that of {from}: {:?}", place(&written));
}

fn take_first_waiter(order: &mut Order) -> Option<Arc<Waiter>> {
    (!order.forming.waiters.is_empty()).then(|| order.forming.waiters.remove(0))
}
