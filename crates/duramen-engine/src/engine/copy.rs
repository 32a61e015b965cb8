//! Copies one snapshot into a new database, while this one goes on.
//!
//! It owns what makes a copy whole or nothing: the file `unfinished-copy`. That file is durable before the
//! copy begins, and a directory with it does not open. It is removed when every entry is copied, checked and
//! on disk. Entries are copied and not pages, so a copy is as small as its data and has a log of its own. D2
//! rests here: what opens is one state of the original.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk};

use super::directory::{UNFINISHED, kind};
use super::{Engine, Hooks, open};
use crate::commit::ENTRY_BYTES;
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::{Durability, Options};
use crate::transaction::{Rows, Snapshot, TreeInfo};
use crate::tree::{Direction, KeyRange};

/// Bytes of entries in one transaction of the copy: small beside its memory, and large beside the fixed cost
/// of a commit.
const BATCH_BYTES: u64 = 256 * 1024;

/// The level of each commit of the copy. A group without room must fail the commit, and not be dropped after
/// it returned.
const LEVEL: Durability = Durability::Process;

/// The copy takes this part of the original's memory, while it is made.
const MEMORY_PART: usize = 4;

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// The commit whose state is copied.
    pub seq: CommitSeq,
    /// Entries copied.
    pub entries: u64,
    /// Entries to copy in all.
    pub of: u64,
    /// Bytes of the keys and values copied.
    pub bytes: u64,
}

impl Engine {
    /// Copies the newest published state into a new database in the directory `path`, on the same disk.
    /// `value_in_copy` gets the name of a tree and a value of it, and returns the value for the copy. When
    /// this returns, the copy was read and checked, survives a power cut, and is closed.
    ///
    /// Reads and writes go on meanwhile. The snapshot is held until the end, and its space with it.
    /// `progress` is called after each transaction of the copy. The copy takes a quarter of the memory in
    /// addition. A tree whose reducer is not registered is copied without its reductions, which are computed
    /// once it is registered.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at the path; any error of `progress`. Those of a
    /// [read](crate::Error#reads) of the original; those of [opening](crate::Error#opening) and a
    /// [commit](crate::Error#commits) of the copy. The partial copy stays, and opens as `UnfinishedCopy`
    /// (E0215).
    pub fn copy_to(
        &self,
        path: &Path,
        value_in_copy: &dyn Fn(&str, Vec<u8>) -> Vec<u8>,
        progress: &mut dyn FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        let disk = &*self.inner.disk;
        begin(disk, path)?;
        let state = self.snapshot()?;
        let trees = state.trees()?;
        let copy = self.empty_beside(path)?;
        let count = |(_, id): &(String, TreeId)| state.count(*id, &KeyRange::all());
        let of = trees.iter().try_fold(0u64, |sum, tree| Ok::<_, Error>(sum.saturating_add(count(tree)?)))?;
        let mut done = CopyProgress { seq: state.seq(), entries: 0, of, bytes: 0 };
        for (name, id) in trees {
            let value_of = |value| value_in_copy(&name, value);
            copy_tree(&state, (&name, id), &value_of, &copy, &mut done, progress)?;
        }
        check(&copy, done)?;
        copy.close()?;
        finish(disk, path)?;
        Ok(done)
    }

    /// Opens a new database of the same geometry and with the same reducers.
    fn empty_beside(&self, path: &Path) -> Result<Engine> {
        let own = &self.inner.options;
        let options = Options {
            memory_bytes: (own.memory_bytes / MEMORY_PART).max(MEMORY_BYTES_MIN),
            sync: own.sync,
            allow_network_fs: own.allow_network_fs,
            geometry: self.inner.store.geometry,
            background: own.background,
            compress: own.compress,
            patches: own.patches,
            ..Options::default()
        };
        let hooks = Hooks { reducers: self.inner.store.reducers.clone(), ..Hooks::default() };
        open::open(Arc::clone(&self.inner.disk), path, options, hooks)
    }
}

/// Fails if the path is taken. Returns whether an empty directory is there.
pub(super) fn refuse_taken(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match kind(disk, path)? {
        None => Ok(false),
        Some(_) if disk.list(path).is_ok_and(|names| names.is_empty()) => Ok(true),
        Some(_) if disk.kind(&path.join(UNFINISHED)).is_ok_and(|mark| mark.is_some()) => {
            let message = format!("{} exists already: it is a copy that was not finished", path.display());
            Err(Error::new(Code::AlreadyExists, message)
                .with_hint("delete the directory, and run the command again; the original has lost nothing"))
        }
        Some(_) => Err(Error::new(Code::AlreadyExists, format!("{} exists already", path.display()))
            .with_hint("name a directory that does not exist, or is empty")),
    }
}

/// Makes the directory of a copy, marked as unfinished before anything else is in it.
pub(super) fn begin(disk: &dyn Disk, path: &Path) -> Result<()> {
    if !refuse_taken(disk, path)? {
        disk.create_dir(path).map_err(|e| Error::io("create", path, &e))?;
    }
    let mark = path.join(UNFINISHED);
    disk.open(&mark, Access::CREATE).map(drop).map_err(|e| Error::io("create", &mark, &e))?;
    // Before the log: half of one without the mark would be taken for what is left of a database that lost
    // its data file.
    disk.sync_dir(path).map_err(|e| Error::io("sync", path, &e))
}

/// Fails on an unfinished copy, and on the unfinished result of a repair.
pub(super) fn refuse_unfinished(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.kind(&path.join(UNFINISHED)) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(()),
        // The path is a file, which opening refuses.
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Ok(()),
        Err(e) => return Err(Error::io("look into", path, &e)),
    }
    Err(Error::new(Code::UnfinishedCopy, format!("{} is a copy that was not finished", path.display()))
        .with_hint(
            "delete the directory, and run the backup or the recovery again; the original has lost nothing",
        ))
}

/// Removes the mark of a copy that is whole and on disk, so that it opens.
pub(super) fn finish(disk: &dyn Disk, path: &Path) -> Result<()> {
    let mark = path.join(UNFINISHED);
    disk.remove(&mark).map_err(|e| Error::io("remove", &mark, &e))?;
    disk.sync_dir(path).map_err(|e| Error::io("sync", path, &e))
}

fn copy_tree(
    state: &Snapshot,
    (name, id): (&str, TreeId),
    value_of: &dyn Fn(Vec<u8>) -> Vec<u8>,
    copy: &Engine,
    done: &mut CopyProgress,
    progress: &mut dyn FnMut(&CopyProgress) -> Result<()>,
) -> Result<()> {
    let TreeInfo { reducer, features, .. } = state.tree_info(id)?;
    let (into, _) = copy.transact(LEVEL, |tx| tx.create_tree_as_known(name, reducer.clone(), features))?;
    let mut rows = state.rows(id, KeyRange::all(), Direction::Forward)?;
    loop {
        let batch = batch(&mut rows, value_of)?;
        if batch.is_empty() {
            return Ok(());
        }
        copy.transact(LEVEL, |tx| batch.iter().try_for_each(|(key, value)| tx.put(into, key, value)))?;
        done.entries += batch.len() as u64;
        done.bytes += batch.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        progress(done)?;
    }
}

/// The next entries: at least one, unless the range is at its end.
fn batch(rows: &mut Rows, value_of: &dyn Fn(Vec<u8>) -> Vec<u8>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES
        && let Some(row) = rows.next()?
    {
        let (key, value) = (row.key().to_vec(), value_of(row.value()?.into_owned()));
        bytes += (key.len() + value.len() + ENTRY_BYTES) as u64;
        batch.push((key, value));
    }
    Ok(batch)
}

/// Checks the copy and counts its entries.
fn check(copy: &Engine, done: CopyProgress) -> Result<()> {
    copy.checkpoint()?;
    let found = copy.check()?;
    if !found.is_clean() {
        let message = format!("the copy reads otherwise than it was written: {found:?}");
        return Err(Error::new(Code::CorruptData, message)
            .with_hint("look at the disk of the copy; the original was only read"));
    }
    let state = copy.snapshot()?;
    let count = |(_, id): &(String, TreeId)| state.count(*id, &KeyRange::all());
    let entries = state.trees()?.iter().map(count).sum::<Result<u64>>()?;
    if entries != done.entries {
        let message = format!("the copy has {entries} entries, and {} were written", done.entries);
        return Err(Error::new(Code::CorruptData, message));
    }
    Ok(())
}
