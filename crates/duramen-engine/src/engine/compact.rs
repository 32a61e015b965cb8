//! Compaction: moves what lies far back in the data file, so that the file can be cut, while others write.
//!
//! Freed blocks are used again, and long runs of them are given back as holes. But the file stays as long as
//! its last page is far back, and after many deletes leaves hold few entries each. A compaction works in
//! rounds:
//!
//! 1. It adds up what would be left if leaves were packed. The block after that, with a little room, is the
//!    aimed end of the file. Until the compaction ends, allocation prefers holes before the aimed end, and
//!    checkpoints move pages of the space map and of the tree of roots that lie beyond it.
//! 2. It goes through all trees by their inner nodes. Slice by slice it commits a relocation
//!    (`commit/relocate.rs`): nodes beyond the aimed end become dirty, and so do leaves that are packed. Big
//!    values beyond it are copied first. No entry changes, and the log record is empty.
//! 3. Checkpoints write dirty nodes to the first free blocks. Each is named in both superblocks, so that the
//!    blocks it replaced can be used by the next slices.
//! 4. At the end the file is cut, as by every checkpoint. If pages still lie beyond the aimed end, because
//!    other commits wrote them meanwhile or the room before it was not free yet, another round moves them.
//!
//! D1 to D3 hold by the rules of every commit and checkpoint. Nothing is stored about a compaction: one that
//! was interrupted has moved what it has moved, and the next one begins with the file as it is.

mod slice;

use std::sync::Arc;
use std::time::Duration;

use self::slice::Plan;
use super::Engine;
use super::maintenance::{Maintenance, oldest_before};
use crate::allocator::Space;
use crate::catalog::Root;
use crate::checkpoint::Store;
use crate::commit::{Committer, MovedRange, Relocation};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::tree::{Compacting, GroupWalk};

/// On a full disk slices become smaller, down to this part of their size.
const SLICE_PART_MIN: usize = 64;

/// The aimed end leaves this part of what is left free, for checkpoints meanwhile and for long extents.
const ROOM_PART: u64 = 16;

/// The least room before the aimed end, in blocks.
const ROOM_BLOCKS_MIN: u64 = 32;

/// A checkpoint follows at the earliest after so many slices.
const SLICES_MIN: u64 = 4;

/// Rounds of one compaction.
const ROUNDS_MAX: u32 = 8;

/// Checkpoints at the end, if the last pages of the file are not free before.
const CUTS_MAX: u32 = 6;

/// So many slices in turn may lose the state that they read, which is ended to free its space.
const EXPIRED_MAX: u32 = 8;

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
    /// `progress` is called after each slice. Its error stops the compaction; what was moved stays moved, and
    /// another call goes on from there. It reads all inner nodes, and reads and writes what it moves. It
    /// needs a little free space: at least that of one slice.
    ///
    /// # Errors
    /// `ReadOnly` (E0204) if the database was opened read-only; `InvalidArgument` (E0201) if a compaction of
    /// it runs already; `DiskFull` (E0301) if there is no room to move anything; any error of `progress`.
    /// Those of a [read](crate::Error#reads), a [commit](crate::Error#commits) and a
    /// [checkpoint](crate::Error#checkpoints).
    pub fn compact(&self, progress: &mut dyn FnMut(&CompactProgress) -> Result<()>) -> Result<CompactReport> {
        let (committer, maintenance) = self.writer()?;
        committer.not_alone()?;
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
            lacks_room: false,
            progress,
        };
        compaction.run()?;
        if compaction.lacks_room && compaction.moved_bytes == 0 {
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

/// Where the next slice begins.
#[derive(Debug, Clone, Default)]
struct Place {
    tree: TreeId,
    key: Vec<u8>,
}

struct Compaction<'a> {
    store: &'a Arc<Store>,
    committer: &'a Arc<Committer>,
    maintenance: &'a Arc<Maintenance>,
    moved_bytes: u64,
    since_checkpoint: u64,
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

    /// Checkpoints until the pages of dropped trees are free. Each reclaims a part of them.
    fn reclaim_dropped(&mut self) -> Result<()> {
        loop {
            self.committer.submit_nothing()?;
            self.checkpoint()?;
            self.tell()?;
            let root = self.committer.published();
            let checkpointer = self.maintenance.checkpointer();
            if !root.trees.iter().any(|tree| tree.dropped_at.is_some() && checkpointer.can_reclaim(tree.id)) {
                return Ok(());
            }
        }
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.committer.usable()?;
        self.since_checkpoint = 0;
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

    fn walk(&self, compacting: Compacting, group_bytes: usize, loads: bool) -> GroupWalk<'_> {
        let (pages, geometry) = (&self.store.pages, &self.store.geometry);
        GroupWalk { pages, geometry, compacting, group_bytes, loads }
    }

    fn blocks_saved_by_packing(&self) -> Result<u64> {
        let held = self.committer.hold_published();
        let mut saved = 0;
        for tree in held.root().trees.iter().filter(|tree| tree.dropped_at.is_none()) {
            let compacting = Compacting { end_block: u64::MAX, packs: tree.can_be_packed() };
            let walk = self.walk(compacting, self.store.give_back.compacted_bytes, false);
            let Some(slot) = &tree.slot else { continue };
            walk.run(slot, &[], &mut |group| {
                saved += group.blocks.saturating_sub(group.packed_blocks);
                Ok(true)
            })?;
        }
        Ok(saved)
    }

    /// Goes through all trees once.
    fn round(&mut self, compacting: Compacting) -> Result<()> {
        let whole_bytes = self.store.give_back.compacted_bytes;
        let mut slice_bytes = whole_bytes;
        let mut place = Place::default();
        let mut expired_count = 0;
        // A writer that appends may stay ahead of the walk: what was there at the start is moved once.
        let all_bytes = self.store.space.stats().used_blocks * self.store.geometry.block_bytes as u64;
        let ends_at = self.moved_bytes + all_bytes;
        while self.moved_bytes <= ends_at {
            self.tell()?;
            let begins = place.clone();
            match self.slice(&mut place, compacting, slice_bytes) {
                Ok(true) => expired_count = 0,
                Ok(false) => return Ok(()),
                Err(error) if error.code() == Code::SnapshotExpired && expired_count < EXPIRED_MAX => {
                    expired_count += 1;
                    slice_bytes = (slice_bytes / 2).max(whole_bytes / SLICE_PART_MIN);
                    place = begins;
                }
                Err(error)
                    if error.code() == Code::DiskFull && slice_bytes > whole_bytes / SLICE_PART_MIN =>
                {
                    // What was moved so far frees room once it is checkpointed.
                    self.checkpoint()?;
                    slice_bytes /= 4;
                    place = begins;
                }
                Err(error) if error.code() == Code::DiskFull => return Err(error.with_hint(NO_ROOM_HINT)),
                Err(error) => return Err(error),
            }
            if self.since_checkpoint >= self.checkpoint_from(compacting) {
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    /// A checkpoint follows after so many bytes: before they delay other commits, and before the room ahead
    /// of the aimed end is used up.
    fn checkpoint_from(&self, compacting: Compacting) -> u64 {
        let bounds = self.store.pages.meter().dirty_bounds();
        let room = self.store.space.free_blocks_before(compacting.end_block);
        let room_bytes = room * self.store.geometry.block_bytes as u64;
        (bounds.checkpoint_from as u64 / 2)
            .min((room_bytes / 2).max(SLICES_MIN * self.store.give_back.compacted_bytes as u64))
    }

    /// Commits one slice. Returns `false` if nothing was left to move.
    fn slice(&mut self, place: &mut Place, compacting: Compacting, slice_bytes: usize) -> Result<bool> {
        let Some((relocation, bytes)) = self.plan(place, compacting, slice_bytes)? else { return Ok(false) };
        if !relocation.is_empty() {
            self.committer.submit_relocation(relocation)?;
            self.moved_bytes += bytes;
            self.since_checkpoint += bytes;
        }
        Ok(true)
    }

    /// The next slice, with its big values copied, and its bytes.
    fn plan(
        &mut self,
        place: &mut Place,
        compacting: Compacting,
        slice_bytes: usize,
    ) -> Result<Option<(Relocation, u64)>> {
        let held = self.committer.hold_published();
        let mut plan = Plan::new(self.store, self.committer, compacting);
        let planned = self.plan_in(held.root(), &mut plan, place, slice_bytes);
        self.lacks_room |= plan.lacks_room();
        if held.is_expired() {
            // Ended to free its space: what was read may be something else.
            return Err(Error::new(Code::SnapshotExpired, "the state that was read was ended"));
        }
        planned.map(|()| plan.finish())
    }

    fn plan_in(&self, root: &Root, plan: &mut Plan<'_>, place: &mut Place, slice_bytes: usize) -> Result<()> {
        let compacting = plan.compacting();
        let is_full = |plan: &Plan<'_>| plan.handled_bytes() >= slice_bytes as u64;
        for tree in root.trees.iter() {
            if tree.id < place.tree {
                continue;
            }
            let Some(slot) = tree.slot.as_ref().filter(|_| tree.dropped_at.is_none()) else { continue };
            let from = if tree.id == place.tree { std::mem::take(&mut place.key) } else { Vec::new() };
            let compacting = Compacting { packs: compacting.packs && tree.can_be_packed(), ..compacting };
            let walk = self.walk(compacting, slice_bytes, true);
            walk.run(slot, &from, &mut |group| {
                let range = MovedRange { tree: tree.id, from: group.from, to: group.to };
                *place = match &range.to {
                    Some(to) => Place { tree: tree.id, key: to.clone() },
                    None => Place { tree: TreeId(tree.id.0 + 1), key: Vec::new() },
                };
                plan.values(tree, slot, &range)?;
                if group.is_due {
                    plan.range(range, group.bytes as u64);
                }
                Ok(!is_full(plan))
            })?;
            if is_full(plan) {
                break;
            }
            *place = Place { tree: TreeId(tree.id.0 + 1), key: Vec::new() };
        }
        Ok(())
    }
}

fn no_room() -> Error {
    Error::new(Code::DiskFull, "there is no room to move anything").with_hint(NO_ROOM_HINT)
}
