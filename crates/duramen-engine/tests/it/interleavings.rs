//! The commit pipeline under a scheduler that tries interleavings of its threads: no waiter is forgotten (a
//! lost wake-up is a deadlock, which fails), every acknowledged commit is there, and there is one order (D1,
//! D2, I1).
//!
//! `cargo test -p duramen-engine --features shuttle --test it`; a failing schedule is printed and can be
//! replayed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault};
use duramen_engine::{Background, Durability, Engine, ErrorKind, Geometry, Hooks, KeyRange, Options, TreeId};

const SCHEDULES: usize = 400;

fn open(disk: &MemDisk) -> (Engine, TreeId) {
    let geometry = Geometry {
        block_bytes: 512,
        leaf_bytes_max: 512,
        inner_bytes_max: 512,
        big_value_bytes: 300,
        big_value_extent_bytes: 400,
        segment_bytes_min: 16 * 1024,
        segment_bytes_max: 64 * 1024,
    };
    let options =
        Options { geometry, memory_bytes: 4 << 20, background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine
        .transact(Durability::Disk, |tx| match tx.tree("t")? {
            Some(tree) => Ok(tree),
            None => tx.create_tree("t", None),
        })
        .unwrap()
        .0;
    (engine, tree)
}

/// Each thread appends rows of its own and increments a shared counter, at different levels.
fn writers(engine: &Engine, tree: TreeId) {
    let levels = [Durability::Disk, Durability::Process, Durability::Memory];
    let threads: Vec<_> = (0..3u8)
        .map(|thread| {
            let engine = engine.clone();
            shuttle::thread::spawn(move || {
                for n in 0..2u8 {
                    let level = levels[usize::from((thread + n) % 3)];
                    engine
                        .transact(level, |tx| {
                            let count = tx.get(tree, b"count")?.map_or(0, |bytes| bytes[0]);
                            tx.put(tree, b"count", &[count + 1])?;
                            tx.put(tree, &[thread, n], &[count])
                        })
                        .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn no_update_is_lost_and_nobody_waits_for_ever() {
    let run = || {
        let disk = MemDisk::new(1);
        let (engine, tree) = open(&disk);
        writers(&engine, tree);
        // A commit at level `Memory` may not be written yet; this one is ordered after all of them.
        engine.transact(Durability::Disk, |tx| tx.put(tree, b"last", b"")).unwrap();
        let snapshot = engine.snapshot().unwrap();
        assert_eq!(snapshot.get(tree, b"count").unwrap(), Some(vec![6]), "six increments");
        let mut seen = BTreeSet::new();
        for thread in 0..3u8 {
            for n in 0..2u8 {
                seen.extend(snapshot.get(tree, &[thread, n]).unwrap().unwrap());
            }
        }
        assert_eq!(seen.len(), 6, "each increment saw another count: one order");
        drop(snapshot);
        engine.abandon();
        let (engine, tree) = open(&disk);
        assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 8);
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn receipts_waited_for_later_are_durable_whoever_syncs() {
    let run = || {
        let disk = MemDisk::new(1);
        let (engine, tree) = open(&disk);
        let threads: Vec<_> = (0..3u8)
            .map(|n| {
                let engine = engine.clone();
                shuttle::thread::spawn(move || {
                    let level = if n == 0 { Durability::Disk } else { Durability::Memory };
                    let (_, receipt) = engine.transact(level, |tx| tx.put(tree, &[n], b"")).unwrap();
                    receipt.wait(Durability::Disk).unwrap();
                    assert!(engine.stats().commit.durable >= receipt.seq());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        engine.abandon();
        let cut = disk.crash(&duramen_disk::memory::CrashChoice::None);
        let (engine, tree) = open(&cut);
        assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 3);
    };
    shuttle::check_random(run, SCHEDULES);
}

/// Commits without a leader are led by the first waiter.
///
/// That holds also where some receipts are never waited for, where other threads lead meanwhile, and where no
/// other thread commits.
#[test]
fn commits_that_wait_later_are_written_by_whoever_waits() {
    let run = || {
        let disk = MemDisk::new(1);
        let (engine, tree) = open(&disk);
        let receipts = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..3u8)
            .map(|n| {
                let (engine, receipts) = (engine.clone(), Arc::clone(&receipts));
                shuttle::thread::spawn(move || {
                    let put = |tx: &mut duramen_engine::Transaction| {
                        let count = tx.get(tree, b"count")?.map_or(0, |bytes| bytes[0]);
                        tx.put(tree, b"count", &[count + 1])?;
                        tx.put(tree, &[n], &[count])
                    };
                    if n == 2 {
                        engine.transact(Durability::Process, put).unwrap();
                        return;
                    }
                    let level = if n == 0 { Durability::Disk } else { Durability::Process };
                    let (_, receipt) = engine.transact_and_wait_later(level, put).unwrap();
                    receipts.lock().unwrap().push(receipt);
                })
            })
            .collect();
        let (_, own) =
            engine.transact_and_wait_later(Durability::Disk, |tx| tx.put(tree, b"own", b"")).unwrap();
        let own = own.waited(Durability::Disk).unwrap();
        assert_eq!(own.durability(), Durability::Disk);
        assert!(engine.snapshot().unwrap().get(tree, b"own").unwrap().is_some(), "it is seen then");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // One receipt is waited for by hand. The background writes the other commit, as after a dropped
        // future.
        let first = receipts.lock().unwrap().swap_remove(0);
        first.wait(Durability::Disk).unwrap();
        engine.step().unwrap();
        assert_eq!(engine.snapshot().unwrap().get(tree, b"count").unwrap(), Some(vec![3]));
        engine.close().unwrap();
        drop(engine);
        let cut = disk.crash(&duramen_disk::memory::CrashChoice::None);
        let (engine, tree) = open(&cut);
        assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 5);
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

/// A close beside a leader must write the commits that the leader leaves unwritten: nothing runs after it.
#[test]
fn a_close_writes_what_nobody_has_waited_for() {
    let run = || {
        let disk = MemDisk::new(1);
        let (engine, tree) = open(&disk);
        let leads = {
            let engine = engine.clone();
            shuttle::thread::spawn(move || {
                drop(engine.transact(Durability::Disk, |tx| tx.put(tree, b"leads", b"")));
            })
        };
        let later = engine.transact_and_wait_later(Durability::Disk, |tx| tx.put(tree, b"later", b""));
        let (_, receipt) = later.unwrap();
        engine.close().unwrap();
        leads.join().unwrap();
        assert!(engine.snapshot().unwrap().get(tree, b"later").unwrap().is_some());
        assert_eq!(receipt.durability(), Durability::Disk);
        drop((receipt, engine));
        let cut = disk.crash(&duramen_disk::memory::CrashChoice::None);
        let (engine, tree) = open(&cut);
        assert!(engine.snapshot().unwrap().get(tree, b"later").unwrap().is_some());
    };
    shuttle::check_random(run, SCHEDULES);
}

/// D6: one failed sync ends all acknowledgement, and every waiter gets an error.
#[test]
fn after_a_failed_sync_every_waiter_is_told_and_nothing_is_acknowledged() {
    let run = || {
        let disk = MemDisk::new(1);
        let (engine, tree) = open(&disk);
        disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
        let threads: Vec<_> = (0..3u8)
            .map(|n| {
                let engine = engine.clone();
                shuttle::thread::spawn(move || {
                    let put = |tx: &mut duramen_engine::Transaction| tx.put(tree, &[n], b"");
                    if n < 2 {
                        let error = engine.transact(Durability::Disk, put).unwrap_err();
                        assert!(matches!(error.kind(), ErrorKind::InDoubt | ErrorKind::Poisoned), "{error}");
                        return;
                    }
                    match engine.transact_and_wait_later(Durability::Disk, put) {
                        // The commit was ordered: whether it survives is unknown.
                        Ok((_, receipt)) => {
                            let error = receipt.wait(Durability::Disk).unwrap_err();
                            assert_eq!(error.kind(), ErrorKind::InDoubt, "{error}");
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}"),
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), 0, "reads go on");
        engine.abandon();
    };
    shuttle::check_random(run, SCHEDULES);
}

/// A close waits for the group being written and refuses later commits: each of them gets an error, and none
/// hangs.
#[test]
fn a_close_beside_commits_loses_none_and_hangs_nobody() {
    let run = || {
        let disk = MemDisk::new(4);
        let (engine, tree) = open(&disk);
        // More ready segments than a closed log keeps.
        let put = move |tx: &mut duramen_engine::Transaction, n: u8, count: u8| {
            (0..count).try_for_each(|row| tx.put(tree, &[n, row], &[n; 250]))
        };
        for n in 0..12 {
            engine.transact(Durability::Disk, |tx| put(tx, n, 60)).unwrap();
        }
        engine.checkpoint().unwrap();
        engine.checkpoint().unwrap();
        let threads: Vec<_> = (0..2u8)
            .map(|thread| {
                let engine = engine.clone();
                shuttle::thread::spawn(move || {
                    engine.transact(Durability::Disk, |tx| put(tx, 100 + thread, 200)).is_ok()
                })
            })
            .collect();
        engine.close().unwrap();
        let kept: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        drop(engine);
        let (engine, tree) = open(&disk);
        let snapshot = engine.snapshot().unwrap();
        for (thread, kept) in (0..2u8).zip(kept) {
            let found = snapshot.get(tree, &[100 + thread, 199]).unwrap();
            assert!(found.is_some() || !kept, "an acknowledged commit is gone");
        }
        drop(snapshot);
        engine.abandon();
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}
