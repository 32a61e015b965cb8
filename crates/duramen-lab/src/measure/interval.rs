//! The cost of syncing more often: the time to write a file with a sync after every N bytes.
//!
//! Owns the intervals and the file. Each trial writes the same zero-filled file from its beginning, so that
//! no trial pays for new blocks. What a trial left unsynced is synced before the next, untimed.

use std::io;
use std::path::Path;

use super::fresh::freshen;
use super::room::{FILL_BYTES, SPARE_BYTES, room_or_refuse, zero_fill};
use super::scratch::Scratch;
use duramen_disk::{Disk, File, OsDisk, SyncMethod};

/// When to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Not at all.
    Never,
    /// Once, after the last record.
    AtEnd,
    /// After every this many bytes, and after the last record.
    Every(u64),
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

impl Interval {
    /// From never to every 4 KiB.
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

    /// Those possible with records of this size: no sync is made inside a record.
    pub fn of_records(record_bytes: usize) -> impl Iterator<Item = Interval> {
        let fits = move |interval: &Interval| match interval {
            Interval::Every(bytes) => *bytes >= record_bytes as u64,
            Interval::Never | Interval::AtEnd => true,
        };
        Interval::ALL.into_iter().filter(fits)
    }

    /// The number of syncs for a file and records of these sizes.
    #[must_use]
    pub fn syncs(self, file_bytes: u64, record_bytes: usize) -> u64 {
        let records = file_bytes.div_ceil(record_bytes as u64);
        match self {
            Interval::Never => 0,
            Interval::AtEnd => 1,
            Interval::Every(bytes) => records.div_ceil(bytes.div_ceil(record_bytes as u64)),
        }
    }
}

/// Measures each interval once per trial, a different one first in each. Returns the nanoseconds of each
/// interval's trials.
///
/// Intervals shorter than a record are left out; the file is a multiple of a record. `told` is called with
/// the trial and the interval: at its beginning, after each sync and after each MiB, also while the file is
/// filled. If it returns `false`, the measurement ends and the unfinished trial is left out. The file is
/// removed.
///
/// # Errors
/// `StorageFull` if the file would leave less than [`SPARE_BYTES`] of room, before anything is written; other
/// errors of the system.
pub fn intervals(
    directory: &Path,
    file_bytes: u64,
    record_bytes: usize,
    trials: u32,
    told: &mut dyn FnMut(u32, Interval) -> bool,
) -> io::Result<Vec<(Interval, Vec<u64>)>> {
    let disk = OsDisk::new();
    let file_bytes = file_bytes.next_multiple_of(record_bytes as u64);
    room_or_refuse(directory, file_bytes, SPARE_BYTES)?;
    let scratch = Scratch::make(directory)?;
    let file = scratch.open(SyncMethod::Fdatasync)?;
    let mut all: Vec<(Interval, Vec<u64>)> =
        Interval::of_records(record_bytes).map(|interval| (interval, Vec::new())).collect();
    let first = all[0].0;
    if !zero_fill(&*file, file_bytes, &mut || told(0, first))? {
        return Ok(all);
    }
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
    let (mut offset, mut unsynced, mut unasked) = (0, 0, 0);
    while offset < file_bytes {
        freshen(&mut record);
        file.write_at(&record, offset)?;
        offset += record_bytes as u64;
        unsynced += record_bytes as u64;
        unasked += record_bytes as u64;
        let is_due = matches!(interval, Interval::Every(bytes) if unsynced >= bytes);
        if is_due {
            file.sync_data()?;
            unsynced = 0;
        }
        if is_due || unasked >= FILL_BYTES as u64 {
            unasked = 0;
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

#[cfg(test)]
mod tests {
    //! Each interval must sync as often as it states.
    use super::*;

    #[test]
    fn syncs_are_those_that_are_made() {
        let mib = 1 << 20;
        for (interval, record, syncs) in [
            (Interval::Every(4096), 4096, 256),
            (Interval::Every(16 << 10), 4096, 64),
            (Interval::Every(16 << 10), 12 << 10, 43),
            (Interval::Every(mib), 1 << 20, 1),
            (Interval::AtEnd, 1 << 20, 1),
            (Interval::Never, 512, 0),
        ] {
            assert_eq!(interval.syncs(mib, record), syncs, "{interval:?} of {record}");
        }
    }

    #[test]
    fn no_interval_is_less_than_a_record() {
        let of = |record| Interval::of_records(record).collect::<Vec<_>>();
        assert_eq!(of(4096), Interval::ALL);
        let large = [Interval::Never, Interval::AtEnd, Interval::Every(100 << 20), Interval::Every(10 << 20)];
        assert_eq!(of(2 << 20), large);
    }
}
