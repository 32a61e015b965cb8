//! The traits [`Disk`] and [`File`]: the whole interface of a storage engine to a disk.
//!
//! Promises that rest here: D1 (`sync_data`, `sync_dir` wait for the device), D6 (a failed sync is reported
//! once and never retried here), D8 (`lock`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; the file must exist.
    Read,
    /// Read and write; the file must exist.
    Write,
    /// Read and write; the file must not exist. Durable only after the directory is synced.
    CreateNew,
}

/// How the bytes of a file are written and when they are durable. Chosen once per file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMethod {
    /// Write to the kernel's cache, then `fdatasync` (`F_FULLFSYNC` on macOS, `FlushFileBuffers` on Windows).
    #[default]
    Fdatasync,
    /// Each durable write carries `RWF_DSYNC` (or the file has `O_DSYNC`): one call instead of two.
    Dsync,
    /// `O_DIRECT` with `RWF_DSYNC`: past the kernel's cache, with FUA where the device has it.
    DirectDsync,
}

/// How a file is opened: the mode, and the sync method of its durable writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Whether the file is read, written or created.
    pub mode: OpenMode,
    /// How its writes become durable.
    pub sync: SyncMethod,
}

impl Access {
    /// Read only.
    pub const READ: Access = Access { mode: OpenMode::Read, sync: SyncMethod::Fdatasync };
    /// Read and write an existing file.
    pub const WRITE: Access = Access { mode: OpenMode::Write, sync: SyncMethod::Fdatasync };
    /// Create a file that must not exist.
    pub const CREATE: Access = Access { mode: OpenMode::CreateNew, sync: SyncMethod::Fdatasync };
}

/// A write that failed, and whether some of its bytes may have reached the file.
#[derive(Debug)]
pub struct WriteError {
    /// The system's error.
    pub source: io::Error,
    /// `false` only if it is certain that no byte of this write was taken.
    pub may_be_partial: bool,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partial = if self.may_be_partial { " (some bytes may have been written)" } else { "" };
        write!(f, "{}{partial}", self.source)
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> io::Error {
        error.source
    }
}

/// An open file. All offsets and lengths are bytes; all calls may be made from any thread.
#[allow(clippy::len_without_is_empty, reason = "a length that can fail is not a collection's")]
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the buffer is full; other errors of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. Not durable until [`File::sync_data`] returns.
    ///
    /// # Errors
    /// [`WriteError`], which states whether bytes may have been taken.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteError>;

    /// Writes all of `bytes` at `offset` and returns when they are durable, by the file's [`SyncMethod`].
    ///
    /// Covers these bytes only; earlier plain writes need [`File::sync_data`]. With `Fdatasync` this is one
    /// write and one sync of the whole file.
    ///
    /// # Errors
    /// A failed write is `DurableWriteError::Write`, a failed sync `::Sync`.
    fn write_durable_at(&self, bytes: &[u8], offset: u64) -> Result<(), DurableWriteError>;

    /// Waits until every write that returned before this call survives a power cut.
    ///
    /// # Errors
    /// After an error the state of the unsynced writes is unknown for ever (D6): a later sync proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Errors of the system.
    fn len(&self) -> io::Result<u64>;

    /// Sets the length: cuts the tail, or extends with a hole that reads as zeroes.
    ///
    /// # Errors
    /// Errors of the system.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Reserves space for `[offset, offset + bytes)` and extends the length to cover it.
    ///
    /// Writes there do not run out of room. Succeeds without effect if the file system cannot reserve.
    ///
    /// # Errors
    /// `StorageFull` if there is no room.
    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Returns the blocks wholly inside `[offset, offset + bytes)` to the file system; they read as zeroes.
    /// Succeeds without effect if holes are not supported.
    ///
    /// # Errors
    /// Errors of the system.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Passes the writes in a range to the device and waits until they are there.
    ///
    /// The next [`File::sync_data`], and syncs of other files, then wait for less. Does not make them
    /// durable. Succeeds without effect if the system cannot do that.
    ///
    /// # Errors
    /// A failed write. It may be reported here instead of by [`File::sync_data`], and is as final (D6).
    fn write_out(&self, offset: u64, bytes: u64) -> io::Result<()>;
}

/// Why a durable write failed.
#[derive(Debug)]
pub enum DurableWriteError {
    /// The write itself failed; no sync was attempted.
    Write(WriteError),
    /// The write was taken and its sync failed, or one call did both and failed (D6).
    Sync(io::Error),
}

/// A held lock. Dropping it releases the lock.
pub trait Lock: Send + Sync + fmt::Debug {
    /// Replaces the text that names the holder to processes that are refused.
    ///
    /// # Errors
    /// Errors of the system; the lock is still held.
    fn set_holder(&self, text: &str) -> io::Result<()>;
}

/// Why a lock was not taken.
#[derive(Debug)]
pub enum LockError {
    /// Another process or handle holds it.
    Held {
        /// The text that the holder left, often a process id and a host; may be empty.
        holder: String,
    },
    /// The lock file could not be opened or locked.
    Io(io::Error),
}

/// The file system of a path, as the system reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its common name: `ext4`, `xfs`, `btrfs`, `tmpfs`, `nfs`, `overlay`, `memory`, or `unknown (0x...)`.
    pub name: String,
    /// Whether it is on a network, or of a type that this library does not know to be local. `None`: the
    /// system does not name types.
    pub network: Option<bool>,
    /// Mounted read-only.
    pub read_only: bool,
    /// Preferred block size in bytes.
    pub block_bytes: u64,
    /// Bytes free to this user.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// A disk: a tree of directories and files, a clock and a source of randomness.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens or creates a file (mode 0600).
    ///
    /// # Errors
    /// Errors of the system: `NotFound`, `AlreadyExists`, `PermissionDenied`, `ReadOnlyFilesystem`, ...
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Creates a directory (mode 0700); its parent must exist. Durable once the parent is synced.
    ///
    /// # Errors
    /// `AlreadyExists` and other errors of the system.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// Errors of the system; as final as a failed [`File::sync_data`].
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and other errors of the system.
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// Removes a file. Durable once the directory is synced.
    ///
    /// # Errors
    /// `NotFound` and other errors of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Renames a file within one file system, replacing the target. Durable once the directory is synced.
    ///
    /// # Errors
    /// Errors of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Whether a path exists, and if so whether it is a directory.
    ///
    /// # Errors
    /// Errors of the system other than `NotFound`.
    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>>;

    /// Takes a lock file: exclusive for a writer, shared for readers, without waiting.
    ///
    /// Creates the file when `exclusive` and it is missing. A lock belongs to the open file, not to the
    /// process (never POSIX record locks).
    ///
    /// # Errors
    /// [`LockError::Held`] names the holder.
    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError>;

    /// The file system of a path.
    ///
    /// # Errors
    /// Errors of the system.
    fn file_system(&self, path: &Path) -> io::Result<FileSystem>;

    /// Why syncs of files in a directory are worthless, if that is known.
    ///
    /// Reasons are memory, barriers off, a library that swallows syncs. `None` if nothing is known.
    fn why_syncs_are_worthless(&self, _path: &Path) -> Option<String> {
        None
    }

    /// Wall clock, nanoseconds since 1970. May go backwards.
    fn wall_ns(&self) -> u64;

    /// A clock that never goes backwards, nanoseconds since some point.
    fn monotonic_ns(&self) -> u64;

    /// Sixty-four random bits.
    fn random(&self) -> u64;
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Something else: a device, a socket, a broken link.
    Other,
}
