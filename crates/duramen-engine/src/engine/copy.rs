//! Copies one snapshot into a new database, while this one goes on.
//!
//! It owns what makes a copy whole or nothing: the file `unfinished-copy`. That file is durable before the
//! copy begins, and a directory with it does not open. It is removed when every entry is copied, checked and
//! on disk. Entries are copied and not pages, so a copy is as small as its data and has a log of its own. D2
//! rests here: what opens is one state of the original.
//!
//! A copy is read from a [`CopySource`] part by part, and each part is given to a [`CopyTarget`]: in this
//! process, or in another one, to which the parts are sent.

mod incoming;
mod node;
mod source;
mod target;

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk};
use xxhash_rust::xxh3::Xxh3;

use super::directory::{UNFINISHED, kind};
use super::{Engine, Hooks};
use crate::error::{Code, Error, Result};
use crate::features::Features;
use crate::ids::CommitSeq;
use crate::limits::MEMORY_BYTES_MIN;
use crate::options::Options;
use crate::tree::ReducerSpec;

pub(super) use incoming::{is_there as has_incoming, take_over};
pub use node::{NodeHead, NodeTarget};
pub use source::CopySource;
pub use target::CopyTarget;

/// Bytes of entries in one part, which is one transaction of the copy: small beside its memory, and large
/// beside the fixed cost of a commit.
const PART_BYTES: usize = 256 * 1024;

/// The copy takes this part of the original's memory, while it is made.
const MEMORY_PART: usize = 4;

/// A part of a copy. Those of a tree come one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyPart {
    /// A tree begins.
    Tree {
        /// Its name.
        name: String,
        /// Its reducer.
        reducer: Option<ReducerSpec>,
        /// What a build must know to read it.
        features: Features,
    },
    /// Keys of the tree that has begun, with their values, in key order.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
}

/// What all parts of a copy together are known by: a hash of them, in their order.
#[derive(Default)]
struct Digest(Box<Xxh3>);

impl Digest {
    fn add(&mut self, part: &CopyPart) {
        match part {
            CopyPart::Tree { name, reducer, features } => {
                self.0.update(b"t");
                self.bytes(name.as_bytes());
                self.bytes(&features.bits().to_le_bytes());
                if let Some(ReducerSpec { name, version, params }) = reducer {
                    self.0.update(b"r");
                    self.bytes(name.as_bytes());
                    self.bytes(&version.to_le_bytes());
                    self.bytes(params);
                }
            }
            CopyPart::Entries(entries) => {
                for (key, value) in entries {
                    self.0.update(b"e");
                    self.bytes(key);
                    self.bytes(value);
                }
            }
        }
    }

    /// With their length: what belongs to the next bytes is not taken for these.
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn get(&self) -> u128 {
        self.0.digest128()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.get())
    }
}

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
        let mut source = self.copy_source()?;
        let (disk, of) = (Arc::clone(&self.inner.disk), (source.seq(), source.entries()));
        let mut target = CopyTarget::begin(disk, path, self.options_of_copy(), self.hooks_of_copy(), of)?;
        while let Some(part) = source.next(value_in_copy)? {
            let is_tree = matches!(part, CopyPart::Tree { .. });
            target.take(part)?;
            if !is_tree {
                progress(&target.progress())?;
            }
        }
        target.finish(source.digest())
    }

    /// The newest published state, part by part. It is held until the source is dropped, and its space with
    /// it.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn copy_source(&self) -> Result<CopySource> {
        CopySource::of(self.snapshot()?)
    }

    /// The geometry and the reducers are those of the original.
    fn options_of_copy(&self) -> Options {
        let own = &self.inner.options;
        Options {
            memory_bytes: (own.memory_bytes / MEMORY_PART).max(MEMORY_BYTES_MIN),
            sync: own.sync,
            allow_network_fs: own.allow_network_fs,
            geometry: self.inner.store.geometry,
            background: own.background,
            compress: own.compress,
            patches: own.patches,
            ..Options::default()
        }
    }

    fn hooks_of_copy(&self) -> Hooks {
        Hooks { reducers: self.inner.store.reducers.clone(), ..Hooks::default() }
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

/// Fails on an unfinished copy, on the unfinished result of a repair, and on a node that has not taken over
/// the state that it has copied.
pub(super) fn refuse_unfinished(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.kind(&path.join(UNFINISHED)) {
        Ok(Some(_)) => {}
        Ok(None) => return incoming::refuse_between(disk, path),
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
