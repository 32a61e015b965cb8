//! Stage one: validate, take a sequence, apply to the latest root, join the forming group.
//!
//! It runs under the order lock, in the committing thread or in one that serves it (`serve`). A commit that
//! needs the disk leaves the order first and tries again. Two loops make sure that this ends.
//!
//! **The inner loop, `submit`**, tries to enter the order with changes that are encoded already. Each round
//! calls `validate_early` without the lock and `enter` with it. `enter` orders the commit, or changes nothing
//! and returns a reason:
//!
//! - `Missing`: a node is not in memory, or the recent commits do not reach back to the base. The thread
//!   loads the nodes without the lock (`warm`), and the next `validate_early` compares roots. Other commits
//!   may replace nodes meanwhile; to end, it reads under the lock after `WARM_ROUNDS_MAX` rounds.
//! - `NoRoom`: the next checkpoint would not fit on the disk (D7). The thread makes room without the lock.
//!   Other commits may use it, so the commit fails with `Full` after `ROOM_ROUNDS_MAX` rounds.
//! - `Failed`: a conflict or another error. `abandon` frees the extents of its big values, or they would leak
//!   until the next open.
//!
//! `validate_early` keeps the lock short where much was read, or many commits came since the base. It
//! registers the latest root, compares the read set with the commits up to it, and makes it the base. `enter`
//! compares only the commits after that. If a group was dropped in between, the rollback epochs differ, and
//! that is a conflict.
//!
//! **The outer loop**, `Engine::run`, runs the closure again after a conflict, at last alone: see `alone.rs`.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::apply::{Applying, apply_changes};
use super::changes::{WrittenKeys, record_lists};
use super::group::CommitEffects;
use super::order_lock::Order;
use super::recent::Verdict;
use super::relocate::{Relocated, Relocation, relocate};
use super::throttle::RoomFor;
use super::timings::Started;
use super::{Changes, Committer, Conditions, Ordered, Reads, Submission, Throttle, Wait};
use crate::alarm::invariant;
use crate::catalog::{CATALOG, Root};
use crate::data_file::PagePointer;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::Durability;
use crate::page_cache::Buffered;
use crate::snapshot::Registration;
use crate::tree::{Apply, ApplyError, Loading, Patches, Prebuilt};
use crate::wal::Record;

/// After so many rounds a commit loads missing nodes under the order lock.
const WARM_ROUNDS_MAX: u32 = 4;

/// After so many rounds of making room that other commits took, a commit fails.
const ROOM_ROUNDS_MAX: u32 = 16;

/// A transaction whose leaves may take more than this part of the memory for nodes leads to many leaves: it
/// is measured first.
const FEW_LEAVES_PART: usize = 8;

/// Points and ranges that were read, times the commits to compare them with: up to so many are compared
/// under the order lock. To take the lock once more before would cost more.
const FEW_COMPARISONS: u64 = 512;

/// A transaction whose leaves fit into memory without the patches that they have waits for so many merges of
/// them at most. Other commits make patches meanwhile.
const MERGES_MAX: u32 = 4;

/// A thread takes some time to start, while no other commit is ordered.
const THREADS_MAX: usize = 8;

/// The keys of recent commits may take this part of the memory.
const RECENT_MEMORY_PART: usize = 32;

/// Why a transaction did not enter the order.
#[derive(Debug)]
pub(super) enum EnterError {
    /// A node is not in memory, or the recent commits do not reach back to the base.
    Missing,
    /// This many bytes must be free for the next checkpoint.
    NoRoom(u64),
    /// It cannot enter.
    Failed(Error),
}

impl From<ApplyError> for EnterError {
    fn from(stop: ApplyError) -> EnterError {
        match stop {
            ApplyError::Missing => EnterError::Missing,
            ApplyError::Failed(error) => EnterError::Failed(error),
        }
    }
}

impl From<Error> for EnterError {
    fn from(error: Error) -> EnterError {
        EnterError::Failed(error)
    }
}

impl Committer {
    /// Commits a transaction and returns its position in the order once its level is reached.
    ///
    /// # Errors
    /// `Conflict`, `Full`, `InDoubt`, `Poisoned`, or any error from reading a page.
    pub(crate) fn submit(&self, submission: Submission) -> Result<Ordered> {
        let _within = self.store.alarm.enter();
        let call_ns = self.log().now_ns();
        if let Err(error) = self.not_alone().and_then(|()| self.slow_down(&submission)) {
            return Err(self.abandon(error, &submission.values));
        }
        let mut prepared = self.prepare(submission, call_ns)?;
        if let Err(error) = self.make_memory(&prepared) {
            return Err(self.abandon(error, &prepared.values));
        }
        let (mut warm_rounds, mut room_rounds) = (0, 0);
        loop {
            let is_again = warm_rounds + room_rounds > 0;
            if let Err(error) = self.validate_early(&mut prepared, is_again) {
                return Err(self.abandon(error, &prepared.values));
            }
            let may_load = warm_rounds >= WARM_ROUNDS_MAX;
            prepared.loading = if may_load { Loading::Allowed } else { Loading::ResidentOnly };
            let (returned, entered) = self.take_turn(prepared);
            prepared = returned;
            let halt = match entered {
                Ok(seen_through) => return self.decided(seen_through, prepared.wait),
                Err(halt) => halt,
            };
            let again = match halt {
                EnterError::Failed(error) => Err(error),
                EnterError::Missing => {
                    warm_rounds += 1;
                    self.warm(&mut prepared, warm_rounds)
                }
                EnterError::NoRoom(bytes) if room_rounds == ROOM_ROUNDS_MAX => {
                    Err(Throttle::no_room(&self.store, bytes))
                }
                EnterError::NoRoom(bytes) => {
                    room_rounds += 1;
                    self.throttle.ensure_room(&self.store, bytes)
                }
            };
            if let Err(error) = again {
                return Err(self.abandon(error, &prepared.values));
            }
        }
    }

    /// In a node of a cluster: waits until a commit that has its place is decided, unless it waits later.
    pub(super) fn decided(&self, placed: Result<Ordered>, wait: Wait) -> Result<Ordered> {
        let ordered = placed?;
        if self.is_replica() && wait == Wait::Here {
            self.wait_decided(ordered)?;
        }
        Ok(ordered)
    }

    /// Commits nothing. Work that waits for a later commit can proceed then.
    ///
    /// # Errors
    /// As [`Committer::submit`].
    pub(crate) fn submit_nothing(&self) -> Result<Ordered> {
        self.submit_empty(Durability::Disk, None)
    }

    /// Moves nodes and big values, in a commit without a change. Not durable before the next checkpoint: a
    /// crash returns to the places before, with the same entries.
    ///
    /// # Errors
    /// As [`Committer::submit`]; the copies of big values are freed then.
    pub(crate) fn submit_relocation(&self, relocation: Relocation) -> Result<Ordered> {
        self.submit_empty(Durability::Process, Some(relocation))
    }

    fn submit_empty(&self, level: Durability, relocation: Option<Relocation>) -> Result<Ordered> {
        let submitted = self.submit(Submission {
            base: self.hold_latest(),
            reads: Reads::default(),
            conditions: Conditions::default(),
            changes: Changes::default(),
            buffered: Buffered::new(self.store.pages.meter()),
            values: relocation.iter().flat_map(Relocation::pages).collect(),
            relocation,
            level,
            serves_feed: false,
            frees_room: false,
            wait: Wait::Here,
        })?;
        self.counters.empty.fetch_add(1, Ordering::Relaxed);
        Ok(submitted)
    }

    fn slow_down(&self, submission: &Submission) -> Result<()> {
        self.usable()?;
        self.store.pages.meter().make_room();
        // The checkpoint that ends the wait comes after the merge.
        let merges = submission.relocation.as_ref().is_some_and(|moved| !moved.merged.is_empty());
        if merges || RoomFor::of(submission) == RoomFor::Deletes {
            Ok(())
        } else {
            self.throttle.wait(&self.store, &|| self.usable())
        }
    }

    /// Encodes a transaction whose call began at this time.
    pub(super) fn prepare(&self, submission: Submission, call_ns: u64) -> Result<Prepared> {
        if let Err(error) = self.usable().and_then(|()| self.admission.not_refused(&submission)) {
            return Err(self.abandon(error, &submission.values));
        }
        let room_for = RoomFor::of(&submission);
        let Submission {
            base,
            reads,
            conditions,
            changes,
            mut buffered,
            values,
            relocation,
            level,
            serves_feed: _,
            frees_room: _,
            wait,
        } = submission;
        let (bytes, prebuilt) = (changes.encode(), Prebuilt::new());
        if self.is_replica()
            && let Err(error) = self.fits_into_an_entry(&bytes, !values.is_empty())
        {
            return Err(self.abandon(error, &values));
        }
        // From here on the record holds the values. It stays in the group until it is written.
        let keys = changes.into_keys();
        buffered.queue(bytes.capacity());
        let record = Record::new(bytes);
        Ok(Prepared {
            base,
            reads,
            conditions,
            call_ns,
            record,
            prebuilt,
            keys,
            room_for,
            buffered,
            values,
            relocation,
            level,
            wait,
            loading: Loading::ResidentOnly,
            decided_ns: None,
            ordered: None,
        })
    }

    /// Makes sure that the leaves a transaction changes fit into memory. It waits for a merge of patches and
    /// for a checkpoint here, before other commits would have to wait for them.
    fn make_memory(&self, prepared: &Prepared) -> Result<()> {
        let fit = |patches| self.fit_memory(prepared, &self.hold_latest(), patches);
        let (mut fits, mut merges) = (fit(Patches::AsTheyAre), 0);
        while merges < MERGES_MAX && fits.as_ref().is_err_and(|error| error.code() == Code::TooLarge) {
            fit(Patches::Merged)?;
            self.throttle.wait_for_merge(&|| self.usable())?;
            (fits, merges) = (fit(Patches::AsTheyAre), merges + 1);
        }
        let more_bytes = fits?;
        if more_bytes == 0 || prepared.room_for == RoomFor::Deletes {
            return Ok(());
        }
        self.throttle.wait_for_room(&self.store, more_bytes, &|| self.usable())
    }

    /// The bytes of leaves that a transaction loads and keeps in memory, based on the latest root. 0 if it
    /// changes few.
    pub(super) fn fit_memory(
        &self,
        prepared: &Prepared,
        held: &Registration,
        patches: Patches,
    ) -> Result<usize> {
        let bytes_max = self.store.pages.meter().nodes_bytes_max();
        let change_count = prepared.keys.count();
        if !self.leads_to_many_leaves(prepared) {
            return Ok(0);
        }
        let mut bytes = 0;
        for (id, changes) in record_lists(prepared.record.bytes()) {
            let tree = held.root().trees.get(id);
            let Some(slot) = tree.and_then(|tree| tree.slot.as_ref()) else { continue };
            let apply = Apply::new(&self.store.pages, &self.store.geometry, CommitSeq(0), Loading::Allowed);
            let apply = apply.with_patches(self.store.patches);
            match apply.kept_bytes(slot, &changes, patches, bytes_max - bytes) {
                Ok(more) => bytes += more,
                Err(_) if held.is_dropped() || held.is_expired() => return Ok(0),
                Err(error) => return Err(error),
            }
            if bytes > bytes_max {
                let message = format!(
                    "the {change_count} changes of the transaction lie in leaves of more than {bytes_max} bytes, which memory has room for"
                );
                let hint = "commit in batches, sorted by key where that is possible, or raise memory_bytes";
                return Err(Error::new(Code::TooLarge, message).with_hint(hint));
            }
        }
        Ok(bytes)
    }

    pub(super) fn abandon(&self, error: Error, values: &[PagePointer]) -> Error {
        self.store.space.value_aborted(values);
        if error.is_retryable() {
            self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        error
    }

    /// Validates without the lock: against all but the newest commits, or by comparing roots where those do
    /// not reach back. Not at first where that is little work: entering does it.
    fn validate_early(&self, prepared: &mut Prepared, is_again: bool) -> Result<()> {
        if prepared.reads.is_empty() {
            return Ok(());
        }
        let behind = self.latest().seq.0.saturating_sub(prepared.base.root().seq.0);
        if behind.saturating_mul(prepared.reads.count().max(1) as u64) <= FEW_COMPARISONS && !is_again {
            return Ok(());
        }
        let base = prepared.base.root();
        let (recent, (held, idle), rollback_epoch) = {
            let order = self.order.lock();
            (order.recent.after(base.seq), self.hold_latest_and_leave(), order.rollback_epoch)
        };
        drop(idle);
        let changed = base.rollback_epoch != rollback_epoch
            || prepared.reads.see_other_trees(base, held.root())
            || match recent {
                Some(commits) => self.note_hot(&prepared.reads, &commits),
                None => self.differ(prepared, held.root())?,
            };
        if changed {
            return Err(conflict());
        }
        // The read set is valid for this root, too. Only later commits are still to be compared.
        prepared.base = held;
        Ok(())
    }

    /// Whether any of these commits wrote what was read. Counts the first such key as a hot one.
    fn note_hot(&self, reads: &Reads, commits: &[Arc<WrittenKeys>]) -> bool {
        let touched = commits.iter().find_map(|keys| reads.touched(keys));
        if let Some((tree, key)) = touched {
            self.timed().conflicted(tree, key);
        }
        touched.is_some()
    }

    /// Compares the read set in both roots. If a root has expired or its commits were dropped, its pages may
    /// have been reused, and the result is a conflict.
    fn differ(&self, prepared: &Prepared, new: &Root) -> Result<bool> {
        let base = &prepared.base;
        self.counters.compared.fetch_add(1, Ordering::Relaxed);
        let differs = prepared.reads.differ(&self.store.pages, base.root(), new);
        let is_there = |root: &Root| self.store.registry.is_kept(root.seq, root.rollback_epoch);
        if base.is_expired() || !is_there(base.root()) || !is_there(new) { Err(conflict()) } else { differs }
    }

    /// Fails if anything that was read has changed up to the latest root (I1).
    fn validate(
        &self,
        order: &Order,
        prepared: &Prepared,
        latest: &Root,
    ) -> std::result::Result<(), EnterError> {
        if prepared.reads.is_empty() {
            return Ok(());
        }
        let base = prepared.base.root();
        let unchanged = base.rollback_epoch == order.rollback_epoch
            && !prepared.reads.see_other_trees(base, latest)
            && match order.recent.check(base.seq, &prepared.reads) {
                Verdict::Unchanged => true,
                Verdict::Changed => false,
                Verdict::TooOld if prepared.loading == Loading::ResidentOnly => {
                    return Err(EnterError::Missing);
                }
                Verdict::TooOld => !self.differ(prepared, latest)?,
            };
        if unchanged {
            return Ok(());
        }
        if let Some(commits) = order.recent.after(base.seq) {
            self.note_hot(&prepared.reads, &commits);
        }
        Err(EnterError::Failed(conflict()))
    }

    /// Stage one: validates, gives a sequence, applies, joins the forming group.
    pub(super) fn enter(
        &self,
        order: &mut Order,
        prepared: &mut Prepared,
    ) -> std::result::Result<CommitSeq, EnterError> {
        self.usable()?;
        let loading = prepared.loading;
        let latest = self.latest();
        let (epoch, newest, base) = (order.rollback_epoch, latest.seq, prepared.base.root());
        invariant!(latest.rollback_epoch == epoch, "the latest root is of the rollback epoch {epoch}");
        let is_known = (base.rollback_epoch, base.seq) <= (epoch, newest);
        invariant!(is_known, "a transaction that read {} is ordered after {newest}", base.seq);
        if prepared.decided_ns.is_none() {
            order.admits(base.rollback_epoch)?;
            order.has_room_for(prepared.room_for, || self.log().now_ns())?;
        }
        self.validate(order, prepared, &latest)?;
        let seq = latest.seq.next();
        let Relocated { applied, unused } = self.apply(prepared, &latest, seq, loading)?;
        // The room for the next checkpoint is reserved before anything is ordered (D7). The nodes just
        // applied are counted, and no root references them yet.
        if let Some(wanted) = self.throttle.lacks_room(&self.store, prepared.room_for) {
            return Err(EnterError::NoRoom(wanted));
        }
        // Last, so that no work comes between a time that is checked and the place in the order.
        prepared.conditions.check(self)?;
        let started = Started { call_ns: prepared.call_ns, placed_ns: self.log().now_ns() };
        // Nodes that are moved are no commit of a program.
        let started = prepared.relocation.is_none().then_some(started);
        if let Some(started) = started {
            self.timed().ordered(started);
        }
        let recent_bytes_max = self.store.pages.meter().memory_bytes() / RECENT_MEMORY_PART;
        order.recent.push(seq, std::mem::take(&mut prepared.keys), recent_bytes_max);
        let root = Arc::new(Root {
            seq,
            rollback_epoch: order.rollback_epoch,
            time_ns: prepared.decided_ns.unwrap_or_else(|| self.time_after(&latest)),
            trees: applied.trees,
            position: OnceLock::new(),
        });
        let mut values = std::mem::take(&mut prepared.values);
        let unused_blocks: HashSet<u64> = unused.iter().map(|page| page.block).collect();
        values.retain(|page| !unused_blocks.contains(&page.block));
        self.store.space.value_committed(&values, seq);
        self.store.space.value_aborted(&unused);
        let takes_room = prepared.room_for != RoomFor::Deletes;
        order.forming.takes_room |= takes_room;
        let effects = CommitEffects {
            seq,
            replaced: applied.replaced,
            superseded: applied.superseded,
            dropped_values: applied.dropped_values,
            values,
            _buffered: prepared.buffered.take(),
            started,
            has_returned: false,
            takes_room,
            root: order.replica.is_some().then(|| Arc::clone(&root)),
        };
        effects.supersede();
        order.forming.join(std::mem::take(&mut prepared.record), effects);
        self.latest.set(root);
        Ok(seq)
    }

    /// The trees after a transaction's changes or a relocation.
    fn apply(
        &self,
        prepared: &Prepared,
        latest: &Root,
        seq: CommitSeq,
        loading: Loading,
    ) -> std::result::Result<Relocated, ApplyError> {
        if let Some(relocation) = &prepared.relocation {
            return relocate(&self.store, &latest.trees, relocation, seq, loading);
        }
        let lists = record_lists(prepared.record.bytes());
        let (prebuilt, threads) = (&prepared.prebuilt, self.threads_for(prepared));
        let applying = Applying::Commit { loading, prebuilt, threads };
        let applied =
            apply_changes(&self.store, &latest.trees, &lists, seq, applying).map_err(dropped_is_conflict)?;
        Ok(Relocated { applied, unused: Vec::new() })
    }

    /// How many threads share the changes of a transaction, under the order lock.
    ///
    /// Where leaves must leave memory, most that is made is patches, which stay for long. Allocators keep
    /// memory by thread, and with those of many threads more of it is unused.
    fn threads_for(&self, prepared: &Prepared) -> usize {
        let fits = !self.store.pages.meter().is_full() && !self.leads_to_many_leaves(prepared);
        if fits { self.throttle.threads().min(THREADS_MAX) } else { 1 }
    }

    /// Whether the leaves of a transaction may take much of the memory.
    fn leads_to_many_leaves(&self, prepared: &Prepared) -> bool {
        let leaves_bytes = prepared.keys.count().saturating_mul(self.store.geometry.leaf_bytes_max);
        leaves_bytes > self.store.pages.meter().nodes_bytes_max() / FEW_LEAVES_PART
    }

    /// Loads what the changes touch, without the lock. The first round loads the paths to the keys. Later
    /// rounds also load the neighbours that nodes are merged with. Where leaves would fill much of the
    /// memory, what they become is built instead.
    fn warm(&self, prepared: &mut Prepared, round: u32) -> Result<()> {
        let held = self.hold_latest();
        match self.warm_in(held.root(), prepared, round) {
            // Its pages may have been reused. The next round uses the root that replaced it.
            Err(_) if held.is_dropped() || held.is_expired() => Ok(()),
            warmed => warmed,
        }
    }

    fn warm_in(&self, root: &Root, prepared: &mut Prepared, round: u32) -> Result<()> {
        let (trees, changes) = (&root.trees, record_lists(prepared.record.bytes()));
        if let Some(relocation) = &prepared.relocation {
            let relocated = relocate(&self.store, trees, relocation, root.seq.next(), Loading::Allowed);
            return relocated.map(drop).map_err(ApplyError::into_error);
        }
        let prebuilds = self.store.patches && (round > 1 || self.leads_to_many_leaves(prepared));
        for (id, changes) in &changes {
            let Some(tree) = trees.get(*id).filter(|tree| tree.dropped_at.is_none()) else { continue };
            let Some(slot) = &tree.slot else { continue };
            let (pages, geometry) = (&self.store.pages, &self.store.geometry);
            let apply = Apply::new(pages, geometry, root.seq.next(), Loading::Allowed)
                .with_patches(self.store.patches && *id != CATALOG)
                .reduced_by(tree.reducer.as_deref());
            if !prebuilds || *id == CATALOG {
                apply.warm(slot, changes)?;
                continue;
            }
            // What was built for an earlier round and still fits is not read again.
            let earlier = prepared.prebuilt.remove(id);
            let apply = apply.with_prebuilt(earlier.as_ref());
            let apply = apply.building_known(round > 1);
            let built = apply.prebuild(slot, changes, self.throttle.threads())?;
            prepared.prebuilt.insert(*id, built);
        }
        if round == 1 {
            return Ok(());
        }
        let prebuilt = &prepared.prebuilt;
        let applying = Applying::Commit { loading: Loading::Allowed, prebuilt, threads: 1 };
        let applied = apply_changes(&self.store, trees, &changes, root.seq.next(), applying);
        applied.map(|_| ()).map_err(|stop| dropped_is_conflict(stop).into_error())
    }
}

/// A transaction with encoded changes, on its way into the order.
pub(super) struct Prepared {
    pub(super) base: Registration,
    reads: Reads,
    conditions: Conditions,
    call_ns: u64,
    record: Record,
    prebuilt: Prebuilt,
    keys: WrittenKeys,
    room_for: RoomFor,
    buffered: Buffered,
    pub(super) values: Vec<PagePointer>,
    relocation: Option<Relocation>,
    pub(super) level: Durability,
    pub(super) wait: Wait,
    /// Whether pages may be read under the order lock.
    pub(super) loading: Loading,
    /// The time of a decided entry, which enters whichever node leads; `None` for other commits.
    pub(super) decided_ns: Option<u64>,
    /// Its place, once it has entered.
    pub(super) ordered: Option<Ordered>,
}

impl Prepared {
    /// About how much work it is to enter it, in changes, reads and extents. `None` if it may read pages or
    /// moves nodes: that has no bound.
    pub(super) fn weight(&self) -> Option<usize> {
        let is_bounded = self.loading == Loading::ResidentOnly
            && self.relocation.is_none()
            // Names of trees are looked up in pages.
            && self.keys.of_tree(CATALOG).is_none();
        is_bounded.then(|| 1 + self.keys.count() + self.reads.count() + self.values.len())
    }

    /// Its place in the order, into which it has entered.
    pub(super) fn place(&self) -> Ordered {
        self.ordered.expect("a transaction that entered has its place")
    }
}

/// Maps a missing tree to a conflict: the tree was there when the transaction wrote to it.
fn dropped_is_conflict(stop: ApplyError) -> ApplyError {
    match stop {
        ApplyError::Failed(error) if error.code() == Code::NoSuchTree => ApplyError::Failed(conflict()),
        stop => stop,
    }
}

pub(super) fn conflict() -> Error {
    Error::new(Code::WriteConflict, "another transaction changed what this one read")
}
