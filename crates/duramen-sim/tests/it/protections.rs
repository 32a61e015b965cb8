//! One small test for each protection whose loss a longer test would notice only after minutes.

mod watched;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{Background, Code, Durability, Engine, ErrorKind, Hooks, Options, Result, TreeId};
use duramen_sim::search::shapes::GEOMETRY;

use watched::WatchedDisk;

fn open(disk: &MemDisk) -> Result<Engine> {
    open_on(Arc::new(disk.clone()))
}

fn open_on(disk: Arc<dyn Disk>) -> Result<Engine> {
    let options = Options { geometry: GEOMETRY, background: Background::Stepped, ..Options::default() };
    Engine::open(disk, Path::new("/db"), options, Hooks::default())
}

/// A database with twenty rows in the tree `t`.
fn filled(seed: u64) -> (MemDisk, Engine, TreeId) {
    let disk = MemDisk::new(seed);
    let engine = open(&disk).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    for key in 0..20u8 {
        engine.transact(Durability::Disk, |tx| tx.put(tree, &[key], &[key; 100])).unwrap();
    }
    (disk, engine, tree)
}

/// D6: after a failed sync the commit is in doubt, nothing is begun or checkpointed any more, and readers go on.
#[test]
fn a_failed_sync_ends_all_acknowledgement() {
    let (disk, engine, tree) = filled(1);
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO));
    let failed = engine.transact(Durability::Disk, |tx| tx.put(tree, b"x", b"y")).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::InDoubt);
    assert_eq!(engine.begin().map(drop).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(engine.checkpoint().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(engine.get(tree, &[3]).unwrap(), Some(vec![3; 100]));
}

/// D5: damage to the newest group that a mark calls durable is damage, not a torn tail.
#[test]
fn a_flipped_bit_below_the_mark_is_named() {
    let (disk, engine, tree) = filled(2);
    disk.record();
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"last", &[9; 40])).unwrap();
    let trace = disk.stop_recording();
    let written =
        (0..trace.len()).map(|at| trace.op(at)).find(|op| op.bytes > 0).expect("a group was written");
    disk.advance_clock(1);
    engine.step().unwrap();
    disk.advance_clock(200_000_000);
    engine.step().unwrap();
    engine.abandon();
    for offset in [0, 20, 120, 200, 256] {
        let disk = disk.crash(&CrashChoice::None);
        disk.flip_bit(&written.path, written.offset + offset, 3).unwrap();
        let error = open(&disk).map(Engine::abandon).expect_err("a durable commit is gone");
        assert_eq!(error.code(), Code::DamagedLog, "byte {offset} of the group: {error}");
    }
}

/// D4: another database's log is never taken for this one's, though it has a frame in every place.
#[test]
fn the_log_of_another_database_is_refused() {
    let (disk, engine, _) = filled(3);
    let (other_disk, other, _) = filled(4);
    engine.abandon();
    other.abandon();
    for path in disk.files().iter().filter(|path| path.extension().is_some_and(|ext| ext == "wal")) {
        disk.delete(path).unwrap();
    }
    for path in other_disk.files().iter().filter(|path| path.extension().is_some_and(|ext| ext == "wal")) {
        disk.write_file(path, &other_disk.read_file(path).unwrap()).unwrap();
    }
    let error = open(&disk).map(Engine::abandon).expect_err("the log is of another database");
    assert_eq!(error.code(), Code::LogMissing, "{error}");
    assert!(error.message().contains("foreign log"), "{error}");
}

/// D4: a flipped bit in a value is an error, never a wrong value.
#[test]
fn a_flipped_bit_in_a_page_is_never_read_as_data() {
    let (disk, engine, tree) = filled(5);
    engine.checkpoint().unwrap();
    engine.abandon();
    let data = disk.read_file("/db/data").unwrap();
    // Values in leaves and whatever else looks like a run of sevens.
    let places: Vec<u64> =
        (0..data.len() - 8).filter(|at| data[*at..at + 8] == [7; 8]).map(|at| at as u64).collect();
    assert!(!places.is_empty(), "the row of sevens lies in the data file");
    for place in [places[0], places[places.len() / 2]] {
        let disk = disk.crash(&CrashChoice::None);
        disk.flip_bit("/db/data", place, 1).unwrap();
        let found = open(&disk).and_then(|engine| {
            let found = engine.get(tree, &[7]);
            engine.abandon();
            found
        });
        match found {
            Ok(value) => assert_eq!(value, Some(vec![7; 100]), "an older copy of the page was damaged"),
            Err(error) => assert_eq!(error.code(), Code::DamagedData, "{error}"),
        }
    }
}

/// D3: a commit is published only once what it replaced is noted. A checkpoint that got in between took the new root
/// for one that still uses those pages, and wrote a space map that keeps them for ever. The commit's read of a list
/// of extents is where such a checkpoint is made to come in.
#[test]
fn a_checkpoint_beside_a_commit_knows_what_the_commit_replaced() {
    let disk = MemDisk::new(6);
    let watched = WatchedDisk::new(&disk);
    let engine = open_on(Arc::new(watched.clone())).unwrap();
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &[7; 2_000])).unwrap();
    engine.checkpoint().unwrap();

    let checkpointed = Arc::new(AtomicBool::new(false));
    let (other, told) = (engine.clone(), Arc::clone(&checkpointed));
    engine
        .transact(Durability::Disk, |tx| {
            tx.put(tree, b"big", b"small")?;
            let (other, told) = (other.clone(), Arc::clone(&told));
            watched.before_next_read(move || {
                other.checkpoint().unwrap();
                told.store(true, Ordering::Relaxed);
            });
            Ok(())
        })
        .unwrap();
    assert!(checkpointed.load(Ordering::Relaxed), "the commit read the list of the value it replaced");
    engine.abandon();
    drop(other);

    let engine = open(&disk.crash(&CrashChoice::None)).unwrap();
    assert_eq!(engine.get(tree, b"big").unwrap(), Some(b"small".to_vec()));
    let report = engine.check().unwrap();
    assert!(report.is_clean() && report.unreached.is_empty(), "{report:?}");
}
