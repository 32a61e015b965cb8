//! Rows of the tree of roots and of the catalogue from nodes that no pointer leads to any more, and names of
//! trees from the log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use duramen_disk::Disk;

use super::{FoundNode, LogEntry, LostRange, NAMES, Scan, Standing, Trees, UsedBlocks, walk};
use crate::catalog::{CATALOG, CatalogRow, RootEntry};
use crate::commit::decode_record;
use crate::data_file::{PagePointer, Superblock, TreeNumber};
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::page_cache::Pages;
use crate::tree::{NodePointer, Reduction, StoredValue};
use crate::wal::{LogIdentity, records_left};

/// The most bytes of entries of the log that are kept.
const OF_LOG_BYTES_MAX: usize = 32 << 20;

impl Trees {
    /// Adds what the current nodes of both trees say that were found in the file. Notes names from others.
    ///
    /// Costs a read of the whole file.
    pub(super) fn complete(&mut self, pages: &Pages, used: &UsedBlocks) -> Result<()> {
        let (mut roots, mut names, mut uncertain) = (Vec::new(), Vec::new(), Vec::new());
        for node in Scan::of(pages.data())?.flatten().filter(|node| !node.is_inner()) {
            let is_roots = node.tree == TreeNumber::ROOTS;
            if !is_roots && node.tree != TreeNumber::of(CATALOG) {
                continue;
            }
            match used.standing(&node, &self.unreadable) {
                Standing::Current if is_roots => roots.push(node),
                Standing::Current => names.push(node),
                Standing::Uncertain if !is_roots => uncertain.push(node),
                Standing::Uncertain | Standing::Old => {}
            }
        }
        for (key, value) in rows(pages, &roots)? {
            if let Some((id, entry)) = tree_id(&key).zip(RootEntry::decode(&value)) {
                self.roots.entry(id).or_insert(entry);
            }
        }
        if self.names.is_empty() && self.roots.contains_key(&CATALOG) {
            self.lost.retain(|range| range.tree != NAMES);
            self.read_names(pages)?;
        }
        for (key, value) in rows(pages, &names)? {
            if let Some((name, row)) = name_and_row(key, &value) {
                self.names.entry(name).or_insert(row);
            }
        }
        uncertain.sort_by_key(|node| node.birth);
        for node in &uncertain {
            for (key, value) in rows(pages, std::slice::from_ref(node))? {
                if let Some((name, row)) = name_and_row(key, &value) {
                    self.uncertain.insert(row.id, name);
                }
            }
        }
        Ok(())
    }

    /// Adds names that the log gave to trees, where no page has their names. The commit may have been dropped
    /// by a crash, so the names are as uncertain as those of older pages. The same goes for what it puts into
    /// trees that need a feature.
    ///
    /// Costs a read of the whole log, and another if there are such trees.
    pub(super) fn add_names_of_log(
        &mut self,
        disk: &dyn Disk,
        wal_dir: &Path,
        superblock: &Superblock,
    ) -> Result<()> {
        let identity = LogIdentity { database: superblock.database, log: superblock.log };
        let mut newest: BTreeMap<TreeId, (CommitSeq, String)> = BTreeMap::new();
        let mut featured: BTreeMap<TreeId, String> = BTreeMap::new();
        records_left(disk, wal_dir, identity, &superblock.geometry, &mut |seq, bytes| {
            let mut note = |id: TreeId, name: &str| {
                if newest.get(&id).is_none_or(|(known, _)| *known <= seq) {
                    newest.insert(id, (seq, name.to_owned()));
                }
            };
            // A record that does not decode names nothing.
            let _ = decode_record(bytes, &mut |change| {
                if change.tree == CATALOG
                    && let Ok((name, Some(row))) = change.naming()
                {
                    note(row.id, name);
                    if !row.features.is_empty() {
                        featured.insert(row.id, name.to_owned());
                    }
                }
            });
        })?;
        if !featured.is_empty() {
            self.of_log = entries_of_log(disk, wal_dir, superblock, &featured)?;
        }
        for (id, (_, name)) in newest {
            self.uncertain.entry(id).or_insert(name);
        }
        Ok(())
    }
}

/// What the log puts into these trees. Costs a read of all of it: its files are not in the order in which
/// they were written, so the names of the trees come first.
fn entries_of_log(
    disk: &dyn Disk,
    wal_dir: &Path,
    superblock: &Superblock,
    trees: &BTreeMap<TreeId, String>,
) -> Result<Vec<LogEntry>> {
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let (mut entries, mut bytes_left) = (BTreeSet::new(), OF_LOG_BYTES_MAX);
    records_left(disk, wal_dir, identity, &superblock.geometry, &mut |_, bytes| {
        let _ = decode_record(bytes, &mut |change| {
            let Some(tree) = trees.get(&change.tree) else { return };
            let Some(value) = change.value.filter(|value| !value.big) else { return };
            let (key, value) = (change.key.to_vec(), value.bytes.to_vec());
            let entry_bytes = key.len() + value.len();
            if entry_bytes <= bytes_left && entries.insert(LogEntry { tree: tree.clone(), key, value }) {
                bytes_left -= entry_bytes;
            }
        });
    })?;
    Ok(entries.into_iter().collect())
}

/// The entries of leaves.
fn rows(pages: &Pages, nodes: &[FoundNode]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut collected = Collected(Vec::new());
    for node in nodes {
        walk(pages, &NodePointer::whole(node.pointer, Reduction::UNKNOWN), None, &mut collected)?;
    }
    Ok(collected.0)
}

struct Collected(Vec<(Vec<u8>, Vec<u8>)>);

impl super::Meets for Collected {
    fn entry(&mut self, key: &[u8], value: StoredValue<'_>) -> Result<()> {
        self.0.push((key.to_vec(), value.bytes.to_vec()));
        Ok(())
    }

    fn unreadable(&mut self, _: &PagePointer) {}

    // The node was whole a moment ago. What was in it stays among what is lost.
    fn lost(&mut self, _: LostRange) -> Result<()> {
        Ok(())
    }
}

/// The id in a key of the tree of roots.
pub(super) fn tree_id(key: &[u8]) -> Option<TreeId> {
    key.try_into().ok().map(|id| TreeId(u64::from_be_bytes(id)))
}

fn name_and_row(key: Vec<u8>, value: &[u8]) -> Option<(String, CatalogRow)> {
    String::from_utf8(key).ok().zip(CatalogRow::decode(value))
}
