//! A disk in memory with hooks: it calls back before a read, and has a file system of any name.
//!
//! Durable writes take time, and the methods by which log segments were opened are recorded.
//!
//! Owns the hook and those records; every call goes to the disk in memory behind it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duramen_disk::{
    Access, Disk, DurableWriteError, File, FileSystem, Lock, LockError, MemDisk, OpenMode, PathKind,
    SyncMethod, WriteError,
};

/// Whether a read is the awaited one, by its path and offset.
type IsIt = Box<dyn FnMut(&Path, u64) -> bool + Send>;

/// Called once, before the first awaited read, with no lock of the disk held.
struct Hook {
    is_it: IsIt,
    call: Box<dyn FnOnce() + Send>,
}

/// The disk.
#[derive(Clone)]
pub(super) struct WatchedDisk {
    disk: MemDisk,
    hook: Arc<Mutex<Option<Hook>>>,
    /// Name of the file system, and whether it is known to be on a network.
    file_system: Option<(&'static str, Option<bool>)>,
    /// The methods by which log segments were opened for writing.
    methods: Arc<Mutex<Vec<SyncMethod>>>,
}

struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    hook: Arc<Mutex<Option<Hook>>>,
    disk: MemDisk,
    /// The time of a durable write; zero on a disk without a name.
    write_ns: u64,
}

impl WatchedDisk {
    /// Wraps a disk.
    pub(super) fn new(disk: &MemDisk) -> WatchedDisk {
        WatchedDisk { disk: disk.clone(), hook: Arc::default(), file_system: None, methods: Arc::default() }
    }

    /// Wraps a disk, on a file system of this name with DSYNC writes ten times as fast as `fdatasync`.
    pub(super) fn named(disk: &MemDisk, name: &'static str, network: Option<bool>) -> WatchedDisk {
        WatchedDisk { file_system: Some((name, network)), ..WatchedDisk::new(disk) }
    }

    /// The methods by which log segments were opened for writing since the last call.
    pub(super) fn take_methods(&self) -> Vec<SyncMethod> {
        std::mem::take(&mut self.methods.lock().unwrap())
    }

    /// Sets the function that the next read calls.
    pub(super) fn before_next_read(&self, hook: impl FnOnce() + Send + 'static) {
        self.before_read(|_, _| true, hook);
    }

    /// Sets the function called by the next read for which `is_it` returns true, given its path and offset.
    pub(super) fn before_read(
        &self,
        is_it: impl FnMut(&Path, u64) -> bool + Send + 'static,
        hook: impl FnOnce() + Send + 'static,
    ) {
        *self.hook.lock().unwrap() = Some(Hook { is_it: Box::new(is_it), call: Box::new(hook) });
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
        if access.mode != OpenMode::Read && path.extension().is_some_and(|ending| ending == "wal") {
            self.methods.lock().unwrap().push(access.sync);
        }
        let write_ns = match access.sync {
            _ if self.file_system.is_none() => 0,
            SyncMethod::Fdatasync => 1_000_000,
            SyncMethod::Dsync | SyncMethod::DirectDsync => 100_000,
        };
        let (path, hook, disk) = (path.to_owned(), Arc::clone(&self.hook), self.disk.clone());
        Ok(Arc::new(WatchedFile { file, path, hook, disk, write_ns }))
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
        let found = self.disk.file_system(path)?;
        Ok(match self.file_system {
            Some((name, network)) => FileSystem { name: name.to_owned(), network, ..found },
            None => found,
        })
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
        let hook = self.hook.lock().unwrap().take_if(|hook| (hook.is_it)(&self.path, offset));
        if let Some(hook) = hook {
            (hook.call)();
        }
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        self.file.write_at(bytes, offset)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        self.disk.advance_clock(self.write_ns);
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
