//! Room for a measurement: refused before anything is written, and filled so that it can be ended.
//!
//! Owns both rules for all measurements: a laboratory must not be what fills a disk that others live on.

use std::io;
use std::path::Path;

use crate::{Disk, File, OsDisk, write_zeroes};

/// Room that a measurement leaves to others.
pub const SPARE_BYTES: u64 = 64 << 20;

/// Bytes that are filled between two questions whether to go on.
pub(super) const FILL_BYTES: usize = 1 << 20;

/// Refuses a measurement that `wanted` bytes of files do not leave `spare` bytes of room.
///
/// # Errors
/// `StorageFull` if there is not that much room; what the system said if it tells of none.
pub fn room_or_refuse(directory: &Path, wanted: u64, spare: u64) -> io::Result<()> {
    let room = OsDisk::new().file_system(directory)?;
    let needed = wanted.saturating_add(spare);
    // A system that tells no space says 0 of both.
    if room.total_bytes > 0 && room.free_bytes < needed {
        let text = format!(
            "{} bytes are free, and {needed} are wanted: {wanted} for the files and the rest to spare",
            room.free_bytes
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}

/// Fills the file's first bytes with written zeroes and syncs them; `false` if `go_on` said so meanwhile.
pub(super) fn zero_fill(file: &dyn File, bytes: u64, go_on: &mut dyn FnMut() -> bool) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes {
        if !go_on() {
            return Ok(false);
        }
        let step = (bytes - done).min(FILL_BYTES as u64);
        write_zeroes(file, done, step)?;
        done += step;
    }
    file.sync_data()?;
    Ok(true)
}
