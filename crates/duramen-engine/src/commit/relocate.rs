//! A commit of compaction: nodes and big values move, and no entry changes.
//!
//! Its log record is empty, so replay, the change feed and validation see a commit without a change. A crash
//! before the next checkpoint returns to the old pages and values. These stay: the commit puts them on the
//! pending-free list like any other that replaces them (`allocator.rs`). A big value is copied before the
//! commit. No log record ever names the copy, only a leaf that a checkpoint writes, and that checkpoint syncs
//! the data file before its superblock (D1).
//!
//! D3: a big value is moved only once a checkpoint contains it. Until then the log alone names its pages. If
//! it moved then, the map of the next checkpoint would call these pages free, and that of the older
//! superblock never called them used. After a crash other values would overwrite them. But if the newest
//! superblock is lost then, the older one and the log lead to that value at its first place: the record of
//! the move is empty, so no record replaces it. Pages that the older superblock's map calls used are held.

use std::sync::Arc;

use super::apply::Applied;
use crate::catalog::{TreeState, TreeTable};
use crate::checkpoint::Store;
use crate::data_file::PagePointer;
use crate::ids::{CommitSeq, TreeId};
use crate::tree::{Apply, ApplyError, Compacting, Loading, MergedLeaf};

/// What one commit of compaction moves.
#[derive(Debug)]
pub(crate) struct Relocation {
    /// Which nodes are written anew.
    pub compacting: Compacting,
    /// The ranges of keys that it covers, in order of tree and key.
    pub ranges: Vec<MovedRange>,
    /// Copies of big values, in order of tree and key.
    pub values: Vec<MovedValue>,
    /// Leaves with their patches merged into them, written, by tree.
    pub merged: Vec<(TreeId, Vec<MergedLeaf>)>,
}

impl Relocation {
    /// Of leaves with their patches merged into them.
    pub(crate) fn of_merged(merged: Vec<(TreeId, Vec<MergedLeaf>)>) -> Relocation {
        let compacting = Compacting { end_block: u64::MAX, packs: false };
        Relocation { compacting, ranges: Vec::new(), values: Vec::new(), merged }
    }

    fn merged_of(&self, tree: TreeId) -> impl Iterator<Item = &MergedLeaf> {
        self.merged.iter().filter(move |(id, _)| *id == tree).flat_map(|(_, leaves)| leaves)
    }

    /// The pages of big values and leaves that were written for it.
    pub(super) fn pages(&self) -> impl Iterator<Item = PagePointer> {
        let of_values = self.values.iter().flat_map(|value| &value.pages).copied();
        of_values.chain(self.merged.iter().flat_map(|(_, leaves)| leaves).filter_map(MergedLeaf::page))
    }

    /// Whether it moves nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.values.is_empty() && self.merged.is_empty()
    }
}

/// A range of keys of one tree, up to the end of the tree without `to`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MovedRange {
    /// The tree.
    pub tree: TreeId,
    /// The first key.
    pub from: Vec<u8>,
    /// The key before which it ends.
    pub to: Option<Vec<u8>>,
}

/// A big value, copied to other extents.
#[derive(Debug)]
pub(crate) struct MovedValue {
    /// Its tree.
    pub tree: TreeId,
    /// Its key.
    pub key: Vec<u8>,
    /// The reference to the original, encoded.
    pub old: Vec<u8>,
    /// The reference to the copy, encoded.
    pub new: Vec<u8>,
    /// The pages of the copy.
    pub pages: Vec<PagePointer>,
}

/// The trees after a relocation.
#[derive(Debug)]
pub(super) struct Relocated {
    pub applied: Applied,
    /// Pages of copies and of leaves whose original was replaced meanwhile.
    pub unused: Vec<PagePointer>,
}

/// Applies a relocation to the trees of the latest root. Trees that were dropped meanwhile are left alone.
pub(super) fn relocate(
    store: &Store,
    trees: &TreeTable,
    relocation: &Relocation,
    seq: CommitSeq,
    loading: Loading,
) -> Result<Relocated, ApplyError> {
    let applied = Applied {
        trees: trees.clone(),
        replaced: Vec::new(),
        superseded: Vec::new(),
        deferred: Vec::new(),
        dropped_values: Vec::new(),
    };
    let mut relocated = Relocated { applied, unused: Vec::new() };
    let ids = relocation.ranges.iter().map(|range| range.tree);
    let ids = ids.chain(relocation.merged.iter().map(|(id, _)| *id));
    let mut ids: Vec<TreeId> = ids.chain(relocation.values.iter().map(|value| value.tree)).collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let values: Vec<&MovedValue> = relocation.values.iter().filter(|value| value.tree == id).collect();
        let known = relocated.applied.trees.get(id).filter(|tree| tree.dropped_at.is_none());
        let Some(tree) = known.filter(|tree| tree.slot.is_some()).map(Arc::clone) else {
            relocated.unused.extend(values.iter().flat_map(|value| &value.pages));
            relocated.unused.extend(relocation.merged_of(id).filter_map(MergedLeaf::page));
            continue;
        };
        one_tree(store, &mut relocated, &tree, &values, relocation, (seq, loading))?;
    }
    Ok(relocated)
}

fn one_tree(
    store: &Store,
    relocated: &mut Relocated,
    tree: &TreeState,
    values: &[&MovedValue],
    relocation: &Relocation,
    (seq, loading): (CommitSeq, Loading),
) -> Result<(), ApplyError> {
    let reducer = tree.reducer.as_deref();
    let mut apply = Apply::new(&store.pages, &store.geometry, seq, loading).reduced_by(reducer);
    let mut slot = tree.slot.clone().expect("the caller has seen it");
    for MovedValue { key, old, new, pages, .. } in values {
        // A value that was replaced since it was copied must not come back.
        match apply.with_value_moved(&slot, key, (old, new))? {
            Some(with) => slot = with,
            None => relocated.unused.extend(pages),
        }
    }
    let packs = relocation.compacting.packs && tree.can_be_packed();
    let compacting = Compacting { packs, ..relocation.compacting };
    for (_, leaves) in relocation.merged.iter().filter(|(id, _)| *id == tree.id) {
        slot = apply.merged(&slot, leaves, &mut relocated.unused)?;
    }
    for range in relocation.ranges.iter().filter(|range| range.tree == tree.id) {
        slot = apply.compacted(&slot, &range.from, range.to.as_deref(), compacting)?;
    }
    if tree.slot.as_ref().is_some_and(|before| before.same_as(&slot)) {
        return Ok(());
    }
    let applied = &mut relocated.applied;
    applied.replaced.append(&mut apply.replaced);
    applied.dropped_values.append(&mut apply.dropped_values);
    applied.trees.set(tree.id, Some(TreeState { slot: Some(slot), ..tree.clone() }));
    Ok(())
}
