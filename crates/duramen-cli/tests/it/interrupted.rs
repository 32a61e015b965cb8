//! Imports that are stopped: by a signal after a batch, by `kill -9` in the middle of one. Compactions too,
//! by `kill -9`.

mod kills;
mod ledger;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use kills::Input;
use ledger::Totals;

use crate::runner::{self, FLIGHTS, JANUARY, Scratch, gunzip};

const BATCH: u64 = 100;

const FLIGHTS_OF_JANUARY: Input = Input {
    file: JANUARY,
    batch: BATCH,
    all: Totals { rows: 27_004, dep_delay: 265_801, nulls: 521, distance: 27_188_805 },
    carriers: &[("EV", 4_171, 96_649), ("UA", 4_637, 38_342)],
};

const ALL_FLIGHTS: Input = Input {
    file: concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/nycflights/flights.csv.gz"),
    batch: 1_000,
    all: Totals { rows: 336_776, dep_delay: 4_152_200, nulls: 8_255, distance: 350_217_607 },
    carriers: &[("EV", 54_173, 1_024_829), ("UA", 58_665, 701_898), ("US", 20_536, 75_168)],
};

fn import_stream() -> Vec<&'static str> {
    let args = ["import", "db", "-", "--format", "csv", "--batch", "100", "--ack"];
    [&args, FLIGHTS].concat()
}

/// D1, as far as killing a process tests it, and D2: acknowledged batches exist, and no batch exists in part.
/// After a kill of a compaction every row exists that was not deleted.
///
/// With `DURAMEN_LONG`, all flights and twenty kills (`scripts/kill-loop`).
#[test]
fn after_kill_9_every_acknowledged_batch_is_there_and_none_in_part() {
    let long = std::env::var_os("DURAMEN_LONG").is_some();
    let number =
        |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let kills = number("DURAMEN_KILLS", if long { 20 } else { 8 });
    kills::run(if long { &ALL_FLIGHTS } else { &FLIGHTS_OF_JANUARY }, kills, number("DURAMEN_SEED", 1));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_import_after_the_batch_that_runs() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let scratch = Scratch::new();
        let mut child = scratch.spawn(&import_stream());
        // Standard input stays open: the reader waits for more, and the signal must end it all the same.
        let mut input = child.stdin.take().unwrap();
        let text: String =
            gunzip(JANUARY.as_ref()).lines().take(12_000).map(|line| format!("{line}\n")).collect();
        let feeder = std::thread::spawn(move || {
            let _ = input.write_all(text.as_bytes());
            input
        });
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let killed = runner::output(Command::new("kill").args([signal, &child.id().to_string()])).unwrap();
        assert!(killed.status.success());
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{said}");
        drop(feeder.join().unwrap());
        let stored: u64 = scratch.ok(&["count", "db", "-c", "flights"]).trim().parse().unwrap();
        assert!(stored >= BATCH && stored.is_multiple_of(BATCH), "{stored}");
        assert!(said.contains("stopped by signal") && said.contains("--replace"), "{said}");
    }
}

/// Imports from a standard input that delivers `input`, then stays idle and open. Returns both outputs.
#[cfg(unix)]
fn interrupt_idle(
    scratch: &Scratch,
    format: &str,
    input: &str,
    signal: (&str, i32),
    acks: u64,
) -> [String; 2] {
    let args = ["import", "db", "-", "-c", "rows", "--format", format, "--ack", "--json"];
    let mut child = scratch.spawn(if acks > 0 { &args[..8] } else { &args });
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    // It watches for signals before it takes the lock, in which it leaves its process id.
    let holder = format!("process {}", child.id());
    while std::fs::read_to_string(scratch.path("db/lock")).unwrap() != holder {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut told = String::new();
    (0..acks).for_each(|_| _ = stdout.read_line(&mut told).unwrap());
    let killed = runner::output(Command::new("kill").args([signal.0, &child.id().to_string()])).unwrap();
    assert!(killed.status.success());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on waiting for its input");
        std::thread::yield_now();
    }
    let mut said = String::new();
    stdout.read_to_string(&mut told).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(signal.1), "{told}{said}");
    drop(stdin);
    [told, said]
}

#[cfg(unix)]
#[test]
fn a_signal_ends_an_import_that_waits_for_its_input() {
    let scratch = Scratch::with_rows("id,n\n0,1\n", &["--key", "id"]);
    let gzip = "\u{1f}";
    for (format, input) in
        [("csv", ""), ("csv", gzip), ("csv", "id,n\n1,2\n"), ("ndjson", ""), ("ndjson", "{\"id\":1}\n{\"i")]
    {
        for signal in [("-INT", 130), ("-TERM", 143)] {
            let [told, _] = interrupt_idle(&scratch, format, input, signal, 0);
            let told = runner::json(&told);
            assert_eq!((&told["rows"], &told["complete"]), (&0.into(), &false.into()), "{input:?}");
        }
    }
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "1\n");
    // Ten batches are complete; the remaining rows wait for more.
    let rows: String = (1..=10_500).map(|id| format!("{id},1\n")).collect();
    let [told, said] = interrupt_idle(&scratch, "csv", &format!("id,n\n{rows}"), ("-INT", 130), 10);
    assert_eq!(told.lines().count(), 10, "{told}");
    assert!(said.contains("stopped by signal 2: 10,000 rows stored; "), "{said}");
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "10001\n");
    scratch.ok(&["check", "db", "--deep"]);
}

/// The acknowledgements cannot be read any more: continuing would acknowledge to no reader.
#[test]
fn acknowledgements_nobody_reads_end_the_import() {
    let scratch = Scratch::new();
    let args = ["import", "db", JANUARY, "--batch", "10", "--ack", "--durability", "memory"];
    let mut child = scratch.spawn(&[&args, FLIGHTS].concat());
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said.contains("the acknowledgements are no longer read"), "{said}");
}
