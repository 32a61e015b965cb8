//! System calls of Linux that the standard library does not offer.
//!
//! Owns the mapping from one operation to one call. It never loops and never retries: `os.rs` decides. D1
//! rests on `fdatasync`, `RWF_DSYNC` and the directory's `fsync` here.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, IFlags, OFlags, StatVfsMountFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::extents::has_blocks;
use crate::FileSystem;

const BTRFS_MAGIC: u64 = 0x9123_683e;

pub(super) fn private_file(options: &mut OpenOptions) {
    options.mode(0o600);
}

pub(super) fn private_dir(builder: &mut DirBuilder) {
    builder.mode(0o700);
}

/// Sets `O_DIRECT`. Done after opening, so that its refusal can be distinguished from other errors.
pub(super) fn set_direct(file: &fs::File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).map_err(|error| match error {
        Errno::INVAL => io::Error::new(io::ErrorKind::Unsupported, "the file system refuses direct writes"),
        other => other.into(),
    })
}

/// Makes a copy-on-write file system write a new file in place, so that an overwrite takes no new blocks.
/// Only a hint: other file systems have no such flag, and every promise holds without it.
pub(super) fn write_in_place(file: &fs::File) {
    if rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u64 & 0xffff_ffff == BTRFS_MAGIC)
        && let Ok(flags) = rustix::fs::ioctl_getflags(file)
    {
        let _wish = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

pub(super) fn read_at(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

pub(super) fn write_at(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

/// Writes and makes durable in one call; `Unsupported` if the kernel or the file system cannot. An
/// interrupted call is a failure: its sync may have been interrupted, and is not retried (D6).
pub(super) fn write_dsync_at(file: &fs::File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC).map_err(|error| {
        match error {
            Errno::NOSYS | Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
            Errno::INTR => io::Error::other("a durable write was interrupted"),
            other => other.into(),
        }
    })
}

/// Makes every write to the file to be opened wait until it is durable.
pub(super) fn dsync(options: &mut OpenOptions) -> io::Result<()> {
    options.custom_flags(OFlags::DSYNC.bits().cast_signed());
    Ok(())
}

/// Writes a range out and waits. Any error about pages is returned, whatever its code: the later sync does
/// not report it again. A missing or forbidden call is no failure.
pub(super) fn write_out(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    write_out_by(&|flags| call_sync_range(file, offset, bytes, flags))
}

const WRITE_AND_WAIT: u32 =
    libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// A device may also report `EINVAL` and `EPERM` for pages, and the kernel reports that once, here (D6).
/// Without flags the call only checks its arguments. If that fails with the same error, the error is about
/// the call.
pub(super) fn write_out_by(call: &dyn Fn(u32) -> io::Result<()>) -> io::Result<()> {
    call(WRITE_AND_WAIT).or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOSYS | Errno::INVAL | Errno::SPIPE | Errno::PERM) if call(0).is_err() => Ok(()),
        _ => Err(error),
    })
}

/// `sync_file_range`: writes a range out and waits. It flushes no device cache, so nothing durable rests on
/// it.
pub(super) fn sync_range(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    call_sync_range(file, offset, bytes, WRITE_AND_WAIT)
}

#[allow(unsafe_code, reason = "no crate offers this call safely")]
fn call_sync_range(file: &fs::File, offset: u64, bytes: u64, flags: u32) -> io::Result<()> {
    let signed = |number: u64| libc::off64_t::try_from(number).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, bytes) = (signed(offset)?, signed(bytes)?);
    // SAFETY: takes a descriptor that `file` keeps open and three numbers; no memory is passed.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One `fdatasync`. The standard library would repeat an interrupted one (D6), so it is called directly.
pub(super) fn sync_data(file: &fs::File) -> io::Result<()> {
    Ok(rustix::fs::fdatasync(file)?)
}

pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    Ok(rustix::fs::fsync(directory)?)
}

pub(super) fn reserve(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    let reserved = allocate(file, FallocateFlags::empty(), offset, bytes);
    // xfs needs room even for a range that has its blocks already.
    match reserved {
        Err(error) if is_full(&error) && has_already(file, offset, bytes) => Ok(()),
        reserved => reserved,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the file has this range, and blocks for it.
fn has_already(file: &fs::File, offset: u64, bytes: u64) -> bool {
    let is_inside = file.metadata().is_ok_and(|file| offset.saturating_add(bytes) <= file.len());
    is_inside && has_blocks(file, offset, bytes).unwrap_or(false)
}

pub(super) fn punch(file: &fs::File, offset: u64, bytes: u64) -> io::Result<()> {
    allocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
}

/// Both uses are optional, so a file system without the call is no error.
fn allocate(file: &fs::File, mode: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(file, mode, offset, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn is_bad_descriptor(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BADF)
}

pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

pub(super) fn file_system(path: &Path) -> io::Result<FileSystem> {
    // The magic number has 32 bits; the kernel's signed word on 32-bit systems may have extended its sign.
    let magic = (rustix::fs::statfs(path)?.f_type as u64) & 0xffff_ffff;
    let space = rustix::fs::statvfs(path)?;
    let (name, network) = match name_of(magic) {
        Some(known) => (known.name.to_owned(), known.network),
        // An unknown type may be a network.
        None => (format!("unknown ({magic:#x})"), true),
    };
    Ok(FileSystem {
        name,
        network: Some(network),
        read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
        block_bytes: space.f_bsize,
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// A file system known by its magic number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KnownFileSystem {
    pub(super) name: &'static str,
    pub(super) network: bool,
}

/// Magic numbers from the kernel's `include/uapi/linux/magic.h` and the file systems' own headers.
pub(super) fn name_of(magic: u64) -> Option<KnownFileSystem> {
    let local = |name| Some(KnownFileSystem { name, network: false });
    // `fuse` is also virtiofs and sshfs, `9p` also a host's directory: neither is known to be local.
    let network = |name| Some(KnownFileSystem { name, network: true });
    match magic {
        0xef53 => local("ext4"),
        0x5846_5342 => local("xfs"),
        BTRFS_MAGIC => local("btrfs"),
        0x2fc1_2fc1 => local("zfs"),
        0xf2f5_2010 => local("f2fs"),
        0xca45_1a4e => local("bcachefs"),
        0x0102_1994 => local("tmpfs"),
        0x8584_58f6 => local("ramfs"),
        0x794c_7630 => local("overlay"),
        0x6175_6673 => local("aufs"),
        0xf15f => local("ecryptfs"),
        0x3153_464a => local("jfs"),
        0x5265_4973 => local("reiserfs"),
        0x3434 => local("nilfs2"),
        0x2405_1905 => local("ubifs"),
        0x4d44 => local("vfat"),
        0x2011_bab0 => local("exfat"),
        0x5346_544e | 0x7366_746e => local("ntfs"),
        0x1501_3346 => local("udf"),
        0x9660 => local("iso9660"),
        0x7371_7368 => local("squashfs"),
        0xe0f5_e1e2 => local("erofs"),
        0x6969 => network("nfs"),
        0x517b => network("smb"),
        0xff53_4d42 | 0xfe53_4d42 => network("cifs"),
        0x0102_1997 => network("9p"),
        0x6573_5546 => network("fuse"),
        0x00c3_6400 => network("ceph"),
        0x5346_414f => network("afs"),
        0x0116_1970 => network("gfs2"),
        0x7461_636f => network("ocfs2"),
        0x0bd0_0bd0 => network("lustre"),
        0x4750_4653 => network("gpfs"),
        0x786f_4256 => network("vboxsf"),
        _ => None,
    }
}
