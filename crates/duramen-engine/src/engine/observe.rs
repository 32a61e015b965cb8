//! Looking at a database from outside, beside the process that has it open.
//!
//! Takes no lock, writes nothing, and keeps nothing from being used again: what is read may go away under the reader, and is then
//! looked for where it went. Tells only what the log itself calls durable, so that no power cut takes back what was told; the log
//! says so a tenth of a second after the last commit at the latest. D4 holds: every byte is checked before it is believed, and what
//! does not fit is read again before it is called damage.

mod look;

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::{Access, Disk};

use self::look::{Seen, bytes_in, data_file, load_newest, look, no_commit, place, set_back, too_fast};
use super::directory::{DATA, LOCK, WAL, check_file_systems, prepare_directory};
use super::{Wants, copy};
use crate::allocator::SpaceStats;
use crate::catalog::{CATALOG, CatalogRow};
use crate::checkpoint::read_superblocks;
use crate::error::{Error, Result};
use crate::feed::{
    Covered, FEED_DIR, FeedBounds, FeedCommit, Retained, RetainedPart, Wanted, cannot_read, gap,
};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::Options;
use crate::recovery::Loaded;
use crate::tree::{BigRef, Cursor, Direction, KeyRange, find};

/// So many bytes of changes are read at once, and one commit more.
const BATCH_BYTES: usize = 256 * 1024;

/// What does not fit together is looked at again so often before it is believed to be damage: the writer may have been about to
/// change it.
const LOOKS_STILL: u32 = 3;

/// The same, where the writer has finished checkpoints meanwhile.
const LOOKS_MOVING: u32 = 20;

/// Reads what others commit to a database, without opening it.
pub struct Observer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_dir: PathBuf,
    options: Options,
    wants: Wants,
    seen: Seen,
    /// Everything up to this commit was read.
    read: CommitSeq,
    /// Everything up to this commit was handed out, or there was nothing wanted in it.
    position: CommitSeq,
    batch: VecDeque<FeedCommit>,
    /// What was looked at led nowhere: it is looked at anew before anything else.
    is_stale: bool,
    /// Damage that the same checkpoint has shown again and again is damage.
    believes_damage: bool,
    /// The trees that are wanted are not kept in files.
    only_log: bool,
}

/// From where on changes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserveFrom {
    /// What becomes durable from now on.
    Now,
    /// Everything that is still kept.
    Oldest,
    /// Everything after this commit.
    After(CommitSeq),
    /// Everything after the checkpoint that [`Observer::rows`] is of.
    Checkpoint,
}

/// What can be told of a database from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// The newest commit that survives a power cut, as far as was looked.
    pub durable: CommitSeq,
    /// When it was written: wall clock in nanoseconds since 1970. 0 if nothing was read yet.
    pub durable_at_ns: u64,
    /// Counts checkpoints, from the creation on.
    pub checkpoint: u64,
    /// The newest commit that is in the newest checkpoint.
    pub checkpoint_seq: CommitSeq,
    /// Whether the last process closed the database and nobody has written since.
    pub clean: bool,
    /// The data file's space at that checkpoint.
    pub space: SpaceStats,
    /// Unit of space in bytes.
    pub block_bytes: u64,
    /// Files of the log, in bytes.
    pub log_bytes: u64,
    /// Files of the change feed, in bytes.
    pub feed_bytes: u64,
}

/// Why reading stopped.
enum Halt {
    /// The checkpoint that was looked at is not the newest any more, and the log no longer begins there.
    Moved,
    /// Changes are gone: everything after the commit can be read.
    Gap(Error, CommitSeq),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("path", &self.path)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Looks at the database in the directory `path`, whoever has it open: of the options only where the log lies and what the file
    /// system may be count. Changes to trees whose names are wanted are told.
    ///
    /// Costs a look at the newest checkpoint and at the log behind it, and about 16 MiB of memory.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` (not a database, a later format, a network file system), `Corrupt`, `Io`. If what is asked for is no
    /// longer kept, that is the error of the first [`Observer::next`].
    pub fn open(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: Options,
        from: ObserveFrom,
        wants: Wants,
    ) -> Result<Observer> {
        let path = path.as_ref().to_owned();
        let options = Options { read_only: true, memory_bytes: MEMORY_BYTES_MIN, ..options };
        let wal_dir = options.wal_dir.clone().unwrap_or_else(|| path.join(WAL));
        copy::refuse_unfinished(&*disk, &path)?;
        prepare_directory(&*disk, &path, &wal_dir, false)?;
        check_file_systems(&*disk, &path, &wal_dir, &options)?;
        let seen = look(&*disk, &path, &options, None)?;
        let mut observer = Observer {
            disk,
            path,
            wal_dir,
            options,
            wants,
            seen,
            read: CommitSeq::default(),
            position: CommitSeq::default(),
            batch: VecDeque::new(),
            is_stale: false,
            believes_damage: false,
            only_log: from == ObserveFrom::Checkpoint,
        };
        observer.begin(from)?;
        Ok(observer)
    }

    fn begin(&mut self, from: ObserveFrom) -> Result<()> {
        // Nothing is told before it is known how far the log goes.
        (self.read, self.position) = (CommitSeq(u64::MAX), CommitSeq(u64::MAX));
        let newest = self.again(Observer::durable)?;
        self.read = match from {
            ObserveFrom::Now => newest,
            ObserveFrom::Oldest => self.again(|this| Ok(this.files()?.oldest()))?,
            // A mark that was read may have gone in a power cut, and what it called durable is there all the same.
            ObserveFrom::After(after) if after > newest.max(self.seen.whole) => {
                return Err(no_commit(&self.path, after, newest.max(self.seen.whole)));
            }
            ObserveFrom::After(after) => after,
            ObserveFrom::Checkpoint => self.seen.live.seq(),
        };
        self.position = self.read;
        Ok(())
    }

    /// The next commit that changed something wanted; `None` if there is none yet. Never waits.
    ///
    /// # Errors
    /// `FeedGap` if changes were let go of before they were read: the next call goes on behind them. `Corrupt`, `Io`; the next call
    /// tries again.
    #[allow(clippy::should_implement_trait, reason = "an iterator that ends and goes on again")]
    pub fn next(&mut self) -> Result<Option<FeedCommit>> {
        if self.batch.is_empty() {
            self.again(Observer::fill)?;
        }
        let next = self.batch.pop_front();
        self.position = match &next {
            Some(commit) if !self.batch.is_empty() => commit.seq,
            _ => self.read,
        };
        Ok(next)
    }

    /// Everything up to this commit was handed out.
    #[must_use]
    pub fn position(&self) -> CommitSeq {
        self.position
    }

    /// Every row of a small tree as it was at the checkpoint that reading began with.
    ///
    /// # Errors
    /// `Corrupt` or `Io`, also where the writer has let go of that checkpoint meanwhile: open anew.
    pub fn rows(&self, tree: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let Loaded { store, trees, .. } = &self.seen.loaded;
        let catalogue = trees.get(CATALOG).and_then(|tree| tree.slot.as_ref());
        let row = find(&store.pages, catalogue, tree.as_bytes(), |value| CatalogRow::decode(value.bytes))?;
        let Some(id) = row.flatten().map(|row| row.id) else { return Ok(Vec::new()) };
        let slot = trees.get(id).and_then(|tree| tree.slot.as_ref());
        let mut rows = Cursor::new(slot, KeyRange::all(), Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, value)) = rows.next(&store.pages)? {
            let bytes = match value.big {
                true => BigRef::decode(value.bytes)?.read(&store.pages)?,
                false => value.bytes.to_vec(),
            };
            found.push((key.to_vec(), bytes));
        }
        Ok(found)
    }

    /// The tree that has this name, as far as the log was read: to its end where [`Observer::next`] has just returned `None`.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<TreeId> {
        self.seen.live.tree(name)
    }

    /// What can be told now. Costs as much as finding out whether there is a next commit, and after a checkpoint a look at it.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn look(&mut self) -> Result<Observed> {
        let durable = self.again(Observer::durable)?;
        let newest = self.again(|this| this.newest().map_err(Halt::from))?;
        let superblock = &newest.superblock;
        Ok(Observed {
            durable: durable.max(superblock.replay.seq),
            durable_at_ns: self.seen.durable_at_ns,
            checkpoint: superblock.generation.0,
            checkpoint_seq: superblock.replay.seq,
            clean: superblock.clean && durable <= superblock.replay.seq,
            space: newest.store.space.stats(),
            block_bytes: superblock.geometry.block_bytes as u64,
            log_bytes: bytes_in(&*self.disk, &self.wal_dir)?,
            feed_bytes: bytes_in(&*self.disk, &self.path.join(FEED_DIR))?,
        })
    }

    /// What the process that last opened the database to write says of itself; nothing if none has. It may be gone.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let file = self.disk.open(&self.path.join(LOCK), Access::READ).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?.min(256)];
        file.read_at(&mut bytes, 0).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The newest checkpoint, for its figures.
    fn newest(&self) -> Result<Loaded> {
        load_newest(&*self.disk, &self.path, &self.options)
    }

    /// The newest commit that is durable, of those that the log still has behind what was read of it: the log says so, or the newest
    /// checkpoint does.
    fn durable(&mut self) -> std::result::Result<CommitSeq, Halt> {
        let newest = read_superblocks(&data_file(&*self.disk, &self.path)?, &self.path.join(DATA))?.0;
        let geometry = &self.seen.loaded.store.geometry;
        let place = place(&*self.disk, &self.wal_dir, self.seen.identity, geometry);
        let reach = place.reach(&self.seen.live.position())?;
        self.seen.durable_at_ns = self.seen.durable_at_ns.max(reach.durable_at_ns);
        let durable = reach.durable.max(newest.replay.seq.min(reach.whole));
        // The checkpoint is ahead of a log that was used again behind what was read of it.
        let is_cut_off = newest.replay.seq > reach.whole && durable <= self.read;
        if is_cut_off {
            return Err(Halt::Moved);
        }
        if reach.whole < self.position && self.position < CommitSeq(u64::MAX) {
            return Err(Halt::Gap(set_back(&self.path, self.position, durable), durable));
        }
        (self.seen.durable, self.seen.whole) = (durable, reach.whole);
        Ok(durable)
    }

    /// Does something again where the writer got in between.
    fn again<T>(&mut self, mut run: impl FnMut(&mut Observer) -> std::result::Result<T, Halt>) -> Result<T> {
        let (mut still, mut moving, mut failed) = (0, 0, None);
        loop {
            if self.is_stale {
                let anew = look(&*self.disk, &self.path, &self.options, Some(self.seen.identity))?;
                match anew.loaded.superblock.generation == self.seen.loaded.superblock.generation {
                    true => still += 1,
                    false => moving += 1,
                }
                self.seen = anew;
                self.is_stale = false;
            }
            self.believes_damage = still >= LOOKS_STILL;
            let halt = match run(self) {
                Ok(out) => return Ok(out),
                Err(halt) => halt,
            };
            // What was read along a way that led nowhere was not told, and is read again.
            self.batch.clear();
            self.read = self.position;
            match halt {
                Halt::Gap(error, goes_on) => {
                    (self.read, self.position) = (goes_on, goes_on);
                    return Err(error);
                }
                Halt::Moved => {}
                Halt::Failed(error) => failed = Some(error),
            }
            self.is_stale = true;
            if still >= LOOKS_STILL || moving >= LOOKS_MOVING {
                return Err(failed.unwrap_or_else(|| too_fast(&self.path)));
            }
        }
    }

    fn fill(&mut self) -> std::result::Result<(), Halt> {
        let files_end = self.files_end()?;
        while self.read < files_end {
            self.fill_from_files(files_end)?;
            if !self.batch.is_empty() {
                return Ok(());
            }
        }
        // How far the log goes is found out once for all that is read of it: that costs a look at all of it.
        let durable = if self.seen.durable > self.read { self.seen.durable } else { self.durable()? };
        if durable <= self.read {
            return Ok(());
        }
        let wanted =
            Wanted { after: self.read, through: durable, bytes_max: BATCH_BYTES, wants: &*self.wants };
        let Seen { loaded, identity, live, .. } = &mut self.seen;
        let place = place(&*self.disk, &self.wal_dir, *identity, &loaded.store.geometry);
        let before = live.seq();
        live.read(&place, &loaded.store.pages, &wanted, &mut self.batch)?;
        // Values that the log names go with the checkpoint; the feed may have kept them.
        let is_gone = live.saw_damage && !self.believes_damage;
        live.saw_damage = false;
        if live.seq() == before || is_gone {
            return Err(Halt::Moved);
        }
        self.read = self.read.max(live.seq());
        Ok(())
    }

    /// Up to this commit changes are read from files, as [`Retained::found_through`] says why.
    fn files_end(&mut self) -> Result<CommitSeq> {
        let ends = self.seen.live.seq();
        // Finding out how far files reach costs reading the newest.
        if self.only_log || !self.seen.loaded.is_alone {
            return Ok(ends);
        }
        Ok(ends.max(self.files()?.found_through()))
    }

    fn fill_from_files(&mut self, ends: CommitSeq) -> std::result::Result<(), Halt> {
        if self.only_log {
            return Err(Halt::Gap(gap(self.read, ends), ends));
        }
        let files = self.files()?;
        let Some(part) = files.part_after(self.read) else {
            let goes_on = Some(files.oldest()).filter(|oldest| *oldest > self.read).unwrap_or(ends);
            return Err(Halt::Gap(files.gap(self.read), goes_on));
        };
        match self.read_file(&files, &part) {
            // Also if the file cannot be read at all: the changes after it are wanted.
            Err(error) if self.believes_damage => {
                self.seen.file = None;
                // What was read before the error is returned first.
                let is_first = self.batch.is_empty();
                let error = cannot_read(self.read, error.message(), part.through);
                if is_first { Err(Halt::Gap(error, part.through)) } else { Ok(()) }
            }
            read => Ok(read?),
        }
    }

    fn read_file(&mut self, files: &Retained, part: &RetainedPart) -> Result<()> {
        let file = match &mut self.seen.file {
            Some((number, file)) if *number == part.number => file,
            _ => &mut self.seen.file.insert((part.number, files.read(part)?)).1,
        };
        let wanted =
            Wanted { after: self.read, through: part.through, bytes_max: BATCH_BYTES, wants: &*self.wants };
        file.read(&wanted, &mut self.batch, &mut self.read)
    }

    /// The retained files as they were when the checkpoint was looked at.
    fn files(&mut self) -> Result<Arc<Retained>> {
        if let Some(files) = &self.seen.files {
            return Ok(Arc::clone(files));
        }
        let Loaded { superblock, is_alone, .. } = &self.seen.loaded;
        let bounds = FeedBounds { retain_bytes: 0, retain_age_ns: 0, bytes_max: 0 };
        let block_bytes = superblock.geometry.block_bytes;
        let covered = Covered { boundary: superblock.replay.seq, is_alone: *is_alone };
        let files = Retained::open(&self.disk, &self.path, self.seen.identity, block_bytes, bounds, covered)?;
        Ok(Arc::clone(self.seen.files.insert(files)))
    }
}
