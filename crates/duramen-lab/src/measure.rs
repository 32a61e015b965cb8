//! The cost of one durable write in a directory: a sync benchmark.
//!
//! Compares methods of making a record durable, with every call timed. Also measures how often to sync
//! ([`intervals`]), how many threads share syncs ([`parallel()`]), and jobs of reads and writes ([`Mix`]).
//!
//! Owns the strategies and the files they write; [`Summary`] holds the results. The probe judges a disk;
//! nothing here does. Times are nanoseconds of [`Disk::monotonic_ns`].

mod drift;
mod fresh;
mod interval;
mod lane;
mod mix;
mod parallel;
mod room;
mod scratch;
mod summary;
mod tally;
mod workers;

use std::io;
use std::path::Path;
use std::time::Duration;

pub use drift::{Baseline, COUNT_MIN, Course, LAST_COUNT, baseline, course};
pub use interval::{Interval, intervals};
pub use lane::{LANE_BYTES_MAX, Lane};
pub use mix::{Job, Mix, Outcome, Pattern};
pub use parallel::{Crowd, CrowdTurn, GAIN_MIN, ParallelPlan, Rates, Sharing, parallel, stops_paying};
pub use room::{SPARE_BYTES, room_or_refuse};
pub use summary::{Summary, quantile};
pub use tally::Tally;

use duramen_disk::{Disk, OsDisk, SyncMethod};

/// A method to write one record and wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The file grows with each record; then `fdatasync`, which must also write the file's new length.
    AppendFdatasync,
    /// Length set ahead, blocks unwritten; then `fdatasync`, which must also write the block map.
    ExtendedFdatasync,
    /// Over zeroes that were written and synced before; then `fdatasync`. The default of Duramen's log.
    ZeroedFdatasync,
    /// Over zeroes, in a file opened with `O_DSYNC`.
    ZeroedOpenDsync,
    /// Over zeroes, by a write that carries `RWF_DSYNC`.
    ZeroedDsync,
    /// Over zeroes, past the kernel's cache (`O_DIRECT`), by a write that carries `RWF_DSYNC`.
    ZeroedDirectDsync,
    /// Over zeroes; then `sync_file_range`, which does not flush the device's cache.
    ZeroedRangeSync,
    /// Over zeroes, without waiting.
    NoSync,
}

impl Strategy {
    /// All, in the order in which they are shown.
    pub const ALL: [Strategy; 8] = [
        Strategy::AppendFdatasync,
        Strategy::ExtendedFdatasync,
        Strategy::ZeroedFdatasync,
        Strategy::ZeroedOpenDsync,
        Strategy::ZeroedDsync,
        Strategy::ZeroedDirectDsync,
        Strategy::ZeroedRangeSync,
        Strategy::NoSync,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Strategy::AppendFdatasync => "append + fdatasync",
            Strategy::ExtendedFdatasync => "set_len + fdatasync",
            Strategy::ZeroedFdatasync => "zeroed + fdatasync",
            Strategy::ZeroedOpenDsync => "zeroed + O_DSYNC",
            Strategy::ZeroedDsync => "zeroed + RWF_DSYNC",
            Strategy::ZeroedDirectDsync => "zeroed + O_DIRECT + DSYNC",
            Strategy::ZeroedRangeSync => "zeroed + sync_file_range",
            Strategy::NoSync => "no sync",
        }
    }

    /// Whether the record survives a power cut once the call has returned, on a disk that honours flush.
    #[must_use]
    pub fn is_durable(self) -> bool {
        !matches!(self, Strategy::ZeroedRangeSync | Strategy::NoSync)
    }

    /// The engine's sync method that makes the same calls.
    #[must_use]
    pub fn sync_method(self) -> Option<SyncMethod> {
        match self {
            Strategy::ZeroedFdatasync => Some(SyncMethod::Fdatasync),
            Strategy::ZeroedDsync => Some(SyncMethod::Dsync),
            Strategy::ZeroedDirectDsync => Some(SyncMethod::DirectDsync),
            _ => None,
        }
    }

    /// When it loses acknowledged data.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Strategy::ZeroedRangeSync => Some(
                "loses acknowledged data at a power cut on a disk with a volatile cache, on copying file systems \
                 (btrfs, zfs), and on blocks that were never written",
            ),
            Strategy::NoSync => Some("loses whatever the kernel had not written when the power went"),
            _ => None,
        }
    }
}

/// The extent of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Rounds. In each, every strategy has one turn.
    pub rounds: u32,
    /// How long a turn lasts.
    pub turn: Duration,
    /// Records after which a turn ends early.
    pub turn_records_max: u32,
    /// Bytes of each strategy's file at most, [`LANE_BYTES_MAX`] or less; one record at least.
    pub lane_bytes_max: u64,
    /// Room that must be left beside the files.
    pub spare_bytes: u64,
}

/// The results of one strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series<C> {
    /// The strategy.
    pub strategy: Strategy,
    /// Why there are no results: the system refused.
    pub refused: Option<String>,
    /// The nanoseconds of each record, by round.
    pub rounds: Vec<Vec<u64>>,
    /// The device's counters before and after each round.
    pub counters: Vec<(C, C)>,
}

impl<C> Series<C> {
    /// The nanoseconds of all records.
    #[must_use]
    pub fn samples(&self) -> Vec<u64> {
        self.rounds.concat()
    }

    /// The smallest and the largest median of a round, in nanoseconds: how far the rounds agree.
    #[must_use]
    pub fn spread(&self) -> Option<(u64, u64)> {
        let medians = self.rounds.iter().filter_map(|round| {
            let mut round = round.clone();
            round.sort_unstable();
            quantile(&round, 0.5)
        });
        medians.fold(None, |spread, median| {
            let (least, most) = spread.unwrap_or((median, median));
            Some((least.min(median), most.max(median)))
        })
    }
}

/// Measures strategies in a directory, interleaved.
///
/// In each round every strategy has a turn, a different one first.
///
/// `counters` is called before and after each turn. `told` is called with the round and the strategy before
/// its turn; if it returns `false`, the measurement ends. Files are removed at the end.
///
/// # Errors
/// `StorageFull` if the files would not leave the plan's room, before anything is written; errors of making
/// or writing files. A strategy that the system does not offer is no error.
pub fn run<C>(
    directory: &Path,
    strategies: &[Strategy],
    plan: &Plan,
    counters: &mut dyn FnMut() -> C,
    told: &mut dyn FnMut(u32, Strategy) -> bool,
) -> io::Result<Vec<Series<C>>> {
    let file_bytes = Lane::file_bytes(plan.record_bytes, plan.turn_records_max, plan.lane_bytes_max);
    room_or_refuse(directory, file_bytes.saturating_mul(strategies.len() as u64), plan.spare_bytes)?;
    let records = u32::try_from(file_bytes / plan.record_bytes as u64).unwrap_or(u32::MAX);
    let mut lanes = Vec::new();
    for &strategy in strategies {
        let series = Series { strategy, refused: None, rounds: Vec::new(), counters: Vec::new() };
        lanes.push(match Lane::prepare(directory, strategy, plan.record_bytes, records) {
            Ok(lane) => (Some(lane), series),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                (None, Series { refused: Some(error.to_string()), ..series })
            }
            Err(error) => return Err(error),
        });
    }
    for round in 0..plan.rounds {
        let count = lanes.len();
        for index in 0..count {
            let (lane, series) = &mut lanes[(index + round as usize) % count];
            let Some(lane) = lane else { continue };
            if !told(round, series.strategy) {
                return Ok(lanes.into_iter().map(|(_, series)| series).collect());
            }
            let before = counters();
            series.rounds.push(turn(lane, plan)?);
            series.counters.push((before, counters()));
            lane.settle()?;
        }
    }
    Ok(lanes.into_iter().map(|(_, series)| series).collect())
}

fn turn(lane: &mut Lane, plan: &Plan) -> io::Result<Vec<u64>> {
    let clock = OsDisk::new();
    let is_over = || u128::from(clock.monotonic_ns()) >= plan.turn.as_nanos();
    let mut samples = Vec::new();
    while samples.len() < plan.turn_records_max as usize && (samples.is_empty() || !is_over()) {
        samples.push(lane.write()?);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests;
