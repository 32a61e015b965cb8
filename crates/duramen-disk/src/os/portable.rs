//! The same calls for systems other than Linux, from the standard library alone.
//!
//! Owns what macOS, the BSDs and Windows lack or do differently. A missing operation is `Unsupported`, or
//! succeeds without effect if the trait allows it. D1 rests on `sync_data` here, which is `F_FULLFSYNC` on
//! macOS and `FlushFileBuffers` on Windows. The part common to Unix systems is compiled and tested on Linux
//! too; the rest is only compiled so far.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

use crate::FileSystem;

#[cfg(unix)]
pub(super) fn private_file(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

/// Windows files inherit the directory's access list.
#[cfg(not(unix))]
pub(super) fn private_file(_options: &mut OpenOptions) {}

#[cfg(unix)]
pub(super) fn private_dir(builder: &mut DirBuilder) {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(0o700);
}

/// Windows directories inherit their parent's access list.
#[cfg(not(unix))]
pub(super) fn private_dir(_builder: &mut DirBuilder) {}

pub(super) fn set_direct(_file: &fs::File) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "direct writes are offered on Linux only"))
}

#[cfg(unix)]
pub(super) fn read_at(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(unix)]
pub(super) fn write_at(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::write_at(file, bytes, offset)
}

#[cfg(windows)]
pub(super) fn read_at(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

#[cfg(windows)]
pub(super) fn write_at(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset)
}

/// The standard library has no flag for it.
pub(super) fn dsync(_options: &mut OpenOptions) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "O_DSYNC is offered on Linux only"))
}

pub(super) fn sync_range(_file: &fs::File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "sync_file_range is a call of Linux"))
}

/// No such call without unsafe code; the trait allows success without effect.
pub(super) fn write_out(_file: &fs::File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// No call does both; the caller falls back to a write and a sync.
pub(super) fn write_dsync_at(_file: &fs::File, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn sync_data(file: &fs::File) -> io::Result<()> {
    file.sync_data()
}

#[cfg(unix)]
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let directory = fs::File::open(path)?;
    if !directory.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    directory.sync_all()
}

/// NTFS journals its directories and has no sync for them. This only checks that the directory exists.
#[cfg(not(unix))]
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// No reservation without unsafe code; the trait allows success without effect.
pub(super) fn reserve(_file: &fs::File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// No holes without unsafe code; the trait allows success without effect.
pub(super) fn write_in_place(_file: &fs::File) {}

pub(super) fn punch(_file: &fs::File, _offset: u64, _bytes: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(super) fn is_bad_descriptor(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::BADF)
}

/// Errors here cannot prove that nothing was written.
#[cfg(not(unix))]
pub(super) fn is_bad_descriptor(_error: &io::Error) -> bool {
    false
}

#[cfg(unix)]
pub(super) fn random() -> io::Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(not(unix))]
pub(super) fn random() -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
pub(super) fn file_system(path: &Path) -> io::Result<FileSystem> {
    let space = rustix::fs::statvfs(path)?;
    let (name, network) = name_and_network(path)?;
    Ok(FileSystem {
        name,
        network,
        read_only: space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        block_bytes: space.f_bsize,
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// The read-only attribute of a Windows folder is for its shell and refuses no write.
#[cfg(not(unix))]
pub(super) fn file_system(path: &Path) -> io::Result<FileSystem> {
    fs::metadata(path)?;
    let (name, network) = name_and_network(path)?;
    Ok(FileSystem { name, network, read_only: false, block_bytes: 4096, free_bytes: 0, total_bytes: 0 })
}

/// macOS reports the type, and a flag for local file systems.
#[cfg(target_os = "macos")]
fn name_and_network(path: &Path) -> io::Result<(String, Option<bool>)> {
    /// From `<sys/mount.h>`.
    const MNT_LOCAL: u32 = 0x1000;
    let system = rustix::fs::statfs(path)?;
    let name = system.f_fstypename.iter().take_while(|byte| **byte != 0);
    let name = name.map(|byte| char::from(byte.cast_unsigned())).collect();
    Ok((name, Some(system.f_flags & MNT_LOCAL == 0)))
}

/// On the other systems, neither the standard library nor rustix reports a type.
#[cfg(not(target_os = "macos"))]
#[allow(clippy::unnecessary_wraps, reason = "the same call can fail on macOS")]
fn name_and_network(_path: &Path) -> io::Result<(String, Option<bool>)> {
    Ok(("unknown (this system does not say)".to_owned(), None))
}
