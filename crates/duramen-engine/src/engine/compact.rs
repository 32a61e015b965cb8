//! Compaction: moves what lies far back in the data file, so that the file can be cut, while others write.
//!
//! Freed blocks are used again, and long runs of them are given back as holes. But the file stays as long as
//! its last page is far back, and after many deletes leaves hold few entries each. A compaction works in
//! rounds:
//!
//! 1. It adds up what would be left if leaves were packed. The block after that, with a little room, is the
//!    aimed end of the file. Until the compaction ends, allocation prefers holes before the aimed end, and
//!    checkpoints move pages of the space map and of the tree of roots that lie beyond it.
//! 2. It goes through all trees by their inner nodes (`compact/round.rs`). Slice by slice it commits a
//!    relocation (`commit/relocate.rs`): nodes beyond the aimed end become dirty, and so do leaves that are
//!    packed. Big values beyond it are copied first. No entry changes, and the log record is empty.
//! 3. Checkpoints write dirty nodes to the first free blocks. Each is named in both superblocks, so that the
//!    blocks it replaced can be used by the next slices. While a dropped tree is left, only one superblock
//!    names it, and the checkpoint after it frees those blocks.
//! 4. At the end the file is cut, as by every checkpoint. If pages still lie beyond the aimed end, because
//!    other commits wrote them meanwhile or the room before it was not free yet, another round moves them.
//!
//! D1 to D3 hold by the rules of every commit and checkpoint. Nothing is stored about a compaction: one that
//! was interrupted has moved what it has moved, and the next one begins with the file as it is.

mod pace;
mod round;
mod slice;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use self::pace::Pace;
use super::Engine;
use super::maintenance::{Maintenance, oldest_before};
use crate::allocator::Space;
use crate::checkpoint::Store;
use crate::commit::Committer;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::tree::Compacting;

/// The aimed end leaves this part of what is left free, for checkpoints meanwhile and for long extents.
const ROOM_PART: u64 = 16;

/// The least room before the aimed end, in blocks.
const ROOM_BLOCKS_MIN: u64 = 32;

/// Rounds of one compaction.
const ROUNDS_MAX: u32 = 8;

/// Checkpoints at the end, if the last pages of the file are not free before.
const CUTS_MAX: u32 = 6;

const NO_ROOM_HINT: &str =
    "free some space on the disk, or delete something here, and run it again; what was moved stays moved";

/// Another round must have shortened the file by this part.
const GAIN_PART: u64 = 64;

/// The progress of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactProgress {
    /// Bytes of pages and values moved so far.
    pub moved_bytes: u64,
    /// Length of the data file now.
    pub file_bytes: u64,
    /// The length that this round aims at.
    pub aimed_bytes: u64,
}

/// The result of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactReport {
    /// Length of the data file before.
    pub before_bytes: u64,
    /// Length of the data file after.
    pub after_bytes: u64,
    /// Bytes of pages and values moved.
    pub moved_bytes: u64,
    /// Bytes of pages that only snapshots still need. They are free once these end.
    pub held_bytes: u64,
    /// The oldest snapshot that holds such pages.
    pub oldest_snapshot: Option<HeldSnapshot>,
}

/// A snapshot that holds space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldSnapshot {
    /// The commit whose state it reads.
    pub seq: CommitSeq,
    /// Its least age: for how long newer commits have existed. `None` if that is not known.
    pub age: Option<Duration>,
}

impl Engine {
    /// Moves pages and big values from the end of the data file to free space before it, packs leaves, and
    /// shortens the file. Reads and writes go on meanwhile.
    ///
    /// `progress` is called after each step: a slice, or a look at some neighbouring leaves. Its error stops
    /// the compaction; what was moved stays moved, and another call goes on from there. It must not wait for
    /// a thread that closes the database: a close waits until the compaction has ended.
    ///
    /// It reads all inner nodes twice, all leaves of trees with big values, and what it moves, which it
    /// writes once. It needs a little free space: at least that of one slice. What it replaces counts as
    /// space that snapshots hold: with `snapshot_space_bytes_max` it may end them.
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `InvalidArgument` (E0201) if a compaction of
    /// it runs already, or if it is a node of a cluster; `DiskFull` (E0301) if there is no room to move
    /// anything, or to go on; any error of `progress`. Those of a [read](crate::Error#reads), a
    /// [commit](crate::Error#commits) and a [checkpoint](crate::Error#checkpoints).
    pub fn compact(&self, progress: &mut dyn FnMut(&CompactProgress) -> Result<()>) -> Result<CompactReport> {
        let (committer, maintenance) = self.writer()?;
        committer.not_alone()?;
        if committer.is_replica() {
            return Err(Error::invalid("a node of a cluster is not compacted while it is one")
                .with_hint("detach it from its cluster first, and let it join again afterwards"));
        }
        let Some(_alone) = maintenance.compaction_lock() else {
            return Err(Error::invalid("a compaction of this database runs already")
                .with_hint("wait until it ends: a second one would find nothing to do"));
        };
        committer.usable()?;
        let store = &self.inner.store;
        let _aiming = Aiming(&store.space);
        let before_bytes = file_bytes(store);
        let mut compaction = Compaction {
            store,
            committer,
            maintenance,
            moved_bytes: 0,
            since_checkpoint: 0,
            slices_since_checkpoint: 0,
            lacks_room: false,
            progress,
        };
        compaction.run()?;
        let is_shorter = file_bytes(store) < before_bytes;
        if compaction.lacks_room && compaction.moved_bytes == 0 && !is_shorter {
            return Err(no_room());
        }
        let held_blocks = maintenance.checkpointer().release();
        let oldest = oldest_before(&store.registry.held(), maintenance.checkpointer().freed_to())
            .filter(|_| held_blocks > 0);
        Ok(CompactReport {
            before_bytes,
            after_bytes: file_bytes(store),
            moved_bytes: compaction.moved_bytes,
            held_bytes: held_blocks * store.geometry.block_bytes as u64,
            oldest_snapshot: oldest.map(|seq| HeldSnapshot { seq, age: maintenance.age_of(seq) }),
        })
    }
}

fn file_bytes(store: &Store) -> u64 {
    store.space.stats().file_blocks * store.geometry.block_bytes as u64
}

/// Ends the preference for the space before the aimed end.
struct Aiming<'a>(&'a Space);

impl Drop for Aiming<'_> {
    fn drop(&mut self) {
        self.0.aim_at(None);
    }
}

struct Compaction<'a> {
    store: &'a Arc<Store>,
    committer: &'a Arc<Committer>,
    maintenance: &'a Arc<Maintenance>,
    moved_bytes: u64,
    since_checkpoint: u64,
    slices_since_checkpoint: u64,
    /// A big value was not copied, because the disk has no room for it.
    lacks_room: bool,
    progress: &'a mut dyn FnMut(&CompactProgress) -> Result<()>,
}

impl Compaction<'_> {
    fn run(&mut self) -> Result<()> {
        self.reclaim_dropped()?;
        let mut end_before = u64::MAX;
        for round in 0..ROUNDS_MAX {
            // Once: what packing saves is an estimate, and a leaf that it does not fit would be packed again.
            let packs = round == 0;
            let saved_blocks = if packs { self.blocks_saved_by_packing()? } else { 0 };
            let stats = self.store.space.stats();
            let left = stats.used_blocks.saturating_sub(stats.waiting_blocks).saturating_sub(saved_blocks);
            let aimed = left + left / ROOM_PART + ROOM_BLOCKS_MIN;
            let is_short = stats.end_block <= aimed;
            if is_short && saved_blocks == 0 || stats.end_block > end_before - end_before / GAIN_PART {
                break;
            }
            end_before = if packs { u64::MAX } else { stats.end_block };
            self.store.space.aim_at(Some(aimed));
            let moved_before = self.moved_bytes;
            self.round(Compacting { end_block: aimed, packs })?;
            self.checkpoint()?;
            if self.moved_bytes == moved_before {
                break;
            }
        }
        self.cut()
    }

    /// Checkpoints until the file is cut. Transactions under way hold what was replaced since they began, and
    /// each checkpoint frees what the finished ones held.
    fn cut(&mut self) -> Result<()> {
        for _ in 0..CUTS_MAX {
            self.checkpoint()?;
            let end_block = self.store.space.stats().end_block;
            if self.store.space.aimed_end().is_none_or(|aimed| end_block <= aimed) {
                break;
            }
            self.tell()?;
            self.committer.throttle.let_others_end();
        }
        self.maintenance.cut_to_rest()
    }

    /// Checkpoints until the pages of trees that are dropped now are free. Each reclaims a part of them.
    fn reclaim_dropped(&mut self) -> Result<()> {
        let dropped = self.dropped_trees();
        loop {
            self.committer.submit_nothing()?;
            self.checkpoint()?;
            self.tell()?;
            let left = self.dropped_trees();
            if !dropped.iter().any(|tree| left.contains(tree)) {
                break;
            }
        }
        // The older superblock still names what the last of them reclaimed.
        if dropped.is_empty() { Ok(()) } else { self.checkpoint() }
    }

    /// The dropped trees with pages that can be reclaimed. A root lists a reclaimed tree until a checkpoint
    /// finds no commit under way, which may be long beside busy writers.
    fn dropped_trees(&self) -> BTreeSet<TreeId> {
        let checkpointer = self.maintenance.checkpointer();
        let root = self.committer.published();
        let reclaimed = checkpointer.reclaimed();
        let dropped = root.trees.iter().filter(|tree| tree.dropped_at.is_some()).map(|tree| tree.id);
        dropped.filter(|tree| checkpointer.can_reclaim(*tree) && !reclaimed.contains(tree)).collect()
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.committer.usable()?;
        (self.since_checkpoint, self.slices_since_checkpoint) = (0, 0);
        self.maintenance.checkpoint_twice(self.maintenance.rest_spare_bytes())
    }

    fn tell(&mut self) -> Result<()> {
        self.committer.usable()?;
        let block_bytes = self.store.geometry.block_bytes as u64;
        let file_bytes = file_bytes(self.store);
        let aimed = self.store.space.aimed_end();
        (self.progress)(&CompactProgress {
            moved_bytes: self.moved_bytes,
            file_bytes,
            aimed_bytes: aimed.map_or(file_bytes, |blocks| blocks * block_bytes),
        })
    }
}

fn no_room() -> Error {
    Error::new(Code::DiskFull, "there is no room to move anything").with_hint(NO_ROOM_HINT)
}
