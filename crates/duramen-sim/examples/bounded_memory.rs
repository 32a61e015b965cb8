//! A database much larger than its memory, read and written at random, with a big value and an open snapshot:
//! the peak memory of the process.
//!
//! `cargo run --release -p duramen-sim --example bounded_memory -- DIR [ROWS] [MEMORY_MIB] [VALUE_MIB]
//! [SECONDS] [PEAK_MIB_MAX]`
//!
//! 4 GB: `... DIR 4000000 64 1024 40 80`; inside a memory cgroup: `scripts/bounded-memory`. With a last
//! number, a higher peak of anonymous memory is a failure.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen_disk::OsDisk;
use duramen_engine::{Builtin, Durability, Engine, Hooks, KeyRange, Options, Result, Snapshot, TreeId};

const BATCH_ROWS: u64 = 1000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let mut number = |or: u64| args.next().map_or(or, |n| n.parse().expect("a number"));
    let (rows, memory_mib, value_mib, seconds) = (number(400_000), number(16), number(64), number(20));
    let peak_mib_max = number(u64::MAX >> 20);
    let memory_bytes = usize::try_from(memory_mib << 20).expect("64-bit targets only");
    let options = Options { memory_bytes, ..Options::default() };
    let engine = Engine::open(Arc::new(OsDisk::new()), dir, options, Hooks::default())?;
    let stop = AtomicBool::new(false);
    let peak = Peak::default();
    std::thread::scope(|scope| {
        scope.spawn(|| peak.watch(&engine, &stop));
        let result = run(&engine, rows, value_mib, seconds);
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    println!("{:?}", engine.stats());
    engine.close()?;
    let (anonymous, nodes) = (peak.anonymous_kib.into_inner(), peak.nodes_bytes.into_inner());
    println!("peak of nodes: {:.1} MiB", nodes as f64 / f64::from(1 << 20));
    println!("peak anonymous memory: {:.1} MiB", anonymous as f64 / 1024.0);
    assert!(anonymous <= peak_mib_max << 10, "at most {peak_mib_max} MiB were allowed");
    Ok(())
}

fn run(engine: &Engine, rows: u64, value_mib: u64, seconds: u64) -> Result<()> {
    let create = |tx: &mut duramen_engine::Transaction| {
        Ok((tx.create_tree("rows", Some(Builtin::Sum.spec()))?, tx.create_tree("big", None)?))
    };
    let ((tree, big), _) = engine.transact(Durability::Disk, create)?;
    let began = Instant::now();
    load(engine, tree, rows)?;
    println!("loaded {rows} rows in key order in {:.1} s", began.elapsed().as_secs_f64());
    print_memory(engine);
    let snapshot = engine.snapshot()?;
    let began = Instant::now();
    let value = std::io::repeat(42).take(value_mib << 20);
    engine.transact(Durability::Disk, |tx| tx.put_stream(big, b"value", &mut { value.by_limit() }))?;
    println!("stored a value of {value_mib} MiB in {:.1} s", began.elapsed().as_secs_f64());
    print_memory(engine);
    churn(engine, tree, rows, Duration::from_secs(seconds))?;
    print_memory(engine);
    verify(engine, &snapshot, tree, big, rows, value_mib)
}

trait ByLimit {
    fn by_limit(&self) -> std::io::Take<std::io::Repeat>;
}

impl ByLimit for std::io::Take<std::io::Repeat> {
    fn by_limit(&self) -> std::io::Take<std::io::Repeat> {
        std::io::repeat(42).take(self.limit())
    }
}

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

fn value(row: u64, round: u64) -> Vec<u8> {
    let mut value = vec![0; 1000];
    let mut state = row ^ round << 40;
    for chunk in value.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    value[..8].copy_from_slice(&1i64.to_le_bytes());
    value
}

fn load(engine: &Engine, tree: TreeId, rows: u64) -> Result<()> {
    for batch in 0..rows.div_ceil(BATCH_ROWS) {
        engine.transact(Durability::Process, |tx| {
            let batch = batch * BATCH_ROWS..((batch + 1) * BATCH_ROWS).min(rows);
            batch.into_iter().try_for_each(|row| tx.put(tree, &key(row), &value(row, 0)))
        })?;
    }
    Ok(())
}

fn churn(engine: &Engine, tree: TreeId, rows: u64, time: Duration) -> Result<()> {
    let began = Instant::now();
    let (mut round, mut reads, mut writes) = (1, 0u64, 0u64);
    while began.elapsed() < time {
        let row = |n: u64| (n.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 16) % rows;
        engine.transact(Durability::Process, |tx| {
            (0..100).try_for_each(|n| {
                tx.put(tree, &key(row(round * 1000 + n)), &value(row(round * 1000 + n), round))
            })
        })?;
        writes += 100;
        for n in 0..100 {
            let found = engine.get(tree, &key(row(round * 7919 + n)))?;
            assert_eq!(found.map(|value| value.len()), Some(1000), "every row is there");
            reads += 1;
        }
        round += 1;
    }
    let seconds = time.as_secs_f64();
    println!("{:.0} reads/s and {:.0} writes/s at random", reads as f64 / seconds, writes as f64 / seconds);
    Ok(())
}

fn verify(
    engine: &Engine,
    old: &Snapshot,
    tree: TreeId,
    big: TreeId,
    rows: u64,
    value_mib: u64,
) -> Result<()> {
    let snapshot = engine.snapshot()?;
    for snapshot in [old, &snapshot] {
        assert_eq!(snapshot.count(tree, &KeyRange::all())?, rows);
        let sum = snapshot.reduce(tree, &KeyRange::all())?.value.expect("there are rows");
        assert_eq!(i128::from_le_bytes(sum.try_into().expect("sixteen bytes")), i128::from(rows));
    }
    for row in (0..rows).step_by(997) {
        assert_eq!(old.get(tree, &key(row))?, Some(value(row, 0)), "the old snapshot has not changed");
    }
    let mut reader = snapshot.open_value(big, b"value")?.expect("the value is there");
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0u64;
    loop {
        let count = reader.read(&mut buffer).expect("the value reads");
        if count == 0 {
            break;
        }
        assert!(buffer[..count].iter().all(|byte| *byte == 42), "the value is what was stored");
        total += count as u64;
    }
    assert_eq!(total, value_mib << 20);
    Ok(())
}

fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn print_memory(engine: &Engine) {
    let nodes = engine.stats().resident_bytes as f64 / f64::from(1 << 20);
    println!("  now {:.1} MiB anonymous, {nodes:.1} MiB of it nodes", anonymous_kib() as f64 / 1024.0);
}

#[derive(Default)]
struct Peak {
    anonymous_kib: AtomicU64,
    nodes_bytes: AtomicU64,
}

impl Peak {
    fn watch(&self, engine: &Engine, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.anonymous_kib.fetch_max(anonymous_kib(), Ordering::Relaxed);
            self.nodes_bytes.fetch_max(engine.stats().resident_bytes, Ordering::Relaxed);
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }
}
