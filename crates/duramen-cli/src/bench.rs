//! `duramen bench sync`: the sync laboratory. What each way of making a record durable costs in a directory.
//!
//! Owns the run and its result as JSON; [`table`] shows it. Interrupted, it shows what it has.

mod every;
pub(crate) mod table;

use std::path::Path;
use std::time::Duration;

use duramen::measure::{Plan, Series, Strategy, Summary, run};
use duramen::{Disk, Document, OsDisk, Value, doc};

use crate::args::BenchSyncArgs;
use crate::failure::{Failure, Result};
use crate::file_system;
use crate::numbers::{counted, time};
use crate::output::Output;
use crate::signals::Signals;

/// What one strategy came to.
pub(crate) struct Row {
    strategy: Strategy,
    refused: Option<String>,
    summary: Option<Summary>,
    /// The smallest and the largest median of a round, in nanoseconds.
    spread: Option<(u64, u64)>,
}

/// Measures, and shows the figures.
pub(crate) fn sync(args: &BenchSyncArgs, out: Output) -> Result<()> {
    if !args.anyway {
        file_system::check(
            &args.dir,
            "its syncs mean nothing there: name a directory on a disk, or say --anyway",
        )?;
    }
    let signals = Signals::watch()?;
    if args.every {
        every::run(args, &signals, out)?;
        return signals.received().map_or(Ok(()), |signal| Err(Failure::signal(signal)));
    }
    let plan = Plan {
        record_bytes: args.record,
        rounds: args.rounds,
        turn: Duration::from_millis(args.turn_ms),
        turn_records_max: args.turn_records,
    };
    let strategies = &Strategy::ALL;
    let lasts = plan.turn * plan.rounds * u32::try_from(strategies.len()).unwrap_or(u32::MAX);
    out.note(&format!(
        "{} of {} ways to make {} bytes durable in {}, about {}",
        counted(u64::from(plan.rounds), "round"),
        strategies.len(),
        plan.record_bytes,
        args.dir.display(),
        time(lasts),
    ));
    let mut go_on = |_, _| signals.received().is_none();
    let all = run(&args.dir, strategies, &plan, &mut || (), &mut go_on)
        .map_err(|error| Failure::io("measure in", &args.dir, &error))?;
    let rows: Vec<Row> = all.iter().map(Row::of).collect();
    let file_system =
        OsDisk::new().file_system(&args.dir).map_or_else(|_| "unknown".to_owned(), |found| found.name);
    if out.is_json() {
        out.object("bench-sync", as_json(&args.dir, &file_system, &plan, &rows))?;
    } else {
        out.line(&format!(
            "{} on {file_system}, records of {} bytes",
            args.dir.display(),
            plan.record_bytes
        ))?;
        out.table(&table::of(&rows))?;
        for line in table::words(&rows) {
            out.line(&line)?;
        }
    }
    match signals.received() {
        Some(signal) => Err(Failure::signal(signal)),
        None => Ok(()),
    }
}

impl Row {
    pub(crate) fn of<C>(series: &Series<C>) -> Row {
        Row {
            strategy: series.strategy,
            refused: series.refused.clone(),
            summary: Summary::of(&series.samples()),
            spread: series.spread(),
        }
    }
}

fn as_json(directory: &Path, file_system: &str, plan: &Plan, rows: &[Row]) -> Document {
    let strategies: Vec<Value> = rows.iter().map(|row| Value::Map(row_as_json(row))).collect();
    doc! {
        "directory": directory.display().to_string(),
        "file_system": file_system,
        "record_bytes": plan.record_bytes as u64,
        "rounds": u64::from(plan.rounds),
        "strategies": strategies,
    }
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
    if let Some((least, most)) = row.spread {
        out.set("round_p50_ns", vec![Value::from(least), Value::from(most)]);
    }
    out
}
