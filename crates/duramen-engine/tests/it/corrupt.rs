//! Corrupt pages that are no longer needed block nothing: dropped trees, deleted values, unused reductions.
//! One bit is flipped in each block of the data file in turn.

use std::path::Path;
use std::sync::{Arc, Mutex};

use duramen_disk::MemDisk;
use duramen_disk::memory::{CallKind, Effect, Fault, FaultPlan};
use duramen_engine::{
    Direction, Durability, Engine, Event, EventHook, Hooks, KeyRange, Options, ReducerSpec, Result,
};

use crate::awkward::create;
use crate::basics::{open, tiny};
use crate::repair::picky;

const BLOCK: usize = 512;

/// Calls `then` with the database with one bit flipped, for each block after the superblocks that is not
/// zero.
fn each_block(disk: &MemDisk, mut then: impl FnMut(usize, MemDisk)) {
    let bytes = disk.read_file("/db/data").unwrap();
    for (block, content) in bytes.chunks(BLOCK).enumerate().skip(2 * 4096 / BLOCK) {
        if content.iter().any(|byte| *byte != 0) {
            let disk = disk.deep_clone();
            disk.flip_bit("/db/data", (block * BLOCK + 100) as u64, 2).unwrap();
            then(block, disk);
        }
    }
}

fn fill(engine: &Engine, name: &str, rows: u8) {
    let tree = create(engine, name);
    for row in 0..rows {
        let value = vec![row; if row % 9 == 0 { 4000 } else { 60 }];
        engine.transact(Durability::Disk, |tx| tx.put(tree, &row.to_be_bytes(), &value)).unwrap();
    }
}

/// Commits and takes checkpoints, so that the space of dropped trees is reclaimed.
fn reclaim(engine: &Engine, when: &str) {
    for _ in 0..60 {
        let other = create(engine, "more");
        engine.transact(Durability::Disk, |tx| tx.put(other, b"k", b"v")).unwrap();
        engine.checkpoint().unwrap_or_else(|error| panic!("{when}: {error}"));
        engine.transact(Durability::Disk, |tx| tx.drop_tree("more")).unwrap();
    }
}

/// D7: a page of a tree is corrupt, and the tree is dropped. Checkpoints complete, the other tree is whole,
/// and the space of the dropped one is reclaimed except for the pages below the corrupt one.
#[test]
fn corruption_in_a_dropped_tree_ends_no_checkpoint() {
    let disk = MemDisk::new(61);
    let engine = open(&disk, tiny());
    fill(&engine, "kept", 40);
    fill(&engine, "dropped", 200);
    engine.close().unwrap();
    let (mut dropped_count, mut kept_back_count) = (0, 0);
    each_block(&disk, |block, disk| {
        let Ok(engine) = Engine::open(Arc::new(disk), Path::new("/db"), tiny(), Hooks::default()) else {
            return;
        };
        let rows = |engine: &Engine| -> Result<usize> {
            let snapshot = engine.snapshot()?;
            let kept = snapshot.tree("kept")?.expect("it is there");
            snapshot
                .rows(kept, KeyRange::all(), Direction::Forward)?
                .into_iter()
                .try_fold(0, |count, row| row.map(|_| count + 1))
        };
        let kept = rows(&engine);
        if kept.is_err() || engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).is_err() {
            engine.abandon();
            return;
        }
        dropped_count += 1;
        let used = engine.stats().space.used_blocks;
        reclaim(&engine, &format!("block {block}"));
        kept_back_count += usize::from(engine.stats().space.used_blocks > used / 2);
        assert_eq!(rows(&engine).unwrap(), kept.unwrap(), "block {block}");
        engine.close().unwrap_or_else(|error| panic!("block {block}: {error}"));
    });
    assert!(dropped_count > 100, "{dropped_count}");
    assert!(kept_back_count < 5, "few pages have so much below them: {kept_back_count}");
}

/// A dropped tree cannot be read for a while. Checkpoints complete, and its space is reclaimed later.
#[test]
fn a_dropped_tree_that_cannot_be_read_ends_no_checkpoint() {
    let disk = MemDisk::new(64);
    let engine = open(&disk, tiny());
    fill(&engine, "dropped", 200);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, tiny());
    engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).unwrap();
    let used = engine.stats().space.used_blocks;
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).on("/db/data").for_good());
    engine.checkpoint().unwrap();
    assert!(disk.fault_hit_count() > 0, "the tree was not read");
    disk.set_faults(FaultPlan::none());
    reclaim(&engine, "readable again");
    assert!(engine.stats().space.used_blocks < used / 2);
}

/// D7: while a dropped tree cannot be read, its space is not reclaimed. That is reported once, not by every
/// checkpoint, and again only if it fails again later.
#[test]
fn a_dropped_tree_that_cannot_be_read_is_reported_once() {
    let disk = MemDisk::new(66);
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let on_event: EventHook = Arc::new(move |event: &Event| {
        if let Event::BackgroundFailed(error) = event {
            heard.lock().unwrap().push(error.clone());
        }
    });
    let engine = open(&disk, tiny());
    fill(&engine, "dropped", 200);
    fill(&engine, "dropped too", 200);
    engine.close().unwrap();
    drop(engine);
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), hooks).unwrap();
    let other = create(&engine, "other");
    let checkpoints = || {
        for _ in 0..4 {
            engine.transact(Durability::Disk, |tx| tx.put(other, b"k", b"v")).unwrap();
            engine.checkpoint().unwrap();
        }
    };
    for (name, told_count) in [("dropped", 1), ("dropped too", 2)] {
        engine.transact(Durability::Disk, |tx| tx.drop_tree(name)).unwrap();
        disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).on("/db/data").for_good());
        checkpoints();
        assert!(disk.fault_hit_count() >= 4, "the tree was not read");
        disk.set_faults(FaultPlan::none());
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), told_count, "{told:?}");
        assert!(told[told_count - 1].message().contains("dropped tree"), "{told:?}");
        // All of it is reclaimed.
        (0..15).for_each(|_| checkpoints());
    }
}

/// A dropped tree cannot be read, and nothing else happens. The database makes no checkpoints without end for
/// it. The checkpoints of later commits try again.
#[test]
fn a_dropped_tree_that_cannot_be_read_lets_the_database_rest() {
    let disk = MemDisk::new(67);
    let engine = open(&disk, tiny());
    fill(&engine, "dropped", 200);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, tiny());
    let used = engine.stats().space.used_blocks;
    let rest = || {
        for _ in 0..100 {
            disk.advance_clock(200_000_000);
            engine.step().unwrap();
        }
        engine.stats().checkpoints
    };
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).on("/db/data").for_good());
    engine.transact(Durability::Disk, |tx| tx.drop_tree("dropped")).unwrap();
    engine.checkpoint().unwrap();
    let before = rest();
    assert!(disk.fault_hit_count() > 0, "the tree was not read");
    assert_eq!(rest(), before, "it does not rest");
    disk.set_faults(FaultPlan::none());
    reclaim(&engine, "readable again");
    assert!(engine.stats().space.used_blocks < used / 2, "it is reclaimed");
    engine.close().unwrap();
}

/// A big value is corrupt and then deleted, and the process is killed before a checkpoint. The database opens
/// and accepts writes.
#[test]
fn corruption_in_a_deleted_value_ends_no_opening() {
    let disk = MemDisk::new(62);
    let engine = open(&disk, tiny());
    let tree = create(&engine, "t");
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &[7; 60_000])).unwrap();
    engine.close().unwrap();
    for answer_before_replay in [Some(false), Some(true)] {
        let options = || Options { answer_before_replay, ..tiny() };
        let mut deleted_count = 0;
        each_block(&disk, |block, disk| {
            let opened = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options(), Hooks::default());
            let Ok(engine) = opened else { return };
            let deleted = engine.transact(Durability::Disk, |tx| tx.delete(tree, b"big"));
            engine.abandon();
            if deleted.is_err() {
                return;
            }
            deleted_count += 1;
            let engine = Engine::open(Arc::new(disk), Path::new("/db"), options(), Hooks::default())
                .unwrap_or_else(|error| panic!("block {block}: {error}"));
            let written = engine.transact(Durability::Disk, |tx| tx.put(tree, b"k", b"v"));
            written.unwrap_or_else(|error| panic!("block {block}: {error}"));
            engine.checkpoint().unwrap_or_else(|error| panic!("block {block}: {error}"));
            engine.abandon();
        });
        assert!(deleted_count > 100, "{deleted_count}");
    }
}

/// A value was written while the reducer was not registered, so its reduction is calculated from its bytes,
/// and these are corrupt. A checkpoint with other writes to the same leaf completes.
#[test]
fn corruption_in_a_value_without_a_reduction_ends_no_checkpoint() {
    let disk = MemDisk::new(63);
    let spec = ReducerSpec { name: "picky".to_owned(), version: 1, params: Vec::new() };
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), picky(false)).unwrap();
    let created = engine.transact(Durability::Disk, |tx| tx.create_tree("t", Some(spec.clone())));
    let (tree, _) = created.unwrap();
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, tiny());
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &[7; 40_000])).unwrap();
    engine.close().unwrap();
    drop(engine);
    let mut written_count = 0;
    each_block(&disk, |block, disk| {
        let opened = Engine::open(Arc::new(disk), Path::new("/db"), tiny(), picky(false));
        let Ok(engine) = opened else { return };
        if engine.transact(Durability::Disk, |tx| tx.put(tree, b"beside", b"v")).is_ok() {
            written_count += 1;
            engine.checkpoint().unwrap_or_else(|error| panic!("block {block}: {error}"));
        }
        engine.abandon();
    });
    assert!(written_count > 50, "{written_count}");
}
