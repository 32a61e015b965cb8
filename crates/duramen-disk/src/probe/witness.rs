//! The flush witness: a burst of small commits, and the disks' counters during it.
//!
//! Owns the probe file (made, overwritten, removed; also after an error). It writes through the same [`Disk`]
//! as the engine, so that it sees the same behaviour. `trust.rs` judges; `meter.rs` reads the counters.

use std::io;

use super::Host;
use super::fact::{DeviceNumber, Fact};
use super::kernel::DirectAlign;
use super::meter::Meter;
use super::report::Report;
use super::trust::{Verdict, judge};
use crate::{Access, Disk, File, write_zeroes};

/// The prefix of the probe file's name. A killed witness leaves the file behind.
pub const WITNESS_PREFIX: &str = ".duramen-witness-";

/// Commits of a burst: enough for a verdict, few enough to wait for.
pub const COMMITS_DEFAULT: u32 = 32;

/// The longest burst.
pub const COMMITS_MAX: u32 = 100_000;

/// Bytes of one commit.
const COMMIT_BYTES: usize = 4096;

/// Places in the probe file, written in turn.
const PLACE_COUNT: u32 = 256;

/// The result of a burst of syncs.
#[derive(Debug, Clone, PartialEq)]
pub struct Witness {
    /// The measurements.
    pub burst: Burst,
    /// The verdict from the burst and the report.
    pub verdict: Verdict,
    /// The alignment for `O_DIRECT` in the probe file.
    pub direct: Fact<DirectAlign>,
    /// The largest atomic write to the probe file, in bytes; 0 is none.
    pub atomic_write_bytes_max: Fact<u64>,
}

/// A burst of commits: each 4 KiB over written zeroes, then one `fdatasync`, by one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burst {
    /// The number of commits.
    pub commits: u32,
    /// The time of each, write and sync.
    pub latency: Quantiles,
    /// The counts of each disk, including the work of all programs.
    pub disks: Vec<DiskCount>,
}

impl Burst {
    /// The counts of one disk.
    #[must_use]
    pub fn disk(&self, number: DeviceNumber) -> Option<&DiskCount> {
        self.disks.iter().find(|disk| disk.number == number)
    }

    /// Flushes per sync, on the disk with the fewest; `None` if one of them does not count its flushes.
    #[must_use]
    pub fn flushes_per_sync(&self) -> Option<f64> {
        let fewest = self.disks.iter().map(|disk| disk.flushes).min()??;
        Some(fewest as f64 / f64::from(self.commits))
    }

    /// Writes of all disks per sync. An empty flush may count as one, and a mirror writes twice.
    #[must_use]
    pub fn writes_per_sync(&self) -> Option<f64> {
        let all: Option<u64> = self.disks.iter().map(|disk| disk.writes).sum();
        let all = all.filter(|_| !self.disks.is_empty())?;
        Some(all as f64 / f64::from(self.commits))
    }

    /// Bytes written to all disks per sync.
    #[must_use]
    pub fn bytes_per_sync(&self) -> Option<f64> {
        let all: Option<u64> = self.disks.iter().map(|disk| disk.bytes).sum();
        let all = all.filter(|_| !self.disks.is_empty())?;
        Some(all as f64 / f64::from(self.commits))
    }
}

/// How long the commits of a burst took (write and sync), as quantiles in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// The fastest.
    pub min_ns: u64,
    /// Half were faster.
    pub p50_ns: u64,
    /// Nine of ten were faster.
    pub p90_ns: u64,
    /// Ninety-nine of a hundred were faster; of a short burst the slowest.
    pub p99_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// The counts of one disk during a burst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCount {
    /// The disk.
    pub number: DeviceNumber,
    /// Its name.
    pub name: String,
    /// Flushes completed; `None` if it does not count them.
    pub flushes: Option<u64>,
    /// Writes completed; `None` if it does not count them.
    pub writes: Option<u64>,
    /// Bytes of these writes; `None` if it does not count them.
    pub bytes: Option<u64>,
}

/// Writes `commits` small commits to a file in the report's directory; returns what reached the disks.
///
/// Takes 1 MiB of space while it runs, and a sync for each commit: 32 take 10 ms on a fast disk and half a
/// second on a slow one. The file is `.duramen-witness-` with a random number, mode 0600. Only `kill -9`
/// prevents its removal.
///
/// # Errors
/// `InvalidInput` for no commits or more than [`COMMITS_MAX`]; errors of the file: `PermissionDenied`,
/// `ReadOnlyFilesystem`, `StorageFull`, ... A failed sync is an error too, and as significant as any verdict.
pub fn witness(host: &Host, disk: &dyn Disk, report: &Report, commits: u32) -> io::Result<Witness> {
    if commits == 0 || commits > COMMITS_MAX {
        let text = format!("{commits} commits; a burst has 1 to {COMMITS_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let path = report.path.join(format!("{WITNESS_PREFIX}{:016x}", disk.random()));
    let file = disk.open(&path, Access::CREATE)?;
    let measured = measure(host, disk, report, &*file, commits);
    let facts = host.kernel.path_facts(&path).ok();
    drop(file);
    let removed = disk.remove(&path);
    let burst = measured?;
    removed?;
    let why = "statx tells nothing of a file here";
    Ok(Witness {
        verdict: judge(report, Some(&burst)),
        burst,
        direct: Fact::told(facts.as_ref().and_then(|facts| facts.direct), "statx of a file", why),
        atomic_write_bytes_max: Fact::told(
            facts.and_then(|facts| facts.atomic_write_bytes_max),
            "statx of a file",
            why,
        ),
    })
}

fn measure(
    host: &Host,
    disk: &dyn Disk,
    report: &Report,
    file: &dyn File,
    commits: u32,
) -> io::Result<Burst> {
    write_zeroes(file, 0, u64::from(PLACE_COUNT) * COMMIT_BYTES as u64)?;
    file.sync_data()?;
    let meter = Meter::new(host, report);
    let before = meter.read();
    let mut each_ns = Vec::with_capacity(commits as usize);
    // Bytes that no device can compress or deduplicate.
    let mut bytes = [0u8; COMMIT_BYTES];
    let mut state = disk.random() | 1;
    for commit in 0..commits {
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_le_bytes()[0];
        }
        let offset = u64::from(commit % PLACE_COUNT) * COMMIT_BYTES as u64;
        let start_ns = disk.monotonic_ns();
        file.write_at(&bytes, offset)?;
        file.sync_data()?;
        each_ns.push(disk.monotonic_ns().saturating_sub(start_ns));
    }
    let counted = meter.read();
    let disks = report.disks().zip(counted.each_since(&before)).map(|(disk, counted)| DiskCount {
        number: disk.number,
        name: disk.name.clone(),
        flushes: counted.flushes,
        writes: counted.writes,
        bytes: counted.bytes,
    });
    let disks = disks.collect();
    Ok(Burst { commits, latency: Quantiles::of(each_ns), disks })
}

impl Quantiles {
    /// Without commits: all zero.
    fn of(mut each_ns: Vec<u64>) -> Quantiles {
        each_ns.sort_unstable();
        let at = |percent: usize| {
            let index = (each_ns.len() * percent).div_ceil(100).saturating_sub(1);
            each_ns.get(index).copied().unwrap_or_default()
        };
        Quantiles { min_ns: at(0), p50_ns: at(50), p90_ns: at(90), p99_ns: at(99), max_ns: at(100) }
    }
}
