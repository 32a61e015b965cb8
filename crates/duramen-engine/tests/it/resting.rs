//! Transactions that rest between calls, on any thread: where they begin, what they note, and what must hold
//! when they commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault};
use duramen_engine::{Code, Durability, Engine, Error, KeyRange, Transaction, TreeId};

use crate::basics::{open, tiny};

const _: () = {
    const fn send<T: Send + 'static>() {}
    send::<Transaction>();
};

fn database() -> (MemDisk, Engine, TreeId) {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let (tree, _) = engine
        .transact(Durability::Disk, |tx| {
            let tree = tx.create_tree("t", None)?;
            (0..100).try_for_each(|key: u32| tx.put(tree, &key.to_be_bytes(), b"old"))?;
            Ok(tree)
        })
        .unwrap();
    (disk, engine, tree)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn put(engine: &Engine, tree: TreeId, number: u32) {
    engine.transact(Durability::Disk, |tx| tx.put(tree, &key(number), b"new")).unwrap();
}

/// What is ordered and not written may be dropped by a log without room. A client that was told of it would
/// know what never was.
#[test]
fn it_begins_at_what_is_in_the_log() {
    let (_disk, engine, tree) = database();
    let later =
        engine.transact_and_wait_later(Durability::Process, |tx| tx.put(tree, &key(1), b"ordered")).unwrap();
    let mut newest = engine.begin().unwrap();
    let mut resting = engine.begin_published().unwrap();
    assert_eq!(newest.get(tree, &key(1)).unwrap().unwrap(), b"ordered");
    assert_eq!(resting.get(tree, &key(1)).unwrap().unwrap(), b"old");

    // I1: what it read has changed.
    resting.put(tree, &key(2), b"after").unwrap();
    later.1.wait(Durability::Disk).unwrap();
    assert_eq!(resting.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);

    // It can rest, move to another thread, and commit beside others.
    let mut resting = engine.begin_published().unwrap();
    assert_eq!(resting.get(tree, &key(1)).unwrap().unwrap(), b"ordered");
    put(&engine, tree, 3);
    let committed = thread::spawn(move || {
        resting.put(tree, &key(2), b"after").unwrap();
        resting.commit(Durability::Disk).map(|_| ())
    });
    committed.join().unwrap().unwrap();
    assert_eq!(engine.get(tree, &key(2)).unwrap().unwrap(), b"after");
}

/// After a group was dropped, the published root is of the rollback epoch before: all that begins there
/// conflicts until another commit is published.
#[test]
fn it_commits_after_a_group_was_dropped() {
    let (disk, engine, tree) = database();
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
    let dropped =
        engine.transact_and_wait_later(Durability::Process, |tx| tx.put(tree, &key(1), b"dropped")).unwrap();
    let mut before = engine.begin_published().unwrap();
    assert_eq!(before.get(tree, &key(1)).unwrap().unwrap(), b"old");
    assert_eq!(dropped.1.wait(Durability::Disk).unwrap_err().code(), Code::DiskFull);
    assert_eq!(disk.fault_hit_count(), 1);

    let mut after = engine.begin_published().unwrap();
    assert_eq!(after.get(tree, &key(1)).unwrap().unwrap(), b"old");
    after.put(tree, &key(2), b"after").unwrap();
    after.commit(Durability::Disk).unwrap();

    // One that began beside the dropped commit reads a state that is still there, and runs again at worst.
    before.put(tree, &key(3), b"after").unwrap();
    let code = before.commit(Durability::Disk).unwrap_err().code();
    assert_eq!(code, Code::WriteConflict);
}

/// A condition is checked where the transaction takes its place: a commit that it refuses leaves nothing
/// behind, big values included.
#[test]
fn a_commit_whose_condition_does_not_hold_never_was() {
    let (_disk, engine, tree) = database();
    let used_blocks = || {
        put(&engine, tree, 1);
        (0..4).for_each(|_| engine.checkpoint().unwrap());
        engine.stats().space.used_blocks
    };
    let used = used_blocks();
    let in_time = Arc::new(AtomicBool::new(true));
    let begin = || {
        let mut tx = engine.begin_published().unwrap();
        let in_time = Arc::clone(&in_time);
        tx.only_if(Box::new(move || match in_time.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(Error::new(Code::WriteConflict, "too late")),
        }));
        tx.put(tree, &key(1), &[7; 5_000]).unwrap();
        tx
    };
    let (refused, taken) = (begin(), begin());
    in_time.store(false, Ordering::SeqCst);
    let error = refused.commit(Durability::Disk).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::WriteConflict, "too late"));
    in_time.store(true, Ordering::SeqCst);
    assert_eq!(engine.get(tree, &key(1)).unwrap().unwrap(), b"new");
    taken.commit(Durability::Disk).unwrap();
    assert_eq!(engine.get(tree, &key(1)).unwrap().unwrap(), [7; 5_000]);
    // Each value took ten blocks of 512 bytes.
    assert!(used_blocks() < used + 10, "the values of the refused commit and of the replaced row were freed");
    assert!(engine.check().unwrap().is_clean());
}

/// `transact` runs the closure again when a condition returns a conflict, at last alone.
#[test]
fn a_closure_runs_again_when_its_condition_does_not_hold() {
    let (_disk, engine, tree) = database();
    let runs = AtomicU64::new(0);
    let error = engine
        .transact(Durability::Disk, |tx| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            tx.only_if(Box::new(move || match run {
                20.. => Ok(()),
                _ => Err(Error::new(Code::WriteConflict, "too late")),
            }));
            tx.put(tree, &key(1), b"new")
        })
        .map(drop)
        .unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::WriteConflict, "too late"));
    let runs_max = runs.swap(0, Ordering::SeqCst);
    assert!((2..20).contains(&runs_max), "it gives up in the end: {runs_max} runs");
    engine
        .transact(Durability::Disk, |tx| {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            tx.only_if(Box::new(move || match run {
                2.. => Ok(()),
                _ => Err(Error::new(Code::WriteConflict, "too late")),
            }));
            tx.put(tree, &key(1), b"new")
        })
        .unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

/// What opening found in the log is read beside the trees, until it is in them.
#[test]
fn it_begins_over_a_log_that_is_not_in_the_trees_yet() {
    let (disk, engine, tree) = database();
    engine.checkpoint().unwrap();
    (0..50).for_each(|number| put(&engine, tree, number));
    drop(engine);
    let engine = open(&disk.crash(&duramen_disk::memory::CrashChoice::None), tiny());
    let mut resting = engine.begin_published().unwrap();
    assert_eq!(resting.get(tree, &key(49)).unwrap().unwrap(), b"new");
    assert_eq!(resting.count(tree, &KeyRange::all()).unwrap(), 100);
    let mut other = engine.begin_published().unwrap();
    assert_eq!(other.get(tree, &key(50)).unwrap().unwrap(), b"old");
    resting.put(tree, &key(50), b"resting").unwrap();
    resting.commit(Durability::Disk).unwrap();
    other.put(tree, &key(1), b"other").unwrap();
    assert_eq!(other.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
    assert!(engine.check().unwrap().is_clean());
}

/// A transaction that only reads is ordered where it read, so no later moment counts.
#[test]
fn a_transaction_that_wrote_nothing_has_no_condition() {
    let (_disk, engine, tree) = database();
    let mut tx = engine.begin_published().unwrap();
    tx.only_if(Box::new(|| Err(Error::new(Code::WriteConflict, "too late"))));
    tx.get(tree, &key(1)).unwrap();
    tx.commit(Durability::Disk).unwrap();
}

/// The notes of what was read are bounded. Beyond the bound a transaction conflicts more, never less.
#[test]
fn a_bounded_read_set_misses_no_conflict() {
    let (_disk, engine, tree) = database();
    let (other, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("u", None)).unwrap();
    let begin = |limit: Option<usize>| {
        let mut tx = engine.begin_published().unwrap();
        tx.get(other, b"x").unwrap();
        if let Some(bytes) = limit {
            tx.limit_reads(bytes);
        }
        (0..50).for_each(|number| drop(tx.get(tree, &key(2 * number)).unwrap()));
        tx.put(other, b"y", b"value").unwrap();
        tx
    };
    let limit = 1_000;
    let (mut free, bounded) = (begin(None), begin(Some(limit)));
    assert!(free.read_bytes() > limit, "{} bytes", free.read_bytes());
    assert!(bounded.read_bytes() <= limit, "{} bytes", bounded.read_bytes());
    free.limit_reads(usize::MAX);
    // A key that neither has read.
    put(&engine, tree, 1);
    free.commit(Durability::Disk).unwrap();
    assert_eq!(bounded.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);

    // A key that it has read; and the other tree, whose short notes were kept, does not conflict.
    let bounded = begin(Some(limit));
    put(&engine, tree, 2);
    assert_eq!(bounded.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
    let bounded = begin(Some(limit));
    engine.transact(Durability::Disk, |tx| tx.put(other, b"z", b"value")).unwrap();
    bounded.commit(Durability::Disk).unwrap();

    // Ranges count, too, and what covers others replaces their notes.
    let mut ranges = engine.begin_published().unwrap();
    ranges.limit_reads(limit);
    for number in 0..50 {
        ranges
            .count(tree, &KeyRange { from: key(2 * number).to_vec(), to: Some(key(2 * number + 1).to_vec()) })
            .unwrap();
        assert!(ranges.read_bytes() <= limit);
    }
    put(&engine, tree, 1);
    ranges.put(other, b"w", b"value").unwrap();
    assert_eq!(ranges.commit(Durability::Disk).unwrap_err().code(), Code::WriteConflict);
}
