//! [`Disk`] for the memory disk: names, locks, the clocks and randomness.
//!
//! Owns the meaning of each call on the tree and its possible faults. Changes of names are pending until
//! their directory is synced (D1). Locks live in memory, so a crash image holds none (D8).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::faults::{CallKind, Effect, injected};
use super::file::MemFile;
use super::model::{InodeId, Node, Op, SyncOutcome};
use super::state::{error, normal};
use super::{MemDisk, Shared};
use crate::{Access, Disk, File, FileSystem, Lock, LockError, OpenMode, PathKind};

/// The size that a memory disk without a limit reports.
const TOTAL_BYTES: u64 = 1 << 40;

impl Disk for MemDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let path = normal(path);
        let mut state = self.shared.state();
        let inode = match access.mode {
            OpenMode::CreateNew => {
                state.mutating_call(CallKind::Create, &path)?;
                state.vacant(&path)?;
                let inode = state.new_inode();
                state.perform(Op::Create { path: Arc::clone(&path), inode });
                inode
            }
            OpenMode::Write => {
                state.mutating_call(CallKind::Open, &path)?;
                state.file(&path)?
            }
            OpenMode::Read => {
                state.call(CallKind::Open, &path)?;
                state.file(&path)?
            }
        };
        state.inode(inode).open_count += 1;
        Ok(Arc::new(MemFile { shared: Arc::clone(&self.shared), inode, path, access }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = self.shared.state();
        state.mutating_call(CallKind::CreateDir, &path)?;
        state.vacant(&path)?;
        state.perform(Op::CreateDir { path });
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let (effect, before) = {
            let mut state = self.shared.state();
            state.directory(&path)?;
            (state.faults.call(CallKind::SyncDir, &path), state.model.seq)
        };
        self.shared.block(&path);
        let (outcome, result) = sync_outcome(effect, CallKind::SyncDir, &path);
        self.shared.state().perform(Op::SyncDir { path, before, outcome });
        result
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let path = normal(path);
        let mut state = self.shared.state();
        state.call(CallKind::List, &path)?;
        state.directory(&path)?;
        let mut names: Vec<PathBuf> = state.entries(&path).map(PathBuf::from).collect();
        names.sort();
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path);
        let mut state = self.shared.state();
        state.mutating_call(CallKind::Remove, &path)?;
        let inode = state.file(&path)?;
        state.perform(Op::Remove { path, inode });
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut state = self.shared.state();
        state.mutating_call(CallKind::Rename, &from)?;
        let inode = state.file(&from)?;
        if from == to {
            return Ok(());
        }
        match state.vacant(&to) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => drop(state.file(&to)?),
            Err(error) => return Err(error),
        }
        state.perform(Op::Rename { from, to, inode });
        Ok(())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        let path = normal(path);
        let mut state = self.shared.state();
        state.call(CallKind::Kind, &path)?;
        Ok(state.names.get(&path).map(|node| match node {
            Node::File(_) => PathKind::File,
            Node::Directory => PathKind::Directory,
        }))
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
        let path = normal(path);
        let mut state = self.shared.state();
        state.call(CallKind::Lock, &path).map_err(LockError::Io)?;
        if exclusive && state.read_only {
            return Err(LockError::Io(error(io::ErrorKind::ReadOnlyFilesystem, &path)));
        }
        let inode = match state.file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && exclusive => {
                state.vacant(&path).map_err(LockError::Io)?;
                let inode = state.new_inode();
                state.perform(Op::Create { path, inode });
                inode
            }
            found => found.map_err(LockError::Io)?,
        };
        let holders = state.locks.entry(inode).or_default();
        if holders.exclusive || exclusive && holders.count > 0 {
            return Err(LockError::Held { holder: holders.holder.clone() });
        }
        holders.exclusive = exclusive;
        holders.count += 1;
        state.inode(inode).open_count += 1;
        Ok(Box::new(MemLock { shared: Arc::clone(&self.shared), inode }))
    }

    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        let path = normal(path);
        let state = self.shared.state();
        if !state.names.contains_key(&path) {
            return Err(error(io::ErrorKind::NotFound, &path));
        }
        let total_bytes = state.capacity_bytes.unwrap_or(TOTAL_BYTES);
        Ok(FileSystem {
            name: "memory".to_owned(),
            network: Some(state.network.as_ref().is_some_and(|mount| path.starts_with(mount))),
            read_only: state.read_only,
            block_bytes: super::content::PAGE_BYTES as u64,
            free_bytes: total_bytes.saturating_sub(state.used_bytes()),
            total_bytes,
        })
    }

    fn wall_ns(&self) -> u64 {
        self.shared.tick().wrapping_add(self.shared.wall_offset_ns.load(Ordering::Relaxed))
    }

    fn monotonic_ns(&self) -> u64 {
        self.shared.tick()
    }

    fn random(&self) -> u64 {
        self.shared.state().random.bits()
    }
}

/// What a fault makes of a sync: its effect on the model, and what the call returns.
pub(super) fn sync_outcome(
    effect: Option<Effect>,
    call: CallKind,
    path: &Path,
) -> (SyncOutcome, io::Result<()>) {
    match effect {
        Some(Effect::Error(cause)) => (SyncOutcome::Failed, Err(injected(cause, call, path))),
        Some(Effect::SyncErrorDataGone(cause)) => {
            (SyncOutcome::FailedDataGone, Err(injected(cause, call, path)))
        }
        Some(Effect::SyncErrorGoneInPart(cause, seed)) => {
            (SyncOutcome::FailedInPart(seed), Err(injected(cause, call, path)))
        }
        Some(Effect::LyingSync) => (SyncOutcome::Lied, Ok(())),
        _ => (SyncOutcome::Done, Ok(())),
    }
}

/// A lock held on a memory disk.
struct MemLock {
    shared: Arc<Shared>,
    inode: InodeId,
}

impl fmt::Debug for MemLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemLock").field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl Lock for MemLock {
    fn set_holder(&self, text: &str) -> io::Result<()> {
        if let Some(holders) = self.shared.state().locks.get_mut(&self.inode) {
            text.clone_into(&mut holders.holder);
        }
        Ok(())
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(holders) = state.locks.get_mut(&self.inode) {
            holders.count -= 1;
            if holders.count == 0 {
                state.locks.remove(&self.inode);
            }
        }
        state.close(self.inode);
    }
}
