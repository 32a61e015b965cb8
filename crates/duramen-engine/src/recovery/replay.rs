//! Replaying the log: what it names is kept from being overwritten first, then the last change to each key is
//! applied, in batches that fit in memory.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use duramen_disk::Disk;

use super::Loaded;
use crate::catalog::{CATALOG, CatalogRow, TreeTable};
use crate::commit::{Applied, Applying, RecordChange, apply_changes, decode_record};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::tree::{BigRef, Change, RetiredPage, Stop, find};
use crate::wal::{LogIdentity, Recovered, ReplayedRecord, recover};

/// Where and how to replay.
pub struct Replay<'a> {
    /// The disk the log lies on.
    pub disk: &'a dyn Disk,
    /// The log's directory.
    pub wal_dir: &'a Path,
    /// Threads that share the work.
    pub threads: usize,
    /// Records are applied in batches of about this many bytes.
    pub batch_bytes: usize,
    /// Called after each batch with the trees so far: may give memory back.
    pub between: &'a mut dyn FnMut(&TreeTable) -> Result<()>,
}

/// The state after replay.
#[derive(Debug)]
pub struct Replayed {
    /// The trees.
    pub trees: TreeTable,
    /// The last commit.
    pub seq: CommitSeq,
    /// New trees get at least this id.
    pub next_tree: TreeId,
    /// What the log said about itself.
    pub log: Recovered,
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
    let mut visit = |record: ReplayedRecord| first.record(loaded, record, how.batch_bytes);
    let log = recover(how.disk, how.wal_dir, identity, &superblock.geometry, &from, &mut visit)?;
    if log.last_seq < superblock.marked {
        let message = format!(
            "{}: the log ends at commit {}, the data file knows of {}",
            how.wal_dir.display(),
            log.last_seq,
            superblock.marked
        );
        return Err(Error::new(Code::LogMissing, message)
            .with_hint("the log was lost or set back: restore the log directory that belongs to the data"));
    }
    let space = &loaded.store.space;
    // Nobody asks for values of trees that are gone at the end of the log: their extents may have been used again
    // since an earlier replay of the same log, so they are neither read nor kept.
    first.values.retain(|(tree, _), _| !first.doomed.contains(tree));
    for (value, seq) in first.values.values() {
        let pages = BigRef::decode(value)?.pages(&loaded.store.pages)?;
        space.value_replayed(&pages, *seq)?;
    }
    let mut applier = Applier {
        loaded,
        doomed: &first.doomed,
        trees: loaded.trees.clone(),
        seq: from.seq,
        retired: Vec::new(),
        threads: how.threads,
        dropped: Vec::new(),
    };
    if first.overflowed {
        let mut batch = Survey::default();
        let mut visit = |record: ReplayedRecord| {
            batch.records.push(record);
            batch.bytes += batch.records.last().map_or(0, |record| record.bytes.len());
            if batch.bytes >= how.batch_bytes {
                batch.bytes = 0;
                applier.apply(&std::mem::take(&mut batch.records))?;
                (how.between)(&applier.trees)?;
            }
            Ok(())
        };
        recover(how.disk, how.wal_dir, identity, &superblock.geometry, &from, &mut visit)?;
        applier.apply(&batch.records)?;
    } else {
        applier.apply(&first.records)?;
    }
    (how.between)(&applier.trees)?;
    let (trees, seq) = applier.finish(&first)?;
    Ok(Replayed { trees, seq, next_tree: first.next_tree, log })
}

/// A first look at the log: which big values it ends up with, which tree ids it uses, and its records if they fit.
#[derive(Default)]
struct Survey {
    records: Vec<ReplayedRecord>,
    bytes: usize,
    overflowed: bool,
    next_tree: TreeId,
    /// The last big value of each key that ever had one in this log, unless something replaced it.
    values: HashMap<(TreeId, Vec<u8>), (Vec<u8>, CommitSeq)>,
    /// Big values of this log that something later in it replaced: nothing needs their extents.
    superseded: HashSet<Vec<u8>>,
    /// The tree that each name of this log stands for at its end.
    names: HashMap<Vec<u8>, Option<TreeId>>,
    /// Trees that this log drops: what it writes to them before is skipped.
    doomed: HashSet<TreeId>,
}

impl Survey {
    fn record(&mut self, loaded: &Loaded, record: ReplayedRecord, bytes_max: usize) -> Result<()> {
        let seq = record.seq;
        let mut catalogue = Vec::new();
        decode_record(&record.bytes, &mut |change| {
            if change.tree == CATALOG {
                let row = change.value.and_then(|value| CatalogRow::decode(value.bytes));
                catalogue.push((change.key.to_vec(), row.map(|row| row.id)));
            }
            self.change(&change, seq);
        })
        .map_err(|what| bad(seq, what))?;
        for (name, id) in catalogue {
            self.name(loaded, name, id)?;
        }
        self.bytes += record.bytes.len();
        if self.bytes > bytes_max {
            self.overflowed = true;
            self.records.clear();
        }
        if !self.overflowed {
            self.records.push(record);
        }
        Ok(())
    }

    /// A name stands for this tree from here on; the one that it stood for before is dropped.
    fn name(&mut self, loaded: &Loaded, name: Vec<u8>, id: Option<TreeId>) -> Result<()> {
        self.next_tree = self.next_tree.max(id.map_or(TreeId(0), TreeId::next));
        let before = match self.names.get(&name) {
            Some(before) => *before,
            None => {
                let slot = loaded.trees.get(CATALOG).and_then(|tree| tree.slot.as_ref());
                find(&loaded.store.pages, slot, &name, |value| CatalogRow::decode(value.bytes))?
                    .flatten()
                    .map(|row| row.id)
            }
        };
        if let Some(before) = before.filter(|before| Some(*before) != id) {
            self.doomed.insert(before);
        }
        self.names.insert(name, id);
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

struct Applier<'a> {
    loaded: &'a Loaded,
    doomed: &'a HashSet<TreeId>,
    trees: TreeTable,
    seq: CommitSeq,
    retired: Vec<RetiredPage>,
    threads: usize,
    dropped: Vec<Vec<u8>>,
}

impl Applier<'_> {
    fn apply(&mut self, records: &[ReplayedRecord]) -> Result<()> {
        let Some(last) = records.last() else { return Ok(()) };
        let mut changes: Vec<RecordChange<'_>> = Vec::new();
        for record in records {
            decode_record(&record.bytes, &mut |change| changes.push(change))
                .map_err(|what| bad(record.seq, what))?;
        }
        // Stable, so that of several changes to one key the last in the order of commits is last.
        changes.sort_by(|a, b| (a.tree, a.key).cmp(&(b.tree, b.key)));
        let mut lists: Vec<(TreeId, Vec<Change<'_>>)> = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let superseded =
                changes.get(index + 1).is_some_and(|next| (next.tree, next.key) == (change.tree, change.key));
            if superseded || self.doomed.contains(&change.tree) {
                continue;
            }
            if lists.last().is_none_or(|(tree, _)| *tree != change.tree) {
                lists.push((change.tree, Vec::new()));
            }
            let (_, list) = lists.last_mut().expect("pushed above");
            list.push(Change { key: change.key, value: change.value });
        }
        let store = &self.loaded.store;
        let applying = Applying::Replay { threads: self.threads };
        let applied = apply_changes(store, &self.trees, &lists, last.seq, applying);
        let Applied { trees, retired, dropped_values, .. } = applied.map_err(Stop::into_error)?;
        self.trees = trees;
        self.seq = last.seq;
        self.retired.extend(retired);
        self.dropped.extend(dropped_values);
        Ok(())
    }

    /// Puts on the retire list what the checkpoint's trees used and the new ones do not.
    fn finish(self, survey: &Survey) -> Result<(TreeTable, CommitSeq)> {
        let store = &self.loaded.store;
        store.space.retire(self.retired.into_iter().map(Into::into));
        for value in self.dropped.iter().filter(|value| !survey.superseded.contains(*value)) {
            let pages = BigRef::decode(value)?.pages(&store.pages)?;
            store.space.retire_pages(&pages, self.seq);
        }
        Ok((self.trees, self.seq))
    }
}

fn bad(seq: CommitSeq, what: &str) -> Error {
    Error::new(Code::DamagedLog, format!("the log record of commit {seq} cannot be read: {what}"))
}
