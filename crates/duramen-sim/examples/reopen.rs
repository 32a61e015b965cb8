//! The time until the first correct answers after `kill -9` in the middle of a bulk load.
//!
//! `reopen load DIR` loads rows at random keys, 1,000 in each durable transaction, until it is killed;
//! `reopen open DIR` opens the database and measures. `scripts/reopen-after-kill` does both.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use duramen_disk::OsDisk;
use duramen_engine::{Builtin, Direction, Durability, Engine, Hooks, KeyRange, Options, Result};

const BATCH_ROWS: u64 = 1000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let what = args.next().expect("load or open");
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    match what.as_str() {
        "load" => load(dir),
        "open" => measure(dir),
        _ => panic!("load or open"),
    }
}

fn open(dir: PathBuf) -> Result<Engine> {
    Engine::open(Arc::new(OsDisk::new()), dir, Options::default(), Hooks::default())
}

fn key(row: u64) -> [u8; 8] {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn load(dir: PathBuf) -> Result<()> {
    let engine = open(dir)?;
    let (tree, _) =
        engine.transact(Durability::Disk, |tx| tx.create_tree("rows", Some(Builtin::Sum.spec())))?;
    let mut value = [0; 100];
    value[0] = 1;
    for batch in 0.. {
        engine.transact(Durability::Disk, |tx| {
            let rows = batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS;
            rows.into_iter().try_for_each(|row| tx.put(tree, &key(row), &value))
        })?;
        println!("{}", (batch + 1) * BATCH_ROWS);
    }
    Ok(())
}

fn measure(dir: PathBuf) -> Result<()> {
    let began = Instant::now();
    let engine = open(dir)?;
    let opened = began.elapsed();
    let snapshot = engine.snapshot()?;
    let tree = snapshot.tree("rows")?.expect("the load created it");
    let found = snapshot.get(tree, &key(0))?;
    let got = began.elapsed();
    let mut rows = snapshot.rows(tree, KeyRange::all(), Direction::Forward)?;
    let mut first = 0;
    while first < 100 && rows.next()?.is_some() {
        first += 1;
    }
    let ranged = began.elapsed();
    let sum = snapshot.reduce(tree, &KeyRange::all())?.value.expect("there are rows");
    let reduced = began.elapsed();
    let count = snapshot.count(tree, &KeyRange::all())?;
    assert_eq!(found.map(|value| value.len()), Some(100), "the first row is there");
    assert_eq!(
        i128::from_le_bytes(sum.try_into().expect("sixteen bytes")),
        i128::from(count),
        "each row counts one"
    );
    assert_eq!(count % BATCH_ROWS, 0, "no batch is there in part");
    println!(
        "{count} rows: open {:.0} ms, first get {:.0} ms, range {:.0} ms, reduce {:.0} ms; {} records replayed",
        opened.as_secs_f64() * 1e3,
        got.as_secs_f64() * 1e3,
        ranged.as_secs_f64() * 1e3,
        reduced.as_secs_f64() * 1e3,
        engine.stats().recovery.record_count
    );
    engine.abandon();
    Ok(())
}
