//! Many threads commit one new row each, durably, on a real disk: how many commits share a sync.
//!
//! `cargo run --release -p duramen-sim --example group_commit -- DIR [THREADS] [SECONDS]`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen_disk::OsDisk;
use duramen_engine::{Durability, Engine, Hooks, Options, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let threads: u64 = args.next().map_or(16, |n| n.parse().expect("a number of threads"));
    let seconds: u64 = args.next().map_or(5, |n| n.parse().expect("a number of seconds"));
    let engine = Engine::open(Arc::new(OsDisk::new()), &dir, Options::default(), Hooks::default())?;
    let (tree, _) = engine.transact(Durability::Disk, |tx| match tx.tree("rows")? {
        Some(tree) => Ok(tree),
        None => tx.create_tree("rows", None),
    })?;
    let stop = AtomicBool::new(false);
    let next = AtomicU64::new(engine.snapshot()?.tree_info(tree)?.len);
    let before = engine.stats();
    let began = Instant::now();
    let latencies: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| work(&engine, tree, &next, &stop))).collect();
        std::thread::park_timeout(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("workers do not panic")).collect()
    });
    let elapsed = began.elapsed().as_secs_f64();
    let after = engine.stats();
    let mut all: Vec<u64> = latencies.concat();
    all.sort_unstable();
    let commits = after.commit.commits - before.commit.commits;
    let syncs = after.log.sync_count - before.log.sync_count;
    println!(
        "{threads} threads: {:.0} commits/s, {:.2} commits per sync, p50 {} us, p99 {} us, max {} us, {} checkpoints",
        commits as f64 / elapsed,
        commits as f64 / syncs as f64,
        all[all.len() / 2],
        all[all.len() * 99 / 100],
        all[all.len() - 1],
        after.checkpoints - before.checkpoints,
    );
    engine.close()
}

fn work(engine: &Engine, tree: duramen_engine::TreeId, next: &AtomicU64, stop: &AtomicBool) -> Vec<u64> {
    let mut latencies = Vec::new();
    let mut value = vec![7u8; 1024];
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        value[..8].copy_from_slice(&id.to_le_bytes());
        let began = Instant::now();
        let mut tx = engine.begin().expect("the engine is open");
        tx.put(tree, &id.to_be_bytes(), &value).expect("the key is short");
        tx.commit(Durability::Disk).expect("a blind write commits");
        latencies.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    latencies
}
