//! Stage two: one leader writes the group that formed, syncs, publishes, hands on and wakes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::wait::{GroupOutcome, Waiter, Word};
use super::{Committer, Order, POISON};
use crate::allocator::RetiredExtent;
use crate::catalog::Root;
use crate::data_file::Location;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::page_cache::Buffered;
use crate::sync::MutexGuard;
use crate::tree::Node;
use crate::wal::{Group, LogPosition, LogWriteError, Record, SyncFailure};

/// Transactions that will share one write.
#[derive(Debug, Default)]
pub struct Forming {
    records: Vec<Record>,
    members: Vec<Left>,
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) wants_sync: bool,
    /// Whether a member puts something. A group that only frees space may take the segment held back for a full disk.
    pub(super) puts: bool,
}

/// What a transaction leaves behind once it is published.
#[derive(Debug)]
pub struct Left {
    /// Its place in the order.
    pub seq: CommitSeq,
    /// Nodes that the root before it used.
    pub replaced: Vec<Arc<Node>>,
    /// References to big values that the root before it used.
    pub dropped_values: Vec<Vec<u8>>,
    /// Pages of the big values that it wrote.
    pub values: Vec<Location>,
    /// The memory its record takes until the group is written.
    pub _buffered: Buffered,
    /// Its call has returned for good, at level `Memory`: if the group is dropped, no caller is left to get the error.
    pub has_returned: bool,
}

/// Commits that had returned at level `Memory` before their group was dropped.
#[derive(Debug, Clone)]
pub struct Dropped {
    /// How many.
    pub count: u64,
    /// The last commit before them, which was kept.
    pub after: CommitSeq,
    /// Why their group could not be written.
    pub why: Error,
}

impl Forming {
    /// Adds a transaction that was ordered and applied.
    pub fn join(&mut self, mut record: Record, left: Left) {
        record.seq = left.seq;
        self.records.push(record);
        self.members.push(left);
    }

    /// The call of the transaction that joined last returns for good before the group is written.
    pub(super) fn newest_returns(&mut self) {
        self.members.last_mut().expect("a transaction has just joined").has_returned = true;
    }

    fn returned_count(&self) -> u64 {
        self.members.iter().filter(|member| member.has_returned).count() as u64
    }

    /// Whether it holds what nobody waits for. A sync that somebody asked for will be waited for, if not here: whoever leads now
    /// has a caller, who is not kept waiting for it.
    fn is_unwaited(&self) -> bool {
        self.waiters.is_empty() && !self.is_empty() && !self.wants_sync
    }

    /// Whether nobody joined.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Committer {
    /// Leads once: closes the forming group, writes it, and hands on. The caller has set `leading`.
    pub(super) fn lead(&self) -> Result<()> {
        let (group, root) = {
            let mut order = self.lock();
            (std::mem::take(&mut order.forming), self.sealed())
        };
        let result = self.write_group(&group, &root);
        if let Err(error) = &result {
            self.drop_group(&group, error);
        }
        let keeps = self.hand_on();
        Arc::new(GroupOutcome { result: result.clone(), waiters: group.waiters }).announce();
        if keeps {
            self.write_unwaited();
        }
        result
    }

    /// Writes, syncs if asked, publishes.
    fn write_group(&self, group: &Forming, root: &Arc<Root>) -> Result<()> {
        if let Some(cause) = self.poison.get() {
            return Err(Error::poisoned(cause.message()));
        }
        if group.records.is_empty() {
            return if group.wants_sync { self.sync_log() } else { Ok(()) };
        }
        let written = match self.write_log(group) {
            Err(error) if group.wants_sync && self.poison.get().is_none() => {
                // Who waits for a sync waits for commits before this group, too: that it had no room must not keep them waiting.
                self.sync_log()?;
                return Err(error);
            }
            written => written?,
        };
        if let Some(cause) = self.poison.get() {
            // D6: another sync failed meanwhile; what this group is built on may not be what is on disk.
            return Err(self.in_doubt(cause.clone()));
        }
        // Before it is published: a checkpoint of this root must know what the root no longer uses.
        self.retire(group);
        root.position.set(written).expect("a root is written once");
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.published.set(Arc::clone(root));
        // After it: who is woken for a commit finds it in a snapshot.
        if group.wants_sync {
            self.note_durable(root.seq);
        }
        Ok(())
    }

    fn write_log(&self, group: &Forming) -> Result<LogPosition> {
        let batch = |durable| Group { records: &group.records, durable, use_reserve: !group.puts };
        // Commits written before this group are synced first: their syncs do not wait until a segment is made for it.
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

    /// Syncs the log; everything written is durable then.
    pub(super) fn sync_log(&self) -> Result<()> {
        // Only the leader writes, so what is published is what is written.
        let written = self.published().seq;
        match self.log.sync() {
            Ok(_) => {
                self.unsynced_bytes.store(0, Ordering::Relaxed);
                self.note_durable(written);
                Ok(())
            }
            Err(SyncFailure(error)) => Err(self.in_doubt(error)),
        }
    }

    /// What a failed write means: a clean failure drops the group, anything else poisons (D6, D7).
    pub(super) fn log_failed(&self, error: &LogWriteError) -> Error {
        match error {
            LogWriteError::Full(error) | LogWriteError::Refused(error) => error.clone(),
            LogWriteError::InDoubt(error) => self.in_doubt(error.clone()),
        }
    }

    fn in_doubt(&self, cause: Error) -> Error {
        let message = format!("the transaction may or may not survive: {}", cause.message());
        self.poison(cause);
        Error::new(Code::OutcomeUnknown, message)
    }

    fn note_durable(&self, seq: CommitSeq) {
        self.durable.fetch_max(seq.0, Ordering::SeqCst);
        self.watch.wake();
    }

    /// Bytes of the log that only the kernel has.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes.load(Ordering::Relaxed)
    }

    /// A group was not written: it and all that was built on it never happened.
    fn drop_group(&self, group: &Forming, error: &Error) {
        let mut order = self.lock();
        let built_on_it = std::mem::take(&mut order.forming);
        let published = self.published();
        if self.sealed().seq > published.seq {
            order.lineage += 1;
            self.store.registry.drop_after(published.seq);
            order.recent.rewind(published.seq);
            let (trees, position) = (published.trees.clone(), published.position.clone());
            self.sealed.set(Arc::new(Root { seq: published.seq, lineage: order.lineage, trees, position }));
        }
        let is_clean = self.poison.get().is_none();
        if is_clean {
            // Under the lock: a thread that finds the commits gone finds them counted.
            self.note_dropped(group.returned_count() + built_on_it.returned_count(), published.seq, error);
        }
        drop(order);
        if is_clean {
            // In doubt, their extents stay until the database is opened again.
            for member in group.members.iter().chain(&built_on_it.members) {
                self.store.space.value_aborted(&member.values);
            }
        }
        let error = match self.poison.get() {
            Some(cause) => Error::poisoned(cause.message()),
            None => error.clone(),
        };
        Arc::new(GroupOutcome { result: Err(error), waiters: built_on_it.waiters }).announce();
    }

    /// Callers that have returned cannot be given the error: it is reported by the background.
    fn note_dropped(&self, count: u64, after: CommitSeq, why: &Error) {
        if count == 0 {
            return;
        }
        self.throttle.ask_for_room(why);
        self.dropped.fetch_add(count, Ordering::Relaxed);
        let mut unreported = self.unreported.lock().expect(POISON);
        let earlier = unreported.take();
        let count = count + earlier.as_ref().map_or(0, |earlier| earlier.count);
        let after = earlier.map_or(after, |earlier| earlier.after.min(after));
        *unreported = Some(Dropped { count, after, why: why.clone() });
    }

    /// The commits that were dropped since this was asked last, after their calls had returned.
    pub fn take_dropped(&self) -> Option<Dropped> {
        self.unreported.lock().expect(POISON).take()
    }

    /// The next group's first waiter leads. Where only members joined that do not wait, this thread keeps leading, and must
    /// [write](Self::write_unwaited) them once it has told its own members. Returns whether it does.
    #[must_use]
    pub(super) fn hand_on(&self) -> bool {
        let order = self.lock();
        if order.forming.is_unwaited() {
            return true;
        }
        self.lay_down(order);
        false
    }

    /// Writes the one group of members that do not wait. Those that join meanwhile are the next committer's, or the
    /// background's: this thread has a caller, who waits.
    pub(super) fn write_unwaited(&self) {
        let mut order = self.lock();
        if order.forming.is_unwaited() {
            let group = std::mem::take(&mut order.forming);
            let root = self.sealed();
            drop(order);
            if let Err(error) = self.write_group(&group, &root) {
                self.drop_group(&group, &error);
            }
            order = self.lock();
        }
        self.lay_down(order);
    }

    /// Gives leadership to the first who waits, or to whoever comes.
    fn lay_down(&self, mut order: MutexGuard<'_, Order>) {
        match take_first_waiter(&mut order) {
            Some(next) => {
                self.call_turn(order);
                next.tell(Word::Lead);
            }
            None => {
                order.leading = false;
                self.call_turn(order);
            }
        }
    }

    /// Writes what was ordered and nobody has come to write: commits at level `Memory`, and those that are waited for later.
    ///
    /// # Errors
    /// What writing it said; its transactions never happened then.
    pub fn write_pending(&self) -> Result<()> {
        {
            let mut order = self.lock();
            if order.leading || order.forming.is_empty() {
                return Ok(());
            }
            order.leading = true;
        }
        self.lead()
    }

    /// Runs `work` while nobody writes to the log, once everything that was ordered is written.
    ///
    /// # Errors
    /// What writing it said; `Poisoned`.
    pub fn while_nobody_writes<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.not_alone()?;
        let mut order = self.lock();
        loop {
            if let Some(cause) = self.poison.get() {
                return Err(Error::poisoned(cause.message()));
            }
            if order.leading {
                order = self.wait_turn(order);
                continue;
            }
            order.leading = true;
            if order.forming.is_empty() {
                break;
            }
            drop(order);
            self.lead()?;
            order = self.lock();
        }
        drop(order);
        let done = work();
        self.lay_down(self.lock());
        Ok(done)
    }

    /// Puts what a published group replaced on the list of what waits to be free.
    fn retire(&self, group: &Forming) {
        let mut extents: Vec<RetiredExtent> = Vec::new();
        for member in &group.members {
            extents.extend(
                member.replaced.iter().filter_map(|node| node.retire(member.seq)).map(RetiredExtent::from),
            );
            for value in &member.dropped_values {
                self.store.retire_value(value, member.seq);
            }
        }
        if !extents.is_empty() {
            self.store.space.retire(extents);
        }
    }
}

fn take_first_waiter(order: &mut Order) -> Option<Arc<Waiter>> {
    (!order.forming.waiters.is_empty()).then(|| order.forming.waiters.remove(0))
}
