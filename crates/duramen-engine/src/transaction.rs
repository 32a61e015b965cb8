//! Transactions and snapshots: the interface for reading and writing.
//!
//! A transaction reads one root, buffers its writes and notes its reads; `commit` commits it. I1 rests here:
//! every operation whose result could differ between two states is noted as a read.

mod receipt;
mod rows;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

use crate::alarm::invariant;
use crate::catalog::{CATALOG, CatalogRow, TreeState};
use crate::checkpoint::write_value;
use crate::commit::{
    Changes, Committer, Condition, Conditions, Ordered, OwnedValue, Reads, Submission, Wait,
};
use crate::data_file::PagePointer;
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::limits::{KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_MEMORY_PART};
use crate::options::Durability;
use crate::overlay::Overlay;
use crate::page_cache::Buffered;
use crate::snapshot::Registration;
use crate::tree::entry_reduction;
use crate::tree::{Apply, BigRef, Direction, KeyRange, Loading, Reduced, ReducerSpec, Slot};

pub use receipt::Receipt;
pub use rows::{Row, Rows};
use view::View;
pub use view::{Snapshot, TreeInfo, TreeMark};

/// A read-write transaction. Its writes are visible to others once it commits; dropped, it has no effect.
#[derive(Debug)]
pub struct Transaction {
    committer: Arc<Committer>,
    view: View,
    reads: Reads,
    conditions: Conditions,
    changes: Changes,
    /// Page pointers of the big values written so far, by the block that the reference to the value names.
    values: BTreeMap<u64, Vec<PagePointer>>,
    /// Page pointers of big values that this transaction wrote and then replaced.
    superseded: Vec<PagePointer>,
    /// Trees created by this transaction.
    created: BTreeMap<TreeId, TreeState>,
    /// Trees with this transaction's own writes applied, for queries that need a tree.
    forks: BTreeMap<TreeId, Option<Slot>>,
    /// Keys written since in trees with a fork.
    unforked: BTreeMap<TreeId, BTreeSet<Vec<u8>>>,
    /// The memory charged for its writes.
    buffered: Buffered,
    serves_feed: bool,
    /// Whether its caller makes room on a full disk before it runs it again.
    caller_makes_room: bool,
    runs_alone: bool,
    frees_room: bool,
    /// It only deletes, but for a row that goes with that.
    counts_as_deletes: bool,
}

impl Transaction {
    /// Begins at a registered root, with the overlay over it if there is one.
    pub(crate) fn begin(
        committer: &Arc<Committer>,
        held: Registration,
        overlay: Option<Arc<Overlay>>,
    ) -> Transaction {
        Transaction {
            view: View::new(held, overlay),
            buffered: Buffered::new(committer.store().pages.meter()),
            committer: Arc::clone(committer),
            reads: Reads::default(),
            conditions: Conditions::default(),
            changes: Changes::default(),
            values: BTreeMap::new(),
            superseded: Vec::new(),
            created: BTreeMap::new(),
            forks: BTreeMap::new(),
            unforked: BTreeMap::new(),
            serves_feed: false,
            caller_makes_room: false,
            runs_alone: false,
            frees_room: false,
            counts_as_deletes: false,
        }
    }

    /// Begins at a registered root while no other thread can commit.
    pub(crate) fn begin_alone(committer: &Arc<Committer>, held: Registration) -> Transaction {
        let mut transaction = Transaction::begin(committer, held, None);
        transaction.buffered = Buffered::alone(committer.store().pages.meter());
        transaction.caller_makes_room = true;
        transaction.runs_alone = true;
        transaction
    }

    /// Notes that the caller makes room on a full disk. A checkpoint in the background would take room from
    /// the next try: on a full disk each checkpoint writes into what the one before released.
    pub(crate) fn caller_makes_room(&mut self) {
        self.caller_makes_room = true;
    }

    /// Requests room from the background for later transactions, unless the caller makes room itself.
    fn ask_for_room(&self, error: &Error) {
        if !self.caller_makes_room {
            self.committer.throttle.ask_for_room(error);
        }
    }

    /// The commit whose state this transaction reads.
    #[must_use]
    pub fn base_seq(&self) -> CommitSeq {
        self.view.seq()
    }

    /// In a node of a cluster: the [lineage](crate::Engine::lineage) of the state that it reads.
    #[must_use]
    pub fn lineage(&self) -> Option<u64> {
        self.committer.is_replica().then(|| self.view.root().rollback_epoch)
    }

    /// Whether it may be committed here: in a node of a cluster, while that leads in the lineage that the
    /// transaction began in.
    #[must_use]
    pub fn may_commit(&self) -> bool {
        match self.lineage() {
            None => true,
            begun_in => self.committer.leads() && begun_in == self.committer.lineage(),
        }
    }

    /// The error with which it must be run again, if the commits that it reads were dropped.
    #[must_use]
    pub fn must_run_again(&self) -> Option<Error> {
        view::why_ended(self.view.registration()).filter(Error::is_retryable)
    }

    /// Calls `condition` when the transaction takes its place in the order. If it fails, the transaction is
    /// not committed, and the commit returns that error. It is called under the order lock, by any
    /// thread: it must return at once, and commits inside it are refused. It may be called more than once. A
    /// transaction that wrote nothing takes no place, and it is not called.
    pub fn only_if(&mut self, condition: Condition) {
        self.conditions.add(condition);
    }

    /// Whether it has written anything. One that has not takes no place in the order.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether no other transaction can be ordered while this one runs.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        self.runs_alone
    }

    /// Marks this transaction as one that frees much more room than it takes. It may use the room that is
    /// kept for deletes on a full disk (D7), and is accepted while other writers are refused.
    pub fn frees_room(&mut self) {
        self.frees_room = true;
    }

    /// Whether it deletes, and does nothing else so far, or what else it did counts as deletes.
    #[must_use]
    pub fn is_for_deletes(&self) -> bool {
        self.counts_as_deletes || !self.changes.is_empty() && self.changes.only_deletes()
    }

    /// Lets what was written so far count as deletes, which a full disk takes (D7), until the next put: for a
    /// small row that goes with them.
    pub fn counts_as_deletes(&mut self) {
        self.counts_as_deletes = true;
    }

    /// Bounds the memory of the notes of what is read, which the engine's memory target does not count.
    /// Beyond it, trees count as read whole: more conflicts, never a wrong answer. Without a limit there are
    /// 4,096 notes a tree, each of up to about 1 KiB; of a range up to 2 KiB.
    pub fn limit_reads(&mut self, bytes: usize) {
        self.reads.limit(bytes);
    }

    /// The memory that the notes of what was read take, about.
    #[must_use]
    pub fn read_bytes(&self) -> usize {
        self.reads.bytes()
    }

    /// Marks this transaction as one that advances a consumer of the change feed. It is accepted while other
    /// writers are refused.
    pub fn serve_feed(&mut self) {
        self.serves_feed = true;
    }

    /// The id of a tree by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn tree(&mut self, name: &str) -> Result<Option<TreeId>> {
        Ok(self.catalog_row(name)?.map(|row| row.id))
    }

    /// Creates a tree, with a reducer if one is given. Others see it once the transaction commits.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `AlreadyExists` (E0210) if the name is taken;
    /// `InvalidArgument` (E0201) if it is empty; `KeyTooLong` (E0202) if it is longer than a key;
    /// `ReducerMissing` (E0205) if the reducer is not registered.
    pub fn create_tree(&mut self, name: &str, reducer: Option<ReducerSpec>) -> Result<TreeId> {
        let reducers = &self.committer.store().reducers;
        if let Some(spec) = &reducer
            && reducers.find(spec).is_none()
        {
            return Err(reducer_missing(spec));
        }
        self.create_tree_as_known(name, reducer, Features::NONE)
    }

    /// Creates a tree whose entries only builds with these features can read. The next checkpoint writes them
    /// into its superblock.
    ///
    /// # Errors
    /// As [`Transaction::create_tree`].
    pub fn create_tree_with_features(&mut self, name: &str, features: Features) -> Result<TreeId> {
        self.create_tree_as_known(name, None, features)
    }

    /// As [`Transaction::create_tree`], but the reducer need not be registered. For trees of another
    /// database.
    ///
    /// # Errors
    /// As [`Transaction::create_tree`].
    pub(crate) fn create_tree_as_known(
        &mut self,
        name: &str,
        reducer: Option<ReducerSpec>,
        features: Features,
    ) -> Result<TreeId> {
        check_key(name.as_bytes())?;
        if name.is_empty() {
            return Err(Error::invalid("a tree needs a name"));
        }
        if self.catalog_row(name)?.is_some() {
            return Err(Error::new(Code::AlreadyExists, format!("there is a tree named {name:?} already")));
        }
        let reducers = &self.committer.store().reducers;
        let id = self.committer.new_tree_id();
        let empty = TreeState::empty(id, reducer.clone(), reducers);
        self.created.insert(id, TreeState { features, ..empty });
        let row = CatalogRow { id, spec: reducer, features }.encode();
        self.set(CATALOG, name.as_bytes(), Some(OwnedValue { big: false, bytes: row }))?;
        Ok(id)
    }

    /// Drops a tree with its entries, in one small commit. Its space is reclaimed in the background.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if there is no tree with that name.
    pub fn drop_tree(&mut self, name: &str) -> Result<()> {
        let Some(row) = self.catalog_row(name)? else {
            return Err(Error::new(Code::NoSuchTree, format!("there is no tree named {name:?}")));
        };
        for value in self.changes.forget_tree(row.id) {
            self.abort_value(&value);
        }
        self.forks.remove(&row.id);
        self.unforked.remove(&row.id);
        self.created.remove(&row.id);
        self.set(CATALOG, name.as_bytes(), None)
    }

    /// The names of all trees, sorted.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn trees(&mut self) -> Result<Vec<(String, TreeId)>> {
        self.reads.range(CATALOG, &KeyRange::all());
        let slot = self.fork(CATALOG)?;
        self.view.names(slot.as_ref(), KeyRange::all())
    }

    /// Whether there is a tree with this id. Reads no page, and is no read that could conflict.
    #[must_use]
    pub fn has_tree(&self, tree: TreeId) -> bool {
        self.created.contains_key(&tree) || self.view.state(tree).is_ok()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if there is no such tree.
    pub fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(own) = self.changes.get(tree, key) {
            return own.as_ref().map(|value| self.view.resolve(value.stored())).transpose();
        }
        if self.created.contains_key(&tree) {
            return Ok(None);
        }
        self.reads.point(tree, key);
        self.view.get(tree, key)
    }

    /// Puts a value. A put conflicts with no other write. Values of 32 KiB and more go to the data file at
    /// once and do not count against the transaction's memory.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if there is no such tree;
    /// `KeyTooLong` (E0202) if the key is longer than [`KEY_BYTES_MAX`]; `InvalidArgument` (E0201) if the
    /// tree's reducer refuses the value, `ReducerPanicked` (E0208) if it panics. An unregistered reducer
    /// refuses nothing; its reductions are computed once it is registered.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        let one = self.one(tree, key, value)?;
        let big_from = self.committer.store().geometry.big_value_bytes;
        let value = if value.len() >= big_from {
            let mut big = self.write_value(&mut &value[..])?;
            big.one = one;
            OwnedValue { big: true, bytes: big.encode() }
        } else {
            OwnedValue { big: false, bytes: value.to_vec() }
        };
        self.set(tree, key, Some(value))
    }

    /// Puts a value of any length, read from `source` in pieces and in constant memory.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901); `KeyTooLong` (E0202);
    /// `InvalidArgument` (E0201) if the tree has a reducer, which would need the whole value;
    /// `System` (E1001) if the source fails.
    pub fn put_stream(&mut self, tree: TreeId, key: &[u8], source: &mut dyn Read) -> Result<u64> {
        check_key(key)?;
        if self.known(tree)?.spec.is_some() {
            return Err(Error::invalid(
                "a tree with a reducer takes values whole: the reducer must see them",
            )
            .with_hint("use put, or a tree without a reducer"));
        }
        let big = self.write_value(source)?;
        let len = big.len;
        self.set(tree, key, Some(OwnedValue { big: true, bytes: big.encode() }))?;
        Ok(len)
    }

    /// Deletes a key, whether it exists or not. A delete conflicts with no other write.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `NoSuchTree` (E0901) if there is no such tree;
    /// `KeyTooLong` (E0202) if the key is too long.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.known(tree)?;
        self.set(tree, key, None)
    }

    /// Reads a value piece by piece.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn open_value(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Box<dyn Read + Send>>> {
        if let Some(own) = self.changes.get(tree, key) {
            return own.as_ref().map(|value| self.view.open(value.stored())).transpose();
        }
        if self.created.contains_key(&tree) {
            return Ok(None);
        }
        self.reads.point(tree, key);
        self.view.open_value(tree, key)
    }

    /// The number of keys in a range. O(log n).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn count(&mut self, tree: TreeId, range: &KeyRange) -> Result<u64> {
        self.reads.range(tree, range);
        let slot = self.fork(tree)?;
        self.view.count_in(slot.as_ref(), range)
    }

    /// The number of keys before this one. O(log n).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn rank(&mut self, tree: TreeId, key: &[u8]) -> Result<u64> {
        self.count(tree, &KeyRange { from: Vec::new(), to: Some(key.to_vec()) })
    }

    /// The entry at an index, counted from 0. O(log n).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn nth(&mut self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let slot = self.fork(tree)?;
        let found = self.view.nth_in(slot.as_ref(), index)?;
        // The n-th entry depends on every key up to it. That there is none depends on all keys.
        let to = found.as_ref().map(|(key, _)| [&key[..], &[0]].concat());
        self.reads.range(tree, &KeyRange { from: Vec::new(), to });
        Ok(found)
    }

    /// The reduction of a range. O(log n).
    ///
    /// # Errors
    /// As [`Transaction::get`]; `InvalidArgument` (E0201) if the tree has no reducer or it refuses a value;
    /// `ReducerMissing` (E0205) if it is not registered; `ReducerPanicked` (E0208) if it panics.
    pub fn reduce(&mut self, tree: TreeId, range: &KeyRange) -> Result<Reduced> {
        self.reads.range(tree, range);
        let slot = self.fork(tree)?;
        self.view.reduce_in(self.known(tree)?, slot.as_ref(), range)
    }

    /// The entries of a range in order, with this transaction's writes so far.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn rows(&mut self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Rows> {
        self.reads.range(tree, &range);
        let slot = self.fork(tree)?;
        Ok(self.view.rows_in(slot.as_ref(), range, direction))
    }

    /// As [`Transaction::rows`], forward and without noting that it was read: what it returns may change
    /// before the commit.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn peek(&mut self, tree: TreeId, range: KeyRange) -> Result<Rows> {
        let slot = self.fork(tree)?;
        Ok(self.view.rows_in(slot.as_ref(), range, Direction::Forward))
    }

    /// Whether this transaction has put or deleted a key.
    #[must_use]
    pub fn has_written(&self, tree: TreeId, key: &[u8]) -> bool {
        self.changes.get(tree, key).is_some()
    }

    /// Lets go of the copies of trees with its own writes, which queries have made: the next query makes them
    /// again. For a transaction that rests: their memory counts to no limit.
    pub fn release_copies(&mut self) {
        self.forks.clear();
        self.unforked.clear();
    }

    /// Commits: validates, orders, and waits for `level`.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits). After `WriteConflict` (E0101) run it again: something read
    /// has changed, or a tree written to was dropped.
    pub fn commit(self, level: Durability) -> Result<Receipt> {
        self.commit_and(level, Wait::Here)
    }

    /// As [`Transaction::commit`], but returns once the commit has its position in the order: see
    /// [`Engine::transact_and_wait_later`](crate::Engine::transact_and_wait_later).
    ///
    /// # Errors
    /// As [`Transaction::commit`], as far as known on return. The receipt reports the rest.
    pub fn commit_and_wait_later(self, level: Durability) -> Result<Receipt> {
        self.commit_and(level, Wait::Later)
    }

    pub(crate) fn commit_and(mut self, level: Durability, wait: Wait) -> Result<Receipt> {
        self.committer.same_process()?;
        let committer = Arc::clone(&self.committer);
        let submission = self.take_submission(level, wait).inspect_err(|error| self.ask_for_room(error))?;
        let submit = |submission| committer.submit(submission).inspect_err(|error| self.ask_for_room(error));
        match (submission, wait) {
            (Some(submission), Wait::Here) => Ok(Receipt::new(&committer, submit(submission)?, level)),
            (Some(submission), Wait::Later) => Ok(Receipt::under_way(&committer, submit(submission)?)),
            (None, Wait::Later) => {
                let read = Ordered::of(self.view.root());
                Ok(Receipt::of_read(&committer, read, Durability::Memory, self.view.seq()))
            }
            (None, Wait::Here) => {
                let read = committer.finish_read(self.view.root(), level)?;
                // What the overlay shows was durable before the first read.
                Ok(Receipt::of_read(&committer, read, level, self.view.seq()))
            }
        }
    }

    /// What to submit, with its big values durable. `None` if nothing was written.
    pub(crate) fn take_submission(&mut self, level: Durability, wait: Wait) -> Result<Option<Submission>> {
        if self.changes.is_empty() {
            return Ok(None);
        }
        // I1: validation compares what was read with the commits after the base.
        let (base, shown) = (self.view.root().seq, self.view.seq());
        invariant!(base == shown, "what is written builds on root {base}, and {shown} was read");
        debug_assert!(self.changes.big_count() == self.values.len(), "each big value has its extents");
        // Before waiting for memory.
        self.release_copies();
        if !self.values.is_empty() {
            self.committer.sync_values()?;
        }
        Ok(Some(Submission {
            base: self.view.registration().clone(),
            reads: std::mem::take(&mut self.reads),
            conditions: std::mem::take(&mut self.conditions),
            changes: std::mem::take(&mut self.changes),
            buffered: self.buffered.take(),
            values: std::mem::take(&mut self.values).into_values().flatten().collect(),
            relocation: None,
            level,
            serves_feed: self.serves_feed,
            frees_room: self.frees_room || self.counts_as_deletes,
            wait,
        }))
    }

    /// Moves to the root that has the log's tail in its trees, and waits for it. A write needs it as the base
    /// for validation; a query of a whole tree needs the tree. Point reads need neither.
    fn settle(&mut self) -> Result<()> {
        if let Some(settled) = self.view.settled()? {
            self.view = settled;
        }
        Ok(())
    }

    fn set(&mut self, tree: TreeId, key: &[u8], value: Option<OwnedValue>) -> Result<()> {
        self.counts_as_deletes &= value.is_none();
        let more = key.len() + value.as_ref().map_or(0, |value| value.bytes.len());
        if let Err(error) = self.settle().and_then(|()| self.make_room_for(self.changes.bytes() + more)) {
            if let Some(refused) = &value {
                self.abort_value(refused);
            }
            return Err(error);
        }
        if let Some(replaced) = self.changes.set(tree, key, value).flatten() {
            self.abort_value(&replaced);
        }
        if self.forks.contains_key(&tree) {
            self.unforked.entry(tree).or_default().insert(key.to_vec());
        }
        Ok(())
    }

    fn make_room_for(&mut self, bytes: usize) -> Result<()> {
        check_size(bytes, self.committer.store().pages.meter().memory_bytes())?;
        if !self.buffered.may_grow_to(bytes) {
            let message =
                format!("open transactions hold all memory for writes: this one wants {bytes} bytes");
            let hint = "run it again, or use transact(), which does; smaller batches, fewer at once or more memory_bytes avoid it";
            return Err(Error::new(Code::WritersHoldMemory, message).with_hint(hint));
        }
        Ok(())
    }

    /// Releases the extents of a value that this transaction will not commit.
    fn abort_value(&mut self, value: &OwnedValue) {
        if value.big {
            let big = BigRef::decode(&value.bytes).expect("this transaction encoded it");
            // Only at the end: a cursor of this transaction may still read it.
            let (block, pages) = (big.pointer.block, self.values.remove(&big.pointer.block));
            invariant!(pages.is_some(), "the extents of the value at block {block} are known");
            self.superseded.extend(pages.unwrap_or_default());
        }
    }

    fn write_value(&mut self, source: &mut dyn Read) -> Result<BigRef> {
        let written = write_value(self.committer.store(), source);
        let (value, pages) = written.inspect_err(|error| self.ask_for_room(error))?;
        let (last, named) = (pages.last().map(|page| page.block), value.pointer.block);
        invariant!(last == Some(named), "a value is named by its last extent: {last:?}, {named}");
        let earlier = self.values.insert(named, pages);
        invariant!(earlier.is_none(), "block {named} names one value of a transaction");
        Ok(value)
    }

    /// Runs the reducer on the entry in this thread, so that a refusal fails only this call. Without a
    /// registered reducer nothing is refused, and the nodes above the entry are written with unknown
    /// reductions.
    fn one(&self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        let reducer = self.known(tree)?.reducer.as_deref();
        reducer.map(|reducer| entry_reduction(reducer, key, value)).transpose()
    }

    fn known(&self, tree: TreeId) -> Result<&TreeState> {
        match self.created.get(&tree) {
            Some(state) => Ok(state),
            None => self.view.state(tree).map(|state| &**state),
        }
    }

    fn catalog_row(&mut self, name: &str) -> Result<Option<CatalogRow>> {
        let bytes = self.get(CATALOG, name.as_bytes())?;
        bytes.map(|bytes| CatalogRow::decode(&bytes).ok_or_else(|| view::bad_row(name))).transpose()
    }

    /// The tree with this transaction's writes applied.
    fn fork(&mut self, tree: TreeId) -> Result<Option<Slot>> {
        self.settle()?;
        let state = self.known(tree)?.clone();
        let (root, changes) = match self.forks.get(&tree) {
            Some(fork) => {
                let keys = self.unforked.get(&tree).into_iter().flatten();
                (fork.clone(), keys.map(|key| self.changes.of_key(tree, key)).collect())
            }
            None => {
                let is_new = !self.unforked.contains_key(&tree);
                invariant!(is_new, "no keys wait for the fork of tree {tree}, which is not there");
                (state.slot, self.changes.of_tree(tree))
            }
        };
        if changes.is_empty() {
            return Ok(root);
        }
        let store = self.committer.store();
        let mut apply = Apply::new(&store.pages, &store.geometry, self.base_seq(), Loading::Allowed)
            .reduced_by(state.reducer.as_deref())
            .in_private();
        let forked = apply.tree(root.as_ref(), &changes).map_err(crate::tree::ApplyError::into_error);
        let forked = self.view.still_held(forked)?;
        // Only after success: otherwise they are still to be applied.
        self.unforked.remove(&tree);
        self.forks.insert(tree, forked.clone());
        Ok(forked)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Extents of values that were not committed: no record will ever name them.
        let space = &self.committer.store().space;
        self.values.values().for_each(|pages| space.value_aborted(pages));
        space.value_aborted(&self.superseded);
    }
}

/// Fails if a transaction of this size is too large for memory or for replay.
fn check_size(bytes: usize, memory_bytes: usize) -> Result<()> {
    let bytes_max = (memory_bytes / TRANSACTION_MEMORY_PART).min(TRANSACTION_BYTES_MAX);
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the transaction's writes are more than {bytes_max} bytes");
    let hint = if bytes_max < TRANSACTION_BYTES_MAX {
        "what was written before stands: commit in batches, or raise memory_bytes"
    } else {
        "what was written before stands: commit in batches"
    };
    Err(Error::new(Code::TooLarge, message).with_hint(hint))
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a key of {} bytes; the limit is {KEY_BYTES_MAX}", key.len());
    Err(Error::new(Code::KeyTooLong, message).with_hint("use a shorter key, and keep the rest in the value"))
}

fn reducer_missing(spec: &ReducerSpec) -> Error {
    let message = format!("the reducer {:?} version {} is not registered", spec.name, spec.version);
    Error::new(Code::ReducerMissing, message)
        .with_hint("register it in Options before the database is opened")
}

#[cfg(test)]
mod tests {
    //! The size limit of a transaction.
    use super::*;

    /// Replay holds offsets in a record in 32 bits. A longer record could be acknowledged and then prevent
    /// opening.
    #[test]
    fn no_memory_makes_a_record_longer_than_replay_can_read() {
        let refused = |bytes, memory_bytes| check_size(bytes, memory_bytes).err().map(|error| error.code());
        assert_eq!(
            [refused(64 << 20, 256 << 20), refused((64 << 20) + 1, 256 << 20)],
            [None, Some(Code::TooLarge)]
        );
        for memory_bytes in [16 << 30, 64 << 30, usize::MAX] {
            let most = TRANSACTION_BYTES_MAX;
            assert_eq!(
                [refused(most, memory_bytes), refused(most + 1, memory_bytes)],
                [None, Some(Code::TooLarge)]
            );
        }
    }
}
