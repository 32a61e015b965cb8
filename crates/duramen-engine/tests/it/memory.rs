//! What transactions write is counted against memory until the log holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use duramen_disk::MemDisk;
use duramen_disk::memory::SyncGate;
use duramen_engine::{Code, Durability, Engine, KeyRange, Transaction, TreeId};

use crate::basics::{open, tiny};

fn engine_with_tree(disk: &MemDisk) -> (Engine, TreeId) {
    let engine = open(disk, tiny());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    (engine, tree)
}

/// Puts small values until the transaction holds `bytes`, or is refused.
fn fill(tx: &mut Transaction, tree: TreeId, bytes: usize) -> Result<(), Code> {
    (0..bytes / 200).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[7; 200])).map_err(|error| error.code())
}

#[test]
fn open_transactions_together_write_no_more_than_their_part_of_memory() {
    let disk = MemDisk::new(61);
    let (engine, tree) = engine_with_tree(&disk);
    let memory = tiny().memory_bytes;
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 16, "sixteen of them would fill memory twice");
        let mut tx = engine.begin().unwrap();
        let filled = fill(&mut tx, tree, memory / 8);
        open.push(tx);
        if filled.is_err() {
            break filled;
        }
        assert!(engine.stats().buffered_bytes <= memory as u64 / 2);
    };
    assert_eq!(refused, Err(Code::TooLarge));

    // Little is written all the same, what stands can be committed, and what is given up makes room.
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"small", b"value")).unwrap();
    open.pop().unwrap().commit(Durability::Disk).unwrap();
    let written = engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap();
    assert!(written > 100, "{written}");
    open.truncate(1);
    assert_eq!(fill(&mut engine.begin().unwrap(), tree, memory / 8), Ok(()));
    drop(open);
    assert_eq!(engine.stats().buffered_bytes, 0);
}

#[test]
fn commits_that_wait_for_nothing_do_not_queue_without_bound() {
    const VALUE_BYTES: usize = 200;
    let disk = MemDisk::new(62);
    let (engine, tree) = engine_with_tree(&disk);
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    let bound = tiny().memory_bytes as u64 / 4 + 1024;
    let committed = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| engine.transact(Durability::Disk, |tx| tx.put(tree, b"first", b"")).unwrap());
        gate.wait_blocked(1);
        let writer = scope.spawn(|| {
            for _ in 0..20_000 {
                let put = |tx: &mut Transaction| tx.put(tree, b"key", &[7; VALUE_BYTES]);
                engine.transact(Durability::Memory, put).unwrap();
                committed.fetch_add(1, Ordering::SeqCst);
                assert!(
                    engine.stats().buffered_bytes < bound,
                    "{} commits",
                    committed.load(Ordering::SeqCst)
                );
            }
        });
        let mut still = 0;
        let mut before = 0;
        while still < 20_000 && !writer.is_finished() {
            thread::yield_now();
            let now = committed.load(Ordering::SeqCst);
            still = if now == before { still + 1 } else { 0 };
            before = now;
        }
        assert!(committed.load(Ordering::SeqCst) < 20_000, "it waits now");
        gate.open();
    });
    assert_eq!(committed.load(Ordering::SeqCst), 20_000);
    assert_eq!(engine.stats().buffered_bytes, 0);
}
