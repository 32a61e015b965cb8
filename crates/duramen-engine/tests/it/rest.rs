//! D7 at rest: a closed database keeps free room in its file (decision 0031). Another program may fill the
//! disk before the next opening, and deletes, checkpoints and a close still need room.

use duramen_disk::MemDisk;
use duramen_engine::{Direction, Durability, Engine, Geometry, KeyRange, Options, Transaction, TreeId};

use crate::basics::{open, tiny};

fn key(row: u32) -> [u8; 4] {
    row.to_be_bytes()
}

fn value(row: u32) -> Vec<u8> {
    let length = if row % 50 == 7 { 1500 } else { 100 };
    (0..length).map(|at| ((row + at) % 251) as u8).collect()
}

/// A database of so many rows that was closed, on a disk that is full now.
fn at_rest(options: &Options, rows: u32) -> (MemDisk, TreeId) {
    let disk = MemDisk::new(u64::from(rows));
    let engine = open(&disk, options.clone());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    let all: Vec<u32> = (0..rows).collect();
    for some in all.chunks(500) {
        let put =
            |tx: &mut Transaction| some.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row)));
        engine.transact(Durability::Process, put).unwrap();
        engine.step().unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    disk.set_capacity(Some(disk.used_bytes()));
    (disk, tree)
}

fn delete(engine: &Engine, tree: TreeId, rows: &[u32]) {
    let delete = |tx: &mut Transaction| rows.iter().try_for_each(|row| tx.delete(tree, &key(*row)).map(drop));
    engine.transact(Durability::Disk, delete).unwrap_or_else(|error| panic!("{} rows: {error}", rows.len()));
}

fn holds(engine: &Engine, tree: TreeId, rows: impl Iterator<Item = u32>) {
    let found = engine.snapshot().unwrap().rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let wanted: Vec<_> = rows.map(|row| (key(row).to_vec(), value(row))).collect();
    assert!(found == wanted, "{} rows, want {}", found.len(), wanted.len());
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!(report.unreached, []);
}

/// Deletes on a full disk in so many transactions, each followed by a checkpoint, and closes. The first
/// deletes dirty the pages of every row of theirs.
fn deletes_checkpoints_and_closes(options: &Options, rows: u32, transactions: usize) {
    let (disk, tree) = at_rest(options, rows);
    let full = disk.used_bytes();
    let engine = open(&disk, options.clone());
    let all: Vec<u32> = (0..rows).collect();
    for part in all.chunks(all.len().div_ceil(transactions)) {
        delete(&engine, tree, &part.iter().copied().filter(|row| row % 2 == 1).collect::<Vec<_>>());
        engine.checkpoint().unwrap_or_else(|error| panic!("{rows} rows, a checkpoint: {error}"));
    }
    holds(&engine, tree, (0..rows).step_by(2));
    engine.close().unwrap_or_else(|error| panic!("{rows} rows: {error}"));
    drop(engine);
    assert!(disk.used_bytes() <= full, "the disk was full");
    // The next process, on the disk that is still full.
    disk.set_capacity(Some(disk.used_bytes()));
    let engine = open(&disk, options.clone());
    holds(&engine, tree, (0..rows).step_by(2));
    let left: Vec<u32> = (0..rows).step_by(2).collect();
    for some in left.chunks(left.len().div_ceil(transactions)) {
        delete(&engine, tree, some);
        engine.checkpoint().unwrap();
    }
    holds(&engine, tree, 0..0);
    engine.close().unwrap();
    drop(engine);
    disk.set_capacity(None);
    let engine = open(&disk, options.clone());
    holds(&engine, tree, 0..0);
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"again", b"")).unwrap();
}

fn small() -> Options {
    Options { memory_bytes: 16 << 20, ..tiny() }
}

/// The sizes of a database that is shipped, in the blocks of the file system.
fn shipped() -> Options {
    Options { geometry: Geometry::default(), memory_bytes: 64 << 20, ..tiny() }
}

#[test]
fn a_small_database_that_was_closed_is_changed_whole_on_a_full_disk() {
    for rows in [1, 20, 300, 2000] {
        deletes_checkpoints_and_closes(&small(), rows, 1);
    }
    for rows in [20, 2000, 6000] {
        deletes_checkpoints_and_closes(&shipped(), rows, 1);
    }
}

/// A twentieth of the data at a time: each transaction frees room for the next.
#[test]
fn a_larger_database_that_was_closed_is_emptied_on_a_full_disk_part_by_part() {
    deletes_checkpoints_and_closes(&small(), 60_000, 20);
    deletes_checkpoints_and_closes(&shipped(), 300_000, 20);
}

/// Commits without a checkpoint between them: the background makes it when it is due.
#[test]
fn a_database_that_was_closed_deletes_beside_its_background_on_a_full_disk() {
    let rows = 20_000;
    let (disk, tree) = at_rest(&small(), rows);
    let engine = open(&disk, small());
    let odd: Vec<u32> = (0..rows).filter(|row| row % 2 == 1).collect();
    for some in odd.chunks(500) {
        delete(&engine, tree, some);
        // It may fail for want of room for a log segment.
        drop(engine.step());
    }
    holds(&engine, tree, (0..rows).step_by(2));
}

/// The room depends on what is used, not on the memory: the next process may have more. An import lowers the
/// memory of its own process.
#[test]
fn little_memory_does_not_lower_the_room_at_rest() {
    let rows = 12_000;
    let mut options = Options { memory_bytes: 4 << 20, ..shipped() };
    let (disk, _) = at_rest(&options, rows);
    let little = disk.read_file("/db/data").unwrap().len();
    options.memory_bytes = 64 << 20;
    let (disk, tree) = at_rest(&options, rows);
    let much = disk.read_file("/db/data").unwrap().len();
    assert!(little.abs_diff(much) < 256 << 10, "{little} bytes with little memory, {much} with more");
    disk.set_capacity(None);
    let engine = open(&disk, options);
    engine.set_memory_bytes(4 << 20).unwrap();
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"one more", b"")).unwrap();
    engine.close().unwrap();
    let used = engine.stats().space.used_blocks * 4096;
    drop(engine);
    let room = disk.read_file("/db/data").unwrap().len() as u64 - used;
    assert!(room >= 2 << 20, "{room} bytes of room beside {used}");
    deletes_checkpoints_and_closes(&Options { memory_bytes: 4 << 20, ..shipped() }, 6000, 1);
}

/// D7: an opening goes on in a new segment of the log. Openings that commit nothing must not take one each:
/// the room for deletes would be gone after a few.
fn deletes_after_openings_without_a_commit(end: impl Fn(Engine), step: bool) {
    let rows = 20_000;
    let (disk, tree) = at_rest(&small(), rows);
    for _ in 0..16 {
        let engine = open(&disk, small());
        let put =
            |tx: &mut Transaction| (rows..3 * rows).try_for_each(|row| tx.put(tree, &key(row), &value(row)));
        engine.transact(Durability::Disk, put).unwrap_err();
        if step {
            drop(engine.step());
        }
        end(engine);
        // Another program takes what was given back.
        disk.set_capacity(Some(disk.used_bytes()));
    }
    let engine = open(&disk, small());
    let odd: Vec<u32> = (0..rows).filter(|row| row % 2 == 1).collect();
    for some in odd.chunks(500) {
        delete(&engine, tree, some);
    }
    holds(&engine, tree, (0..rows).step_by(2));
    engine.close().unwrap();
}

#[test]
fn openings_that_are_refused_everything_and_closed_leave_room_for_deletes() {
    for step in [false, true] {
        deletes_after_openings_without_a_commit(|engine| engine.close().unwrap(), step);
    }
}

#[test]
fn openings_that_are_refused_everything_and_killed_leave_room_for_deletes() {
    for step in [false, true] {
        deletes_after_openings_without_a_commit(Engine::abandon, step);
    }
}

/// The same without a call that needs room: a service that is restarted again and again.
#[test]
fn openings_that_only_read_and_are_killed_take_no_segments() {
    let (disk, tree) = at_rest(&small(), 300);
    let segments = || disk.files().iter().filter(|path| path.extension().is_some_and(|e| e == "wal")).count();
    let before = segments();
    for _ in 0..40 {
        let engine = open(&disk, small());
        assert_eq!(engine.get(tree, &key(1)).unwrap(), Some(value(1)));
        engine.abandon();
    }
    assert_eq!(segments(), before, "after 40 kills");
    let engine = open(&disk, small());
    delete(&engine, tree, &(0..300).collect::<Vec<_>>());
    holds(&engine, tree, 0..0);
    engine.close().unwrap();
}

/// An opening after a crash goes on in a small segment. If nothing is committed, the large ones before it are
/// emptied by the close all the same.
#[test]
fn a_close_without_a_commit_leaves_no_large_segment_of_a_crash() {
    for kills in [0, 1, 3] {
        let disk = MemDisk::new(7);
        let options = shipped();
        let engine = open(&disk, options.clone());
        let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
        let put = |row: u32, byte: u8| {
            engine.transact(Durability::Disk, |tx| tx.put(tree, &key(row), &vec![byte; 1800])).unwrap();
            engine.step().unwrap();
        };
        (0..6000).for_each(|row| put(row, 1));
        // The small segments are free again. Then the log goes on from them to larger ones.
        engine.checkpoint().unwrap();
        engine.checkpoint().unwrap();
        (0..3000).for_each(|row| put(row, 2));
        // A durable watermark ends the log: an opening copies nothing.
        for _ in 0..4 {
            disk.advance_clock(200_000_000);
            engine.step().unwrap();
        }
        engine.abandon();
        let crashed = log_bytes(&disk);
        (0..kills).for_each(|_| open(&disk, options.clone()).abandon());
        open(&disk, options.clone()).close().unwrap();
        let (closed, least) = (log_bytes(&disk), 4 * options.geometry.segment_bytes_min);
        assert!(
            crashed > 2 * least && closed <= least,
            "{kills} kills: {crashed} bytes, {closed} after the close"
        );
        let engine = open(&disk, options);
        assert_eq!(engine.get(tree, &key(2999)).unwrap(), Some(vec![2; 1800]));
    }
}

fn log_bytes(disk: &MemDisk) -> u64 {
    let segments = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal"));
    segments.map(|path| disk.read_file(&path).unwrap().len() as u64).sum()
}

/// A database that was open for a moment has a log of two segments: an opening goes on in the second one.
#[test]
fn a_log_of_two_segments_is_enough_for_openings_and_deletes_on_a_full_disk() {
    for options in [small(), shipped()] {
        let disk = MemDisk::new(5);
        let engine = open(&disk, options.clone());
        let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
        let put = |tx: &mut Transaction| (0..20).try_for_each(|row| tx.put(tree, &key(row), &value(row)));
        engine.transact(Durability::Disk, put).unwrap();
        engine.close().unwrap();
        drop(engine);
        assert_eq!(log_bytes(&disk), 2 * options.geometry.segment_bytes_min);
        for _ in 0..6 {
            disk.set_capacity(Some(disk.used_bytes()));
            open(&disk, options.clone()).close().unwrap();
        }
        disk.set_capacity(Some(disk.used_bytes()));
        let engine = open(&disk, options);
        delete(&engine, tree, &(0..20).collect::<Vec<_>>());
        engine.close().unwrap();
    }
}

/// A compaction takes the same room as puts: what deletes have freed is enough.
#[test]
fn a_database_that_was_closed_is_compacted_on_a_full_disk() {
    // Of a small database that compresses, the file is mostly the room that it keeps free.
    for (rows, compress) in [(2000, false), (20_000, false), (2000, true), (20_000, true)] {
        let options = Options { compress, ..shipped() };
        let (disk, tree) = at_rest(&options, rows);
        let engine = open(&disk, options);
        let gone: Vec<u32> = (0..rows).filter(|row| row % 4 != 1).collect();
        for some in gone.chunks(gone.len() / 20) {
            delete(&engine, tree, some);
            engine.checkpoint().unwrap();
        }
        let report = engine.compact(&mut |_| Ok(())).unwrap();
        let bound = if compress { report.before_bytes } else { report.before_bytes * 2 / 3 };
        assert!(report.after_bytes < bound, "{rows} rows: {report:?}");
        holds(&engine, tree, (0..rows).filter(|row| row % 4 == 1));
        engine.close().unwrap();
    }
}
