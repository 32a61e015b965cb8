//! Rows loaded at random, a batch in each transaction, far beyond memory: the peak memory of the process, and
//! what it writes.
//!
//! `cargo run --release -p duramen-sim --example scattered_memory -- DIR [ROWS] [MEMORY_MIB] [BATCH_ROWS]
//! [PEAK_MIB_MAX]`
//!
//! Every row of a batch changes a different leaf. With a last number, a higher peak of anonymous memory is a
//! failure.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen_disk::OsDisk;
use duramen_disk::memory::Random;
use duramen_engine::{Builtin, Durability, Engine, Hooks, KeyRange, Options, Result};

/// A key of 16 bytes, and a value of 100.
const ROW_BYTES: u64 = 116;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let mut number = |or: u64| args.next().map_or(or, |n| n.parse().expect("a number"));
    let (rows, memory_mib, batch_rows, peak_mib_max) =
        (number(1_000_000), number(32), number(1000), number(u64::MAX >> 20));
    let memory_bytes = usize::try_from(memory_mib << 20).expect("64-bit targets only");
    let options = Options { memory_bytes, ..Options::default() };
    let engine = Engine::open(Arc::new(OsDisk::new()), dir, options, Hooks::default())?;
    let stop = AtomicBool::new(false);
    let peak = Peak::default();
    std::thread::scope(|scope| {
        scope.spawn(|| peak.watch(&engine, &stop));
        let loaded = load(&engine, rows, batch_rows);
        stop.store(true, Ordering::Relaxed);
        loaded
    })?;
    println!("{:?}", engine.stats());
    println!(
        "{:.1} bytes written for each byte of a row",
        written_bytes() as f64 / (rows * ROW_BYTES) as f64
    );
    let (anonymous, nodes) = (peak.anonymous_kib.into_inner(), peak.nodes_bytes.into_inner());
    println!("peak of nodes: {:.1} MiB", nodes as f64 / f64::from(1 << 20));
    println!("peak anonymous memory: {:.1} MiB", anonymous as f64 / 1024.0);
    engine.close()?;
    assert!(anonymous <= peak_mib_max << 10, "at most {peak_mib_max} MiB were allowed");
    Ok(())
}

fn load(engine: &Engine, rows: u64, batch_rows: u64) -> Result<()> {
    let (tree, _) =
        engine.transact(Durability::Disk, |tx| tx.create_tree("rows", Some(Builtin::Sum.spec())))?;
    let mut random = Random::new(7);
    let (began, mut told, mut done) = (Instant::now(), 0, 0);
    while done < rows {
        let keys: Vec<[u8; 16]> = (0..batch_rows.min(rows - done))
            .map(|_| {
                let (a, b) = (random.bits(), random.bits());
                ((u128::from(a) << 64) | u128::from(b)).to_be_bytes()
            })
            .collect();
        let mut value = [7; 100];
        value[..8].copy_from_slice(&1i64.to_le_bytes());
        engine.transact(Durability::Disk, |tx| keys.iter().try_for_each(|key| tx.put(tree, key, &value)))?;
        done += keys.len() as u64;
        if done * 10 / rows > told {
            told = done * 10 / rows;
            let (stats, mib) = (engine.stats(), |bytes: u64| bytes >> 20);
            println!(
                "{done} rows in {:.1} s: {} MiB anonymous, {} of nodes, {} dirty, {} buffered",
                began.elapsed().as_secs_f64(),
                anonymous_kib() >> 10,
                mib(stats.resident_bytes),
                mib(stats.dirty_bytes),
                mib(stats.buffered_bytes),
            );
        }
    }
    assert_eq!(engine.snapshot()?.count(tree, &KeyRange::all())?, rows);
    Ok(())
}

fn anonymous_kib() -> u64 {
    of_process("status", "RssAnon:")
}

/// Bytes given to write calls.
fn written_bytes() -> u64 {
    of_process("io", "wchar:")
}

/// A number that Linux tells about this process; 0 elsewhere.
fn of_process(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[derive(Default)]
struct Peak {
    anonymous_kib: AtomicU64,
    nodes_bytes: AtomicU64,
}

impl Peak {
    fn watch(&self, engine: &Engine, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let stats = engine.stats();
            let (now, before) = (anonymous_kib(), self.anonymous_kib.load(Ordering::Relaxed));
            if now > before + before / 20 {
                println!(
                    "  new peak {} MiB: {} nodes, {} dirty, {} buffered",
                    now >> 10,
                    stats.resident_bytes >> 20,
                    stats.dirty_bytes >> 20,
                    stats.buffered_bytes >> 20
                );
            }
            self.anonymous_kib.fetch_max(now, Ordering::Relaxed);
            self.nodes_bytes.fetch_max(stats.resident_bytes, Ordering::Relaxed);
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
