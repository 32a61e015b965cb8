//! Small tests for cuts that the search found not to be survived.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::data_file::SUPERBLOCK_OFFSETS;
use duramen_engine::{Background, Durability, Engine, Hooks, Options, Result, TreeId};
use duramen_sim::search::shapes::GEOMETRY;

fn open(disk: &MemDisk) -> Result<Engine> {
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default())
}

/// A database with a tree `t`, all of it durable.
fn created(disk: &MemDisk) -> (Engine, TreeId) {
    let engine = open(disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    (engine, tree)
}

fn put(engine: &Engine, tree: TreeId, key: &[u8], bytes: usize) {
    engine.transact(Durability::Disk, |tx| tx.put(tree, key, &vec![7; bytes])).unwrap();
}

/// D2: a directory whose creation was cut short opens as a new database. A data file whose log had no durable
/// name yet must not be taken for a database that has lost its log.
#[test]
fn a_creation_cut_short_anywhere_opens_as_new() {
    let disk = MemDisk::new(1);
    disk.record();
    open(&disk).unwrap().abandon();
    let trace = disk.stop_recording();
    let mut cursor = trace.cursor();
    loop {
        let pending = cursor.pending_len();
        let single = (0..pending).flat_map(|at| [CrashChoice::AllBut(at), CrashChoice::Only(at)]);
        let prefixes = (0..pending).map(CrashChoice::Prefix);
        let choices = single.chain(prefixes).chain([CrashChoice::None, CrashChoice::All]);
        for choice in choices {
            let opened = open(&cursor.image(&choice)).map(Engine::abandon);
            assert!(opened.is_ok(), "after {} operations, {choice:?}: {opened:?}", cursor.at());
        }
        if !cursor.advance() {
            return;
        }
    }
}

/// After a crash before the first checkpoint, a value goes into a hole before the extents that the log names:
/// the file must not be grown backwards.
#[test]
fn a_hole_before_replayed_extents_is_used_again() {
    let disk = MemDisk::new(2);
    let (engine, tree) = created(&disk);
    let mut given_up = engine.begin().unwrap();
    given_up.put(tree, b"hole", &[1; 900]).unwrap();
    put(&engine, tree, b"far", 30_000);
    drop(given_up);
    engine.abandon();
    let engine = open(&disk.crash(&CrashChoice::None)).unwrap();
    put(&engine, tree, b"near", 900);
    assert_eq!(engine.get(tree, b"far").unwrap(), Some(vec![7; 30_000]));
    assert!(engine.check().unwrap().is_clean());
}

/// D3: replay frees the values of a tree that the log drops, a checkpoint reuses their extents, and the power
/// is cut before its superblock. The next replay of the same log needs the values again.
#[test]
fn a_tree_made_and_dropped_in_the_log_is_replayed_twice() {
    let disk = MemDisk::new(3);
    let (engine, kept) = created(&disk);
    let gone = engine.transact(Durability::Disk, |tx| tx.create_tree("gone", None)).unwrap().0;
    put(&engine, gone, b"big", 2_000);
    for at in 0..40u8 {
        put(&engine, kept, &[at], 100);
    }
    engine.transact(Durability::Disk, |tx| tx.drop_tree("gone")).unwrap();
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    let engine = open(&disk).unwrap();
    disk.record();
    engine.checkpoint().unwrap();
    engine.abandon();
    let trace = disk.stop_recording();
    for op in 0..=trace.len() {
        let engine = open(&trace.crash_image(op, &CrashChoice::All)).unwrap();
        assert_eq!(engine.snapshot().unwrap().tree_info(kept).unwrap().len, 40, "after {op} operations");
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "after {op} operations: {report:?}");
        engine.abandon();
    }
}

/// D3: the second of two checkpoints of the same commit must not free what the first one needs: the first is
/// used if the second's superblock is corrupt.
#[test]
fn two_checkpoints_of_one_commit_leave_the_older_whole() {
    let disk = MemDisk::new(4);
    let (engine, tree) = created(&disk);
    for at in 0..40u8 {
        put(&engine, tree, &[at], 100);
    }
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    for at in 0..40u8 {
        put(&engine, tree, &[at, at], 400);
    }
    engine.abandon();
    for offset in SUPERBLOCK_OFFSETS {
        let disk = disk.crash(&CrashChoice::None);
        disk.flip_bit("/db/data", offset + 100, 0).unwrap();
        let engine = open(&disk).unwrap();
        assert_eq!(engine.snapshot().unwrap().tree_info(tree).unwrap().len, 80);
        assert!(engine.check().unwrap().is_clean());
        engine.abandon();
    }
}
