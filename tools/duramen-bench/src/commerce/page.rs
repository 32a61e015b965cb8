//! The same results as a page: the goals, a chart of means for each operation, all figures, settings,
//! machine.

use duramen_lab::report::{Bar, Bars, Page, Section, Table, Unit};

use super::model::Operation;
use super::report::{Grid, operations, whole};
use super::{WHOLE, shops};
use crate::report::goals_section;
use crate::results::Results;
use crate::verdict::Verdict;

/// The page.
pub(super) fn page(facts: &[String], results: &Results, verdicts: &[Verdict], json: String) -> String {
    let lead = "Agents follow shoppers' plans in one shop, kept by each engine at full durability. Interleaved, medians of \
                the rounds; every answer and every row at the end was checked.";
    let mut page = Page::new("Commerce: Duramen beside SQLite and PostgreSQL", lead);
    if !verdicts.is_empty() {
        page = page.section(goals_section(verdicts));
    }
    let facts = facts.iter().filter_map(|fact| fact.split_once(": "));
    page.section(means(results))
        .section(
            Section::new("All operations together").bars(throughput(results)).table(table(whole(results), 1)),
        )
        .section(Section::new("Each operation").table(table(operations(results), 2)))
        .section(settings())
        .section(Section::new("Machine and run").facts(facts))
        .data(json)
        .to_html()
}

/// A chart per operation, since reads and writes differ by a factor of a thousand.
fn means(results: &Results) -> Section {
    let text = "From call to answer, as one agent sees it while the others work.";
    let charts = Operation::ALL.iter().map(|(_, operation)| {
        let bars = bars(results, operation, "mean us", 1e3);
        Bars::new(format!("{operation}: mean"), Unit::Nanoseconds).group("", bars)
    });
    charts.fold(Section::new("Latency").text(text), Section::bars)
}

fn throughput(results: &Results) -> Bars {
    Bars::new("operations a second", Unit::PerSecond).group("", bars(results, WHOLE, "operations/s", 1.0))
}

fn bars(results: &Results, workload: &str, figure: &str, factor: f64) -> Vec<Bar> {
    let bar = |engine: String| {
        let median = results.middle(workload, &engine, figure)?.median;
        let colour = usize::from(engine != "duramen");
        Some(Bar::new(engine, median * factor).colour(colour))
    };
    results.engines(workload).into_iter().filter_map(bar).collect()
}

fn table(grid: Grid, words: usize) -> Table {
    let table = (0..words).fold(Table::new(grid.head), Table::words);
    grid.rows.into_iter().fold(table, Table::row)
}

fn settings() -> Section {
    let table = Table::new(["engine", "setting"]).words(1);
    let rows = shops::all().into_iter().map(|entry| [entry.name, entry.setting]);
    Section::new("Settings").table(rows.fold(table, Table::row))
}
