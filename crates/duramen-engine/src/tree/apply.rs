//! Applying sorted changes to a tree: a new root that shares everything that did not change.
//!
//! Each node on the way is rebuilt once. Nothing is changed in place, so a failure has no effect, and the old
//! root stays as it was (I1).

mod compacted;
mod merged;
mod prebuilt;
mod unread;

use std::sync::Arc;

use super::bounds::{Bounds, corrupt};
use super::inner::{Changed, Inner, Piece, child_cost};
use super::leaf::{Entry, Leaf, StoredValue, kept_patch_bytes_max};
use super::node::{Body, DeferredPage, Node};
use super::reduce::node_reduction;
use super::reducer::Reducer;
use super::separators::Separators;
use super::slot::Slot;
use super::stored_patch::StoredPatch;
use crate::alarm::invariant;
use crate::error::Error;
use crate::ids::CommitSeq;
use crate::limits::INNER_CHILDREN_MIN;
use crate::options::Geometry;
use crate::page_cache::Pages;
use crate::threads::side_by_side;

pub(crate) use prebuilt::{Prebuilt, PrebuiltLeaf};

/// One change: a value to put, or `None` to delete the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new value, or `None` to delete the key.
    pub value: Option<StoredValue<'a>>,
}

/// Whether pages may be read on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loading {
    /// Read what is missing.
    Allowed,
    /// Read what is missing, and keep nothing of the old root in memory: it will not be read again.
    PassThrough,
    /// Stop at a node that is not in memory: the caller holds a lock.
    ResidentOnly,
}

/// Which patches count when leaves are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patches {
    /// Those that the leaves have, and the new changes.
    AsTheyAre,
    /// The new changes, as if all others were merged into their leaves.
    Merged,
}

/// Why changes were not applied.
#[derive(Debug)]
pub(crate) enum ApplyError {
    /// A node is not in memory, and loading was not allowed.
    Missing,
    /// An operation failed.
    Failed(Error),
}

impl ApplyError {
    /// The error behind it, where loading was allowed.
    #[must_use]
    pub(crate) fn into_error(self) -> Error {
        match self {
            ApplyError::Failed(error) => error,
            ApplyError::Missing => Error::invalid("a node is missing although it may be read"),
        }
    }
}

impl From<Error> for ApplyError {
    fn from(error: Error) -> ApplyError {
        ApplyError::Failed(error)
    }
}

/// Below a node with fewer changes than this, sharing the work among threads costs more than it saves.
const SHARED_CHANGES_MIN: usize = 512;

/// Where no page is read, there is one thread for so many changes, on average.
const CHANGES_BY_THREAD: usize = 256;

/// The patches below a node may take so many times what its page may.
const PATCHES_BY_PAGE: usize = 32;

/// Applies changes for one commit and collects what they replace.
pub(crate) struct Apply<'a> {
    pages: &'a Pages,
    geometry: &'a Geometry,
    birth: CommitSeq,
    loading: Loading,
    reducer: Option<&'a dyn Reducer>,
    /// Number of threads that share the work below a node with many changes.
    threads: usize,
    bulk: bool,
    /// The new root is read by one transaction and never written.
    private: bool,
    /// Leaves whose page is on disk become patches to it.
    patches: bool,
    /// Leaves are built before the lock also where they need not be read.
    builds_known: bool,
    /// Leaves that were built before, in order of keys.
    prebuilt: &'a [PrebuiltLeaf],
    /// Entries added to leaves less those deleted, modulo 2^64.
    added: u64,
    /// Nodes of the old root that the new one no longer uses.
    pub replaced: Vec<Arc<Node>>,
    /// Patches of the old root that the new one does not have.
    pub superseded: Vec<Arc<StoredPatch>>,
    /// Their pages, where the nodes themselves are not kept ([`Loading::PassThrough`]).
    pub deferred: Vec<DeferredPage>,
    /// References to big values that the new root no longer uses, encoded.
    pub dropped_values: Vec<Vec<u8>>,
}

/// A child, the changes that belong to it, and its bounds.
struct Work<'a> {
    child: usize,
    changes: &'a [Change<'a>],
    bounds: Bounds<'a>,
}

enum Outcome {
    Same,
    Pieces(Vec<Piece>),
}

impl<'a> Apply<'a> {
    /// For the commit with sequence `birth`.
    #[must_use]
    pub(crate) fn new(
        pages: &'a Pages,
        geometry: &'a Geometry,
        birth: CommitSeq,
        loading: Loading,
    ) -> Apply<'a> {
        Apply {
            pages,
            geometry,
            birth,
            loading,
            reducer: None,
            threads: 1,
            bulk: false,
            private: false,
            patches: false,
            builds_known: false,
            prebuilt: &[],
            added: 0,
            replaced: Vec::new(),
            superseded: Vec::new(),
            deferred: Vec::new(),
            dropped_values: Vec::new(),
        }
    }

    /// For a tree with this reducer: inner nodes leave room for its reductions.
    #[must_use]
    pub(crate) fn reduced_by(mut self, reducer: Option<&'a dyn Reducer>) -> Apply<'a> {
        self.reducer = reducer;
        self
    }

    /// For a root that one transaction reads and that is never written.
    #[must_use]
    pub(crate) fn in_private(mut self) -> Apply<'a> {
        (self.private, self.patches) = (true, false);
        self
    }

    /// Keeps what changes in a leaf beside its page on disk, instead of making a new page.
    #[must_use]
    pub(crate) fn with_patches(mut self, patches: bool) -> Apply<'a> {
        self.patches = patches;
        self
    }

    /// Shares many changes among so many threads; the resulting tree is the same.
    #[must_use]
    pub(crate) fn shared_by(mut self, threads: usize) -> Apply<'a> {
        self.threads = threads;
        self
    }

    /// As [`Apply::shared_by`], and computes the reductions of new leaves while those are in memory.
    #[must_use]
    pub(crate) fn in_bulk(mut self, threads: usize) -> Apply<'a> {
        self.bulk = true;
        self.shared_by(threads)
    }

    /// Applies `changes`, sorted by key and without duplicates, and returns the new root.
    ///
    /// # Errors
    /// [`ApplyError`]; the tree is as before.
    pub(crate) fn tree(
        &mut self,
        root: Option<&Slot>,
        changes: &[Change<'_>],
    ) -> Result<Option<Slot>, ApplyError> {
        debug_assert!(changes.is_sorted_by(|a, b| a.key < b.key), "changes are sorted and unique");
        let old_count = root.map_or(0, |root| root.count);
        let replaced_before = self.replaced.len();
        self.added = 0;
        let mut pieces = match root {
            None => {
                let pieces = self.leaf_pieces(&inserted(changes), true);
                self.added = count_of(&pieces);
                pieces
            }
            Some(root) => {
                // No node is above a leaf that is the root: it has no place for a patch.
                let patches = self.patches;
                self.patches &= matches!(self.load(root)?.body(), Body::Inner(_));
                let outcome = self.node(root, changes, Bounds::default());
                self.patches = patches;
                match outcome? {
                    Outcome::Same => return Ok(Some(root.clone())),
                    Outcome::Pieces(pieces) => pieces,
                }
            }
        };
        while pieces.len() > 1 {
            let level = pieces[0].slot.peek().expect("a piece just built is in memory").level() + 1;
            let wider = pieces.len();
            pieces = self.inner_pieces(level, pieces);
            invariant!(pieces.len() < wider, "{} nodes are above {wider} at height {level}", pieces.len());
        }
        let new = pieces.pop().map(|piece| self.collapse(piece.slot)).transpose()?;
        let (count, wanted) = (new.as_ref().map_or(0, |new| new.count), old_count.wrapping_add(self.added));
        invariant!(count == wanted, "{count} entries below the new root are {wanted} by its leaves");
        debug_assert!(are_different(&self.replaced[replaced_before..]), "each node is replaced once");
        Ok(new)
    }

    /// Brings the nodes that are needed for `changes` into memory, without building anything.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read.
    pub(crate) fn warm(&self, root: &Slot, changes: &[Change<'_>]) -> Result<(), Error> {
        let node = root.load(self.pages, false)?;
        let Body::Inner(inner) = node.body() else { return Ok(()) };
        let makes_patches = has_room_for_patches(inner, self.geometry);
        let mut rest = changes;
        while let Some((child, here, later)) = next_child(inner, rest) {
            rest = later;
            let slot = inner.slot(child);
            if !(makes_patches && self.is_known(slot, here)) {
                self.warm(slot, here)?;
            }
        }
        Ok(())
    }

    /// Bytes that `changes` take in memory until a checkpoint, counted until they exceed `bytes_max`: of a
    /// leaf on disk the patch, where that is kept, and otherwise the whole leaf. Reads inner nodes only.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read.
    pub(crate) fn kept_bytes(
        &self,
        root: &Slot,
        changes: &[Change<'_>],
        patches: Patches,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        if let Some(page) = root.page().filter(|page| !page.is_inner()) {
            let change_bytes =
                |change: &Change<'_>| change.key.len() + change.value.map_or(0, |v| v.bytes.len());
            let patched_bytes = if patches == Patches::Merged { 0 } else { root.patch_bytes() };
            let patch_bytes = patched_bytes + changes.iter().map(change_bytes).sum::<usize>();
            let is_patch = self.patches && patch_bytes <= kept_patch_bytes_max(self.geometry.leaf_bytes_max);
            return Ok(if is_patch { patch_bytes } else { page.raw_bytes as usize });
        }
        let node = root.load(self.pages, false)?;
        // A dirty leaf as root is in memory and charged to the meter already.
        let Body::Inner(inner) = node.body() else { return Ok(0) };
        let (mut rest, mut bytes) = (changes, 0);
        while bytes <= bytes_max
            && let Some((child, here, later)) = next_child(inner, rest)
        {
            rest = later;
            bytes += self.kept_bytes(inner.slot(child), here, patches, bytes_max - bytes)?;
        }
        Ok(bytes)
    }

    /// Replaces a root with one child by that child.
    fn collapse(&mut self, mut root: Slot) -> Result<Slot, ApplyError> {
        loop {
            let only = {
                let node = self.load(&root)?;
                match node.body() {
                    Body::Inner(inner) if inner.len() == 1 => {
                        self.replace(&node);
                        inner.slot(0).clone()
                    }
                    Body::Leaf(leaf) if root.patch_bytes() > 0 => {
                        let whole = self.leaf_anew(&node, leaf.rebuilt(self.pages, self.birth.0));
                        self.replace(&node);
                        return Ok(whole.slot);
                    }
                    _ => break,
                }
            };
            root = only;
        }
        Ok(root)
    }

    fn load(&self, slot: &Slot) -> Result<Arc<Node>, ApplyError> {
        match self.loading {
            Loading::Allowed => Ok(slot.load(self.pages, false)?),
            Loading::PassThrough => Ok(slot.pass_through(self.pages)?),
            Loading::ResidentOnly => slot.peek().ok_or(ApplyError::Missing),
        }
    }

    /// Notes that the new root does not use this node.
    fn replace(&mut self, node: &Arc<Node>) {
        if self.loading == Loading::PassThrough {
            self.deferred.extend(node.defer_free(self.birth));
        } else {
            self.replaced.push(Arc::clone(node));
        }
    }

    fn node(
        &mut self,
        slot: &Slot,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
    ) -> Result<Outcome, ApplyError> {
        let old_count = slot.count;
        if let Some(new) = self.prebuilt(slot, changes).or_else(|| self.unread(slot, changes)) {
            self.added = self.added.wrapping_add(new.count).wrapping_sub(old_count);
            self.superseded.extend(slot.pointer().and_then(|pointer| pointer.patch));
            return Ok(Outcome::Pieces(vec![Piece { separator: Vec::new(), slot: new, small: false }]));
        }
        let node = self.load(slot)?;
        bounds.check(self.pages, &node)?;
        let outcome = match node.body() {
            Body::Leaf(leaf) => {
                if let Some(patch) = self.patch(&node, leaf, changes) {
                    self.added = self.added.wrapping_add(patch.count()).wrapping_sub(old_count);
                    self.superseded.extend(node.kept_patch());
                    return Ok(Outcome::Pieces(vec![self.leaf_piece(Vec::new(), patch)]));
                }
                let bytes_max = self.geometry.leaf_bytes_max;
                if let Some(leaf) = leaf.patched(changes, bytes_max, None, &mut self.dropped_values) {
                    let node = Node::of_leaf(self.pages, leaf, self.birth, !self.private);
                    Outcome::Pieces(vec![self.leaf_piece(Vec::new(), node)])
                } else {
                    let Some((entries, append)) = merge(leaf, changes, &mut self.dropped_values) else {
                        return Ok(Outcome::Same);
                    };
                    Outcome::Pieces(self.leaf_pieces(&entries, append))
                }
            }
            Body::Inner(inner) => self.inner(inner, changes, bounds)?,
        };
        if let Outcome::Pieces(pieces) = &outcome {
            node.keep_shared(pieces.iter().map(|piece| &piece.slot));
            if let Body::Leaf(_) = node.body() {
                self.added = self.added.wrapping_add(count_of(pieces)).wrapping_sub(node.count());
            }
            self.replace(&node);
        }
        Ok(outcome)
    }

    /// The leaf after changes as a patch to its page on disk, which stays in use. `None` if that page cannot
    /// be kept.
    fn patch(&mut self, node: &Node, leaf: &Leaf, changes: &[Change<'_>]) -> Option<Node> {
        let page = node.page().filter(|_| self.patches)?;
        let kept = Some(self.pages.meter());
        let (bytes_max, dropped) = (self.geometry.leaf_bytes_max, &mut self.dropped_values);
        let patched = match node.base_page() {
            Some(_) => leaf.patched(changes, bytes_max, kept, dropped)?,
            // What is in memory is the page before the one that was written, and a patch.
            None => leaf.rebuilt(self.pages, node.birth().0).patched(changes, bytes_max, kept, dropped)?,
        };
        Some(Node::of_patch(self.pages, patched, (page, node.birth())))
    }

    fn inner(
        &mut self,
        inner: &Inner,
        changes: &[Change<'_>],
        bounds: Bounds<'_>,
    ) -> Result<Outcome, ApplyError> {
        let mut work = Vec::new();
        let mut rest = changes;
        while let Some((child, here, later)) = next_child(inner, rest) {
            rest = later;
            work.push(Work { child, changes: here, bounds: bounds.of_child(inner, child) });
        }
        let patches = self.patches;
        self.patches &= has_room_for_patches(inner, self.geometry);
        let threads = self.threads_for(changes.len());
        let changed = if threads > 1 && work.len() > 1 {
            self.share(inner, &work, threads)
        } else {
            self.children(inner, &work)
        };
        self.patches = patches;
        let changed = changed?;
        if changed.is_empty() {
            return Ok(Outcome::Same);
        }
        let is_sorted = changed.is_sorted_by(|(a, _), (b, _)| a < b);
        invariant!(is_sorted, "{} replaced children are in order, each once", changed.len());
        if self.reducer.is_some() && inner.reduction_bytes() == 0 {
            // All reductions were unknown on disk. Writing the node makes them known, and it must be split
            // for them before that.
            let pieces = changed.iter().flat_map(|(_, pieces)| pieces);
            inner.note_reduction_bytes(self.reduction_bytes(pieces));
        }
        if changed.iter().all(|(_, pieces)| !pieces.is_empty() && pieces.iter().all(|piece| !piece.small))
            && let Some(inner) = inner.with_pieces(&changed, self.geometry.inner_bytes_max)
        {
            return Ok(Outcome::Pieces(vec![self.inner_piece(Vec::new(), inner)]));
        }
        let pieces = self.merge_underfull(splice(inner, changed), bounds)?;
        Ok(Outcome::Pieces(self.inner_pieces(inner.level, pieces)))
    }

    fn threads_for(&self, change_count: usize) -> usize {
        match self.loading {
            _ if change_count < SHARED_CHANGES_MIN => 1,
            Loading::ResidentOnly => self.threads.min(change_count / CHANGES_BY_THREAD),
            Loading::Allowed | Loading::PassThrough => self.threads,
        }
    }

    /// Applies changes to the children they belong to; returns the children that changed.
    fn children(&mut self, inner: &Inner, work: &[Work<'_>]) -> Result<Changed, ApplyError> {
        let mut changed = Vec::with_capacity(work.len());
        for Work { child, changes, bounds } in work {
            if let Outcome::Pieces(pieces) = self.node(inner.slot(*child), changes, *bounds)? {
                changed.push((*child, pieces));
            }
        }
        Ok(changed)
    }

    /// As [`Apply::children`], with the children shared among threads.
    fn share(&mut self, inner: &Inner, work: &[Work<'_>], threads: usize) -> Result<Changed, ApplyError> {
        let parts: Vec<_> = work.chunks(work.len().div_ceil(threads)).collect();
        let (pages, geometry, reducer) = (self.pages, self.geometry, self.reducer);
        let (birth, loading) = (self.birth, self.loading);
        let (private, patches) = (self.private, self.patches);
        let (bulk, prebuilt) = (self.bulk, self.prebuilt);
        let done = side_by_side(&parts, |part| {
            let mut apply = Apply::new(pages, geometry, birth, loading).reduced_by(reducer);
            (apply.private, apply.patches) = (private, patches);
            (apply.bulk, apply.prebuilt) = (bulk, prebuilt);
            apply.children(inner, part).map(|changed| (changed, apply))
        });
        let mut all = Vec::with_capacity(work.len());
        for part in done {
            let (changed, apply) = part?;
            self.added = self.added.wrapping_add(apply.added);
            all.extend(changed);
            self.replaced.extend(apply.replaced);
            self.superseded.extend(apply.superseded);
            self.deferred.extend(apply.deferred);
            self.dropped_values.extend(apply.dropped_values);
        }
        Ok(all)
    }

    /// Merges each underfull piece with a neighbour, once.
    fn merge_underfull(
        &mut self,
        mut pieces: Vec<Piece>,
        bounds: Bounds<'_>,
    ) -> Result<Vec<Piece>, ApplyError> {
        let mut index = 0;
        while index < pieces.len() {
            if !pieces[index].small || pieces.len() == 1 {
                index += 1;
                continue;
            }
            let left = if index + 1 < pieces.len() { index } else { index - 1 };
            let mut joined = self.join(&pieces, left, bounds)?;
            let count = joined.len();
            if let Some(last) = joined.last_mut() {
                last.small = last.small && count == 1;
            }
            pieces.splice(left..left + 2, joined);
            index = if count == 1 { left } else { left + count };
        }
        Ok(pieces)
    }

    /// Merges piece `index` and the next one, children of a node with these bounds.
    fn join(&mut self, all: &[Piece], index: usize, bounds: Bounds<'_>) -> Result<Vec<Piece>, ApplyError> {
        let (left, right) = (&all[index], &all[index + 1]);
        let left_node = self.load(&left.slot)?;
        let right_node = self.load(&right.slot)?;
        bounds.of_piece(all, index).check_to_join(self.pages, &left_node)?;
        bounds.of_piece(all, index + 1).check_to_join(self.pages, &right_node)?;
        let mut pieces = match (left_node.body(), right_node.body()) {
            (Body::Leaf(a), Body::Leaf(b)) => {
                let entries: Vec<Entry<'_>> =
                    (0..a.len()).map(|i| a.entry(i)).chain((0..b.len()).map(|i| b.entry(i))).collect();
                self.leaf_pieces(&entries, false)
            }
            (Body::Inner(a), Body::Inner(b)) if a.level == b.level => {
                let mut children = children_of(a, Vec::new());
                children.extend(children_of(b, right.separator.clone()));
                self.inner_pieces(a.level, children)
            }
            _ => {
                return Err(
                    corrupt(self.pages, &right_node, "a node of another height than its neighbour").into()
                );
            }
        };
        let (count, wanted) = (count_of(&pieces), left.slot.count.wrapping_add(right.slot.count));
        invariant!(count == wanted, "{count} entries after two nodes were joined are {wanted}");
        if let Some(first) = pieces.first_mut() {
            first.separator.clone_from(&left.separator);
        }
        left_node.keep_shared(pieces.iter().map(|piece| &piece.slot));
        right_node.keep_shared(pieces.iter().map(|piece| &piece.slot));
        self.replace(&left_node);
        self.replace(&right_node);
        Ok(pieces)
    }

    fn leaf_pieces(&self, entries: &[Entry<'_>], append: bool) -> Vec<Piece> {
        self.leaf_pieces_of(entries, append, self.geometry.leaf_bytes_max)
    }

    /// Leaves of these entries, each of at most `bytes_max` bytes of entries.
    fn leaf_pieces_of(&self, entries: &[Entry<'_>], append: bool, bytes_max: usize) -> Vec<Piece> {
        let shared = match entries {
            [first, .., last] => shared_bytes(&first.key(), &last.key()),
            _ => 0,
        };
        let costs: Vec<usize> = entries.iter().map(|entry| entry.cost() - shared).collect();
        let cuts = cut(&costs, bytes_max, 1, append);
        let mut pieces: Vec<Piece> = Vec::with_capacity(cuts.len());
        let mut from = 0;
        for to in cuts {
            let separator = match from {
                0 => Vec::new(),
                _ => {
                    let (before, key) = (entries[from - 1].key(), entries[from].key());
                    invariant!(before < key, "entry {from} of {} is after the one before it", entries.len());
                    key[..=shared_bytes(&before, &key)].to_vec()
                }
            };
            let node = Node::new_leaf(self.pages, &entries[from..to], self.birth, !self.private);
            let mut piece = self.leaf_piece(separator, node);
            let bytes = costs[from..to].iter().sum::<usize>();
            invariant!(
                bytes <= bytes_max || to - from == 1,
                "{bytes} of {bytes_max} bytes in a leaf of several"
            );
            piece.small = bytes < bytes_max / 4;
            pieces.push(piece);
            from = to;
        }
        if append && let Some(last) = pieces.last_mut() {
            last.small = false;
        }
        pieces
    }

    fn leaf_piece(&self, separator: Vec<u8>, node: Node) -> Piece {
        if let Some(reducer) = self.reducer.filter(|_| self.bulk) {
            // If the reducer refuses an entry, the error is reported when the reduction is read.
            drop(node_reduction(self.pages, &node, reducer));
        }
        if !self.prebuilt.is_empty() {
            // Of a transaction of many rows no leaf is likely to be used again soon.
            node.take_touch();
        }
        Piece { separator, slot: Slot::resident(self.pages.meter(), Arc::new(node)), small: false }
    }

    fn inner_pieces(&self, level: u8, children: Vec<Piece>) -> Vec<Piece> {
        if children.is_empty() {
            return Vec::new();
        }
        let reduction_bytes = self.reduction_bytes(children.iter());
        let each = child_cost(None) + reduction_bytes;
        let costs: Vec<usize> = children.iter().map(|c| each + c.separator.len()).collect();
        let cuts = cut(&costs, self.geometry.inner_bytes_max, INNER_CHILDREN_MIN, false);
        let mut children = children.into_iter();
        let mut pieces = Vec::with_capacity(cuts.len());
        let mut from = 0;
        for to in cuts {
            let mut group: Vec<Piece> = children.by_ref().take(to - from).collect();
            let separator = std::mem::take(&mut group[0].separator);
            let keys: Vec<Vec<u8>> =
                group[1..].iter_mut().map(|p| std::mem::take(&mut p.separator)).collect();
            let slots = group.into_iter().map(|p| p.slot).collect();
            let inner = Inner::build(level, Separators::pack(&keys), slots, reduction_bytes);
            let mut piece = self.inner_piece(separator, inner);
            piece.small = costs[from..to].iter().sum::<usize>() < self.geometry.inner_bytes_max / 4;
            pieces.push(piece);
            from = to;
        }
        pieces
    }

    /// The length of the children's reductions, now or once computed; 0 if only pages below could tell:
    /// reading them would block other commits under the order lock.
    fn reduction_bytes<'p>(&self, mut children: impl Iterator<Item = &'p Piece> + Clone) -> usize {
        let Some(reducer) = self.reducer else { return 0 };
        if let Some(longest) = children.clone().filter_map(|child| child.slot.reduction_bytes()).max() {
            return longest;
        }
        let Some(resident) = children.find_map(|child| child.slot.peek()) else { return 0 };
        match resident.body() {
            // Those of its children: children are built before their parents.
            Body::Inner(inner) => inner.reduction_bytes(),
            Body::Leaf(_) => node_reduction(self.pages, &resident, reducer).map_or(0, <[u8]>::len),
        }
    }

    fn inner_piece(&self, separator: Vec<u8>, inner: Inner) -> Piece {
        let node = Node::new_inner(self.pages, inner, self.birth, !self.private);
        Piece { separator, slot: Slot::resident(self.pages.meter(), Arc::new(node)), small: false }
    }
}

/// Whether the patches below a node leave room for more: each change below it writes all of them again, and a
/// full disk must have room for that.
fn has_room_for_patches(inner: &Inner, geometry: &Geometry) -> bool {
    inner.patch_bytes() <= PATCHES_BY_PAGE * geometry.inner_bytes_max
}

/// The child of the first change, the changes that belong to it, and those after them.
fn next_child<'c, 'a>(
    inner: &Inner,
    changes: &'c [Change<'a>],
) -> Option<(usize, &'c [Change<'a>], &'c [Change<'a>])> {
    let child = inner.separators().child_of(changes.first()?.key);
    let end = match changes {
        [_] => 1,
        _ if child == inner.separators().len() => changes.len(),
        _ => leading(changes, |change| inner.separators().is_before(change.key, child)),
    };
    let (here, later) = changes.split_at(end);
    Some((child, here, later))
}

/// How many items at the beginning are `here`, the first among them. There are few: it looks there first.
fn leading<T>(items: &[T], is_here: impl Fn(&T) -> bool) -> usize {
    let (mut here, mut step) = (1, 1);
    while items.get(here + step - 1).is_some_and(&is_here) {
        here += step;
        step *= 2;
    }
    let end = items.len().min(here + step - 1);
    here + items[here..end].partition_point(is_here)
}

fn inserted<'a>(changes: &[Change<'a>]) -> Vec<Entry<'a>> {
    let put = changes.iter().filter_map(|c| c.value.map(|value| (c.key, value)));
    put.map(|(key, value)| Entry { head: key, tail: &[], value }).collect()
}

/// Merges a leaf with changes. `None` if nothing changes; otherwise the entries, and whether all were added
/// at the end.
fn merge<'a>(
    leaf: &'a Leaf,
    changes: &[Change<'a>],
    dropped: &mut Vec<Vec<u8>>,
) -> Option<(Vec<Entry<'a>>, bool)> {
    let mut entries = Vec::with_capacity(leaf.len() + changes.len());
    let mut next = 0;
    let (mut put, mut removed) = (0, 0);
    let mut append = true;
    for change in changes {
        let at = leaf.find(change.key);
        let (Ok(until) | Err(until)) = at;
        invariant!(next <= until, "a change at entry {until} follows those before entry {next}");
        entries.extend((next..until).map(|index| leaf.entry(index)));
        next = until;
        append &= until == leaf.len();
        if at.is_ok() {
            let old = leaf.value(until);
            if old.big {
                dropped.push(old.bytes.to_vec());
            }
            next = until + 1;
        }
        removed += usize::from(at.is_ok());
        put += usize::from(change.value.is_some());
        entries.extend(change.value.map(|value| Entry { head: change.key, tail: &[], value }));
    }
    entries.extend((next..leaf.len()).map(|index| leaf.entry(index)));
    let (count, wanted) = (entries.len(), leaf.len() - removed + put);
    invariant!(count == wanted, "{count} entries after {put} were put and {removed} removed are {wanted}");
    (put + removed > 0).then_some((entries, append))
}

/// The children of a node with some of them replaced by pieces.
fn splice(inner: &Inner, changed: Changed) -> Vec<Piece> {
    let mut changed = changed.into_iter().peekable();
    let mut pieces = Vec::with_capacity(inner.len() + changed.len());
    for (index, old) in children_of(inner, Vec::new()).into_iter().enumerate() {
        match changed.next_if(|(child, _)| *child == index) {
            None => pieces.push(old),
            Some((_, new)) => {
                let start = pieces.len();
                pieces.extend(new);
                if let Some(first) = pieces.get_mut(start) {
                    first.separator = old.separator;
                }
            }
        }
    }
    invariant!(changed.next().is_none(), "each replaced child is one of {}", inner.len());
    pieces
}

fn children_of(inner: &Inner, first_separator: Vec<u8>) -> Vec<Piece> {
    let mut first = Some(first_separator);
    let piece = |(index, slot): (usize, &Slot)| {
        let separator = first.take().unwrap_or_else(|| inner.separators().get(index - 1));
        Piece { separator, slot: slot.clone(), small: false }
    };
    inner.slots().enumerate().map(piece).collect()
}

/// Entries below pieces, modulo 2^64.
fn count_of(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |sum, piece| piece.slot.count.wrapping_add(sum))
}

fn are_different(nodes: &[Arc<Node>]) -> bool {
    let mut all: Vec<_> = nodes.iter().map(Arc::as_ptr).collect();
    all.sort_unstable();
    all.is_sorted_by(|a, b| a < b)
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Where to split a run of costs into nodes of at most `max`, at least `least` items each: the end of each
/// node. Runs that grow at their end are filled completely, others evenly.
fn cut(costs: &[usize], max: usize, least: usize, append: bool) -> Vec<usize> {
    let total: usize = costs.iter().sum();
    if costs.is_empty() {
        return Vec::new();
    }
    if total <= max {
        return vec![costs.len()];
    }
    let target = if append { max } else { total.div_ceil(total.div_ceil(max)) };
    let mut cuts = Vec::new();
    let (mut from, mut sum) = (0, 0);
    for (index, cost) in costs.iter().enumerate() {
        let enough_left = costs.len() - index >= least;
        let over = sum + cost > max || sum + cost / 2 > target;
        if over && index - from >= least && enough_left {
            let count = index - from;
            invariant!(sum <= max || count <= least, "{count} items of {sum} bytes fit into {max}");
            cuts.push(index);
            (from, sum) = (index, 0);
        }
        sum += cost;
    }
    let count = costs.len() - from;
    invariant!(count >= least || cuts.is_empty(), "the last {count} items are at least {least}");
    cuts.push(costs.len());
    cuts
}
