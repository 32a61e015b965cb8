//! Merging patches into their leaves, so that new ones have room.

use std::sync::atomic::Ordering;

use super::Maintenance;
use crate::commit::Relocation;
use crate::error::Result;
use crate::ids::TreeId;
use crate::tree::{MergeSlice, MergedFrom, Merging, patch_lengths};

/// Of nodes that have not changed since the last checkpoint, patches of this part of a leaf are merged first,
/// and longer ones: what is cold should not be read with every leaf.
const COLD_PART: usize = 64;

/// In what order patches of cold nodes are merged: of nodes that have not changed since the last checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cold {
    /// Before all others: right before a checkpoint, commits seem to change these nodes no more.
    First,
    /// As all others: soon after a checkpoint, commits may not have come to them yet.
    AsOthers,
}

impl Maintenance {
    /// Makes room in memory if too much is dirty: writes dirty leaves, then merges patches. A checkpoint
    /// would write all patches again, and keep them in memory all the same.
    ///
    /// # Errors
    /// `Full` or `Io`; what was written and merged before stays so.
    pub(super) fn relieve_memory(&self) -> Result<()> {
        let meter = self.store.pages.meter();
        let is_due = || meter.latest_dirty_bytes() >= meter.dirty_bounds().checkpoint_from;
        let is_full = || is_due() || self.committer.throttle.delays(&self.store);
        if !is_full() {
            return Ok(());
        }
        self.write_leaves()?;
        if is_full() {
            self.merge_patches(Cold::AsOthers)?;
        }
        if !is_full() {
            self.committer.throttle.relieved();
        }
        Ok(())
    }

    /// Merges patches, until those that are left take no more than their part of the room: first cold ones,
    /// then the longest.
    ///
    /// A slice at a time is built, written, and put into the trees by a commit without a change.
    ///
    /// # Errors
    /// `Full` or `Io`; what was merged before stays so.
    pub(super) fn merge_patches(&self, cold: Cold) -> Result<()> {
        let _within = self.store.alarm.enter();
        let kept_bytes = self.store.pages.meter().kept_patch_bytes();
        self.merged_from(cold, kept_bytes).map_or(Ok(()), |merged_from| self.merge(merged_from))
    }

    /// Merges the longer half of all patches, if a commit has asked for it: with the patches that its leaves
    /// have, it would take more than the memory.
    ///
    /// # Errors
    /// `Full` or `Io`, which the commit is told, too; what was merged before stays so.
    pub(super) fn merge_on_request(&self) -> Result<()> {
        if !self.committer.throttle.take_request_to_merge() {
            return Ok(());
        }
        let _within = self.store.alarm.enter();
        let kept_bytes = self.store.pages.meter().patch_bytes() / 2;
        let merged_from = self.merged_from(Cold::AsOthers, kept_bytes);
        let merged = merged_from.map_or(Ok(()), |merged_from| self.merge(merged_from));
        self.committer.throttle.merged(merged.as_ref().err().cloned());
        merged
    }

    fn merge(&self, mut merged_from: MergedFrom) -> Result<()> {
        // Its commits would take the log that is left for deletes; those of a node are decided by others.
        if self.committer.log().is_refused() || self.committer.is_replica() {
            return Ok(());
        }
        let root = self.published_root();
        let trees: Vec<TreeId> =
            root.trees.iter().filter(|tree| tree.slot.is_some()).map(|tree| tree.id).collect();
        drop(root);
        for tree in trees {
            let mut next = Some(Vec::new());
            while let Some(from) = next.take() {
                next = self.merge_slice(tree, &from, &mut merged_from)?;
            }
        }
        Ok(())
    }

    /// Merges patches of a tree from a key on. Returns where to go on.
    fn merge_slice(
        &self,
        tree: TreeId,
        from: &[u8],
        merged_from: &mut MergedFrom,
    ) -> Result<Option<Vec<u8>>> {
        let held = self.committer.hold_published();
        let state = held.root().trees.get(tree).filter(|state| state.dropped_at.is_none());
        let Some((state, slot)) = state.and_then(|state| Some((state, state.slot.as_ref()?))) else {
            return Ok(None);
        };
        let merging = Merging {
            pages: &self.store.pages,
            reducer: state.reducer.as_deref(),
            birth: held.root().seq,
            merged_from,
            slice_bytes: self.store.give_back.compacted_bytes,
        };
        let MergeSlice { leaves, next } = merging.slice(slot, from);
        // What is merged must leave memory.
        drop(held);
        if !leaves.is_empty() {
            let count = leaves.len() as u64;
            self.committer.throttle.ensure_room_for_checkpoint(&self.store)?;
            self.checkpointer.write_ahead(tree, &leaves)?;
            self.committer.submit_relocation(Relocation::of_merged(vec![(tree, leaves)]))?;
            self.leaves_merged.fetch_add(count, Ordering::Relaxed);
        }
        Ok(next)
    }

    /// Which patches are merged so that this many bytes are left; `None` if they are no more.
    fn merged_from(&self, cold: Cold, kept_bytes: usize) -> Option<MergedFrom> {
        if self.store.pages.meter().patch_bytes() <= kept_bytes {
            return None;
        }
        let cold = (cold == Cold::First).then_some(self.store.geometry.leaf_bytes_max / COLD_PART);
        let root = self.published_root();
        let mut lengths = Vec::new();
        let trees = root.trees.iter().filter(|tree| tree.dropped_at.is_none());
        let slots = trees.filter_map(|tree| tree.slot.as_ref());
        slots.for_each(|slot| {
            patch_lengths(slot, &mut |is_cold, length| {
                if !is_cold || cold.is_none_or(|cold| length < cold) {
                    lengths.push(length);
                }
            });
        });
        lengths.sort_unstable();
        let excess = lengths.iter().sum::<usize>().saturating_sub(kept_bytes);
        if excess == 0 && cold.is_none() {
            return None;
        }
        let mut left = kept_bytes;
        let first = lengths.into_iter().find(|length| {
            let is_kept = *length <= left;
            left = left.saturating_sub(*length);
            !is_kept
        });
        Some(MergedFrom { cold, hot: (first.unwrap_or(usize::MAX), excess) })
    }
}
