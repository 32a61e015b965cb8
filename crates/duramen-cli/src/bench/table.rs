//! The figures of `bench sync` for a terminal: a row and a small bar per strategy, and their meaning as text.

use std::time::Duration;

use comfy_table::Table;
use duramen::probe::Fact;

use super::strategies::Row;
use crate::numbers::{grouped, time};
use crate::output::{align_right, new_table};

const BAR_CELLS: u64 = 12;

/// Rounds that differ by this factor do not agree.
const UNSTEADY_TIMES: u64 = 2;

/// One row per strategy; the bar is the median relative to the slowest.
pub(crate) fn of(rows: &[Row]) -> Table {
    let slowest = rows.iter().filter_map(|row| row.summary.map(|summary| summary.p50)).max().unwrap_or(1);
    let mut table = new_table(&[
        "",
        "a second",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "rounds p50",
        "outliers",
        "device writes",
        "device KiB",
        "flushes",
        "",
    ]);
    for row in rows {
        let name = if row.strategy.is_durable() {
            row.strategy.name().to_owned()
        } else {
            format!("{} (not durable)", row.strategy.name())
        };
        let Some(summary) = row.summary else {
            table.add_row([name, row.refused.clone().unwrap_or_else(|| "not measured".to_owned())]);
            continue;
        };
        let spread =
            row.spread.map_or_else(String::new, |(least, most)| format!("{} .. {}", ns(least), ns(most)));
        table.add_row([
            name,
            grouped(a_second(summary.avg)),
            ns(summary.p50),
            ns(summary.p90),
            ns(summary.p99),
            ns(summary.p999),
            ns(summary.p9999),
            ns(summary.max),
            spread,
            grouped(summary.outliers as u64),
            share(row.per_record().writes),
            share(row.per_record().bytes.map(|bytes| bytes / 1024.0)),
            share(row.per_record().flushes),
            bar(summary.p50, slowest),
        ]);
    }
    align_right(&mut table, 1..=12);
    table
}

/// Warnings about the figures.
pub(super) fn words(rows: &[Row]) -> Vec<String> {
    let mut words: Vec<String> = rows
        .iter()
        .filter_map(|row| row.strategy.warning().map(|warning| format!("{} {warning}", row.strategy.name())))
        .collect();
    let durable = rows.iter().filter(|row| row.strategy.is_durable());
    let medians = durable.filter_map(|row| row.summary.map(|summary| (summary.p50, row.strategy)));
    if let Some((median, fastest)) = medians.min_by_key(|(median, _)| *median) {
        words.push(format!(
            "fastest that survives a power cut, where the disk honours flush: {}, {}",
            fastest.name(),
            ns(median)
        ));
    }
    words.extend(unsteady(rows.iter().filter_map(|row| row.spread)));
    words
}

/// A warning if the slowest and the fastest round of a strategy are far apart.
pub(super) fn unsteady(spreads: impl Iterator<Item = (u64, u64)>) -> Option<String> {
    let times = spreads.map(|(least, most)| most / least.max(1)).max()?;
    (times >= UNSTEADY_TIMES).then(|| {
        format!(
            "the rounds differ by up to {times} times: something else uses the disk, or it is unsteady; measure again when it is \
             quiet"
        )
    })
}

/// The meaning of the device's columns, and the source of their counts.
pub(crate) fn counters(source: &Fact<String>) -> String {
    if source.value.is_some() {
        return format!(
            "device writes, KiB and flushes: for each record, of all programs, counted by {}; many kernels count a flush as a \
             write too",
            source.source
        );
    }
    format!("device writes, KiB and flushes: unknown: {}", source.source)
}

/// A figure for each record.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1}"))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of calls is small and positive"
)]
pub(super) fn a_second(avg_ns: f64) -> u64 {
    (1e9 / avg_ns.max(1.0)) as u64
}

/// A time in the unit that fits.
pub(super) fn ns(nanoseconds: u64) -> String {
    time(Duration::from_nanos(nanoseconds))
}

/// A bar in eighths of a cell, so that a factor of twelve still shows.
pub(super) fn bar(value: u64, largest: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (value * BAR_CELLS * 8).div_ceil(largest.max(1)).max(1);
    let full = usize::try_from(eighths / 8).unwrap_or(0);
    format!("{}{}", "█".repeat(full), EIGHTHS[usize::try_from(eighths % 8).unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    //! A bar must be in proportion to the other bars.
    use super::*;

    #[test]
    fn rounds_that_do_not_agree_are_called_out() {
        assert_eq!(unsteady([(100, 199), (10, 10), (0, 1)].into_iter()), None);
        assert!(
            unsteady([(100, 110), (100, 350)].into_iter()).is_some_and(|told| told.contains("up to 3 times"))
        );
        assert_eq!(unsteady(std::iter::empty()), None);
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        assert_eq!(bar(100, 100), "█".repeat(12));
        assert_eq!(bar(50, 100), "█".repeat(6));
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(0, 0), "▏");
        assert_eq!(a_second(100_000.0), 10_000);
    }
}
