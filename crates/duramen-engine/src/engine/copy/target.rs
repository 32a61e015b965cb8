//! A new database that is filled part by part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::Disk;

use super::super::{Engine, Hooks, open};
use super::{CopyPart, CopyProgress, Digest, begin, finish};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::options::{Durability, Options};
use crate::tree::KeyRange;

/// The level of each commit of the copy. A group without room must fail the commit, and not be dropped after
/// it returned.
const LEVEL: Durability = Durability::Process;

/// A copy that is being made. Until [`CopyTarget::finish`] returns it opens as `UnfinishedCopy` (E0215).
#[derive(Debug)]
pub struct CopyTarget {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) engine: Engine,
    /// The tree that has begun.
    tree: Option<TreeId>,
    done: CopyProgress,
    digest: Digest,
    /// A part was not stored as a whole: this never becomes a copy.
    has_failed: bool,
}

impl CopyTarget {
    /// Makes a new database in the directory `path`, marked as an unfinished copy. What is copied is the
    /// state of a commit, with a number of entries.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at the path; those of [opening](crate::Error#opening).
    pub fn begin(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        hooks: Hooks,
        (seq, of): (CommitSeq, u64),
    ) -> Result<CopyTarget> {
        begin(&*disk, path)?;
        CopyTarget::begun(disk, path, options, hooks, (seq, of))
    }

    /// Begins in a directory that is marked.
    pub(super) fn begun(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        hooks: Hooks,
        (seq, of): (CommitSeq, u64),
    ) -> Result<CopyTarget> {
        let engine = open::open(Arc::clone(&disk), path, options, hooks)?;
        let done = CopyProgress { seq, entries: 0, of, bytes: 0 };
        Ok(CopyTarget {
            disk,
            path: path.to_owned(),
            engine,
            tree: None,
            done,
            digest: Digest::default(),
            has_failed: false,
        })
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> CopyProgress {
        self.done
    }

    /// Stores the next part.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits). `InvalidArgument` (E0201) for entries before the first
    /// tree; `AlreadyExists` (E0210) for a tree that has begun before.
    pub fn take(&mut self, part: CopyPart) -> Result<()> {
        self.digest.add(&part);
        self.store(part).inspect_err(|_| self.has_failed = true)
    }

    fn store(&mut self, part: CopyPart) -> Result<()> {
        let entries = match part {
            CopyPart::Tree { name, reducer, features } => {
                let made = self
                    .engine
                    .transact(LEVEL, |tx| tx.create_tree_as_known(&name, reducer.clone(), features))?;
                self.tree = Some(made.0);
                return Ok(());
            }
            CopyPart::Entries(entries) => entries,
        };
        let Some(tree) = self.tree else { return Err(Error::invalid("a copy begins with a tree")) };
        self.engine
            .transact(LEVEL, |tx| entries.iter().try_for_each(|(key, value)| tx.put(tree, key, value)))?;
        self.done.entries += entries.len() as u64;
        self.done.bytes += entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        Ok(())
    }

    /// Reads and checks the copy, and removes the mark. It is on disk then, and closed. `digest` is that of
    /// the [source](super::CopySource::digest) behind its last part.
    ///
    /// # Errors
    /// `CorruptData` (E0501) if the parts are not those of the source, or the copy reads otherwise than it
    /// was written. Those of a [commit](crate::Error#commits).
    pub fn finish(self, digest: u128) -> Result<CopyProgress> {
        self.close(digest)?;
        finish(&*self.disk, &self.path)?;
        Ok(self.done)
    }

    /// Reads and checks the copy, and closes it.
    pub(super) fn close(&self, digest: u128) -> Result<()> {
        if self.has_failed {
            return Err(Error::invalid("a part of the copy was not stored"));
        }
        if self.digest.get() != digest {
            return Err(Error::new(Code::CorruptData, "the parts of the copy are not those of the original")
                .with_hint("delete the copy, and make it again; the original was only read"));
        }
        check(&self.engine, self.done)?;
        self.engine.close()
    }
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
        return Err(Error::new(Code::CorruptData, message)
            .with_hint("look at the disk of the copy; the original was only read"));
    }
    Ok(())
}
