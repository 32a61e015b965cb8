//! Eviction: nodes that were not used lately leave memory, and those that only snapshots hold are written
//! back first.

use super::Maintenance;
use crate::alarm::locked_if_free;
use crate::catalog::Root;
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::tree::evict;

/// Eviction stops at this percentage of the memory bound.
const EVICT_TO_PERCENT: usize = 80;

/// Nodes that only snapshots hold are written back while memory stays above this percentage of its bound
/// after eviction.
const WRITE_BACK_FROM_PERCENT: usize = 90;

/// Dirty leaves are written once they take this part of what nodes may take, in percent, and patches
/// do, too: without patches a checkpoint costs little more.
const WRITE_LEAVES_PERCENT: usize = 12;

const _: () =
    assert!(EVICT_TO_PERCENT < WRITE_BACK_FROM_PERCENT, "an eviction that succeeds writes nothing back");

impl Maintenance {
    /// Evicts nodes that were not used lately, until memory is within its bound.
    pub(in crate::engine) fn evict(&self) {
        let meter = self.store.pages.meter();
        if !meter.eviction_due() {
            return;
        }
        let _within = self.store.alarm.enter();
        let root = self.published_root();
        // A thread that finds an eviction running goes on without one.
        let Some(mut hand) = locked_if_free(self.eviction.try_lock()) else { return };
        self.store.registry.let_go_before(root.seq);
        self.checkpointer.let_go_of_replaced(&root, &self.store.registry.roots());
        let (before, bytes_min) = (meter.resident_bytes(), meter.eviction_bytes_min());
        let enough = || {
            let freed = before.saturating_sub(meter.resident_bytes());
            freed >= bytes_min || meter.eviction_target(EVICT_TO_PERCENT) == 0
        };
        // Two rounds: the first clears the use bits.
        for _ in 0..2 {
            self.evict_from(&root, &mut hand, &enough);
            if enough() {
                break;
            }
            self.evict_from_older_roots(root.seq, &enough);
        }
        meter.evicted(enough());
    }

    /// Evicts from older registered roots. Nodes replaced since then stay in memory only through them.
    fn evict_from_older_roots(&self, newest: CommitSeq, enough: &dyn Fn() -> bool) {
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            for tree in root.trees.iter() {
                let Some(slot) = &tree.slot else { continue };
                let with = (&self.store.pages, tree.reducer.as_deref());
                if evict(with, slot, &[], enough).is_some() {
                    return;
                }
            }
        }
    }

    fn evict_from(&self, root: &Root, hand: &mut (TreeId, Vec<u8>), enough: &dyn Fn() -> bool) {
        let start_tree = hand.0;
        let ahead = root.trees.iter().filter(|tree| tree.id >= start_tree);
        let before = root.trees.iter().filter(|tree| tree.id <= start_tree);
        for tree in ahead.chain(before) {
            let Some(slot) = &tree.slot else { continue };
            let start = if hand.0 == tree.id { std::mem::take(&mut hand.1) } else { Vec::new() };
            if enough() {
                *hand = (tree.id, start);
                return;
            }
            let resume = evict((&self.store.pages, tree.reducer.as_deref()), slot, &start, enough);
            let stopped = resume.is_some();
            *hand = (tree.id, resume.unwrap_or_default());
            if stopped {
                return;
            }
        }
        if let Some(roots) = self.checkpointer.roots() {
            evict((&self.store.pages, None), &roots, &[], enough);
        }
        *hand = (TreeId(0), Vec::new());
    }

    /// Drops roots that are kept only for the next reader.
    pub(in crate::engine) fn let_go_of_old_roots(&self) {
        self.store.registry.let_go_before(self.committer.published().seq);
    }

    /// Writes dirty leaves, once they take much of the memory beside patches. They need not wait for a
    /// checkpoint, which would write all patches again.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(in crate::engine) fn write_leaves_when_due(&self) -> Result<()> {
        let meter = self.store.pages.meter();
        let due_from = meter.nodes_bytes_max() / 100 * WRITE_LEAVES_PERCENT;
        let is_due = meter.patch_bytes() >= due_from && meter.leaf_dirty_bytes() >= due_from;
        if is_due { self.write_leaves() } else { Ok(()) }
    }

    /// Writes dirty leaves, if no checkpoint is being written. What changes in them from now on becomes a
    /// patch.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(super) fn write_leaves(&self) -> Result<()> {
        if !self.store.patches || self.store.pages.meter().leaf_dirty_bytes() == 0 {
            return Ok(());
        }
        let _within = self.store.alarm.enter();
        // As in `write_back_snapshots`.
        let Some(_alone) = locked_if_free(self.one_at_a_time.try_lock()) else { return Ok(()) };
        self.store.alarm.check()?;
        let _writing = self.store.pages.meter().writing();
        self.checkpointer.write_leaves(&self.published_root())
    }

    /// Evicts nodes that only older snapshots hold. Nodes without a page pointer are written back first.
    ///
    /// # Errors
    /// `Full` or `Io`.
    pub(in crate::engine) fn write_back_snapshots(&self) -> Result<()> {
        // Nodes that only older roots hold count as dirty, and no checkpoint writes them. Without this,
        // commits could wait for ever.
        let commits_are_delayed = self.committer.throttle.delays(&self.store);
        if self.store.pages.meter().excess(WRITE_BACK_FROM_PERCENT) == 0 && !commits_are_delayed {
            return Ok(());
        }
        let _within = self.store.alarm.enter();
        // Not while a checkpoint has taken its root and not written it. Pages of a newer root would be in its
        // space map, and leak after a power cut.
        let Some(_alone) = locked_if_free(self.one_at_a_time.try_lock()) else { return Ok(()) };
        let _writing = self.store.pages.meter().writing();
        let newest = self.committer.published().seq;
        for root in self.store.registry.roots().iter().filter(|root| root.seq < newest) {
            // Pages written for dropped commits would never be freed.
            if !self.committer.is_kept(root) {
                continue;
            }
            self.checkpointer.write_back(root, &mut || ())?;
        }
        self.store.pages.meter().evict_again();
        self.evict();
        Ok(())
    }
}
