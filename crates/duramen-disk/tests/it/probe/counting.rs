//! A disk in memory whose syncs and writes advance the counters of a recorded machine, on its own clock.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_disk::{
    Access, Disk, DurableWriteError, File, FileSystem, Lock, LockError, MemDisk, PathKind, WriteError,
};

/// The disk's behaviour.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    /// The `stat` files of the disks that get each flush.
    pub(super) flushed: Vec<PathBuf>,
    /// The `stat` files of the disks that get each write.
    pub(super) written: Vec<PathBuf>,
    /// The duration of a sync.
    pub(super) sync_ns: u64,
    /// The sync that fails, counted from 0.
    pub(super) fails_at: Option<u64>,
}

#[derive(Debug)]
pub(super) struct CountingDisk {
    pub(super) inner: MemDisk,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    clock_ns: AtomicU64,
    syncs: AtomicU64,
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn File>,
    state: Arc<State>,
}

impl CountingDisk {
    /// With the directory of a probe.
    pub(super) fn new(dir: &Path, behaviour: Behaviour) -> CountingDisk {
        let inner = MemDisk::new(3);
        let mut made = PathBuf::from("/");
        for part in dir.iter().skip(1) {
            made.push(part);
            inner.create_dir(&made).unwrap();
        }
        let state = State { behaviour, clock_ns: AtomicU64::new(0), syncs: AtomicU64::new(0) };
        CountingDisk { inner, state: Arc::new(state) }
    }
}

/// Adds to a field of a `stat` file, counted from 1.
fn count(stat: &Path, field: usize, more: u64) {
    let text = fs::read_to_string(stat).unwrap();
    let mut fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    if let Some(value) = fields.get_mut(field - 1) {
        *value += more;
    }
    fs::write(stat, fields.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")).unwrap();
}

impl File for CountingFile {
    fn sync_data(&self) -> io::Result<()> {
        let behaviour = &self.state.behaviour;
        if behaviour.fails_at == Some(self.state.syncs.fetch_add(1, Ordering::Relaxed)) {
            return Err(io::Error::other("the sync failed"));
        }
        self.state.clock_ns.fetch_add(behaviour.sync_ns, Ordering::Relaxed);
        behaviour.flushed.iter().for_each(|stat| count(stat, 16, 1));
        behaviour.written.iter().for_each(|stat| {
            count(stat, 5, 1);
            // 4 KiB in sectors of 512 bytes.
            count(stat, 7, 8);
        });
        self.inner.sync_data()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        self.inner.write_at(bytes, offset)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        self.inner.write_durable_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_len(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.reserve(offset, bytes)
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.punch(offset, bytes)
    }

    fn write_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_out(offset, bytes)
    }
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, access)?;
        Ok(Arc::new(CountingFile { inner, state: Arc::clone(&self.state) }))
    }

    fn monotonic_ns(&self) -> u64 {
        self.state.clock_ns.load(Ordering::Relaxed)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        self.inner.kind(path)
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
        self.inner.lock(path, exclusive)
    }

    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        self.inner.file_system(path)
    }

    fn wall_ns(&self) -> u64 {
        self.inner.wall_ns()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}
