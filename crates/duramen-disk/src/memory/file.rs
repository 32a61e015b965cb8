//! [`File`] for the memory disk: reads, writes and syncs of one open file, with their faults.
//!
//! Owns the meaning of each call on a file. A write is pending until a sync that was called after it returned
//! covers it (D1); a failed sync is reported once (D6). It never decides what a crash keeps.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Shared;
use super::content::FILE_BYTES_MAX;
use super::faults::{CallKind, Effect, injected};
use super::model::{InodeId, Op, OpSeq};
use super::pending::Change;
use super::state::{State, error};
use super::tree::sync_outcome;
use crate::{Access, DIRECT_ALIGN_BYTES, DurableWriteError, File, OpenMode, SyncMethod, WriteError};

/// An open file of a memory disk.
pub(super) struct MemFile {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: InodeId,
    pub(super) path: Arc<Path>,
    pub(super) access: Access,
}

impl fmt::Debug for MemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemFile")
            .field("path", &self.path)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.shared.state().close(self.inode);
    }
}

impl MemFile {
    fn writable(&self) -> io::Result<()> {
        if self.access.mode == OpenMode::Read {
            return Err(error(io::ErrorKind::PermissionDenied, &self.path));
        }
        Ok(())
    }

    /// Checks that a write is allowed before it takes a byte.
    fn check_write(&self, state: &mut State, bytes: u64, offset: u64) -> io::Result<()> {
        self.writable()?;
        if state.read_only {
            return Err(error(io::ErrorKind::ReadOnlyFilesystem, &self.path));
        }
        let direct = self.access.sync == SyncMethod::DirectDsync;
        if direct && (!offset.is_multiple_of(DIRECT_ALIGN_BYTES) || !bytes.is_multiple_of(DIRECT_ALIGN_BYTES))
        {
            return Err(error(io::ErrorKind::InvalidInput, &self.path));
        }
        state.room(self.inode, &self.path, offset, bytes)
    }

    /// Writes, or applies a fault instead. `None`: acknowledged, and nothing was written.
    fn write(&self, state: &mut State, bytes: &[u8], offset: u64) -> Result<Option<OpSeq>, WriteError> {
        let refused = |source| WriteError { source, may_be_partial: false };
        let effect = state.call(CallKind::Write, &self.path).map_err(refused)?;
        let offset = if let Some(Effect::MisdirectedWrite(elsewhere)) = effect { elsewhere } else { offset };
        self.check_write(state, bytes.len() as u64, offset).map_err(refused)?;
        let mut put = |bytes: &[u8]| {
            let change = Change::Write { offset, bytes: Arc::from(bytes) };
            (!bytes.is_empty()).then(|| state.change(&self.path, self.inode, change))
        };
        match effect {
            Some(Effect::LostWrite) => Ok(None),
            Some(Effect::FlippedWrite(bit)) => {
                let mut flipped = bytes.to_vec();
                if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|place| flipped.get_mut(place)) {
                    *byte ^= 1 << (bit % 8);
                }
                Ok(put(&flipped))
            }
            Some(Effect::ShortWrite(cause)) => {
                let taken = put(&bytes[..bytes.len() / 2]);
                let source = injected(cause, CallKind::Write, &self.path);
                Err(WriteError { source, may_be_partial: taken.is_some() })
            }
            _ => Ok(put(bytes)),
        }
    }

    /// Begins a sync: counts the call and fixes what it covers.
    fn begin_sync(&self, state: &mut State) -> (Option<Effect>, OpSeq) {
        (state.faults.call(CallKind::Sync, &self.path), state.model.seq)
    }

    /// Waits for the hook, then ends the sync with `op`.
    fn end_sync(
        &self,
        effect: Option<Effect>,
        op: impl FnOnce(super::model::SyncOutcome) -> Option<Op>,
    ) -> io::Result<()> {
        self.shared.block(&self.path);
        let (outcome, result) = sync_outcome(effect, CallKind::Sync, &self.path);
        if let Some(op) = op(outcome) {
            self.shared.state().perform(op);
        }
        result
    }

    /// Carries out a change of length or space.
    fn alter(&self, kind: CallKind, change: Change, end: u64) -> io::Result<()> {
        let mut state = self.shared.state();
        state.mutating_call(kind, &self.path)?;
        self.writable()?;
        if end > FILE_BYTES_MAX {
            return Err(error(io::ErrorKind::FileTooLarge, &self.path));
        }
        if let Change::Reserve { offset, bytes } = change {
            state.room(self.inode, &self.path, offset, bytes)?;
        }
        state.change(&self.path, self.inode, change);
        Ok(())
    }
}

impl File for MemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.shared.state();
        let effect = state.call(CallKind::Read, &self.path)?;
        let have = state.inode(self.inode).content.read(offset, buffer);
        drop(state);
        if have < buffer.len() {
            let text = format!("{} @ {offset:#x}: {have} bytes, want {}", self.path.display(), buffer.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        if let Some(Effect::FlippedRead(bit)) = effect
            && let Some(byte) = usize::try_from(bit / 8).ok().and_then(|place| buffer.get_mut(place))
        {
            *byte ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        self.write(&mut self.shared.state(), bytes, offset).map(drop)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        let (write, effect, before) = {
            let mut state = self.shared.state();
            let write = self.write(&mut state, bytes, offset).map_err(DurableWriteError::Write)?;
            let (effect, before) = self.begin_sync(&mut state);
            (write, effect, before)
        };
        let (path, inode) = (Arc::clone(&self.path), self.inode);
        let op = |outcome| match self.access.sync {
            SyncMethod::Fdatasync => Some(Op::Sync { path, inode, before, outcome }),
            SyncMethod::Dsync | SyncMethod::DirectDsync => {
                write.map(|write| Op::SyncWrite { path, inode, write, outcome })
            }
        };
        self.end_sync(effect, op).map_err(DurableWriteError::Sync)
    }

    fn sync_data(&self) -> io::Result<()> {
        let (effect, before) = self.begin_sync(&mut self.shared.state());
        let (path, inode) = (Arc::clone(&self.path), self.inode);
        self.end_sync(effect, |outcome| Some(Op::Sync { path, inode, before, outcome }))
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.shared.state();
        state.call(CallKind::Len, &self.path)?;
        Ok(state.inode(self.inode).content.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.alter(CallKind::SetLen, Change::SetLen { bytes }, bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.alter(CallKind::Reserve, Change::Reserve { offset, bytes }, offset.saturating_add(bytes))
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.alter(CallKind::Punch, Change::Punch { offset, bytes }, 0)
    }

    /// Does nothing: a pending write may reach the medium at any time anyway.
    fn write_out(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        self.shared.state().call(CallKind::WriteOut, &self.path).map(drop)
    }
}
