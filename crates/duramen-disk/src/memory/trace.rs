//! A recording of everything that changed a memory disk, and the crash images it can be cut into.
//!
//! Owns the recorded operations and the replay that walks them. It never re-runs a workload: an image at
//! any operation costs microseconds, because contents are shared pages. The crash search rests on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::MemDisk;
use super::content::mix;
use super::crash::{CrashChoice, Slot, hash_image, pending_slots, survivors};
use super::model::{EntryChange, Model, Op, SyncOutcome};
use super::pending::Change;

/// The operations of a disk since recording began. Cloning is cheap for the contents, not for the list.
#[derive(Clone)]
pub struct Trace {
    pub(super) base: Model,
    pub(super) ops: Vec<Op>,
    pub(super) seed: u64,
    pub(super) clock_ns: u64,
}

/// What a recorded operation was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum OpKind {
    /// A file was created.
    Create,
    /// A directory was created.
    CreateDir,
    /// A file was removed.
    Remove,
    /// A file was renamed.
    Rename,
    /// Bytes were written.
    Write,
    /// The length was set.
    SetLen,
    /// Space was reserved.
    Reserve,
    /// A hole was punched.
    Punch,
    /// A file was synced, or a durable write ended.
    Sync,
    /// A directory was synced.
    SyncDir,
    /// Corruption made by the test: a flipped bit, a file put or deleted.
    Corruption,
    /// A remark made with [`MemDisk::annotate`].
    Mark,
}

/// A recorded operation, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpInfo {
    /// What it was.
    pub kind: OpKind,
    /// The file or directory; for a rename the old name; for a mark empty.
    pub path: PathBuf,
    /// Where the change began, in bytes; for `SetLen` the new length.
    pub offset: u64,
    /// How many bytes it covered.
    pub bytes: u64,
    /// The remark, the new name of a rename, or how a sync ended if it did not simply succeed.
    pub note: String,
}

impl fmt::Display for OpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} @ {:#x} + {}", self.kind, self.path.display(), self.offset, self.bytes)?;
        if self.note.is_empty() { Ok(()) } else { write!(f, " ({})", self.note) }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("ops", &self.ops.len())
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// How many operations were recorded; there is one more boundary than that.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Describes one operation.
    ///
    /// # Panics
    /// If `index` is not below [`Trace::len`].
    #[must_use]
    pub fn op(&self, index: usize) -> OpInfo {
        describe(&self.ops[index])
    }

    /// Describes one operation in words, for a failure's message.
    ///
    /// # Panics
    /// If `index` is not below [`Trace::len`].
    #[must_use]
    pub fn describe(&self, index: usize) -> String {
        self.op(index).to_string()
    }

    /// The last remark among the first `at_op` operations: the phase that a cut there falls into.
    #[must_use]
    pub fn mark_before(&self, at_op: usize) -> Option<&str> {
        self.ops[..at_op.min(self.ops.len())].iter().rev().find_map(|op| match op {
            Op::Mark(text) => Some(text.as_ref()),
            _ => None,
        })
    }

    /// All remarks, each with the index of its operation.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &str)> {
        self.ops.iter().enumerate().filter_map(|(index, op)| match op {
            Op::Mark(text) => Some((index, text.as_ref())),
            _ => None,
        })
    }

    /// A walk over the boundaries, standing before the first operation.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { trace: self, model: self.base.clone(), at: 0 }
    }

    /// The disk after a power cut once `at_op` operations had happened. A cursor is faster for many.
    ///
    /// # Panics
    /// If `at_op` is above [`Trace::len`].
    #[must_use]
    pub fn crash_image(&self, at_op: usize, choice: &CrashChoice) -> MemDisk {
        let mut cursor = self.cursor();
        cursor.seek(at_op);
        cursor.image(choice)
    }
}

/// A walk over the boundaries of a [`Trace`]. Clone it to hand parts of the walk to threads.
#[derive(Clone)]
pub struct Cursor<'trace> {
    trace: &'trace Trace,
    model: Model,
    at: usize,
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("at", &self.at)
            .field("pending", &self.pending_len())
            .finish_non_exhaustive()
    }
}

impl Cursor<'_> {
    /// How many operations have happened at this boundary.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Steps past one operation; `false` at the end.
    pub fn advance(&mut self) -> bool {
        let Some(op) = self.trace.ops.get(self.at) else { return false };
        self.model.apply(op);
        self.at += 1;
        true
    }

    /// Moves to a boundary: forwards step by step, backwards from the start.
    ///
    /// # Panics
    /// If `at_op` is above the trace's length.
    pub fn seek(&mut self, at_op: usize) {
        assert!(
            at_op <= self.trace.len(),
            "boundary {at_op} of a trace with {} operations",
            self.trace.len()
        );
        if at_op < self.at {
            *self = self.trace.cursor();
        }
        while self.at < at_op {
            self.advance();
        }
    }

    /// How many changes a power cut here may lose.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.model.pending_len()
    }

    /// The pending changes in issue order: what the indices of a [`CrashChoice`] mean here.
    #[must_use]
    pub fn pending(&self) -> Vec<OpInfo> {
        let describe_slot = |slot: Slot| match slot {
            Slot::Entry(place) => describe_entry(&self.model.entries[place].change),
            Slot::Change(inode, place) => {
                let (path, change) = (self.path_of(inode), &self.model.files[&inode].pending[place].change);
                describe_change(&path, change)
            }
        };
        pending_slots(&self.model).into_iter().map(describe_slot).collect()
    }

    fn path_of(&self, inode: super::model::InodeId) -> Arc<Path> {
        let named = self.trace.ops[..self.at].iter().rev().find_map(|op| match op {
            Op::Change { path, inode: found, .. } if *found == inode => Some(Arc::clone(path)),
            _ => None,
        });
        named.unwrap_or_else(|| Arc::from(Path::new("")))
    }

    /// The disk after a power cut here: fully working, with no lock held and nothing pending.
    #[must_use]
    pub fn image(&self, choice: &CrashChoice) -> MemDisk {
        let seed = mix(self.trace.seed, self.at as u64);
        MemDisk::from_model(survivors(&self.model, choice), seed, self.trace.clock_ns)
    }

    /// The hash that [`MemDisk::image_hash`] of [`Cursor::image`] gives, without building the disk.
    #[must_use]
    pub fn image_hash(&self, choice: &CrashChoice) -> u64 {
        let model = survivors(&self.model, choice);
        hash_image(&model.names, |inode| model.files.get(&inode).map(|file| &file.durable))
    }
}

fn info(kind: OpKind, path: &Path) -> OpInfo {
    OpInfo { kind, path: path.to_path_buf(), offset: 0, bytes: 0, note: String::new() }
}

fn describe(op: &Op) -> OpInfo {
    let ended = |outcome: SyncOutcome| {
        if outcome == SyncOutcome::Done { String::new() } else { format!("{outcome:?}") }
    };
    match op {
        Op::Create { path, .. } => info(OpKind::Create, path),
        Op::CreateDir { path } => info(OpKind::CreateDir, path),
        Op::Remove { path, .. } => info(OpKind::Remove, path),
        Op::Rename { from, to, .. } => {
            OpInfo { note: to.display().to_string(), ..info(OpKind::Rename, from) }
        }
        Op::Change { path, change, .. } => describe_change(path, change),
        Op::Sync { path, outcome, .. } | Op::SyncWrite { path, outcome, .. } => {
            OpInfo { note: ended(*outcome), ..info(OpKind::Sync, path) }
        }
        Op::SyncDir { path, outcome, .. } => OpInfo { note: ended(*outcome), ..info(OpKind::SyncDir, path) },
        Op::Flip { path, offset, bit, .. } => {
            OpInfo { offset: *offset, bytes: 1, note: format!("bit {bit}"), ..info(OpKind::Corruption, path) }
        }
        Op::Put { path, bytes, .. } => OpInfo { bytes: bytes.len() as u64, ..info(OpKind::Corruption, path) },
        Op::Delete { path } => OpInfo { note: "deleted".to_owned(), ..info(OpKind::Corruption, path) },
        Op::Mark(text) => OpInfo { note: text.to_string(), ..info(OpKind::Mark, Path::new("")) },
    }
}

fn describe_change(path: &Path, change: &Change) -> OpInfo {
    let place = |kind, offset, bytes| OpInfo { offset, bytes, ..info(kind, path) };
    match change {
        Change::Write { offset, bytes } => place(OpKind::Write, *offset, bytes.len() as u64),
        Change::SetLen { bytes } => place(OpKind::SetLen, *bytes, 0),
        Change::Reserve { offset, bytes } => place(OpKind::Reserve, *offset, *bytes),
        Change::Punch { offset, bytes } => place(OpKind::Punch, *offset, *bytes),
    }
}

fn describe_entry(change: &EntryChange) -> OpInfo {
    match change {
        EntryChange::Add { path, node: super::model::Node::Directory } => info(OpKind::CreateDir, path),
        EntryChange::Add { path, .. } => info(OpKind::Create, path),
        EntryChange::Remove { path, .. } => info(OpKind::Remove, path),
        EntryChange::Rename { from, to, .. } => {
            OpInfo { note: to.display().to_string(), ..info(OpKind::Rename, from) }
        }
    }
}
