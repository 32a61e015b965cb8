//! Reading one registered root: the common part of snapshots and transactions.

use std::io::Read;
use std::sync::{Arc, Weak};

use super::reducer_missing;
use super::rows::Rows;
use crate::catalog::{CATALOG, CatalogRow, Root, TreeState};
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::overlay::{Overlay, QueriedTree};
use crate::page_cache::Pages;
use crate::snapshot::Registration;
use crate::tree::{
    self, BigReader, BigRef, Direction, KeyRange, Reduced, ReducerSpec, Slot, StoredValue, TreeShape,
};

/// Identifies the state of a tree, for [`Snapshot::is_as_marked`]. It keeps nothing of the tree but its
/// allocation, so that no other state can have the same address.
#[derive(Debug, Clone)]
pub struct TreeMark {
    tree: TreeId,
    state: Weak<TreeState>,
}

/// A root and the store of its pages. For a while after opening, the overlay of deferred redo lies over it.
#[derive(Debug, Clone)]
pub(super) struct View {
    held: Registration,
    overlay: Option<Arc<Overlay>>,
}

impl View {
    pub(super) fn new(held: Registration, overlay: Option<Arc<Overlay>>) -> View {
        View { held, overlay }
    }

    /// The last commit that it shows.
    pub(super) fn seq(&self) -> CommitSeq {
        self.overlay.as_ref().map_or(self.root().seq, |overlay| overlay.seq())
    }

    /// The same view without an overlay, if this one has one. Waits for the deferred redo.
    pub(super) fn settled(&self) -> Result<Option<View>> {
        let held = self.overlay.as_ref().map(|overlay| overlay.wait()).transpose()?;
        Ok(held.map(|held| View::new(held.clone(), None)))
    }

    /// A tree in the root, and the overlay if it holds changes that are not in the tree. Call it once per
    /// query: the result changes when the redo ends.
    fn layers(&self, id: TreeId) -> Result<(&Arc<TreeState>, Option<&Arc<Overlay>>)> {
        let (root, overlay) = match &self.overlay {
            None => (self.root(), None),
            Some(overlay) => match overlay.drained_root() {
                Some(root) => (root, None),
                None => (self.root(), Some(overlay)),
            },
        };
        let found = root.trees.get(id).filter(|tree| tree.dropped_at.is_none());
        let state =
            found.ok_or_else(|| Error::new(Code::NoSuchTree, format!("there is no tree with id {id}")))?;
        Ok((state, overlay))
    }

    /// A tree in the form that a query about a range needs.
    pub(super) fn asked(&self, id: TreeId, range: &KeyRange) -> Result<QueriedTree<'_>> {
        match self.layers(id)? {
            (state, None) => Ok(QueriedTree::Rooted(state)),
            (state, Some(overlay)) => self.still_held(overlay.asked(self.pages(), state, range)),
        }
    }

    pub(super) fn pages(&self) -> &Pages {
        self.held.pages()
    }

    pub(super) fn registration(&self) -> &Registration {
        &self.held
    }

    pub(super) fn root(&self) -> &Arc<Root> {
        self.held.root()
    }

    pub(super) fn state(&self, id: TreeId) -> Result<&Arc<TreeState>> {
        self.layers(id).map(|(state, _)| state)
    }

    /// Looks up a key, first among the overlay's changes.
    fn find<T>(
        &self,
        tree: TreeId,
        key: &[u8],
        use_value: impl FnOnce(StoredValue<'_>) -> T,
    ) -> Result<Option<T>> {
        let (state, overlay) = self.layers(tree)?;
        if let Some(change) = overlay.and_then(|overlay| overlay.changes().of_tree(tree).find(key)) {
            return Ok(change.value.map(use_value));
        }
        self.still_held(tree::find(self.pages(), state.slot.as_ref(), key, use_value))
    }

    pub(super) fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(tree, key, <[u8]>::to_vec)
    }

    pub(super) fn get_with<T>(
        &self,
        tree: TreeId,
        key: &[u8],
        use_value: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut use_value = Some(use_value);
        let found = self.find(tree, key, |value| {
            if value.big { Err(value.bytes.to_vec()) } else { Ok(use_value.take().map(|f| f(value.bytes))) }
        });
        match found? {
            None => Ok(None),
            Some(Ok(out)) => Ok(out),
            Some(Err(list)) => {
                let bytes = self.resolve(StoredValue { big: true, bytes: &list })?;
                Ok(use_value.take().map(|f| f(&bytes)))
            }
        }
    }

    pub(super) fn resolve(&self, value: StoredValue<'_>) -> Result<Vec<u8>> {
        if !value.big {
            return Ok(value.bytes.to_vec());
        }
        self.still_held(BigRef::decode(value.bytes).and_then(|big| big.read(self.pages())))
    }

    pub(super) fn open(&self, value: StoredValue<'_>) -> Result<Box<dyn Read + Send>> {
        if !value.big {
            return Ok(Box::new(std::io::Cursor::new(value.bytes.to_vec())));
        }
        let big = BigRef::decode(value.bytes)?;
        let reader = self.still_held(BigReader::open(self.pages(), &big))?;
        Ok(Box::new(HeldReader { reader, held: self.held.clone() }))
    }

    pub(super) fn open_value(&self, tree: TreeId, key: &[u8]) -> Result<Option<Box<dyn Read + Send>>> {
        let found = self.find(tree, key, |value| (value.big, value.bytes.to_vec()))?;
        found.map(|(big, bytes)| self.open(StoredValue { big, bytes: &bytes })).transpose()
    }

    pub(super) fn count_in(&self, slot: Option<&Slot>, range: &KeyRange) -> Result<u64> {
        self.still_held(tree::count(self.pages(), slot, range))
    }

    pub(super) fn nth_in(&self, slot: Option<&Slot>, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let entry = |key, value: StoredValue<'_>| (key, value.big, value.bytes.to_vec());
        match self.still_held(tree::nth(self.pages(), slot, index, entry))? {
            None => Ok(None),
            Some((key, big, bytes)) => Ok(Some((key, self.resolve(StoredValue { big, bytes: &bytes })?))),
        }
    }

    pub(super) fn reduce_in(
        &self,
        state: &TreeState,
        slot: Option<&Slot>,
        range: &KeyRange,
    ) -> Result<Reduced> {
        match (&state.spec, &state.reducer) {
            (_, Some(reducer)) => self.still_held(tree::reduce(self.pages(), slot, &**reducer, range)),
            (Some(spec), None) => Err(reducer_missing(spec)),
            (None, None) => Err(Error::invalid("the tree has no reducer")
                .with_hint("count needs none; give the tree a reducer when it is created")),
        }
    }

    pub(super) fn rows_in(&self, slot: Option<&Slot>, range: KeyRange, direction: Direction) -> Rows {
        Rows::new(self.clone(), slot, range, direction)
    }

    pub(super) fn rows(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Rows> {
        let (state, overlay) = self.layers(tree)?;
        let slot = state.slot.as_ref();
        Ok(match overlay {
            None => self.rows_in(slot, range, direction),
            Some(overlay) => Rows::overlaid(self.clone(), slot, overlay, tree, range, direction),
        })
    }

    pub(super) fn first_key(&self, tree: TreeId, range: &KeyRange) -> Result<Option<Vec<u8>>> {
        let (state, overlay) = self.layers(tree)?;
        if overlay.is_none() {
            return self.still_held(tree::first_key(self.pages(), state.slot.as_ref(), range));
        }
        let mut rows = self.rows(tree, range.clone(), Direction::Forward)?;
        Ok(rows.next()?.map(|row| row.key().to_vec()))
    }

    /// The names in the catalogue. An overlay never changes them: opening applies catalogue changes at once.
    pub(super) fn names(&self, slot: Option<&Slot>, range: KeyRange) -> Result<Vec<(String, TreeId)>> {
        let mut rows = self.rows_in(slot, range, Direction::Forward);
        let mut names = Vec::new();
        while let Some(row) = rows.next()? {
            let name = String::from_utf8_lossy(row.key()).into_owned();
            let row = CatalogRow::decode(&row.value()?).ok_or_else(|| bad_row(&name))?;
            names.push((name, row.id));
        }
        Ok(names)
    }

    /// Replaces an error by the reason why the state has ended, if it has. Its pages may have been reused:
    /// that is not corruption.
    pub(super) fn still_held<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| why_ended(&self.held).unwrap_or(error))
    }

    /// Fails if the state has ended.
    ///
    /// # Errors
    /// `Expired`; `Conflict` if the commits that it shows were dropped.
    pub(super) fn not_ended(&self) -> Result<()> {
        why_ended(&self.held).map_or(Ok(()), Err)
    }
}

pub(super) fn bad_row(name: &str) -> Error {
    Error::new(Code::CorruptData, format!("the catalogue's row for {name:?} cannot be read"))
}

/// The reason why the pages of a state are no longer kept, if so.
pub(super) fn why_ended(held: &Registration) -> Option<Error> {
    let seq = held.root().seq;
    if held.is_expired() {
        let message = format!("the snapshot of commit {seq} was ended to free what it held");
        return Some(Error::new(Code::SnapshotExpired, message));
    }
    held.is_dropped().then(|| {
        let message =
            format!("commit {seq}, which this transaction reads, never happened: the log could not take it");
        Error::new(Code::WriteConflict, message)
            .with_hint("run the transaction again, or use transact(), which does")
    })
}

/// A reader of a big value, with the registration that keeps its extents.
struct HeldReader {
    reader: BigReader,
    held: Registration,
}

impl Read for HeldReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer);
        read.map_err(|error| why_ended(&self.held).map_or(error, std::io::Error::other))
    }
}

/// One state of the database, for as long as it is held. Cheap to take, `Send`, and never blocks writers.
#[derive(Debug, Clone)]
pub struct Snapshot {
    view: View,
}

/// Properties of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeInfo {
    /// Its id.
    pub id: TreeId,
    /// Its reducer.
    pub reducer: Option<ReducerSpec>,
    /// What a build must know to read it.
    pub features: Features,
    /// Number of entries.
    pub len: u64,
}

impl Snapshot {
    pub(crate) fn new(held: Registration, overlay: Option<Arc<Overlay>>) -> Snapshot {
        Snapshot { view: View::new(held, overlay) }
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        self.view.root()
    }

    pub(crate) fn not_ended(&self) -> Result<()> {
        self.view.not_ended()
    }

    /// The last commit in it.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.view.seq()
    }

    /// In a node of a cluster: the time of that commit by the log, in nanoseconds since 1970; 0 otherwise.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.view.root().time_ns
    }

    /// The id of a tree by name.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn tree(&self, name: &str) -> Result<Option<TreeId>> {
        let bytes = self.view.get(CATALOG, name.as_bytes())?;
        let row = bytes.map(|bytes| CatalogRow::decode(&bytes).ok_or_else(|| bad_row(name))).transpose()?;
        Ok(row.map(|row| row.id))
    }

    /// Whether there is a tree with this id. Reads no page.
    #[must_use]
    pub fn has_tree(&self, tree: TreeId) -> bool {
        self.view.state(tree).is_ok()
    }

    /// Identifies a tree as it is in this state, to be compared with other states. `None` without the tree,
    /// and shortly after opening.
    #[must_use]
    pub fn mark(&self, tree: TreeId) -> Option<TreeMark> {
        self.settled_state(tree).map(|state| TreeMark { tree, state: Arc::downgrade(state) })
    }

    /// Whether a tree is the same as in the state where the mark was taken. `false` does not mean that it
    /// differs. Reads no page.
    #[must_use]
    pub fn is_as_marked(&self, mark: &TreeMark) -> bool {
        self.settled_state(mark.tree)
            .is_some_and(|state| std::ptr::eq(Arc::as_ptr(state), mark.state.as_ptr()))
    }

    fn settled_state(&self, tree: TreeId) -> Option<&Arc<TreeState>> {
        let (state, overlay) = self.view.layers(tree).ok()?;
        overlay.is_none().then_some(state)
    }

    /// The names of all trees, sorted.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn trees(&self) -> Result<Vec<(String, TreeId)>> {
        self.view.names(self.view.state(CATALOG)?.slot.as_ref(), KeyRange::all())
    }

    /// The names with this prefix, sorted. Reads only pages that may hold them.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn trees_from(&self, prefix: &str) -> Result<Vec<(String, TreeId)>> {
        let slot = self.view.state(CATALOG)?.slot.as_ref();
        self.view.names(slot, KeyRange::prefix(prefix.as_bytes()))
    }

    /// Properties of a tree.
    ///
    /// # Errors
    /// `NoSuchTree` (E0901) if there is no such tree; shortly after opening also those of a
    /// [read](crate::Error#reads).
    pub fn tree_info(&self, tree: TreeId) -> Result<TreeInfo> {
        let asked = self.view.asked(tree, &KeyRange::all())?;
        let len = asked.slot().map_or(0, |slot| slot.count);
        let TreeState { spec, features, .. } = asked.state();
        Ok(TreeInfo { id: tree, reducer: spec.clone(), features: *features, len })
    }

    /// The shape of a tree. Every node is read, and none kept. `told` is called after each leaf with the
    /// shape so far.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; any error of `told`.
    pub fn tree_shape(
        &self,
        tree: TreeId,
        told: &mut dyn FnMut(&TreeShape) -> Result<()>,
    ) -> Result<TreeShape> {
        let settled = self.view.settled()?;
        let view = settled.as_ref().unwrap_or(&self.view);
        let slot = view.state(tree)?.slot.as_ref();
        view.still_held(tree::shape(view.pages(), slot, told))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) if there is no such tree.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.view.get(tree, key)
    }

    /// The value of a key, lent to `use_value`. It is copied only if it is big. `None` if there is no such
    /// key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_with<T>(
        &self,
        tree: TreeId,
        key: &[u8],
        use_value: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.view.get_with(tree, key, use_value)
    }

    /// Reads a value piece by piece.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn open_value(&self, tree: TreeId, key: &[u8]) -> Result<Option<Box<dyn Read + Send>>> {
        self.view.open_value(tree, key)
    }

    /// The number of keys in a range. O(log n).
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn count(&self, tree: TreeId, range: &KeyRange) -> Result<u64> {
        self.view.count_in(self.view.asked(tree, range)?.slot(), range)
    }

    /// The number of keys before this one. O(log n).
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn rank(&self, tree: TreeId, key: &[u8]) -> Result<u64> {
        self.count(tree, &KeyRange { from: Vec::new(), to: Some(key.to_vec()) })
    }

    /// The entry at an index, counted from 0. O(log n).
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn nth(&self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.view.nth_in(self.view.asked(tree, &KeyRange::all())?.slot(), index)
    }

    /// As [`Snapshot::nth`], without reading the value.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn nth_key(&self, tree: TreeId, index: u64) -> Result<Option<Vec<u8>>> {
        let asked = self.view.asked(tree, &KeyRange::all())?;
        self.view.still_held(tree::nth(self.view.pages(), asked.slot(), index, |key, _| key))
    }

    /// The reduction of a range. O(log n).
    ///
    /// # Errors
    /// As [`Snapshot::get`]; `InvalidArgument` (E0201) if the tree has no reducer or it refuses a value;
    /// `ReducerMissing` (E0205) if it is not registered; `ReducerPanicked` (E0208) if it panics.
    pub fn reduce(&self, tree: TreeId, range: &KeyRange) -> Result<Reduced> {
        let asked = self.view.asked(tree, range)?;
        self.view.reduce_in(asked.state(), asked.slot(), range)
    }

    /// Keys below nodes with unknown reductions on disk, one per node, at most `keys_max` from the key `from`
    /// on. Such nodes were written while the tree's reducer was not registered. Queries compute those
    /// reductions anew and are right. Putting these entries again stores them.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn stale_keys(&self, tree: TreeId, from: &[u8], keys_max: usize) -> Result<Vec<Vec<u8>>> {
        let state = self.view.state(tree)?;
        match (&state.reducer, &state.slot) {
            (Some(_), Some(slot)) => {
                self.view.still_held(tree::stale_keys(self.view.pages(), slot, from, keys_max))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The first key of a range.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn first_key(&self, tree: TreeId, range: &KeyRange) -> Result<Option<Vec<u8>>> {
        self.view.first_key(tree, range)
    }

    /// The entries of a range in order.
    ///
    /// # Errors
    /// `NoSuchTree` (E0901) if there is no such tree. Those of a [read](crate::Error#reads) come from the
    /// rows.
    pub fn rows(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Rows> {
        self.view.rows(tree, range, direction)
    }
}
