//! Replays the log. First the blocks that it names are protected from reuse. Then the last change to each key
//! is applied: at once if it must be, or later through the [`Tail`] while an overlay serves reads.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;

use super::Loaded;
use crate::alarm::invariant;
use crate::catalog::{CATALOG, CatalogRow, TreeTable, of_later_build};
use crate::checkpoint::Store;
use crate::commit::{Applied, Applying, RecordChange, apply_changes, decode_record, named};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::overlay::{ForkLimit, Gathered, Overlay, RecordNotes, SortedChanges};
use crate::tree::{ApplyError, BigRef, DeferredPage};
use crate::wal::{LogIdentity, Reading, Recovered, ReplayedRecord, recover};

/// Changes applied at a time. After each part, memory is given back and the number of threads is read again.
const PART_CHANGES: usize = 32 * 1024;

/// The read-ahead is this part of a batch.
const AHEAD_PART: usize = 16;

/// The notes on a record, or what is wrong with it.
type Notes = std::result::Result<RecordNotes, &'static str>;

/// Arguments of [`replay`].
pub(crate) struct Replay<'a> {
    /// The disk the log lies on.
    pub disk: &'a dyn Disk,
    /// The log's directory.
    pub wal_dir: &'a Path,
    /// Number of threads that share the work.
    pub threads: usize,
    /// A log of at most this many bytes may be left to an overlay. A longer one is applied in such batches.
    pub batch_bytes: usize,
    /// How much the forks of an overlay may hold. `None`: everything is applied at once.
    pub overlay: Option<ForkLimit>,
    /// Called after each part with the trees so far. It may give memory back.
    pub between: &'a mut dyn FnMut(&TreeTable),
}

/// The state after replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// The trees. With a tail: those of the checkpoint, but with the catalogue of the log applied.
    pub trees: TreeTable,
    /// The last commit in the trees.
    pub seq: CommitSeq,
    /// The least id for new trees.
    pub next_tree: TreeId,
    /// The result of the log's recovery.
    pub log: Recovered,
    /// The changes that are not in the trees yet.
    pub tail: Option<Tail>,
}

/// Deferred redo: changes of the log that an overlay serves until they are in the trees.
#[derive(Debug)]
pub(crate) struct Tail {
    overlay: Arc<Overlay>,
    applier: Applier,
}

/// Replays the log after a loaded checkpoint.
///
/// # Errors
/// `Corrupt` if the log is corrupt, missing, or ends before a commit that the superblock knows to be durable;
/// `Io`.
pub(crate) fn replay(loaded: &Loaded, how: &mut Replay<'_>) -> Result<Replayed> {
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let from = superblock.replay;
    let mut first = Survey { next_tree: superblock.next_tree, last: from.seq, ..Survey::default() };
    let mut visit =
        |record: ReplayedRecord, notes: Notes| first.record(loaded, record, notes, how.batch_bytes);
    let reading = reading(how.threads, how.batch_bytes);
    let log = recover(how.disk, how.wal_dir, identity, &superblock.geometry, &from, &reading, &mut visit)?;
    let (seen, count) = (first.last, log.record_count);
    invariant!(seen == log.last_seq, "the log was read up to {}, and seen up to {seen}", log.last_seq);
    invariant!(seen.0 - from.seq.0 == count, "{count} records lead from {} to {seen}", from.seq);
    if log.last_seq < superblock.marked {
        let message = format!(
            "{}: the log ends at commit {}, the data file knows of {}",
            how.wal_dir.display(),
            log.last_seq,
            superblock.marked
        );
        return Err(Error::new(Code::LogMissing, message)
            .with_hint("the log was lost or set back: restore the log directory that belongs to the data, or `duramen repair DB NEW` without it"));
    }
    let space = &loaded.store.space;
    // No tree holds the values of trees that are dropped by the end of the log.
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
        deferred: Vec::new(),
        dropped: Vec::new(),
    };
    let next_tree = first.next_tree;
    if !first.overflowed {
        let bytes = first.gathered.bytes();
        let changes = std::mem::take(&mut first.gathered).sorted(&first.doomed, how.threads);
        applier.catalogue(&changes)?;
        if let Some(limit) = how.overlay.filter(|_| changes.trees().any(|tree| tree != CATALOG)) {
            let (pages, geometry) = (&loaded.store.pages, loaded.store.geometry);
            let (after, to) = (from.seq, applier.seq);
            invariant!(after < to, "changes over the checkpoint {after} lead to a later commit, not {to}");
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
        in_batches(loaded, how.disk, how.wal_dir, how.batch_bytes, how.threads, &mut visit)?;
    }
    let trees = applier.finish()?;
    Ok(Replayed { trees, seq: log.last_seq, next_tree, log, tail: None })
}

/// Protects values of the log that are in no tree at its end, as without a crash. Only the change feed reads
/// them, and the feed reports it if one of them is corrupt.
fn keep_replaced<'a>(
    loaded: &Loaded,
    values: impl Iterator<Item = &'a Vec<u8>>,
    unused_since: CommitSeq,
) -> Result<()> {
    for value in values {
        match BigRef::decode(value).and_then(|value| value.pages(&loaded.store.pages)) {
            Ok(pages) => loaded.store.space.replaced_in_log(&pages, unused_since),
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the log again and delivers its changes in batches that fit in memory.
fn in_batches(
    loaded: &Loaded,
    disk: &dyn Disk,
    wal_dir: &Path,
    batch_bytes: usize,
    threads: usize,
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

/// The thread that reads a record also notes it.
fn reading(threads: usize, batch_bytes: usize) -> Reading<'static, Notes> {
    Reading { threads, ahead_bytes: batch_bytes / AHEAD_PART, note: &RecordNotes::of }
}

/// The first pass over the log: its big values at the end, its tree ids, and its changes if they fit.
#[derive(Default)]
struct Survey {
    gathered: Gathered,
    overflowed: bool,
    /// The last commit seen.
    last: CommitSeq,
    next_tree: TreeId,
    /// The last big value of each key that had one in this log, unless a later change replaced it.
    values: HashMap<(TreeId, Vec<u8>), (Vec<u8>, CommitSeq)>,
    /// Big values of this log that a later change in it replaced. No tree needs their extents.
    superseded: HashSet<Vec<u8>>,
    /// The tree of each name of this log at its end.
    names: HashMap<String, Option<TreeId>>,
    /// Trees that this log drops. Changes to them are skipped.
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
        let (seq, last) = (record.seq, self.last);
        // The log checks it and reports corruption. Out of order, an older change could win (D2).
        invariant!(seq == last.next(), "commit {seq} is replayed after {last}");
        self.last = seq;
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

    /// Examines each change of a record that may be more than a row.
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
            if change.value.as_ref().is_some_and(|row| CatalogRow::is_of_later_build(row.bytes)) {
                return Err(of_later_build(record.seq));
            }
            let (name, row) = change.naming().map_err(|what| bad(record.seq, what))?;
            self.name(loaded, name, row.map(|row| row.id))
        })
    }

    /// Lets a name stand for this tree from here on. The tree that had the name before is dropped.
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

/// Sorted changes to be applied to the trees, and what the new trees no longer use.
#[derive(Debug)]
struct Applier {
    store: Arc<Store>,
    trees: TreeTable,
    /// The last commit of the log. Applying all changes gives the state after it.
    seq: CommitSeq,
    /// Big values of the log that are in no tree.
    superseded: HashSet<Vec<u8>>,
    deferred: Vec<DeferredPage>,
    dropped: Vec<Vec<u8>>,
}

impl Applier {
    /// Applies the catalogue first: trees are created and dropped before anything is put into them.
    fn catalogue(&mut self, changes: &SortedChanges) -> Result<()> {
        self.tree(CATALOG, changes, &|| 1, &mut |_| ())
    }

    /// Applies all other trees.
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
            let Applied { trees, deferred, dropped_values, .. } = applied.map_err(ApplyError::into_error)?;
            self.trees = trees;
            self.deferred.extend(deferred);
            self.dropped.extend(dropped_values);
            between(&self.trees);
        }
        Ok(())
    }

    /// Defers the free of what the checkpoint's trees used and the new ones do not.
    fn finish(self) -> Result<TreeTable> {
        self.store.space.defer_free(self.deferred.into_iter().map(Into::into));
        for value in self.dropped.iter().filter(|value| !self.superseded.contains(*value)) {
            self.store.defer_free_value(value, self.seq);
        }
        Ok(self.trees)
    }
}

impl Tail {
    /// The overlay that serves reads until the trees do.
    pub(crate) fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// Applies everything and returns the trees. Calls `threads` repeatedly.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read. Reads through the overlay are not affected.
    pub(crate) fn drain(
        mut self,
        threads: &dyn Fn() -> usize,
        between: &mut dyn FnMut(&TreeTable),
    ) -> Result<TreeTable> {
        self.applier.rest(self.overlay.changes(), threads, between)?;
        self.applier.finish()
    }
}

fn bad(seq: CommitSeq, what: &str) -> Error {
    Error::new(Code::CorruptLog, format!("the log record of commit {seq} cannot be read: {what}"))
}
