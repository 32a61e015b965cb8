//! A database loses nine rows in ten and is compacted beside two writers: the sizes of its files, the time,
//! and the longest transaction meanwhile.
//!
//! `cargo run --release -p duramen-sim --example compact -- DIR [ROWS] [MEMORY_MIB]`
//!
//! A row has about 1,100 bytes; 4 GB: `... DIR 4000000 256`. Files longer than 1.3 times those of a new
//! database of the rows that are left are a failure.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use duramen_disk::OsDisk;
use duramen_engine::{Builtin, Durability, Engine, Hooks, Options, Result, Transaction, TreeId};

const BATCH_ROWS: usize = 1000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for two databases"));
    let mut number = |or: u64| args.next().map_or(or, |n| n.parse().expect("a number"));
    let (rows, memory_mib) = (number(400_000), number(64));
    let (old, new) = (dir.join("compacted"), dir.join("new"));

    let (engine, tree) = create(&old, memory_mib)?;
    in_batches(&engine, 0..rows, |tx, row| tx.put(tree, &key(row), &value(row)))?;
    engine.checkpoint()?;
    let full = bytes_of(&old);
    in_batches(
        &engine,
        0..rows,
        |tx, row| if stays(row) { Ok(()) } else { tx.delete(tree, &key(row)).map(drop) },
    )?;
    engine.checkpoint()?;
    let sparse = bytes_of(&old);
    println!("{rows} rows: {full} bytes; nine in ten deleted: {sparse} bytes");
    let longest_us = compact_beside_writers(&engine, tree, rows)?;
    println!("the longest transaction meanwhile: {longest_us} us");
    verify(&engine, tree, rows)?;
    engine.close()?;
    let compacted = bytes_of(&old);

    let (engine, tree) = create(&new, memory_mib)?;
    in_batches(&engine, (0..rows).filter(|row| stays(*row)), |tx, row| tx.put(tree, &key(row), &value(row)))?;
    engine.close()?;
    let fresh = bytes_of(&new);
    let ratio = compacted as f64 / fresh as f64;
    println!("closed: {compacted} bytes; a new database of what is left: {fresh} bytes; ratio {ratio:.2}");
    assert!(ratio <= 1.3, "at most 1.3 times the new database");
    Ok(())
}

fn create(path: &Path, memory_mib: u64) -> Result<(Engine, TreeId)> {
    let memory_bytes = usize::try_from(memory_mib << 20).expect("64-bit targets only");
    let options = Options { memory_bytes, ..Options::default() };
    let engine = Engine::open(Arc::new(OsDisk::new()), path, options, Hooks::default())?;
    let create = |tx: &mut Transaction| tx.create_tree("rows", Some(Builtin::Sum.spec()));
    let (tree, _) = engine.transact(Durability::Disk, create)?;
    Ok((engine, tree))
}

/// Compacts while one thread reads and overwrites rows that stay, and another puts and deletes a row. Returns
/// the time of the longest transaction, in microseconds.
fn compact_beside_writers(engine: &Engine, tree: TreeId, rows: u64) -> Result<u64> {
    let (is_over, longest, count) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let write = |step: u64| -> Result<()> {
        let mut row = 0;
        while !is_over.load(Ordering::Relaxed) {
            row = (row + step) % rows;
            let began = Instant::now();
            engine.transact(Durability::Disk, |tx| {
                let found = tx.get(tree, &key(row))?;
                assert_eq!(found.is_some(), stays(row), "row {row}");
                if found.is_some() {
                    return tx.put(tree, &key(row), &value(row));
                }
                tx.put(tree, &key(row), &value(row))?;
                tx.delete(tree, &key(row)).map(drop)
            })?;
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            longest.fetch_max(took, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let writers = [7919, 104_729].map(|step| scope.spawn(move || write(step)));
        let began = Instant::now();
        let report = engine.compact(&mut |_| Ok(()));
        let seconds = began.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("a writer does not panic")?;
        }
        let transactions = count.load(Ordering::Relaxed);
        println!("compacted in {seconds:.1} s beside {transactions} transactions: {:?}", report?);
        Ok(longest.load(Ordering::Relaxed))
    })
}

fn verify(engine: &Engine, tree: TreeId, rows: u64) -> Result<()> {
    let (snapshot, mut count) = (engine.snapshot()?, 0);
    for row in 0..rows {
        let found = snapshot.get(tree, &key(row))?;
        let is_right = found.as_deref().map_or(!stays(row), |found| stays(row) && *found == *value(row));
        assert!(is_right, "row {row} is as it was written");
        count += u64::from(found.is_some());
    }
    assert_eq!(snapshot.tree_info(tree)?.len, count, "the tree counts its rows");
    Ok(())
}

/// One row in ten, at random.
fn stays(row: u64) -> bool {
    mixed(row).is_multiple_of(10)
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 8
}

fn key(row: u64) -> [u8; 8] {
    row.to_be_bytes()
}

/// About 1,100 bytes that do not compress, and begin with an integer for the sum.
fn value(row: u64) -> Vec<u8> {
    let length = 1000 + mixed(row ^ 1 << 40) % 200;
    let mut value = 1i64.to_le_bytes().to_vec();
    value.extend((0..length / 8).flat_map(|at| mixed(row << 8 | at).to_le_bytes()));
    value
}

fn in_batches(
    engine: &Engine,
    rows: impl Iterator<Item = u64>,
    each: impl Fn(&mut Transaction, u64) -> Result<()>,
) -> Result<()> {
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let batch: Vec<u64> = rows.by_ref().take(BATCH_ROWS).collect();
        engine.transact(Durability::Process, |tx| batch.iter().try_for_each(|row| each(tx, *row)))?;
    }
    Ok(())
}

/// The bytes of the files of a database, as long as they are.
fn bytes_of(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("the directory of a database");
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let known = path.metadata().expect("a file");
            if known.is_dir() { bytes_of(&path) } else { known.len() }
        })
        .sum()
}
