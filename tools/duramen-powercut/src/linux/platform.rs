//! The system calls that no safe wrapper offers: loop devices and `sync_file_range`.
//!
//! Owns the only unsafe code of the tool. It never decides which device or file; it never retries.

#![allow(
    unsafe_code,
    reason = "raw ioctls and one system call, each in a function that cannot be called wrongly"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::libc;

/// Bytes in the file name that a loop device shows.
const LOOP_NAME_BYTES: usize = 64;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LOOP_NAME_BYTES],
    crypt_name: [u8; LOOP_NAME_BYTES],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
pub(crate) struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopConfig>() == 304);

mod raw {
    use nix::libc;

    nix::ioctl_none_bad!(loop_ctl_get_free, 0x4C82);
    nix::ioctl_write_ptr_bad!(loop_configure, 0x4C0A, super::LoopConfig);

    /// `SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER`: as much as this call can do.
    pub(super) const SYNC_FILE_RANGE_ALL: libc::c_uint = 1 | 2 | 4;
}

/// The number of a loop device that is free now; another process may take it first.
pub(crate) fn free_loop_device(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument; `control` is open for the length of the call.
    let number = unsafe { raw::loop_ctl_get_free(control.as_raw_fd()) }?;
    u32::try_from(number).map_err(io::Error::other)
}

/// The name that `losetup` shows for the device.
fn loop_name() -> [u8; LOOP_NAME_BYTES] {
    let mut name = [0; LOOP_NAME_BYTES];
    name[..8].copy_from_slice(b"powercut");
    name
}

/// Attaches a file to a loop device: with direct I/O if requested, and detached once every user has closed
/// the device.
pub(crate) fn configure_loop_device(device: &File, backing: BorrowedFd<'_>, direct: bool) -> io::Result<()> {
    let flags = LO_FLAGS_AUTOCLEAR | if direct { LO_FLAGS_DIRECT_IO } else { 0 };
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 512,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: loop_name(),
            crypt_name: [0; LOOP_NAME_BYTES],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: `config` has the layout of `struct loop_config` (its size is checked above) and outlives the
    // call; the kernel takes its own reference to the file behind `backing`, which is open for the length of
    // the call.
    unsafe { raw::loop_configure(device.as_raw_fd(), &raw const config) }?;
    Ok(())
}

/// Writes back dirty pages of a range and waits, without a flush: it must not be mistaken for a sync.
pub(crate) fn sync_file_range(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let offset = i64::try_from(offset).map_err(io::Error::other)?;
    let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: takes no pointer; `file` is open for the length of the call.
    let ended = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, raw::SYNC_FILE_RANGE_ALL) };
    if ended == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
