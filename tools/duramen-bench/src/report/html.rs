//! The same results as a page: goals first, then a chart and a table per workload.

use duramen_lab::report::{Axis, Bar, Bars, Line, Lines, Page, Section, Table, Tone, Unit};

use crate::engines;
use crate::results::Results;
use crate::tables;
use crate::verdict::{HEAD, Verdict};

/// The page.
pub(super) fn page(facts: &[String], results: &Results, verdicts: &[Verdict], json: String) -> String {
    let lead = "Every engine at full durability, interleaved, medians of the rounds. What is lost stands beside what is won.";
    let mut page = Page::new("Duramen beside its rivals", lead).section(goals(verdicts));
    if let Some(curve) = threads(results) {
        let text = "The log-only bound is a group commit without an index.";
        page = page.section(Section::new("W2: durable commits by threads").text(text).lines(curve));
    }
    for workload in results.workloads() {
        page = page.section(section(results, &workload));
    }
    page = page.section(rivals());
    let facts = facts.iter().filter_map(|fact| fact.split_once(": "));
    page.section(Section::new("Machine").facts(facts)).footer(results.notes.join(" ")).data(json).to_html()
}

/// Goals won and lost.
pub(crate) fn goals(verdicts: &[Verdict]) -> Section {
    let won = verdicts.iter().filter(|verdict| verdict.won).count();
    let mut table = Table::new(HEAD).words(2).words(5);
    for verdict in verdicts {
        let tone = if verdict.won { Tone::Good } else { Tone::Bad };
        table = table.toned(tone, verdict.row());
    }
    let lost = verdicts.len() - won;
    Section::new("Goals").text(format!("{won} won, {lost} lost.")).table(table)
}

/// Bars of the most important figure, and the table of all.
fn section(results: &Results, workload: &str) -> Section {
    let mut section = Section::new(workload);
    if let Some(figure) = tables::columns(workload).first() {
        let unit = if figure.contains("/s") { Unit::PerSecond } else { Unit::Count };
        let engines = results.engines(workload);
        let bars = engines.iter().filter_map(|engine| {
            let median = results.middle(workload, engine, figure)?.median;
            Some(Bar::new(tables::titled(engine), median).colour(usize::from(engine != "duramen")))
        });
        section = section.bars(Bars::new(*figure, unit).group("", bars));
    }
    let grid = tables::grid(results, workload);
    let mut table = Table::new(grid.head);
    for row in grid.rows {
        table = table.row(row);
    }
    section.table(table)
}

/// W2 by number of threads, if there are several.
fn threads(results: &Results) -> Option<Lines> {
    let measured: Vec<(f64, String)> = results
        .workloads()
        .into_iter()
        .filter_map(|workload| {
            let threads = workload.strip_prefix("W2-")?.parse().ok()?;
            Some((threads, workload))
        })
        .collect();
    let (_, first) = measured.first().filter(|_| measured.len() > 1)?;
    let mut chart =
        Lines::new("commits a second", Axis::log("threads", Unit::Count), Axis::linear("", Unit::PerSecond));
    for engine in results.engines(first) {
        let points: Vec<(f64, f64)> = measured
            .iter()
            .filter_map(|(threads, workload)| {
                Some((*threads, results.middle(workload, &engine, "commits/s")?.median))
            })
            .collect();
        let line = Line::new(tables::titled(&engine), points);
        chart = chart.line(if engine.starts_with("log-") { line.dashed() } else { line });
    }
    Some(chart)
}

fn rivals() -> Section {
    let mut table = Table::new(["engine", "setting, and why", "not durable because"]).words(1).words(2);
    for entry in engines::all() {
        table = table.row([entry.name, entry.setting, entry.unsafe_because.unwrap_or("")]);
    }
    Section::new("Settings").table(table)
}
