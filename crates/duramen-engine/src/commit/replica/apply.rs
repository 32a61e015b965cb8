//! Decided entries: published where they were ordered here, applied like transactions otherwise.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{InFlight, Proposed, Role};
use crate::alarm::invariant;
use crate::commit::group::Forming;
use crate::commit::order::{EnterError, conflict};
use crate::commit::order_lock::Order;
use crate::commit::{Committer, Conditions, Reads, Submission, Wait};
use crate::error::{Code, Error, Result};
use crate::options::Durability;
use crate::page_cache::Buffered;
use crate::raft_log::{Entry, EntryKind, LogEnd};
use crate::sync::MutexGuard;
use crate::tree::Loading;

/// Bytes of entries that are applied in one group. A group is in memory, twice.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Committer {
    /// Applies decided entries, the first following the last one that was applied. Returns once they are
    /// published.
    ///
    /// # Errors
    /// `InvalidArgument` if they do not follow. `DiskFull` if there is no room: those before are applied, and
    /// the same call may be repeated. `Corrupt` or `Io` if what they change cannot be read; `InDoubt` or
    /// `Poisoned` after a failed write.
    pub(crate) fn apply_decided(&self, entries: &[Entry]) -> Result<()> {
        self.same_process()?;
        self.not_alone()?;
        let _within = self.store.alarm.enter();
        let (end, is_own) = {
            let mut order = self.order.lock();
            let replica = order.replica();
            let first = replica.in_flight.front().zip(entries.first());
            (replica.standing.end(), first.is_some_and(|(own, decided)| own.is(decided)))
        };
        check_follow(&end, entries)?;
        if !is_own {
            // What is in flight is in memory already, and a checkpoint could not free it. Waiting for one
            // comes before the log is taken, which it needs.
            self.store.pages.meter().make_room();
            let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
            self.throttle.wait_for_room(&self.store, bytes, &|| self.usable())?;
        }
        drop(self.take_log());
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply_led(entries)));
        if applied.is_err() {
            // Before the next thread leads.
            self.store.alarm.raise_after_panic();
        }
        self.lay_down_log(self.order.lock());
        applied.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn apply_led(&self, mut entries: &[Entry]) -> Result<()> {
        while !entries.is_empty() {
            self.not_poisoned()?;
            let own = self.take_own(entries);
            let count =
                if own.is_empty() { self.apply_others(entries)? } else { self.publish_own(own, entries)? };
            let bytes = entries[..count].iter().map(|entry| entry.bytes.len() as u64).sum();
            self.pipeline.watermarks.decided(bytes);
            entries = &entries[count..];
        }
        Ok(())
    }

    /// Takes the commits in flight that these entries are. If another stands in their place, the order is
    /// given up.
    fn take_own(&self, entries: &[Entry]) -> Vec<InFlight> {
        let mut order = self.order.lock();
        let replica = order.replica();
        let is_own = |(own, decided): &(&InFlight, &Entry)| own.is(decided);
        let count = replica.in_flight.iter().zip(entries).take_while(is_own).count();
        if count > 0 {
            replica.is_publishing = true;
            return replica.in_flight.drain(..count).collect();
        }
        if matches!(replica.standing.role(), Role::Leads { .. }) {
            // None may enter while others are applied.
            replica.standing.set_role(Role::Waits);
            let is_idle = replica.in_flight.is_empty();
            if !is_idle || !order.forming.is_empty() {
                self.give_up(&mut order, Proposed::MayBeDecided, &conflict());
            }
        }
        Vec::new()
    }

    /// Publishes commits that were ordered here. Returns how many.
    fn publish_own(&self, own: Vec<InFlight>, entries: &[Entry]) -> Result<usize> {
        let count = own.len();
        let root = Arc::clone(&own.last().expect("there is one").root);
        let mut group = Forming::default();
        let mut kept = Vec::with_capacity(count);
        for InFlight { entry, record, effects, root } in own {
            group.join(record, effects);
            kept.push((entry, root));
        }
        let written = self.pipeline.write_group(&group, &root);
        let mut order = self.order.lock();
        let replica = order.replica();
        replica.is_publishing = false;
        if let Err(error) = written {
            // Nothing was written, or the engine is poisoned: they are decided, and wait.
            let (records, members) = group.into_parts();
            let parts = records.into_iter().zip(members).zip(kept);
            for ((record, effects), (entry, root)) in parts.rev() {
                replica.in_flight.push_front(InFlight { entry, record, effects, root });
            }
            return Err(error);
        }
        for entry in &entries[..count] {
            note_applied(&mut order, entry, true);
        }
        Ok(count)
    }

    /// Applies entries of other nodes, or of orders that were given up here. Returns how many.
    fn apply_others(&self, entries: &[Entry]) -> Result<usize> {
        let mut order = self.order.lock();
        let mut end = order.replica().standing.end();
        let (mut counting, mut bytes, mut failed) = (Vec::new(), 0, None);
        for entry in entries {
            if bytes > GROUP_BYTES_MAX {
                break;
            }
            bytes += entry.bytes.len();
            let counts = counts(entry, &end);
            match self.enter_decided(order, entry, counts) {
                Ok(entered) => order = entered,
                Err((entered, error)) => {
                    order = entered;
                    failed = Some(error);
                    break;
                }
            }
            end = end.after(entry);
            counting.push(counts);
        }
        if counting.is_empty() {
            return Err(failed.expect("there is an entry, which was not entered"));
        }
        let (group, root) = (std::mem::take(&mut order.forming), self.latest());
        drop(order);
        let written = self.pipeline.write_group(&group, &root);
        let mut order = self.order.lock();
        if let Err(error) = written {
            if self.poison_cause().is_none() {
                group.members().iter().for_each(|effects| self.forget_commit(effects));
                self.give_up(&mut order, Proposed::No, &conflict());
            }
            return Err(error);
        }
        for (entry, counts) in entries.iter().zip(&counting) {
            note_applied(&mut order, entry, *counts);
        }
        failed.map_or(Ok(counting.len()), Err)
    }

    /// Enters one entry into the order, as a commit of the forming group.
    fn enter_decided<'a>(
        &'a self,
        order: MutexGuard<'a, Order>,
        entry: &Entry,
        counts: bool,
    ) -> std::result::Result<MutexGuard<'a, Order>, (MutexGuard<'a, Order>, Error)> {
        // Big values are written, and the leaves read, before anything is entered.
        drop(order);
        let made = self.decided_submission(entry, counts);
        let mut prepared = match made.and_then(|submission| self.prepare(submission, self.log().now_ns())) {
            Ok(prepared) => prepared,
            Err(error) => return Err((self.order.lock(), error)),
        };
        prepared.loading = Loading::Allowed;
        prepared.decided_ns = Some(entry.time_ns);
        loop {
            let mut order = self.order.lock();
            let bytes = match self.enter(&mut order, &mut prepared) {
                Ok(seq) => {
                    invariant!(seq == entry.id.seq, "entry {} becomes commit {seq}", entry.id.seq);
                    return Ok(order);
                }
                Err(EnterError::NoRoom(bytes)) => bytes,
                Err(EnterError::Failed(error)) => {
                    self.store.space.value_aborted(&prepared.values);
                    return Err((order, of_a_decided_entry(error, entry)));
                }
                Err(EnterError::Missing) => unreachable!("loading is allowed"),
            };
            drop(order);
            if let Err(error) = self.throttle.ensure_room(&self.store, bytes) {
                self.store.space.value_aborted(&prepared.values);
                return Err((self.order.lock(), error));
            }
        }
    }

    fn decided_submission(&self, entry: &Entry, counts: bool) -> Result<Submission> {
        let (changes, values) = match entry.kind {
            EntryKind::Changes if counts => self.changes_of(entry)?,
            EntryKind::Members => (self.changes_of_members(entry), Vec::new()),
            EntryKind::Changes | EntryKind::Blank | EntryKind::Clock => Default::default(),
        };
        if !values.is_empty() {
            self.sync_values()?;
        }
        let mut buffered = Buffered::alone(self.store.pages.meter());
        // It is decided: nothing limits it.
        let _ = buffered.may_grow_to(changes.bytes());
        Ok(Submission {
            base: self.hold_latest(),
            reads: Reads::default(),
            conditions: Conditions::default(),
            changes,
            buffered,
            values,
            relocation: None,
            level: Durability::Process,
            serves_feed: true,
            frees_room: true,
            wait: Wait::Later,
        })
    }
}

impl InFlight {
    /// Whether this entry is the one that it was proposed as.
    fn is(&self, decided: &Entry) -> bool {
        self.entry.as_ref().is_some_and(|own| {
            own.id == decided.id && own.ordered == decided.ordered && own.bytes == decided.bytes
        })
    }
}

/// Fails unless the entries follow one another, and the first the last one that was applied.
fn check_follow(end: &LogEnd, entries: &[Entry]) -> Result<()> {
    let mut last = end.id;
    for entry in entries {
        if entry.id.seq != last.seq.next() || entry.id.term < last.term {
            return Err(Error::invalid(format!(
                "entry {} of term {} is applied after {} of term {}",
                entry.id.seq, entry.id.term, last.seq, last.term
            )));
        }
        last = entry.id;
    }
    Ok(())
}

/// A decided entry cannot conflict: it changes a tree that is not there.
fn of_a_decided_entry(error: Error, entry: &Entry) -> Error {
    if !error.is_retryable() {
        return error;
    }
    let message = format!("entry {} of Raft's log changes a tree that is not there", entry.id.seq);
    Error::new(Code::CorruptLog, message)
}

/// Whether an entry changes something where it stands.
fn counts(entry: &Entry, before: &LogEnd) -> bool {
    let ordered = &entry.ordered;
    entry.kind == EntryKind::Changes
        && ordered.term == entry.id.term
        && ordered.seq == entry.id.seq
        && ordered.chain == before.chain
}

fn note_applied(order: &mut Order, entry: &Entry, counts: bool) {
    let replica = order.replica();
    replica.standing.set_end(replica.standing.end().after(entry));
    replica.fates.applied(entry, counts);
}
