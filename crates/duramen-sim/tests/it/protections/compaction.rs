//! Compaction beside a checkpoint or a commit that comes while it reads: each is begun from one of its reads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault};
use duramen_engine::{
    Background, Code, Durability, Engine, GiveBack, Hooks, Options, SpaceStats, Transaction, TreeId,
};
use duramen_sim::search::shapes::GEOMETRY;

use super::watched::WatchedDisk;

const ROWS: u16 = 2000;

fn open(disk: &WatchedDisk, snapshot_space_bytes_max: Option<u64>) -> Engine {
    let options = Options {
        geometry: GEOMETRY,
        background: Background::Stepped,
        snapshot_space_bytes_max,
        // In release builds, too: canaries run there.
        give_back: GiveBack::SMALL,
        ..Options::default()
    };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap()
}

fn put_all(engine: &Engine, tree: TreeId, fill: u8) {
    let put =
        |tx: &mut Transaction| (0..ROWS).try_for_each(|row| tx.put(tree, &row.to_be_bytes(), &[fill; 60]));
    engine.transact(Durability::Disk, put).unwrap();
}

/// A compaction reads a state of its own, which is ended like any other when it holds too much. Its pages
/// hold something else by the time it reads them. That is no corruption.
#[test]
fn a_state_that_is_ended_while_a_compaction_walks_is_read_anew() {
    // The next read is of the walk that adds up what packing saves, or of the first round. Later ones may be
    // of a checkpoint, inside which there can be no other.
    for call in [2, 3] {
        let disk = MemDisk::new(call);
        let watched = WatchedDisk::new(&disk);
        let engine = open(&watched, None);
        let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
        put_all(&engine, tree, 0);
        let delete = |tx: &mut Transaction| {
            let rows = (0..ROWS).filter(|row| row % 10 > 0);
            rows.into_iter().try_for_each(|row| tx.delete(tree, &row.to_be_bytes()).map(drop))
        };
        engine.transact(Durability::Disk, delete).unwrap();
        engine.checkpoint().unwrap();
        // A close would list the nodes that the next opening reads first.
        engine.abandon();
        let engine = open(&watched, Some(1));
        let (mut calls, is_ended) = (0, Arc::new(AtomicBool::new(false)));
        let compacted = engine.compact(&mut |_| {
            calls += 1;
            if calls == call {
                let (other, is_ended) = (engine.clone(), Arc::clone(&is_ended));
                let ends = move || {
                    for fill in 1..6 {
                        put_all(&other, tree, fill);
                        for _ in 0..3 {
                            other.checkpoint().unwrap();
                        }
                    }
                    is_ended.store(true, Ordering::SeqCst);
                };
                watched.before_read(|path, _| path.ends_with("data"), ends);
            }
            Ok(())
        });
        compacted.unwrap_or_else(|error| panic!("call {call}: {error}"));
        assert!(is_ended.load(Ordering::SeqCst), "call {call}: the state was ended while it was read");
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "call {call}: {report:?}");
    }
}

/// D3: a big value is copied before the commit that moves it. If it was replaced meanwhile, the copy is
/// freed, once.
#[test]
fn the_copy_of_a_big_value_that_was_replaced_meanwhile_is_freed() {
    replace_while_copied(false);
}

/// D7: the same if the log has no room for that commit.
#[test]
fn the_copy_of_a_replaced_value_is_freed_once_if_its_commit_is_dropped() {
    replace_while_copied(true);
}

/// Replaces big values while a compaction copies them. The next write to the log may find no room.
fn replace_while_copied(is_dropped: bool) {
    let disk = MemDisk::new(1);
    let watched = WatchedDisk::new(&disk);
    let engine = open(&watched, None);
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    for row in 0..300u16 {
        let put = |tx: &mut Transaction| tx.put(tree, &row.to_be_bytes(), &[7; 3000]);
        engine.transact(Durability::Disk, put).unwrap();
    }
    for row in 0..250u16 {
        engine.transact(Durability::Disk, |tx| tx.delete(tree, &row.to_be_bytes()).map(drop)).unwrap();
    }
    let replaced = Arc::new(Mutex::new(Vec::new()));
    let mut next = 250u16;
    let report = engine.compact(&mut |now| {
        if now.moved_bytes > 0 && next < 300 {
            // Those of the slice that is put together next, in the order of their keys.
            let (other, replaced, rows, full) =
                (engine.clone(), Arc::clone(&replaced), next..300, disk.clone());
            next += 10;
            let replaces = move || {
                for row in rows {
                    let put = |tx: &mut Transaction| tx.put(tree, &row.to_be_bytes(), &[8; 3000]);
                    other.transact(Durability::Disk, put).unwrap();
                    replaced.lock().unwrap().push(row);
                }
                if is_dropped {
                    full.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
                }
            };
            watched.before_read(|path, _| path.ends_with("data"), replaces);
        }
        Ok(())
    });
    assert_eq!(report.as_ref().is_err_and(|error| error.code() == Code::DiskFull), is_dropped, "{report:?}");
    assert!(report.is_err() || report.unwrap().moved_bytes > 0);
    let replaced = replaced.lock().unwrap().clone();
    assert!(!replaced.is_empty(), "values were replaced while others were copied");
    for row in 250..300u16 {
        let wanted = if replaced.contains(&row) { 8 } else { 7 };
        assert!(engine.get(tree, &row.to_be_bytes()).unwrap().unwrap() == [wanted; 3000], "row {row}");
    }
    let check = engine.check().unwrap();
    assert!(check.is_clean() && check.unreached.is_empty(), "{check:?}");
    // A copy that nothing frees and no commit owns would keep its blocks until the database is closed.
    let before = engine.stats().space;
    engine.close().unwrap();
    drop(engine);
    let engine = open(&watched, None);
    let after = engine.stats().space;
    let used = |space: &SpaceStats| space.used_blocks - space.waiting_blocks;
    assert!(used(&before) <= used(&after) + 8, "{before:?}, opened again {after:?}");
}
