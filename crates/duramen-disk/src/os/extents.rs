//! The blocks that the file system has allocated for a file (`FIEMAP`).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 11, struct fiemap)`: include/uapi/linux/fs.h.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;

/// Flags of an extent that a write would not reuse: not allocated yet, not on this disk, or shared with
/// another file. `UNKNOWN`, `DELALLOC`, `ENCODED`, `DATA_INLINE`, `SHARED`.
const NOT_IN_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x200 | 0x2000;

/// Extents returned by one call.
const EXTENTS: u32 = 32;

/// `struct fiemap`, with room for extents.
#[repr(C)]
#[derive(Default)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS as usize],
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// Whether a file has blocks of its own for every byte of a range, so that writing there takes no room.
///
/// # Errors
/// The error of the call. Some file systems do not support it.
pub(super) fn has_blocks(file: &fs::File, offset: u64, bytes: u64) -> io::Result<bool> {
    let end = offset.saturating_add(bytes);
    let mut reached = offset;
    while reached < end {
        let mut map = Map { start: reached, length: end - reached, extent_count: EXTENTS, ..Map::default() };
        call_fiemap(file, &mut map)?;
        let before = reached;
        for extent in map.extents.iter().take(map.mapped_extents as usize) {
            if extent.logical > reached || extent.flags & NOT_IN_PLACE != 0 {
                return Ok(false);
            }
            reached = reached.max(extent.logical.saturating_add(extent.length));
        }
        if reached == before {
            return Ok(false);
        }
    }
    Ok(true)
}

#[allow(unsafe_code, reason = "no crate offers this call safely")]
fn call_fiemap(file: &fs::File, map: &mut Map) -> io::Result<()> {
    // SAFETY: `file` keeps the descriptor open. The kernel writes the 32 bytes of the header and at most
    // `extent_count` extents after it, and `map` is laid out like `struct fiemap` with that many extents.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, std::ptr::from_mut(map)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::FileExt;

    use super::*;

    /// The layout is that of the kernel.
    #[test]
    fn the_map_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(size_of::<Extent>(), 56);
        assert_eq!(size_of::<Map>(), 32 + EXTENTS as usize * 56);
        assert_eq!(std::mem::offset_of!(Map, extents), 32);
        assert_eq!(std::mem::offset_of!(Extent, flags), 40);
    }

    /// Reserved blocks count, holes do not. Files with more extents than one call returns are supported.
    #[test]
    fn reserved_and_written_blocks_are_told_from_holes() {
        const BLOCK: u64 = 64 * 1024;
        let file = tempfile::tempfile().unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4 * BLOCK).unwrap();
        let Ok(found) = has_blocks(&file, 0, 4 * BLOCK) else {
            println!(
                "skipped: extents of a file — the file system of the temporary directory does not tell them"
            );
            return;
        };
        assert!(found, "reserved");
        let end = 204 * BLOCK;
        file.set_len(end).unwrap();
        for at in (4..204).step_by(2) {
            file.write_all_at(&[1; 64 * 1024], at * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        assert!(has_blocks(&file, 0, 5 * BLOCK).unwrap(), "written");
        for at in 4..204 {
            let is_written = at % 2 == 0;
            assert_eq!(has_blocks(&file, at * BLOCK, BLOCK).unwrap(), is_written, "block {at}");
            assert!(!has_blocks(&file, at * BLOCK, 2 * BLOCK).unwrap(), "one of two at {at}");
        }
        for at in (5..203).step_by(2) {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at * BLOCK, BLOCK).unwrap();
        }
        assert!(has_blocks(&file, 0, 203 * BLOCK).unwrap(), "no hole is left but the last");
        assert!(!has_blocks(&file, 0, end).unwrap());
        assert!(!has_blocks(&file, end, BLOCK).unwrap(), "after the end");
    }
}
