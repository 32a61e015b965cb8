//! Room in the data file: kept free ahead, made before commits need it, and given back.

use std::sync::atomic::Ordering;

use super::Maintenance;
use crate::alarm::locked;
use crate::commit::checkpoint_bytes;
use crate::error::Result;
use crate::features::Features;
use crate::ids::CommitSeq;
use crate::limits::MARK_IDLE_MS;
use crate::tree::{Compacting, GroupWalk, Slot};

/// A clean close keeps free room in the data file: this part of what is used, and that of the space map. The
/// next open may find the disk full, and must still delete (D7).
const REST_SPARE_PART: u64 = 16;

/// More is not kept by a close. A larger transaction of deletes must be split.
const REST_SPARE_BYTES_MAX: u64 = 24 << 20;

/// Less is kept only if it suffices to write every page anew: a delete changes no more than all pages. A
/// delete of one document with many views changes as many paths.
const REST_SPARE_BYTES_MIN: u64 = 2 << 20;

const _: () =
    assert!(REST_SPARE_BYTES_MIN < REST_SPARE_BYTES_MAX, "a small database keeps less than a large one");

/// Nodes above leaves that are looked at for how well leaves compress.
const SAMPLED_GROUPS: usize = 256;

/// Pages reclaimed by one checkpoint are free once the second checkpoint after it is durable.
const SETTLING_CHECKPOINTS: u64 = 3;

impl Maintenance {
    /// Cuts the file to the length that a closed or compacted database keeps.
    ///
    /// # Errors
    /// `Io`.
    pub(in crate::engine) fn cut_to_rest(&self) -> Result<()> {
        // A file in which a hole is punched is not cut. Only checkpoints punch holes.
        let _alone = locked(self.one_at_a_time.lock());
        self.store.space.cut_tail_to_rest(self.rest_spare_bytes(), &|| checkpoint_bytes(&self.store))
    }

    /// The room that a closed or compacted database keeps free in the data file.
    ///
    /// It is as much as the throttle wants for a checkpoint of that many dirty bytes, with a quarter more for
    /// fragmentation. Pages count as they are in memory.
    pub(in crate::engine) fn rest_spare_bytes(&self) -> u64 {
        let used_blocks = self.store.space.stats().used_blocks;
        let block_bytes = self.store.geometry.block_bytes as u64;
        // A large database keeps the most, whatever compression saves: no page is read to know it.
        if used_blocks.saturating_mul(block_bytes) / REST_SPARE_PART >= REST_SPARE_BYTES_MAX {
            return REST_SPARE_BYTES_MAX + self.store.space.map_bytes();
        }
        let whole_blocks = used_blocks.saturating_add(self.saved_blocks());
        let used = whole_blocks.saturating_mul(block_bytes);
        let everything = used.saturating_add(used / 4);
        let part = (used / REST_SPARE_PART).clamp(everything.min(REST_SPARE_BYTES_MIN), REST_SPARE_BYTES_MAX);
        part + self.store.space.map_bytes()
    }

    /// The blocks that compression saves, by a sample of the leaves. Commits find room for pages as they are
    /// in memory, since a changed leaf may compress worse.
    fn saved_blocks(&self) -> u64 {
        let data = self.store.pages.data();
        if !data.features().contains(Features::LZ4_PAGES) {
            return 0;
        }
        let held = self.committer.hold_published();
        let trees: Vec<_> = held.root().trees.iter().filter(|tree| tree.dropped_at.is_none()).collect();
        let some = trees.iter().step_by(trees.len().div_ceil(SAMPLED_GROUPS).max(1));
        let groups = (SAMPLED_GROUPS / trees.len().max(1)).max(1);
        some.filter_map(|tree| tree.slot.as_ref()).map(|slot| self.saved_blocks_of(slot, groups)).sum()
    }

    /// The blocks that compression saves in a tree, by its first groups of leaves.
    fn saved_blocks_of(&self, root: &Slot, mut groups: usize) -> u64 {
        let (pages, geometry) = (&self.store.pages, &self.store.geometry);
        let compacting = Compacting { end_block: u64::MAX, packs: false };
        let walk = GroupWalk { pages, geometry, compacting, group_bytes: usize::MAX, loads: false };
        let (mut saved, mut entries) = (0, 0);
        let walked = walk.run(root, &[], &mut |group| {
            saved += group.whole_blocks.saturating_sub(group.blocks);
            entries += group.entries;
            groups -= 1;
            Ok(groups > 0)
        });
        // Where a node cannot be read, those before it must do.
        drop(walked);
        let all = u128::from(saved) * u128::from(root.count) / u128::from(entries.max(1));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// The room kept free for the next checkpoint; see the throttle.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.memory_bytes() / 4
    }

    pub(super) fn give_space_back(&self, spare_bytes: u64) -> Result<()> {
        let held_blocks = self.checkpointer.release();
        let held_bytes = held_blocks * self.store.geometry.block_bytes as u64;
        if self.snapshot_space_bytes_max.is_some_and(|max| held_bytes > max)
            && let Some(oldest) = oldest_before(&self.store.registry.held(), self.checkpointer.freed_to())
        {
            self.store.registry.expire_before(oldest.next());
            self.checkpointer.release();
        }
        self.store.space.cut_tail(spare_bytes, &|| checkpoint_bytes(&self.store))?;
        // The checkpoint is durable all the same.
        if let Err(error) = self.store.space.punch(spare_bytes) {
            self.failed(error);
        }
        Ok(())
    }

    /// Makes room on the disk before commits need it.
    ///
    /// # Errors
    /// `Full`. Commits fail with the same error later.
    pub(in crate::engine) fn make_room(&self) -> Result<()> {
        let made = self.committer.throttle.make_room_ahead(&self.store);
        if let Err(error) = &made
            && self.checkpointer.ahead_bytes() > 0
        {
            // A checkpoint frees what the leaves written since the last one have replaced.
            self.committer.throttle.ask_for_room(error);
        }
        made
    }

    /// Makes an empty commit and a checkpoint while dropped trees are not reclaimed and no other commit
    /// comes. Each checkpoint reclaims one slice. It continues until everything is reclaimed and both
    /// superblocks agree.
    ///
    /// # Errors
    /// Any error of the commit or the checkpoint.
    pub(in crate::engine) fn reclaim_when_quiet(&self) -> Result<()> {
        let root = self.published_root();
        // A node orders no commit of its own accord: later ones let the pages go.
        if self.committer.is_replica()
            || root.seq > self.checkpointer.superblock().replay.seq
            || self.idle_ms(self.disk.monotonic_ns(), root.seq) < MARK_IDLE_MS
        {
            return Ok(());
        }
        // Checking every tree costs O(trees), so it is done once for each root.
        if self.rested_at.load(Ordering::Relaxed) == root.seq.0 {
            return Ok(());
        }
        // One with a page that cannot be read waits for the checkpoints of other commits.
        if root.trees.iter().any(|tree| tree.dropped_at.is_some() && self.checkpointer.can_reclaim(tree.id)) {
            self.settling.store(SETTLING_CHECKPOINTS, Ordering::Relaxed);
        } else if self.settling.load(Ordering::Relaxed) == 0 {
            self.rested_at.store(root.seq.0, Ordering::Relaxed);
            return Ok(());
        }
        self.committer.submit_nothing()?;
        self.checkpoint(&mut || ())?;
        self.settling.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The oldest of the held roots that holds space which is otherwise free: one before the checkpoint of the
/// older superblock. Later roots hold nothing, and new snapshots share the newest of them.
pub(in crate::engine) fn oldest_before(held: &[CommitSeq], freed_to: CommitSeq) -> Option<CommitSeq> {
    held.iter().copied().filter(|held| *held < freed_to).min()
}
