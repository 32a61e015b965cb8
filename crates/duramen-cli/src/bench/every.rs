//! `duramen bench sync --every`: the time to write a file of records, by how often it is synced, and where that begins to
//! cost.

use std::time::Duration;

use duramen::measure::{Interval, Summary, intervals};
use duramen::{Document, Value, doc};

use crate::args::BenchSyncArgs;
use crate::failure::{Failure, Result};
use crate::numbers::{bytes, counted, grouped, time};
use crate::output::{Output, align_right, new_table};
use crate::signals::Signals;

use super::table::bar;

/// An interval from which on writing takes this many times as long as with one sync at the end is where syncing costs.
const KNEE_TIMES: u64 = 2;

/// The median time of an interval.
struct Row {
    interval: Interval,
    summary: Summary,
}

pub(super) fn run(args: &BenchSyncArgs, signals: &Signals, out: Output) -> Result<()> {
    let file_bytes = args.total_mib << 20;
    out.note(&format!(
        "{} of writing {} in records of {} bytes, by how often it is synced",
        counted(u64::from(args.trials), "trial"),
        bytes(file_bytes),
        args.record
    ));
    let mut go_on = |_, _| signals.received().is_none();
    let all = intervals(&args.dir, file_bytes, args.record, args.trials, &mut go_on)
        .map_err(|error| Failure::io("measure in", &args.dir, &error))?;
    let rows: Vec<Row> = all
        .iter()
        .filter_map(|(interval, samples)| {
            Summary::of(samples).map(|summary| Row { interval: *interval, summary })
        })
        .collect();
    if out.is_json() {
        return out.object("bench-sync-every", as_json(args, file_bytes, &rows));
    }
    let slowest = rows.iter().map(|row| row.summary.p50).max().unwrap_or(1);
    let mut table = new_table(&["a sync", "p50", "fastest", "slowest", "MiB/s", "syncs", ""]);
    for row in &rows {
        let seconds = Duration::from_nanos(row.summary.p50).as_secs_f64();
        table.add_row([
            name(row.interval),
            time(Duration::from_nanos(row.summary.p50)),
            time(Duration::from_nanos(row.summary.min)),
            time(Duration::from_nanos(row.summary.max)),
            format!("{:.0}", args.total_mib as f64 / seconds.max(1e-9)),
            grouped(row.interval.syncs(file_bytes)),
            bar(row.summary.p50, slowest),
        ]);
    }
    align_right(&mut table, 1..=5);
    out.table(&table)?;
    out.line(&match knee(&rows) {
        Some(interval) => format!(
            "the knee: with a sync {} writing takes {KNEE_TIMES} times as long as with one at the end, or longer",
            name(interval)
        ),
        None => format!("no knee: no interval takes {KNEE_TIMES} times as long as one sync at the end"),
    })
}

/// The first interval at which syncing costs.
fn knee(rows: &[Row]) -> Option<Interval> {
    let once = rows.iter().find(|row| row.interval == Interval::AtEnd)?.summary.p50;
    let later = rows.iter().filter(|row| matches!(row.interval, Interval::Every(_)));
    let costly = later.filter(|row| row.summary.p50 >= KNEE_TIMES * once);
    costly.map(|row| row.interval).next()
}

fn name(interval: Interval) -> String {
    match interval {
        Interval::Never => "never".to_owned(),
        Interval::AtEnd => "at the end".to_owned(),
        Interval::Every(count) => format!("every {}", bytes(count)),
    }
}

fn as_json(args: &BenchSyncArgs, file_bytes: u64, rows: &[Row]) -> Document {
    let intervals: Vec<Value> = rows
        .iter()
        .map(|row| {
            let every = match row.interval {
                Interval::Every(bytes) => Value::from(bytes),
                Interval::Never | Interval::AtEnd => Value::Null,
            };
            Value::Map(doc! {
                "name": name(row.interval),
                "every_bytes": every,
                "syncs": row.interval.syncs(file_bytes),
                "p50_ns": row.summary.p50,
                "min_ns": row.summary.min,
                "max_ns": row.summary.max,
            })
        })
        .collect();
    doc! {
        "directory": args.dir.display().to_string(),
        "file_bytes": file_bytes,
        "record_bytes": args.record as u64,
        "trials": u64::from(args.trials),
        "intervals": intervals,
        "knee": knee(rows).map(name),
    }
}

#[cfg(test)]
mod tests {
    //! The knee is where it begins to cost, not where it costs most.
    use super::*;

    #[test]
    fn the_knee_is_the_first_interval_that_costs() {
        let rows = |times: &[u64]| -> Vec<Row> {
            let all = Interval::ALL.into_iter().zip(times);
            all.filter_map(|(interval, ns)| Summary::of(&[*ns]).map(|summary| Row { interval, summary }))
                .collect()
        };
        assert_eq!(knee(&rows(&[10, 100, 105, 110, 150, 199, 201, 400])), Some(Interval::Every(256 << 10)));
        assert_eq!(knee(&rows(&[10, 100, 105, 110])), None);
        assert_eq!(knee(&rows(&[10])), None);
    }
}
