//! The points as a page: a chart per figure, a line per engine, both axes logarithmic.

use duramen_lab::report::{Axis, Line, Lines, Page, Section, Table, Unit};

use super::plan::of_workload;
use crate::results::Results;
use crate::tables;

/// A drawn figure: its name in results, the title and unit of its chart, and the chart's units per unit.
struct Drawn {
    figure: &'static str,
    title: &'static str,
    unit: Unit,
    scale: f64,
}

const fn drawn(figure: &'static str, title: &'static str, unit: Unit, scale: f64) -> Drawn {
    Drawn { figure, title, unit, scale }
}

const FIGURES: &[Drawn] = &[
    drawn("rows/s", "Load: rows a second, 1,000 a durable commit", Unit::PerSecond, 1.0),
    drawn("gets/s", "Random gets a second, one thread", Unit::PerSecond, 1.0),
    drawn("sums/s", "Counts and sums of a random tenth a second, one thread", Unit::PerSecond, 1.0),
    drawn("device bytes per user byte", "Bytes the device wrote for a byte of the user's", Unit::Count, 1.0),
    drawn(
        "bytes to write calls per user byte",
        "Bytes given to write calls for a byte of the user's",
        Unit::Count,
        1.0,
    ),
    drawn("bytes on disk per user byte", "Bytes on disk for a byte of the user's", Unit::Count, 1.0),
    drawn("peak anonymous MB", "Most anonymous memory", Unit::Bytes, 1e6),
    drawn("open ms", "Opening what was closed in order", Unit::Nanoseconds, 1e6),
    drawn("slowest load commit ms", "Slowest commit of the load", Unit::Nanoseconds, 1e6),
    drawn("commit p99.9 us", "Single durable commits: p99.9", Unit::Nanoseconds, 1e3),
    drawn("commit max us", "Single durable commits: the slowest", Unit::Nanoseconds, 1e3),
];

/// Duramen's commits, with a concurrent checkpoint and without one.
const BESIDE_CHECKPOINTS: &[(&str, &str)] = &[
    ("commit p99 us alone", "p99 alone"),
    ("commit p99 us beside a checkpoint", "p99 beside a checkpoint"),
    ("commit p99.9 us alone", "p99.9 alone"),
    ("commit p99.9 us beside a checkpoint", "p99.9 beside a checkpoint"),
    ("commit max us alone", "slowest alone"),
    ("commit max us beside a checkpoint", "slowest beside a checkpoint"),
];

/// The page.
pub(super) fn page(facts: &[String], results: &Results, json: String) -> String {
    let lead = "The same few questions to databases of growing size, each in a process of its own, at full durability.";
    let mut page = Page::new("Growth", lead);
    for drawn in FIGURES {
        page = page.section(Section::new(drawn.title).lines(chart(results, drawn)));
    }
    if let Some(chart) = checkpoints(results) {
        let text =
            "Where an engine tells when a checkpoint begins and ends, its commits are told apart by it.";
        page = page.section(Section::new("Commits beside a checkpoint").text(text).lines(chart));
    }
    for workload in results.workloads() {
        let grid = tables::grid(results, &workload).turned();
        let table = grid.rows.into_iter().fold(Table::new(grid.head), Table::row);
        page = page.section(Section::new(workload).table(table));
    }
    let facts = facts.iter().filter_map(|fact| fact.split_once(": "));
    page.section(Section::new("Machine").facts(facts)).footer(results.notes.join(" ")).data(json).to_html()
}

/// One engine in one order of its rows.
type Series = (String, bool);

fn series(results: &Results) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    for workload in results.workloads() {
        let Some((_, in_key_order)) = of_workload(&workload) else { continue };
        for engine in results.engines(&workload) {
            let one = (engine, in_key_order);
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// A figure by the actual number of rows, which is smaller than requested if a load was stopped.
fn points(results: &Results, (engine, in_key_order): &Series, figure: &str) -> Vec<(f64, f64)> {
    let median = |workload: &str, name: &str| Some(results.middle(workload, engine, name)?.median);
    let of_order = |workload: &String| of_workload(workload).is_some_and(|(_, order)| order == *in_key_order);
    let workloads = results.workloads().into_iter().filter(of_order);
    workloads.filter_map(|workload| Some((median(&workload, "rows")?, median(&workload, figure)?))).collect()
}

fn named((engine, in_key_order): &Series) -> String {
    let order = if *in_key_order { ", in key order" } else { "" };
    format!("{}{order}", tables::titled(engine))
}

fn chart(results: &Results, drawn: &Drawn) -> Lines {
    let mut y = Axis::log("", drawn.unit);
    if drawn.unit == Unit::Bytes {
        // Round in the unit in which they are written.
        let mib = f64::from(1 << 20);
        y = y.ticks([4.0, 16.0, 64.0, 256.0, 1024.0].map(|size| (size * mib, Unit::Bytes.text(size * mib))));
    }
    let mut chart = Lines::new("", Axis::log("rows", Unit::Count), y);
    for series in series(results) {
        let of_series = points(results, &series, drawn.figure);
        let line = Line::new(named(&series), of_series.iter().map(|(rows, y)| (*rows, y * drawn.scale)));
        chart = chart.line(if series.1 { line.dashed() } else { line });
        for (rows, _) in points(results, &series, "stopped").iter().filter(|(_, stopped)| *stopped > 0.0) {
            chart = chart.mark(*rows, format!("{}: stopped", named(&series)));
        }
    }
    chart
}

fn checkpoints(results: &Results) -> Option<Lines> {
    let mut chart = Lines::new("", Axis::log("rows", Unit::Count), Axis::log("", Unit::Nanoseconds));
    let mut has_any = false;
    for series in series(results) {
        for (figure, name) in BESIDE_CHECKPOINTS {
            let of_series = points(results, &series, figure);
            if of_series.is_empty() {
                continue;
            }
            has_any = true;
            let line = Line::new(
                format!("{}: {name}", named(&series)),
                of_series.iter().map(|(rows, us)| (*rows, us * 1e3)),
            );
            chart = chart.line(if name.ends_with("alone") { line.dashed() } else { line });
        }
    }
    has_any.then_some(chart)
}

#[cfg(test)]
mod tests {
    //! A point at a wrong number of rows, or a stopped one that looks complete, would mislead.
    use super::*;
    use crate::job::Outcome;
    use crate::results::Measured;

    #[test]
    fn growth_draws_a_stopped_point_where_it_stopped_and_says_so() {
        let measured = |workload: &str, rows: f64, stopped: f64| Measured {
            workload: workload.to_owned(),
            engine: "duramen".to_owned(),
            round: 0,
            outcome: Some(Outcome::default().with("rows", rows).with("stopped", stopped).with("gets/s", 7.0)),
            failed: None,
        };
        let whole = [measured("growth-100000", 1e5, 0.0), measured("growth-1000000-in-key-order", 1e6, 0.0)];
        let mut results = Results { measured: whole.to_vec(), notes: Vec::new() };
        let page_of = |results: &Results| page(&["machine: a".to_owned()], results, "{}".to_owned());
        assert!(!page_of(&results).contains("stopped</span>"));
        assert!(page_of(&results).contains("duramen, in key order"));
        results.measured.push(measured("growth-1000000", 4e5, 1.0));
        let random = ("duramen".to_owned(), false);
        assert_eq!(points(&results, &random, "gets/s"), [(1e5, 7.0), (4e5, 7.0)]);
        assert!(page_of(&results).contains("duramen: stopped</span>"));
    }
}
