//! Stage one: validate, take a sequence, apply to the sealed root, join the forming group. Under the order lock, in the
//! committing thread, without the disk: what the disk must be asked for is asked with the lock let go, and then tried again.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::apply::{Applying, apply_changes};
use super::changes::{WrittenKeys, record_lists};
use super::group::Left;
use super::recent::Verdict;
use super::wait::{Waiter, Word};
use super::{Changes, Committer, Order, Ordered, Reads, Submission, Throttle, Wait};
use crate::catalog::Root;
use crate::data_file::Location;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Durability;
use crate::page_cache::Buffered;
use crate::snapshot::Registration;
use crate::sync::MutexGuard;
use crate::tree::{Apply, Loading, Stop};
use crate::wal::Record;

/// How often a commit that finds nodes missing lets go of the order to read them, before it reads under it.
const WARM_ROUNDS_MAX: u32 = 4;

/// How often a commit makes room on the disk, while others take it, before it gives up.
const ROOM_ROUNDS_MAX: u32 = 16;

/// Why a transaction did not enter the order.
enum Halt {
    /// A node is not in memory.
    Missing,
    /// So many bytes must be free for the checkpoint after it.
    NoRoom(u64),
    /// It never will.
    Failed(Error),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Missing => Halt::Missing,
            Stop::Failed(error) => Halt::Failed(error),
        }
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

thread_local! {
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Set while this thread runs a closure that holds the order.
struct Alone;

impl Alone {
    fn enter() -> Alone {
        ALONE.set(true);
        Alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        ALONE.set(false);
    }
}

impl Committer {
    /// Commits a transaction and returns its place in the order once its level is reached.
    ///
    /// # Errors
    /// `Conflict`, `Full`, `InDoubt`, `Poisoned`, or what reading a page said.
    pub fn submit(&self, submission: Submission) -> Result<Ordered> {
        if let Err(error) = self.not_alone().and_then(|()| self.slow_down(&submission)) {
            return Err(self.abandon(error, &submission.values));
        }
        let mut prepared = self.prepare(submission)?;
        let (mut warm_rounds, mut room_rounds) = (0, 0);
        loop {
            if let Err(error) = self.validate_early(&mut prepared) {
                return Err(self.abandon(error, &prepared.values));
            }
            let may_load = warm_rounds >= WARM_ROUNDS_MAX;
            let loading = if may_load { Loading::Allowed } else { Loading::ResidentOnly };
            let mut order = self.lock();
            let halt = match self.enter(&mut order, &mut prepared, loading) {
                Ok(seq) => return self.see_through(order, seq, &prepared),
                Err(halt) => halt,
            };
            drop(order);
            let again = match halt {
                Halt::Failed(error) => Err(error),
                Halt::Missing => {
                    warm_rounds += 1;
                    self.warm(&prepared, warm_rounds)
                }
                Halt::NoRoom(_) if room_rounds == ROOM_ROUNDS_MAX => Err(Throttle::no_room()),
                Halt::NoRoom(bytes) => {
                    room_rounds += 1;
                    self.throttle.ensure_room(&self.store, bytes)
                }
            };
            if let Err(error) = again {
                return Err(self.abandon(error, &prepared.values));
            }
        }
    }

    /// Commits nothing: what was only waiting for a later commit goes on.
    ///
    /// # Errors
    /// As [`Committer::submit`].
    pub fn submit_nothing(&self) -> Result<Ordered> {
        self.submit(Submission {
            base: self.hold_sealed(),
            reads: Reads::default(),
            changes: Changes::default(),
            buffered: Buffered::new(self.store.pages.meter()),
            values: Vec::new(),
            level: Durability::Disk,
            serves_feed: false,
            wait: Wait::Here,
        })
    }

    /// Runs `build` and commits what it returns while nobody else can order a commit.
    ///
    /// # Errors
    /// As [`Committer::submit`], without `Conflict`; and what `build` said.
    pub fn submit_alone<T>(
        &self,
        build: impl FnOnce(Arc<Root>) -> Result<(T, Option<Submission>)>,
    ) -> Result<(T, Option<Ordered>)> {
        self.not_alone()?;
        // Before the lock: the checkpoint that makes room needs it.
        self.throttle.wait(&self.store, &|| self.usable())?;
        let mut order = self.lock();
        let alone = Alone::enter();
        let built = catch_unwind(AssertUnwindSafe(|| build(self.sealed())));
        drop(alone);
        let built = match built {
            Ok(built) => built,
            // The closure's panic is its caller's: the lock is let go first, and nobody else notices.
            Err(panic) => {
                drop(order);
                resume_unwind(panic);
            }
        };
        let (out, submission) = built?;
        let Some(submission) = submission else { return Ok((out, None)) };
        let mut prepared = self.prepare(submission)?;
        loop {
            let halt = match self.enter(&mut order, &mut prepared, Loading::Allowed) {
                Ok(seq) => {
                    return self.see_through(order, seq, &prepared).map(|ordered| (out, Some(ordered)));
                }
                Err(halt) => halt,
            };
            // Nobody else takes the room that is made here.
            let again = match halt {
                Halt::Failed(error) => Err(error),
                Halt::Missing => unreachable!("loading is allowed"),
                Halt::NoRoom(bytes) => self.throttle.ensure_room(&self.store, bytes),
            };
            if let Err(error) = again {
                return Err(self.abandon(error, &prepared.values));
            }
        }
    }

    /// A closure that runs alone holds the order: another commit of the same thread would wait for itself.
    pub fn not_alone(&self) -> Result<()> {
        if ALONE.get() {
            return Err(Error::invalid("a commit inside the closure of another transaction that runs alone")
                .with_hint("use the transaction that the closure was given"));
        }
        Ok(())
    }

    fn slow_down(&self, submission: &Submission) -> Result<()> {
        self.usable()?;
        self.store.pages.meter().make_room();
        if submission.changes.only_deletes() {
            Ok(())
        } else {
            self.throttle.wait(&self.store, &|| self.usable())
        }
    }

    fn prepare(&self, submission: Submission) -> Result<Prepared> {
        if let Err(error) = self.usable().and_then(|()| self.not_refused(&submission)) {
            return Err(self.abandon(error, &submission.values));
        }
        let Submission { base, reads, changes, mut buffered, values, level, serves_feed: _, wait } =
            submission;
        let only_deletes = changes.only_deletes();
        let bytes = changes.encode();
        // From here on the record holds the values, and waits in the group until it is written.
        let keys = changes.into_keys();
        buffered.queue(bytes.capacity());
        let record = Record::new(bytes);
        Ok(Prepared { base, reads, record, keys, only_deletes, buffered, values, level, wait })
    }

    fn abandon(&self, error: Error, values: &[Location]) -> Error {
        self.store.space.value_aborted(values);
        if error.is_retryable() {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        error
    }

    /// Validation without the lock: all but the newest commits, and whole roots where those are not enough.
    fn validate_early(&self, prepared: &mut Prepared) -> Result<()> {
        if prepared.reads.is_empty() {
            return Ok(());
        }
        let base = prepared.base.root();
        let (recent, (held, idle), lineage) = {
            let order = self.lock();
            (order.recent.after(base.seq), self.hold_sealed_and_leave(), order.lineage)
        };
        drop(idle);
        let changed = base.lineage != lineage
            || prepared.reads.see_other_trees(base, held.root())
            || match recent {
                Some(commits) => commits.iter().any(|keys| prepared.reads.touch(keys)),
                None => self.differ(prepared, held.root())?,
            };
        if changed {
            return Err(conflict());
        }
        // What was read is as true of this root: only what comes after it is still to be looked at.
        prepared.base = held;
        Ok(())
    }

    /// Compares what was read in both roots. Pages of a base that was ended to free space may be others' by now.
    fn differ(&self, prepared: &Prepared, new: &Root) -> Result<bool> {
        let differs = prepared.reads.differ(&self.store.pages, prepared.base.root(), new);
        if prepared.base.is_expired() { Err(conflict()) } else { differs }
    }

    /// Stage one: validates, gives a sequence, applies, joins the forming group.
    fn enter(
        &self,
        order: &mut Order,
        prepared: &mut Prepared,
        loading: Loading,
    ) -> std::result::Result<CommitSeq, Halt> {
        self.usable()?;
        let sealed = self.sealed();
        if !prepared.reads.is_empty() {
            let base = prepared.base.root();
            let unchanged = base.lineage == order.lineage
                && !prepared.reads.see_other_trees(base, &sealed)
                && match order.recent.check(base.seq, &prepared.reads) {
                    Verdict::Unchanged => true,
                    Verdict::Changed => false,
                    Verdict::TooOld if loading == Loading::ResidentOnly => return Err(Halt::Missing),
                    Verdict::TooOld => !self.differ(prepared, &sealed)?,
                };
            if !unchanged {
                return Err(Halt::Failed(conflict()));
            }
        }
        let seq = sealed.seq.next();
        let lists = record_lists(prepared.record.bytes());
        let applied = apply_changes(&self.store, &sealed.trees, &lists, seq, Applying::Commit(loading))
            .map_err(dropped_is_conflict)?;
        // Room for the checkpoint that writes all this is there before anything is ordered (D7). What was just applied is
        // counted, and belongs to nobody yet.
        if let Some(wanted) = self.throttle.lacks_room(&self.store, prepared.only_deletes) {
            return Err(Halt::NoRoom(wanted));
        }
        order.recent.push(seq, std::mem::take(&mut prepared.keys));
        let root = Root { seq, lineage: order.lineage, trees: applied.trees, position: OnceLock::new() };
        let values = std::mem::take(&mut prepared.values);
        self.store.space.value_committed(&values, seq);
        order.forming.puts |= !prepared.only_deletes;
        let left = Left {
            seq,
            replaced: applied.replaced,
            dropped_values: applied.dropped_values,
            values,
            _buffered: prepared.buffered.take(),
        };
        order.forming.join(std::mem::take(&mut prepared.record), left);
        self.sealed.set(Arc::new(root));
        Ok(seq)
    }

    /// Leads, or waits for the group, as the level asks.
    fn see_through(
        &self,
        mut order: MutexGuard<'_, Order>,
        seq: CommitSeq,
        prepared: &Prepared,
    ) -> Result<Ordered> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let ordered = Ordered { seq, lineage: order.lineage };
        order.forming.wants_sync |= prepared.level == Durability::Disk;
        // Who waits for nothing waits all the same once too much waits to be written.
        let queues_much = self.store.pages.meter().queues_much();
        if prepared.wait == Wait::Later && !queues_much {
            return Ok(ordered);
        }
        if !order.leading {
            order.leading = true;
            drop(order);
            return self.lead().map(|()| ordered);
        }
        if prepared.level == Durability::Memory && !queues_much {
            return Ok(ordered);
        }
        let waiter = Arc::new(Waiter::default());
        order.forming.waiters.push(Arc::clone(&waiter));
        drop(order);
        match waiter.wait() {
            Word::Lead => self.lead().map(|()| ordered),
            Word::Done(outcome, index) => {
                outcome.pass_on(index);
                outcome.result.clone().map(|()| ordered)
            }
        }
    }

    /// Brings into memory what the changes will touch, without the lock: first the paths to the keys, and if that
    /// was not enough also the neighbours that nodes are joined with.
    fn warm(&self, prepared: &Prepared, round: u32) -> Result<()> {
        let held = self.hold_sealed();
        let (trees, changes) = (&held.root().trees, record_lists(prepared.record.bytes()));
        if round == 1 {
            for (id, changes) in &changes {
                if let Some(slot) = trees.get(*id).and_then(|tree| tree.slot.as_ref()) {
                    Apply::warm(&self.store.pages, slot, changes)?;
                }
            }
            return Ok(());
        }
        let seq = held.root().seq.next();
        let applied = apply_changes(&self.store, trees, &changes, seq, Applying::Commit(Loading::Allowed));
        applied.map(|_| ()).map_err(|stop| dropped_is_conflict(stop).into_error())
    }
}

/// A transaction on its way into the order, its changes encoded.
struct Prepared {
    base: Registration,
    reads: Reads,
    record: Record,
    keys: WrittenKeys,
    only_deletes: bool,
    buffered: Buffered,
    values: Vec<Location>,
    level: Durability,
    wait: Wait,
}

/// The transaction found the tree when it wrote to it: somebody has dropped it since.
fn dropped_is_conflict(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(error) if error.code() == Code::NoSuchTree => Stop::Failed(conflict()),
        stop => stop,
    }
}

pub fn conflict() -> Error {
    Error::new(Code::WriteConflict, "another transaction changed what this one read")
}
