//! `serve-scan`: all documents of a collection, decoded and added up; embedded, and from a server that
//! is another process.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use duramen::prelude::*;
use duramen_client::{Address, Client, Remote, TlsFiles};

use super::duramen::{CERTIFICATE, Served, Way};
use crate::engine;
use crate::job::Outcome;
use crate::results::{Measured, Results};
use crate::tables::Grid;
use crate::{child, machine, output};

/// How to measure scans.
#[derive(Debug, Args)]
pub(crate) struct ServeScan {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// The documents.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub rows: u64,
    /// Rounds, in each of which every way has one turn.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
}

const WORKLOAD: &str = "scan";
const FIGURE: &str = "rows/s";

/// Ways to the documents, and what they are.
const WAYS: [(&str, &str); 4] = [
    ("embedded", "`Db` in this process"),
    ("socket", "`Remote`, by the socket of a server that is another process"),
    ("tcp", "the same, by loopback TCP with a token"),
    ("tls", "the same, by TLS 1.3"),
];

/// The ratios that are wanted.
const GOALS: [(&str, &str, f64); 2] = [("tcp", "embedded", 0.25), ("tls", "tcp", 0.85)];

/// Documents of a transaction that fills the collection.
const TOGETHER: u64 = 10_000;

#[derive(Serialize, Deserialize, Collection)]
#[collection(name = "scanned")]
struct Scanned {
    #[key]
    id: u64,
    cents: u64,
    text: String,
}

/// Scans in each round by each way, in turns, of one database; prints a table.
///
/// # Errors
/// Errors that make the whole run impossible; a turn that fails is a result.
pub(crate) fn run(words: &ServeScan) -> engine::Result<()> {
    let dir = words.dir.join(format!("duramen-scan-{}", std::process::id()));
    child::fresh(&dir)?;
    fill(&dir.join("db"), words.rows)?;
    machine::settle(&dir);
    let mut results = Results::default();
    for round in 0..words.rounds {
        for turn in 0..WAYS.len() {
            let (name, _) = WAYS[(turn + round as usize) % WAYS.len()];
            output::progress(&format!("round {} of {}: {name}", round + 1, words.rounds));
            let outcome = turn_of(words.rows, &dir, name);
            results.measured.push(Measured::of_turn(WORKLOAD, name, round, outcome));
        }
    }
    child::remove(&dir)?;
    show(words, &results);
    Ok(())
}

fn show(words: &ServeScan, results: &Results) {
    output::line(&machine::sentence());
    for (name, what) in WAYS {
        output::line(&format!("{name}: {what}"));
    }
    let names = || WAYS.iter().map(|(name, _)| *name);
    let head = [format!("scan of {} rows", words.rows)].into_iter().chain(names().map(str::to_owned));
    let row = names().map(|name| super::cell(results, WORKLOAD, name, FIGURE));
    let row = [FIGURE.to_owned()].into_iter().chain(row).collect();
    output::table(&Grid { head: head.collect(), rows: vec![row] }.table());
    for name in names() {
        if let Some(wrong) = results.wrong(WORKLOAD, name) {
            output::line(&format!("{name}: {wrong}"));
        }
    }
    for goal in GOALS {
        super::show_goal(results, WORKLOAD, FIGURE, goal);
    }
}

fn fill(db: &Path, rows: u64) -> engine::Result<()> {
    let db = Db::open(db)?;
    for first in (0..rows).step_by(usize::try_from(TOGETHER)?) {
        db.transact(|tx| {
            let row = |id| Scanned { id, cents: id % 1_000, text: format!("{id:0>100}") };
            (first..rows.min(first + TOGETHER)).try_for_each(|id| tx.put(&row(id)))
        })?;
    }
    Ok(db.close()?)
}

/// The second of two scans: the first one finds the pages on disk.
fn turn_of(rows: u64, dir: &Path, name: &str) -> engine::Result<Outcome> {
    if name == "embedded" {
        let db = Db::open(dir.join("db"))?;
        let outcome = scan(&db, rows).and_then(|_| scan(&db, rows))?;
        db.close()?;
        return Ok(outcome);
    }
    let server = Served::open(dir, Way { has_tls: name == "tls", ..Way::default() })?;
    let (host, port) = server.address().split_once(':').ok_or("no address")?;
    let ca = Some(dir.join(CERTIFICATE)).filter(|_| name == "tls");
    let address = match name {
        "socket" => Address::Directory(dir.join("db")),
        _ => Address::Tcp {
            host: host.to_owned(),
            port: port.parse()?,
            token: Some(std::fs::read_to_string(dir.join("db/serve.token"))?),
            tls: ca.map(|ca| TlsFiles { ca: Some(ca), identity: None }),
        },
    };
    let remote = Remote::from(Client::connect(&address)?);
    let outcome = scan(&remote, rows).and_then(|_| scan(&remote, rows))?;
    drop(remote);
    server.end()?;
    Ok(outcome)
}

/// The same function for both.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^53 rows")]
fn scan<S: Reads>(db: &S, rows: u64) -> engine::Result<Outcome> {
    let begun = Instant::now();
    let (mut count, mut cents, mut bytes) = (0, 0, 0);
    for row in db.collection::<Scanned>().iter()? {
        let row = row?;
        count += 1;
        cents += row.cents;
        bytes += row.text.len() as u64;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let expected: u64 = (0..rows).map(|id| id % 1_000).sum();
    let (answer, expected) = (count ^ cents << 32 ^ bytes, rows ^ expected << 32 ^ (rows * 100));
    Ok(Outcome::default().with(FIGURE, rows as f64 / seconds).answering(answer, expected))
}
