//! What can still be read of a corrupt database: its superblocks, its list of trees, and their entries.
//!
//! It owns the choice of the checkpoint to read from, and the account of what is lost with a page. It
//! only reads, and takes from no page what its checksum does not cover (D4). Of a tree it holds one path
//! in memory. It does not decide what to keep; `engine::repair`, which writes the new database, does.
//! `scan` finds nodes without pointers, and `used` says which of them the checkpoint reaches.

mod names;
mod scan;
mod unreadable;
mod used;
mod walk;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Disk, File};

use crate::catalog::{CATALOG, CatalogRow, RootEntry};
use crate::checkpoint::superblocks_left;
use crate::data_file::{DataFile, PagePointer, Superblock};
use crate::error::{Code, Result};
use crate::features::Features;
use crate::ids::{CommitSeq, Generation, TreeId};
use crate::options::{Geometry, Options};
use crate::page_cache::Pages;
use crate::tree::{NodePointer, Reduction, StoredValue};
use crate::wal::{LogIdentity, LogPosition, identity_left, repair};

pub(crate) use scan::{FoundNode, Scan};
pub(crate) use unreadable::Unreadable;
pub(crate) use used::{Standing, UsedBlocks};
pub(crate) use walk::{Meets, walk};

/// A range of keys that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    /// The name of the tree.
    pub tree: String,
    /// The last readable key before it; `None` if it begins with the tree.
    pub after: Option<Vec<u8>>,
    /// The first readable key after it; `None` if it ends with the tree.
    pub before: Option<Vec<u8>>,
    /// Entries in it according to the parent node; `None` if unknown.
    pub entries: Option<u64>,
    /// What is corrupt, with file and offset.
    pub why: String,
}

/// A corrupt database, as far as its trees can be found.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where pages come from.
    pub pages: Pages,
    /// The superblock of the checkpoint that is read.
    pub superblock: Superblock,
    /// Its trees.
    pub trees: Trees,
    /// Its space map.
    pub used: UsedBlocks,
    /// Superblocks that can be read, of two.
    pub superblock_count: u64,
    /// Whether it is the newest checkpoint that can be found.
    pub is_newest: bool,
    /// The newest commit known to have been durable.
    pub durable: CommitSeq,
}

/// An entry that the log puts into a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEntry {
    /// The tree.
    pub tree: String,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// The trees of a checkpoint, as far as they can be read.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// Their rows in the tree of roots.
    pub roots: BTreeMap<TreeId, RootEntry>,
    /// Their names.
    pub names: BTreeMap<String, CatalogRow>,
    /// What is lost of the tree of roots and of the catalogue.
    pub lost: Vec<LostRange>,
    /// Names from nodes of the catalogue that may be older, and from the log. They name what is uncertain
    /// itself.
    pub uncertain: BTreeMap<TreeId, String>,
    /// What the log puts into trees that need a feature, if the log was searched for names.
    pub of_log: Vec<LogEntry>,
    /// Nodes of both that cannot be read.
    pub unreadable: Unreadable,
}

/// The names under which losses of the engine's own trees are listed.
const TREE_OF_ROOTS: &str = "duramen/(where trees lie)";
const NAMES: &str = "duramen/(names of trees)";

impl Source {
    /// Chooses the checkpoint to read from. It is the newest, unless part of its list of trees is lost and
    /// the older one's is whole. The log must then lead from the older one to the newest.
    ///
    /// Without a superblock the database is known by its log, and its nodes are found one by one.
    ///
    /// # Errors
    /// `Unsupported`; `NotADatabase` or `Corrupt` if neither a superblock nor a segment of the log can be
    /// read.
    pub(crate) fn load(
        disk: &dyn Disk,
        file: Arc<dyn File>,
        path: &Path,
        wal_dir: &Path,
        options: &Options,
    ) -> Result<Source> {
        let mut left = match superblocks_left(&file, path) {
            Err(error) if [Code::CorruptSuperblock, Code::NotADatabase].contains(&error.code()) => {
                let Some(superblock) = by_log(disk, wal_dir, &options.geometry) else { return Err(error) };
                let mut source = Source::of_pages(file, path, superblock, options.memory_bytes)?;
                source.trees.add_names_of_log(disk, wal_dir, &source.superblock)?;
                return Ok(source);
            }
            left => left?,
        };
        let superblock_count = left.len() as u64;
        let durable = left.iter().map(|one| one.marked.max(one.replay.seq)).max().unwrap_or_default();
        let superblock = left.remove(0);
        let data = DataFile::new(file, path, superblock.database, superblock.geometry.block_bytes);
        let pages = Pages::new(data, options.memory_bytes);
        let trees = Trees::read(&pages, &superblock)?;
        let used = UsedBlocks::read(pages.data(), &superblock);
        let mut source =
            Source { pages, superblock, trees, used, superblock_count, is_newest: true, durable };
        if let Some(older) = left.pop().filter(|_| !source.trees.lost.is_empty()) {
            let trees = Trees::read(&source.pages, &older)?;
            // If both lists have losses, the newer checkpoint needs less of the log. What is in neither is
            // lost either way.
            if trees.lost.is_empty() && leads_to(disk, wal_dir, &older, source.superblock.replay.seq)? {
                source.used = UsedBlocks::read(source.pages.data(), &older);
                (source.superblock, source.trees, source.is_newest) = (older, trees, false);
            }
        }
        if !source.trees.lost.is_empty() {
            source.trees.complete(&source.pages, &source.used)?;
        }
        if source.trees.lacks_names() {
            source.trees.add_names_of_log(disk, wal_dir, &source.superblock)?;
        }
        Ok(source)
    }
}

impl Source {
    /// A database of which nothing leads to a node any more.
    fn of_pages(
        file: Arc<dyn File>,
        path: &Path,
        superblock: Superblock,
        memory_bytes: usize,
    ) -> Result<Source> {
        let data = DataFile::new(file, path, superblock.database, superblock.geometry.block_bytes);
        let pages = Pages::new(data, memory_bytes);
        let used = UsedBlocks::read(pages.data(), &superblock);
        let all = |of: &str| LostRange {
            tree: of.to_owned(),
            after: None,
            before: None,
            entries: None,
            why: format!("{}: no superblock can be read", path.display()),
        };
        let mut trees = Trees { lost: vec![all(TREE_OF_ROOTS), all(NAMES)], ..Trees::default() };
        trees.complete(&pages, &used)?;
        let durable = superblock.marked;
        Ok(Source { pages, superblock, trees, used, superblock_count: 0, is_newest: false, durable })
    }
}

/// Stands for the superblocks that cannot be read: the identity that the log has, and no checkpoint.
fn by_log(disk: &dyn Disk, wal_dir: &Path, geometry: &Geometry) -> Option<Superblock> {
    let (LogIdentity { database, log }, block_bytes) = identity_left(disk, wal_dir)?;
    let geometry = Geometry { block_bytes, ..*geometry };
    geometry.is_sound().then(|| Superblock {
        write_features: 0,
        features: Features::NONE,
        database,
        log,
        generation: Generation(0),
        replay: LogPosition::default(),
        marked: CommitSeq(0),
        roots: None,
        space: None,
        hot: None,
        end_block: 0,
        next_tree: TreeId(0),
        geometry,
        clean: false,
        sync: None,
    })
}

/// Whether the log after a checkpoint can be read up to a commit.
fn leads_to(disk: &dyn Disk, wal_dir: &Path, superblock: &Superblock, seq: CommitSeq) -> Result<bool> {
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    let read =
        repair(disk, wal_dir, identity, &superblock.geometry, &superblock.replay, CommitSeq(0), &mut |_| {
            Ok(())
        })?;
    Ok(read.last_seq >= seq)
}

impl Trees {
    /// Whether part of the catalogue cannot be read: a tree that it does not name may have had a name.
    pub(crate) fn lacks_names(&self) -> bool {
        self.lost.iter().any(|range| range.tree == NAMES)
    }

    /// Whether this name may have been in an unreadable part of the catalogue.
    #[must_use]
    pub(crate) fn may_have_lost(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let of_names = self.lost.iter().filter(|range| range.tree == NAMES);
        of_names.map(|range| (range.after.as_deref(), range.before.as_deref())).any(|(after, before)| {
            let is_it = after == Some(name) && before == Some(name);
            is_it || (after.is_none_or(|after| after < name) && before.is_none_or(|before| name < before))
        })
    }

    fn read(pages: &Pages, superblock: &Superblock) -> Result<Trees> {
        let mut trees = Trees::default();
        let Some(pointer) = superblock.roots else { return Ok(trees) };
        let mut roots = Rows::of(TREE_OF_ROOTS);
        walk(pages, &NodePointer::whole(pointer, Reduction::UNKNOWN), None, &mut roots)?;
        for (key, value) in std::mem::take(&mut roots.rows) {
            match names::tree_id(&key).zip(RootEntry::decode(&value)) {
                Some((id, entry)) => drop(trees.roots.insert(id, entry)),
                None => roots.undecodable(key),
            }
        }
        trees.lost = roots.lost;
        trees.unreadable = roots.unreadable;
        trees.read_names(pages)?;
        Ok(trees)
    }

    /// Reads the catalogue, if its root is known.
    fn read_names(&mut self, pages: &Pages) -> Result<()> {
        let mut names = Rows::of(NAMES);
        match self.roots.get(&CATALOG) {
            Some(RootEntry { pointer: Some(pointer), count, .. }) => {
                walk(pages, pointer, Some(*count), &mut names)?
            }
            Some(_) => {}
            None if self.lost.is_empty() => {}
            None => names.lost.push(LostRange {
                tree: NAMES.to_owned(),
                after: None,
                before: None,
                entries: None,
                why: "where they lie is lost".to_owned(),
            }),
        }
        for (key, value) in std::mem::take(&mut names.rows) {
            match String::from_utf8(key.clone()).ok().zip(CatalogRow::decode(&value)) {
                Some((name, row)) => drop(self.names.insert(name, row)),
                None => names.undecodable(key),
            }
        }
        self.lost.extend(names.lost);
        self.unreadable.extend(names.unreadable);
        Ok(())
    }
}

/// Collects the rows of a small tree.
struct Rows {
    of: &'static str,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    lost: Vec<LostRange>,
    unreadable: Unreadable,
}

impl Rows {
    fn of(tree: &'static str) -> Rows {
        Rows { of: tree, rows: Vec::new(), lost: Vec::new(), unreadable: Unreadable::default() }
    }

    fn undecodable(&mut self, key: Vec<u8>) {
        self.lost.push(LostRange {
            tree: self.of.to_owned(),
            after: Some(key.clone()),
            before: Some(key),
            entries: Some(1),
            why: "a row of another version".to_owned(),
        });
    }
}

impl Meets for Rows {
    fn entry(&mut self, key: &[u8], value: StoredValue<'_>) -> Result<()> {
        self.rows.push((key.to_vec(), value.bytes.to_vec()));
        Ok(())
    }

    fn unreadable(&mut self, at: &PagePointer) {
        self.unreadable.add(at);
    }

    fn lost(&mut self, range: LostRange) -> Result<()> {
        self.lost.push(LostRange { tree: self.of.to_owned(), ..range });
        Ok(())
    }
}
