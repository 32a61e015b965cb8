//! The cached view of a memory disk, kept in step with the model of what is durable.
//!
//! Owns current names and contents, locks, faults and the recording, all behind one mutex. Every change goes
//! through [`State::perform`], so the cached view, the model and the trace cannot disagree. The `Disk` and
//! `File` implementations decide what a call means.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::content::{Content, FILE_BYTES_MAX};
use super::faults::{CallKind, Effect, Faults, injected};
use super::model::{InodeId, Model, Names, Node, Op, OpSeq, parent_of};
use super::pending::Change;
use super::random::Random;

/// A file as reads see it.
#[derive(Default)]
pub(super) struct Inode {
    pub(super) content: Content,
    /// Handles and locks that keep it alive without a name.
    pub(super) open_count: usize,
    linked: bool,
}

/// The holders of a lock file.
#[derive(Debug, Default)]
pub(super) struct LockHolders {
    pub(super) exclusive: bool,
    pub(super) count: usize,
    pub(super) holder: String,
}

pub(super) struct Recording {
    pub(super) base: Model,
    pub(super) ops: Vec<Op>,
}

pub(super) struct State {
    pub(super) model: Model,
    pub(super) names: Names,
    pub(super) inodes: HashMap<InodeId, Inode>,
    next_inode: u64,
    pub(super) locks: BTreeMap<InodeId, LockHolders>,
    pub(super) recording: Option<Recording>,
    pub(super) faults: Faults,
    pub(super) capacity_bytes: Option<u64>,
    /// Calls refused for want of room since the capacity was set.
    pub(super) room_refused_count: u64,
    pub(super) read_only: bool,
    /// Everything below this path is on a network.
    pub(super) network: Option<Arc<Path>>,
    pub(super) random: Random,
}

/// The one spelling of a path: absolute, without `.` and `..`. A relative path starts at the root.
pub(super) fn normal(path: &Path) -> Arc<Path> {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Arc::from(normal)
}

pub(super) fn error(kind: io::ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}

impl State {
    /// A running disk over a durable state in which nothing is pending.
    pub(super) fn over(model: Model, seed: u64) -> State {
        let names = model.names.clone();
        let mut inodes = HashMap::with_capacity(model.files.len());
        for (inode, file) in &model.files {
            inodes.insert(*inode, Inode { content: file.durable.clone(), open_count: 0, linked: true });
        }
        let next_inode = model.files.keys().next_back().map_or(0, |inode| inode.0 + 1);
        State {
            model,
            names,
            inodes,
            next_inode,
            locks: BTreeMap::new(),
            recording: None,
            faults: Faults::default(),
            capacity_bytes: None,
            room_refused_count: 0,
            read_only: false,
            network: None,
            random: Random::new(seed),
        }
    }

    /// An independent copy: same contents and same pending changes; no handles, locks, faults or recording.
    pub(super) fn copy(&self) -> State {
        let linked = self.inodes.iter().filter(|(_, inode)| inode.linked);
        let copy = |inode: &Inode| Inode { content: inode.content.clone(), open_count: 0, linked: true };
        State {
            model: self.model.clone(),
            names: self.names.clone(),
            inodes: linked.map(|(id, inode)| (*id, copy(inode))).collect(),
            next_inode: self.next_inode,
            locks: BTreeMap::new(),
            recording: None,
            faults: Faults::default(),
            capacity_bytes: self.capacity_bytes,
            room_refused_count: 0,
            read_only: self.read_only,
            network: self.network.clone(),
            random: self.random.clone(),
        }
    }

    pub(super) fn new_inode(&mut self) -> InodeId {
        let inode = InodeId(self.next_inode);
        self.next_inode += 1;
        inode
    }

    /// Applies an operation to the cached view and the model, and records it. Returns its place in the order.
    pub(super) fn perform(&mut self, op: Op) -> OpSeq {
        let seq = self.model.seq;
        match &op {
            Op::Create { path, inode } => {
                self.names.insert(Arc::clone(path), Node::File(*inode));
                self.inodes.insert(*inode, Inode { linked: true, ..Inode::default() });
            }
            Op::CreateDir { path } => {
                self.names.insert(Arc::clone(path), Node::Directory);
            }
            Op::Remove { path, .. } => self.unlink(path),
            Op::Rename { from, to, inode } => {
                self.unlink(to);
                self.names.remove(from);
                self.names.insert(Arc::clone(to), Node::File(*inode));
            }
            Op::Change { inode, change, .. } => change.apply(&mut self.inode(*inode).content),
            Op::Flip { inode, offset, bit, .. } => self.inode(*inode).content.flip(*offset, *bit),
            Op::Put { path, inode, bytes } => {
                for directory in path.ancestors().skip(1) {
                    self.names.insert(Arc::from(directory), Node::Directory);
                }
                self.names.insert(Arc::clone(path), Node::File(*inode));
                let mut content = Content::default();
                content.write(0, bytes);
                let file = self.inodes.entry(*inode).or_default();
                (file.content, file.linked) = (content, true);
            }
            Op::Delete { path } => {
                let doomed: Vec<_> =
                    self.names.keys().filter(|name| name.starts_with(path)).cloned().collect();
                doomed.iter().for_each(|name| self.unlink(name));
            }
            Op::Sync { .. } | Op::SyncWrite { .. } | Op::SyncDir { .. } | Op::Mark(_) => {}
        }
        self.model.apply(&op);
        if let Some(recording) = &mut self.recording {
            recording.ops.push(op);
        }
        seq
    }

    /// The file behind an open handle.
    pub(super) fn inode(&mut self, inode: InodeId) -> &mut Inode {
        self.inodes.get_mut(&inode).expect("a handle or a name keeps its inode")
    }

    fn unlink(&mut self, path: &Path) {
        if let Some(Node::File(inode)) = self.names.remove(path) {
            self.inode(inode).linked = false;
            self.forget_unused(inode);
        }
    }

    /// Closes one handle or lock.
    pub(super) fn close(&mut self, inode: InodeId) {
        self.inode(inode).open_count -= 1;
        self.forget_unused(inode);
    }

    fn forget_unused(&mut self, inode: InodeId) {
        let file = self.inode(inode);
        if !file.linked && file.open_count == 0 {
            self.inodes.remove(&inode);
        }
    }

    /// The file that a name stands for.
    pub(super) fn file(&self, path: &Path) -> io::Result<InodeId> {
        match self.names.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Directory) => Err(error(io::ErrorKind::IsADirectory, path)),
            None => Err(self.missing(path)),
        }
    }

    fn missing(&self, path: &Path) -> io::Error {
        match self.directory(parent_of(path)) {
            Err(error) => error,
            Ok(()) => error(io::ErrorKind::NotFound, path),
        }
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<()> {
        match self.names.get(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(error(io::ErrorKind::NotADirectory, path)),
            None => Err(error(io::ErrorKind::NotFound, path)),
        }
    }

    /// Checks that a new name may be made here.
    pub(super) fn vacant(&self, path: &Path) -> io::Result<()> {
        if self.names.contains_key(path) {
            return Err(error(io::ErrorKind::AlreadyExists, path));
        }
        self.directory(parent_of(path))
    }

    /// The names in a directory.
    pub(super) fn entries<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a OsStr> {
        let subtree = self.names.keys().filter(move |name| name.parent() == Some(directory));
        subtree.filter_map(|name| name.file_name())
    }

    /// Counts a call; an `Error` effect ends it here, any other is the caller's to carry out.
    pub(super) fn call(&mut self, kind: CallKind, path: &Path) -> io::Result<Option<Effect>> {
        match self.faults.call(kind, path) {
            Some(Effect::Error(cause)) => Err(injected(cause, kind, path)),
            effect => Ok(effect),
        }
    }

    /// Counts a call that changes the disk; a disk mounted read-only refuses it.
    pub(super) fn mutating_call(&mut self, kind: CallKind, path: &Path) -> io::Result<Option<Effect>> {
        let effect = self.call(kind, path)?;
        if self.read_only { Err(error(io::ErrorKind::ReadOnlyFilesystem, path)) } else { Ok(effect) }
    }

    /// Bytes of allocated pages in all files, open ones without a name included.
    pub(super) fn used_bytes(&self) -> u64 {
        self.inodes.values().map(|inode| inode.content.allocated_bytes()).sum()
    }

    /// Checks that a range may be written or reserved: the longest file and the room on the disk.
    pub(super) fn room(&mut self, inode: InodeId, path: &Path, offset: u64, bytes: u64) -> io::Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(error(io::ErrorKind::FileTooLarge, path));
        }
        if let Some(capacity) = self.capacity_bytes {
            let missing = self.inode(inode).content.missing_pages(offset, bytes);
            if missing > 0 && self.used_bytes() + missing * super::content::PAGE_BYTES as u64 > capacity {
                self.room_refused_count += 1;
                return Err(error(io::ErrorKind::StorageFull, path));
            }
        }
        Ok(())
    }

    /// Drops some clean pages of the cached view, so that reads show what is durable there. Only pages that a
    /// failed or false sync marked clean change. Not recorded: a power cut leaves the same.
    pub(super) fn evict(&mut self, random: &mut Random) -> u64 {
        let mut changed = 0;
        for (id, file) in &self.model.files {
            let Some(inode) = self.inodes.get_mut(id) else { continue };
            let beneath = file.without_clean_pages();
            if beneath.hash() != inode.content.hash() {
                changed += inode.content.take_pages(&beneath, &mut || random.chance(1, 2));
            }
        }
        changed
    }

    pub(super) fn change(&mut self, path: &Arc<Path>, inode: InodeId, change: Change) -> OpSeq {
        self.perform(Op::Change { path: Arc::clone(path), inode, change })
    }
}
