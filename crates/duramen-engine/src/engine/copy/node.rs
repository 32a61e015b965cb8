//! A copy that becomes a node of the original's cluster: tree ids are kept, and the copy goes on after the
//! commit that it shows, with a log of its own and an empty one of Raft.
//!
//! Nothing of it is a node before the mark of the unfinished copy is removed, and a copy that was cut short
//! is made anew.

use std::path::Path;
use std::sync::Arc;

use super::super::directory::{DATA, UNFINISHED, WAL, kind};
use super::super::{Engine, Hooks, replica};
use super::{CopyPart, CopyProgress, CopySource, CopyTarget, finish};
use crate::checkpoint::read_superblocks;
use crate::data_file::{SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Error, Result};
use crate::features::NODE_OF_A_CLUSTER;
use crate::ids::{CommitSeq, Generation, LogId, TreeId};
use crate::options::Options;
use crate::raft_log::{Ident, LogEnd, RaftLog};
use crate::wal::{Log, LogIdentity, LogPosition, draw};
use duramen_disk::{Access, Disk, PathKind};

/// What a copy must know to become a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHead {
    /// The entry whose commit is the state: Raft's log of the copy begins after it.
    pub end: LogEnd,
    /// No tree of the cluster has this id or a later one.
    pub next_tree: TreeId,
    /// Entries of trees.
    pub entries: u64,
}

impl Engine {
    /// The newest published state of a node, part by part, for another node of its cluster. It is held until
    /// the source is dropped, and its space with it.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) if the entry of that state is purged.
    pub fn node_source(&self, log: &RaftLog) -> Result<(CopySource, NodeHead)> {
        let source = self.copy_source()?;
        let end = log.end_after(source.seq())?;
        let next_tree = self.writer()?.0.next_tree();
        let entries = source.entries();
        Ok((source, NodeHead { end, next_tree, entries }))
    }
}

impl CopyTarget {
    /// As [`CopyTarget::begin`], for a copy that becomes a node. What an earlier call has left unfinished in
    /// the directory is removed.
    ///
    /// # Errors
    /// As [`CopyTarget::begin`].
    pub fn begin_node(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        hooks: Hooks,
        of: (CommitSeq, u64),
    ) -> Result<CopyTarget> {
        let options = Options { patches: false, ..options };
        if !CopyTarget::is_unfinished(&*disk, path)? {
            return CopyTarget::begin(disk, path, options, hooks, of);
        }
        for dir in [WAL, replica::RAFT].map(|name| path.join(name)) {
            remove_files(&*disk, &dir, None)?;
        }
        remove_files(&*disk, path, Some(UNFINISHED))?;
        CopyTarget::begun(disk, path, options, hooks, of)
    }

    /// Whether a directory has a copy that was not finished.
    ///
    /// # Errors
    /// `System` (E1001).
    pub fn is_unfinished(disk: &dyn Disk, path: &Path) -> Result<bool> {
        Ok(kind(disk, path)? == Some(PathKind::Directory) && kind(disk, &path.join(UNFINISHED))?.is_some())
    }

    /// As [`CopyTarget::take`], for a copy that becomes a node. `tree` is the id of the part's tree in the
    /// original.
    ///
    /// # Errors
    /// As [`CopyTarget::take`].
    pub fn take_of(&mut self, tree: TreeId, part: CopyPart) -> Result<()> {
        if matches!(part, CopyPart::Tree { .. }) {
            self.engine.writer()?.0.set_next_tree(tree);
        }
        self.take(part)
    }

    /// As [`CopyTarget::finish`], and makes the copy a node of the original's cluster.
    ///
    /// # Errors
    /// As [`CopyTarget::finish`].
    pub fn finish_as_node(self, digest: u128, head: &NodeHead, ident: Ident) -> Result<CopyProgress> {
        self.engine.writer()?.0.raise_next_tree(head.next_tree);
        self.close(digest)?;
        let place = self.engine.raft_place();
        replica::clear(&*self.disk, &self.path, &place.dir)?;
        place.create(ident, head.end)?;
        self.goes_on_after(head.end.id.seq)?;
        finish(&*self.disk, &self.path)?;
        Ok(self.progress())
    }

    /// Lets the closed copy go on after a commit, which its state is, in a new log.
    fn goes_on_after(&self, seq: CommitSeq) -> Result<()> {
        let (disk, wal, data) = (&self.disk, self.path.join(WAL), self.path.join(DATA));
        remove_files(&**disk, &wal, None)?;
        let file = disk.open(&data, Access::WRITE).map_err(|error| Error::io("open", &data, &error))?;
        let (newest, _) = read_superblocks(&file, &data)?;
        let log = LogIdentity { database: newest.database, log: LogId(draw(&**disk)) };
        let sync = self.engine.inner.sync.0;
        let (begun, replay) = Log::create(disk, &wal, log, newest.geometry, sync, seq)?;
        drop(begun);
        for superblock in both(&newest, log.log, replay) {
            let slot = usize::from(superblock.generation.0 % 2 == 1);
            let written = file.write_at(&superblock.encode(), SUPERBLOCK_OFFSETS[slot]);
            written.map_err(|error| Error::io("write", &data, &error.source))?;
            file.sync_data().map_err(|error| Error::io("sync", &data, &error))?;
        }
        disk.sync_dir(&self.path).map_err(|error| Error::io("sync", &self.path, &error))
    }
}

/// Removes the files of a directory, if it is there, but for one.
fn remove_files(disk: &dyn Disk, dir: &Path, but_for: Option<&str>) -> Result<()> {
    if kind(disk, dir)? != Some(PathKind::Directory) {
        return Ok(());
    }
    for name in disk.list(dir).map_err(|error| Error::io("list", dir, &error))? {
        let file = dir.join(&name);
        if but_for.is_none_or(|kept| !name.ends_with(kept)) && kind(disk, &file)? == Some(PathKind::File) {
            disk.remove(&file).map_err(|error| Error::io("remove", &file, &error))?;
        }
    }
    disk.sync_dir(dir).map_err(|error| Error::io("sync", dir, &error))
}

/// Two superblocks of the newest state, of a node whose log begins there.
fn both(newest: &Superblock, log: LogId, replay: LogPosition) -> [Superblock; 2] {
    [1, 2].map(|later| Superblock {
        write_features: NODE_OF_A_CLUSTER,
        log,
        generation: Generation(newest.generation.0 + later),
        replay,
        marked: replay.seq,
        clean: false,
        ..newest.clone()
    })
}
