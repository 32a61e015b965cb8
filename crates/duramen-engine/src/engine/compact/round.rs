//! The walks of a compaction over the groups of all trees, step by step.
//!
//! Each step reads the newest state and looks at few groups. Between steps the compaction reports progress,
//! and ends after a close. A step whose state is ended meanwhile, to free its space, is done again, smaller.

use super::slice::{Plan, Slice};
use super::{Compaction, Pace};
use crate::catalog::{Root, TreeState};
use crate::commit::MovedRange;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::tree::{Compacting, Group, GroupWalk, Slot};

/// A checkpoint follows at the earliest after so many slices of full size.
const SLICES_MIN: u64 = 4;

/// A checkpoint follows after so many slices, however small. Each takes a block of the log, which may find no
/// other room.
const SLICES_MAX: u64 = 128;

/// Where the next step begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    tree: TreeId,
    key: Vec<u8>,
}

impl Place {
    /// The place after the keys of a tree before `to`.
    fn after(tree: TreeId, to: Option<&[u8]>) -> Place {
        match to {
            Some(to) => Place { tree, key: to.to_vec() },
            None => Place { tree: TreeId(tree.0 + 1), key: Vec::new() },
        }
    }
}

/// How a walk goes over the trees.
#[derive(Clone, Copy)]
struct Walking {
    compacting: Compacting,
    group_bytes: usize,
    loads: bool,
}

/// Called with a group, its tree and the root of that, and the place after it. Returns whether to go on.
type Visit<'a> = dyn FnMut(Group, &TreeState, &Slot, &mut Place) -> Result<bool> + 'a;

impl Compaction<'_> {
    /// The blocks that packing saves. Groups that were not reached, because their state was ended again and
    /// again, count as packed.
    pub(super) fn blocks_saved_by_packing(&mut self) -> Result<u64> {
        let (mut place, mut pace) = (Place::default(), Pace::new(self.store.give_back.compacted_bytes));
        let mut saved = 0;
        loop {
            self.tell()?;
            let begins = place.clone();
            match self.saved_in_step(&mut place, &pace) {
                Ok((blocks, is_last)) => {
                    pace.step_done();
                    saved += blocks;
                    if is_last {
                        return Ok(saved);
                    }
                }
                Err(error) if error.code() != Code::SnapshotExpired => return Err(error),
                Err(_) if pace.state_ended() => place = begins,
                Err(_) => return Ok(saved),
            }
        }
    }

    /// The blocks that packing saves in the groups of one step, and whether there are no more.
    fn saved_in_step(&self, place: &mut Place, pace: &Pace) -> Result<(u64, bool)> {
        let held = self.committer.hold_published();
        let compacting = Compacting { end_block: u64::MAX, packs: true };
        let walking = Walking { compacting, group_bytes: pace.whole_bytes, loads: false };
        let (mut saved, mut groups_left) = (0, pace.groups);
        let walked = self.walk(held.root(), place, walking, &mut |group, _, _, _| {
            saved += group.blocks.saturating_sub(group.packed_blocks);
            groups_left -= 1;
            Ok(groups_left > 0)
        });
        if held.is_expired() { Err(state_ended()) } else { walked.map(|is_last| (saved, is_last)) }
    }

    /// Goes through all trees once.
    pub(super) fn round(&mut self, compacting: Compacting) -> Result<()> {
        let mut pace = Pace::new(self.store.give_back.compacted_bytes);
        let mut place = Place::default();
        let mut checkpoint_from = self.checkpoint_from(compacting);
        // A writer that appends may stay ahead of the walk: what was there at the start is moved once.
        let all_bytes = self.store.space.stats().used_blocks * self.store.geometry.block_bytes as u64;
        let ends_at = self.moved_bytes + all_bytes;
        while self.moved_bytes <= ends_at {
            self.tell()?;
            let begins = place.clone();
            let slices_before = self.slices_since_checkpoint;
            match self.step(&mut place, compacting, &pace) {
                Ok(is_last) => {
                    pace.step_done();
                    if self.slices_since_checkpoint > slices_before {
                        pace.slice_done();
                    }
                    if is_last {
                        return Ok(());
                    }
                }
                Err(error) if error.code() == Code::SnapshotExpired && pace.state_ended() => place = begins,
                Err(error) if error.code() == Code::DiskFull && pace.disk_full() => {
                    // What was moved so far frees room once it is checkpointed.
                    self.checkpoint()?;
                    place = begins;
                }
                Err(error) if error.code() == Code::DiskFull => {
                    return Err(error.with_hint(super::NO_ROOM_HINT));
                }
                Err(error) => return Err(error),
            }
            if self.since_checkpoint >= checkpoint_from || self.slices_since_checkpoint >= SLICES_MAX {
                self.checkpoint()?;
                pace.checkpointed();
                checkpoint_from = self.checkpoint_from(compacting);
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

    /// Commits the slice of one step. Returns whether it reached the end of the last tree.
    fn step(&mut self, place: &mut Place, compacting: Compacting, pace: &Pace) -> Result<bool> {
        let (slice, is_last) = self.plan(place, compacting, pace)?;
        if !slice.relocation.is_empty() {
            self.committer.submit_relocation(slice.relocation)?;
            self.moved_bytes += slice.stored_bytes;
            self.since_checkpoint += slice.bytes;
            self.slices_since_checkpoint += 1;
        }
        Ok(is_last)
    }

    /// The next slice, with its big values copied, and whether it is the last one.
    fn plan(&mut self, place: &mut Place, compacting: Compacting, pace: &Pace) -> Result<(Slice, bool)> {
        let held = self.committer.hold_published();
        let mut plan = Plan::new(self.store, self.committer, compacting, pace.slice_bytes as u64);
        let planned = self.plan_in(held.root(), &mut plan, place, pace);
        self.lacks_room |= plan.lacks_room();
        if held.is_expired() {
            return Err(state_ended());
        }
        let is_last = planned?;
        Ok((plan.finish(), is_last))
    }

    fn plan_in(&self, root: &Root, plan: &mut Plan<'_>, place: &mut Place, pace: &Pace) -> Result<bool> {
        let compacting = plan.compacting();
        let walking = Walking { compacting, group_bytes: pace.slice_bytes, loads: true };
        let mut groups_left = pace.groups;
        let begins = place.clone();
        self.walk(root, place, walking, &mut |group, tree, slot, place| {
            let mut range = MovedRange { tree: tree.id, from: group.from, to: group.to };
            // The last step may have ended inside of the group. Values before that would be tried again, and
            // the walk would stop there for ever.
            let values_from = if tree.id == begins.tree { &begins.key } else { &range.from };
            if let Some(key) = plan.values(tree, slot, values_from.max(&range.from), range.to.as_deref())? {
                *place = Place::after(tree.id, Some(&key));
                range.to = Some(key);
            }
            if group.is_due {
                plan.range(range, group.moved);
            }
            groups_left -= 1;
            Ok(groups_left > 0 && !plan.is_full())
        })
    }

    /// Visits groups of all trees from a place on, and moves it on. Returns whether the end of the last tree
    /// was reached.
    fn walk(&self, root: &Root, place: &mut Place, walking: Walking, visit: &mut Visit<'_>) -> Result<bool> {
        let (pages, geometry) = (&self.store.pages, &self.store.geometry);
        let Walking { compacting, group_bytes, loads } = walking;
        for tree in root.trees.iter().filter(|tree| tree.dropped_at.is_none()) {
            let Some(slot) = tree.slot.as_ref().filter(|_| tree.id >= place.tree) else { continue };
            let from = if tree.id == place.tree { std::mem::take(&mut place.key) } else { Vec::new() };
            let compacting = Compacting { packs: compacting.packs && tree.can_be_packed(), ..compacting };
            let mut goes_on = true;
            GroupWalk { pages, geometry, compacting, group_bytes, loads }.run(slot, &from, &mut |group| {
                *place = Place::after(tree.id, group.to.as_deref());
                goes_on = visit(group, tree, slot, place)?;
                Ok(goes_on)
            })?;
            if !goes_on {
                return Ok(false);
            }
            *place = Place::after(tree.id, None);
        }
        Ok(true)
    }
}

/// A state was ended to free its space: what was read may be something else.
fn state_ended() -> Error {
    Error::new(Code::SnapshotExpired, "the state that was read was ended")
}
