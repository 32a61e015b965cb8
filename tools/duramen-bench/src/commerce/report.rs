//! The report of a run: machine and settings, a table of all operations, the goals; also as JSON and as a
//! page.

use std::fs;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde_json::json;

use super::generator::Size;
use super::model::Operation;
use super::{SYNCS, WHOLE, goals, page, shops};
use crate::args::Commerce;
use crate::engine::Result;
use crate::output;
use crate::report::{fact_of_disk, facts_of_machine, goal_as_json};
use crate::results::Results;
use crate::tables::{WORDS_WIDTH, cell, headed, number};
use crate::verdict;

/// The figures of each operation.
const OF_EACH: [&str; 7] = ["count", "mean us", "p50 us", "p99 us", "p99.9 us", "max us", "retries"];

/// The figure whose spread over the rounds is shown; with all, no row would fit.
const SPREAD_OF: &str = "mean us";

/// The figures over all operations.
const OF_ALL: [&str; 7] = [
    "operations/s",
    "plans/s",
    "seconds",
    "retries in all",
    "process's cpu us each",
    "load ms",
    "MB on disk",
];

/// Rows of texts under a heading.
pub(super) struct Grid {
    /// The names of the columns.
    pub head: Vec<String>,
    /// The names of what is measured, then its figures.
    pub rows: Vec<Vec<String>>,
}

/// Prints results, and writes the requested files.
///
/// # Errors
/// Errors of writing a file.
pub(crate) fn show(args: &Commerce, results: &Results) -> Result<()> {
    let facts = facts(args);
    facts.iter().for_each(|fact| output::line(fact));
    output::table(&settings());
    for (engine, notes) in results.notes_of(WHOLE) {
        output::line(&format!("{engine}: {}", notes.join("; ")));
    }
    output::table(&table(&operations(results), 2));
    output::table(&table(&whole(results), 1));
    let verdicts = goals::verdicts(results, args.agents());
    if verdicts.is_empty() {
        output::line(&format!(
            "no verdict: the goals are Duramen beside PostgreSQL at {} agents",
            goals::AGENTS
        ));
    } else {
        output::table(&verdict::table(&verdicts));
        let won = verdicts.iter().filter(|verdict| verdict.won).count();
        output::line(&format!("{won} goals won, {} lost", verdicts.len() - won));
    }
    let goals: Vec<_> = verdicts.iter().map(goal_as_json).collect();
    let settings: Vec<_> =
        shops::all().iter().map(|entry| json!({"engine": entry.name, "setting": entry.setting})).collect();
    let all = json!({"v": 1, "kind": "commerce", "facts": facts, "settings": settings, "results": results, "goals": goals});
    let json = serde_json::to_string_pretty(&all)?;
    if let Some(path) = &args.json {
        fs::write(path, &json)?;
    }
    if let Some(path) = &args.html {
        fs::write(path, page::page(&facts, results, &verdicts, json))?;
    }
    Ok(())
}

/// Where, when and how it was measured.
fn facts(args: &Commerce) -> Vec<String> {
    let counts = args.size.counts();
    let mut facts = facts_of_machine();
    facts.insert(1, fact_of_disk(&args.dir));
    facts.push("durability: full: what is acknowledged has been synced, in every engine".to_owned());
    facts.push(format!(
        "shop: {} products, {} customers, {} categories, {} orders, {} reviews{}",
        counts.products,
        counts.customers,
        counts.categories,
        counts.orders,
        counts.reviews,
        if args.size == Size::Xlarge {
            ", loaded in several transactions"
        } else {
            ", loaded in one transaction"
        }
    ));
    facts.push(format!(
        "run: mix {:?}, {} plans by {} agents, seed {}, {} rounds; medians; means and sums with [least .. most] where \
         rounds lie more than a twentieth apart",
        args.mix,
        args.plans(),
        args.agents(),
        args.seed,
        args.rounds()
    ));
    facts.push("answers: every one was right, and every row at the end of every turn".to_owned());
    facts
}

/// A row for each operation and engine.
pub(super) fn operations(results: &Results) -> Grid {
    let head = ["operation", "engine"].into_iter().chain(OF_EACH);
    let mut rows = Vec::new();
    for (_, operation) in Operation::ALL {
        for (index, engine) in results.engines(operation).iter().enumerate() {
            let mut row = vec![if index == 0 { operation.to_owned() } else { String::new() }, engine.clone()];
            row.extend(OF_EACH.iter().map(|name| match *name {
                SPREAD_OF => spread(results, operation, engine, name),
                name => median(results, operation, engine, name),
            }));
            rows.push(row);
        }
    }
    Grid { head: head.map(str::to_owned).collect(), rows }
}

/// A row for each engine.
pub(super) fn whole(results: &Results) -> Grid {
    let counted = !results.engines(SYNCS).is_empty();
    let head = [WHOLE].into_iter().chain(OF_ALL).chain(counted.then_some("syncs each write"));
    let row = |engine: &String| {
        let mut row = vec![engine.clone()];
        row.extend(OF_ALL.iter().map(|name| spread(results, WHOLE, engine, name)));
        row.extend(counted.then(|| spread(results, SYNCS, engine, "syncs each")));
        row
    };
    let rows = results.engines(WHOLE).iter().map(row).collect();
    Grid { head: head.map(str::to_owned).collect(), rows }
}

/// A median, with the spread of the rounds if it is large.
fn spread(results: &Results, workload: &str, engine: &str, name: &str) -> String {
    results.middle(workload, engine, name).map_or(String::new(), cell)
}

fn median(results: &Results, workload: &str, engine: &str, name: &str) -> String {
    results.middle(workload, engine, name).map_or(String::new(), |middle| number(middle.median))
}

/// A grid whose first columns are text.
fn table(grid: &Grid, words: usize) -> Table {
    let mut table = headed(grid.head.iter().map(String::as_str));
    grid.rows.iter().for_each(|row| {
        table.add_row(row);
    });
    for index in words..grid.head.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn settings() -> Table {
    let mut table = headed(["engine", "setting"]);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WORDS_WIDTH);
    for entry in shops::all() {
        table.add_row([entry.name, entry.setting]);
    }
    table
}
