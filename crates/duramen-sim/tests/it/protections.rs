//! One small test for each protection whose loss a longer test would notice only after minutes.

mod compaction;
mod dropped;
mod file_systems;
mod leaves;
mod log_directory;
mod observed;
mod page_cache;
mod slow_disk;
mod space;
mod watched;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{
    Background, Code, Direction, Durability, Engine, ErrorKind, Hooks, KeyRange, Options, Result, TreeId,
};
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

/// D6: after a failed sync the commit is in doubt, no transaction or checkpoint begins any more, and reads go
/// on.
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

/// D5: corruption of the newest group that a durable watermark covers is corruption, not a torn tail.
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
        assert_eq!(error.code(), Code::CorruptLog, "byte {offset} of the group: {error}");
    }
}

/// D4: another database's log is never taken for this one's, though it has a frame at every position.
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
    // Values in leaves, and anything else that looks like a run of sevens.
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
            Ok(value) => assert_eq!(value, Some(vec![7; 100]), "an older copy of the page was corrupt"),
            Err(error) => assert_eq!(error.code(), Code::CorruptData, "{error}"),
        }
    }
}

/// D3: a commit is published only after its replaced pages are on the pending-free list.
///
/// A checkpoint in between would take the new root with those pages still in use, and write a space map that
/// keeps them for ever. It is started here from the commit's read of a list of extents.
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

/// D1: a commit at level `Process` is in the log when it returns, so `kill -9` keeps it.
///
/// Within a second it is also synced, though other commits follow and the log is never idle.
#[test]
fn a_commit_at_level_process_survives_a_kill_and_a_second_later_a_power_cut() {
    let (disk, engine, tree) = filled(7);
    for n in 0..24u8 {
        engine.transact(Durability::Process, |tx| tx.put(tree, &[100 + n], b"v")).unwrap();
        // A copy of the open database is what `kill -9` leaves.
        let killed = open(&disk.deep_clone()).unwrap();
        assert!(killed.get(tree, &[100 + n]).unwrap().is_some(), "commit {n} was not in the log");
        killed.abandon();
        disk.advance_clock(50_000_000);
        engine.step().unwrap();
    }
    engine.abandon();
    let engine = open(&disk.crash(&CrashChoice::None)).unwrap();
    for n in 0..3u8 {
        assert!(engine.get(tree, &[100 + n]).unwrap().is_some(), "commit {n} was not synced within a second");
    }
}

/// D8: while an engine has a database open, another one can neither write nor read it.
#[test]
fn a_database_that_is_open_is_refused_to_others() {
    let (disk, engine, tree) = filled(8);
    for read_only in [false, true] {
        let options = Options { read_only, geometry: GEOMETRY, ..Options::default() };
        let second = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default());
        let error = second.map(Engine::abandon).expect_err("the database is open");
        assert_eq!(error.code(), Code::DatabaseLocked, "{error}");
    }
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"x", b"y")).unwrap();
    engine.close().unwrap();
    drop(engine);
    assert_eq!(open(&disk).unwrap().get(tree, b"x").unwrap(), Some(b"y".to_vec()));
}

/// A blob with other bytes than were stored is reported by its SHA-256, though every page of it is intact.
#[test]
fn a_blob_whose_bytes_were_replaced_is_named() {
    let disk = MemDisk::new(9);
    let options = || duramen::Db::options().engine(|engine| engine.background = Background::Stepped);
    let db = options().open_on(Arc::new(disk.clone()), "/db").unwrap();
    db.blobs("b").put("k", &[1; 3_000][..]).unwrap();
    assert!(db.blobs("b").get("k").unwrap().unwrap().verify().is_ok());
    db.close().unwrap();
    drop(db);
    let engine = open(&disk).unwrap();
    let replace = |tx: &mut duramen_engine::Transaction| {
        let pieces = tx.tree("duramen/blob-pieces")?.expect("the blob has a piece");
        let mut rows = tx.rows(pieces, KeyRange::all(), Direction::Forward)?;
        let key = rows.next()?.expect("the blob has a piece").key().to_vec();
        drop(rows);
        tx.put(pieces, &key, &[2; 3_000])
    };
    engine.transact(Durability::Disk, replace).unwrap();
    engine.close().unwrap();
    drop(engine);
    let db = options().open_on(Arc::new(disk), "/db").unwrap();
    let error = db.blobs("b").get("k").unwrap().unwrap().verify().expect_err("the bytes are others");
    assert_eq!(error.code(), Code::CorruptData, "{error}");
}
