//! `serve`: one new row a transaction over TCP, a row that is read, or a transfer between two accounts,
//! beside etcd and PostgreSQL, by one process and by three that are a cluster; `serve-scan`: a scan, beside
//! that of an embedded database.
//!
//! Each server is a process of its own, or three, with a new database, and the tasks are in this one. A
//! round takes each server once, in turns. At the end of a turn the server must have exactly the
//! acknowledged rows, or as much money as at its beginning. What is read must be what was stored.

pub(crate) mod away;
mod clients;
mod duramen;
mod etcd;
mod postgres;
pub(crate) mod scan;
mod server;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::data::Rows;
use crate::engine::Result;
use crate::job::Outcome;
use crate::results::{Measured, Results};
use crate::tables::Grid;
use crate::workloads::SEED;
use crate::workloads::commits::VALUE_BYTES;
use crate::{child, machine, output};
use server::Entry;

pub(crate) use away::ServeAway;
pub(crate) use duramen::serve;
pub(crate) use scan::ServeScan;

/// How to measure servers.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Only these servers.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub engines: Vec<String>,
    /// What the tasks do.
    #[arg(long, default_value = "put")]
    pub work: Work,
    /// The numbers of tasks at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1,64", value_name = "1,64")]
    pub tasks: Vec<usize>,
    /// Connections that the tasks share, at most one each; PostgreSQL takes one transaction at a time on
    /// each, and has one for every task.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub connections: usize,
    /// How long each number of tasks writes.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
    /// Rounds, in each of which every server has one turn.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Bytes of a row's value; at least 8.
    #[arg(long, default_value_t = VALUE_BYTES, value_name = "N")]
    pub value_bytes: usize,
    /// The program duramen, whose `serve` is each of the three nodes.
    #[arg(long, default_value = "duramen", value_name = "FILE")]
    pub duramen: PathBuf,
    /// The program etcd; `scripts/bench-etcd` builds it.
    #[arg(long, default_value = "etcd", value_name = "FILE")]
    pub etcd: PathBuf,
    /// What keys and values are drawn from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

/// What tasks do, one piece after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Store a new row.
    Put,
    /// Read one of 10,000 rows, linearizably.
    Get,
    /// Read two of 100,000 accounts, one after the other, and store both: strictly serialisable.
    Transfer,
}

impl Work {
    fn entries(self) -> &'static [Entry] {
        match self {
            Work::Put => &[
                duramen::ENTRY,
                duramen::WITH_IDS,
                duramen::WITH_TLS,
                etcd::ENTRY,
                postgres::ENTRY,
                duramen::AT_LEADER,
                etcd::AT_LEADER,
            ],
            Work::Get => &[duramen::AT_LEADER, etcd::AT_LEADER, duramen::AT_FOLLOWER, etcd::AT_FOLLOWER],
            Work::Transfer => {
                &[duramen::ENTRY, duramen::BY_LIBRARY, duramen::WITH_TLS, postgres::ENTRY, postgres::PLAIN]
            }
        }
    }
}

/// The figures that are shown behind the rate.
const FIGURES: [&str; 4] = ["p50 us", "p99 us", "processor us each, servers", "processor us each, clients"];

/// A ratio of rates that is wanted of one server to another, with one task and with many.
type Goal = (&'static str, &'static str, [f64; 2]);

const GOALS_OF_WRITES: &[Goal] = &[
    ("duramen", "etcd", [1.2, 4.0]),
    ("duramen", "postgres", [1.0, 1.0]),
    ("duramen", "postgres-plain", [1.0, 1.0]),
    ("duramen-tls", "duramen", [0.85, 0.85]),
    ("duramen-ids", "duramen", [0.9, 0.9]),
    ("duramen-three", "etcd-three", [1.5, 3.0]),
];

const GOALS_OF_READS: &[Goal] = &[
    ("duramen-three", "etcd-three", [2.0, 2.0]),
    ("duramen-three-follower", "etcd-three-follower", [1.5, 1.5]),
];

impl Work {
    /// The name of the rate of this work.
    fn rate(self) -> &'static str {
        match self {
            Work::Put | Work::Transfer => "commits/s",
            Work::Get => "reads/s",
        }
    }

    fn goals(self) -> &'static [Goal] {
        match self {
            Work::Put | Work::Transfer => GOALS_OF_WRITES,
            Work::Get => GOALS_OF_READS,
        }
    }
}

impl Serve {
    fn rows(&self) -> Rows {
        Rows::new(self.seed, self.value_bytes)
    }
}

/// Measures all servers, and prints tables.
///
/// # Errors
/// Errors that make the whole run impossible; a turn that fails is a result.
pub(crate) fn run(words: &Serve) -> Result<()> {
    let is_wanted =
        |entry: &&Entry| words.engines.is_empty() || words.engines.iter().any(|name| name == entry.name);
    let entries: Vec<&Entry> = words.work.entries().iter().filter(is_wanted).collect();
    if entries.is_empty() {
        let names: Vec<&str> = words.work.entries().iter().map(|entry| entry.name).collect();
        return Err(format!("no server has such a name; there are {}", names.join(", ")).into());
    }
    let dir = words.dir.join(format!("duramen-serve-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = std::fs::canonicalize(dir)?;
    let mut results = Results::default();
    for round in 0..words.rounds {
        for turn in 0..entries.len() {
            let entry = entries[(turn + round as usize) % entries.len()];
            output::progress(&format!("round {} of {}: {}", round + 1, words.rounds, entry.name));
            let measured = measure(words, entry, round, &dir.join(entry.name));
            results.measured.extend(measured);
        }
    }
    child::remove(&dir)?;
    show(words, &entries, &results);
    Ok(())
}

/// What all accounts have together.
const MONEY: u64 = (server::ACCOUNTS * server::BALANCE).unsigned_abs();

/// A turn of a server: each number of tasks after the other, on one database.
fn measure(words: &Serve, entry: &Entry, round: u32, dir: &Path) -> Vec<Measured> {
    let of = |tasks: usize, outcome| Measured::of_turn(&workload(tasks), entry.name, round, outcome);
    let turn = || -> Result<Vec<Outcome>> {
        child::fresh(dir)?;
        machine::settle(dir);
        let server = (entry.start)(dir, words)?;
        match words.work {
            Work::Put => {}
            Work::Get => clients::fill(&*server, words)?,
            Work::Transfer => server.open_accounts()?,
        }
        let mut done = 0;
        let mut outcomes = Vec::new();
        for tasks in &words.tasks {
            let driven = clients::drive(&*server, words, *tasks, done)?;
            done += driven.done;
            let (answer, expected) = match words.work {
                Work::Put => (server.count()?, done),
                Work::Get => (server.count()?, clients::STORED_ROWS),
                Work::Transfer => (server.total()?, MONEY),
            };
            outcomes.push(driven.outcome.answering(answer, expected));
        }
        server.stop()?;
        child::remove(dir)?;
        Ok(outcomes)
    };
    match turn() {
        Ok(outcomes) => {
            words.tasks.iter().zip(outcomes).map(|(tasks, outcome)| of(*tasks, Ok(outcome))).collect()
        }
        Err(failed) => {
            output::progress(&format!("{}: {failed}", entry.name));
            words.tasks.iter().map(|tasks| of(*tasks, Err(failed.to_string().into()))).collect()
        }
    }
}

fn workload(tasks: usize) -> String {
    format!("{tasks} task{}", if tasks == 1 { "" } else { "s" })
}

fn show(words: &Serve, entries: &[&Entry], results: &Results) {
    output::line(&machine::sentence());
    for entry in entries {
        output::line(&format!("{}: {}", entry.name, entry.setting));
    }
    for tasks in &words.tasks {
        let workload = workload(*tasks);
        let mut head = vec![workload.clone()];
        head.extend(entries.iter().map(|entry| entry.name.to_owned()));
        let row = |figure: &str| {
            let mut row = vec![figure.to_owned()];
            row.extend(entries.iter().map(|entry| cell(results, &workload, entry.name, figure)));
            row
        };
        let rate = words.work.rate();
        let figures = [rate].into_iter().chain(FIGURES);
        output::table(&Grid { head, rows: figures.map(row).collect() }.table());
        for entry in entries {
            if let Some(wrong) = results.wrong(&workload, entry.name) {
                output::line(&format!("{}: {wrong}", entry.name));
            }
        }
        for (ours, other, wanted) in words.work.goals() {
            let wanted = wanted[usize::from(*tasks > 1)];
            show_goal(results, &workload, rate, (ours, other, wanted));
        }
    }
}

/// The ratio of a figure of two that is wanted, and the one that there is.
fn show_goal(results: &Results, workload: &str, figure: &str, (ours, other, wanted): (&str, &str, f64)) {
    let median = |name| results.middle(workload, name, figure).map(|middle| middle.median);
    if let (Some(ours_rate), Some(other_rate)) = (median(ours), median(other)) {
        let ratio = ours_rate / other_rate;
        let verdict = if ratio >= wanted { "won" } else { "LOST" };
        output::line(&format!("{ours} / {other}: {ratio:.2}, wanted {wanted}: {verdict}"));
    }
}

fn cell(results: &Results, workload: &str, engine: &str, figure: &str) -> String {
    match results.middle(workload, engine, figure) {
        Some(middle) => format!("{:.0} [{:.0} .. {:.0}]", middle.median, middle.least, middle.most),
        None => "-".to_owned(),
    }
}
