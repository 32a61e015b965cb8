//! The tables of the report: every figure that the charts are drawn from.

use duramen_lab::report::{Table, Tone};

use crate::bench::table::{a_second, ns, share};
use crate::bench::{every, parallel, strategies};
use crate::numbers::grouped;

pub(super) fn strategies(found: &strategies::Found) -> Table {
    let head = [
        "way",
        "records",
        "a second",
        "avg",
        "stddev",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "outliers",
        "rounds p50",
        "device writes",
        "device KiB",
        "flushes",
    ];
    found.rows.iter().fold(Table::new(head), |table, row| {
        let tone = if row.strategy.is_durable() { Tone::Plain } else { Tone::Bad };
        let name = row.strategy.name();
        let name = if row.strategy.is_durable() { name.to_owned() } else { format!("{name} (not durable)") };
        let Some(summary) = row.summary else {
            let why = row.refused.clone().unwrap_or_else(|| "not measured".to_owned());
            return table.toned(tone, [name, why]);
        };
        let spread = row.spread.map(|(least, most)| format!("{} .. {}", ns(least), ns(most)));
        let device = row.per_record();
        table.toned(
            tone,
            [
                name,
                grouped(summary.count as u64),
                grouped(a_second(summary.avg)),
                of_float(summary.avg),
                of_float(summary.stddev),
                ns(summary.min),
                ns(summary.p50),
                ns(summary.p90),
                ns(summary.p99),
                ns(summary.p999),
                ns(summary.p9999),
                ns(summary.max),
                grouped(summary.outliers as u64),
                spread.unwrap_or_default(),
                share(device.writes),
                share(device.bytes.map(|bytes| bytes / 1024.0)),
                share(device.flushes),
            ],
        )
    })
}

pub(super) fn intervals(found: &every::Found) -> Table {
    let knee = found.knee();
    let table = Table::new(["a sync", "p50", "fastest", "slowest", "MiB/s", "syncs"]);
    found.rows.iter().fold(table, |table, row| {
        let tone = if Some(row.interval) == knee { Tone::Warn } else { Tone::Plain };
        table.toned(
            tone,
            [
                every::name(row.interval),
                ns(row.summary.p50),
                ns(row.summary.min),
                ns(row.summary.max),
                format!("{:.0}", found.mib_a_second(row)),
                grouped(found.syncs(row)),
            ],
        )
    })
}

pub(super) fn parallel(found: &parallel::Found) -> Table {
    let table =
        Table::new(["threads and files", "syncs/s", "slowest round", "fastest round", "p50", "p99", "max"]);
    found.rows.iter().fold(table, |table, row| {
        table.row([
            format!("{} in {}", row.threads, row.sharing.name()),
            grouped(row.rates.median),
            grouped(row.rates.least),
            grouped(row.rates.most),
            ns(row.summary.p50),
            ns(row.summary.p99),
            ns(row.summary.max),
        ])
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in nanoseconds")]
fn of_float(nanoseconds: f64) -> String {
    ns(nanoseconds.round() as u64)
}
