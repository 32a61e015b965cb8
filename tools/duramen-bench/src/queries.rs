//! `queries`: filters, sorts, groups and joins of the flights, by `find` and by SQLite, in turns.
//!
//! Both read the same rows from files that are in memory after the first round, and both hand every row of
//! the answer to the program. The answers are compared by their number of rows.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use comfy_table::Table;
use duramen::find::{Aggregate, Condition, Find, Join, OrderBy};
use duramen::prelude::*;
use flate2::read::GzDecoder;
use rusqlite::{Connection, params_from_iter, types};

use crate::child;
use crate::engine::Result;
use crate::machine;
use crate::output;

/// How to measure queries.
#[derive(Debug, Args)]
pub(crate) struct Queries {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// The directory of the flights.
    #[arg(long, default_value = "data/nycflights", value_name = "DIR")]
    pub data: PathBuf,
    /// Rounds, in each of which every query runs once on both.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub rounds: usize,
}

const FLIGHTS_KEY: [&str; 4] = ["carrier", "time_hour", "flight", "origin"];
const PLANES_KEY: [&str; 1] = ["tailnum"];

/// A query in both forms.
struct Query {
    name: &'static str,
    run: fn(&Find<'_>) -> duramen::Result<u64>,
    sql: &'static str,
}

const QUERIES: [Query; 8] = [
    Query {
        name: "filter by the key: one carrier, one airport",
        run: |flights| rows(&filtered(flights, &["carrier=UA", "dest=SFO"])?),
        sql: "SELECT * FROM flights WHERE carrier = 'UA' AND dest = 'SFO'",
    },
    Query {
        name: "filter by no key: late from JFK",
        run: |flights| rows(&filtered(flights, &["dep_delay>=120", "origin=JFK"])?),
        sql: "SELECT * FROM flights WHERE dep_delay >= 120 AND origin = 'JFK'",
    },
    Query {
        name: "count by no key",
        run: |flights| filtered(flights, &["dep_delay>=120"])?.count(),
        sql: "SELECT count(*) FROM flights WHERE dep_delay >= 120",
    },
    Query {
        name: "sort, the first 100",
        run: |flights| rows(&flights.order_by([OrderBy::descending("dep_delay")]).limit(100)),
        sql: "SELECT * FROM flights ORDER BY dep_delay DESC LIMIT 100",
    },
    Query {
        name: "sort of two fields of all",
        run: |flights| {
            rows(&flights.order_by([OrderBy::ascending("distance")]).fields(["distance", "flight"]))
        },
        sql: "SELECT distance, flight FROM flights ORDER BY distance, carrier, time_hour, flight, origin",
    },
    Query {
        name: "group by carrier: count, sum, mean",
        run: |flights| {
            let aggregates = [Aggregate::count(), Aggregate::sum("dep_delay"), Aggregate::mean("distance")];
            groups(flights, "carrier", aggregates)
        },
        sql: "SELECT carrier, count(*), sum(dep_delay), avg(distance) FROM flights GROUP BY carrier ORDER BY carrier",
    },
    Query {
        name: "group by plane: distinct airports",
        run: |flights| groups(flights, "tailnum", [Aggregate::count(), Aggregate::distinct("dest")]),
        sql: "SELECT tailnum, count(*), count(DISTINCT dest) FROM flights GROUP BY tailnum ORDER BY tailnum",
    },
    Query {
        name: "join with planes, group by maker",
        run: |flights| {
            let flown = flights.join(Join::inner("planes", ["tailnum"]));
            groups(&flown, "planes.manufacturer", [Aggregate::count(), Aggregate::mean("planes.seats")])
        },
        sql: "SELECT manufacturer, count(*), avg(seats) FROM flights JOIN planes USING (tailnum) \
              GROUP BY manufacturer ORDER BY manufacturer",
    },
];

fn filtered<'s>(flights: &Find<'s>, words: &[&str]) -> duramen::Result<Find<'s>> {
    let schema = flights.schema()?;
    Ok(flights.and(Condition::parse_words(words, |text| Condition::parse(&schema, text))?))
}

fn rows(find: &Find<'_>) -> duramen::Result<u64> {
    find.iter()?.try_fold(0, |count, found| found.map(|_| count + 1))
}

fn groups(
    find: &Find<'_>,
    field: &str,
    aggregates: impl IntoIterator<Item = Aggregate>,
) -> duramen::Result<u64> {
    find.group_by([field], aggregates).iter()?.try_fold(0, |count, found| found.map(|_| count + 1))
}

/// Measures all queries, and prints a table.
///
/// # Errors
/// Errors of either database; a different number of rows.
pub(crate) fn run(words: &Queries) -> Result<()> {
    let dir = words.dir.join(format!("duramen-queries-{}", std::process::id()));
    child::fresh(&dir)?;
    let measured = measure(words, &dir);
    child::remove(&dir)?;
    output::line(&machine::sentence());
    output::table(&measured?);
    Ok(())
}

fn measure(words: &Queries, dir: &Path) -> Result<Table> {
    let db = Db::options().durability(Durability::Process).open(dir.join("flights.duramen"))?;
    let mut sqlite = Connection::open(dir.join("flights.sqlite"))?;
    sqlite.pragma_update(None, "cache_size", -(256 << 10))?;
    sqlite.pragma_update(None, "mmap_size", 4_i64 << 30)?;
    for (name, key) in [("flights", &FLIGHTS_KEY[..]), ("planes", &PLANES_KEY)] {
        output::progress(&format!("loads {name}"));
        load(&db, &mut sqlite, &words.data, name, key)?;
    }
    let flights = db.documents("flights");
    let mut times = vec![[Vec::new(), Vec::new()]; QUERIES.len()];
    let mut counts = vec![0; QUERIES.len()];
    for round in 0..=words.rounds {
        output::progress(&format!("round {round} of {}", words.rounds));
        for (at, query) in QUERIES.iter().enumerate() {
            let begun = Instant::now();
            let own = (query.run)(&flights.find([]))?;
            let own_time = begun.elapsed();
            let begun = Instant::now();
            let other = answer(&sqlite, query.sql)?;
            let other_time = begun.elapsed();
            if own != other {
                return Err(format!("{}: {own} rows, and {other} by SQLite", query.name).into());
            }
            counts[at] = own;
            // The first round brings the files into memory.
            if round > 0 {
                times[at][0].push(own_time);
                times[at][1].push(other_time);
            }
        }
    }
    let mut table = Table::new();
    table.set_header(["query", "answer", "Duramen", "SQLite"]);
    for ((query, count), times) in QUERIES.iter().zip(counts).zip(&times) {
        let shown = times.each_ref().map(|times| {
            let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
            ms.sort_by(f64::total_cmp);
            format!("{:.1} ms ({:.1} to {:.1})", ms[ms.len() / 2], ms[0], ms[ms.len() - 1])
        });
        let [own, other] = shown;
        table.add_row([query.name.to_owned(), count.to_string(), own, other]);
    }
    Ok(table)
}

/// Reads every value of an answer. A count is the answer itself.
fn answer(sqlite: &Connection, sql: &str) -> Result<u64> {
    let mut statement = sqlite.prepare_cached(sql)?;
    let columns = statement.column_count();
    let mut found = statement.query([])?;
    let (mut count, mut last) = (0, 0);
    while let Some(row) = found.next()? {
        count += 1;
        for at in 0..columns {
            if let types::ValueRef::Integer(value) = row.get_ref(at)? {
                last = value;
            }
        }
    }
    Ok(if sql.starts_with("SELECT count") { u64::try_from(last)? } else { count })
}

/// Loads a table into both, with the same types.
fn load(db: &Db, sqlite: &mut Connection, data: &Path, name: &str, key: &[&str]) -> Result<()> {
    let text = std::io::read_to_string(GzDecoder::new(File::open(data.join(format!("{name}.csv.gz")))?))?;
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let is_int = |at: usize| rows.iter().all(|row| row[at] == "NA" || row[at].parse::<i64>().is_ok());
    let ints: Vec<bool> = (0..columns.len()).map(is_int).collect();
    let kind = |at: usize| if ints[at] { ColumnType::Int } else { ColumnType::Text };
    let schema = Schema::new(name).key(key.iter().copied());
    let schema = (0..columns.len()).fold(schema, |schema, at| schema.column(columns[at], kind(at)));
    db.ensure(&schema)?;
    for part in rows.chunks(5_000) {
        db.transact(|tx| {
            let documents = tx.documents(name);
            part.iter().try_for_each(|row| {
                let mut document = Document::new();
                for (at, cell) in row.iter().enumerate().filter(|(_, cell)| **cell != "NA") {
                    match cell.parse::<i64>() {
                        Ok(value) if ints[at] => document.set(columns[at], value),
                        _ => document.set(columns[at], *cell),
                    }
                }
                documents.put(document)
            })
        })?;
    }
    let sql_kind = |at: usize| if ints[at] { "INTEGER" } else { "TEXT" };
    let defined: Vec<String> =
        (0..columns.len()).map(|at| format!("{} {}", columns[at], sql_kind(at))).collect();
    sqlite.execute_batch(&format!(
        "CREATE TABLE {name} ({}, PRIMARY KEY ({})) WITHOUT ROWID",
        defined.join(", "),
        key.join(", ")
    ))?;
    let transaction = sqlite.transaction()?;
    {
        let places = vec!["?"; columns.len()].join(", ");
        let mut insert = transaction.prepare(&format!("INSERT INTO {name} VALUES ({places})"))?;
        for row in &rows {
            let values = row.iter().enumerate().map(|(at, cell)| match (*cell, cell.parse::<i64>()) {
                ("NA", _) => types::Value::Null,
                (_, Ok(value)) if ints[at] => types::Value::Integer(value),
                _ => types::Value::Text((*cell).to_owned()),
            });
            insert.execute(params_from_iter(values))?;
        }
    }
    transaction.commit()?;
    Ok(())
}
