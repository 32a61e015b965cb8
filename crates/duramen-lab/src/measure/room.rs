//! Room for a measurement: refused before anything is written, and filled so that filling can be interrupted.
//!
//! Owns both rules for all measurements: a benchmark must not fill a disk that other programs use.

use std::io;
use std::path::Path;

use duramen_disk::{Disk, File, OsDisk, write_zeroes};

/// Room that a measurement leaves free.
pub const SPARE_BYTES: u64 = 64 << 20;

/// Bytes that are filled between two checks whether to go on.
pub(super) const FILL_BYTES: usize = 1 << 20;

/// Refuses a measurement if `wanted` bytes of files would leave less than `spare` bytes free.
///
/// # Errors
/// `StorageFull` without that much room; errors of the system.
pub fn room_or_refuse(directory: &Path, wanted: u64, spare: u64) -> io::Result<()> {
    let room = OsDisk::new().file_system(directory)?;
    let needed = wanted.saturating_add(spare);
    // A system that does not report space reports 0 for both.
    if room.total_bytes > 0 && room.free_bytes < needed {
        let text = format!(
            "{} bytes are free, and {needed} are wanted: {wanted} for the files and the rest to spare",
            room.free_bytes
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, text));
    }
    Ok(())
}

/// Fills the file's first bytes with zeroes and syncs them; `false` if `go_on` returned `false` meanwhile.
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
