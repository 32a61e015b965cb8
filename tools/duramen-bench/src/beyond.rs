//! `beyond`: loads of more rows than an engine's memory holds, by engines whose memory can be bounded.
//!
//! Owns the order of the turns and their report; `workloads::beyond` measures one.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cgroup::Group;
use crate::child;
use crate::compare::{check_disk, engines_of};
use crate::engine::{Entry, Failure, Result};
use crate::job::{Bound, Job, Outcome, Step};
use crate::machine;
use crate::output;
use crate::report;
use crate::results::{Measured, Results};
use crate::tables;
use crate::workloads::SEED;

/// The engines whose memory can be bounded, of those that are measured here.
const BOUNDED: [&str; 3] = ["duramen", "fjall", "rocksdb"];

/// How to go beyond memory.
#[derive(Debug, Args)]
pub(crate) struct Beyond {
    /// Rows, 1,000 a durable transaction, in random key order.
    #[arg(long, default_value_t = 3_000_000, value_name = "ROWS")]
    pub rows: u64,
    /// The memory that an engine may take, in MiB: half a rival's cache, half its tables in memory.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub memory_mib: usize,
    /// Rows that are written over afterwards, drawn at random.
    #[arg(long, default_value_t = 1_000_000, value_name = "ROWS")]
    pub replaced: u64,
    /// Collections beside that of the rows, in which each row has a row of another random key.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub views: usize,
    /// Runs each turn in a memory cgroup of so many MiB, the kernel's cache of its files included; else in
    /// none.
    #[arg(long, value_name = "N")]
    pub cgroup_mib: Option<u64>,
    /// Only these engines.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub engines: Vec<String>,
    /// Rounds, in each of which every engine has one turn.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u32,
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// Writes every figure of every round to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What keys, values and order are drawn from.
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
}

/// Runs every turn, and reports.
///
/// # Errors
/// Errors that make the whole run impossible; a failing turn is a result.
pub(crate) fn run(words: &Beyond) -> Result<()> {
    check_disk(&words.dir)?;
    if words.views > 4 || words.rows == 0 || [words.rows, words.replaced].iter().any(|rows| rows % 1000 > 0) {
        return Err("rows are multiples of 1000, a transaction's rows; views are four at most".into());
    }
    let engines = bounded(&words.engines)?;
    let dir = words.dir.join(format!("duramen-beyond-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = fs::canonicalize(dir)?;
    let mut results = Results::default();
    for round in 0..words.rounds.max(1) {
        for index in 0..engines.len() {
            // A different one first in each round.
            let entry = &engines[(index + round as usize) % engines.len()];
            let measured = turn(words, entry, round, &dir);
            let said = match (&measured.outcome, &measured.failed) {
                (_, Some(failed)) => format!("FAILED: {failed}"),
                (Some(outcome), _) if !outcome.is_right() => "WRONG ANSWER".to_owned(),
                (Some(outcome), _) => format!("{:.0} rows/s", outcome.figures["rows/s"]),
                (None, None) => String::new(),
            };
            output::progress(&format!("round {}  {:10} {said}", round + 1, entry.name));
            results.measured.push(measured);
        }
    }
    child::remove(&dir)?;
    show(words, &results)
}

/// The engines of these names; without names all whose memory can be bounded.
fn bounded(names: &[String]) -> Result<Vec<Entry>> {
    let is_bounded = |entry: &Entry| BOUNDED.contains(&entry.name);
    let engines = engines_of(names)?;
    if !names.is_empty() && !engines.iter().all(is_bounded) {
        return Err(format!("the memory of these can be bounded: {}", BOUNDED.join(", ")).into());
    }
    Ok(engines.into_iter().filter(is_bounded).collect())
}

fn turn(words: &Beyond, entry: &Entry, round: u32, dir: &Path) -> Measured {
    let outcome = child::in_fresh(&dir.join(entry.name), |dir| turn_in(words, entry, dir));
    let workload = format!("beyond-{}-{}MiB-{}views", words.rows, words.memory_mib, words.views);
    Measured::of_turn(&workload, entry.name, round, outcome)
}

fn turn_in(words: &Beyond, entry: &Entry, dir: &Path) -> Result<Outcome> {
    machine::settle(dir);
    let bound = Bound { memory_bytes: words.memory_mib << 20, views: words.views, replaced: words.replaced };
    let job = Job {
        engine: entry.name.to_owned(),
        step: Step::Beyond(bound),
        dir: dir.to_path_buf(),
        seed: words.seed,
        seconds: 0.0,
        threads: 1,
        rows: words.rows,
    };
    let Some(mib) = words.cgroup_mib else { return child::run(&job).outcome };
    let group = Group::make(mib << 20)?;
    child::run_inside(&group, &job)
        .map_err(|failed| -> Failure { format!("{failed}{}", group.why_killed()).into() })
}

fn show(words: &Beyond, results: &Results) -> Result<()> {
    let facts = report::tell_facts(&words.dir);
    for workload in results.workloads() {
        output::table(&tables::grid(results, &workload).turned().table());
    }
    if let Some(path) = &words.json {
        let all = json!({"v": 1, "kind": "beyond", "facts": facts, "results": results});
        fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(())
}
