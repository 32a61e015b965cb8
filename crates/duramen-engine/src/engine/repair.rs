//! Repair: makes a new database out of everything that can still be read of a corrupt one.
//!
//! It owns the order: the mark that the new database is unfinished, the trees of a checkpoint, nodes
//! found in the file where a tree cannot be read, then the log after the checkpoint as far as it can be
//! read. The mark stays until the caller calls [`Engine::finish_repair`]. The corrupt database is never
//! written; its lock is shared with other readers. D2 rests here: the result is the state after one
//! commit, except for what is listed as lost. D4 too: nothing is taken that does not match its checksum.

mod found;
mod losses;
mod replaying;
mod scanning;
mod writing;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk, Lock};

use super::copy::{begin, finish, refuse_taken, refuse_unfinished};
use super::directory::{
    DATA, LOCK, WAL, check_file_systems, kind, lock, of_a_database, prepare_directory, without_data,
};
use super::{Engine, Hooks, open};
use crate::catalog::CATALOG;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::KEY_BYTES_MAX;
use crate::options::{Durability, Options};
use crate::repair::{LogEntry, LostRange, Source, walk};
use crate::tree::ReducerSpec;
use crate::wal::{LogIdentity, refuse_no_log};

pub use found::UncertainTree;
use losses::Losses;
pub use losses::TreeLoss;
use replaying::replay;
use writing::Writing;

/// The name prefix of trees with lost names. The name that an older list has for the tree follows, else
/// `tree-` and a number.
const NAMELESS: &str = "recovered/";

/// What to keep of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The tree with its entries.
    Entries,
    /// The tree without entries.
    Name,
    /// Nothing.
    Nothing,
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairProgress {
    /// Entries read or lost.
    pub entries: u64,
    /// Entries to read, as far as known.
    pub of: u64,
    /// Bytes of keys and values in the new database.
    pub bytes: u64,
}

/// Commits lost after corruption in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostCommits {
    /// The last commit that is not lost.
    pub after: CommitSeq,
    /// The newest commit known from anything; the same as `after` if nothing shows one.
    pub until: CommitSeq,
    /// Whole frames of these commits after the corruption. They were not applied.
    pub frames: u64,
    /// The bytes of these frames.
    pub bytes: u64,
    /// What is corrupt, with file and offset.
    pub why: String,
}

/// What a repair has read, and what is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repair {
    /// The last commit of the repaired state.
    pub seq: CommitSeq,
    /// The commit of the checkpoint that was read.
    pub checkpoint: CommitSeq,
    /// Commits applied from the log after that checkpoint.
    pub log_commits: u64,
    /// Whether pieces of an unfinished write lie after them: a crash leaves such an end of the log, and so
    /// does corruption of commits that nothing calls durable yet (D5).
    pub log_torn: bool,
    /// Superblocks that can be read, of two.
    pub superblocks: u64,
    /// Whether the checkpoint is the newest that can be found. An older one is used if all of its tree names
    /// can be read, and not all of the newest's.
    pub is_newest: bool,
    /// Lost commits; `None` if the log is whole.
    pub lost_commits: Option<LostCommits>,
    /// Whether part of the tree of roots or of the catalogue is lost.
    pub names_lost: bool,
    /// Trees whose names are lost, by their new names.
    pub nameless: Vec<String>,
    /// Trees that are not in the new database, and that older pages of the catalogue or the log name. Some
    /// may have been dropped before.
    pub mentioned: Vec<String>,
    /// What nodes hold that were found without pointers to them.
    pub found: FoundEntries,
    /// The first key ranges that cannot be read.
    pub ranges: Vec<LostRange>,
    /// The total loss of each tree.
    pub trees: Vec<TreeLoss>,
}

/// Entries that were found without a pointer to their nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundEntries {
    /// Entries of current nodes. They are in their trees.
    pub current: u64,
    /// Trees of entries that may be older than the checkpoint, or deleted.
    pub uncertain: Vec<UncertainTree>,
    /// What the log puts into trees that need a [feature](crate::Features), if the log was searched because
    /// names are lost. At most 32 MiB, none of them applied.
    pub of_log: Vec<LogEntry>,
}

impl Repair {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost_commits.is_none() && self.nameless.is_empty() && self.trees.is_empty()
    }
}

/// The caller's choice of trees, and its progress callback.
pub(super) struct Caller<'a> {
    keep: &'a dyn Fn(&str) -> Keep,
    progress: &'a mut dyn FnMut(&RepairProgress) -> Result<()>,
}

impl Engine {
    /// Makes a new database at `to` of what can be read of the one at `from`, and opens it. For any other
    /// open it is unfinished until [`Engine::finish_repair`]. `keep` selects trees by name.
    ///
    /// It takes the memory of `options` and a few MiB, whatever the size of the database. The names and
    /// pointers of all trees come on top of that. The other options are those with which the corrupt database
    /// would be opened.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at the new path; `InvalidArgument` (E0201) if that path
    /// lies in the corrupt database. Those of [opening](crate::Error#opening) for either, of these
    /// `LogMissing` (E0503) unless `options` allow to go on without a log; those of a
    /// [commit](crate::Error#commits); any error of `progress`. Corruption is listed in the result.
    pub fn repair(
        disk: &Arc<dyn Disk>,
        from: &Path,
        to: &Path,
        options: &Options,
        hooks: Hooks,
        keep: &dyn Fn(&str) -> Keep,
        progress: &mut dyn FnMut(&RepairProgress) -> Result<()>,
    ) -> Result<(Engine, Repair)> {
        let wal_dir = options.wal_dir.clone().unwrap_or_else(|| from.join(WAL));
        if to.starts_with(from) || to.starts_with(&wal_dir) {
            return Err(Error::invalid(format!("{} is inside the database to be repaired", to.display()))
                .with_hint("name a directory beside it, or on another disk"));
        }
        // Before reading the source, which may take long.
        refuse_taken(&**disk, to)?;
        let reading = Options { read_only: true, create: false, ..options.clone() };
        let (source, _lock) = open_corrupt(&**disk, from, &wal_dir, &reading)?;
        begin(&**disk, to)?;
        let into = Options {
            read_only: false,
            create: true,
            wal_dir: None,
            repair_without_log: false,
            geometry: source.superblock.geometry,
            // Consumers start after the repaired state: building the new database is no change to report.
            feed_retain_bytes: 0,
            feed_retain_age: std::time::Duration::ZERO,
            ..options.clone()
        };
        let engine = open::open(Arc::clone(disk), to, into, hooks)?;
        let mut writing = Writing::new(&source, &engine, Caller { keep, progress });
        let nameless = begin_trees(&source, &mut writing)?;
        copy_entries(&source, &mut writing)?;
        let current = match !source.trees.lost.is_empty() || !writing.unreadable.is_empty() {
            true => scanning::add_found(&source, &mut writing)?,
            false => 0,
        };
        let log = replay(&**disk, &wal_dir, &source, &mut writing)?;
        let nameless = nameless.into_iter().chain(log.nameless).collect();
        let nameless = writing.settle_nameless(nameless, log.unknown_drops)?;
        let mentioned = mentioned(&source, &engine)?;
        let of_log = source.trees.of_log.clone();
        let found = FoundEntries { current, uncertain: writing.uncertain_trees()?, of_log };
        let Losses { ranges, trees } = writing.into_losses()?;
        // A snapshot taken from here on contains everything.
        engine.transact(Durability::Process, |_| Ok(()))?;
        let repair = Repair {
            seq: log.last_seq,
            checkpoint: source.superblock.replay.seq,
            log_commits: log.commits,
            log_torn: log.torn,
            superblocks: source.superblock_count,
            is_newest: source.is_newest,
            lost_commits: log.lost,
            names_lost: !source.trees.lost.is_empty(),
            nameless,
            mentioned,
            found,
            ranges,
            trees,
        };
        Ok((engine, repair))
    }

    /// Closes a database made by [`Engine::repair`] and marks it as finished, so that it opens.
    ///
    /// # Errors
    /// As [`Engine::close`]: the database is unfinished then. `System` (E1001) or `ReadOnly` (E0204) if the
    /// mark cannot be removed.
    pub fn finish_repair(&self) -> Result<()> {
        self.close()?;
        finish(&*self.inner.disk, &self.inner.path)
    }
}

/// Takes the lock and loads a checkpoint.
fn open_corrupt(
    disk: &dyn Disk,
    from: &Path,
    wal_dir: &Path,
    options: &Options,
) -> Result<(Source, Box<dyn Lock>)> {
    refuse_unfinished(disk, from)?;
    prepare_directory(disk, from, wal_dir, false)?;
    check_file_systems(disk, from, wal_dir, options)?;
    let locked = lock(disk, &from.join(LOCK), options)?;
    let data = from.join(DATA);
    if kind(disk, &data)?.is_none() {
        return Err(without_data(disk, from, wal_dir, options));
    }
    let file = disk.open(&data, Access::READ).map_err(|e| Error::io("open", &data, &e))?;
    let loaded = Source::load(disk, file, &data, wal_dir, options);
    let source = loaded.map_err(|error| of_a_database(error, disk, &data, wal_dir, options)).map_err(|error| {
        if error.code() != Code::CorruptSuperblock {
            return error;
        }
        error.with_hint(
            "a page is checked by the identity of its database, which the superblocks and each file of the log hold: name the log's directory (`--wal DIR`, `DbOptions::wal_dir`), or put one of its files back; otherwise restore a backup",
        )
    })?;
    let superblock = &source.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    refuse_no_log(disk, wal_dir, identity, &superblock.geometry)
        // A log of a later release exists: going on without it would lose whole commits.
        .or_else(|error| match error.code() {
            Code::LogMissing if options.repair_without_log => Ok(()),
            _ => Err(error),
        })?;
    Ok((source, locked))
}

/// Creates the trees of the checkpoint. Trees whose names are lost get new ones.
fn begin_trees(source: &Source, writing: &mut Writing<'_>) -> Result<Vec<(TreeId, String)>> {
    let trees = &source.trees;
    trees.lost.iter().for_each(|range| writing.lose(range.clone()));
    for (name, row) in &trees.names {
        writing.begin_tree(name, row)?;
        if !trees.roots.contains_key(&row.id) && !trees.lost.is_empty() && writing.takes(row.id) {
            writing.lose(LostRange {
                tree: name.clone(),
                after: None,
                before: None,
                entries: None,
                why: "its pointer is lost".to_owned(),
            });
        }
    }
    let named: BTreeSet<TreeId> = trees.names.values().map(|row| row.id).collect();
    let is_nameless = |id: &TreeId| *id != CATALOG && !named.contains(id);
    let left = trees.roots.iter().filter(|(id, entry)| is_nameless(id) && entry.dropped_at.is_none());
    left.map(|(id, _)| Ok((*id, writing.begin_nameless(*id)?))).collect()
}

fn copy_entries(source: &Source, writing: &mut Writing<'_>) -> Result<()> {
    let wanted: Vec<_> = source.trees.roots.iter().filter(|(id, _)| writing.takes(**id)).collect();
    // A hostile database may name any numbers.
    writing.expect(wanted.iter().fold(0, |sum, (_, entry)| entry.count.saturating_add(sum)));
    for (id, entry) in wanted {
        if let Some(pointer) = &entry.pointer {
            walk(&source.pages, pointer, Some(entry.count), &mut writing.of_tree(*id))?;
        }
    }
    writing.flush()
}

/// The trees that only lists name that may be out of date, and that are not in the new database.
fn mentioned(source: &Source, engine: &Engine) -> Result<Vec<String>> {
    let state = engine.snapshot()?;
    let names: BTreeSet<&String> = source.trees.uncertain.values().collect();
    let mut missing = Vec::new();
    for name in names {
        if state.tree(name)?.is_none() {
            missing.push(name.clone());
        }
    }
    Ok(missing)
}

/// A new name for a tree whose own is lost.
fn nameless(number: TreeId, known: Option<&String>, is_taken: &dyn Fn(&str) -> bool) -> String {
    let mut name = match known.filter(|known| NAMELESS.len() + known.len() < KEY_BYTES_MAX) {
        Some(known) => format!("{NAMELESS}{known}"),
        None => format!("{NAMELESS}tree-{number}"),
    };
    while is_taken(&name) {
        name.push('\'');
    }
    name
}

/// A tree in the new database.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// Its name.
    name: String,
    /// Its id in the new database; 0 if it is not there.
    id: TreeId,
    spec: Option<ReducerSpec>,
    /// Whether its entries are copied.
    takes: bool,
}
