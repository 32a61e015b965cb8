//! Which blocks of the data file are used, and for what.
//!
//! Owns the bitmap of used blocks, the pending-free list, and the room reserved for checkpoints on a full
//! disk (D7).
//!
//! The rule of release (D3): when freed blocks may be used again. Commit `c` replaces a page. An older
//! superblock's root may still lead to it, and so may a snapshot before `c`. The log after a superblock may
//! name it if it is a piece of a big value. Of the two superblocks the older counts, because it is what
//! remains if the newer is lost. A free is therefore deferred (`waiting`). [`Space::release`] frees an extent
//! once the older superblock's root is of commit `c` or later and no snapshot lies between the commit that
//! made it and `c`.
//!
//! 1. A leader defers the free of a group's replaced pages before a checkpoint can take the new root.
//!    Otherwise that checkpoint's map could call them used, and a crash would leak them.
//! 2. [`Space::draft`] writes the map of the checkpoint's own root, without deferred extents. The
//!    pending-free list need not be stored: after a crash those blocks are free.
//! 3. Data sync, superblock, sync; then [`Space::adopt`] frees `stale`, which only the overwritten
//!    superblock's map and tree of roots used; then `release`. Either of them before the second sync would
//!    let new pages overwrite the only durable checkpoint.
//! 4. `release` lists the snapshots when the older superblock is settled. A reader that registers later gets
//!    a newer root than that one's, so it needs nothing that is freed.
//! 5. At opening, [`Space::hold`] defers what only the older superblock's map uses. Then, before any
//!    allocation, replay marks the values that the log names. That includes values replaced later: readers of
//!    the log need them until a checkpoint is after it.
//!
//! Values of the log are durable before their record, in blocks that no map contains yet (`unrooted`).
//! Allocation and that note are one step under the lock; otherwise a map drafted in between would call the
//! blocks used. If the value is then given up, they can hold another value by the time that map is the older
//! one. Opening would hold them for the old map and free them under their new owner.
//!
//! Holes. Long free runs are given back to the file system (`holes.rs`); the file keeps its length. In memory
//! holes count as used, so that they are not handed out and no reserved room lies in one. Statistics and
//! stored maps show them as free. Holes are not stored: after opening, every long free run and everything
//! beyond the last used block may be one. Before the file grows, a hole's blocks are reserved again.

mod bitmap;
mod holes;
mod persist;
mod sound;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::alarm::invariant;
use crate::data_file::{DataFile, PAGE_HEADER_BYTES, PagePointer, first_free_block};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::GiveBack;

pub(crate) use bitmap::PAGE_WORDS;
use bitmap::{Bitmap, PAGE_BLOCKS};
pub(crate) use persist::{MapDraft, PersistedMap, map_words};
use sound::Soundness;

/// An extent that newer roots do not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeferredExtent {
    /// First block.
    pub block: u64,
    /// Blocks.
    pub block_count: u32,
    /// The first commit with a root that uses it.
    pub birth: CommitSeq,
    /// The first commit with a root that does not.
    pub unused_since: CommitSeq,
}

/// Use of the space, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceStats {
    /// In use for anything.
    pub used_blocks: u64,
    /// On the pending-free list.
    pub waiting_blocks: u64,
    /// One after the last block in use.
    pub end_block: u64,
    /// Blocks the file reserves from the file system.
    pub file_blocks: u64,
}

/// Blocks that only the trees of one root can use.
#[derive(Debug)]
pub(crate) struct TreeBlocks(Bitmap);

impl TreeBlocks {
    /// Removes extents that something else leads to.
    pub(crate) fn remove(&mut self, extents: &[(u64, u32)]) {
        extents.iter().for_each(|(block, block_count)| self.0.clear(*block, *block_count));
    }

    /// The blocks in none of these extents: nothing leads to them.
    #[must_use]
    pub(crate) fn not_in(&self, reached: &[(u64, u32)]) -> Vec<(u64, u32)> {
        self.0.runs_not_in(&self.map_of(reached))
    }

    /// The extents as a map no longer than this one: a hostile page may name any block.
    fn map_of(&self, reached: &[(u64, u32)]) -> Bitmap {
        let end = self.0.end();
        let mut map = Bitmap::default();
        for (block, count) in reached.iter().filter(|(block, _)| *block < end) {
            let left = u32::try_from(end - block).unwrap_or(u32::MAX);
            map.set(*block, left.min(*count));
        }
        map
    }
}

/// The blocks of the data file.
#[derive(Debug)]
pub(crate) struct Space {
    data: DataFile,
    give_back: GiveBack,
    state: Mutex<State>,
    soundness: Soundness,
}

#[derive(Debug)]
struct State {
    /// Includes holes.
    used: Bitmap,
    /// Blocks that the file system may have back.
    holes: Bitmap,
    /// No hole lies before this block.
    first_hole: u64,
    /// The hole being punched.
    punching: Option<(u64, u32)>,
    /// The file system had no room for a hole since the last checkpoint.
    hole_refused: bool,
    /// Blocks handed out since the last checkpoint.
    taken_blocks: u64,
    waiting: Vec<DeferredExtent>,
    /// Extents unused since this commit were freed: no root before it may be read, or become durable.
    released_to: CommitSeq,
    /// Extents of big values that no checkpoint contains yet, with their commit once there is one.
    unrooted: BTreeMap<u64, (u32, Option<CommitSeq>)>,
    persisted: PersistedMap,
    /// Extents that only the older checkpoint's map and tree of roots use; freed once it is overwritten.
    /// Counted by checkpoints, not by commits: two checkpoints in a row may be of the same commit.
    stale: Vec<(u64, u32)>,
    /// Length of the file.
    file_blocks: u64,
    /// Blocks before this one exist without a reservation, except holes.
    room_blocks: u64,
    /// The first block after the superblocks.
    first_block: u64,
    /// While compaction runs: pages from this block on are moved, and holes before it are used first.
    aimed_end: Option<u64>,
    /// A contradiction found under the lock, reported after its release.
    contradiction: Option<Error>,
}

impl Space {
    /// An empty data file: only the superblocks' blocks are used.
    #[must_use]
    pub(crate) fn new(data: DataFile, give_back: GiveBack) -> Space {
        let mut used = Bitmap::default();
        let first = first_free_block(data.block_bytes());
        used.set(0, u32::try_from(first).expect("the superblock area is small"));
        // After a crash before the first checkpoint, the log may name extents anywhere in the file.
        let file_blocks = data.file().len().unwrap_or(0) / data.block_bytes() as u64;
        Space::with(data, give_back, used, PersistedMap::default(), file_blocks)
    }

    /// Begins with the used blocks of a map. The rest may be holes.
    fn with(
        data: DataFile,
        give_back: GiveBack,
        mut used: Bitmap,
        persisted: PersistedMap,
        file_blocks: u64,
    ) -> Space {
        let holes = holes::possible(&mut used, give_back.run_blocks_min);
        let room_blocks = used.end();
        let first_block = first_free_block(data.block_bytes());
        let state = State {
            used,
            holes,
            first_hole: 0,
            punching: None,
            hole_refused: false,
            taken_blocks: 0,
            waiting: Vec::new(),
            released_to: CommitSeq(0),
            unrooted: BTreeMap::new(),
            persisted,
            stale: Vec::new(),
            file_blocks,
            room_blocks,
            first_block,
            aimed_end: None,
            contradiction: None,
        };
        Space { data, give_back, state: Mutex::new(state), soundness: Soundness::default() }
    }

    /// Allocates `block_count` consecutive blocks.
    ///
    /// # Errors
    /// `Full` if the file would have to grow and the file system has no room.
    pub(crate) fn allocate(&self, block_count: u32) -> Result<u64> {
        self.take(&mut self.lock(), block_count)
    }

    fn take(&self, state: &mut State, block_count: u32) -> Result<u64> {
        let free = state.used.find(block_count);
        let end = free + u64::from(block_count);
        let grows = end > state.room_blocks;
        let is_far = end > state.used.end() || state.aimed_end.is_some_and(|aimed| end > aimed);
        let wants_hole = state.holes.used() > 0 && (grows || !state.hole_refused && is_far);
        let before = if grows { u64::MAX } else { free };
        let block = match wants_hole.then(|| self.take_back(state, block_count, before)).flatten() {
            Some(hole) => hole,
            None if grows => self.grow(state, end).map(|()| free)?,
            None => free,
        };
        let is_new = block == free;
        invariant!(!is_new || end <= state.room_blocks, "blocks to {end} have room to {}", state.room_blocks);
        let last = block + u64::from(block_count) - 1;
        invariant!(block / PAGE_BLOCKS == last / PAGE_BLOCKS, "{block} and {last} are in a page of the map");
        state.hand_out(block, block_count)?;
        state.taken_blocks += u64::from(block_count);
        Ok(block)
    }

    /// Frees blocks at once. Nothing durable and no reader may ever have led to them.
    pub(crate) fn give_back(&self, block: u64, block_count: u32) {
        self.lock().free(block, block_count);
    }

    /// Allocates blocks for a piece of a big value that has no commit yet.
    ///
    /// # Errors
    /// As [`Space::allocate`]; `TooLarge` if that is longer than an extent can be.
    pub(crate) fn allocate_value(&self, block_count: u32) -> Result<u64> {
        if u64::from(block_count) > PAGE_BLOCKS {
            let message = format!(
                "the value is too large: its list of extents takes {block_count} blocks, {PAGE_BLOCKS} are the most"
            );
            return Err(Error::new(Code::TooLarge, message).with_hint("store it as several values"));
        }
        // One step under the lock, so that no map is drafted in between: see the module's rule of release.
        let mut state = self.lock();
        let block = self.take(&mut state, block_count)?;
        let there = state.unrooted.insert(block, (block_count, None));
        invariant!(there.is_none(), "no other value lies at block {block}: {there:?}");
        Ok(block)
    }

    /// Notes the sequence of the transaction that wrote this value.
    pub(crate) fn value_committed(&self, pages: &[PagePointer], seq: CommitSeq) {
        let mut state = self.lock();
        for page in pages {
            state.name_value(page.block, page.block_count, seq);
        }
    }

    /// Whether some of these pages belong to a value that no checkpoint contains.
    pub(crate) fn is_in_log_alone(&self, pages: &[PagePointer]) -> bool {
        let state = self.lock();
        pages.iter().any(|page| state.holds_value(page.block, page.block_count))
    }

    /// Frees a value after its transaction was given up without a sequence, or its group was dropped.
    pub(crate) fn value_aborted(&self, pages: &[PagePointer]) {
        let mut state = self.lock();
        for page in pages {
            state.free_value(page.block, page.block_count);
        }
    }

    /// As [`Space::value_aborted`], for one extent.
    pub(crate) fn value_given_up(&self, block: u64, block_count: u32) {
        self.lock().free_value(block, block_count);
    }

    /// Marks the blocks that a replayed frame names, so that nothing is allocated over them.
    ///
    /// # Errors
    /// `Corrupt` if they lie outside the file, or if a page or another value lies there.
    pub(crate) fn value_replayed(&self, pages: &[PagePointer], seq: CommitSeq) -> Result<()> {
        let file_bytes = self.data.file().len().unwrap_or(0);
        for page in pages {
            let offset = self.data.offset(page.block);
            if offset.saturating_add(u64::from(page.raw_bytes)) > file_bytes {
                let what = "the log names a value beyond the end of the file";
                return Err(Error::corrupt_data(self.data.path(), offset, what));
            }
        }
        let mut state = self.lock();
        for page in pages {
            if !state.own_replayed(page.block, page.block_count, seq) {
                let what = format!(
                    "commit {seq} in the log claims {} blocks for a value; a page or another value already \
                     holds some of them",
                    page.block_count
                );
                return Err(Error::corrupt_data(self.data.path(), self.data.offset(page.block), what));
            }
        }
        Ok(())
    }

    /// Keeps blocks of a replayed value that a later frame replaced, until a checkpoint is after it.
    ///
    /// Readers of the log need them. If an earlier replay left them free and they were reused, they are left
    /// alone.
    pub(crate) fn replaced_in_log(&self, pages: &[PagePointer], unused_since: CommitSeq) {
        let mut state = self.lock();
        if !pages.iter().all(|page| state.is_free(page.block, page.block_count)) {
            return;
        }
        for page in pages {
            state.own(page.block, page.block_count);
            let (block, block_count) = page.extent();
            state.waiting.push(DeferredExtent { block, block_count, birth: CommitSeq(0), unused_since });
        }
    }

    /// Defers the free of these extents.
    pub(crate) fn defer_free(&self, extents: impl IntoIterator<Item = DeferredExtent>) {
        self.lock().waiting.extend(extents);
    }

    /// Defers the free of a value's pages that commit `unused_since` replaced. The commit that wrote the
    /// value is unknown: any older snapshot may hold it.
    pub(crate) fn defer_free_pages(&self, pages: &[PagePointer], unused_since: CommitSeq) {
        self.defer_free(pages.iter().map(|page| DeferredExtent {
            block: page.block,
            block_count: page.block_count,
            birth: CommitSeq(0),
            unused_since,
        }));
    }

    /// Frees extents that neither superblock nor any snapshot reaches: see the module's rule of release.
    /// `boundary` is the commit of the older superblock's root; `snapshots` lists the registered ones.
    /// Returns the number of blocks that only snapshots still hold.
    pub(crate) fn release(&self, boundary: CommitSeq, snapshots: impl FnOnce() -> Vec<CommitSeq>) -> u64 {
        let mut held = snapshots();
        held.sort_unstable();
        let needed = |extent: &DeferredExtent| {
            let first = held.partition_point(|seq| *seq < extent.birth);
            held.get(first).is_some_and(|seq| *seq < extent.unused_since)
        };
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.released_to, boundary);
        invariant!(before <= boundary, "what {boundary} made unused is freed after that of {before}");
        let used_blocks = state.used.used();
        let mut waiting = std::mem::take(&mut state.waiting);
        let (mut held_blocks, mut freed_blocks) = (0, 0);
        waiting.retain(|extent| {
            let is_reached = extent.unused_since > boundary;
            let is_held = !is_reached && needed(extent);
            if is_held {
                held_blocks += u64::from(extent.block_count);
            } else if !is_reached {
                let reads = |seq: &CommitSeq| (extent.birth..extent.unused_since).contains(seq);
                debug_assert!(!held.iter().any(reads), "no snapshot of {held:?} reads {extent:?}");
                state.free(extent.block, extent.block_count);
                freed_blocks += u64::from(extent.block_count);
            }
            is_reached || is_held
        });
        // An extent that could not be freed is reported by `free`.
        let left_blocks = state.used.used() + freed_blocks;
        let is_counted = left_blocks == used_blocks || state.contradiction.is_some();
        invariant!(is_counted, "{freed_blocks} blocks are freed of {used_blocks}, {left_blocks} with them");
        if waiting.capacity() > 4 * waiting.len() {
            waiting.shrink_to(2 * waiting.len());
        }
        state.waiting = waiting;
        held_blocks
    }

    /// Makes sure that `bytes` can be written beyond the last used block without a new reservation.
    ///
    /// # Errors
    /// `Full` if there is no room. Holes were then taken back as far as possible, for deletes and
    /// checkpoints.
    pub(crate) fn keep_back(&self, bytes: u64) -> Result<()> {
        let mut state = self.lock();
        let blocks = bytes.div_ceil(self.data.block_bytes() as u64);
        let wanted = state.used.end() + blocks;
        if wanted <= state.room_blocks {
            return Ok(());
        }
        let grown = self.grow(&mut state, wanted);
        if grown.is_err() {
            self.take_back_instead(&mut state, blocks);
        }
        grown
    }

    /// Bytes that can be written beyond the last used block without a new reservation.
    pub(crate) fn kept_back_bytes(&self) -> u64 {
        self.lock().kept_back_blocks() * self.data.block_bytes() as u64
    }

    /// Bytes of free blocks between used ones, without holes.
    pub(crate) fn free_between_bytes(&self) -> u64 {
        self.lock().free_between_blocks() * self.data.block_bytes() as u64
    }

    /// Bytes of the whole space map.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.map_bytes_in(&self.lock())
    }

    fn map_bytes_in(&self, state: &State) -> u64 {
        let pages = state.used.page_count() as u64;
        let page_blocks = u64::from(self.data.blocks_of(PAGE_HEADER_BYTES + PAGE_WORDS * 8));
        // One more page if the file grows, and the list of pages.
        ((pages + 1) * page_blocks + pages / 64 + 2) * self.data.block_bytes() as u64
    }

    /// Sets the block that compaction aims to end the file with; `None` once it ends.
    pub(crate) fn aim_at(&self, end: Option<u64>) {
        self.lock().aimed_end = end;
    }

    /// The block that compaction aims to end the file with, while it runs.
    pub(crate) fn aimed_end(&self) -> Option<u64> {
        self.lock().aimed_end
    }

    /// Free blocks before this one, holes included.
    pub(crate) fn free_blocks_before(&self, end: u64) -> u64 {
        let state = self.lock();
        end - state.used.used_before(end, &state.holes)
    }

    /// Statistics of the space.
    pub(crate) fn stats(&self) -> SpaceStats {
        let state = self.lock();
        SpaceStats {
            used_blocks: state.in_use_blocks(),
            waiting_blocks: state.waiting.iter().map(|extent| u64::from(extent.block_count)).sum::<u64>()
                + state.stale.iter().map(|(_, block_count)| u64::from(*block_count)).sum::<u64>(),
            end_block: state.used.end_not_in(&state.holes),
            file_blocks: state.file_blocks,
        }
    }

    /// Used extents that the root of commit `seq` does not reach: deferred ones, and the maps. For `check`.
    pub(crate) fn unreached(&self, seq: CommitSeq) -> Vec<(u64, u32)> {
        self.lock().unreached(seq)
    }

    /// The used blocks that only trees of the root of commit `seq` can use. For `check`.
    ///
    /// Without deferred extents, maps, superblocks, and values of later commits or of none. If no checkpoint
    /// runs, each of them belongs to a node or value of that root, or is leaked.
    pub(crate) fn of_trees(&self, seq: CommitSeq) -> TreeBlocks {
        let state = self.lock();
        let elsewhere = state.unreached(CommitSeq(u64::MAX));
        let mut blocks = state.used.without(&state.holes);
        blocks.clear(0, u32::try_from(state.first_block).expect("the superblock area is small"));
        for (block, block_count) in elsewhere {
            blocks.clear(block, block_count);
        }
        for (block, (block_count, _)) in
            state.unrooted.iter().filter(|(_, (_, of))| of.is_none_or(|of| of > seq))
        {
            blocks.clear(*block, *block_count);
        }
        TreeBlocks(blocks)
    }

    /// Whether every block of an extent is in use.
    pub(crate) fn is_used(&self, block: u64, block_count: u32) -> bool {
        let state = self.lock();
        state.used.all_set(block, block_count) && state.holes.none_set(block, block_count)
    }

    fn grow(&self, state: &mut State, wanted_blocks: u64) -> Result<()> {
        let file_blocks = state.file_blocks;
        if state.room_blocks < file_blocks {
            let room_blocks = self.reserve_found(state.room_blocks, file_blocks, wanted_blocks);
            let is_within = (state.room_blocks..=file_blocks).contains(&room_blocks);
            invariant!(is_within, "{room_blocks} of {file_blocks} blocks found in the file have room");
            state.room_blocks = room_blocks;
            if wanted_blocks <= state.room_blocks {
                return Ok(());
            }
        }
        let from = state.room_blocks;
        // Grow a little ahead, to reserve seldom; a small database stays small.
        let ahead = (file_blocks / 8).clamp(16, 2048);
        let grown = match self.reserve(from, wanted_blocks + ahead) {
            Ok(()) => Ok(wanted_blocks + ahead),
            Err(_) => self.reserve(from, wanted_blocks).map(|()| wanted_blocks),
        };
        match grown {
            Ok(blocks) => {
                state.room_blocks = blocks;
                state.file_blocks = file_blocks.max(blocks);
                state.hole_refused = false;
                Ok(())
            }
            Err(error) => {
                let error = Error::io("make room in", self.data.path(), &error);
                if error.code() == Code::DiskFull {
                    Err(error)
                } else {
                    Err(error.with_hint("look at the disk"))
                }
            }
        }
    }

    /// Reserves the blocks that the file had when it was opened, holes or not. Returns how far that reaches.
    ///
    /// On a disk with less room than the whole range takes, pieces are reserved, up to `wanted`. xfs needs as
    /// much free room as a range is long, even if the range has its blocks already.
    fn reserve_found(&self, from: u64, to: u64, wanted: u64) -> u64 {
        const PIECE_BYTES: u64 = 1024 * 1024;
        if self.reserve(from, to).is_ok() {
            return to;
        }
        let mut piece_blocks = PIECE_BYTES / self.data.block_bytes() as u64;
        let (to, mut reached) = (to.min(wanted), from);
        while reached < to && piece_blocks > 0 {
            let piece_end = to.min(reached + piece_blocks);
            match self.reserve(reached, piece_end) {
                Ok(()) => reached = piece_end,
                Err(_) => piece_blocks /= 2,
            }
        }
        reached
    }

    /// Reserves the blocks from one to before another in the file system.
    fn reserve(&self, from: u64, to: u64) -> std::io::Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        self.data.file().reserve(from * block_bytes, (to - from) * block_bytes)
    }
}

impl State {
    /// Whether every block is free or a hole.
    fn is_free(&self, block: u64, block_count: u32) -> bool {
        let mut blocks = block..block.saturating_add(u64::from(block_count));
        blocks.all(|block| self.used.none_set(block, 1) || self.holes.all_set(block, 1))
    }

    /// Marks blocks as used, whatever they were.
    fn own(&mut self, block: u64, block_count: u32) {
        self.used.set(block, block_count);
        if self.holes.used() > 0 {
            self.holes.clear(block, block_count);
        }
    }

    /// Blocks that are neither free nor holes.
    fn in_use_blocks(&self) -> u64 {
        let (used, holes) = (self.used.used(), self.holes.used());
        invariant!(holes <= used, "{holes} blocks of holes are among the {used} not to be handed out");
        used - holes
    }

    /// Whether what is kept about the blocks agrees. Reads all of the maps: for assertions.
    fn is_consistent(&self) -> bool {
        let superblocks = u32::try_from(self.first_block).expect("the superblock area is small");
        self.used.adds_up()
            && self.holes.adds_up()
            && self.holes.runs_not_in(&self.used).is_empty()
            && self.used.all_set(0, superblocks)
            && self.holes.none_set(0, superblocks)
            && self.holes.runs_from(0).next().is_none_or(|(block, _)| block >= self.first_hole)
            && self.punching.is_none_or(|(block, block_count)| self.holes.all_set(block, block_count))
            && self.unrooted.iter().all(|(block, (block_count, _))| self.used.all_set(*block, *block_count))
    }

    fn unreached(&self, seq: CommitSeq) -> Vec<(u64, u32)> {
        let waiting = self.waiting.iter().filter(|extent| extent.unused_since <= seq);
        let waiting = waiting.map(|extent| (extent.block, extent.block_count));
        waiting.chain(self.stale.iter().copied()).chain(self.persisted.extents()).collect()
    }

    fn kept_back_blocks(&self) -> u64 {
        self.room_blocks.saturating_sub(self.used.end())
    }

    fn free_between_blocks(&self) -> u64 {
        self.room_blocks.min(self.used.end()).saturating_sub(self.used.used())
    }
}
