//! Operations while a sync is in flight, and the number of commits that share one (D1, I1).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use duramen_disk::MemDisk;
use duramen_disk::memory::SyncGate;
use duramen_engine::{Background, CommitSeq, Durability, Engine, TreeId};

use super::open;

fn engine_with_tree(disk: &MemDisk) -> (Engine, TreeId) {
    let engine = open(Arc::new(disk.clone()), Path::new("/db"), Background::Stepped);
    let made = engine.transact(Durability::Disk, |tx| {
        let id = tx.create_tree("t", None)?;
        tx.put(id, b"key", b"old")?;
        Ok(id)
    });
    (engine, made.unwrap().0)
}

fn put(engine: &Engine, tree: TreeId, key: &[u8], value: &[u8]) -> CommitSeq {
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, value)).unwrap().1.seq()
}

/// Waits without a clock until so many commits are ordered.
fn wait_ordered(engine: &Engine, seq: CommitSeq) {
    while engine.begin().unwrap().base_seq() < seq {
        thread::yield_now();
    }
}

#[test]
fn reads_and_the_next_group_go_on_while_a_sync_is_in_flight() {
    let disk = MemDisk::new(38);
    let (engine, tree) = engine_with_tree(&disk);
    let before = engine.stats().commit.published;
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    thread::scope(|scope| {
        let first = scope.spawn(|| put(&engine, tree, b"key", b"new"));
        gate.wait_blocked(1);
        assert_eq!(engine.get(tree, b"key").unwrap().unwrap(), b"old", "not durable, so not seen");
        assert_eq!(engine.snapshot().unwrap().get(tree, b"key").unwrap().unwrap(), b"old");

        let others: Vec<_> = (0..8u8)
            .map(|n| {
                let engine = &engine;
                scope.spawn(move || put(engine, tree, &[n], b"next"))
            })
            .collect();
        wait_ordered(&engine, CommitSeq(before.0 + 9));
        let mut ahead = engine.begin().unwrap();
        assert_eq!(
            ahead.get(tree, b"key").unwrap().unwrap(),
            b"new",
            "transactions build on what is ordered"
        );
        assert_eq!(ahead.get(tree, &[7]).unwrap().unwrap(), b"next");
        drop(ahead);
        assert_eq!(gate.blocked_count(), 1, "one sync at a time");
        assert!(!first.is_finished(), "not acknowledged before the sync");
        assert_eq!(engine.stats().commit.durable, before);
        assert_eq!(engine.get(tree, b"key").unwrap().unwrap(), b"old");

        let syncs = engine.stats().log.sync_count;
        gate.open();
        let first = first.join().unwrap();
        let last = others.into_iter().map(|other| other.join().unwrap()).max().unwrap();
        assert_eq!((first.0, last.0), (before.0 + 1, before.0 + 9));
        assert_eq!(engine.stats().log.sync_count, syncs + 2, "the eight shared one sync");
    });
    assert_eq!(engine.get(tree, b"key").unwrap().unwrap(), b"new");
    assert_eq!(engine.stats().commit.durable.0, before.0 + 9);
}

/// Each sync lasts until every running thread has a commit ordered and not durable, as on a slow device.
///
/// Two consecutive syncs then carry a commit of each thread, whatever the machine's scheduler does.
#[test]
fn sixteen_threads_share_syncs() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 200;
    let disk = MemDisk::new(16);
    let (engine, tree) = engine_with_tree(&disk);
    let working = Arc::new(AtomicU64::new(THREADS));
    let slow_sync = {
        let (engine, working) = (engine.clone(), Arc::clone(&working));
        move |_: &Path| {
            let waiting = || engine.begin().unwrap().base_seq().0 - engine.stats().commit.durable.0;
            while waiting() < working.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
    };
    disk.set_blocker(Some(Arc::new(slow_sync)));
    let before = engine.stats();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, working) = (&engine, &working);
            scope.spawn(move || {
                for n in 0..COMMITS {
                    put(engine, tree, &(thread * COMMITS + n).to_be_bytes(), b"value");
                }
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    disk.set_blocker(None);
    let after = engine.stats();
    let commits = after.commit.commits - before.commit.commits;
    let syncs = after.log.sync_count - before.log.sync_count;
    println!("{commits} commits, {syncs} syncs");
    assert_eq!(commits, THREADS * COMMITS);
    assert!(commits > 4 * syncs, "{commits} commits took {syncs} syncs");
    assert_eq!(engine.stats().commit.durable, engine.stats().commit.published);
}
