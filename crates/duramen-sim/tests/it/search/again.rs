//! A failure that is not repeatable is useless: the same seed gives the same run, the same cuts and the same
//! verdict, in this process and in the program that the failure names.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use duramen_disk::SyncMethod;
use duramen_disk::memory::CrashChoice;
use duramen_sim::search::case::{Case, Choice};
use duramen_sim::search::run::{Recorded, options_of};
use duramen_sim::search::{Budget, Failure, record, replay, search_seed, trace_hash};

/// A seed for each sync method of the log, with the log inside the database and on a separate disk.
fn seeds() -> Vec<u64> {
    let mut seeds: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..60 {
        let options = options_of(seed);
        seeds.entry(format!("{:?} {:?}", options.sync, options.wal_dir)).or_insert(seed);
    }
    assert_eq!(seeds.len(), 6, "three methods, two places: {seeds:?}");
    seeds.into_values().collect()
}

fn recorded(seed: u64) -> Recorded {
    record(seed).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let seeds = seeds();
    let hash = |seed: &u64| trace_hash(&recorded(*seed).trace);
    let hashes: Vec<u64> = seeds.iter().map(hash).collect();
    assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), seeds.len());
    for (seed, first) in seeds.iter().zip(hashes) {
        assert_eq!(hash(seed), first, "seed {seed} gave two different runs");
    }
}

/// The same cuts, recoveries and second cuts.
#[test]
fn the_same_seed_makes_the_same_cuts() {
    let budget = Budget { images_per_boundary: 3, random_choices: 2, boundary_stride: 40 };
    for seed in seeds() {
        let searched = || {
            search_seed(seed, &budget, &|| false).unwrap_or_else(|failure| panic!("{failure}")).to_string()
        };
        assert_eq!(searched(), searched(), "seed {seed}");
    }
}

/// The program's output for the arguments that a failure prints.
fn told(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_duramen-sim")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The command that a failure prints reproduces its cut, for any log directory and sync method.
#[test]
fn the_printed_command_makes_the_cut_again() {
    for seed in seeds() {
        let (log, rest) = (CrashChoice::Torn { index: 0, seed: 3 }, CrashChoice::Random { seed: 8 });
        let has_own_disk = options_of(seed).wal_dir.is_some();
        let choice = if has_own_disk { Choice::Apart { log, rest } } else { Choice::Whole(rest) };
        let case = Case { seed, op: recorded(seed).trace.len() / 2, choice };
        let failure = Failure { seed, case: Some(case), what: String::new(), around: String::new() };
        let printed = failure.to_string();
        let command = printed.lines().last().unwrap();
        let (program, args) = command.split_once(" -- ").unwrap();
        assert!(program.starts_with("again: cargo run") && program.ends_with("-p duramen-sim"), "{program}");
        let seq = replay(case).unwrap_or_else(|failure| panic!("{failure}"));
        let args: Vec<&str> = args.split(' ').collect();
        assert_eq!(told(&args), format!("survived: recovered commit {seq}\n"), "{command}");
    }
}

#[test]
fn the_printed_trace_is_that_of_the_run() {
    let is_direct = |seed: &u64| options_of(*seed).sync == Some(SyncMethod::DirectDsync);
    let seed = seeds().into_iter().find(is_direct).unwrap();
    let trace = recorded(seed).trace;
    let printed = told(&["trace", "--seed", &seed.to_string()]);
    assert_eq!(printed.lines().count(), trace.len());
    for (at, line) in printed.lines().enumerate() {
        assert!(line.ends_with(&trace.describe(at)), "operation {at}: {line}");
    }
}
