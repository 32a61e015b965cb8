//! Compaction beside a close, and before a disk that fills: what it may not take from others.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use duramen_disk::MemDisk;
use duramen_engine::{Code, Durability, Engine, Error, GiveBack, KeyRange, Options, Transaction, TreeId};

use crate::basics::{open, tiny};
use crate::compact::{filled, key, options, thin_out, value};

fn commit(engine: &Engine, tree: TreeId, rows: &[u32]) -> Result<(), Error> {
    let put = |tx: &mut duramen_engine::Transaction| {
        rows.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row)))
    };
    engine.transact(Durability::Disk, put).map(drop)
}

/// D7: the end of a compaction cuts the file, and leaves the room that commits made meanwhile have reserved.
#[test]
fn the_room_of_commits_beside_a_compaction_stays_when_it_cuts_the_file() {
    let disk = MemDisk::new(1);
    // Compressed pages would take less than the room that is reserved for them.
    let options = Options { memory_bytes: 64 << 20, compress: false, ..tiny() };
    let (engine, tree) = filled(&disk, options, &(0..4000).collect::<Vec<_>>());
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    // What it holds is freed by none of the last checkpoints, so there are several.
    let holder = engine.snapshot().unwrap();
    thin_out(&engine, tree, 4000, 1);
    let (mut same, mut last, mut next) = (0, u64::MAX, 10_000_u32);
    engine
        .compact(&mut |now| {
            same = if now.moved_bytes == last { same + 1 } else { 0 };
            last = now.moved_bytes;
            if now.moved_bytes == 0 || same < 3 || next > 100_000 {
                return Ok(());
            }
            let rows: Vec<u32> = (next..next + 15_000).collect();
            next += 15_000;
            rows.chunks(500).try_for_each(|some| commit(&engine, tree, some))
        })
        .unwrap();
    assert!(next > 10_000, "commits were made while the file was cut");
    disk.set_capacity(Some(disk.used_bytes()));
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.delete(tree, &key(10_000))).unwrap();
    engine.checkpoint().unwrap();
    drop(holder);
}

#[test]
fn a_close_ends_a_compaction_and_nothing_is_written_after_it() {
    let disk = MemDisk::new(1);
    let (engine, tree) = filled(&disk, options(), &(0..4000).collect::<Vec<_>>());
    thin_out(&engine, tree, 4000, 1);
    let moves = AtomicBool::new(false);
    let data = || disk.read_file(Path::new("/db/data")).unwrap();
    let (compacted, closed) = std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            while !moves.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            engine.close().unwrap();
            data()
        });
        let compacted = engine.compact(&mut |now| {
            moves.store(now.moved_bytes > 0, Ordering::Release);
            std::thread::yield_now();
            Ok(())
        });
        moves.store(true, Ordering::Release);
        (compacted, closing.join().unwrap())
    });
    if let Err(error) = compacted {
        assert_eq!(error.code(), Code::Closed, "{error}");
    }
    assert!(closed == data(), "the data file was written after the close");
    assert_eq!(engine.checkpoint().unwrap_err().code(), Code::Closed);
    assert_eq!(engine.compact(&mut |_| Ok(())).unwrap_err().code(), Code::Closed);
    drop(engine);
    let engine = open(&disk, options());
    assert!(engine.check().unwrap().is_clean());
}

#[test]
fn a_close_in_the_progress_of_a_compaction_is_refused() {
    let (engine, tree) = filled(&MemDisk::new(3), options(), &(0..1000).collect::<Vec<_>>());
    thin_out(&engine, tree, 1000, 1);
    let mut refused = 0;
    let closes = |_: &_| {
        refused += u32::from(engine.close().unwrap_err().code() == Code::InvalidArgument);
        Ok(())
    };
    engine.compact(&mut { closes }).unwrap();
    assert!(refused > 0);
    engine.close().unwrap();
}

/// Slices of so many bytes, and large values in the leaves of one.
fn small_slices(compacted_bytes: usize) -> Options {
    Options { give_back: GiveBack { compacted_bytes, ..GiveBack::SMALL }, ..options() }
}

/// A walk over a large tree in which nothing is to be done takes long, and a close waits for it.
#[test]
fn progress_is_reported_where_nothing_is_moved() {
    let (engine, _) = filled(&MemDisk::new(4), small_slices(512), &(0..6000).collect::<Vec<_>>());
    let mut calls = 0;
    engine
        .compact(&mut |_| {
            calls += 1;
            Ok(())
        })
        .unwrap();
    assert!(calls > 15, "{calls} calls");
    let mut left = 10;
    let stopped = engine.compact(&mut |_| {
        left -= 1;
        if left == 0 { Err(Error::invalid("enough")) } else { Ok(()) }
    });
    assert_eq!(stopped.unwrap_err().message(), "enough");
}

/// A few leaves refer to gigabytes of big values. They are copied in many slices.
#[test]
fn a_slice_of_big_values_ends_within_its_leaves() {
    const VALUE_BYTES: u64 = 1500;
    let disk = MemDisk::new(5);
    let engine = open(&disk, small_slices(GiveBack::SMALL.compacted_bytes));
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    let big = |row: u32| vec![row.to_le_bytes()[0]; 1500];
    for row in 0..1200 {
        engine.transact(Durability::Process, |tx| tx.put(tree, &key(row), &big(row))).unwrap();
        engine.step().unwrap();
    }
    for row in 0..900 {
        engine.transact(Durability::Process, |tx| tx.delete(tree, &key(row)).map(drop)).unwrap();
        engine.step().unwrap();
    }
    let (mut before, mut slices) = (0, 0);
    let report = engine.compact(&mut |now| {
        let moved = now.moved_bytes - before;
        assert!(
            moved <= 2 * GiveBack::SMALL.compacted_bytes as u64 + VALUE_BYTES,
            "{moved} bytes in a slice"
        );
        before = now.moved_bytes;
        slices += u32::from(moved > 0);
        Ok(())
    });
    let report = report.unwrap();
    assert!(slices > 30 && report.after_bytes < report.before_bytes / 2, "{slices} slices: {report:?}");
    for row in 900..1200 {
        assert!(engine.get(tree, &key(row)).unwrap().unwrap() == big(row), "row {row}");
    }
    let check = engine.check().unwrap();
    assert!(check.is_clean() && check.unreached.is_empty(), "{check:?}");
}

/// Programs that drop trees all the time would keep it from ever moving anything.
#[test]
fn trees_that_are_dropped_meanwhile_do_not_hold_it_up() {
    let (engine, tree) = filled(&MemDisk::new(6), options(), &(0..3000).collect::<Vec<_>>());
    let left = thin_out(&engine, tree, 3000, 6);
    let mut calls = 0;
    let report = engine.compact(&mut |_| {
        calls += 1;
        if calls > 2000 {
            return Err(Error::invalid("it does not end"));
        }
        let name = format!("short-lived {calls}");
        let dropped = engine.transact(Durability::Process, |tx| tx.create_tree(&name, None)).unwrap().0;
        let put = |tx: &mut duramen_engine::Transaction| {
            (0..100).try_for_each(|row| tx.put(dropped, &key(row), &value(row)))
        };
        engine.transact(Durability::Process, put)?;
        engine.transact(Durability::Process, |tx| tx.drop_tree(&name)).map(drop)
    });
    assert!(report.unwrap().moved_bytes > 0);
    assert_eq!(engine.snapshot().unwrap().count(tree, &KeyRange::all()).unwrap(), left.len() as u64);
    assert!(engine.check().unwrap().is_clean());
}

/// D7: the last segment of the log is kept for deletes on a full disk. Slices make no room there.
#[test]
fn slices_leave_the_log_segment_that_deletes_need_on_a_full_disk() {
    let mut options = Options { memory_bytes: 4 << 20, ..small_slices(512) };
    (options.geometry.segment_bytes_min, options.geometry.segment_bytes_max) = (4096, 4096);
    for slices in 0..12 {
        let disk = MemDisk::new(2);
        let (engine, tree) = filled(&disk, options.clone(), &(0..1500).collect::<Vec<_>>());
        let left = thin_out(&engine, tree, 1500, 2);
        let change = |put: Option<&[u8]>| {
            // Not retried.
            let mut tx = engine.begin()?;
            match put {
                Some(value) => tx.put(tree, b"full", value)?,
                None => tx.delete(tree, &key(left[0])).map(drop)?,
            }
            tx.commit(Durability::Disk)
        };
        let (mut moved, mut to_go) = (0, None);
        let stopped = engine.compact(&mut |now| {
            to_go = match to_go {
                None if now.moved_bytes > 0 => {
                    (0..4).try_for_each(|_| engine.step())?;
                    disk.set_capacity(Some(disk.used_bytes()));
                    while change(Some(&[7; 8])).is_ok() {
                        // It finds no room for another segment.
                        drop(engine.step());
                    }
                    Some(slices)
                }
                Some(to_go) => Some(to_go - i32::from(now.moved_bytes > moved)),
                None => None,
            };
            moved = now.moved_bytes;
            if to_go == Some(0) { Err(Error::invalid("enough")) } else { Ok(()) }
        });
        assert_eq!(stopped.unwrap_err().message(), "enough", "{slices} slices");
        change(None).unwrap_or_else(|error| panic!("{slices} slices: {error}"));
    }
}

/// A transaction that is older than the recent commits is validated by its values. A big value that was moved
/// is the same, and one that was replaced by another of its length is not.
#[test]
fn a_big_value_that_was_moved_is_no_conflict_and_one_that_was_replaced_is() {
    for is_replaced in [false, true] {
        let (engine, tree) = filled(&MemDisk::new(7), options(), &(0..3000).collect::<Vec<_>>());
        let left = thin_out(&engine, tree, 3000, 7);
        let big: Vec<u32> = left.iter().copied().filter(|row| row % 50 == 7).collect();
        assert!(big.len() > 3, "{big:?}");
        let mut tx = engine.begin().unwrap();
        for row in &big {
            assert_eq!(tx.get(tree, &key(*row)).unwrap().unwrap(), value(*row));
        }
        engine.compact(&mut |_| Ok(())).unwrap();
        if is_replaced {
            let mut other = value(big[1]);
            *other.last_mut().unwrap() ^= 1;
            engine.transact(Durability::Process, |tx| tx.put(tree, &key(big[1]), &other)).unwrap();
        }
        // More than is kept of recent commits.
        for row in 10_000..10_400 {
            engine.transact(Durability::Process, |tx| tx.put(tree, &key(row), b"12345678")).unwrap();
        }
        tx.put(tree, b"after", b"12345678").unwrap();
        let compared = engine.stats().commit.compared;
        let committed = tx.commit(Durability::Disk);
        assert!(engine.stats().commit.compared > compared, "the roots were compared");
        match committed {
            Ok(_) => assert!(!is_replaced),
            Err(error) => assert!(is_replaced && error.code() == Code::WriteConflict, "{error}"),
        }
    }
}

const LARGE_BYTES: usize = 40_000;

fn small_or_large(row: u32) -> Vec<u8> {
    vec![row.to_le_bytes()[0]; if row < 200 { 3000 } else { LARGE_BYTES }]
}

fn is_left(row: &u32) -> bool {
    *row >= 200 || row.is_multiple_of(2)
}

/// Six values that are larger than a slice, of one leaf, behind holes of which each is too small for them.
fn large_values_behind_small_holes(disk: &MemDisk) -> (Engine, TreeId) {
    let mut options = small_slices(512);
    options.geometry.big_value_extent_bytes = LARGE_BYTES;
    let engine = open(disk, options);
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    for row in 0..206 {
        engine.transact(Durability::Process, |tx| tx.put(tree, &key(row), &small_or_large(row))).unwrap();
    }
    engine.checkpoint().unwrap();
    let delete = |tx: &mut Transaction| {
        (0..206).filter(|row| !is_left(row)).try_for_each(|row| tx.delete(tree, &key(row)).map(drop))
    };
    engine.transact(Durability::Process, delete).unwrap();
    (engine, tree)
}

fn holds_small_and_large(engine: &Engine, tree: TreeId) {
    for row in (0..206).filter(is_left) {
        assert!(engine.get(tree, &key(row)).unwrap().unwrap() == small_or_large(row), "row {row}");
    }
}

/// Values that find no better place are left where they are, and the walk goes on with the next one.
#[test]
fn values_that_find_no_better_place_do_not_hold_it_up() {
    let (engine, tree) = large_values_behind_small_holes(&MemDisk::new(8));
    let mut calls = 0;
    let compacted = engine.compact(&mut |_| {
        calls += 1;
        if calls > 2000 { Err(Error::invalid("it does not end")) } else { Ok(()) }
    });
    compacted.unwrap();
    holds_small_and_large(&engine, tree);
}

/// A value that finds no room on a full disk counts as one that was tried. With gigabytes of such values a
/// step would take minutes, and a close waits for it.
#[test]
fn values_without_room_on_a_full_disk_take_a_step_each() {
    const HUGE_BYTES: usize = 3 << 20;
    let disk = MemDisk::new(9);
    let mut options = small_slices(512);
    options.geometry.big_value_extent_bytes = LARGE_BYTES;
    let engine = open(&disk, options);
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    for row in 0..12_006 {
        let value = vec![1; if row < 12_000 { 3000 } else { HUGE_BYTES }];
        engine.transact(Durability::Disk, |tx| tx.put(tree, &key(row), &value)).unwrap();
    }
    for row in (0..12_000).step_by(2) {
        engine.transact(Durability::Process, |tx| tx.delete(tree, &key(row)).map(drop)).unwrap();
    }
    engine.checkpoint().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let (mut last, mut steps) = (0, 0);
    let report = engine.compact(&mut |now| {
        // The leaves are moved before the huge values of the last one are tried, in several rounds.
        steps = if now.moved_bytes == last { steps + 1 } else { 0 };
        last = now.moved_bytes;
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.moved_bytes > 0 && report.moved_bytes < HUGE_BYTES as u64, "{report:?}");
    // It is 26 where one step tries all of them.
    assert!(steps > 30, "{steps} steps");
}
