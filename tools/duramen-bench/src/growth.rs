//! `growth`: the same few queries on databases of growing size. Each runs in its own process and, if
//! possible, its own memory cgroup.
//!
//! Owns the order of the points and their report; `workloads::growth` measures one, `page` draws them.

mod page;
pub(crate) mod plan;

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::cgroup::Group;
use crate::child;
use crate::engine::{Failure, Result};
use crate::job::{Job, Limits, Outcome, Step};
use crate::output;
use crate::report;
use crate::results::{Measured, Results};
use crate::tables;

pub(crate) use plan::Growth;
use plan::Point;

/// Runs everything that was requested, and reports it.
///
/// # Errors
/// Errors that make the whole run impossible; a failing point is a result.
pub(crate) fn run(words: &Growth) -> Result<()> {
    let points = words.points()?;
    let dir = words.dir.join(format!("duramen-growth-{}", std::process::id()));
    child::fresh(&dir)?;
    let dir = fs::canonicalize(dir)?;
    let mut results = Results::default();
    if let Err(why) = Group::make(words.cgroup_bytes()) {
        results.notes.push(format!("No memory cgroup, skipped: {why}."));
    }
    let begun = Instant::now();
    for point in &points {
        let measured = measure(words, point, &dir);
        let said = match (&measured.outcome, &measured.failed) {
            (_, Some(failed)) => format!("FAILED: {failed}"),
            (Some(outcome), _) if !outcome.is_right() => "WRONG ANSWER".to_owned(),
            (Some(outcome), _) => outcome.notes.join("; "),
            (None, None) => String::new(),
        };
        let (at, rows) = (begun.elapsed().as_secs(), point.rows);
        output::progress(&format!("{at:>5} s  {rows:>11} rows  {:14} {said}", point.engine));
        results.measured.push(measured);
    }
    child::remove(&dir)?;
    show(words, &results)
}

/// One point, from an empty directory to a removed one.
fn measure(words: &Growth, point: &Point, dir: &Path) -> Measured {
    let outcome = child::in_fresh(&dir.join(&point.engine), |dir| measure_in(words, point, dir));
    Measured::of_turn(&point.workload(), &point.engine, 0, outcome)
}

fn measure_in(words: &Growth, point: &Point, dir: &Path) -> Result<Outcome> {
    crate::machine::settle(dir);
    let limits = Limits {
        in_key_order: point.in_key_order,
        seconds: words.limit_seconds(),
        bytes: words.limit_bytes(),
    };
    let job = Job {
        engine: point.engine.clone(),
        step: Step::Grow(limits),
        dir: dir.to_path_buf(),
        seed: words.seed,
        seconds: words.seconds,
        threads: 1,
        rows: point.rows,
    };
    match Group::make(words.cgroup_bytes()) {
        Ok(group) => child::run_inside(&group, &job)
            .map_err(|failed| -> Failure { format!("{failed}{}", group.why_killed()).into() }),
        Err(_) => child::run(&job).outcome,
    }
}

fn show(words: &Growth, results: &Results) -> Result<()> {
    let facts = report::tell_facts(&words.dir);
    for workload in results.workloads() {
        output::table(&tables::grid(results, &workload).turned().table());
        for (engine, notes) in results.notes_of(&workload) {
            output::line(&format!("{engine}: {}", notes.join("; ")));
        }
    }
    for note in &results.notes {
        output::line(note);
    }
    let all = json!({"v": 1, "kind": "growth", "facts": facts, "results": results});
    let json = serde_json::to_string_pretty(&all)?;
    if let Some(path) = &words.json {
        fs::write(path, &json)?;
    }
    if let Some(path) = &words.html {
        fs::write(path, page::page(&facts, results, json))?;
    }
    Ok(())
}
