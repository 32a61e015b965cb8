//! What transactions write is counted against memory until the log holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use duramen_disk::MemDisk;
use duramen_disk::memory::{Random, SyncGate};
use duramen_engine::{Code, CopyPart, Durability, Engine, KeyRange, Options, Transaction, TreeId};

use crate::awkward::returns;
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
    assert_eq!(refused, Err(Code::WritersHoldMemory));

    // Small writes still succeed, existing transactions can commit, and dropped ones free their memory.
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

/// Writers that together need more memory than there is get through one by one: `transact` runs them again.
#[test]
fn writers_that_want_more_than_there_is_all_get_through() {
    let disk = MemDisk::new(63);
    let (engine, tree) = engine_with_tree(&disk);
    let each = tiny().memory_bytes / 6;
    thread::scope(|scope| {
        for writer in 0..8u8 {
            let engine = &engine;
            scope.spawn(move || {
                for _ in 0..3 {
                    let fill = |tx: &mut Transaction| {
                        (0..each / 300).try_for_each(|n| {
                            thread::yield_now();
                            tx.put(tree, &[&[writer][..], &n.to_be_bytes()].concat(), &[7; 200])
                        })
                    };
                    engine.transact(Durability::Disk, fill).unwrap();
                }
            });
        }
    });
    let rows = engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap();
    assert_eq!(rows, 8 * (each as u64 / 300));
    assert_eq!(engine.stats().buffered_bytes, 0);
}

/// A commit at level `Disk` returns when its sync does. It does not go on to write the groups of commits at
/// level `Memory` while those keep coming.
#[test]
fn a_commit_at_level_disk_returns_while_others_commit_at_level_memory_without_end() {
    let disk = MemDisk::new(64);
    let (engine, tree) = engine_with_tree(&disk);
    let is_over = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..3u8 {
            let (engine, is_over) = (&engine, &is_over);
            scope.spawn(move || {
                while is_over.load(Ordering::SeqCst) == 0 {
                    engine.transact(Durability::Memory, |tx| tx.put(tree, &[writer], b"m")).unwrap();
                }
            });
        }
        // If this thread wrote the groups of other threads while there are any, the loop would not end.
        for _ in 0..200 {
            engine.transact(Durability::Disk, |tx| tx.put(tree, b"disk", b"d")).unwrap();
        }
        is_over.store(1, Ordering::SeqCst);
    });
}

/// Commits without a waiter are written in the background, and when the database is closed.
///
/// They remain when a leader has written one group without waiters: here a long one, which needs a new
/// segment, and commits that come while that segment is synced.
#[test]
fn commits_at_level_memory_that_nobody_writes_are_written_by_a_step_and_by_closing() {
    for closes in [false, true] {
        let disk = MemDisk::new(65);
        let (engine, tree) = engine_with_tree(&disk);
        let put = |key: u32, level| {
            let value = [7; 200];
            engine.transact(level, |tx| tx.put(tree, &key.to_be_bytes(), &value)).unwrap();
        };
        let (first, second) = (SyncGate::closed(), SyncGate::closed());
        disk.set_blocker(Some(first.blocker(".wal")));
        thread::scope(|scope| {
            let leader = scope.spawn(|| put(0, Durability::Disk));
            first.wait_blocked(1);
            (1..2000).for_each(|key| put(key, Durability::Memory));
            disk.set_blocker(Some(second.blocker(".wal")));
            first.open();
            second.wait_blocked(1);
            (2000..2050).for_each(|key| put(key, Durability::Memory));
            disk.set_blocker(None);
            second.open();
            leader.join().unwrap();
        });
        let published = engine.stats().commit.published;
        assert!(published < engine.begin().unwrap().base_seq(), "some wait for whoever comes");
        if closes {
            engine.close().unwrap()
        } else {
            engine.step().unwrap()
        }
        assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 2050);
        engine.abandon();
    }
}

/// Writers of scattered rows hold older roots while they wait for memory. What only those roots hold counts
/// as dirty, and no checkpoint writes it: the writers must not wait for ever.
#[test]
fn many_writers_of_scattered_rows_get_through() {
    for (memory_bytes, rows, writers, changes) in [(4 << 20, 6500, 12, 50), (16 << 20, 40_000, 8, 1000)] {
        let done = returns(move || {
            let options = Options { memory_bytes, ..Options::default() };
            let engine = open(&MemDisk::new(7), options);
            let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
            for first in (0..rows).step_by(500) {
                let load = |tx: &mut Transaction| {
                    (first..first + 500).try_for_each(|n: u32| tx.put(tree, &n.to_be_bytes(), &[7; 100]))
                };
                engine.transact(Durability::Process, load).unwrap();
            }
            engine.checkpoint().unwrap();
            let write = |writer: u64| {
                let mut random = Random::new(writer);
                for round in 0..30 {
                    let scatter = |tx: &mut Transaction| {
                        (0..changes).try_for_each(|_| {
                            let n = u32::try_from(random.below(rows as usize)).unwrap();
                            tx.put(tree, &n.to_be_bytes(), &[round; 100])
                        })
                    };
                    engine.transact(Durability::Disk, scatter).unwrap();
                }
            };
            let write = &write;
            thread::scope(|scope| (0..writers).for_each(|writer| drop(scope.spawn(move || write(writer)))));
            engine.close().unwrap();
        });
        assert!(done.is_some(), "writers wait for ever with {memory_bytes} bytes");
    }
}

/// A root kept only for a next reader that never comes holds no memory that commits wait for.
#[test]
fn readers_that_came_once_hold_no_memory() {
    let disk = MemDisk::new(8);
    let engine = open(&disk, Options::default());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    let write = |value: u8| {
        let rows = |tx: &mut Transaction| {
            (0..4000u32).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[value; 100]))
        };
        engine.transact(Durability::Disk, rows).unwrap();
    };
    for value in 0..30 {
        write(value);
        thread::scope(|scope| scope.spawn(|| drop(engine.snapshot().unwrap())).join().unwrap());
    }
    engine.checkpoint().unwrap();
    // The engine's threads hold a root for moments, and with it what was replaced.
    let looks = (0..100_000).find(|_| {
        thread::yield_now();
        engine.stats().dirty_bytes == 0
    });
    assert!(looks.is_some(), "somebody holds {} bytes of what was replaced", engine.stats().dirty_bytes);
}

/// The target for memory can change while the database is open: nodes then take more of it, or give it back.
#[test]
fn the_memory_target_can_be_raised_and_lowered() {
    const ROWS: u32 = 40_000;
    let engine = open(&MemDisk::new(9), Options { memory_bytes: 4 << 20, ..Options::default() });
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    for first in (0..ROWS).step_by(500) {
        let load = |tx: &mut Transaction| {
            (first..first + 500).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &[7; 400]))
        };
        engine.transact(Durability::Process, load).unwrap();
    }
    engine.checkpoint().unwrap();
    let read_all = || {
        let snapshot = engine.snapshot().unwrap();
        (0..ROWS).for_each(|n| assert!(snapshot.get(tree, &n.to_be_bytes()).unwrap().is_some()));
        engine.stats().resident_bytes
    };
    let small = read_all();
    assert!(small <= 4 << 20, "{small} bytes of nodes in memory");
    engine.set_memory_bytes(64 << 20).unwrap();
    let large = read_all();
    assert!(large > 12 << 20, "everything fits, and {large} bytes are in memory");
    engine.set_memory_bytes(4 << 20).unwrap();
    assert_eq!(engine.durability_status().memory_bytes, 4 << 20);
    // Eviction frees what no reader can use any more, some reads later.
    let given_back = (0..100).any(|_| read_all() <= 4 << 20);
    assert!(given_back, "{} bytes stay in memory", engine.stats().resident_bytes);
    assert_eq!(engine.set_memory_bytes(1 << 20).unwrap_err().code(), Code::InvalidArgument);
}

/// A state that is read while others replace it: what was read, and the state of a checkpoint in between,
/// stays in memory no longer than other nodes.
#[test]
fn a_copy_beside_writes_is_within_the_memory_target() {
    const ROWS: usize = 24_000;
    let memory_bytes = 4 << 20;
    let engine = open(&MemDisk::new(10), Options { memory_bytes, ..Options::default() });
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    let mut random = Random::new(11);
    let mut write = |keys: &mut dyn Iterator<Item = usize>| {
        let mut put = |tx: &mut Transaction, key: usize| {
            let mut value = [0; 1000];
            value
                .chunks_mut(8)
                .for_each(|part| part.copy_from_slice(&random.bits().to_be_bytes()[..part.len()]));
            tx.put(tree, &(key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &value)
        };
        let keys: Vec<usize> = keys.collect();
        let puts = |tx: &mut Transaction| keys.iter().try_for_each(|key| put(tx, *key));
        engine.transact(Durability::Process, puts).unwrap();
    };
    (0..ROWS).step_by(100).for_each(|first| write(&mut (first..first + 100)));
    let mut source = engine.copy_source().unwrap();
    let (mut copied, mut looks_above, mut keys) = (0, 0, Random::new(12));
    while let Some(part) = source.next(&|_, value| value).unwrap() {
        if let CopyPart::Entries(entries) = part {
            copied += entries.len();
        }
        for _ in 0..8 {
            write(&mut (0..16).map(|_| keys.below(ROWS)));
            looks_above += u32::from(engine.stats().resident_bytes > memory_bytes as u64);
        }
    }
    assert_eq!(copied, ROWS, "the copy is whole");
    // A thread that evicts may be suspended for some of these 750 looks.
    assert!(looks_above < 50, "nodes took more than their target at {looks_above} looks");
}
