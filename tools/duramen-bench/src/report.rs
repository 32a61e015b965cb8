//! The report of a run: machine and settings, a table per workload, the verdicts; also as JSON and as one
//! HTML page.

mod html;

pub(crate) use html::goals as goals_section;

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use duramen_disk::probe::{Host, WriteCache, probe};
use duramen_disk::{Disk, OsDisk};
use serde_json::json;

use crate::args::Compare;
use crate::engine::Result;
use crate::engines;
use crate::machine;
use crate::output;
use crate::results::Results;
use crate::tables;
use crate::verdict::{self, Verdict};

/// Prints results, and writes the requested files.
///
/// # Errors
/// Errors of writing a file.
pub(crate) fn show(args: &Compare, results: &Results) -> Result<()> {
    let facts = facts(args);
    for fact in &facts {
        output::line(fact);
    }
    output::table(&tables::engines());
    for workload in results.workloads() {
        output::table(&tables::of(results, &workload));
        for (engine, notes) in results.notes_of(&workload) {
            output::line(&format!("{engine}: {}", notes.join("; ")));
        }
    }
    for note in &results.notes {
        output::line(note);
    }
    let verdicts = verdict::verdicts(results);
    if !verdicts.is_empty() {
        output::table(&verdict::table(&verdicts));
        let won = verdicts.iter().filter(|verdict| verdict.won).count();
        output::line(&format!("{won} goals won, {} lost", verdicts.len() - won));
    }
    let json = json(&facts, results, &verdicts)?;
    if let Some(path) = &args.json {
        fs::write(path, &json)?;
    }
    if let Some(path) = &args.html {
        fs::write(path, html::page(&facts, results, &verdicts, json))?;
    }
    Ok(())
}

fn json(facts: &[String], results: &Results, verdicts: &[Verdict]) -> Result<String> {
    let goals: Vec<_> = verdicts.iter().map(goal_as_json).collect();
    let all = json!({"v": 1, "kind": "compare", "facts": facts, "results": results, "goals": goals});
    Ok(serde_json::to_string_pretty(&all)?)
}

/// A goal in a form for programs.
pub(crate) fn goal_as_json(verdict: &Verdict) -> serde_json::Value {
    json!({"goal": verdict.what, "ours": verdict.ours, "beside": verdict.beside,
           "ratio": verdict.ratio, "wanted": verdict.wanted, "won": verdict.won})
}

/// Where, when and how it was measured.
fn facts(args: &Compare) -> Vec<String> {
    let mut facts = facts_of_machine();
    facts.insert(1, fact_of_disk(&args.dir));
    if args.in_memory {
        facts.push("in memory: a sync costs nothing, so only processor time means something".to_owned());
    }
    facts.push(format!(
        "engines: {}; medians of the rounds, [least .. most] where they lie more than a twentieth apart",
        engines::all().iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    ));
    facts
}

/// Prints where, when and how it was measured, and returns it.
pub(crate) fn tell_facts(dir: &Path) -> Vec<String> {
    let mut facts = facts_of_machine();
    facts.push(fact_of_disk(dir));
    facts.iter().for_each(|fact| output::line(fact));
    facts
}

/// The machine, the time, and the command.
pub(crate) fn facts_of_machine() -> Vec<String> {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let words: Vec<String> = std::env::args().skip(1).collect();
    vec![
        format!("machine: {}; load {:.1} at the end", machine::sentence(), machine::load()),
        format!("time: {seconds} seconds after 1970; command: duramen-bench {}", words.join(" ")),
    ]
}

/// The file system and device, and whether the device has a volatile cache.
pub(crate) fn fact_of_disk(dir: &Path) -> String {
    let file_system = OsDisk::new().file_system(dir);
    let file_system = file_system.map_or_else(|_| "an unknown file system".to_owned(), |found| found.name);
    let device = machine::device_of(dir).and_then(|path| fs::canonicalize(path).ok());
    let device = device.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let device = device.unwrap_or_else(|| "an unknown device".to_owned());
    let caches: Vec<String> = probe(&Host::this(), dir).map_or_else(
        |_| Vec::new(),
        |report| {
            report.disks().map(|disk| format!("{} {}", disk.name, cache_of(disk.write_cache.value))).collect()
        },
    );
    format!("disk: {file_system} on {device}; {}", caches.join(", "))
}

fn cache_of(cache: Option<WriteCache>) -> &'static str {
    match cache {
        Some(WriteCache::Volatile) => "has a volatile write cache, flushed by syncs",
        Some(WriteCache::WriteThrough) => "says that it has no volatile write cache",
        None => "does not say whether it has a volatile write cache",
    }
}
