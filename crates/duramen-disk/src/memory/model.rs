//! What of a memory disk is durable and what is pending: the model of a volatile cache.
//!
//! Owns durable names and contents and the ordered lists of changes that a power cut may lose. It never holds
//! the cached (current) view, takes no lock and reads no clock. Applying the same [`Op`]s gives the same
//! model; a trace rebuilds every crash in this way. Tests of D1 and D6 rest on its strictness.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::pending::{Change, ModelFile, Pending};
use super::random::Random;

/// A file without its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InodeId(pub(super) u64);

/// The position of an operation in the order of all operations of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct OpSeq(pub(super) u64);

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File(InodeId),
}

pub(super) type Names = BTreeMap<Arc<Path>, Node>;

/// How a sync ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncOutcome {
    /// It did what it reports.
    Done,
    /// It reported `Ok` and did nothing.
    Lied,
    /// It failed, and what was pending still is.
    Failed,
    /// It failed, and what was written never becomes durable, though reads still show it. Lengths stay
    /// pending.
    FailedDataGone,
    /// It failed, and a seed decides the fate of each change.
    FailedInPart(u64),
}

/// One operation on a disk.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Create {
        path: Arc<Path>,
        inode: InodeId,
    },
    CreateDir {
        path: Arc<Path>,
    },
    Remove {
        path: Arc<Path>,
        inode: InodeId,
    },
    Rename {
        from: Arc<Path>,
        to: Arc<Path>,
        inode: InodeId,
    },
    Change {
        path: Arc<Path>,
        inode: InodeId,
        change: Change,
    },
    /// Covers the changes of the file that came before `before`.
    Sync {
        path: Arc<Path>,
        inode: InodeId,
        before: OpSeq,
        outcome: SyncOutcome,
    },
    /// Covers the one write `write`.
    SyncWrite {
        path: Arc<Path>,
        inode: InodeId,
        write: OpSeq,
        outcome: SyncOutcome,
    },
    SyncDir {
        path: Arc<Path>,
        before: OpSeq,
        outcome: SyncOutcome,
    },
    /// A bit that rots, wherever it is stored.
    Flip {
        path: Arc<Path>,
        inode: InodeId,
        offset: u64,
        bit: u8,
    },
    /// A file written by the test, durable at once.
    Put {
        path: Arc<Path>,
        inode: InodeId,
        bytes: Arc<[u8]>,
    },
    /// A file or tree removed by the test, durable at once.
    Delete {
        path: Arc<Path>,
    },
    /// A remark of the test.
    Mark(Arc<str>),
}

/// A change to the names that a power cut may lose.
#[derive(Debug, Clone)]
pub(super) enum EntryChange {
    Add { path: Arc<Path>, node: Node },
    Remove { path: Arc<Path>, inode: InodeId },
    Rename { from: Arc<Path>, to: Arc<Path>, inode: InodeId },
}

/// The durable state of a disk and all pending changes.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) seq: OpSeq,
    pub(super) names: Names,
    pub(super) files: BTreeMap<InodeId, ModelFile>,
    pub(super) entries: Vec<Pending<EntryChange>>,
}

impl EntryChange {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            EntryChange::Add { path, node } => {
                names.insert(Arc::clone(path), *node);
            }
            EntryChange::Remove { path, inode } => {
                if names.get(path) == Some(&Node::File(*inode)) {
                    names.remove(path);
                }
            }
            EntryChange::Rename { to, inode, .. } => {
                names.retain(|_, node| *node != Node::File(*inode));
                names.insert(Arc::clone(to), Node::File(*inode));
            }
        }
    }

    fn directories(&self) -> [&Path; 2] {
        match self {
            EntryChange::Add { path, .. } | EntryChange::Remove { path, .. } => {
                [parent_of(path), parent_of(path)]
            }
            EntryChange::Rename { from, to, .. } => [parent_of(from), parent_of(to)],
        }
    }
}

/// The directory that contains a name; the root contains itself.
pub(super) fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

impl Model {
    /// Changes that a power cut may lose.
    pub(super) fn pending_len(&self) -> usize {
        self.entries.len() + self.files.values().map(|file| file.pending.len()).sum::<usize>()
    }

    /// Moves the model past one operation.
    pub(super) fn apply(&mut self, op: &Op) {
        let seq = self.seq;
        self.seq = OpSeq(seq.0 + 1);
        match op {
            Op::Create { path, inode } => {
                self.files.entry(*inode).or_default();
                let node = Node::File(*inode);
                self.entries.push(Pending { seq, change: EntryChange::Add { path: Arc::clone(path), node } });
            }
            Op::CreateDir { path } => {
                let change = EntryChange::Add { path: Arc::clone(path), node: Node::Directory };
                self.entries.push(Pending { seq, change });
            }
            Op::Remove { path, inode } => {
                let change = EntryChange::Remove { path: Arc::clone(path), inode: *inode };
                self.entries.push(Pending { seq, change });
            }
            Op::Rename { from, to, inode } => {
                let change =
                    EntryChange::Rename { from: Arc::clone(from), to: Arc::clone(to), inode: *inode };
                self.entries.push(Pending { seq, change });
            }
            // A file that lost its last durable name cannot come back; what is written to it is not kept.
            Op::Change { inode, change, .. } => {
                if let Some(file) = self.files.get_mut(inode) {
                    file.pending.push(Pending { seq, change: change.clone() });
                }
            }
            Op::Sync { inode, before, outcome, .. } => {
                if let Some(file) = self.files.get_mut(inode) {
                    file.sync(*before, *outcome);
                }
            }
            Op::SyncWrite { inode, write, outcome, .. } => {
                if let Some(file) = self.files.get_mut(inode) {
                    file.sync_write(*write, *outcome);
                }
            }
            Op::SyncDir { path, before, outcome } => self.sync_dir(path, *before, *outcome),
            Op::Flip { inode, offset, bit, .. } => {
                if let Some(file) = self.files.get_mut(inode) {
                    file.flip(*offset, *bit);
                }
            }
            Op::Put { path, inode, bytes } => self.put(path, *inode, bytes),
            Op::Delete { path } => {
                self.settle(path);
                self.names.retain(|name, _| !name.starts_with(path));
                self.forget_unreachable();
            }
            Op::Mark(_) => {}
        }
    }

    /// Makes the pending entries of one directory durable, in order; those of others stay pending.
    ///
    /// A rename across directories is one change. It takes the other directory with it, as in a journal.
    fn sync_dir(&mut self, path: &Path, before: OpSeq, outcome: SyncOutcome) {
        if matches!(outcome, SyncOutcome::Lied | SyncOutcome::Failed) {
            return;
        }
        let mut directories = BTreeSet::from([path.to_path_buf()]);
        loop {
            let known = directories.len();
            for entry in self.entries.iter().filter(|entry| entry.seq < before) {
                let [from, to] = entry.change.directories();
                if directories.contains(from) != directories.contains(to) {
                    directories.extend([from.to_path_buf(), to.to_path_buf()]);
                }
            }
            if directories.len() == known {
                break;
            }
        }
        // A journal is written in order: what is durable of it is a prefix.
        let mut left = match outcome {
            SyncOutcome::Done => usize::MAX,
            SyncOutcome::FailedInPart(seed) => Random::new(seed).below(self.entries.len() + 1),
            _ => 0,
        };
        let is_in_part = matches!(outcome, SyncOutcome::FailedInPart(_));
        let names = &mut self.names;
        self.entries.retain(|entry| {
            let covered = entry.seq < before && directories.contains(entry.change.directories()[0]);
            if covered && left > 0 {
                left -= 1;
                entry.change.apply(names);
                return false;
            }
            // The rest of it is written with a later sync of the directory.
            !covered || is_in_part
        });
        self.forget_unreachable();
    }

    fn put(&mut self, path: &Arc<Path>, inode: InodeId, bytes: &[u8]) {
        for directory in path.ancestors().skip(1) {
            self.names.insert(Arc::from(directory), Node::Directory);
        }
        self.settle(path);
        self.names.insert(Arc::clone(path), Node::File(inode));
        let mut file = ModelFile::default();
        file.durable.write(0, bytes);
        self.files.insert(inode, file);
    }

    /// Makes the pending entries under a path durable, so that none of them later undoes a newer change.
    fn settle(&mut self, tree: &Path) {
        let names = &mut self.names;
        self.entries.retain(|entry| {
            let touched = entry.change.touches_tree(tree);
            if touched {
                entry.change.apply(names);
            }
            !touched
        });
    }

    /// Drops files that no durable or pending name reaches: no power cut can bring them back.
    fn forget_unreachable(&mut self) {
        let (names, entries) = (&self.names, &self.entries);
        self.files.retain(|inode, _| {
            let node = Node::File(*inode);
            names.values().any(|found| *found == node)
                || entries.iter().any(|entry| match &entry.change {
                    EntryChange::Add { node: found, .. } => *found == node,
                    EntryChange::Remove { .. } => false,
                    EntryChange::Rename { inode: found, .. } => found == inode,
                })
        });
    }
}

impl EntryChange {
    fn touches_tree(&self, tree: &Path) -> bool {
        match self {
            EntryChange::Add { path, .. } | EntryChange::Remove { path, .. } => path.starts_with(tree),
            EntryChange::Rename { from, to, .. } => from.starts_with(tree) || to.starts_with(tree),
        }
    }
}
