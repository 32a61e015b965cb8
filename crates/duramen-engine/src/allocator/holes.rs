//! Gives free blocks back to the file system: cuts the file's tail, punches holes, and takes holes back.

use super::bitmap::Bitmap;
use super::{Space, State};
use crate::alarm::invariant;
use crate::error::{Error, Result};
use crate::options::GiveBack;

/// Punch holes only if free blocks are at least a quarter of the used ones; a few are soon reused.
const FREE_PART: u64 = 4;

/// The free runs that may be holes. Marks them as used.
pub(super) fn possible(used: &mut Bitmap, run_blocks_min: u32) -> Bitmap {
    let holes = Bitmap::of_extents(&used.free_runs(run_blocks_min));
    holes.runs_from(0).for_each(|(block, block_count)| used.set(block, block_count));
    holes
}

impl Space {
    /// Cuts the file down to `spare_bytes` beyond the last used block, if that is much; deferred blocks count
    /// as used. The next commits would reserve a little again.
    ///
    /// At least `needed` and the space map stay: what a checkpoint of the commits that are ordered needs
    /// (D7). It is asked under the lock. A commit counts as dirty before it looks for its room, which takes
    /// this lock: it is in `needed`, or finds the room gone.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn cut_tail(&self, spare_bytes: u64, needed: &dyn Fn() -> u64) -> Result<()> {
        self.cut_beyond(spare_bytes, needed, |keep| keep + keep / 8 + 16)
    }

    /// As [`Space::cut_tail`], for a database that will rest: cuts what there is.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn cut_tail_to_rest(&self, spare_bytes: u64, needed: &dyn Fn() -> u64) -> Result<()> {
        self.cut_beyond(spare_bytes, needed, |keep| keep)
    }

    fn cut_beyond(
        &self,
        spare_bytes: u64,
        needed: &dyn Fn() -> u64,
        slack_end: impl Fn(u64) -> u64,
    ) -> Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        let mut state = self.lock();
        let spare_bytes = match needed() {
            0 => spare_bytes,
            bytes => spare_bytes.max(bytes + self.map_bytes_in(&state)),
        };
        let in_use = state.in_use_blocks();
        let end = state.used.end_not_in(&state.holes);
        let mut keep = end + spare_bytes.div_ceil(block_bytes);
        let is_worth_it = |state: &State, keep: u64| state.file_blocks > slack_end(keep);
        if !is_worth_it(&state, keep) || state.punching.is_some() {
            return Ok(());
        }
        if state.used.end() > end {
            // The spare must not be a hole. If there is no room to reserve it, the room after the holes is
            // kept.
            if self.reserve(end, keep).is_ok() {
                let is_hole_to = state.used.end().min(keep);
                state.fill(end, is_hole_to);
            } else {
                keep = state.used.end() + (keep - end);
            }
        }
        if !is_worth_it(&state, keep) {
            return Ok(());
        }
        invariant!(keep >= end, "a file used up to block {end} is not cut to {keep} blocks");
        let path = self.data.path();
        self.data.file().set_len(keep * block_bytes).map_err(|e| Error::io("shorten", path, &e))?;
        state.file_blocks = keep;
        state.room_blocks = state.room_blocks.min(keep);
        state.holes.clear_from(keep);
        state.used.clear_from(keep);
        let left = state.in_use_blocks();
        invariant!(left == in_use, "a file cut to {keep} blocks keeps {in_use} in use, not {left}");
        debug_assert!(state.is_consistent(), "the maps agree after the file was cut to {keep} blocks");
        Ok(())
    }

    /// Gives reserved room at the end of the file back to a full file system, for a segment of the log.
    /// Returns whether there was enough.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn give_up_ahead(&self, bytes: u64) -> Result<bool> {
        let block_bytes = self.data.block_bytes() as u64;
        let mut state = self.lock();
        let Some(keep) = state.file_blocks.checked_sub(bytes.div_ceil(block_bytes)) else { return Ok(false) };
        if keep < state.used.end() {
            return Ok(false);
        }
        let path = self.data.path();
        self.data.file().set_len(keep * block_bytes).map_err(|e| Error::io("shorten", path, &e))?;
        state.file_blocks = keep;
        state.room_blocks = state.room_blocks.min(keep);
        Ok(true)
    }

    /// Punches holes into long runs of free blocks, the last ones first, where there are many. Keeps the
    /// blocks that one checkpoint takes. Keeps what deletes and checkpoints need on a full disk: half of the
    /// free blocks plus the reserved room come to `spare_bytes` (D7).
    ///
    /// D3: only blocks that are clear in `used` are punched. They could be handed out and overwritten as
    /// well: see the module's rule of release. What replay leaves clear was replaced or dropped by a later
    /// frame of the log and is never read. A page without a registered reader is only read in memory. No
    /// block is handed out while it is punched: its run is marked first, and taken back only after the call
    /// has returned.
    ///
    /// # Errors
    /// `Io`; the run stays marked as a hole.
    pub(crate) fn punch(&self, spare_bytes: u64) -> Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        for (block, block_count) in self.runs_to_punch(spare_bytes.div_ceil(block_bytes)) {
            {
                let mut state = self.lock();
                if !state.used.none_set(block, block_count) {
                    continue;
                }
                state.used.set(block, block_count);
                state.holes.set(block, block_count);
                state.first_hole = state.first_hole.min(block);
                state.punching = Some((block, block_count));
            }
            let bytes = u64::from(block_count) * block_bytes;
            let punched = self.data.file().punch(self.data.offset(block), bytes);
            let mut state = self.lock();
            let was = state.punching.take();
            invariant!(
                was == Some((block, block_count)),
                "{block_count} blocks from {block} on are the hole"
            );
            debug_assert!(
                state.holes.all_set(block, block_count),
                "no block in {block}+{block_count} was taken"
            );
            drop(state);
            punched.map_err(|e| Error::io("punch a hole in", self.data.path(), &e))?;
        }
        Ok(())
    }

    fn runs_to_punch(&self, spare_blocks: u64) -> Vec<(u64, u32)> {
        let GiveBack { run_blocks_min, free_blocks_min, punch_blocks_max, .. } = self.give_back;
        let mut state = self.lock();
        state.hole_refused = false;
        let taken = std::mem::take(&mut state.taken_blocks);
        let free = state.free_between_blocks();
        let in_use = state.in_use_blocks();
        debug_assert!(state.is_consistent(), "the maps agree before {free} free blocks are chosen from");
        if free < free_blocks_min || free * FREE_PART < in_use {
            return Vec::new();
        }
        let stays = taken.max(spare_blocks.saturating_sub(state.kept_back_blocks()));
        let mut left = free.saturating_sub(2 * stays).min(punch_blocks_max);
        let mut chosen = Vec::new();
        // Compaction fills what lies before the end that it aims at.
        let from = state.aimed_end.unwrap_or(0);
        let runs = state.used.free_runs(run_blocks_min).into_iter().rev();
        for (block, block_count) in runs.filter(|(block, _)| *block >= from) {
            if left < u64::from(run_blocks_min) {
                break;
            }
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(block_count);
            chosen.push((block + u64::from(block_count - count), count));
            left -= u64::from(count);
        }
        let within = |(block, count): &(u64, u32)| state.used.none_set(*block, *count);
        debug_assert!(chosen.iter().all(within), "only free blocks are punched: {chosen:?}");
        chosen
    }

    /// Turns the start of the first hole of at least `block_count` blocks into free blocks, if it lies before
    /// block `before` and the disk has room.
    ///
    /// D7: turns the whole hole if the rest would be shorter than `run_blocks_min`. The next opening takes
    /// only longer runs for holes, and would count that rest as room that needs no reservation.
    pub(super) fn take_back(&self, state: &mut State, block_count: u32, before: u64) -> Option<u64> {
        let (block, count) = state.next_hole(block_count).filter(|(block, _)| *block < before)?;
        let piece =
            u32::try_from(self.give_back.take_back_bytes / self.data.block_bytes()).unwrap_or(u32::MAX);
        let or_all = |wanted: u32| {
            if count - wanted < self.give_back.run_blocks_min { count } else { wanted }
        };
        let to = |count: u32| block + u64::from(count);
        let mut sizes = [count.min(piece.max(block_count)), block_count].map(or_all).into_iter();
        let is_hole = state.holes.all_set(block, 1) && state.holes.all_set(to(count) - 1, 1);
        invariant!(is_hole, "{count} blocks from {block} on are a hole");
        let reserved = sizes.find(|size| self.reserve(block, to(*size)).is_ok());
        state.hole_refused = reserved.is_none();
        state.fill(block, to(reserved?));
        Some(block)
    }

    /// If the file cannot grow: takes holes back until twice what is missing of `blocks` is free.
    pub(super) fn take_back_instead(&self, state: &mut State, blocks: u64) {
        let is_enough = |state: &State| state.kept_back_blocks() + state.free_between_blocks() / 2 >= blocks;
        while !is_enough(state) && self.take_back(state, 1, u64::MAX).is_some() {}
    }
}

impl State {
    /// The first hole of at least this many blocks that is not being punched.
    fn next_hole(&mut self, block_count: u32) -> Option<(u64, u32)> {
        let (at, blocks) = self.punching.unwrap_or((u64::MAX, 0));
        let is_ready = |(block, count): &(u64, u32)| {
            let is_apart = *block >= at.saturating_add(blocks.into()) || block + u64::from(*count) <= at;
            is_apart && *count >= block_count
        };
        let mut holes = self.holes.runs_from(self.first_hole).peekable();
        let first = holes.peek()?.0;
        let found = holes.find(is_ready);
        drop(holes);
        self.first_hole = first;
        found
    }

    /// Turns holes in a range, and free blocks, into free blocks.
    pub(super) fn fill(&mut self, from: u64, to: u64) {
        let count = u32::try_from(to - from).expect("a hole, or the room of a checkpoint");
        let (used, holes) = (self.used.used(), self.holes.used());
        self.holes.clear(from, count);
        self.used.clear(from, count);
        // D3: otherwise blocks of a page would be handed out.
        let (freed, filled) = (used - self.used.used(), holes - self.holes.used());
        invariant!(freed == filled, "the {freed} blocks freed from {from} to {to} are {filled} of holes");
    }
}
