//! Syncs per second by the number of threads that make them: in one file for all, and in one file each.
//!
//! Owns the files and the turns. Each thread overwrites its own places, which were filled with zeroes and
//! synced before. It waits for `fdatasync` after each record. The result shows how syncs share the path to
//! the device.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fresh::freshen;
use super::room::{SPARE_BYTES, room_or_refuse, zero_fill};
use super::scratch::Scratch;
use super::summary::Summary;
use super::workers::together;
use duramen_disk::{Disk, File, OsDisk, SyncMethod};

/// More threads are not worth it if they gain less than this part per doubling.
pub const GAIN_MIN: f64 = 0.1;

/// Size of a thread's region, unless it holds so few records that each would meet the one before.
const REGION_BYTES: u64 = 1 << 20;
const REGION_RECORDS_MIN: u64 = 8;

/// Which file a thread writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// All write to one.
    OneFile,
    /// Each has its own.
    FileEach,
}

impl Sharing {
    /// Both, in the order in which they are shown.
    pub const ALL: [Sharing; 2] = [Sharing::OneFile, Sharing::FileEach];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sharing::OneFile => "one file",
            Sharing::FileEach => "a file each",
        }
    }
}

/// The extent of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParallelPlan {
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Rounds. In each, every number of threads has a turn with each kind of file.
    pub rounds: u32,
    /// The length of a turn; each thread writes at least one record.
    pub turn: Duration,
}

/// The results of one number of threads with one kind of file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowd {
    /// The number of threads.
    pub threads: u32,
    /// The kind of file.
    pub sharing: Sharing,
    /// The turns, one of each round.
    pub turns: Vec<CrowdTurn>,
}

/// The results of one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrowdTurn {
    /// From the start of the first thread to the end of the last, in nanoseconds.
    pub took_ns: u64,
    /// The nanoseconds of each record of all threads.
    pub samples: Vec<u64>,
}

impl CrowdTurn {
    fn rate(&self) -> u64 {
        let rate = self.samples.len() as u128 * 1_000_000_000 / u128::from(self.took_ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Syncs per second of all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// The median of the rounds; of an even number the middle of the two.
    pub median: u64,
    /// The slowest round.
    pub least: u64,
    /// The fastest round.
    pub most: u64,
}

impl Crowd {
    /// Syncs per second; `None` without a turn.
    #[must_use]
    pub fn rates(&self) -> Option<Rates> {
        let mut rates: Vec<u64> = self.turns.iter().map(CrowdTurn::rate).collect();
        rates.sort_unstable();
        let (least, most) = (*rates.first()?, *rates.last()?);
        let middle = rates.len() / 2;
        let median = if rates.len().is_multiple_of(2) {
            rates[middle - 1].midpoint(rates[middle])
        } else {
            rates[middle]
        };
        Some(Rates { median, least, most })
    }

    /// The figures of single calls, of all threads and rounds.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.turns.iter().flat_map(|turn| turn.samples.iter().copied()).collect::<Vec<_>>())
    }
}

/// The number of threads from which on more threads gain less than [`GAIN_MIN`] per doubling. `None` if the
/// largest number is still worth it, or if nothing was measured.
///
/// Compares with all larger numbers, not only the next, so that one weak step or noisy turn does not end the
/// search.
#[must_use]
pub fn stops_paying(rates: &[(u32, u64)]) -> Option<u32> {
    let (_, short_of_last) = rates.split_last()?;
    let pays = |threads: u32, rate: u64, (more, their): (u32, u64)| {
        let doublings = (f64::from(more) / f64::from(threads.max(1))).log2();
        their as f64 >= rate as f64 * (1.0 + GAIN_MIN).powf(doublings)
    };
    let stops = short_of_last
        .iter()
        .enumerate()
        .find(|(index, (threads, rate))| !rates[index + 1..].iter().any(|more| pays(*threads, *rate, *more)));
    stops.map(|(_, (threads, _))| *threads)
}

/// Measures each number of threads with both kinds of file, a different one first in each round.
///
/// `go_on` is called for each MiB that is filled, before each turn, and by every thread after each record. If
/// it returns `false`, the measurement ends and the unfinished turn is left out. Files are removed.
///
/// # Errors
/// `StorageFull` if the files would leave less than [`SPARE_BYTES`] of room, before anything is written;
/// other errors of the system, also for too many threads or files.
pub fn parallel(
    directory: &Path,
    plan: &ParallelPlan,
    go_on: &(dyn Fn() -> bool + Sync),
) -> io::Result<Vec<Crowd>> {
    let most = u64::from(plan.threads.iter().copied().max().unwrap_or(0).max(1));
    let region = REGION_BYTES.max(plan.record_bytes as u64 * REGION_RECORDS_MIN);
    room_or_refuse(directory, region.saturating_mul(2 * most), SPARE_BYTES)?;
    let scratches: Vec<Scratch> = (0..=most).map(|_| Scratch::make(directory)).collect::<io::Result<_>>()?;
    // All are opened before any is filled, so that too many open files are noticed at once.
    let files: Vec<Arc<dyn File>> =
        scratches.iter().map(|scratch| scratch.open(SyncMethod::Fdatasync)).collect::<io::Result<_>>()?;
    let mut crowds: Vec<Crowd> = plan
        .threads
        .iter()
        .flat_map(|&threads| Sharing::ALL.map(|sharing| Crowd { threads, sharing, turns: Vec::new() }))
        .collect();
    for (index, file) in files.iter().enumerate() {
        let bytes = if index == 0 { region * most } else { region };
        if !zero_fill(&**file, bytes, &mut || go_on())? {
            return Ok(crowds);
        }
    }
    let count = crowds.len();
    for round in 0..plan.rounds as usize {
        for index in 0..count {
            let crowd = &mut crowds[(index + round) % count];
            if !go_on() {
                return Ok(crowds);
            }
            let turn = turn(&files, crowd, region, plan, go_on)?;
            if go_on() {
                crowd.turns.push(turn);
            }
        }
    }
    Ok(crowds)
}

fn turn(
    files: &[Arc<dyn File>],
    crowd: &Crowd,
    region: u64,
    plan: &ParallelPlan,
    go_on: &(dyn Fn() -> bool + Sync),
) -> io::Result<CrowdTurn> {
    let clock = OsDisk::new();
    let turn_ns = u64::try_from(plan.turn.as_nanos()).unwrap_or(u64::MAX);
    let records = region / plan.record_bytes as u64;
    let work = |index: usize| -> io::Result<(u64, Vec<u64>)> {
        let (file, base) = match crowd.sharing {
            Sharing::OneFile => (&files[0], index as u64 * region),
            Sharing::FileEach => (&files[1 + index], 0),
        };
        let mut record = vec![0x5a_u8; plan.record_bytes];
        let mut samples = Vec::new();
        let started = clock.monotonic_ns();
        let mut now = started;
        while samples.is_empty() || (now - started < turn_ns && go_on()) {
            freshen(&mut record);
            let offset = base + samples.len() as u64 % records * plan.record_bytes as u64;
            let begun = clock.monotonic_ns();
            file.write_at(&record, offset)?;
            file.sync_data()?;
            now = clock.monotonic_ns();
            samples.push(now - begun);
        }
        Ok((now - started, samples))
    };
    let mut all = CrowdTurn { took_ns: 0, samples: Vec::new() };
    for ended in together(crowd.threads as usize, work)? {
        let (took_ns, samples) = ended?;
        // All begin together, so the one that took longest ended last.
        all.took_ns = all.took_ns.max(took_ns);
        all.samples.extend(samples);
    }
    Ok(all)
}
