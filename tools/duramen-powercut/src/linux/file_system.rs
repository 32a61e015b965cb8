//! The file systems that can be put on the drive: how each is made, mounted and checked.
//!
//! Owns their tools, their options and the blocks that each expects to be written whole. It never runs
//! anything.

use std::ffi::OsString;
use std::path::Path;

use clap::ValueEnum;

/// A file system to run a program on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) const ALL: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

    /// Its name for mount(2).
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// The package that has its tools, for a hint.
    pub(crate) fn package(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "e2fsprogs",
            FileSystem::Xfs => "xfsprogs",
            FileSystem::Btrfs => "btrfs-progs",
        }
    }

    /// Offsets of superblocks that it expects to be written whole: 4 KiB, though the sectors are smaller.
    pub(crate) fn whole_blocks(self) -> &'static [u64] {
        match self {
            FileSystem::Ext4 | FileSystem::Xfs => &[0],
            FileSystem::Btrfs => &[64 << 10, 64 << 20, 256 << 30],
        }
    }

    /// The smallest size that it can be made with, in mebibytes.
    pub(crate) fn mebibytes_min(self) -> u64 {
        match self {
            FileSystem::Ext4 => 16,
            FileSystem::Xfs => 300,
            FileSystem::Btrfs => 128,
        }
    }

    /// The tool that makes it.
    pub(crate) fn mkfs(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "mkfs.ext4",
            FileSystem::Xfs => "mkfs.xfs",
            FileSystem::Btrfs => "mkfs.btrfs",
        }
    }

    /// The command that creates it in an empty file. Everything is initialised at once, nothing later in the
    /// background.
    pub(crate) fn mkfs_words(self, options: &[String], file: &Path) -> Vec<OsString> {
        let own: &[&str] = match self {
            FileSystem::Ext4 => &[
                "-q",
                "-F",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,nodiscard,assume_storage_prezeroed=1",
            ],
            FileSystem::Xfs => &["-q", "-f", "-K"],
            FileSystem::Btrfs => &["-q", "-f", "-K"],
        };
        words(self.mkfs(), own.iter().map(ToString::to_string).chain(options.iter().cloned()), file)
    }

    /// Mount options. Two xfs of one image may be mounted at once on this machine.
    pub(crate) fn mount_options(self) -> &'static str {
        if self == FileSystem::Xfs { "nouuid" } else { "" }
    }

    /// The tool that checks it.
    pub(crate) fn fsck(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "e2fsck",
            FileSystem::Xfs => "xfs_repair",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// The command that checks it and changes nothing.
    pub(crate) fn fsck_words(self, file: &Path) -> Vec<OsString> {
        let own: &[&str] = match self {
            FileSystem::Ext4 => &["-f", "-n"],
            FileSystem::Xfs => &["-n", "-f"],
            FileSystem::Btrfs => &["check", "--readonly"],
        };
        words(self.fsck(), own.iter().map(ToString::to_string), file)
    }
}

fn words(program: &str, options: impl Iterator<Item = String>, file: &Path) -> Vec<OsString> {
    let head = std::iter::once(OsString::from(program));
    head.chain(options.map(OsString::from)).chain([file.as_os_str().to_owned()]).collect()
}
