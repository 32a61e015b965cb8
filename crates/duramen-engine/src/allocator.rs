//! Who owns which block of the data file.
//!
//! Owns the bitmap of used blocks, the list of extents waiting to be free, and the room kept back so that a
//! checkpoint works on a full disk (D7). D3 rests here: a block is handed out again only when no superblock, no
//! replayable frame and no snapshot can lead to it.
//!
//! Long runs of free blocks between those in use become holes (`holes.rs`): the file keeps its length, and the file
//! system gets the blocks back. Here holes stay marked as used, so that nothing is put into one by chance and no promised
//! room is one; whoever asks what is used, and the map on disk, is told that they are free. Before the file grows a hole
//! is taken back, by asking the file system for its blocks again. Which blocks are holes is not kept on disk: after
//! opening, every long free run may be one, and so may everything beyond the last used block.

mod bitmap;
mod holes;
mod persist;
mod sound;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::data_file::{DataFile, Location, PAGE_HEADER_BYTES, first_free_block};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::options::GiveBack;

use bitmap::{Bitmap, PAGE_BLOCKS, PAGE_WORDS};
pub use persist::{MapDraft, PersistedMap};
use sound::Soundness;

/// An extent that a newer version of the database no longer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredExtent {
    /// First block.
    pub block: u64,
    /// Blocks.
    pub block_count: u32,
    /// The first commit whose root uses it.
    pub birth: CommitSeq,
    /// The first commit whose root does not.
    pub retired: CommitSeq,
}

/// How the space is used, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceStats {
    /// In use by anything.
    pub used_blocks: u64,
    /// Waiting for checkpoints and snapshots to let go.
    pub waiting_blocks: u64,
    /// One after the last block in use.
    pub end_block: u64,
    /// Blocks the file reserves from the file system.
    pub file_blocks: u64,
}

/// Blocks that only the trees of one root can take.
#[derive(Debug)]
pub struct TreeBlocks(Bitmap);

impl TreeBlocks {
    /// Something else leads to these.
    pub fn remove(&mut self, extents: &[(u64, u32)]) {
        extents.iter().for_each(|(block, block_count)| self.0.clear(*block, *block_count));
    }

    /// Those that are in none of these extents: nothing leads to them.
    #[must_use]
    pub fn not_in(&self, reached: &[(u64, u32)]) -> Vec<(u64, u32)> {
        self.0.runs_not_in(&Bitmap::of_extents(reached))
    }
}

/// The blocks of the data file.
#[derive(Debug)]
pub struct Space {
    data: DataFile,
    give_back: GiveBack,
    state: Mutex<State>,
    soundness: Soundness,
}

#[derive(Debug)]
struct State {
    /// Holes included.
    used: Bitmap,
    /// Blocks that the file system may have back.
    holes: Bitmap,
    /// There is none before this block.
    first_hole: u64,
    /// The hole that is being punched at this moment.
    punching: Option<(u64, u32)>,
    /// The file system had no room for a hole since the last checkpoint.
    hole_refused: bool,
    /// Blocks handed out since the last checkpoint.
    taken_blocks: u64,
    waiting: Vec<RetiredExtent>,
    /// Extents of big values that no checkpoint holds yet, with their commit once there is one.
    unrooted: BTreeMap<u64, (u32, Option<CommitSeq>)>,
    persisted: PersistedMap,
    /// What only the older checkpoint's map and tree of roots take: free once it is overwritten. Counted by checkpoints,
    /// not by commits: two checkpoints in a row may be of the same commit.
    stale: Vec<(u64, u32)>,
    /// How long the file is.
    file_blocks: u64,
    /// Blocks before this one are there without asking the file system, holes apart.
    room_blocks: u64,
    /// The superblocks lie before this one.
    first_block: u64,
    /// A contradiction that was found under the lock and is reported when it is released.
    contradiction: Option<Error>,
}

const POISON: &str = "nothing panics while the space map is locked";

impl Space {
    /// An empty data file: only the superblocks' blocks are used.
    #[must_use]
    pub fn new(data: DataFile, give_back: GiveBack) -> Space {
        let mut used = Bitmap::default();
        let first = first_free_block(data.block_bytes());
        used.set(0, u32::try_from(first).expect("the superblock area is small"));
        // After a crash before the first checkpoint the log may name extents anywhere in the file.
        let file_blocks = data.file().len().unwrap_or(0) / data.block_bytes() as u64;
        Space::with((data, give_back), used, PersistedMap::default(), file_blocks)
    }

    /// With what a map says is used. The rest may be holes.
    fn with(
        (data, give_back): (DataFile, GiveBack),
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
            unrooted: BTreeMap::new(),
            persisted,
            stale: Vec::new(),
            file_blocks,
            room_blocks,
            first_block,
            contradiction: None,
        };
        Space { data, give_back, state: Mutex::new(state), soundness: Soundness::default() }
    }

    /// Takes `block_count` blocks in a row.
    ///
    /// # Errors
    /// `Full` if the file would have to grow and the file system has no room.
    pub fn allocate(&self, block_count: u32) -> Result<u64> {
        self.take(&mut self.lock(), block_count)
    }

    fn take(&self, state: &mut State, block_count: u32) -> Result<u64> {
        let free = state.used.find(block_count);
        let end = free + u64::from(block_count);
        let grows = end > state.room_blocks;
        let wants_hole = state.holes.used() > 0 && (grows || !state.hole_refused && end > state.used.end());
        let block = match wants_hole.then(|| self.take_back(state, block_count)).flatten() {
            Some(hole) => hole,
            None if grows => self.grow(state, end).map(|()| free)?,
            None => free,
        };
        state.hand_out(block, block_count)?;
        state.taken_blocks += u64::from(block_count);
        Ok(block)
    }

    /// Gives blocks back at once that nothing durable and no reader has ever led to.
    pub fn give_back(&self, block: u64, block_count: u32) {
        self.lock().free(block, block_count);
    }

    /// Takes blocks for a piece of a big value that has no commit yet.
    ///
    /// # Errors
    /// As [`Space::allocate`]; `TooLarge` if that is longer than an extent can be.
    pub fn allocate_value(&self, block_count: u32) -> Result<u64> {
        if u64::from(block_count) > PAGE_BLOCKS {
            let message = format!(
                "the value is too large: its list of extents takes {block_count} blocks, {PAGE_BLOCKS} are the most"
            );
            return Err(Error::new(Code::TooLarge, message).with_hint("store it as several values"));
        }
        // Under one lock: a map drafted in between would say that a checkpoint's root uses the blocks. After the value was
        // given up they could hold another one by the time that map is the older, and opening would free them under it.
        let mut state = self.lock();
        let block = self.take(&mut state, block_count)?;
        state.unrooted.insert(block, (block_count, None));
        Ok(block)
    }

    /// A transaction that wrote this value has got its sequence.
    pub fn value_committed(&self, pages: &[Location], seq: CommitSeq) {
        let mut state = self.lock();
        for page in pages {
            state.name_value(page.block, page.block_count, seq);
        }
    }

    /// A transaction that wrote this value was given up before it got a sequence, or its group was dropped.
    pub fn value_aborted(&self, pages: &[Location]) {
        let mut state = self.lock();
        for page in pages {
            state.free_value(page.block, page.block_count);
        }
    }

    /// A replayed frame names these blocks: nothing may be allocated over them.
    ///
    /// # Errors
    /// `Corrupt` if they lie outside the file, or a page or another value lies there.
    pub fn value_replayed(&self, pages: &[Location], seq: CommitSeq) -> Result<()> {
        let file_bytes = self.data.file().len().unwrap_or(0);
        for page in pages {
            let offset = self.data.offset(page.block);
            if offset.saturating_add(u64::from(page.raw_bytes)) > file_bytes {
                let what = "the log names a value beyond the end of the file";
                return Err(Error::damaged_data(self.data.path(), offset, what));
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
                return Err(Error::damaged_data(self.data.path(), self.data.offset(page.block), what));
            }
        }
        Ok(())
    }

    /// A replayed frame names these blocks, and a later one replaced what they hold: readers of the log need them until a checkpoint
    /// is behind it. Those of a log that was replayed before without regard to them may be somebody's by now, and are left alone.
    pub fn replaced_in_log(&self, pages: &[Location], retired: CommitSeq) {
        let mut state = self.lock();
        if !pages.iter().all(|page| state.is_free(page.block, page.block_count)) {
            return;
        }
        for page in pages {
            state.own(page.block, page.block_count);
            let (block, block_count) = page.extent();
            state.waiting.push(RetiredExtent { block, block_count, birth: CommitSeq(0), retired });
        }
    }

    /// Puts extents on the list of those waiting to be free.
    pub fn retire(&self, extents: impl IntoIterator<Item = RetiredExtent>) {
        self.lock().waiting.extend(extents);
    }

    /// Puts pages of a value that commit `retired` replaced on that list. Who wrote it is not known: any older
    /// snapshot may hold it.
    pub fn retire_pages(&self, pages: &[Location], retired: CommitSeq) {
        self.retire(pages.iter().map(|page| RetiredExtent {
            block: page.block,
            block_count: page.block_count,
            birth: CommitSeq(0),
            retired,
        }));
    }

    /// Frees what neither superblock nor any snapshot reaches. `boundary` is the commit of the older superblock's
    /// root; `snapshots` lists the registered ones. A reader who registers after it was asked looks at a
    /// newer root than `boundary`, so it needs none of this. Returns the blocks that only snapshots still hold.
    pub fn release(&self, boundary: CommitSeq, snapshots: impl FnOnce() -> Vec<CommitSeq>) -> u64 {
        let mut held = snapshots();
        held.sort_unstable();
        let needed = |extent: &RetiredExtent| {
            let first = held.partition_point(|seq| *seq < extent.birth);
            held.get(first).is_some_and(|seq| *seq < extent.retired)
        };
        let mut state = self.lock();
        let mut waiting = std::mem::take(&mut state.waiting);
        let mut held_blocks = 0;
        waiting.retain(|extent| {
            let is_reached = extent.retired > boundary;
            let is_held = !is_reached && needed(extent);
            if is_held {
                held_blocks += u64::from(extent.block_count);
            } else if !is_reached {
                state.free(extent.block, extent.block_count);
            }
            is_reached || is_held
        });
        if waiting.capacity() > 4 * waiting.len() {
            waiting.shrink_to(2 * waiting.len());
        }
        state.waiting = waiting;
        held_blocks
    }

    /// Makes sure that `bytes` can be written beyond the last used block without asking the file system.
    ///
    /// # Errors
    /// `Full` if there is no room. Then holes were taken back as far as that works: deletes and checkpoints go on in them.
    pub fn keep_back(&self, bytes: u64) -> Result<()> {
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

    /// Bytes that can be written beyond the last used block without asking the file system.
    pub fn kept_back_bytes(&self) -> u64 {
        self.lock().kept_back_blocks() * self.data.block_bytes() as u64
    }

    /// Bytes of free blocks between those in use, holes not counted.
    pub fn free_between_bytes(&self) -> u64 {
        self.lock().free_between_blocks() * self.data.block_bytes() as u64
    }

    /// Bytes that the whole space map takes when all of it is written.
    pub fn map_bytes(&self) -> u64 {
        let pages = self.lock().used.page_count() as u64;
        let page_blocks = u64::from(self.data.blocks_of(PAGE_HEADER_BYTES + PAGE_WORDS * 8));
        // One more page where the file grows, and the list of pages.
        ((pages + 1) * page_blocks + pages / 64 + 2) * self.data.block_bytes() as u64
    }

    /// How the space is used.
    pub fn stats(&self) -> SpaceStats {
        let state = self.lock();
        SpaceStats {
            used_blocks: state.used.used() - state.holes.used(),
            waiting_blocks: state.waiting.iter().map(|extent| u64::from(extent.block_count)).sum::<u64>()
                + state.stale.iter().map(|(_, block_count)| u64::from(*block_count)).sum::<u64>(),
            end_block: state.used.end_not_in(&state.holes),
            file_blocks: state.file_blocks,
        }
    }

    /// Extents in use that the root of commit `seq` does not reach: waiting ones, and what the maps take. For `check`.
    pub fn unreached(&self, seq: CommitSeq) -> Vec<(u64, u32)> {
        self.lock().unreached(seq)
    }

    /// The blocks that only trees of the root of commit `seq` can take, of what is in use now: not what waits to be free, not
    /// what the maps and superblocks take, not values of later commits or of none. With no checkpoint running each of them
    /// belongs to a node or a value of that root, or is lost. For `check`.
    pub fn of_trees(&self, seq: CommitSeq) -> TreeBlocks {
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
    pub fn is_used(&self, block: u64, block_count: u32) -> bool {
        let state = self.lock();
        state.used.all_set(block, block_count) && state.holes.none_set(block, block_count)
    }

    fn grow(&self, state: &mut State, wanted_blocks: u64) -> Result<()> {
        let file_blocks = state.file_blocks;
        if state.room_blocks < file_blocks {
            state.room_blocks = self.reserve_found(state.room_blocks, file_blocks, wanted_blocks);
            if wanted_blocks <= state.room_blocks {
                return Ok(());
            }
        }
        let from = state.room_blocks;
        // A little ahead, so that the file system is asked seldom; a small database stays small.
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
    /// On a disk with less room than the whole range takes, pieces are reserved, up to `wanted`. xfs needs as much free room as a range
    /// is long, even if the range has its blocks already.
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

    /// Asks the file system for the blocks from one to before another.
    fn reserve(&self, from: u64, to: u64) -> std::io::Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        self.data.file().reserve(from * block_bytes, (to - from) * block_bytes)
    }
}

impl State {
    /// Whether every block is free, or a hole.
    fn is_free(&self, block: u64, block_count: u32) -> bool {
        let mut blocks = block..block.saturating_add(u64::from(block_count));
        blocks.all(|block| self.used.none_set(block, 1) || self.holes.all_set(block, 1))
    }

    /// In use from here on, whatever they were.
    fn own(&mut self, block: u64, block_count: u32) {
        self.used.set(block, block_count);
        if self.holes.used() > 0 {
            self.holes.clear(block, block_count);
        }
    }

    fn unreached(&self, seq: CommitSeq) -> Vec<(u64, u32)> {
        let waiting = self.waiting.iter().filter(|extent| extent.retired <= seq);
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
