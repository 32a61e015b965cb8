//! How much it costs to sync more often: the time to write a file record by record, with a sync after every so many bytes.
//!
//! Owns the intervals and the file. Each trial writes the same zero-filled file from its beginning, so that no trial pays
//! for new blocks; what a trial left unsynced is synced before the next, untimed.

use std::io;
use std::path::Path;

use super::lane::MEASURE_PREFIX;
use crate::{Access, Disk, File, OsDisk, write_zeroes};

/// When a sync is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Not at all.
    Never,
    /// Once, after the last record.
    AtEnd,
    /// After every so many bytes, and after the last record.
    Every(u64),
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

impl Interval {
    /// From never to every 16 KiB.
    pub const ALL: [Interval; 12] = [
        Interval::Never,
        Interval::AtEnd,
        Interval::Every(100 * MIB),
        Interval::Every(10 * MIB),
        Interval::Every(MIB),
        Interval::Every(512 * KIB),
        Interval::Every(256 * KIB),
        Interval::Every(128 * KIB),
        Interval::Every(64 * KIB),
        Interval::Every(32 * KIB),
        Interval::Every(16 * KIB),
        Interval::Every(4 * KIB),
    ];

    /// Syncs in a file of so many bytes.
    #[must_use]
    pub fn syncs(self, file_bytes: u64) -> u64 {
        match self {
            Interval::Never => 0,
            Interval::AtEnd => 1,
            Interval::Every(bytes) => file_bytes.div_ceil(bytes),
        }
    }
}

/// Measures each interval once a trial, a different one first in each; returns the nanoseconds of each interval's trials.
///
/// `told` is told the trial and the interval when it begins and after each of its syncs, and ends everything by returning
/// `false`; a trial that was cut short so is left out. The file is removed.
///
/// # Errors
/// What the system said.
pub fn intervals(
    directory: &Path,
    file_bytes: u64,
    record_bytes: usize,
    trials: u32,
    told: &mut dyn FnMut(u32, Interval) -> bool,
) -> io::Result<Vec<(Interval, Vec<u64>)>> {
    let disk = OsDisk::new();
    let path = directory.join(format!("{MEASURE_PREFIX}{:016x}", disk.random()));
    let file = disk.open(&path, Access::CREATE)?;
    let measured = prepare(&*file, file_bytes).and_then(|()| {
        let mut all: Vec<(Interval, Vec<u64>)> = Interval::ALL.map(|interval| (interval, Vec::new())).into();
        let count = all.len();
        for trial in 0..trials {
            for index in 0..count {
                let (interval, samples) = &mut all[(index + trial as usize) % count];
                let interval = *interval;
                let mut go_on = || told(trial, interval);
                if !go_on() {
                    return Ok(all);
                }
                match fill(&disk, &*file, file_bytes, record_bytes, interval, &mut go_on)? {
                    Some(ns) => samples.push(ns),
                    None => return Ok(all),
                }
                file.sync_data()?;
            }
        }
        Ok(all)
    });
    drop(file);
    disk.remove(&path)?;
    measured
}

fn prepare(file: &dyn File, file_bytes: u64) -> io::Result<()> {
    write_zeroes(file, 0, file_bytes)?;
    file.sync_data()
}

/// The nanoseconds of a trial; `None` if it was cut short.
fn fill(
    disk: &OsDisk,
    file: &dyn File,
    file_bytes: u64,
    record_bytes: usize,
    interval: Interval,
    go_on: &mut dyn FnMut() -> bool,
) -> io::Result<Option<u64>> {
    let mut record = vec![0x5a_u8; record_bytes];
    let begun = disk.monotonic_ns();
    let (mut offset, mut unsynced) = (0, 0);
    while offset < file_bytes {
        record[0] = record[0].wrapping_add(1);
        file.write_at(&record, offset)?;
        offset += record_bytes as u64;
        unsynced += record_bytes as u64;
        if matches!(interval, Interval::Every(bytes) if unsynced >= bytes) {
            file.sync_data()?;
            unsynced = 0;
            if !go_on() {
                return Ok(None);
            }
        }
    }
    if interval != Interval::Never && unsynced > 0 {
        file.sync_data()?;
    }
    Ok(Some(disk.monotonic_ns() - begun))
}
