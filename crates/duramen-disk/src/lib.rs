//! Access to the disk.
//!
//! Owns every system call that touches a file, the clock and randomness. Nothing above this crate opens a
//! file, reads the time or draws a random number, so that a simulation can replace all three.
//!
//! - [`Disk`] and [`File`] are the traits: the interface of a storage engine to a disk.
//! - [`OsDisk`] is the operating system's disk: three [sync methods](SyncMethod), directory syncs,
//!   reservations, holes, locks that belong to the open file.
//! - [`sync_choice`] chooses a sync method by its measured times and by what is proven on a file system.
//! - [`memory::MemDisk`] is a disk in memory that loses power, tears sectors, forgets directory entries and
//!   fails on demand. Its [`memory::Trace`] rebuilds the disk after a power cut at any operation.
//! - [`probe`] reports what the disk under a directory promises, layer by layer, and whether its flushes are
//!   real.
//!
//! ```
//! use duramen_disk::memory::{CrashChoice, MemDisk};
//! use duramen_disk::{Access, Disk};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = MemDisk::new(7);
//! let file = disk.open(Path::new("/log"), Access::CREATE)?;
//! file.write_at(b"hello", 0)?;
//! file.sync_data()?;
//! // The bytes are durable, their name is not: the directory was never synced.
//! assert!(disk.crash(&CrashChoice::None).files().is_empty());
//! disk.sync_dir(Path::new("/"))?;
//! assert_eq!(disk.crash(&CrashChoice::None).read_file("/log")?, b"hello");
//! # Ok(())
//! # }
//! ```

mod disk;
pub mod memory;
mod os;
pub mod probe;
pub mod sync_choice;

pub use disk::{
    Access, Disk, DurableWriteError, File, FileSystem, Lock, LockError, OpenMode, PathKind, SyncMethod,
    WriteError,
};
pub use memory::MemDisk;
pub use os::{OsDisk, open_dsync, open_for_sync_range, process_id, sync_range};

/// Alignment of offset and length of writes to a file opened with [`SyncMethod::DirectDsync`], in bytes.
///
/// Memory need not be aligned; reads may have any offset and length.
pub const DIRECT_ALIGN_BYTES: u64 = 4096;

/// Bytes of zeroes written at a time by [`write_zeroes`].
const ZEROES_BYTES: usize = 1 << 20;

/// Fills `[offset, offset + bytes)` with written zeroes, so that later writes there change no metadata.
///
/// Reserved blocks are marked unwritten, and the first write to each costs a journal commit at the next sync.
/// Zeroes written ahead of time pay that once. Not durable until [`File::sync_data`].
///
/// # Errors
/// The [`WriteError`] of the first write that failed; partial if an earlier one succeeded.
pub fn write_zeroes(file: &dyn File, offset: u64, bytes: u64) -> Result<(), WriteError> {
    static ZEROES: [u8; ZEROES_BYTES] = [0; ZEROES_BYTES];
    let mut done = 0;
    while done < bytes {
        let step = usize::try_from(bytes - done).unwrap_or(ZEROES_BYTES).min(ZEROES_BYTES);
        file.write_at(&ZEROES[..step], offset + done)
            .map_err(|error| WriteError { may_be_partial: error.may_be_partial || done > 0, ..error })?;
        done += step as u64;
    }
    Ok(())
}

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
