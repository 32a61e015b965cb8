//! Imports that are stopped: by a signal after a batch, by `kill -9` in the middle of one.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;

use crate::runner::{FLIGHTS, JANUARY, Scratch, gunzip};

const BATCH: u64 = 100;

fn import_stream() -> Vec<&'static str> {
    let args = ["import", "db", "-", "--format", "csv", "--batch", "100", "--ack"];
    [&args, FLIGHTS].concat()
}

/// The batch and row counts of an acknowledgement.
fn rows_of(ack: &str) -> u64 {
    ack.split(' ').nth(2).and_then(|word| word.trim().parse().ok()).unwrap_or_else(|| panic!("{ack:?}"))
}

/// D1 at level `Process` and D2: what was acknowledged is there, and no batch in part.
#[test]
fn after_kill_9_every_acknowledged_batch_is_there_and_none_in_part() {
    let lines = gunzip(JANUARY.as_ref());
    for acks_before_kill in [1, 7, 30] {
        let scratch = Scratch::new();
        let mut child = scratch.spawn(&import_stream());
        let (mut input, text) = (child.stdin.take().unwrap(), lines.clone());
        let feeder = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut acked = 0;
        for _ in 0..acks_before_kill {
            let mut ack = String::new();
            output.read_line(&mut ack).unwrap();
            acked = rows_of(&ack);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        feeder.join().unwrap();
        for ack in output.lines().map_while(Result::ok).filter(|ack| ack.split(' ').count() == 4) {
            acked = rows_of(&ack);
        }
        let found: u64 = scratch.ok(&["count", "db", "-c", "flights"]).trim().parse().unwrap();
        assert!(found >= acked, "{acked} acknowledged, {found} found");
        assert_eq!(found % BATCH, 0, "a batch is there in part");
        let kept: std::collections::BTreeSet<&str> =
            lines.lines().skip(1).take(usize::try_from(found).unwrap()).collect();
        let exported = scratch.ok(&["export", "db", "-c", "flights", "--format", "csv"]);
        assert!(
            exported.lines().skip(1).eq(sorted_as_stored(&scratch, &kept)),
            "not the first lines of the input"
        );
        scratch.ok(&["check", "db"]);
        scratch.ok(&[&["import", "db", JANUARY, "--replace"], FLIGHTS].concat());
        assert_eq!(scratch.ok(&["count", "db", "-c", "flights"]), "27004\n");
    }
}

/// The same lines, stored in another database in one go: their order is that of their keys.
fn sorted_as_stored(scratch: &Scratch, lines: &std::collections::BTreeSet<&str>) -> Vec<String> {
    let header = gunzip(JANUARY.as_ref()).lines().next().unwrap().to_owned();
    let text: String = std::iter::once(header.as_str())
        .chain(lines.iter().copied())
        .map(|line| format!("{line}\n"))
        .collect();
    scratch.write("kept.csv", text);
    scratch.ok(&[&["import", "kept", "kept.csv", "--durability", "memory"], FLIGHTS].concat());
    let exported = scratch.ok(&["export", "kept", "-c", "flights", "--format", "csv"]);
    exported.lines().skip(1).map(str::to_owned).collect()
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
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
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

/// Nobody reads the acknowledgements: going on would promise to nobody.
#[test]
fn acknowledgements_nobody_reads_end_the_import() {
    let scratch = Scratch::new();
    let args = ["import", "db", JANUARY, "--batch", "10", "--ack", "--durability", "memory"];
    let mut child = scratch.spawn(&[&args, FLIGHTS].concat());
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(said.contains("nobody reads the acknowledgements"), "{said}");
}
