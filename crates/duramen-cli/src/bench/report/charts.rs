//! The charts of the report.

use duramen_lab::measure::{Interval, Sharing};
use duramen_lab::report::{Axis, Bar, Bars, Histogram, Histograms, Line, Lines, Tone, Unit};

use crate::bench::strategies::{self, Row};
use crate::bench::table::ns;
use crate::bench::{every, parallel};
use crate::numbers::bytes;

const UNSAFE: &str = "not durable";

/// Records per second, by the mean: the rate of a single writer. A strategy that is not durable is left out:
/// its bar would dwarf all others.
pub(super) fn rates(found: &strategies::Found) -> Bars {
    let durable = found.rows.iter().filter(|row| row.strategy.is_durable());
    let bars = durable.filter_map(|row| {
        let summary = row.summary?;
        let note = format!("p50 {}, p99 {}", ns(summary.p50), ns(summary.p99));
        Some(Bar::new(row.strategy.name(), 1e9 / summary.avg.max(1.0)).note(Tone::Plain, note))
    });
    Bars::new("Durable records a second, one writer", Unit::PerSecond).group("", bars)
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a call are far below 2^53")]
pub(super) fn histograms(found: &strategies::Found) -> Histograms {
    let chart = Histograms::new(
        "How long each record took",
        "time of one record, logarithmic; heights by the root of the count; lines at p50 and p99",
        Unit::Nanoseconds,
    );
    let measured = found.rows.iter().zip(&found.samples).filter_map(|(row, samples)| {
        let summary = row.summary?;
        let histogram = Histogram::new(row.strategy.name(), samples.iter().map(|ns| *ns as f64));
        let (tone, note) = note_of(row, summary.p50, summary.p99);
        Some(histogram.note(tone, note).mark(summary.p50 as f64, "p50").mark(summary.p99 as f64, "p99"))
    });
    measured.fold(chart, Histograms::histogram)
}

fn note_of(row: &Row, p50: u64, p99: u64) -> (Tone, String) {
    let figures = format!("p50 {}, p99 {}", ns(p50), ns(p99));
    if row.strategy.is_durable() {
        (Tone::Plain, figures)
    } else {
        (Tone::Bad, format!("{UNSAFE}; {figures}"))
    }
}

/// An interval larger than the file equals one sync at the end.
#[allow(clippy::cast_precision_loss, reason = "bytes of a file and nanoseconds of a trial are below 2^53")]
pub(super) fn intervals(found: &every::Found) -> Lines {
    let mut points = Vec::new();
    let mut ranges = Vec::new();
    let mut ticks = Vec::new();
    for row in &found.rows {
        if let Interval::Every(every) = row.interval
            && every < found.file_bytes
        {
            let x = every as f64;
            points.push((x, row.summary.p50 as f64));
            ranges.push((x, row.summary.min as f64, row.summary.max as f64));
            ticks.push((x, Unit::Bytes.text(x)));
        }
    }
    let in_order = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0);
    points.sort_by(in_order);
    ranges.sort_by(|a, b| a.0.total_cmp(&b.0));
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut chart = Lines::new(
        format!("Time to write {} by how often it is synced", bytes(found.file_bytes)),
        Axis::log("bytes between two syncs, logarithmic", Unit::Bytes).ticks(ticks),
        Axis::log("time of the whole file, median of the trials, logarithmic", Unit::Nanoseconds),
    )
    .line(Line::new("median", points).ranges(ranges));
    if let Some(row) = found.rows.iter().find(|row| row.interval == Interval::AtEnd) {
        chart = chart.level(row.summary.p50 as f64, "one sync, at the end");
    }
    if let Some(Interval::Every(knee)) = found.knee() {
        chart = chart.mark(knee as f64, format!("the knee: every {}", Unit::Bytes.text(knee as f64)));
    }
    chart
}

#[allow(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
pub(super) fn parallel(found: &parallel::Found) -> Lines {
    let ticks = found.of(Sharing::OneFile).map(|row| (f64::from(row.threads), row.threads.to_string()));
    let mut chart = Lines::new(
        "Syncs a second by number of threads",
        Axis::log("threads, logarithmic", Unit::Count).ticks(ticks),
        Axis::linear("syncs a second of all threads together, median of the rounds", Unit::Count),
    );
    for sharing in Sharing::ALL {
        let points = found.of(sharing).map(|row| (f64::from(row.threads), row.rates.median as f64));
        let ranges = found
            .of(sharing)
            .map(|row| (f64::from(row.threads), row.rates.least as f64, row.rates.most as f64));
        let line = Line::new(sharing.name(), points).ranges(ranges);
        chart = chart.line(if sharing == Sharing::FileEach { line.dashed() } else { line });
    }
    if let Some(threads) = found.stops(Sharing::OneFile) {
        chart = chart.mark(f64::from(threads), format!("one file: more than {threads} stop paying"));
    }
    chart
}
