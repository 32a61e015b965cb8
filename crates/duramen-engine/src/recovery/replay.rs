//! Replaying the log: what it names is kept from being overwritten first; then the last change to each key is applied, at
//! once where it must be, or later, by whoever has the [`Tail`], while an overlay answers for it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use super::Loaded;
use crate::catalog::{CATALOG, TreeTable};
use crate::checkpoint::Store;
use crate::commit::{Applied, Applying, RecordChange, apply_changes, decode_record, named};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::overlay::{ForkLimit, Gathered, Overlay, RecordNotes, SortedChanges};
use crate::tree::{BigRef, RetiredPage, Stop};
use crate::wal::{LogIdentity, Reading, Recovered, ReplayedRecord, recover};

/// So many changes are applied at a time: in between, memory is given back, and threads are counted anew.
const PART_CHANGES: usize = 32 * 1024;

/// This part of a batch is read ahead of what has been looked at.
const AHEAD_PART: usize = 16;

/// What was noted about a record, or what is wrong with it.
type Notes = std::result::Result<RecordNotes, &'static str>;

/// Where and how to replay.
pub struct Replay<'a> {
    /// The disk the log lies on.
    pub disk: &'a dyn Disk,
    /// The log's directory.
    pub wal_dir: &'a Path,
    /// Threads that share the work.
    pub threads: usize,
    /// A log of at most so many bytes may be served by an overlay; a longer one is applied in batches of so many.
    pub batch_bytes: usize,
    /// How much the forks of an overlay may hold; without it everything is applied at once.
    pub overlay: Option<ForkLimit>,
    /// Called after each part with the trees so far: may give memory back.
    pub between: &'a mut dyn FnMut(&TreeTable),
}

/// The state after replay.
#[derive(Debug)]
pub struct Replayed {
    /// The trees; with a tail, those of the checkpoint, but for the catalogue and what it says.
    pub trees: TreeTable,
    /// The last commit in the trees.
    pub seq: CommitSeq,
    /// New trees get at least this id.
    pub next_tree: TreeId,
    /// What the log said about itself.
    pub log: Recovered,
    /// What is not in the trees yet.
    pub tail: Option<Tail>,
}

/// Changes of the log that an overlay serves, on their way into the trees.
#[derive(Debug)]
pub struct Tail {
    overlay: Arc<Overlay>,
    applier: Applier,
}

/// Replays the log after a loaded checkpoint.
///
/// # Errors
/// `Corrupt` if the log is damaged, missing, or ends before what the superblock knows to be durable; `Io`.
pub fn replay(loaded: &Loaded, how: &mut Replay<'_>) -> Result<Replayed> {
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let from = superblock.replay;
    let mut first = Survey { next_tree: superblock.next_tree, ..Survey::default() };
    let mut visit =
        |record: ReplayedRecord, notes: Notes| first.record(loaded, record, notes, how.batch_bytes);
    let reading = reading(how.threads, how.batch_bytes);
    let log = recover(how.disk, how.wal_dir, identity, &superblock.geometry, &from, &reading, &mut visit)?;
    if log.last_seq < superblock.marked {
        let message = format!(
            "{}: the log ends at commit {}, the data file knows of {}",
            how.wal_dir.display(),
            log.last_seq,
            superblock.marked
        );
        return Err(Error::new(Code::LogMissing, message)
            .with_hint("the log was lost or set back: restore the log directory that belongs to the data, or `duramen recover DB NEW` without it"));
    }
    let space = &loaded.store.space;
    // No tree holds values of trees that are gone at the end of the log.
    let doomed: Vec<Vec<u8>> = first
        .values
        .extract_if(|(tree, _), _| first.doomed.contains(tree))
        .map(|(_, (value, _))| value)
        .collect();
    for (value, seq) in first.values.values() {
        let pages = BigRef::decode(value)?.pages(&loaded.store.pages)?;
        space.value_replayed(&pages, *seq)?;
    }
    keep_replaced(loaded, first.superseded.iter().chain(&doomed), log.last_seq)?;
    let mut applier = Applier {
        store: Arc::clone(&loaded.store),
        trees: loaded.trees.clone(),
        seq: log.last_seq,
        superseded: std::mem::take(&mut first.superseded),
        retired: Vec::new(),
        dropped: Vec::new(),
    };
    let next_tree = first.next_tree;
    if !first.overflowed {
        let bytes = first.gathered.bytes();
        let changes = std::mem::take(&mut first.gathered).sorted(&first.doomed, how.threads);
        applier.catalogue(&changes)?;
        if let Some(limit) = how.overlay.filter(|_| changes.trees().any(|tree| tree != CATALOG)) {
            let (pages, geometry) = (&loaded.store.pages, loaded.store.geometry);
            let overlay = Arc::new(Overlay::new(applier.seq, changes, bytes, pages, geometry, limit));
            let trees = applier.trees.clone();
            let tail = Some(Tail { overlay, applier });
            return Ok(Replayed { trees, seq: from.seq, next_tree, log, tail });
        }
        applier.rest(&changes, &|| how.threads, how.between)?;
    } else {
        let mut visit = |batch: Gathered| {
            let changes = batch.sorted(&first.doomed, how.threads);
            applier.catalogue(&changes)?;
            applier.rest(&changes, &|| how.threads, how.between)
        };
        in_batches(loaded, (how.disk, how.wal_dir, how.batch_bytes, how.threads), &mut visit)?;
    }
    let trees = applier.finish()?;
    Ok(Replayed { trees, seq: log.last_seq, next_tree, log, tail: None })
}

/// Keeps values of the log that are in no tree at its end, as they are kept without a crash: only the change feed asks for them, and a
/// value that is damaged is for it to tell of.
fn keep_replaced<'a>(
    loaded: &Loaded,
    values: impl Iterator<Item = &'a Vec<u8>>,
    retired: CommitSeq,
) -> Result<()> {
    for value in values {
        match BigRef::decode(value).and_then(|value| value.pages(&loaded.store.pages)) {
            Ok(pages) => loaded.store.space.replaced_in_log(&pages, retired),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the log once more and delivers its changes in batches that fit in memory.
fn in_batches(
    loaded: &Loaded,
    (disk, wal_dir, batch_bytes, threads): (&dyn Disk, &Path, usize, usize),
    visit: &mut dyn FnMut(Gathered) -> Result<()>,
) -> Result<()> {
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let mut batch = Gathered::default();
    let mut take = |record: ReplayedRecord, notes: Notes| {
        let seq = record.seq;
        if !batch.record(record.bytes, notes.map_err(|what| bad(seq, what))?) {
            return Err(bad(seq, "it is longer than this build can replay"));
        }
        if batch.bytes() >= batch_bytes {
            visit(std::mem::take(&mut batch))?;
        }
        Ok(())
    };
    let reading = reading(threads, batch_bytes);
    recover(disk, wal_dir, identity, &superblock.geometry, &superblock.replay, &reading, &mut take)?;
    visit(batch)
}

/// Each record is noted by whoever reads it.
fn reading(threads: usize, batch_bytes: usize) -> Reading<'static, Notes> {
    Reading { threads, ahead_bytes: batch_bytes / AHEAD_PART, note: &RecordNotes::of }
}

/// A first look at the log: which big values it ends up with, which tree ids it uses, and its changes if they fit.
#[derive(Default)]
struct Survey {
    gathered: Gathered,
    overflowed: bool,
    next_tree: TreeId,
    /// The last big value of each key that ever had one in this log, unless something replaced it.
    values: HashMap<(TreeId, Vec<u8>), (Vec<u8>, CommitSeq)>,
    /// Big values of this log that something later in it replaced: nothing needs their extents.
    superseded: HashSet<Vec<u8>>,
    /// The tree that each name of this log stands for at its end.
    names: HashMap<String, Option<TreeId>>,
    /// Trees that this log drops: what it writes to them before is skipped.
    doomed: HashSet<TreeId>,
}

impl Survey {
    fn record(
        &mut self,
        loaded: &Loaded,
        record: ReplayedRecord,
        notes: Notes,
        bytes_max: usize,
    ) -> Result<()> {
        let seq = record.seq;
        let notes = notes.map_err(|what| bad(seq, what))?;
        if !notes.is_plain() || !self.values.is_empty() {
            self.names_and_values(loaded, &record)?;
        }
        self.overflowed = self.overflowed
            || !self.gathered.record(record.bytes, notes)
            || self.gathered.bytes() > bytes_max;
        if self.overflowed {
            self.gathered = Gathered::default();
        }
        Ok(())
    }

    /// Looks at each change of a record that may be more than a row.
    fn names_and_values(&mut self, loaded: &Loaded, record: &ReplayedRecord) -> Result<()> {
        let mut catalogue = Vec::new();
        decode_record(&record.bytes, &mut |change| {
            if change.tree == CATALOG {
                catalogue.push(change);
            }
            self.change(&change, record.seq);
        })
        .map_err(|what| bad(record.seq, what))?;
        catalogue.iter().try_for_each(|change| {
            let (name, row) = change.naming().map_err(|what| bad(record.seq, what))?;
            self.name(loaded, name, row.map(|row| row.id))
        })
    }

    /// A name stands for this tree from here on; the one that it stood for before is dropped.
    fn name(&mut self, loaded: &Loaded, name: &str, id: Option<TreeId>) -> Result<()> {
        self.next_tree = self.next_tree.max(id.map_or(TreeId(0), TreeId::next));
        let before = match self.names.get(name) {
            Some(before) => *before,
            None => {
                let slot = loaded.trees.get(CATALOG).and_then(|tree| tree.slot.as_ref());
                let row = named(&loaded.store.pages, slot, name.as_bytes())?;
                row.map(|row| row.id)
            }
        };
        if let Some(before) = before.filter(|before| Some(*before) != id) {
            self.doomed.insert(before);
        }
        self.names.insert(name.to_owned(), id);
        Ok(())
    }

    fn change(&mut self, change: &RecordChange<'_>, seq: CommitSeq) {
        let big = change.value.filter(|value| value.big);
        if big.is_none() && self.values.is_empty() {
            return;
        }
        let key = (change.tree, change.key.to_vec());
        let before = match big {
            Some(value) => self.values.insert(key, (value.bytes.to_vec(), seq)),
            None => self.values.remove(&key),
        };
        if let Some((before, _)) = before {
            self.superseded.insert(before);
        }
    }
}

/// Sorted changes on their way into the trees, and what these no longer use.
#[derive(Debug)]
struct Applier {
    store: Arc<Store>,
    trees: TreeTable,
    /// The last commit of the log: what is applied is the state after it.
    seq: CommitSeq,
    /// Big values of the log that are in no tree.
    superseded: HashSet<Vec<u8>>,
    retired: Vec<RetiredPage>,
    dropped: Vec<Vec<u8>>,
}

impl Applier {
    /// Trees are created and dropped before anything is put into them.
    fn catalogue(&mut self, changes: &SortedChanges) -> Result<()> {
        self.tree(CATALOG, changes, &|| 1, &mut |_| ())
    }

    /// All other trees.
    fn rest(
        &mut self,
        changes: &SortedChanges,
        threads: &dyn Fn() -> usize,
        between: &mut dyn FnMut(&TreeTable),
    ) -> Result<()> {
        changes
            .trees()
            .filter(|tree| *tree != CATALOG)
            .try_for_each(|tree| self.tree(tree, changes, threads, between))
    }

    fn tree(
        &mut self,
        tree: TreeId,
        changes: &SortedChanges,
        threads: &dyn Fn() -> usize,
        between: &mut dyn FnMut(&TreeTable),
    ) -> Result<()> {
        for part in changes.of_tree(tree).parts(PART_CHANGES) {
            let lists = [(tree, part.to_list())];
            let applying = Applying::Replay { threads: threads() };
            let applied = apply_changes(&self.store, &self.trees, &lists, self.seq, applying);
            let Applied { trees, retired, dropped_values, .. } = applied.map_err(Stop::into_error)?;
            self.trees = trees;
            self.retired.extend(retired);
            self.dropped.extend(dropped_values);
            between(&self.trees);
        }
        Ok(())
    }

    /// Puts on the retire list what the checkpoint's trees used and the new ones do not.
    fn finish(self) -> Result<TreeTable> {
        self.store.space.retire(self.retired.into_iter().map(Into::into));
        for value in self.dropped.iter().filter(|value| !self.superseded.contains(*value)) {
            self.store.retire_value(value, self.seq);
        }
        Ok(self.trees)
    }
}

impl Tail {
    /// What answers until the trees do.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// Applies everything and returns the trees. `threads` is asked again and again.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read. Nothing that is read through the overlay has changed.
    pub fn drain(
        mut self,
        threads: &dyn Fn() -> usize,
        between: &mut dyn FnMut(&TreeTable),
    ) -> Result<TreeTable> {
        self.applier.rest(self.overlay.changes(), threads, between)?;
        self.applier.finish()
    }
}

fn bad(seq: CommitSeq, what: &str) -> Error {
    Error::new(Code::DamagedLog, format!("the log record of commit {seq} cannot be read: {what}"))
}
