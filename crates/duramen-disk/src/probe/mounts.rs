//! `/proc/self/mountinfo` and the classes of file systems.
//!
//! Owns two pure functions of text. Format: the kernel's `Documentation/filesystems/proc.rst`, section 3.5.

use std::path::PathBuf;

use super::fact::DeviceNumber;

/// What a file system's syncs rest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemClass {
    /// On block devices of this machine: ext4, xfs, btrfs, f2fs, zfs, ...
    Local,
    /// In memory: tmpfs, ramfs. A sync does nothing.
    Memory,
    /// Above another file system: overlay, aufs.
    Union,
    /// On another machine: nfs, cifs, ceph, ...
    Network,
    /// A folder of this virtual machine's host: 9p, virtiofs, vboxsf.
    Host,
    /// Implemented by a program: fuse.
    UserSpace,
    /// Not known to this library.
    Unknown,
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountLine {
    pub(super) id: u64,
    pub(super) device: DeviceNumber,
    pub(super) point: PathBuf,
    /// Options of the mount, then of the file system, each once.
    pub(super) options: Vec<String>,
    pub(super) file_system: String,
    pub(super) mounted_from: String,
}

/// The lines that can be parsed; others are skipped.
pub(super) fn parse_mountinfo(text: &str) -> Vec<MountLine> {
    text.lines().filter_map(parse_line).collect()
}

/// `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard`
pub(super) fn parse_line(line: &str) -> Option<MountLine> {
    let (mount, system) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let system: Vec<&str> = system.split(' ').collect();
    let [id, _, device, _, point, of_mount, ..] = mount.as_slice() else { return None };
    let [file_system, mounted_from, rest @ ..] = system.as_slice() else { return None };
    let mut options: Vec<String> = Vec::new();
    for option in of_mount.split(',').chain(rest.iter().flat_map(|part| part.split(','))) {
        let option = unescape(option);
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(MountLine {
        id: id.parse().ok()?,
        device: DeviceNumber::parse(device)?,
        point: PathBuf::from(unescape(point)),
        options,
        file_system: unescape(file_system),
        mounted_from: unescape(mounted_from),
    })
}

/// `\040` is a blank: a backslash and three octal digits are one byte.
pub(super) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if bytes[at] == b'\\' => {
                plain.push(byte);
                at += 4;
            }
            _ => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Classifies by the name in mountinfo, or by `statfs`' magic number if there is no line.
pub(super) fn class_of(file_system: &str) -> FileSystemClass {
    match file_system {
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" | "bcachefs" | "jfs" | "reiserfs"
        | "nilfs2" | "ubifs" | "jffs2" | "vfat" | "exfat" | "ntfs" | "ntfs3" | "udf" | "iso9660" | "hfs"
        | "hfsplus" | "squashfs" | "erofs" | "ecryptfs" => FileSystemClass::Local,
        "tmpfs" | "ramfs" | "devtmpfs" | "rootfs" | "hugetlbfs" => FileSystemClass::Memory,
        "overlay" | "overlayfs" | "aufs" => FileSystemClass::Union,
        "nfs" | "nfs4" | "cifs" | "smb" | "smb3" | "smbfs" | "ceph" | "afs" | "coda" | "lustre" | "gfs2"
        | "ocfs2" | "gpfs" | "beegfs" | "orangefs" | "ncpfs" => FileSystemClass::Network,
        "9p" | "virtiofs" | "vboxsf" | "vmhgfs" | "prl_fs" => FileSystemClass::Host,
        "fuse" | "fuseblk" => FileSystemClass::UserSpace,
        name if name.starts_with("fuse.") || name.starts_with("fuseblk.") => FileSystemClass::UserSpace,
        _ => FileSystemClass::Unknown,
    }
}
