//! The result of a probe: the layers from a directory down to its disks, the machine, and weaknesses.
//!
//! Owns the shape of the report. Every fact carries its source. `weakness.rs` and `trust.rs` judge.

use std::path::PathBuf;

use super::device::{Device, DeviceKind};
use super::fact::Fact;
use super::kernel::{DirectAlign, Inodes};
use super::machine::Machine;
use super::mounts::FileSystemClass;
use super::weakness::Weakness;

/// All that a probe can find out without writing and without privileges.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The path that was probed.
    pub path: PathBuf,
    /// From the file system of the path down to the disks, each layer before those under it. The first is a
    /// [`Part::Mounted`].
    pub layers: Vec<Layer>,
    /// What the walk could not follow, as sentences. Empty if every layer was found.
    pub gaps: Vec<String>,
    /// Room on the file system of the path.
    pub space: Space,
    /// The alignment for `O_DIRECT`, and whether the file system offers it. Known for files; the witness
    /// reads it too.
    pub direct: Fact<DirectAlign>,
    /// The largest atomic write to this path, in bytes; 0 is none. Known for files.
    pub atomic_write_bytes_max: Fact<u64>,
    /// The machine.
    pub machine: Machine,
    /// What weakens or hides durability here, the worst first.
    pub weaknesses: Vec<Weakness>,
}

impl Report {
    /// The file systems, that of the path first.
    pub fn mounts(&self) -> impl Iterator<Item = &Mounted> {
        self.layers.iter().filter_map(|layer| match &layer.part {
            Part::Mounted(mounted) => Some(&**mounted),
            Part::Device(_) => None,
        })
    }

    /// The block devices, those on top first.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.layers.iter().filter_map(|layer| match &layer.part {
            Part::Device(device) => Some(&**device),
            Part::Mounted(_) => None,
        })
    }

    /// The devices that rest on no other: a power cut affects these.
    pub fn disks(&self) -> impl Iterator<Item = &Device> {
        self.devices().filter(|device| DeviceKind::is_disk(&device.kind))
    }
}

/// One layer and its depth.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// 0 is the file system of the path. Deeper layers after this one are under it.
    pub depth: u32,
    /// What it is.
    pub part: Part,
}

/// A file system or a block device.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A file system, and where it is mounted.
    Mounted(Box<Mounted>),
    /// A block device.
    Device(Box<Device>),
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq)]
pub struct Mounted {
    /// The path on it: the path that was probed, an overlay's upper directory, or a loop device's file.
    pub path: PathBuf,
    /// `ext4`, `nfs4`, `fuse.sshfs`.
    pub file_system: Fact<String>,
    /// What its syncs rest on.
    pub class: FileSystemClass,
    /// Where it is mounted.
    pub mount_point: Fact<PathBuf>,
    /// What is mounted: `/dev/vda`, `server:/export`.
    pub mounted_from: Fact<String>,
    /// Options of the mount and of the file system, each once.
    pub options: Fact<Vec<String>>,
    /// Writes are refused.
    pub read_only: Fact<bool>,
    /// Whether metadata is written to a journal or a log. Read for ext2, ext3 and ext4 only.
    pub journal: Fact<bool>,
    /// Errors that the file system has recorded in itself. Read for ext4 only.
    pub error_count: Fact<u64>,
    /// Whether the path's files are written in place (`chattr +C`). Read for btrfs only.
    pub no_copy_on_write: Fact<bool>,
}

impl Mounted {
    /// Whether this option is set, alone or with a value.
    #[must_use]
    pub fn has_option(&self, option: &str) -> bool {
        self.options.value.iter().flatten().any(|set| set == option)
    }

    /// The value of an option: `/upper` for `upperdir=/upper`.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.value.iter().flatten();
        options.find_map(|set| set.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Room on a file system, for this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes that can be written.
    pub free_bytes: Fact<u64>,
    /// Bytes in all.
    pub total_bytes: Fact<u64>,
    /// Its preferred block.
    pub block_bytes: Fact<u64>,
    /// Inodes, if it counts them.
    pub inodes: Fact<Inodes>,
}
