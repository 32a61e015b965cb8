//! Who owns which block of the data file.
//!
//! Owns the bitmap of used blocks, the list of extents waiting to be free, and the room kept back so that a
//! checkpoint works on a full disk (D7). D3 rests here: a block is handed out again only when no superblock, no
//! replayable frame and no snapshot can lead to it.

mod bitmap;
mod persist;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::data_file::{DataFile, Location, first_free_block};
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;

use bitmap::Bitmap;
pub use persist::{MapDraft, PersistedMap};

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

/// The blocks of the data file.
#[derive(Debug)]
pub struct Space {
    data: DataFile,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used: Bitmap,
    waiting: Vec<RetiredExtent>,
    /// Extents of big values that no checkpoint holds yet, with their commit once there is one.
    unrooted: BTreeMap<u64, (u32, Option<CommitSeq>)>,
    persisted: PersistedMap,
    /// What only the older checkpoint's map and tree of roots take: free once it is overwritten. Counted by checkpoints,
    /// not by commits: two checkpoints in a row may be of the same commit.
    stale: Vec<(u64, u32)>,
    file_blocks: u64,
}

const POISON: &str = "nothing panics while the space map is locked";

impl Space {
    /// An empty data file: only the superblocks' blocks are used.
    #[must_use]
    pub fn new(data: DataFile) -> Space {
        let mut used = Bitmap::default();
        let first = first_free_block(data.block_bytes());
        used.set(0, u32::try_from(first).expect("the superblock area is small"));
        // After a crash before the first checkpoint the log may name extents anywhere in the file.
        let file_blocks = data.file().len().unwrap_or(0) / data.block_bytes() as u64;
        Space::with(data, used, PersistedMap::default(), file_blocks)
    }

    fn with(data: DataFile, used: Bitmap, persisted: PersistedMap, file_blocks: u64) -> Space {
        let (waiting, unrooted, stale) = (Vec::new(), BTreeMap::new(), Vec::new());
        let state = State { used, waiting, unrooted, persisted, stale, file_blocks };
        Space { data, state: Mutex::new(state) }
    }

    /// Takes `block_count` blocks in a row.
    ///
    /// # Errors
    /// `Full` if the file would have to grow and the file system has no room.
    pub fn allocate(&self, block_count: u32) -> Result<u64> {
        let mut state = self.state.lock().expect(POISON);
        let block = state.used.find(block_count);
        let end = block + u64::from(block_count);
        if end > state.file_blocks {
            self.grow(&mut state, end)?;
        }
        state.used.set(block, block_count);
        Ok(block)
    }

    /// Gives blocks back at once that nothing durable and no reader has ever led to.
    pub fn give_back(&self, block: u64, block_count: u32) {
        self.state.lock().expect(POISON).used.clear(block, block_count);
    }

    /// Takes blocks for a piece of a big value that has no commit yet.
    ///
    /// # Errors
    /// As [`Space::allocate`].
    pub fn allocate_value(&self, block_count: u32) -> Result<u64> {
        let block = self.allocate(block_count)?;
        self.state.lock().expect(POISON).unrooted.insert(block, (block_count, None));
        Ok(block)
    }

    /// A transaction that wrote this value has got its sequence.
    pub fn value_committed(&self, pages: &[Location], seq: CommitSeq) {
        let mut state = self.state.lock().expect(POISON);
        for page in pages {
            state.used.set(page.block, page.block_count);
            state.unrooted.insert(page.block, (page.block_count, Some(seq)));
        }
    }

    /// A transaction that wrote this value was given up before it got a sequence, or its group was dropped.
    pub fn value_aborted(&self, pages: &[Location]) {
        let mut state = self.state.lock().expect(POISON);
        for page in pages {
            state.unrooted.remove(&page.block);
            state.used.clear(page.block, page.block_count);
        }
    }

    /// A replayed frame names these blocks: nothing may be allocated over them.
    ///
    /// # Errors
    /// `Corrupt` if they lie outside the file.
    pub fn value_replayed(&self, pages: &[Location], seq: CommitSeq) -> Result<()> {
        let file_bytes = self.data.file().len().unwrap_or(0);
        for page in pages {
            let offset = self.data.offset(page.block);
            if offset.saturating_add(u64::from(page.raw_bytes)) > file_bytes {
                let what = "the log names a value beyond the end of the file";
                return Err(Error::damaged_data(self.data.path(), offset, what));
            }
        }
        self.value_committed(pages, seq);
        Ok(())
    }

    /// Puts extents on the list of those waiting to be free.
    pub fn retire(&self, extents: impl IntoIterator<Item = RetiredExtent>) {
        self.state.lock().expect(POISON).waiting.extend(extents);
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
        let mut state = self.state.lock().expect(POISON);
        let State { waiting, used, .. } = &mut *state;
        let mut held_blocks = 0;
        waiting.retain(|extent| {
            let is_reached = extent.retired > boundary;
            let is_held = !is_reached && needed(extent);
            if is_held {
                held_blocks += u64::from(extent.block_count);
            } else if !is_reached {
                used.clear(extent.block, extent.block_count);
            }
            is_reached || is_held
        });
        if waiting.capacity() > 4 * waiting.len() {
            waiting.shrink_to(2 * waiting.len());
        }
        held_blocks
    }

    /// Makes sure that `bytes` can be written beyond the last used block without asking the file system.
    ///
    /// # Errors
    /// `Full` if there is no room; nothing changed.
    pub fn keep_back(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock().expect(POISON);
        let wanted = state.used.end() + bytes.div_ceil(self.data.block_bytes() as u64);
        if wanted <= state.file_blocks { Ok(()) } else { self.grow(&mut state, wanted) }
    }

    /// Bytes that can be written beyond the last used block without asking the file system.
    pub fn kept_back_bytes(&self) -> u64 {
        let state = self.state.lock().expect(POISON);
        state.file_blocks.saturating_sub(state.used.end()) * self.data.block_bytes() as u64
    }

    /// Cuts the file's tail down to `spare_bytes` beyond the last block that is used, waiting included.
    ///
    /// # Errors
    /// `Io`.
    pub fn cut_tail(&self, spare_bytes: u64) -> Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        let mut state = self.state.lock().expect(POISON);
        let keep = state.used.end() + spare_bytes.div_ceil(block_bytes);
        if state.file_blocks <= keep + keep / 8 + 16 {
            return Ok(());
        }
        let path = self.data.path();
        self.data.file().set_len(keep * block_bytes).map_err(|e| Error::io("shorten", path, &e))?;
        state.file_blocks = keep;
        Ok(())
    }

    /// How the space is used.
    pub fn stats(&self) -> SpaceStats {
        let state = self.state.lock().expect(POISON);
        SpaceStats {
            used_blocks: state.used.used(),
            waiting_blocks: state.waiting.iter().map(|extent| u64::from(extent.block_count)).sum::<u64>()
                + state.stale.iter().map(|(_, block_count)| u64::from(*block_count)).sum::<u64>(),
            end_block: state.used.end(),
            file_blocks: state.file_blocks,
        }
    }

    /// Extents in use that the root of commit `seq` does not reach: waiting ones, and what the maps take. For `check`.
    pub fn unreached(&self, seq: CommitSeq) -> Vec<(u64, u32)> {
        let state = self.state.lock().expect(POISON);
        let waiting = state.waiting.iter().filter(|extent| extent.retired <= seq);
        let waiting = waiting.map(|extent| (extent.block, extent.block_count));
        waiting.chain(state.stale.iter().copied()).chain(state.persisted.extents()).collect()
    }

    /// Extents in use that are not among these, wait for nothing, and are not the superblocks'.
    pub fn unaccounted(&self, reached: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let mut known = Bitmap::of_extents(reached);
        let first = first_free_block(self.data.block_bytes());
        known.set(0, u32::try_from(first).expect("the superblock area is small"));
        for (block, block_count) in self.unreached(CommitSeq(u64::MAX)) {
            known.set(block, block_count);
        }
        self.state.lock().expect(POISON).used.runs_not_in(&known)
    }

    /// Whether every block of an extent is in use.
    pub fn is_used(&self, block: u64, block_count: u32) -> bool {
        self.state.lock().expect(POISON).used.all_set(block, block_count)
    }

    fn grow(&self, state: &mut State, wanted_blocks: u64) -> Result<()> {
        let block_bytes = self.data.block_bytes() as u64;
        let from = state.file_blocks;
        // A little ahead, so that the file system is asked seldom; a small database stays small.
        let ahead = (from / 8).clamp(16, 2048);
        let path = self.data.path();
        let reserve = |to: u64| self.data.file().reserve(from * block_bytes, (to - from) * block_bytes);
        let grown = match reserve(wanted_blocks + ahead) {
            Ok(()) => Ok(wanted_blocks + ahead),
            Err(_) => reserve(wanted_blocks).map(|()| wanted_blocks),
        };
        match grown {
            Ok(blocks) => {
                state.file_blocks = blocks;
                Ok(())
            }
            Err(error) => {
                let error = Error::io("make room in", path, &error);
                if error.code() == Code::DiskFull {
                    Err(error)
                } else {
                    Err(error.with_hint("look at the disk"))
                }
            }
        }
    }
}
