//! `duramen bench sync --every`: the time to write a file of records by sync interval, and the interval at
//! which syncs begin to cost.

use std::time::Duration;

use duramen::{Disk, Document, OsDisk, Value, doc};
use duramen_lab::measure::{Interval, Summary, intervals};

use crate::args::BenchSyncArgs;
use crate::failure::Result;
use crate::numbers::{bytes, grouped, time};
use crate::output::{Output, align_right, new_table};
use crate::signals::Signals;

use super::failed;
use super::table::bar;

/// Syncing costs from the interval at which writing takes this many times as long as with a single sync at
/// the end.
const KNEE_TIMES: u64 = 2;

/// Sizes of the file in a whole report, in MiB. The largest that fits into [`REPORT_LASTS`] is used.
const REPORT_MIB: [u64; 5] = [64, 32, 16, 8, 4];
const REPORT_LASTS: Duration = Duration::from_secs(60);

/// After this time only the first trial is finished.
pub(super) const REPORT_ENDS_AFTER: Duration = Duration::from_secs(90);

/// The assumed rate of writing through the kernel's cache, guessed low, to estimate the duration of a report.
const GUESSED_BYTES_A_SECOND: u64 = 400_000_000;

const FILE_MIB: u64 = 1024;
const TRIALS: u32 = 3;

/// The times of an interval's trials.
pub(super) struct Row {
    pub(super) interval: Interval,
    pub(super) summary: Summary,
}

/// The results.
pub(super) struct Found {
    pub(super) file_bytes: u64,
    record_bytes: usize,
    pub(super) rows: Vec<Row>,
}

/// The size of the file: the requested or default size, or in a whole report what fits into about a minute at
/// this sync time.
pub(super) fn file_bytes(args: &BenchSyncArgs, report_sync: Option<Duration>) -> u64 {
    let mib = match (args.total_mib, report_sync) {
        (Some(mib), _) => mib,
        (None, None) => FILE_MIB,
        (None, Some(sync)) => {
            let fits = |mib: &&u64| lasts(args, **mib << 20, sync) <= REPORT_LASTS;
            *REPORT_MIB.iter().find(fits).unwrap_or(&REPORT_MIB[REPORT_MIB.len() - 1])
        }
    };
    (mib << 20).next_multiple_of(args.record as u64)
}

/// The number of trials of each interval.
pub(super) fn trials(args: &BenchSyncArgs) -> u32 {
    args.trials.unwrap_or(TRIALS)
}

/// The approximate duration of all trials.
pub(super) fn lasts(args: &BenchSyncArgs, file_bytes: u64, sync: Duration) -> Duration {
    let syncs: u64 =
        Interval::of_records(args.record).map(|interval| interval.syncs(file_bytes, args.record)).sum();
    let syncs = u32::try_from(syncs).unwrap_or(u32::MAX);
    let bytes_ns = file_bytes.saturating_mul(1_000_000_000) / GUESSED_BYTES_A_SECOND;
    let writes =
        Duration::from_nanos(bytes_ns.saturating_mul(Interval::of_records(args.record).count() as u64));
    sync.saturating_mul(syncs).saturating_add(writes).saturating_mul(trials(args))
}

/// Runs the trials. A whole report begins none after `ends_after`, because estimates on a shared disk are
/// unreliable.
pub(super) fn measure(
    args: &BenchSyncArgs,
    file_bytes: u64,
    ends_after: Option<Duration>,
    signals: &Signals,
) -> Result<Found> {
    let clock = OsDisk::new();
    let is_over = || ends_after.is_some_and(|most| u128::from(clock.monotonic_ns()) > most.as_nanos());
    let mut go_on = |trial, _| signals.received().is_none() && (trial == 0 || !is_over());
    let all = intervals(&args.dir, file_bytes, args.record, trials(args), &mut go_on)
        .map_err(|error| failed(args, &error))?;
    let rows = all.iter().filter_map(|(interval, samples)| {
        Summary::of(samples).map(|summary| Row { interval: *interval, summary })
    });
    Ok(Found { file_bytes, record_bytes: args.record, rows: rows.collect() })
}

impl Found {
    pub(super) fn show(&self, out: Output) -> Result<()> {
        let slowest = self.rows.iter().map(|row| row.summary.p50).max().unwrap_or(1);
        let mut table = new_table(&["a sync", "p50", "fastest", "slowest", "MiB/s", "syncs", ""]);
        for row in &self.rows {
            let [p50, fastest, slowest_trial] =
                [row.summary.p50, row.summary.min, row.summary.max].map(|ns| time(Duration::from_nanos(ns)));
            table.add_row([
                name(row.interval),
                p50,
                fastest,
                slowest_trial,
                format!("{:.0}", self.mib_a_second(row)),
                grouped(self.syncs(row)),
                bar(row.summary.p50, slowest),
            ]);
        }
        align_right(&mut table, 1..=5);
        out.table(&table)?;
        out.line(&self.words())
    }

    /// The number of syncs of one trial.
    pub(super) fn syncs(&self, row: &Row) -> u64 {
        row.interval.syncs(self.file_bytes, self.record_bytes)
    }

    /// How fast the file was written.
    #[allow(clippy::cast_precision_loss, reason = "a number of MiB")]
    pub(super) fn mib_a_second(&self, row: &Row) -> f64 {
        let seconds = Duration::from_nanos(row.summary.p50).as_secs_f64();
        (self.file_bytes >> 20) as f64 / seconds.max(1e-9)
    }

    /// Where syncing begins to cost, as text.
    pub(super) fn words(&self) -> String {
        match self.knee() {
            Some(interval) => format!(
                "the knee: with a sync {} writing takes {KNEE_TIMES} times as long as with one at the end, or longer",
                name(interval)
            ),
            None => {
                format!("no knee: no interval takes {KNEE_TIMES} times as long as one sync at the end")
            }
        }
    }

    pub(super) fn knee(&self) -> Option<Interval> {
        knee(&self.rows, self.file_bytes)
    }

    pub(super) fn as_json(&self, args: &BenchSyncArgs) -> Document {
        let intervals: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let every = match row.interval {
                    Interval::Every(bytes) => Value::from(bytes),
                    Interval::Never | Interval::AtEnd => Value::Null,
                };
                Value::Map(doc! {
                    "name": name(row.interval),
                    "every_bytes": every,
                    "syncs": self.syncs(row),
                    "p50_ns": row.summary.p50,
                    "min_ns": row.summary.min,
                    "max_ns": row.summary.max,
                })
            })
            .collect();
        doc! {
            "directory": args.dir.display().to_string(),
            "file_bytes": self.file_bytes,
            "record_bytes": args.record as u64,
            "trials": u64::from(trials(args)),
            "intervals": intervals,
            "knee": self.knee().map(name),
        }
    }
}

/// The first interval at which syncing costs. An interval larger than the file is one sync at the end.
fn knee(rows: &[Row], file_bytes: u64) -> Option<Interval> {
    let once = rows.iter().find(|row| row.interval == Interval::AtEnd)?.summary.p50;
    let later =
        rows.iter().filter(|row| matches!(row.interval, Interval::Every(bytes) if bytes < file_bytes));
    let costly = later.filter(|row| row.summary.p50 >= KNEE_TIMES * once);
    costly.map(|row| row.interval).next()
}

pub(super) fn name(interval: Interval) -> String {
    match interval {
        Interval::Never => "never".to_owned(),
        Interval::AtEnd => "at the end".to_owned(),
        Interval::Every(count) => format!("every {}", bytes(count)),
    }
}

#[cfg(test)]
mod tests {
    //! The knee is where syncing begins to cost, not where it costs most.
    use super::*;

    #[test]
    fn the_knee_is_the_first_interval_that_costs() {
        let rows = |times: &[u64]| -> Vec<Row> {
            let all = Interval::ALL.into_iter().zip(times);
            all.filter_map(|(interval, ns)| Summary::of(&[*ns]).map(|summary| Row { interval, summary }))
                .collect()
        };
        let gib = 1 << 30;
        let found = knee(&rows(&[10, 100, 105, 110, 150, 199, 201, 400]), gib);
        assert_eq!(found, Some(Interval::Every(256 << 10)));
        assert_eq!(knee(&rows(&[10, 100, 105, 110]), gib), None);
        assert_eq!(knee(&rows(&[10]), gib), None);
        // 100 MiB and 10 MiB do not fit into a file of 4 MiB: they differ from one sync at the end only by
        // noise.
        let found = knee(&rows(&[10, 100, 300, 300, 150, 201]), 4 << 20);
        assert_eq!(found, Some(Interval::Every(512 << 10)));
    }
}
