//! Space that a whole database gives back to the file system, and allocates again.
//!
//! Runs with debug assertions only: without them, a hole needs more data than the test has.

use std::path::Path;

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault};
use duramen_disk::{Access, Disk, MemDisk};
use duramen_engine::{Code, Direction, Durability, Engine, KeyRange, Options, TreeId};

use crate::basics::{open, tiny};

const ROWS: u32 = 4000;

/// Little memory, so that little space is kept for checkpoints.
fn options() -> Options {
    Options { memory_bytes: 256 * 1024, ..tiny() }
}

fn key(row: u32) -> [u8; 4] {
    row.to_be_bytes()
}

fn value(row: u32) -> Vec<u8> {
    let length = if row % 50 == 7 { 1500 } else { 100 };
    (0..length).map(|at| ((row + at) % 251) as u8).collect()
}

fn put(engine: &Engine, tree: TreeId, rows: impl Iterator<Item = u32>) -> duramen_engine::Result<()> {
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(100) {
        let put = |tx: &mut duramen_engine::Transaction| {
            some.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row)))
        };
        engine.transact(Durability::Disk, put)?;
        engine.step()?;
    }
    Ok(())
}

fn delete(engine: &Engine, tree: TreeId, rows: impl Iterator<Item = u32>) {
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(100) {
        let delete = |tx: &mut duramen_engine::Transaction| {
            some.iter().try_for_each(|row| tx.delete(tree, &key(*row)).map(|_| ()))
        };
        engine.transact(Durability::Disk, delete).unwrap();
        engine.step().unwrap();
        look(engine, "while deleting");
    }
}

fn look(engine: &Engine, when: &str) {
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{when}: {:?}", report.problems);
    assert_eq!(report.unreached, [], "{when}");
}

fn holds(engine: &Engine, tree: TreeId, rows: impl Iterator<Item = u32>) {
    let found = engine.snapshot().unwrap().rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let wanted: Vec<_> = rows.into_iter().map(|row| (key(row).to_vec(), value(row))).collect();
    assert!(found == wanted, "{} rows, want {}", found.len(), wanted.len());
}

/// Commits tiny changes and checkpoints until everything that can be free is free.
fn settle(engine: &Engine, tree: TreeId) {
    for _ in 0..12 {
        engine.transact(Durability::Disk, |tx| tx.put(tree, &key(u32::MAX), b"settle")).unwrap();
        engine.transact(Durability::Disk, |tx| tx.delete(tree, &key(u32::MAX)).map(|_| ())).unwrap();
        engine.checkpoint().unwrap();
        look(engine, "while settling");
    }
}

fn data_bytes(disk: &MemDisk) -> u64 {
    disk.read_file(Path::new("/db/data")).unwrap().len() as u64
}

/// The bytes that the file system charges for the data file: all but the log, which has no holes.
fn charged_bytes(disk: &MemDisk) -> u64 {
    let log = disk.files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "wal"));
    let log = log.map(|path| disk.read_file(&path).unwrap().len().next_multiple_of(4096) as u64);
    disk.used_bytes() - log.sum::<u64>()
}

/// A database where most pages between the first row and the last page can be freed, with some rows left.
fn with_much_deleted(disk: &MemDisk) -> (Engine, TreeId) {
    let engine = open(disk, options());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap();
    put(&engine, tree, 0..ROWS).unwrap();
    settle(&engine, tree);
    (engine, tree)
}

fn is_left(row: &u32) -> bool {
    *row < 20 || *row >= ROWS - 400
}

#[test]
fn what_is_deleted_in_the_middle_goes_back_to_the_file_system_and_is_taken_again() {
    let disk = MemDisk::new(1);
    let (mut engine, tree) = with_much_deleted(&disk);
    // Pages that stay are not moved: the tail of the file does not move.
    let (full, length, used) = (charged_bytes(&disk), data_bytes(&disk), engine.stats().space.used_blocks);
    delete(&engine, tree, (0..ROWS).filter(|row| !is_left(row)));
    settle(&engine, tree);
    let (less, stats) = (charged_bytes(&disk), engine.stats().space);
    println!("{full} bytes full, {less} after deleting, file {length} then {}", data_bytes(&disk));
    println!("{used} blocks used full, then {stats:?}");
    assert!(disk.call_counts().of(CallKind::Punch) > 5);
    assert!(stats.end_block > 2 * stats.used_blocks, "the tail is in use: {stats:?}");
    assert!(less < full / 2, "{full} bytes, then {less}");
    holds(&engine, tree, (0..ROWS).filter(is_left));
    for life in 0..4 {
        if life == 0 {
            engine.close().unwrap();
            drop(engine);
        } else {
            engine.abandon();
        }
        engine = open(&disk, options());
        look(&engine, "after opening");
        holds(&engine, tree, (0..ROWS).filter(is_left));
        let punches = disk.call_counts().of(CallKind::Punch);
        put(&engine, tree, 0..ROWS).unwrap();
        look(&engine, "written again");
        settle(&engine, tree);
        assert!(data_bytes(&disk) < length * 3 / 2, "holes are used before the file grows");
        holds(&engine, tree, 0..ROWS);
        if life == 2 {
            engine.abandon();
            engine = open(&disk, options());
            look(&engine, "opened full");
        }
        delete(&engine, tree, (0..ROWS).filter(|row| !is_left(row)));
        // Values and pages named in the log lie where holes were.
        let cut = open(&disk.crash(&CrashChoice::None), options());
        look(&cut, "after a power cut");
        holds(&cut, tree, (0..ROWS).filter(is_left));
        cut.abandon();
        settle(&engine, tree);
        assert!(charged_bytes(&disk) < full / 2 && disk.call_counts().of(CallKind::Punch) > punches);
        holds(&engine, tree, (0..ROWS).filter(is_left));
    }
}

/// A dropped tree between two others is freed while there are no commits, and the engine then rests.
#[test]
fn a_dropped_tree_in_the_middle_goes_back_while_nobody_commits() {
    let disk = MemDisk::new(2);
    let engine = open(&disk, options());
    let sizes = [("first", ROWS / 8), ("middle", ROWS / 2), ("last", ROWS / 8)];
    let trees = sizes.map(|(name, rows)| {
        let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree(name, None)).unwrap();
        put(&engine, tree, 0..rows).unwrap();
        settle(&engine, tree);
        tree
    });
    let (full, end) = (charged_bytes(&disk), engine.stats().space.end_block);
    engine.transact(Durability::Disk, |tx| tx.drop_tree("middle")).unwrap();
    engine.checkpoint().unwrap();
    for _ in 0..400 {
        disk.advance_clock(200_000_000);
        engine.step().unwrap();
    }
    look(&engine, "at rest");
    let stats = engine.stats().space;
    println!("{full} bytes, then {}; the end was block {end}, then {stats:?}", charged_bytes(&disk));
    assert!(stats.end_block > end * 3 / 4, "the tail is in use");
    assert!(charged_bytes(&disk) < full * 2 / 3);
    [trees[0], trees[2]].into_iter().for_each(|tree| holds(&engine, tree, 0..ROWS / 8));
}

/// D7: another file has taken the blocks of a database's holes, and the disk is full. Commits are refused
/// with an error; deletes and checkpoints go on; with room everything does.
#[test]
fn holes_that_another_file_has_taken_are_missed_only_by_what_needs_room() {
    let disk = MemDisk::new(3);
    let (engine, tree) = with_much_deleted(&disk);
    delete(&engine, tree, (0..ROWS).filter(|row| !is_left(row)));
    settle(&engine, tree);
    disk.set_capacity(Some(disk.used_bytes() + 64 * 1024));
    let other = disk.open(Path::new("/other"), Access::CREATE).unwrap();
    let mut bytes = 0;
    while other.reserve(bytes, 4096).is_ok() {
        bytes += 4096;
    }
    let refused = (0..40).find_map(|at| put(&engine, tree, 20 + 80 * at..100 + 80 * at).err());
    assert_eq!(refused.expect("the disk is full").code(), Code::DiskFull);
    look(&engine, "refused");
    let left: Vec<u32> = {
        let rows = engine.snapshot().unwrap().rows(tree, KeyRange::all(), Direction::Forward).unwrap();
        rows.into_iter().map(|row| u32::from_be_bytes(row.unwrap().0.try_into().unwrap())).collect()
    };
    for (at, row) in left.iter().enumerate().filter(|(at, _)| at % 3 > 0) {
        engine.transact(Durability::Disk, |tx| tx.delete(tree, &key(*row)).map(|_| ())).unwrap();
        if at % 8 == 1 {
            engine.checkpoint().unwrap();
        }
    }
    engine.checkpoint().unwrap();
    look(&engine, "deleted");
    holds(&engine, tree, left.iter().copied().step_by(3));
    other.set_len(0).unwrap();
    disk.set_capacity(None);
    put(&engine, tree, 0..ROWS).unwrap();
    settle(&engine, tree);
    holds(&engine, tree, 0..ROWS);
}

/// Bytes of each segment of the log.
fn segments(disk: &MemDisk) -> Vec<u64> {
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|ext| ext == "wal");
    disk.files()
        .iter()
        .filter(|path| is_segment(path))
        .map(|path| disk.read_file(path).unwrap().len() as u64)
        .collect()
}

/// Log that only the checkpoint before the newest needs would have to be replaced by new segments.
#[test]
fn a_checkpoint_that_was_due_lets_go_of_all_log_before_it() {
    let disk = MemDisk::new(31);
    let engine = open(&disk, Options { checkpoint_log_bytes: Some(200_000), ..tiny() });
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let mut checkpoints = 0;
    for round in 0..200u32 {
        let put = |tx: &mut duramen_engine::Transaction| {
            (0..50).try_for_each(|row| tx.put(tree, &key(round * 50 + row), &value(row)))
        };
        engine.transact(Durability::Disk, put).unwrap();
        engine.step().unwrap();
        let stats = engine.stats();
        if stats.checkpoints > checkpoints {
            checkpoints = stats.checkpoints;
            assert_eq!(stats.log.used_count, 1, "only the segment that is written to is needed");
            look(&engine, "after a checkpoint");
        }
    }
    assert!(checkpoints > 3, "checkpoints were due");
    let all: u64 = segments(&disk).iter().sum();
    assert!(all < 700_000, "{all} bytes of log, and a checkpoint at each 200,000");
    engine.abandon();
    let engine = open(&disk.crash(&CrashChoice::None), tiny());
    assert_eq!(engine.snapshot().unwrap().tree_info(tree).unwrap().len, 10_000);
}

/// A database at rest keeps what it needs to go on, not what its busiest hour needed.
#[test]
fn a_clean_close_empties_log_segments_and_they_are_made_anew() {
    let disk = MemDisk::new(32);
    let mut wanted = 0;
    for _ in 0..3 {
        let engine = open(&disk, tiny());
        let (tree, _) = engine
            .transact(Durability::Disk, |tx| match tx.tree("t")? {
                Some(tree) => Ok(tree),
                None => tx.create_tree("t", None),
            })
            .unwrap();
        assert_eq!(engine.snapshot().unwrap().tree_info(tree).unwrap().len, wanted, "opened again");
        put(&engine, tree, 0..ROWS).unwrap();
        wanted = u64::from(ROWS);
        holds(&engine, tree, 0..ROWS);
        let before: u64 = segments(&disk).iter().sum();
        engine.close().unwrap();
        drop(engine);
        let after = segments(&disk);
        let kept = after.iter().filter(|bytes| **bytes > 0).count();
        assert!(kept <= 3, "the newest, the next and the reserve: {after:?}");
        assert!(after.len() > 3, "names stay: {after:?}");
        let (all, least) = (after.iter().sum::<u64>(), tiny().geometry.segment_bytes_min);
        assert!(before > 3 * least, "its busiest hour needed {before} bytes");
        assert!(all <= 3 * least, "each of the least size, {least}: {after:?}");
    }
    let engine = open(&disk, tiny());
    look(&engine, "at the end");
}

/// D3: checkpoints named by both superblocks must not free a slice of a dropped tree twice, nor restore its
/// row.
#[test]
fn a_tree_dropped_among_checkpoints_named_twice_gives_its_pages_back_once() {
    let disk = MemDisk::new(33);
    let due = || Options { checkpoint_log_bytes: Some(1), ..options() };
    let engine = open(&disk, due());
    let (kept, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("kept", None)).unwrap();
    let (gone, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("gone", None)).unwrap();
    put(&engine, gone, 0..ROWS).unwrap();
    engine.transact(Durability::Disk, |tx| tx.drop_tree("gone")).unwrap();
    for row in 0..60 {
        put(&engine, kept, row..row + 1).unwrap();
        look(&engine, "while it is given back");
        let disk = disk.crash(&CrashChoice::None);
        let again = open(&disk, due());
        look(&again, "opened meanwhile");
        holds(&again, kept, 0..row + 1);
        put(&again, kept, row + 1..row + 4).unwrap();
        look(&again, "written on meanwhile");
        holds(&again, kept, 0..row + 4);
        again.abandon();
    }
    engine.close().unwrap();
}

/// Repeated kills before a checkpoint is due must not accumulate log that every opening reads.
#[test]
fn what_opening_found_counts_towards_the_next_checkpoint() {
    let disk = MemDisk::new(34);
    let options = Options { checkpoint_log_bytes: Some(200_000), ..tiny() };
    let engine = open(&disk, options.clone());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    put(&engine, tree, 0..900).unwrap();
    assert_eq!(engine.stats().checkpoints, 0, "none was due");
    engine.abandon();
    let survivor = disk.crash(&CrashChoice::None);
    let engine = open(&survivor, options);
    put(&engine, tree, 900..1800).unwrap();
    assert!(engine.stats().checkpoints > 0, "neither run alone made one due, both together do");
}

/// A thread that waits for a sync may have to lead other commits. If these find no room, only they fail.
#[test]
fn a_receipt_does_not_fail_for_want_of_room_for_another_commit() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap().0;
    let (_, written) = engine.transact(Durability::Process, |tx| tx.put(tree, b"written", b"")).unwrap();
    let put = |tx: &mut duramen_engine::Transaction| tx.put(tree, b"later", b"");
    let (_, later) = engine.transact_and_wait_later(Durability::Disk, put).unwrap();
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC));
    written.wait(Durability::Disk).unwrap();
    assert_eq!(disk.fault_hit_count(), 1);
    assert_eq!(later.wait(Durability::Disk).unwrap_err().code(), Code::DiskFull);
    let cut = disk.crash(&CrashChoice::None);
    engine.abandon();
    let snapshot = open(&cut, tiny()).snapshot().unwrap();
    assert!(snapshot.get(tree, b"written").unwrap().is_some());
    assert!(snapshot.get(tree, b"later").unwrap().is_none());
}
