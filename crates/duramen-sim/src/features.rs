//! What a build must know to read a database of a disk: the incompatible features of its superblocks.
//!
//! By docs/format.md alone: it shares no code with the engine.

use std::path::Path;

use duramen_disk::MemDisk;

/// The bit of compressed pages.
pub const LZ4_PAGES: u64 = 2;

/// The bit of inner nodes with patches.
pub const PATCHES: u64 = 4;

/// Where superblocks begin, and their incompatible features in each.
const SUPERBLOCKS: [usize; 2] = [0, 16384];
const FEATURES_AT: usize = 28;

/// The features of both superblocks of a data file; none where there is no such file.
#[must_use]
pub fn features_of(disk: &MemDisk, database: &str) -> u64 {
    let Ok(data) = disk.read_file(Path::new(database).join("data")) else { return 0 };
    let bits =
        |at: usize| data.get(at + FEATURES_AT..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    SUPERBLOCKS.iter().filter_map(|at| bits(*at)).fold(0, |all, bits| all | bits)
}
