//! Results as tables: a row per engine, with the median of the rounds and, if it is large, their spread.

use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::engines;
use crate::results::{Middle, Results};
use crate::workloads::DEFINITIONS;

/// A spread larger than this part of the median is shown.
const SPREAD_SHOWN: f64 = 0.05;

/// The width of tables with sentences, in terminal columns.
pub(crate) const WORDS_WIDTH: u16 = 140;

/// The figures of each workload in its table, in order. The JSON has all of them.
const COLUMNS: &[(&str, &[&str])] = &[
    ("W1", &["commits/s", "p50 us", "p99 us", "p99.9 us", "cpu us each", "syncs each", "checkpoints"]),
    ("W2", &["commits/s", "p50 us", "p99 us", "p99.9 us", "cpu us each", "syncs each", "checkpoints"]),
    (
        "W2b",
        &["transactions/s", "p50 us", "p99 us", "p99.9 us", "conflicts each", "cpu us each", "syncs each"],
    ),
    (
        "W3",
        &[
            "rows/s",
            "bytes to write calls per user byte",
            "device bytes per user byte",
            "MB on disk",
            "peak resident MB",
            "close s",
        ],
    ),
    ("W9", &["commits/s", "p50 us", "p99 us", "p99.9 us", "cpu us each", "syncs each", "checkpoints"]),
    ("W4", &["gets/s 1T", "gets/s 2T", "gets/s by 100 1T", "gets/s by 100 2T", "pages read"]),
    ("W5", &["rows/s", "ranges/s", "rows/s by iterator", "ranges/s by iterator"]),
    ("W6", &["queries/s"]),
    ("syncs", &["syncs each", "commits"]),
    ("W7", &["open ms", "first get ms", "first range ms", "first sum ms"]),
    (
        "W8",
        &[
            "p99.9 us during",
            "p99.9 us before",
            "max us during",
            "max us before",
            "commits during",
            "MB beside",
            "s beside",
        ],
    ),
    (
        "beyond",
        &[
            "rows/s",
            "bytes to write calls per user byte",
            "cpu us each",
            "rows/s replaced",
            "bytes to write calls per user byte replaced",
            "cpu us each replaced",
            "bytes to write calls per user byte in all",
            "peak anonymous MB",
            "close s",
            "MB on disk",
            "checkpoints",
            "pages read",
            "held up ms",
        ],
    ),
    (
        "growth",
        &[
            "rows",
            "rows/s",
            "gets/s",
            "sums/s",
            "device bytes per user byte",
            "bytes to write calls per user byte",
            "bytes on disk per user byte",
            "peak anonymous MB",
            "open ms",
            "slowest load commit ms",
            "commits/s",
            "commit p99.9 us",
            "commit max us",
            "commit p99.9 us alone",
            "commit p99.9 us beside a checkpoint",
        ],
    ),
];

/// A table with a heading row.
pub(crate) fn headed<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns);
    table
}

/// The figures of one workload as text: for a terminal and for a page.
pub(crate) struct Grid {
    /// The names of the columns; the first is the workload.
    pub head: Vec<String>,
    /// A row an engine.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// Transposed, with a row per figure and a column per engine: for few engines and many figures.
    pub(crate) fn turned(self) -> Grid {
        let all: Vec<Vec<String>> = [self.head].into_iter().chain(self.rows).collect();
        let column = |index: usize| all.iter().filter_map(|row| row.get(index).cloned()).collect();
        let mut rows: Vec<Vec<String>> = (0..all[0].len()).map(column).collect();
        Grid { head: rows.remove(0), rows }
    }

    /// As a table for a terminal: all columns but the first are figures.
    pub(crate) fn table(self) -> Table {
        let mut table = headed(self.head.iter().map(String::as_str));
        for row in self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// The figures of one workload, such as `W2-16`.
pub(crate) fn grid(results: &Results, workload: &str) -> Grid {
    let engines = results.engines(workload);
    let has = |column: &str| engines.iter().any(|engine| results.middle(workload, engine, column).is_some());
    let shown: Vec<&str> = columns(workload).iter().copied().filter(|column| has(column)).collect();
    let head = [workload].into_iter().chain(shown.iter().copied()).chain(["rounds", "answer"]);
    let row = |engine: &String| {
        let middles: Vec<_> = shown.iter().map(|name| results.middle(workload, engine, name)).collect();
        let rounds = middles.iter().flatten().map(|middle| middle.rounds).max().unwrap_or(0);
        let answer = results.answer(workload, engine).map_or("-".to_owned(), |hash| format!("{hash:016x}"));
        let mut row = vec![titled(engine)];
        row.extend(middles.iter().map(|middle| middle.map_or(String::new(), cell)));
        row.extend([rounds.to_string(), results.wrong(workload, engine).unwrap_or(answer)]);
        row
    };
    Grid { head: head.map(str::to_owned).collect(), rows: engines.iter().map(row).collect() }
}

/// The shown figures of a workload, the most important first.
pub(crate) fn columns(workload: &str) -> &'static [&'static str] {
    let kind = workload.split('-').next().unwrap_or(workload);
    COLUMNS.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, columns)| columns)
}

/// The table of one workload.
pub(crate) fn of(results: &Results, workload: &str) -> Table {
    let mut table = grid(results, workload).table();
    // The last column may be a sentence.
    if let Some(column) = table.column_iter_mut().last() {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// An engine's name, marked if it is not durable.
pub(crate) fn titled(engine: &str) -> String {
    let lies = engines::find(engine).is_some_and(|entry| entry.unsafe_because.is_some());
    if lies { format!("{engine} (not durable)") } else { engine.to_owned() }
}

/// A median, with the spread of the rounds if it is large.
pub(crate) fn cell(middle: Middle) -> String {
    let apart = (middle.most - middle.least) > SPREAD_SHOWN * middle.median.abs();
    if apart {
        format!("{} [{} .. {}]", number(middle.median), number(middle.least), number(middle.most))
    } else {
        number(middle.median)
    }
}

/// A figure with at least three significant digits, and commas between thousands.
pub(crate) fn number(figure: f64) -> String {
    let size = figure.abs();
    if size >= 1000.0 {
        let digits = format!("{figure:.0}");
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) && !grouped.ends_with('-') {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        return grouped;
    }
    match size {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        0.0005.. => format!("{figure:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => "0".to_owned(),
    }
}

/// The workloads, exactly.
pub(crate) fn workloads() -> Table {
    let columns =
        ["", "operation", "rows", "bytes of key / value", "keys", "one state for", "warm-up", "check"];
    let mut table = headed(columns);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WORDS_WIDTH);
    for known in DEFINITIONS {
        table.add_row([
            known.name,
            known.operation,
            known.rows,
            known.bytes,
            known.distribution,
            known.snapshot,
            known.warm_up,
            known.check,
        ]);
    }
    table
}

/// The engines of this build, and the setting of each.
pub(crate) fn engines() -> Table {
    let mut table = headed(["engine", "setting, and why", "not durable because"]);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WORDS_WIDTH);
    for entry in engines::all() {
        table.add_row([entry.name, entry.setting, entry.unsafe_because.unwrap_or("")]);
    }
    table
}

#[cfg(test)]
mod tests {
    //! A wrongly formatted figure is a wrong figure.
    use super::*;

    #[test]
    fn a_turned_grid_has_every_cell_under_its_engine() {
        let words = |words: [&str; 3]| words.map(str::to_owned).to_vec();
        let grid = Grid { head: words(["W9", "a/s", "b"]), rows: vec![words(["duramen", "1", "2"])] };
        let turned = grid.turned();
        assert_eq!(turned.head, ["W9", "duramen"]);
        assert_eq!(turned.rows, [["a/s", "1"], ["b", "2"]]);
    }

    #[test]
    fn numbers_are_grouped_and_rounded() {
        for (figure, shown) in [
            (1_234_567.8, "1,234,568"),
            (999.6, "1000"),
            (12.34, "12.3"),
            (1.5, "1.5"),
            (0.04, "0.04"),
            (0.0, "0"),
        ] {
            assert_eq!(number(figure), shown);
        }
    }
}
