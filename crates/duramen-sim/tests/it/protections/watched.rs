//! A disk that calls back before it reads: what else may happen while a page is on its way can be made to happen there.
//!
//! Owns the hook and nothing else; every call goes to the disk in memory behind it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duramen_disk::{
    Access, Disk, DurableWriteError, File, FileSystem, Lock, LockError, MemDisk, PathKind, WriteError,
};

/// Called once, before the next read, with no lock of the disk held.
type Hook = Box<dyn FnOnce() + Send>;

/// The disk.
#[derive(Clone)]
pub struct WatchedDisk {
    disk: MemDisk,
    hook: Arc<Mutex<Option<Hook>>>,
}

struct WatchedFile {
    file: Arc<dyn File>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl WatchedDisk {
    /// Over a disk.
    pub fn new(disk: &MemDisk) -> WatchedDisk {
        WatchedDisk { disk: disk.clone(), hook: Arc::default() }
    }

    /// Sets what the next read calls.
    pub fn before_next_read(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl std::fmt::Debug for WatchedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(f)
    }
}

impl std::fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.file.fmt(f)
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, access)?;
        Ok(Arc::new(WatchedFile { file, hook: Arc::clone(&self.hook) }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        self.disk.kind(path)
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
        self.disk.lock(path, exclusive)
    }

    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        self.disk.file_system(path)
    }

    fn wall_ns(&self) -> u64 {
        self.disk.wall_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.disk.monotonic_ns()
    }

    fn random(&self) -> u64 {
        self.disk.random()
    }
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        self.file.write_at(bytes, offset)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        self.file.write_durable_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.reserve(offset, bytes)
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.punch(offset, bytes)
    }

    fn write_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.write_out(offset, bytes)
    }
}
