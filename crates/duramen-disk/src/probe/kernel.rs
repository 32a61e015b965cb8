//! The results of system calls about a path, in contrast to files in `/sys` and `/proc`.
//!
//! Owns [`Kernel`], the interface by which a recorded machine replaces this one. It never follows a layer and
//! never judges.

use std::fmt;
use std::io;
use std::path::Path;

use super::fact::DeviceNumber;
use crate::{Disk, FileSystem, OsDisk};

/// A source of facts about paths: the running kernel, or a recording.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// The facts about this path.
    ///
    /// # Errors
    /// Errors of the system: `NotFound`, `PermissionDenied`, ...
    fn path_facts(&self, path: &Path) -> io::Result<PathFacts>;
}

/// The results of `statx`, `statfs` and the inode flags for one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathFacts {
    /// `statfs`: type by magic number, space, read-only.
    pub file_system: FileSystem,
    /// `stat`: the device of the file system. btrfs, overlay, tmpfs and network file systems invent one
    /// (major 0).
    pub device: Option<DeviceNumber>,
    /// `stat`: the path's own block device, if the path is one.
    pub special_device: Option<DeviceNumber>,
    /// `statx` or `/proc/self/fdinfo`: the mount's number in `/proc/self/mountinfo`.
    pub mount_id: Option<u64>,
    /// `statvfs`: set if the file system counts inodes.
    pub inodes: Option<Inodes>,
    /// `statx`: for regular files only, since Linux 6.1, and not on every file system.
    pub direct: Option<DirectAlign>,
    /// `statx`: the largest atomic write in bytes; 0 is none. For files, since Linux 6.11.
    pub atomic_write_bytes_max: Option<u64>,
    /// The inode flag `+C`, on file systems that copy on write.
    pub no_copy_on_write: Option<bool>,
}

/// Inodes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// Free for this user.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// The alignment for `O_DIRECT`. An offset of 0 means that the file system refuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlign {
    /// Alignment of memory in bytes.
    pub memory_bytes: u32,
    /// Alignment of offset and length in bytes.
    pub offset_bytes: u32,
}

/// The kernel that runs this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningKernel;

impl Kernel for RunningKernel {
    fn path_facts(&self, path: &Path) -> io::Result<PathFacts> {
        let facts = PathFacts {
            file_system: OsDisk::new().file_system(path)?,
            device: None,
            special_device: None,
            mount_id: None,
            inodes: None,
            direct: None,
            atomic_write_bytes_max: None,
            no_copy_on_write: None,
        };
        platform::complete(path, facts)
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use std::os::fd::{AsRawFd, OwnedFd};

    use rustix::fs::{AtFlags, FileType, IFlags, Mode, OFlags, Stat, StatxFlags};

    use super::*;

    /// `STATX_WRITE_ATOMIC`, which rustix does not name yet.
    const STATX_WRITE_ATOMIC: u32 = 0x0001_0000;

    /// Opened as a path only, which needs no permission to read it.
    pub(super) fn complete(path: &Path, mut facts: PathFacts) -> io::Result<PathFacts> {
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&place)?;
        facts.device = Some(number(stat.st_dev));
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            facts.special_device = Some(number(stat.st_rdev));
        }
        if let Ok(space) = rustix::fs::fstatvfs(&place)
            && space.f_files > 0
        {
            facts.inodes = Some(Inodes { free: space.f_favail, total: space.f_files });
        }
        from_statx(&place, &mut facts);
        if facts.mount_id.is_none() {
            facts.mount_id = mount_id_from_fdinfo(&place);
        }
        if facts.file_system.name == "btrfs" {
            facts.no_copy_on_write = no_copy_on_write(path, &stat);
        }
        Ok(facts)
    }

    fn number(device: u64) -> DeviceNumber {
        DeviceNumber { major: rustix::fs::major(device), minor: rustix::fs::minor(device) }
    }

    fn from_statx(place: &OwnedFd, facts: &mut PathFacts) {
        let atomic = StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
        let wanted = StatxFlags::MNT_ID | StatxFlags::DIOALIGN | atomic;
        let Ok(told) = rustix::fs::statx(place, c"", AtFlags::EMPTY_PATH, wanted) else { return };
        let has = |flag: StatxFlags| StatxFlags::from_bits_retain(told.stx_mask).contains(flag);
        facts.mount_id = has(StatxFlags::MNT_ID).then_some(told.stx_mnt_id);
        facts.direct = has(StatxFlags::DIOALIGN).then_some(DirectAlign {
            memory_bytes: told.stx_dio_mem_align,
            offset_bytes: told.stx_dio_offset_align,
        });
        facts.atomic_write_bytes_max = has(atomic).then_some(u64::from(told.stx_atomic_write_unit_max));
    }

    /// Kernels before 5.8 report the mount of an open file only here.
    fn mount_id_from_fdinfo(place: &OwnedFd) -> Option<u64> {
        let proc = super::super::tree::Tree::new(Path::new("/proc"), "/proc");
        let text = proc.text(&format!("self/fdinfo/{}", place.as_raw_fd())).ok()?;
        text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
    }

    /// Reads the flag of files and directories only, because opening a device may have effects.
    fn no_copy_on_write(path: &Path, stat: &Stat) -> Option<bool> {
        if !matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Directory) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        Some(rustix::fs::ioctl_getflags(&file).ok()?.contains(IFlags::NOCOW))
    }
}

/// Only compiled, not tested, so far.
#[cfg(not(target_os = "linux"))]
mod platform {
    use super::*;

    pub(super) fn complete(_path: &Path, facts: PathFacts) -> io::Result<PathFacts> {
        Ok(facts)
    }
}
