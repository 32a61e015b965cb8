//! The strategies for making a record durable, side by side: measured, and as JSON.
//!
//! Owns the figures of one strategy, which `doctor` shows too.

use std::path::Path;
use std::time::Duration;

use duramen::probe::{Counted, Fact, Host, Meter, Reading, Report};
use duramen::sync_choice::{Typical, is_proven, preferred};
use duramen::{Document, Value, doc};
use duramen_lab::measure::{LANE_BYTES_MAX, Plan, SPARE_BYTES, Series, Strategy, Summary, run};

use super::{failed, table};
use crate::args::BenchSyncArgs;
use crate::failure::Result;
use crate::output::{Output, printable};
use crate::signals::Signals;

const ROUNDS: u32 = 7;
const TURN_MS: u64 = 500;
const TURN_RECORDS_MAX: u32 = 100_000;

/// The results of one strategy.
pub(crate) struct Row {
    pub(crate) strategy: Strategy,
    pub(super) refused: Option<String>,
    pub(crate) summary: Option<Summary>,
    /// The smallest and the largest median of a round, in nanoseconds.
    pub(super) spread: Option<(u64, u64)>,
    /// What the disks counted during its turns, including the work of other programs.
    counted: Counted,
}

/// What the disks counted per record; `None` if not counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PerRecord {
    pub(super) writes: Option<f64>,
    pub(super) bytes: Option<f64>,
    pub(super) flushes: Option<f64>,
}

impl Row {
    pub(crate) fn of(series: &Series<Reading>) -> Row {
        let turns = series.counters.iter().map(|(before, after)| after.since(before));
        Row {
            strategy: series.strategy,
            refused: series.refused.clone(),
            summary: Summary::of(&series.samples()),
            spread: series.spread(),
            counted: turns.reduce(Counted::and).unwrap_or_default(),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "counts of some seconds are far below 2^53")]
    pub(super) fn per_record(&self) -> PerRecord {
        let records = self.summary.map_or(1, |summary| summary.count) as f64;
        let share = |counted: Option<u64>| counted.map(|counted| counted as f64 / records);
        PerRecord {
            writes: share(self.counted.writes),
            bytes: share(self.counted.bytes),
            flushes: share(self.counted.flushes),
        }
    }
}

/// The results of all strategies.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) rows: Vec<Row>,
    /// The nanoseconds of each row's records.
    pub(super) samples: Vec<Vec<u64>>,
    /// The source of the counts of device writes.
    pub(super) source: Fact<String>,
}

pub(super) fn plan(args: &BenchSyncArgs) -> Plan {
    Plan {
        record_bytes: args.record,
        rounds: args.rounds.unwrap_or(ROUNDS),
        turn: turn(args),
        turn_records_max: args.turn_records.unwrap_or(TURN_RECORDS_MAX),
        lane_bytes_max: LANE_BYTES_MAX,
        spare_bytes: SPARE_BYTES,
    }
}

/// The duration of each turn.
pub(super) fn turn(args: &BenchSyncArgs) -> Duration {
    Duration::from_millis(args.turn_ms.unwrap_or(TURN_MS))
}

/// The maximum duration of a plan, without creating the files.
pub(super) fn lasts(plan: &Plan) -> Duration {
    plan.turn * plan.rounds * u32::try_from(Strategy::ALL.len()).unwrap_or(u32::MAX)
}

pub(super) fn measure(
    args: &BenchSyncArgs,
    host: &Host,
    report: &Report,
    signals: &Signals,
) -> Result<Found> {
    let plan = plan(args);
    let meter = Meter::new(host, report);
    let mut go_on = |_, _| signals.received().is_none();
    let all = run(&args.dir, &Strategy::ALL, &plan, &mut || meter.read(), &mut go_on)
        .map_err(|error| failed(args, &error))?;
    Ok(Found {
        plan,
        rows: all.iter().map(Row::of).collect(),
        samples: all.iter().map(Series::samples).collect(),
        source: meter.source(),
    })
}

impl Found {
    pub(super) fn show(&self, directory: &Path, file_system: &str, out: Output) -> Result<()> {
        out.line(&format!(
            "{} on {file_system}, records of {} bytes",
            printable(&directory.display().to_string()),
            self.plan.record_bytes
        ))?;
        out.table(&table::of(&self.rows))?;
        for line in table::words(&self.rows) {
            out.line(&line)?;
        }
        out.line(&table::counters(&self.source))
    }

    pub(super) fn as_json(&self, directory: &Path, file_system: &str) -> Document {
        let strategies: Vec<Value> = self.rows.iter().map(|row| Value::Map(row_as_json(row))).collect();
        doc! {
            "directory": directory.display().to_string(),
            "file_system": file_system,
            "record_bytes": self.plan.record_bytes as u64,
            "rounds": u64::from(self.plan.rounds),
            "device_counters": counters_as_json(&self.source),
            "strategies": strategies,
        }
    }
}

/// The strategy that a new database on this file system would use, and those it would choose from.
pub(crate) fn preferred_of<'a>(rows: &'a [Row], file_system: &str) -> Option<(&'a Row, Vec<&'a Row>)> {
    let is_proven =
        |row: &&Row| row.strategy.sync_method().is_some_and(|method| is_proven(method, file_system));
    let candidates: Vec<&Row> = rows.iter().filter(is_proven).filter(|row| row.summary.is_some()).collect();
    let typical: Vec<Typical> = candidates
        .iter()
        .filter_map(|row| {
            let (method, summary) = (row.strategy.sync_method()?, row.summary?);
            Some(Typical { method, p50: summary.p50, p90: summary.p90 })
        })
        .collect();
    let method = preferred(&typical)?;
    let chosen = candidates.iter().find(|row| row.strategy.sync_method() == Some(method)).copied()?;
    Some((chosen, candidates))
}

/// The source of the counts, or why there are none.
pub(crate) fn counters_as_json(source: &Fact<String>) -> Document {
    doc! { "counted": source.value.is_some(), "source": source.source.as_str() }
}

/// One strategy's figures.
pub(crate) fn row_as_json(row: &Row) -> Document {
    let mut out = doc! { "name": row.strategy.name(), "durable": row.strategy.is_durable() };
    if let Some(warning) = row.strategy.warning() {
        out.set("warning", warning);
    }
    if let Some(refused) = &row.refused {
        out.set("refused", refused.as_str());
    }
    let Some(summary) = &row.summary else { return out };
    summary_into(summary, &mut out);
    if let Some((least, most)) = row.spread {
        out.set("round_p50_ns", vec![Value::from(least), Value::from(most)]);
    }
    let device = row.per_record();
    for (name, value) in [
        ("device_writes_per_record", device.writes),
        ("device_bytes_per_record", device.bytes),
        ("device_flushes_per_record", device.flushes),
    ] {
        out.set(name, value.map_or(Value::Null, Value::from));
    }
    out
}

/// The figures of calls, in the form of every mode.
pub(super) fn summary_into(summary: &Summary, out: &mut Document) {
    out.set("count", summary.count as u64);
    out.set("avg_ns", summary.avg);
    out.set("stddev_ns", summary.stddev);
    out.set("outliers", summary.outliers as u64);
    for (name, value) in [
        ("min_ns", summary.min),
        ("p50_ns", summary.p50),
        ("p90_ns", summary.p90),
        ("p99_ns", summary.p99),
        ("p999_ns", summary.p999),
        ("p9999_ns", summary.p9999),
        ("max_ns", summary.max),
    ] {
        out.set(name, value);
    }
}
