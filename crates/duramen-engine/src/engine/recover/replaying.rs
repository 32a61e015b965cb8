//! Brings the log of a damaged database into the new one, commit after commit, as far as it leads.
//!
//! In order and entry by entry, so that memory does not grow with the log; big values that later commits replaced may be gone, and
//! are no loss.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use duramen_disk::Disk;

use super::LostCommits;
use super::writing::Writing;
use crate::catalog::{CATALOG, CatalogRow};
use crate::commit::decode_record;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::salvage::Source;
use crate::wal::{LogIdentity, ReplayedRecord, salvage};

/// What came of the log.
pub(super) struct Log {
    pub(super) last_seq: CommitSeq,
    pub(super) commits: u64,
    pub(super) lost: Option<LostCommits>,
    /// Trees that it writes to and whose names are lost.
    pub(super) nameless: Vec<(TreeId, String)>,
    /// Names that may have been lost and that it drops or gives to another tree.
    pub(super) unknown_drops: u64,
}

/// Which tree a name stands for, as the log goes on.
struct Replaying<'r, 'a> {
    writing: &'r mut Writing<'a>,
    source: &'r Source,
    names: BTreeMap<String, TreeId>,
    /// Names that the log has dropped: for what they stood before is known, or was counted.
    dropped: BTreeSet<String>,
    /// Names are lost, so that a tree may be one that had one.
    is_in_part: bool,
    nameless: Vec<(TreeId, String)>,
    unknown_drops: u64,
}

/// Applies every commit behind the checkpoint that can be read.
pub(super) fn replay(
    disk: &dyn Disk,
    wal_dir: &Path,
    source: &Source,
    writing: &mut Writing<'_>,
) -> Result<Log> {
    let superblock = &source.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let names = source.trees.names.iter().map(|(name, row)| (name.clone(), row.id)).collect();
    let is_in_part = !source.trees.lost.is_empty();
    let mut replaying = Replaying {
        writing,
        source,
        names,
        dropped: BTreeSet::new(),
        is_in_part,
        nameless: Vec::new(),
        unknown_drops: 0,
    };
    let mut visit = |record: ReplayedRecord| replaying.record(&record);
    let of = (identity, &superblock.geometry);
    let read = salvage(disk, wal_dir, of, &superblock.replay, source.durable, &mut visit)?;
    replaying.writing.flush()?;
    let after = read.last_seq;
    Ok(Log {
        last_seq: after,
        commits: read.record_count,
        lost: read.lost.map(|lost| LostCommits {
            after,
            until: lost.until,
            frames: lost.frame_count,
            bytes: lost.bytes,
            why: lost.why,
        }),
        nameless: replaying.nameless,
        unknown_drops: replaying.unknown_drops,
    })
}

impl Replaying<'_, '_> {
    fn record(&mut self, record: &ReplayedRecord) -> Result<()> {
        let mut changes = Vec::new();
        decode_record(&record.bytes, &mut |change| changes.push(change))
            .map_err(|what| unreadable(record.seq, what))?;
        // Trees come before what is put into them.
        for change in changes.iter().filter(|change| change.tree == CATALOG) {
            let (name, row) = change.naming().map_err(|what| unreadable(record.seq, what))?;
            self.name(name.to_owned(), row)?;
        }
        for change in changes.iter().filter(|change| change.tree != CATALOG) {
            if self.is_in_part && !self.writing.knows(change.tree) {
                let name = self.writing.begin_nameless(change.tree)?;
                self.nameless.push((change.tree, name));
            }
            self.writing.change(change.tree, change.key, change.value)?;
        }
        Ok(())
    }

    /// A name stands for this tree from here on; the one that it stood for before is gone.
    fn name(&mut self, name: String, row: Option<CatalogRow>) -> Result<()> {
        let before = self.names.get(&name).copied();
        if before.is_some() && before == row.as_ref().map(|row| row.id) {
            return Ok(());
        }
        match before {
            Some(before) => self.writing.drop_tree(before)?,
            // It may have stood for a tree whose name is lost: dropped, or dropped and made anew in one commit.
            None => {
                let may_be = !self.dropped.contains(&name) && self.source.trees.may_have_lost(&name);
                self.unknown_drops += u64::from(may_be);
            }
        }
        match row {
            None => {
                self.names.remove(&name);
                if self.is_in_part {
                    self.dropped.insert(name);
                }
            }
            Some(row) => {
                self.writing.begin_tree(row.id, &name, row.spec)?;
                self.names.insert(name, row.id);
            }
        }
        Ok(())
    }
}

fn unreadable(seq: CommitSeq, what: impl std::fmt::Display) -> Error {
    Error::new(Code::DamagedLog, format!("the log record of commit {seq} cannot be read: {what}"))
}
