//! The simulation's command line: long searches, and cuts made again.
//!
//! `duramen-sim search --minutes N --seed S [--threads T]` searches crashes from seed S on.
//! `duramen-sim replay --seed S [--op N --choice C]` makes one cut again, or only runs the seed.
//! `duramen-sim trace --seed S` lists what the run of a seed does to its disk.
//! `duramen-sim damage [--all-bits] [--seed S] [--threads T]` damages every byte of small databases.
//! `duramen-sim recover [--every N] [--seed S] [--threads T]` damages every byte, or one of N, and recovers what is left.
#![allow(clippy::disallowed_methods, reason = "a program")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it found")]

use std::process::ExitCode;
use std::time::Duration;

use duramen_sim::damage::{Bits, closed, flips, killed, rearrangements};
use duramen_sim::salvage;
use duramen_sim::search::case::Case;
use duramen_sim::search::{LONG, QUICK, record, replay, search};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("search") => long_search(&args),
        Some("replay") => replay_case(&args),
        Some("trace") => print_trace(&args),
        Some("damage") => damage_sweep(&args),
        Some("recover") => recovery_sweep(&args),
        _ => Err("search [--minutes N] [--seed S] [--threads T] | replay --seed S [--op N --choice C] | damage [--all-bits] | recover [--every N]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// The text after a flag.
fn text<'a>(args: &'a [String], flag: &str) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg == flag)?;
    args.get(at + 1).map(String::as_str)
}

fn number(args: &[String], flag: &str) -> Result<Option<u64>, String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("{flag} takes a number, not {text:?}"));
    text(args, flag).map(parse).transpose()
}

fn long_search(args: &[String]) -> Result<(), String> {
    let minutes = number(args, "--minutes")?.unwrap_or(1);
    let seconds = number(args, "--seconds")?.unwrap_or(minutes * 60);
    let seed = number(args, "--seed")?.unwrap_or(1);
    let threads = usize::try_from(number(args, "--threads")?.unwrap_or(2)).map_err(|e| e.to_string())?;
    let budget = if args.iter().any(|arg| arg == "--quick") { QUICK } else { LONG };
    let found = search(seed..u64::MAX, &budget, threads, Some(Duration::from_secs(seconds)));
    let report = found.map_err(|failure| failure.to_string())?;
    println!("{report}");
    let unseen = report.unseen();
    if unseen.is_empty() { Ok(()) } else { Err(format!("no cut fell into: {}", unseen.join(", "))) }
}

fn damage_sweep(args: &[String]) -> Result<(), String> {
    let seed = number(args, "--seed")?.unwrap_or(35);
    let threads = usize::try_from(number(args, "--threads")?.unwrap_or(2)).map_err(|e| e.to_string())?;
    let bits = if args.iter().any(|arg| arg == "--all-bits") { Bits::All } else { Bits::OnePerByte };
    let mut violations = Vec::new();
    for specimen in [closed(seed), killed(seed)] {
        for report in [rearrangements(&specimen, seed), flips(&specimen, seed, bits, threads)] {
            println!("{}: {report}", specimen.name);
            violations.extend(report.violations);
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

fn recovery_sweep(args: &[String]) -> Result<(), String> {
    let seed = number(args, "--seed")?.unwrap_or(35);
    let every = number(args, "--every")?.unwrap_or(1).max(1);
    let threads = usize::try_from(number(args, "--threads")?.unwrap_or(2)).map_err(|e| e.to_string())?;
    let mut violations = Vec::new();
    for specimen in [salvage::closed(seed), salvage::killed(seed)] {
        for report in [salvage::blocks(&specimen), salvage::flips(&specimen, seed, every, threads)] {
            println!("{}: {report}", specimen.name);
            violations.extend(report.violations);
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

fn replay_case(args: &[String]) -> Result<(), String> {
    let seed = number(args, "--seed")?.ok_or("replay needs --seed")?;
    let Some(op) = number(args, "--op")? else {
        let recorded = record(seed).map_err(|failure| failure.to_string())?;
        let last = recorded.history.last_seq();
        println!("seed {seed}: {} operations, {last} commits, no cut", recorded.trace.len());
        return Ok(());
    };
    let op = usize::try_from(op).map_err(|e| e.to_string())?;
    let choice = text(args, "--choice").unwrap_or("none").parse()?;
    let seq = replay(Case { seed, op, choice }).map_err(|failure| failure.to_string())?;
    println!("survived: recovered commit {seq}");
    Ok(())
}

fn print_trace(args: &[String]) -> Result<(), String> {
    let seed = number(args, "--seed")?.ok_or("trace needs --seed")?;
    let recorded = record(seed).map_err(|failure| failure.to_string())?;
    for op in 0..recorded.trace.len() {
        let (floor, ceiling) = (recorded.history.floor(op), recorded.history.ceiling(op));
        println!("{op:>5} {floor:>3}..{ceiling:<3} {}", recorded.trace.describe(op));
    }
    Ok(())
}
