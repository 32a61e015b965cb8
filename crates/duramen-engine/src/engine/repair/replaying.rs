//! Applies the log of a corrupt database to the new one, commit by commit, as far as it can be read.
//!
//! Changes are applied in order and one by one, so that memory does not grow with the log. Big values that
//! later commits replaced may be missing; they are no loss.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use duramen_disk::Disk;

use super::LostCommits;
use super::writing::Writing;
use crate::catalog::{CATALOG, CatalogRow, of_later_build};
use crate::commit::decode_record;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::repair::{LostRange, Source};
use crate::wal::{LogIdentity, ReplayedRecord, repair};

/// The result of replaying the log.
pub(super) struct Log {
    pub(super) last_seq: CommitSeq,
    pub(super) commits: u64,
    pub(super) torn: bool,
    pub(super) lost: Option<LostCommits>,
    /// Trees with lost names to which the log writes.
    pub(super) nameless: Vec<(TreeId, String)>,
    /// Names, possibly among the lost ones, that the log drops or gives to another tree.
    pub(super) unknown_drops: u64,
}

/// Maps names to trees while the log is replayed.
struct Replaying<'r, 'a> {
    writing: &'r mut Writing<'a>,
    source: &'r Source,
    names: BTreeMap<String, TreeId>,
    /// Names that the log has dropped. Their earlier trees are known or counted.
    dropped: BTreeSet<String>,
    /// Some names are lost, so an unknown tree may have had one.
    is_in_part: bool,
    nameless: Vec<(TreeId, String)>,
    unknown_drops: u64,
}

/// Applies every commit after the checkpoint that can be read.
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
    let (geometry, from) = (&superblock.geometry, &superblock.replay);
    let read = repair(disk, wal_dir, identity, geometry, from, source.durable, &mut visit)?;
    replaying.writing.flush()?;
    let after = read.last_seq;
    Ok(Log {
        last_seq: after,
        commits: read.record_count,
        torn: read.torn,
        lost: read.lost.map(|lost| LostCommits {
            why: match source.superblock_count {
                0 => "without a superblock it is unknown where the log continues".to_owned(),
                _ => lost.why,
            },
            after,
            until: lost.until,
            frames: lost.frame_count,
            bytes: lost.bytes,
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
        // Create trees before writing to them.
        for change in changes.iter().filter(|change| change.tree == CATALOG) {
            if change.value.as_ref().is_some_and(|row| CatalogRow::is_of_later_build(row.bytes)) {
                return Err(of_later_build(record.seq));
            }
            let (name, row) = change.naming().map_err(|what| unreadable(record.seq, what))?;
            self.name(name.to_owned(), row)?;
        }
        for change in changes.iter().filter(|change| change.tree != CATALOG) {
            if self.is_in_part && !self.writing.knows(change.tree) {
                let name = self.writing.begin_nameless(change.tree)?;
                // The log has only what changed after the checkpoint.
                self.writing.lose(LostRange {
                    tree: name.clone(),
                    after: None,
                    before: None,
                    entries: None,
                    why: "its name and its pointer are lost, and the log has only its last changes"
                        .to_owned(),
                });
                self.nameless.push((change.tree, name));
            }
            self.writing.change(change.tree, change.key, change.value)?;
        }
        Ok(())
    }

    /// Gives a name to a tree, or removes it. The tree that had the name is dropped.
    fn name(&mut self, name: String, row: Option<CatalogRow>) -> Result<()> {
        let before = self.names.get(&name).copied();
        if before.is_some() && before == row.as_ref().map(|row| row.id) {
            return Ok(());
        }
        match before {
            Some(before) => self.writing.drop_tree(before)?,
            // The name may have been that of a tree with a lost name, dropped or replaced by this commit.
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
                self.writing.begin_tree(&name, &row)?;
                self.names.insert(name, row.id);
            }
        }
        Ok(())
    }
}

fn unreadable(seq: CommitSeq, what: impl std::fmt::Display) -> Error {
    Error::new(Code::CorruptLog, format!("the log record of commit {seq} cannot be read: {what}"))
}
