//! The operating system's disk: real files, real syncs, the real clock.
//!
//! Owns every file descriptor of the database. It never retries a failed sync and never hides how a durable
//! write was made durable. D1 rests on [`File::sync_data`], [`File::write_durable_at`] and [`Disk::sync_dir`]
//! here, D6 on their errors being returned once, D7 on `may_be_partial` being true to the facts, D8 on
//! `lock`. System calls that differ between systems are in `os/linux.rs` and `os/portable.rs`.

#![allow(
    clippy::disallowed_methods,
    reason = "the other side of the door: calls refused elsewhere are made here"
)]

mod aligned;
#[cfg(target_os = "linux")]
mod extents;
mod lock;
#[cfg(target_os = "linux")]
#[path = "os/linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "os/portable.rs"]
mod platform;
/// Compiled here too, for its tests.
#[cfg(all(test, target_os = "linux"))]
#[path = "os/portable.rs"]
#[allow(dead_code, reason = "only some of its calls have a test")]
mod portable;
mod process;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use self::aligned::AlignedPool;
pub use self::process::process_id;
use crate::probe::{self, Effect};
use crate::{
    Access, DIRECT_ALIGN_BYTES, Disk, DurableWriteError, File, FileSystem, Lock, LockError, OpenMode,
    PathKind, SyncMethod, WriteError,
};

/// The operating system's disk.
///
/// Files are 0600 and directories 0700 at most, and no descriptor survives `exec`. Errors are the system's
/// own, with their numbers; the caller adds the path.
#[derive(Debug, Clone)]
pub struct OsDisk {
    start: Instant,
}

impl OsDisk {
    /// The disk of this machine. Touches nothing until it is used.
    #[must_use]
    pub fn new() -> OsDisk {
        OsDisk { start: Instant::now() }
    }
}

impl Default for OsDisk {
    fn default() -> OsDisk {
        OsDisk::new()
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(access.mode != OpenMode::Read)
            .create_new(access.mode == OpenMode::CreateNew);
        platform::private_file(&mut options);
        let file = options.open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if access.mode == OpenMode::CreateNew {
            platform::write_in_place(&file);
        }
        let direct = access.sync == SyncMethod::DirectDsync;
        if direct && let Err(error) = platform::set_direct(&file) {
            if access.mode == OpenMode::CreateNew {
                // Refused: leave nothing behind. The caller gets the refusal, not an error of the removal.
                drop(fs::remove_file(path));
            }
            return Err(error);
        }
        let pool = direct.then(AlignedPool::default);
        Ok(Arc::new(OsFile { file, sync: access.sync, pool, dsync: Dsync::default() }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        platform::private_dir(&mut builder);
        builder.create(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        platform::sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(path)?;
        let mut names: Vec<PathBuf> =
            entries.map(|entry| Ok(PathBuf::from(entry?.file_name()))).collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        let kind_of = |found: fs::Metadata| {
            if found.is_file() {
                PathKind::File
            } else if found.is_dir() {
                PathKind::Directory
            } else {
                PathKind::Other
            }
        };
        match fs::metadata(path) {
            Ok(found) => Ok(Some(kind_of(found))),
            // A dangling link exists: a caller that would create a file there must know.
            Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::symlink_metadata(path) {
                Ok(_) => Ok(Some(PathKind::Other)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
        let mut options = OpenOptions::new();
        // A reader's lock needs no right to write, so that it works on a read-only mount.
        options.read(true).write(exclusive).create(exclusive).truncate(false);
        platform::private_file(&mut options);
        lock::take(&options, path, exclusive)
    }

    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        platform::file_system(path)
    }

    fn why_syncs_are_worthless(&self, path: &Path) -> Option<String> {
        let report = probe::probe(&probe::Host::this(), path).ok()?;
        // The worst weakness is first.
        let worst = report.weaknesses.first()?;
        (worst.effect() == Effect::SyncIsWorthless).then(|| worst.reason.clone())
    }

    fn wall_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        // Without a kernel source, the hasher's keys are used; they too come from the system.
        platform::random().unwrap_or_else(|_| RandomState::new().hash_one(self.start))
    }
}

/// Opens an existing file with `O_DSYNC`: each write is durable when it returns. For measurements only; the
/// engine does not open files this way.
///
/// # Errors
/// `Unsupported` except on Linux; errors of opening.
pub fn open_dsync(path: &Path) -> io::Result<Arc<dyn File>> {
    let mut options = OpenOptions::new();
    platform::dsync(options.read(true).write(true))?;
    let file = options.open(path)?;
    Ok(Arc::new(OsFile { file, sync: SyncMethod::Fdatasync, pool: None, dsync: Dsync::default() }))
}

/// Opens an existing file for [`sync_range`].
///
/// # Errors
/// Errors of opening.
pub fn open_for_sync_range(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Writes a range out and waits for it, without asking the device to make it durable. No database rests on
/// it: for measurements.
///
/// # Errors
/// `Unsupported` except on Linux; errors of writing.
pub fn sync_range(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    platform::sync_range(file, offset, bytes)
}

/// An open file of the operating system.
#[derive(Debug)]
struct OsFile {
    file: fs::File,
    sync: SyncMethod,
    /// Aligned buffers, exactly if the file bypasses the cache.
    pool: Option<AlignedPool>,
    dsync: Dsync,
}

/// What is known for one file about the call that writes and syncs.
#[derive(Debug, Default)]
struct Dsync {
    /// It has worked.
    offered: AtomicBool,
    /// The system has no such call; writes are followed by a sync instead.
    refused: AtomicBool,
}

/// A call that writes some of `bytes` and returns how many.
type WriteSome = fn(&fs::File, &[u8], u64) -> io::Result<usize>;

impl OsFile {
    /// Writes all of `bytes`, from aligned memory if the file needs it.
    fn write_all(&self, write_some: WriteSome, bytes: &[u8], offset: u64) -> Result<(), Unfinished> {
        let Some(pool) = &self.pool else {
            return write_loop(&self.file, write_some, bytes, offset, 1);
        };
        if aligned::is_aligned(bytes) {
            return write_loop(&self.file, write_some, bytes, offset, aligned::ALIGN_BYTES);
        }
        pool.with(bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            write_loop(&self.file, write_some, buffer, offset, aligned::ALIGN_BYTES)
        })
    }

    /// Refuses unaligned access to a file that bypasses the cache, before any call is made.
    fn check_alignment(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        let align = DIRECT_ALIGN_BYTES;
        let fits = offset.is_multiple_of(align) && (bytes.len() as u64).is_multiple_of(align);
        if self.pool.is_none() || fits {
            return Ok(());
        }
        let text = format!("direct write of {} bytes at {offset:#x} is not aligned to {align}", bytes.len());
        let source = io::Error::new(io::ErrorKind::InvalidInput, text);
        Err(WriteError { source, may_be_partial: false })
    }

    fn sync_after_write(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        let written = self.write_all(platform::write_at, bytes, offset);
        written.map_err(|unfinished| DurableWriteError::Write(unfinished.error))?;
        platform::sync_data(&self.file).map_err(DurableWriteError::Sync)
    }
}

/// Whether a failed write has certainly taken no byte. In doubt unless proven:
///
/// - A descriptor without the right to write is refused before anything else is checked.
/// - A write into the cache checks room, quota and the largest file size before it copies. Once it has copied
///   bytes, it returns their number. A write past the cache may have reached the device in part.
/// - Any other error may come after bytes were taken: an I/O error, a file system that became read-only, a
///   refusal by a kernel module. Some file systems notice the last two only at the end of a copied page.
fn is_untouched(error: &io::Error, direct: bool) -> bool {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => !direct,
        _ => platform::is_bad_descriptor(error),
    }
}

/// The meaning of a failed call that writes and syncs; `None` if the system has no such call.
///
/// Either half may have failed, and a failed sync leaves the bytes in the cache. `ENOSPC` and `EDQUOT` can
/// come from blocks that are allocated at write-back, `EROFS` from a file system that shut down meanwhile,
/// `EOPNOTSUPP` and `EINVAL` from the device. Only a descriptor without the right to write is certain. If the
/// call has worked before, the system does not lack it: the error is the device's, and is reported once (D6).
fn dsync_failure(unfinished: Unfinished, has_worked: bool) -> Option<DurableWriteError> {
    let Unfinished { error, is_begun } = unfinished;
    if error.source.kind() == io::ErrorKind::Unsupported && !is_begun && !has_worked {
        return None;
    }
    let is_refused = !error.may_be_partial && platform::is_bad_descriptor(&error.source);
    Some(if is_refused { DurableWriteError::Write(error) } else { DurableWriteError::Sync(error.source) })
}

/// A write that failed.
#[derive(Debug)]
struct Unfinished {
    error: WriteError,
    /// A call before the one that failed has written bytes.
    is_begun: bool,
}

/// Repeats a partial write until all is written. An interrupted write resumes at a multiple of `step`.
fn write_loop(
    file: &fs::File,
    write_some: WriteSome,
    bytes: &[u8],
    offset: u64,
    step: usize,
) -> Result<(), Unfinished> {
    let mut done = 0;
    while done < bytes.len() {
        let error = match write_some(file, &bytes[done..], offset + done as u64) {
            Ok(taken) if taken == bytes.len() - done => return Ok(()),
            // A direct write resumes at a block: it writes a partly written block again.
            Ok(taken) if taken >= step => {
                done += taken / step * step;
                continue;
            }
            Ok(taken) => {
                let source = io::ErrorKind::WriteZero.into();
                WriteError { source, may_be_partial: done + taken > 0 }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                let may_be_partial = done > 0 || !is_untouched(&source, step > 1);
                WriteError { source, may_be_partial }
            }
        };
        return Err(Unfinished { error, is_begun: done > 0 });
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends; returns how many bytes were read.
fn read_loop(file: &fs::File, buffer: &mut [u8], offset: u64, step: usize) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match platform::read_at(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(taken) => {
                done += taken;
                // A read past the cache stops inside a block only at the end of the file.
                if !done.is_multiple_of(step) {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (have, want) = match &self.pool {
            None => (read_loop(&self.file, buffer, offset, 1)?, buffer.len()),
            Some(pool) => {
                let start = offset / DIRECT_ALIGN_BYTES * DIRECT_ALIGN_BYTES;
                let skip = aligned::index(offset - start)?;
                let want = skip + buffer.len();
                pool.with(want.next_multiple_of(aligned::ALIGN_BYTES), |aligned| {
                    let have = read_loop(&self.file, aligned, start, aligned::ALIGN_BYTES)?;
                    if have >= want {
                        buffer.copy_from_slice(&aligned[skip..want]);
                    }
                    io::Result::Ok((have, want))
                })?
            }
        };
        if have < want {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
        self.check_alignment(bytes, offset)?;
        self.write_all(platform::write_at, bytes, offset).map_err(|unfinished| unfinished.error)
    }

    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError> {
        self.check_alignment(bytes, offset).map_err(DurableWriteError::Write)?;
        let Dsync { offered, refused } = &self.dsync;
        if self.sync == SyncMethod::Fdatasync || refused.load(Ordering::Relaxed) {
            return self.sync_after_write(bytes, offset);
        }
        let Err(unfinished) = self.write_all(platform::write_dsync_at, bytes, offset) else {
            offered.store(true, Ordering::Relaxed);
            return Ok(());
        };
        match dsync_failure(unfinished, offered.load(Ordering::Relaxed)) {
            Some(failure) => Err(failure),
            None => {
                refused.store(true, Ordering::Relaxed);
                self.sync_after_write(bytes, offset)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        platform::sync_data(&self.file)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 { Ok(()) } else { platform::reserve(&self.file, offset, bytes) }
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 { Ok(()) } else { platform::punch(&self.file, offset, bytes) }
    }

    fn write_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // A write past the cache leaves nothing to write out.
        if self.pool.is_some() { Ok(()) } else { platform::write_out(&self.file, offset, bytes) }
    }
}
