//! A copy that becomes a node of the original's cluster: tree ids are kept, and the copy goes on after the
//! commit that it shows, with a log of its own and an empty one of Raft.
//!
//! Nothing of it is a node before the mark of the unfinished copy is removed, and a copy that was cut short
//! is made anew. A node that has one already gets the copy in the place of its own state (`incoming`). Its id
//! and its vote stay. Of its log nothing is lost that counts: the entry of the copy is decided, and was
//! decided without this node, which does not have it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::directory::{DATA, LOCK, UNFINISHED, WAL, kind, lock};
use super::super::{Engine, Hooks, replica};
use super::incoming::{self, remove_files};
use super::{CopyPart, CopyProgress, CopySource, CopyTarget, finish};
use crate::checkpoint::read_superblocks;
use crate::data_file::{SUPERBLOCK_OFFSETS, Superblock};
use crate::error::{Error, Result};
use crate::features::NODE_OF_A_CLUSTER;
use crate::ids::{CommitSeq, Generation, LogId, TreeId};
use crate::options::{Background, Options};
use crate::raft_log::{Ident, LogEnd, RaftLog, RaftPlace, Vote};
use crate::wal::{Log, LogIdentity, LogPosition, draw};
use duramen_disk::{Access, Disk, Lock, PathKind, SyncMethod};

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

/// A copy of the state of a node, for a new node of its cluster, or for one that lacks entries which no other
/// node has any more.
#[derive(Debug)]
pub struct NodeTarget {
    copy: CopyTarget,
    head: NodeHead,
    ident: Ident,
    vote: Option<Vote>,
    /// The directory of the node whose state the copy takes the place of, and its lock.
    replaces: Option<(PathBuf, Box<dyn Lock>)>,
}

impl NodeTarget {
    /// Begins a new node. What an earlier call has left unfinished in the directory is removed.
    ///
    /// # Errors
    /// As [`CopyTarget::begin`]; `InvalidArgument` (E0201) if the log is to lie elsewhere.
    pub fn begin(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        hooks: Hooks,
        head: NodeHead,
        ident: Ident,
    ) -> Result<NodeTarget> {
        let (options, of) = (options_of_copy(options)?, (head.end.id.seq, head.entries));
        let copy = if NodeTarget::is_unfinished(&*disk, path)? {
            for dir in [WAL, replica::RAFT].map(|name| path.join(name)) {
                remove_files(&*disk, &dir, &[])?;
            }
            remove_files(&*disk, path, &[UNFINISHED])?;
            CopyTarget::begun(disk, path, options, hooks, of)?
        } else {
            CopyTarget::begin(disk, path, options, hooks, of)?
        };
        Ok(NodeTarget { copy, head, ident, vote: None, replaces: None })
    }

    /// Begins a copy that takes the place of the state of a node, which keeps its id and its vote. Its state
    /// stays as it is until [`NodeTarget::finish`]: on the disk there must be room for both. `None` if the
    /// node has the entry of `head`, and needs no copy.
    ///
    /// # Errors
    /// `DatabaseLocked` (E0701) if the node runs; `LogMissing` (E0503), `CorruptLog` (E0502) if Raft's log or
    /// the vote is gone or damaged: the node may have forgotten something; `CorruptData` (E0501) if the
    /// superblocks are; `InvalidArgument` (E0201) if the directory is no node, or its log lies elsewhere;
    /// those of [opening](crate::Error#opening).
    pub fn begin_anew(
        disk: Arc<dyn Disk>,
        path: &Path,
        options: Options,
        hooks: Hooks,
        head: NodeHead,
    ) -> Result<Option<NodeTarget>> {
        let (options, of) = (options_of_copy(options)?, (head.end.id.seq, head.entries));
        let lock = lock(&*disk, &path.join(LOCK), &options)?;
        incoming::take_over(&*disk, path)?;
        let place = raft_place_of(&disk, path)?;
        let Some((ident, vote)) = place.lacks(head.end)? else { return Ok(None) };
        let incoming = incoming::begin(&*disk, path)?;
        let copy = CopyTarget::begun(disk, &incoming, options, hooks, of)?;
        Ok(Some(NodeTarget { copy, head, ident, vote, replaces: Some((path.to_owned(), lock)) }))
    }

    /// Whether a directory has a new node that was not finished.
    ///
    /// # Errors
    /// `System` (E1001).
    pub fn is_unfinished(disk: &dyn Disk, path: &Path) -> Result<bool> {
        Ok(kind(disk, path)? == Some(PathKind::Directory) && kind(disk, &path.join(UNFINISHED))?.is_some())
    }

    /// Whether a process has the database in this directory open: a node that does not run takes a copy.
    #[must_use]
    pub fn is_in_use(disk: &dyn Disk, path: &Path) -> bool {
        disk.lock(&path.join(LOCK), true).is_err()
    }

    /// As [`CopyTarget::take`]. `tree` is the id of the part's tree in the original.
    ///
    /// # Errors
    /// As [`CopyTarget::take`].
    pub fn take(&mut self, tree: TreeId, part: CopyPart) -> Result<()> {
        if matches!(part, CopyPart::Tree { .. }) {
            self.copy.engine.writer()?.0.set_next_tree(tree);
        }
        self.copy.take(part)
    }

    /// As [`CopyTarget::finish`]. The directory is a node then, with the state of the original.
    ///
    /// # Errors
    /// As [`CopyTarget::finish`]. A node whose state was to be replaced has the one or the other then, at its
    /// next opening.
    pub fn finish(self, digest: u128) -> Result<CopyProgress> {
        let NodeTarget { copy, head, ident, vote, replaces } = self;
        copy.engine.writer()?.0.raise_next_tree(head.next_tree);
        copy.close(digest)?;
        let place = copy.engine.raft_place();
        replica::clear(&*copy.disk, &copy.path, &place.dir)?;
        place.create(ident, vote, head.end)?;
        goes_on_after(&copy, head.end.id.seq)?;
        let (disk, done) = (Arc::clone(&copy.disk), copy.progress());
        match replaces {
            None => finish(&*disk, &copy.path)?,
            Some((node, _lock)) => {
                incoming::is_whole(&*disk, &copy.path)?;
                // It has files open that are about to be moved.
                drop(copy);
                incoming::take_over(&*disk, &node)?;
            }
        }
        Ok(done)
    }
}

fn options_of_copy(options: Options) -> Result<Options> {
    if options.wal_dir.is_some() {
        return Err(Error::invalid("a node that copies the state of another one has its log in its own directory")
            .with_hint("leave out `--wal`; to replace a node that has its log elsewhere, remove it from the cluster, and join with an empty directory"));
    }
    Ok(Options { patches: false, ..options })
}

/// Where Raft's log of a node is that does not run.
fn raft_place_of(disk: &Arc<dyn Disk>, path: &Path) -> Result<RaftPlace> {
    let data = path.join(DATA);
    let file = disk.open(&data, Access::READ).map_err(|error| Error::io("open", &data, &error))?;
    let (newest, _) = read_superblocks(&file, &data)?;
    if newest.write_features & NODE_OF_A_CLUSTER == 0 {
        return Err(Error::invalid(format!("{} is no node of a cluster", path.display())));
    }
    Ok(RaftPlace {
        disk: Arc::clone(disk),
        dir: path.join(replica::RAFT),
        database: newest.database,
        geometry: newest.geometry,
        sync: SyncMethod::default(),
        background: Background::Stepped,
        held: Arc::new(()),
    })
}

/// Lets a closed copy go on after a commit, which its state is, in a new log.
fn goes_on_after(copy: &CopyTarget, seq: CommitSeq) -> Result<()> {
    let (disk, wal, data) = (&copy.disk, copy.path.join(WAL), copy.path.join(DATA));
    remove_files(&**disk, &wal, &[])?;
    let file = disk.open(&data, Access::WRITE).map_err(|error| Error::io("open", &data, &error))?;
    let (newest, _) = read_superblocks(&file, &data)?;
    let log = LogIdentity { database: newest.database, log: LogId(draw(&**disk)) };
    let sync = copy.engine.inner.sync.0;
    let (begun, replay) = Log::create(disk, &wal, log, newest.geometry, sync, seq)?;
    drop(begun);
    for superblock in both(&newest, log.log, replay) {
        let slot = usize::from(superblock.generation.0 % 2 == 1);
        let written = file.write_at(&superblock.encode(), SUPERBLOCK_OFFSETS[slot]);
        written.map_err(|error| Error::io("write", &data, &error.source))?;
        file.sync_data().map_err(|error| Error::io("sync", &data, &error))?;
    }
    disk.sync_dir(&copy.path).map_err(|error| Error::io("sync", &copy.path, &error))
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
