//! Tests that need private parts of the engine.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::SyncGate;

use super::*;
use crate::alarm::invariant;
use crate::catalog::CATALOG;
use crate::commit::{Changes, OwnedValue};
use crate::threads::side_by_side;
use crate::wal::{Group, Record};

/// A close gives log segments back, and a group being written has already chosen its segments.
#[test]
fn nobody_touches_the_log_while_its_writer_is_at_work() {
    let disk = MemDisk::new(1);
    let options = Options { background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    let (committer, _) = engine.parts().unwrap();
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker("wal")));
    let (asked, ran) = (AtomicBool::new(false), AtomicBool::new(false));
    let early = side_by_side(&[0, 1, 2], |role| match role {
        0 => engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).is_err(),
        1 => {
            gate.wait_blocked(1);
            asked.store(true, Ordering::SeqCst);
            committer.as_leader(|| ran.store(true, Ordering::SeqCst)).is_err()
        }
        _ => {
            gate.wait_blocked(1);
            while !asked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let early = (0..2000).any(|_| {
                std::thread::yield_now();
                ran.load(Ordering::SeqCst)
            });
            gate.open();
            early
        }
    });
    assert_eq!(early, [false; 3], "the commit, the work, and nothing before its time");
    assert!(ran.load(Ordering::SeqCst), "its turn came");
}

/// A compaction ends by freeing what no snapshot holds, up to the commit of the older superblock. If a
/// checkpoint ended between the look at that superblock and the free, more would be free already, and nothing
/// may be freed up to an earlier commit then.
#[test]
fn nothing_is_freed_while_a_checkpoint_runs() {
    let options = Options { background: Background::Stepped, ..Options::default() };
    let disk = Arc::new(MemDisk::new(4));
    let engine = Engine::open(disk, Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
    let (_, maintenance) = engine.parts().unwrap();
    let [runs, frees, freed, ended] = [const { AtomicBool::new(false) }; 4];
    let early = side_by_side(&[0, 1], |role| {
        if role == 0 {
            let mut early = false;
            let written = maintenance.checkpoint(&mut || {
                runs.store(true, Ordering::SeqCst);
                while !frees.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                early |= (0..2000).any(|_| {
                    std::thread::yield_now();
                    freed.load(Ordering::SeqCst)
                });
            });
            ended.store(true, Ordering::SeqCst);
            written.unwrap();
            return early;
        }
        while !runs.load(Ordering::SeqCst) && !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        frees.store(true, Ordering::SeqCst);
        maintenance.checkpointer().release();
        freed.store(true, Ordering::SeqCst);
        false
    });
    assert_eq!(early, [false; 2]);
    assert!(runs.load(Ordering::SeqCst) && freed.load(Ordering::SeqCst));
}

/// D1, I1: a transaction that began over the log's tail writes as soon as the tail is in the trees. It was
/// ordered after the checkpoint, under the number of a commit that the log has; the log refused it.
#[test]
fn a_commit_waits_until_the_tail_of_the_log_is_what_commits_go_on_from() {
    let disk = MemDisk::new(3);
    let open = || {
        let background = Background::Stepped;
        let options = Options { background, answer_before_replay: Some(true), ..Options::default() };
        Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap()
    };
    let engine = open();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    let (_, last) = engine.transact(Durability::Disk, |tx| tx.put(tree, b"before", b"v")).unwrap();
    engine.abandon();
    let engine = open();
    let overlay = engine.inner.deferred_redo.overlay().expect("the log has a tail");
    let early = Mutex::new(Some(engine.begin().unwrap()));
    let is_locked = AtomicBool::new(false);
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let committed = side_by_side(&[0, 1], |role| {
        if role == 0 {
            until(&|| is_locked.load(Ordering::SeqCst));
            engine.inner.deferred_redo.wait().unwrap();
            return None;
        }
        overlay.while_forks_are_locked(|| {
            is_locked.store(true, Ordering::SeqCst);
            until(&|| overlay.drained_root().is_some());
            let mut early = early.lock().unwrap().take().unwrap();
            early.put(tree, b"after", b"v").unwrap();
            Some(early.commit(Durability::Disk).unwrap().seq())
        })
    });
    assert_eq!(committed, [None, Some(last.seq().next())]);
    assert_eq!(engine.get(tree, b"after").unwrap().as_deref(), Some(&b"v"[..]));
}

/// A row taken for a missing one would drop the tree of that name with all entries. A later release may write
/// such rows.
#[test]
fn a_name_in_the_log_that_cannot_be_read_is_corruption_and_no_drop() {
    let cases: [(&[u8], &[u8]); 3] =
        [(b"t", b"\x63of a later release"), (b"t", b""), (b"\xff\xfe", b"\x01\x00\x09\0\0\0\0\0\0\0")];
    for (name, row) in cases {
        let disk = MemDisk::new(2);
        let open = |served| {
            let background = Background::Stepped;
            let options = Options { background, answer_before_replay: Some(served), ..Options::default() };
            Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default())
        };
        let engine = open(false).unwrap();
        let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
        engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v")).unwrap();
        let (committer, _) = engine.parts().unwrap();
        let mut changes = Changes::default();
        changes.set(CATALOG, name, Some(OwnedValue { big: false, bytes: row.to_vec() }));
        let mut record = Record::new(changes.encode());
        let durable = committer.durable();
        record.seq = durable.next();
        committer.log().write_and_sync(&Group { records: &[record], durable, use_reserve: false }).unwrap();
        engine.abandon();
        for served in [false, true] {
            let error = open(served).map(drop).unwrap_err();
            assert_eq!(error.code(), Code::CorruptLog, "{error}");
            assert!(error.message().contains(&format!("commit {}", durable.next())), "{error}");
        }
    }
}

/// Nodes evicted while a reader is pinned stay in memory until it has left.
///
/// Evicting more would free nothing, and read needed nodes into memory again: memory would grow with every
/// read.
#[test]
fn little_is_evicted_while_nothing_evicted_is_freed() {
    let disk = MemDisk::new(2);
    let options = Options { background: Background::Stepped, memory_bytes: 1 << 20, ..Options::default() };
    let engine = Engine::open(Arc::new(disk), Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    for first in (0..20_000u32).step_by(100) {
        let put = |tx: &mut Transaction| {
            (first..first + 100).try_for_each(|key| tx.put(tree, &key.to_be_bytes(), &[7; 100]))
        };
        engine.transact(Durability::Process, put).unwrap();
        engine.step().unwrap();
    }
    engine.checkpoint().unwrap();
    let read_all = || {
        for key in (0..20_000u32).step_by(10) {
            assert!(engine.get(tree, &key.to_be_bytes()).unwrap().is_some());
        }
    };
    read_all();
    let before = engine.stats();
    let pin = engine.inner.store.pages.meter().pin();
    read_all();
    let once = engine.stats();
    read_all();
    let twice = engine.stats();
    assert!(once.pages_read > before.pages_read + 100, "more than memory holds");
    assert_eq!(twice.pages_read, once.pages_read, "all is in memory, and nothing is read beside it");
    assert!(twice.evicted_bytes > 0 && twice.evicted_bytes < 1 << 18, "{} bytes wait", twice.evicted_bytes);
    drop(pin);
    // As the background does at each tick.
    engine.inner.store.pages.meter().evict_again();
    engine.step().unwrap();
    let after = engine.stats();
    assert!(after.resident_bytes < 1 << 20 && after.evicted_bytes < 1 << 18, "{after:?}");
}

/// D6: an invariant breaks under the order lock. The thread panics, and the lock it held is marked. Other
/// threads find the alarm raised before they order anything, and do not panic.
#[test]
fn an_invariant_that_breaks_under_the_order_lock_ends_commits_and_no_other_thread() {
    let disk = MemDisk::new(5);
    let options = Options { background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    let (committer, _) = engine.parts().unwrap();
    let broken = catch_unwind(AssertUnwindSafe(|| {
        let alarm = &committer.store().alarm;
        let _within = alarm.enter();
        committer.while_ordering(|| {
            let raised_first = catch_unwind(AssertUnwindSafe(|| invariant!(false, "one is two"))).is_err();
            assert!(raised_first && alarm.check().is_err(), "before the lock is released");
            panic!("goes on unwinding");
        });
    }));
    assert!(broken.is_err());
    for _ in 0..2 {
        let put = || engine.transact(Durability::Memory, |tx| tx.put(tree, b"k", b"v")).map(drop);
        for error in side_by_side(&[0, 1, 2], |_| put().unwrap_err()) {
            assert_eq!(error.code(), Code::EnginePoisoned);
            assert!(error.message().contains("one is two"), "{error}");
        }
    }
    assert_eq!(engine.checkpoint().unwrap_err().code(), Code::EnginePoisoned);
    assert_eq!(engine.get(tree, b"k").unwrap(), None);
    assert_eq!(engine.close().unwrap_err().code(), Code::EnginePoisoned);
}

/// A snapshot that held too much space ends before the roots are looked at: no other one is expired.
#[test]
fn only_a_root_that_holds_space_is_expired() {
    let of = |held: &[u64]| {
        let held: Vec<CommitSeq> = held.iter().copied().map(CommitSeq).collect();
        super::maintenance::oldest_before(&held, CommitSeq(5)).map(|seq| seq.0)
    };
    assert_eq!(of(&[7, 3, 9, 4]), Some(3));
    assert_eq!(of(&[7, 5, 9]), None, "the checkpoint's own root, and new snapshots");
    assert_eq!(of(&[]), None);
}

/// D6: an invariant breaks in one thread while another writes the pages of a checkpoint. No superblock names
/// them.
#[test]
fn a_checkpoint_during_which_an_invariant_breaks_does_not_become_the_newest() {
    let disk = MemDisk::new(6);
    let options = Options { background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    for n in 0..200u8 {
        engine.transact(Durability::Memory, |tx| tx.put(tree, &[n], &[n; 20_000])).unwrap();
    }
    let (committer, maintenance) = engine.parts().unwrap();
    let superblocks = || disk.read_file("/db/data").unwrap()[..2 * 4096].to_vec();
    let before = superblocks();
    let mut calls = 0;
    let error = maintenance.checkpoint(&mut || {
        calls += 1;
        committer.store().alarm.require(false, format_args!("one is two"));
    });
    assert!(calls > 0, "pages were written");
    assert_eq!(error.unwrap_err().code(), Code::EnginePoisoned);
    assert!(superblocks() == before, "neither superblock was written");
}

/// A failed sync of the data file poisons under the lock of checkpoints. A callback of the program that wants
/// a lock would wait for ever there; it is called by the background instead, and called for certain.
#[test]
fn poisoning_under_a_lock_leaves_callbacks_to_the_background() {
    let disk = MemDisk::new(9);
    let options = Options { background: Background::Stepped, ..Options::default() };
    let engine = Engine::open(Arc::new(disk), Path::new("/db"), options, Hooks::default()).unwrap();
    let (committer, maintenance) = engine.parts().unwrap();
    let called = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&called);
    let watch = committer.watch();
    watch.call(watch.new_reader(), &|| false, Box::new(move || note.store(true, Ordering::SeqCst)));
    committer.poison(Error::new(Code::System, "the sync failed"));
    assert!(!called.load(Ordering::SeqCst), "the caller may hold locks");
    assert!(maintenance.is_poisoned());
    assert!(called.load(Ordering::SeqCst), "a reader that waits for a durable commit learns of it");
}
