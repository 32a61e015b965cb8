//! Repeats the published experiment: which sync call keeps which promise on which file system and which
//! drive.
//!
//! Owns the cells, the published results, and the verdict on the tool itself: a cell that must lose data but
//! never does shows that nothing was cut. Each trial is a process `powercut run`; a worker runs one after
//! another.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use crate::linux::args::{Cache, TableArgs};
use crate::linux::failure::{BLIND, DATA_LOST, FILE_SYSTEM_LOST, INTERNAL};
use crate::linux::file_system::FileSystem;
use crate::linux::records::{Init, SyncCall};
use crate::linux::report;

/// The time of the cut in each trial, in milliseconds: late enough for some acknowledgements.
const CUT_AFTER_MS: &str = "10..60";
/// Records of the writer: more than any trial with syncs can write.
const RECORDS: u64 = 2000;
const CACHES: [Cache; 2] = [Cache::WriteThrough, Cache::Volatile];

/// One way to write, on one drive and file system.
#[derive(Debug, Clone, Copy)]
struct Cell {
    fs: FileSystem,
    cache: Cache,
    init: Init,
    sync: SyncCall,
}

/// The results of a cell's trials.
#[derive(Debug, Clone, Default)]
struct Tally {
    trials: u64,
    /// Trials that lost acknowledged data.
    lost: u64,
    /// Trials that lost the file system, or whose fsck failed.
    file_systems_lost: u64,
    /// Trials without a verdict, and the first reason.
    broken: u64,
    why: String,
    /// The first command that lost data, for repeating it.
    again: String,
    acknowledged: u64,
}

impl Cell {
    fn all(only: &[FileSystem]) -> Vec<Cell> {
        let chosen = FileSystem::ALL.into_iter().filter(|fs| only.is_empty() || only.contains(fs));
        let drives = chosen.flat_map(|fs| CACHES.map(|cache| (fs, cache)));
        let files = drives.flat_map(|(fs, cache)| Init::ALL.map(|init| (fs, cache, init)));
        files.flat_map(|(fs, cache, init)| SyncCall::ALL.map(|sync| Cell { fs, cache, init, sync })).collect()
    }

    /// Trials of a hundred that lost acknowledged data in the published experiment.
    fn published(&self) -> (u64, u64) {
        use FileSystem::{Btrfs, Ext4, Xfs};
        let through = self.cache == Cache::WriteThrough;
        match (self.sync, self.fs, self.init) {
            (SyncCall::Fdatasync | SyncCall::Dsync, _, _) => (0, 0),
            (SyncCall::SyncFileRange, Ext4 | Xfs, Init::Zeroes) if through => (0, 0),
            (SyncCall::SyncFileRange, Ext4, Init::Zeroes) => (89, 89),
            (SyncCall::SyncFileRange, Xfs, Init::Zeroes) => (90, 90),
            (SyncCall::SyncFileRange, _, _) => (100, 100),
            (SyncCall::None, Btrfs, _) => (97, 100),
            (SyncCall::None, Ext4, Init::Zeroes) => (96, 96),
            (SyncCall::None, Ext4, Init::SetLen) if through => (99, 99),
            (SyncCall::None, Ext4, Init::SetLen) => (98, 98),
            (SyncCall::None, Xfs, Init::Zeroes) if through => (98, 98),
            (SyncCall::None, Xfs, Init::Zeroes) => (96, 96),
            (SyncCall::None, Xfs, Init::SetLen) => (97, 97),
        }
    }

    fn must_keep(&self) -> bool {
        matches!(self.sync, SyncCall::Fdatasync | SyncCall::Dsync)
    }

    fn must_lose(&self) -> bool {
        self.published().0 > 0
    }

    fn row(&self) -> String {
        format!("{}, {}, {}", self.fs.name(), self.cache.name(), self.init.name())
    }

    /// The command of one trial.
    fn words(&self, seed: u64) -> Vec<OsString> {
        let program = std::env::current_exe().unwrap_or_else(|_| "powercut".into());
        let quoted = format!("'{}'", program.display().to_string().replace('\'', r"'\''"));
        let (init, sync) = (self.init.name(), self.sync.name());
        let setup = format!(
            "{quoted} write-records --file records --init {init} --sync none --count {RECORDS} --prepare"
        );
        let check = format!("{quoted} check-records --file records --ack \"$POWERCUT_ACK\"");
        let mut words: Vec<OsString> =
            ["run", "--json", "--fsck", "--fs", self.fs.name()].map(OsString::from).into();
        let seed = seed.to_string();
        words.extend(
            ["--cache", self.cache.name(), "--seed", &seed, "--cut-after-ms", CUT_AFTER_MS]
                .map(OsString::from),
        );
        words.extend(["--setup", &setup, "--check", &check, "--"].map(OsString::from));
        words.push(program.into_os_string());
        words.extend(
            ["write-records", "--file", "records", "--init", init, "--sync", sync].map(OsString::from),
        );
        words.extend(["--count".to_owned(), RECORDS.to_string()].map(OsString::from));
        words
    }
}

impl Tally {
    fn add(&mut self, trial: &Value) {
        self.trials += 1;
        self.acknowledged += trial["ack_lines"].as_u64().unwrap_or_default();
        let again = || trial["repeat"].as_str().unwrap_or_default().to_owned();
        match trial["exit"].as_u64() {
            Some(0) => {}
            Some(code) if code == u64::from(DATA_LOST) => {
                self.lost += 1;
                if self.again.is_empty() {
                    self.again = again();
                }
            }
            Some(code) if code == u64::from(FILE_SYSTEM_LOST) => {
                self.file_systems_lost += 1;
                self.why = again();
            }
            _ => {
                self.broken += 1;
                self.why = trial["error"].as_str().unwrap_or("the writer failed").to_owned();
            }
        }
    }
}

pub(crate) fn run(args: &TableArgs) -> ExitCode {
    let began = Instant::now();
    let cells = Cell::all(&args.fs);
    let tallies = tallies(&cells, args);
    let seconds = began.elapsed().as_secs_f64();
    if args.json {
        report::line(&to_json(&cells, &tallies, seconds).to_string());
    } else {
        print(&cells, &tallies, seconds);
    }
    ExitCode::from(exit(&cells, &tallies))
}

/// Runs every trial of every cell, interleaved, so that a slowdown of the machine affects all cells.
fn tallies(cells: &[Cell], args: &TableArgs) -> Vec<Tally> {
    let trial_count = cells.len() * usize::try_from(args.cuts).unwrap_or(usize::MAX);
    let next = AtomicUsize::new(0);
    let tallies = Mutex::new(vec![Tally::default(); cells.len()]);
    std::thread::scope(|scope| {
        for _ in 0..args.workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= trial_count {
                        return;
                    }
                    let cell = number % cells.len();
                    let trial = trial(&cells[cell].words(args.seed + (number / cells.len()) as u64));
                    tallies.lock().unwrap_or_else(PoisonError::into_inner)[cell].add(&trial);
                    if (number + 1).is_multiple_of(cells.len()) {
                        report::note(&format!("{} of {trial_count} trials", number + 1));
                    }
                }
            });
        }
    });
    tallies.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one trial. Returns its output, or why there is none.
fn trial(words: &[OsString]) -> Value {
    let ended =
        Command::new("/proc/self/exe").args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let broken = |why: String| json!({"exit": INTERNAL, "error": why});
    match ended {
        Ok(ended) => serde_json::from_slice(&ended.stdout)
            .unwrap_or_else(|error| broken(format!("{error}; it ended with {}", ended.status))),
        Err(error) => broken(format!("cannot start a trial: {error}")),
    }
}

/// Severity: lost data where none may be lost, then no verdict, then a lost file system, then a blind tool.
fn exit(cells: &[Cell], tallies: &[Tally]) -> u8 {
    let pairs = || cells.iter().zip(tallies);
    if pairs().any(|(cell, tally)| cell.must_keep() && tally.lost > 0) {
        DATA_LOST
    } else if pairs().any(|(_, tally)| tally.broken > 0) {
        INTERNAL
    } else if pairs().any(|(_, tally)| tally.file_systems_lost > 0) {
        FILE_SYSTEM_LOST
    } else if pairs().any(|(cell, tally)| cell.must_lose() && tally.lost == 0) {
        BLIND
    } else {
        0
    }
}

fn published(cell: &Cell) -> String {
    match cell.published() {
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low}-{high}"),
    }
}

fn print(cells: &[Cell], tallies: &[Tally], seconds: f64) {
    report::line(
        "Trials that lost acknowledged data / trials, and in brackets those of 100 that were published.",
    );
    report::line("");
    report::line("| file system, cache, file made by | fdatasync | O_DSYNC | sync_file_range | no sync |");
    report::line("|---|---|---|---|---|");
    let mut rows: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
    for (index, (cell, tally)) in cells.iter().zip(tallies).enumerate() {
        let row = rows.entry(index / SyncCall::ALL.len()).or_insert_with(|| (cell.row(), Vec::new()));
        row.1.push(format!("{}/{} ({})", tally.lost, tally.trials, published(cell)));
    }
    for (name, row) in rows.values() {
        report::line(&format!("| {name} | {} |", row.join(" | ")));
    }
    report::line("");
    for (cell, tally) in cells.iter().zip(tallies) {
        let place = format!("{}, {}", cell.row(), cell.sync.name());
        if cell.must_keep() && tally.lost > 0 {
            report::line(&format!("LOST where nothing may be lost: {place}; again: {}", tally.again));
        }
        if tally.file_systems_lost > 0 {
            report::line(&format!(
                "{} file systems lost: {place}; again: {}",
                tally.file_systems_lost, tally.why
            ));
        }
        if tally.broken > 0 {
            report::line(&format!("{} trials without a verdict: {place}: {}", tally.broken, tally.why));
        }
        if cell.must_lose() && tally.lost == 0 {
            report::line(&format!("NEVER LOST, though it must: {place}: was anything cut?"));
        }
    }
    let trials: u64 = tallies.iter().map(|tally| tally.trials).sum();
    let acknowledged: u64 = tallies.iter().map(|tally| tally.acknowledged).sum();
    report::line(&format!("{trials} cuts, {acknowledged} records acknowledged, {seconds:.0} s"));
}

fn to_json(cells: &[Cell], tallies: &[Tally], seconds: f64) -> Value {
    let all: Vec<Value> = cells
        .iter()
        .zip(tallies)
        .map(|(cell, tally)| {
            json!({
                "fs": cell.fs.name(),
                "cache": cell.cache.name(),
                "init": cell.init.name(),
                "sync": cell.sync.name(),
                "trials": tally.trials,
                "lost": tally.lost,
                "published_of_100": [cell.published().0, cell.published().1],
                "file_systems_lost": tally.file_systems_lost,
                "broken": tally.broken,
                "why": tally.why,
                "again": tally.again,
                "acknowledged": tally.acknowledged,
            })
        })
        .collect();
    json!({"exit": exit(cells, tallies), "cells": all, "seconds": seconds})
}
