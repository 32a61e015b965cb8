//! One scenario with so many operations and no randomness from outside: `scripts/instructions` counts its
//! instructions.
//!
//! `cargo run --release -p duramen-sim --example instructions -- get|insert|scan|commit|reduce OPERATIONS`
//!
//! One thread on the disk in memory; background work is stepped after a fixed number of commits. Seeds, clock
//! and sizes are fixed, and a scenario begins the same way whatever the number of operations. Two runs with
//! different numbers therefore differ by the operations alone.
#![allow(clippy::disallowed_methods, reason = "a program that is told what to do")]

use std::sync::Arc;

use duramen_disk::SyncMethod;
use duramen_disk::memory::{MemDisk, Random};
use duramen_engine::{
    Background, Builtin, Direction, Durability, Engine, Hooks, KeyRange, Options, Result, TreeId,
};

const SEED: u64 = 35;
/// Rows that exist before an operation counts: a tree of three levels.
const ROWS: u64 = 40_000;
/// Rows of a transaction of set-up and of `insert`.
const BATCH_ROWS: u64 = 1000;
const VALUE_BYTES: usize = 100;
/// Bytes of a value of `commit`.
const RECORD_BYTES: usize = 1024;
/// Commits of `commit` between two background steps.
const STEP_COMMITS: u64 = 100;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let scenario = args.next().expect("give a scenario: get, insert, scan, commit or reduce");
    let operations: u64 = args.next().and_then(|n| n.parse().ok()).expect("give a number of operations");
    let bench = Bench::prepare()?;
    match scenario.as_str() {
        "get" => bench.get(operations)?,
        "insert" => bench.insert(operations)?,
        "scan" => bench.scan(operations)?,
        "commit" => bench.commit(operations)?,
        "reduce" => bench.reduce(operations)?,
        other => panic!("no scenario is called {other}"),
    }
    // No checkpoint: its cost would depend on how much was written.
    bench.engine.abandon();
    Ok(())
}

/// The key of a row: different for every row, in no order.
fn key(row: u64) -> [u8; 20] {
    let mut random = Random::new(row);
    let mut key = [0; 20];
    key[..8].copy_from_slice(&random.bits().to_be_bytes());
    key[8..16].copy_from_slice(&random.bits().to_be_bytes());
    key[16..].copy_from_slice(&[7; 4]);
    key
}

/// The value of a row; its first eight bytes are its number.
fn value(row: u64) -> [u8; VALUE_BYTES] {
    let mut value = [42; VALUE_BYTES];
    value[..8].copy_from_slice(&row.to_le_bytes());
    value
}

fn drawn(random: &mut Random) -> u64 {
    random.below(usize::try_from(ROWS).expect("rows fit memory")) as u64
}

/// A database with rows in it.
struct Bench {
    engine: Engine,
    rows: TreeId,
    records: TreeId,
}

impl Bench {
    fn prepare() -> Result<Bench> {
        // The sync method is fixed: otherwise it would be chosen by measuring.
        let options = Options {
            memory_bytes: 64 << 20,
            sync: Some(SyncMethod::Fdatasync),
            background: Background::Stepped,
            ..Options::default()
        };
        let engine = Engine::open(Arc::new(MemDisk::new(SEED)), "/db", options, Hooks::default())?;
        let create = |tx: &mut duramen_engine::Transaction| {
            Ok((tx.create_tree("rows", Some(Builtin::Sum.spec()))?, tx.create_tree("records", None)?))
        };
        let ((rows, records), _) = engine.transact(Durability::Disk, create)?;
        let bench = Bench { engine, rows, records };
        bench.load(0, ROWS)?;
        bench.engine.checkpoint()?;
        Ok(bench)
    }

    /// Writes rows, a thousand in each durable transaction.
    fn load(&self, first: u64, rows: u64) -> Result<()> {
        for batch in 0..rows / BATCH_ROWS {
            let first = first + batch * BATCH_ROWS;
            self.engine.transact(Durability::Disk, |tx| {
                (first..first + BATCH_ROWS).try_for_each(|row| tx.put(self.rows, &key(row), &value(row)))
            })?;
            self.engine.step()?;
        }
        Ok(())
    }

    /// An operation is a get of a random key, each with a snapshot of its own.
    fn get(&self, operations: u64) -> Result<()> {
        let mut random = Random::new(SEED);
        for _ in 0..operations {
            let row = drawn(&mut random);
            let found = self.engine.get(self.rows, &key(row))?;
            assert_eq!(found.as_deref(), Some(&value(row)[..]), "row {row} is there");
        }
        Ok(())
    }

    /// An operation is a new row at a random position, with its part of the log and of the checkpoints.
    fn insert(&self, operations: u64) -> Result<()> {
        self.load(ROWS, operations)?;
        let count = self.engine.snapshot()?.count(self.rows, &KeyRange::all())?;
        assert_eq!(count, ROWS + operations, "every row is there");
        Ok(())
    }

    /// An operation is a row returned by a full scan; its value is copied out.
    fn scan(&self, operations: u64) -> Result<()> {
        let mut seen = 0;
        let snapshot = self.engine.snapshot()?;
        while seen < operations {
            let mut rows = snapshot.rows(self.rows, KeyRange::all(), Direction::Forward)?;
            while let Some(row) = rows.next()? {
                assert_eq!(row.value()?.len(), VALUE_BYTES, "a whole value");
                seen += 1;
            }
        }
        assert_eq!(seen, operations, "operations are a multiple of all rows");
        Ok(())
    }

    /// An operation is a durable transaction of one new record, with its part of the checkpoints.
    fn commit(&self, operations: u64) -> Result<()> {
        for record in 0..operations {
            let mut tx = self.engine.begin()?;
            tx.put(self.records, &key(record), &[42; RECORD_BYTES])?;
            tx.commit(Durability::Disk)?;
            if (record + 1).is_multiple_of(STEP_COMMITS) {
                self.engine.step()?;
            }
        }
        Ok(())
    }

    /// An operation is the sum over a random range, each with a snapshot of its own.
    fn reduce(&self, operations: u64) -> Result<()> {
        let mut random = Random::new(SEED);
        for _ in 0..operations {
            let ends = [key(drawn(&mut random)), key(drawn(&mut random))];
            let (from, to) = (ends.iter().min(), ends.iter().max());
            let range = KeyRange {
                from: from.map_or(Vec::new(), |key| key.to_vec()),
                to: to.map(|key| key.to_vec()),
            };
            let reduced = self.engine.snapshot()?.reduce(self.rows, &range)?;
            assert_eq!(
                reduced.value.is_some(),
                ends[0] != ends[1],
                "a range between two rows holds the first"
            );
        }
        Ok(())
    }
}
