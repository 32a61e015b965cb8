//! What a probe found: the layers from a directory down to its disks, space, the machine, and what weakens it.
//!
//! Owns the shape of the report. Every fact carries its source; the judgement is `weakness.rs`' and `trust.rs`'.

use std::path::PathBuf;

use super::device::{Device, DeviceKind};
use super::fact::Fact;
use super::kernel::{DirectAlign, Inodes};
use super::machine::Machine;
use super::mounts::FileSystemClass;
use super::weakness::Weakness;

/// All that a probe could learn without writing and without rights.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What was asked about.
    pub path: PathBuf,
    /// From the file system of the path down to the disks, each layer before those under it. The first is a
    /// [`Part::Mounted`].
    pub layers: Vec<Layer>,
    /// What the walk could not see, in words. Empty if every layer was found.
    pub gaps: Vec<String>,
    /// Room on the file system of the path.
    pub space: Space,
    /// What `O_DIRECT` wants, and whether the file system offers it. Told of files; the witness knows it too.
    pub direct: Fact<DirectAlign>,
    /// The largest write to this path that is all or nothing, in bytes; 0 is none. Told of files.
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

    /// The devices that rest on no other: what a power cut meets.
    pub fn disks(&self) -> impl Iterator<Item = &Device> {
        self.devices().filter(|device| DeviceKind::is_disk(&device.kind))
    }
}

/// One layer, and how deep it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// 0 is the file system of the path. What follows deeper rests under this one.
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
    /// The path that lies on it: what was asked about, an overlay's upper directory, or a loop device's file.
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
    /// Metadata goes through a journal or a log. Asked of ext2, ext3 and ext4 only.
    pub journal: Fact<bool>,
    /// Errors that the file system has recorded in itself. Asked of ext4 only.
    pub error_count: Fact<u64>,
    /// The path's files are written in place (`chattr +C`). Asked of btrfs only.
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
    /// Inodes, where it counts them.
    pub inodes: Fact<Inodes>,
}
