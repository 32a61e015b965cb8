//! A copy of one state into a new database, while this one goes on.
//!
//! Owns what makes a copy whole or nothing: a file beside it that is durable before the copy begins, and removed when every
//! entry is in it, checked and on disk; beside it nothing opens. Copies entries and not pages, so that a copy is as small as its
//! data and has a log of its own. D2 rests here: what opens is one state of the original.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk};

use super::directory::{UNFINISHED, kind};
use super::{Engine, Hooks, open};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::{Durability, Options};
use crate::transaction::{Rows, Snapshot};
use crate::tree::{Direction, KeyRange};

/// So many bytes of entries in one transaction of the copy: little beside its memory, and much beside a commit's own cost.
const BATCH_BYTES: u64 = 256 * 1024;

/// What each commit of the copy waits for: a group that had no room must fail the commit, not be dropped behind its back.
const LEVEL: Durability = Durability::Process;

/// The copy takes this part of the memory that the original has, while it is made.
const MEMORY_PART: usize = 4;

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// The state that is copied.
    pub seq: CommitSeq,
    /// Entries that are in the copy.
    pub entries: u64,
    /// Entries there are to copy.
    pub of: u64,
    /// Their keys and values, in bytes.
    pub bytes: u64,
}

impl Engine {
    /// Copies the newest state into a new database in the directory `path`, on the same disk: the trees that `is_wanted`
    /// says, by name. When it returns, the copy was read and checked, survives a power cut, and is closed.
    ///
    /// Others read and write meanwhile; the state is held until the end, and its space with it. `progress` is told after
    /// each transaction of the copy. Takes a quarter of the memory besides.
    ///
    /// # Errors
    /// `AlreadyExists` if there is something at the path; what `progress` said; `Full`, `Io`, `Corrupt` if the original cannot be
    /// read. What there is of the copy then stays, and opens as `UnfinishedCopy`.
    pub fn copy_to(
        &self,
        path: &Path,
        is_wanted: &dyn Fn(&str) -> bool,
        progress: &mut dyn FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        let disk = &*self.inner.disk;
        begin(disk, path)?;
        let state = self.snapshot()?;
        let trees: Vec<_> = state.trees()?.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        let copy = self.empty_beside(path)?;
        let of = trees.iter().map(|(_, id)| state.count(*id, &KeyRange::all())).sum::<Result<u64>>()?;
        let mut done = CopyProgress { seq: state.seq(), entries: 0, of, bytes: 0 };
        for (name, id) in trees {
            copy_tree(&state, (&name, id), &copy, &mut done, progress)?;
        }
        check(&copy, done)?;
        copy.close()?;
        finish(disk, path)?;
        Ok(done)
    }

    /// A new database of the same shape and with the same reducers.
    fn empty_beside(&self, path: &Path) -> Result<Engine> {
        let own = &self.inner.options;
        let options = Options {
            memory_bytes: (own.memory_bytes / MEMORY_PART).max(MEMORY_BYTES_MIN),
            sync: own.sync,
            allow_network_fs: own.allow_network_fs,
            geometry: self.inner.store.geometry,
            background: own.background,
            ..Options::default()
        };
        let hooks = Hooks { reducers: self.inner.store.reducers.clone(), ..Hooks::default() };
        open::open(Arc::clone(&self.inner.disk), path, options, hooks)
    }
}

/// Refuses a place where something is already. Returns whether there is a directory, which is empty.
pub(super) fn refuse_taken(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match kind(disk, path)? {
        None => Ok(false),
        Some(_) if disk.list(path).is_ok_and(|names| names.is_empty()) => Ok(true),
        Some(_) => Err(Error::new(Code::AlreadyExists, format!("{} is there already", path.display()))
            .with_hint("name a directory that does not exist, or is empty")),
    }
}

/// Makes the directory of a copy, which is unfinished before anything else is in it.
pub(super) fn begin(disk: &dyn Disk, path: &Path) -> Result<()> {
    if !refuse_taken(disk, path)? {
        disk.create_dir(path).map_err(|e| Error::io("create", path, &e))?;
    }
    let mark = path.join(UNFINISHED);
    disk.open(&mark, Access::CREATE).map(drop).map_err(|e| Error::io("create", &mark, &e))?;
    // Before the log: half of one without the mark would be taken for what is left of a database that lost its data file.
    disk.sync_dir(path).map_err(|e| Error::io("sync", path, &e))
}

/// Refuses a copy that was cut short, or what a recovery that was has made.
pub(super) fn refuse_unfinished(disk: &dyn Disk, path: &Path) -> Result<()> {
    if kind(disk, &path.join(UNFINISHED))?.is_none() {
        return Ok(());
    }
    Err(Error::new(Code::UnfinishedCopy, format!("{} is a copy that was not finished", path.display()))
        .with_hint(
            "delete the directory, and run the backup or the recovery again; the original has lost nothing",
        ))
}

/// Lets a copy open that is whole and on disk.
pub(super) fn finish(disk: &dyn Disk, path: &Path) -> Result<()> {
    let mark = path.join(UNFINISHED);
    disk.remove(&mark).map_err(|e| Error::io("remove", &mark, &e))?;
    disk.sync_dir(path).map_err(|e| Error::io("sync", path, &e))
}

fn copy_tree(
    state: &Snapshot,
    (name, id): (&str, TreeId),
    copy: &Engine,
    done: &mut CopyProgress,
    progress: &mut dyn FnMut(&CopyProgress) -> Result<()>,
) -> Result<()> {
    let reducer = state.tree_info(id)?.reducer;
    let (into, _) = copy.transact(LEVEL, |tx| tx.create_tree(name, reducer.clone()))?;
    let mut rows = state.rows(id, KeyRange::all(), Direction::Forward)?;
    loop {
        let batch = batch(&mut rows)?;
        if batch.is_empty() {
            return Ok(());
        }
        copy.transact(LEVEL, |tx| batch.iter().try_for_each(|(key, value)| tx.put(into, key, value)))?;
        done.entries += batch.len() as u64;
        done.bytes += batch.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        progress(done)?;
    }
}

/// The next entries: at least one, if there is one.
fn batch(rows: &mut Rows) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES
        && let Some(row) = rows.next()?
    {
        let (key, value) = (row.key().to_vec(), row.value()?.into_owned());
        bytes += (key.len() + value.len()) as u64;
        batch.push((key, value));
    }
    Ok(batch)
}

/// Reads the copy as its next owner would.
fn check(copy: &Engine, done: CopyProgress) -> Result<()> {
    copy.checkpoint()?;
    let found = copy.check()?;
    if !found.is_clean() {
        let message = format!("the copy reads otherwise than it was written: {found:?}");
        return Err(Error::new(Code::DamagedData, message)
            .with_hint("look at the disk of the copy; the original was only read"));
    }
    let state = copy.snapshot()?;
    let count = |(_, id): &(String, TreeId)| state.count(*id, &KeyRange::all());
    let entries = state.trees()?.iter().map(count).sum::<Result<u64>>()?;
    if entries != done.entries {
        let message = format!("the copy has {entries} entries, and {} were written", done.entries);
        return Err(Error::new(Code::DamagedData, message));
    }
    Ok(())
}
