//! Reads a database from outside, beside the process that has it open.
//!
//! An observer takes no lock, writes nothing, and holds no pages or log. What it reads may be reused
//! meanwhile; it then looks for it again. It reports only commits that the log itself declares durable, so no
//! power cut takes back what was reported. The log declares a commit durable at most a tenth of a second
//! after the last one. D4 holds: every byte is checked, and what does not fit is read again before it counts
//! as corruption.

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
use crate::ids::{CommitSeq, DatabaseId, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::Options;
use crate::recovery::Loaded;
use crate::tree::{BigRef, Cursor, Direction, KeyRange, find};

/// Bytes of changes read at once, plus one commit.
const BATCH_BYTES: usize = 256 * 1024;

/// So many new looks at the same checkpoint before a mismatch counts as corruption. The writer may have been
/// about to change it.
const LOOKS_STILL: u32 = 3;

/// The same, if the writer has finished checkpoints meanwhile.
const LOOKS_MOVING: u32 = 20;

const _: () =
    assert!(0 < LOOKS_STILL && LOOKS_STILL <= LOOKS_MOVING, "looks at what stands still count more");

/// Reads commits of another process, without opening the database.
pub struct Observer {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    wal_dir: PathBuf,
    options: Options,
    wants: Wants,
    seen: Seen,
    /// Everything up to this commit was read.
    read: CommitSeq,
    /// Everything wanted up to this commit was handed out.
    position: CommitSeq,
    batch: VecDeque<FeedCommit>,
    /// The checkpoint that was read led nowhere: it is read anew before anything else.
    is_stale: bool,
    /// Corruption seen repeatedly with the same checkpoint is real.
    believes_corruption: bool,
    /// The wanted trees are not kept in retained files.
    only_log: bool,
}

/// Where observing starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserveFrom {
    /// Changes that become durable from now on.
    Now,
    /// All changes that are still kept.
    Oldest,
    /// All changes after this commit.
    After(CommitSeq),
    /// All changes after the checkpoint that [`Observer::rows`] reads.
    Checkpoint,
}

/// The status of a database, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    /// The newest commit known to survive a power cut.
    pub durable: CommitSeq,
    /// When it was written: wall clock in nanoseconds since 1970. 0 if nothing was read yet.
    pub durable_at_ns: u64,
    /// The generation of the newest checkpoint: counts from the creation on.
    pub checkpoint: u64,
    /// The newest commit that is in the newest checkpoint.
    pub checkpoint_seq: CommitSeq,
    /// Whether the last process closed the database cleanly and nothing was written since.
    pub clean: bool,
    /// Space in the data file at that checkpoint.
    pub space: SpaceStats,
    /// Unit of space in bytes.
    pub block_bytes: u64,
    /// Size of the log's files, in bytes.
    pub log_bytes: u64,
    /// Size of the change feed's files, in bytes.
    pub feed_bytes: u64,
}

/// Why reading stopped.
enum ObserveError {
    /// A newer checkpoint exists, and the log no longer begins at the one that was read.
    Moved,
    /// Changes are gone. Everything after this commit can be read.
    Gap(Error, CommitSeq),
    Failed(Error),
}

impl From<Error> for ObserveError {
    fn from(error: Error) -> ObserveError {
        ObserveError::Failed(error)
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
    /// Observes the database in the directory `path`, even while another process has it open. Of the options
    /// only the log directory and those about the file system count. Changes to wanted trees are reported.
    ///
    /// It reads the newest checkpoint and the log after it, and takes about 16 MiB of memory.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes); `UnfinishedCopy` (E0215);
    /// `NetworkFileSystem` (E0212); `InvalidArgument` (E0201) for a commit that does not exist yet;
    /// `FeedGap` (E0804) if the writer changes the database too fast to be read. If the starting point is no
    /// longer kept, the first [`Observer::next`] fails.
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
            believes_corruption: false,
            only_log: from == ObserveFrom::Checkpoint,
        };
        observer.begin(from)?;
        Ok(observer)
    }

    fn begin(&mut self, from: ObserveFrom) -> Result<()> {
        // Nothing may be reported before the durable end of the log is known.
        (self.read, self.position) = (CommitSeq(u64::MAX), CommitSeq(u64::MAX));
        let newest = self.again(Observer::durable)?;
        self.read = match from {
            ObserveFrom::Now => newest,
            ObserveFrom::Oldest => self.again(|this| Ok(this.files()?.oldest()))?,
            ObserveFrom::After(after) => self.again(|this| this.known(after))?,
            ObserveFrom::Checkpoint => self.seen.live.seq(),
        };
        self.position = self.read;
        Ok(())
    }

    /// The commit itself, if it is there. A watermark read earlier may be lost in a power cut; what it
    /// declared durable is there all the same.
    fn known(&mut self, commit: CommitSeq) -> std::result::Result<CommitSeq, ObserveError> {
        let newest = self.durable()?.max(self.seen.whole);
        match commit <= newest {
            true => Ok(commit),
            false => Err(self.seen_again(no_commit(&self.path, commit, newest).into())),
        }
    }

    /// An error of a log that ends too early, once that was seen several times. While a process opens the
    /// database, the headers of segments may be read from before and after it, and show none of both ends.
    fn seen_again(&self, error: ObserveError) -> ObserveError {
        if self.believes_corruption { error } else { ObserveError::Moved }
    }

    /// The next commit that changed something wanted. `None` if there is none yet; it never waits.
    ///
    /// # Errors
    /// Those of [reading changes](crate::Error#changes). After `FeedGap` (E0804) the next call continues
    /// after the changes that are gone. After another error it tries again.
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

    /// The identity of the database in a directory, whether or not another process has it open.
    ///
    /// # Errors
    /// `NoSuchDatabase` (E0902) if there is none; `CorruptSuperblock` (E0504) if no superblock can be read;
    /// `Unsupported` (E0211) if a later release wrote it; `System` (E1001).
    pub fn identify(disk: &dyn Disk, path: &Path) -> Result<DatabaseId> {
        Ok(read_superblocks(&data_file(disk, path)?, &path.join(DATA))?.0.database)
    }

    /// Everything up to this commit was handed out.
    #[must_use]
    pub fn position(&self) -> CommitSeq {
        self.position
    }

    /// Every row of a small tree as of the checkpoint where reading began.
    ///
    /// # Errors
    /// `CorruptData` (E0501) or `System` (E1001) if it cannot be read, also if the writer has released that
    /// checkpoint meanwhile: open a new observer.
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

    /// The id of a tree by name, as far as the log was read. That is to its end if [`Observer::next`] has
    /// just returned `None`.
    #[must_use]
    pub fn tree(&self, name: &str) -> Option<TreeId> {
        self.seen.live.tree(name)
    }

    /// The status now. Costs as much as checking for a next commit, and reading the checkpoint if there is a
    /// newer one.
    ///
    /// # Errors
    /// As [`Observer::next`].
    pub fn look(&mut self) -> Result<Observed> {
        let durable = self.again(Observer::durable)?;
        let newest = self.again(|this| this.newest().map_err(ObserveError::from))?;
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

    /// The text that the last writing process left in the lock file; `None` if there is none. That process
    /// may have ended.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let file = self.disk.open(&self.path.join(LOCK), Access::READ).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?.min(256)];
        file.read_at(&mut bytes, 0).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The newest checkpoint, for its statistics.
    fn newest(&self) -> Result<Loaded> {
        load_newest(&*self.disk, &self.path, &self.options)
    }

    /// The newest durable commit in the log after what was read. The log declares it durable, or the newest
    /// checkpoint does.
    fn durable(&mut self) -> std::result::Result<CommitSeq, ObserveError> {
        let newest = read_superblocks(&data_file(&*self.disk, &self.path)?, &self.path.join(DATA))?.0;
        let geometry = &self.seen.loaded.store.geometry;
        let place = place(&*self.disk, &self.wal_dir, self.seen.identity, geometry);
        let reach = place.reach(&self.seen.live.position())?;
        self.seen.durable_at_ns = self.seen.durable_at_ns.max(reach.durable_at_ns);
        let durable = reach.durable.max(newest.replay.seq.min(reach.whole));
        // The checkpoint is ahead, and the log after what was read has been reused.
        let is_cut_off = newest.replay.seq > reach.whole && durable <= self.read;
        if is_cut_off {
            return Err(ObserveError::Moved);
        }
        if reach.whole < self.position && self.position < CommitSeq(u64::MAX) {
            let gap = ObserveError::Gap(set_back(&self.path, self.position, durable), durable);
            return Err(self.seen_again(gap));
        }
        (self.seen.durable, self.seen.whole) = (durable, reach.whole);
        Ok(durable)
    }

    /// Runs a step again if the writer interfered.
    fn again<T>(
        &mut self,
        mut run: impl FnMut(&mut Observer) -> std::result::Result<T, ObserveError>,
    ) -> Result<T> {
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
            self.believes_corruption = still >= LOOKS_STILL;
            let halt = match run(self) {
                Ok(out) => return Ok(out),
                Err(halt) => halt,
            };
            // What the failed step read was not reported. It is read again.
            self.batch.clear();
            self.read = self.position;
            match halt {
                ObserveError::Gap(error, goes_on) => {
                    (self.read, self.position) = (goes_on, goes_on);
                    return Err(error);
                }
                ObserveError::Moved => {}
                ObserveError::Failed(error) => failed = Some(error),
            }
            self.is_stale = true;
            if still >= LOOKS_STILL || moving >= LOOKS_MOVING {
                return Err(failed.unwrap_or_else(|| too_fast(&self.path)));
            }
        }
    }

    fn fill(&mut self) -> std::result::Result<(), ObserveError> {
        let files_end = self.files_end()?;
        while self.read < files_end {
            self.fill_from_files(files_end)?;
            if !self.batch.is_empty() {
                return Ok(());
            }
        }
        // The durable end of the log is looked up once for all that is read up to it: each look-up reads the
        // whole log.
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
        // Big values that the log names are freed with the checkpoint. The feed may have kept them.
        let is_gone = live.saw_corruption && !self.believes_corruption;
        live.saw_corruption = false;
        if live.seq() == before || is_gone {
            return Err(ObserveError::Moved);
        }
        self.read = self.read.max(live.seq());
        Ok(())
    }

    /// Changes up to this commit are read from files; see [`Retained::found_through`].
    fn files_end(&mut self) -> Result<CommitSeq> {
        let ends = self.seen.live.seq();
        // Finding out how far files reach requires reading the newest one.
        if self.only_log || !self.seen.loaded.is_alone {
            return Ok(ends);
        }
        Ok(ends.max(self.files()?.found_through()))
    }

    fn fill_from_files(&mut self, ends: CommitSeq) -> std::result::Result<(), ObserveError> {
        if self.only_log {
            return Err(ObserveError::Gap(gap(self.read, ends), ends));
        }
        let files = self.files()?;
        let Some(part) = files.part_after(self.read) else {
            let goes_on = Some(files.oldest()).filter(|oldest| *oldest > self.read).unwrap_or(ends);
            return Err(ObserveError::Gap(files.gap(self.read), goes_on));
        };
        match self.read_file(&files, &part) {
            // Also if the file cannot be read at all: the changes after it are wanted.
            Err(error) if self.believes_corruption => {
                self.seen.file = None;
                // What was read before the error is returned first.
                let is_first = self.batch.is_empty();
                let error = cannot_read(self.read, error.message(), part.through);
                if is_first { Err(ObserveError::Gap(error, part.through)) } else { Ok(()) }
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

    /// The retained files as they were when the checkpoint was read.
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
