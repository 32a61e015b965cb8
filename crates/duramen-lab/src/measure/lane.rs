//! One strategy's file: prepared for the strategy, written record by record, removed at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Strategy;
use super::fresh::freshen;
use duramen_disk::sync_choice::MEASURE_PREFIX;
use duramen_disk::{
    Access, DIRECT_ALIGN_BYTES, Disk, DurableWriteError, File, OpenMode, OsDisk, SyncMethod, open_dsync,
    open_for_sync_range, sync_range, write_zeroes,
};

/// Bytes of a prepared file at most: about one log segment.
pub const LANE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One strategy's file.
#[derive(Debug)]
pub struct Lane {
    strategy: Strategy,
    disk: OsDisk,
    file: Arc<dyn File>,
    /// The same file, for a call that the trait does not have.
    ranges: fs::File,
    path: PathBuf,
    record: Vec<u8>,
    next: u64,
    file_bytes: u64,
}

impl Lane {
    /// Bytes of a file with room for `records`: at most `most`, rounded up to whole records.
    pub(super) fn file_bytes(record_bytes: usize, records: u32, most: u64) -> u64 {
        let bytes = record_bytes as u64;
        (bytes * u64::from(records)).min(most.min(LANE_BYTES_MAX).next_multiple_of(bytes))
    }

    /// Makes the file in `directory`, with room for `records`, or for fewer that are overwritten in turn.
    ///
    /// # Errors
    /// `Unsupported` if this system or file system does not offer the strategy; other errors of the system.
    pub fn prepare(
        directory: &Path,
        strategy: Strategy,
        record_bytes: usize,
        records: u32,
    ) -> io::Result<Lane> {
        if strategy == Strategy::ZeroedDirectDsync
            && !(record_bytes as u64).is_multiple_of(DIRECT_ALIGN_BYTES)
        {
            let text = format!(
                "records of {record_bytes} bytes: direct writes want multiples of {DIRECT_ALIGN_BYTES}"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{MEASURE_PREFIX}{}-{number}", std::process::id()));
        let bytes = record_bytes as u64;
        let file_bytes = Lane::file_bytes(record_bytes, records, LANE_BYTES_MAX);
        let disk = OsDisk::new();
        let created = disk.open(&path, Access::CREATE)?;
        let made = || -> io::Result<(Arc<dyn File>, fs::File)> {
            match strategy {
                Strategy::AppendFdatasync => {}
                Strategy::ExtendedFdatasync => created.set_len(file_bytes)?,
                _ => write_zeroes(&*created, 0, file_bytes)?,
            }
            created.sync_data()?;
            disk.sync_dir(directory)?;
            let sync = strategy.sync_method().unwrap_or(SyncMethod::Fdatasync);
            let file = match strategy {
                Strategy::ZeroedOpenDsync => open_dsync(&path)?,
                _ => disk.open(&path, Access { mode: OpenMode::Write, sync })?,
            };
            let ranges = open_for_sync_range(&path)?;
            if strategy == Strategy::ZeroedRangeSync {
                sync_range(&ranges, 0, bytes)?;
            }
            Ok((file, ranges))
        };
        match made() {
            Ok((file, ranges)) => {
                let record = vec![0; record_bytes];
                Ok(Lane { strategy, disk, file, ranges, path, record, next: 0, file_bytes })
            }
            Err(error) => {
                // The caller gets the refusal, not an error of the removal.
                drop(disk.remove(&path));
                Err(error)
            }
        }
    }

    /// Writes the next record and waits as the strategy requires. Returns the nanoseconds of both.
    ///
    /// # Errors
    /// Errors of the system. After a failed sync nothing in this file can be trusted.
    pub fn write(&mut self) -> io::Result<u64> {
        let bytes = self.record.len() as u64;
        if self.next + bytes > self.file_bytes {
            if self.strategy == Strategy::AppendFdatasync {
                self.file.set_len(0)?;
                self.file.sync_data()?;
            }
            self.next = 0;
        }
        freshen(&mut self.record);
        let begun = self.disk.monotonic_ns();
        match self.strategy {
            Strategy::ZeroedDsync | Strategy::ZeroedDirectDsync => {
                self.file.write_durable_at(&self.record, self.next).map_err(|error| match error {
                    DurableWriteError::Write(error) => error.source,
                    DurableWriteError::Sync(error) => error,
                })?;
            }
            Strategy::ZeroedOpenDsync | Strategy::NoSync => self.file.write_at(&self.record, self.next)?,
            Strategy::ZeroedRangeSync => {
                self.file.write_at(&self.record, self.next)?;
                sync_range(&self.ranges, self.next, bytes)?;
            }
            Strategy::AppendFdatasync | Strategy::ExtendedFdatasync | Strategy::ZeroedFdatasync => {
                self.file.write_at(&self.record, self.next)?;
                self.file.sync_data()?;
            }
        }
        let took = self.disk.monotonic_ns() - begun;
        self.next += bytes;
        Ok(took)
    }

    /// Syncs what this strategy left to the kernel, so that it does not slow the next one.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn settle(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // A failure has no caller to report to.
        drop(self.disk.remove(&self.path));
    }
}
