//! Compressed pages in a database: less room, and a feature that builds without the codec refuse.

use std::path::Path;

use duramen_disk::MemDisk;
use duramen_engine::{Durability, Engine, GiveBack, KeyRange, Options, Transaction, TreeId};

use crate::basics::open;

/// Where the incompatible features of both superblocks lie.
const FEATURES_AT: [usize; 2] = [28, 16384 + 28];

const ROWS: u32 = 3000;

fn options(compress: bool) -> Options {
    Options { compress, ..Options::default() }
}

fn key(row: u32) -> Vec<u8> {
    format!("key {row:06}").into_bytes()
}

fn value(row: u32) -> Vec<u8> {
    format!("a value of row {row}, in the words that the others have, too").into_bytes()
}

fn tree(engine: &Engine) -> TreeId {
    let tree = engine.transact(Durability::Disk, |tx| match tx.tree("rows")? {
        Some(tree) => Ok(tree),
        None => tx.create_tree("rows", None),
    });
    tree.unwrap().0
}

fn fill(engine: &Engine, rows: std::ops::Range<u32>) {
    let tree = tree(engine);
    engine
        .transact(Durability::Disk, |tx| {
            rows.clone().try_for_each(|row| tx.put(tree, &key(row), &value(row)))
        })
        .unwrap();
}

fn holds(engine: &Engine, rows: u32) {
    let tree = tree(engine);
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.count(tree, &KeyRange::all()).unwrap(), u64::from(rows));
    for row in (0..rows).step_by(7) {
        assert_eq!(snapshot.get(tree, &key(row)).unwrap(), Some(value(row)), "row {row}");
    }
    drop(snapshot);
    let check = engine.check().unwrap();
    assert!(check.is_clean() && check.unreached.is_empty(), "{check:?}");
}

fn data(disk: &MemDisk) -> Vec<u8> {
    disk.read_file(Path::new("/db/data")).unwrap()
}

fn features(disk: &MemDisk) -> [u8; 2] {
    let data = data(disk);
    FEATURES_AT.map(|at| data[at])
}

#[test]
fn compressed_pages_take_a_part_of_the_room() {
    let used = [true, false].map(|compress| {
        let disk = MemDisk::new(1);
        let engine = open(&disk, options(compress));
        fill(&engine, 0..ROWS);
        engine.checkpoint().unwrap();
        holds(&engine, ROWS);
        engine.close().unwrap();
        let used = engine.stats().space.used_blocks;
        drop(engine);
        assert_eq!(features(&disk), [if compress { 2 } else { 0 }; 2]);
        let engine = open(&disk, options(!compress));
        holds(&engine, ROWS);
        used
    });
    assert!(used[0] < used[1] * 2 / 3, "{used:?} blocks");
}

/// D9: an earlier build must not open a database with a page that it cannot read, however long ago that page
/// was written.
#[test]
fn the_feature_stays_with_the_pages() {
    let disk = MemDisk::new(2);
    let engine = open(&disk, options(true));
    fill(&engine, 0..ROWS);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, options(false));
    fill(&engine, ROWS..ROWS + 10);
    engine.close().unwrap();
    drop(engine);
    assert_eq!(features(&disk), [2, 2]);
    holds(&open(&disk, options(true)), ROWS + 10);
}

/// A leaf that takes one block saves none when it is compressed. Entries of several such leaves in one may.
#[test]
fn leaves_that_deletes_left_small_are_packed_where_they_compress() {
    let disk = MemDisk::new(3);
    // Larger groups than tests have else: what is packed are neighbours of one group.
    let engine = open(&disk, Options { give_back: GiveBack::SHIPPED, ..options(true) });
    fill(&engine, 0..40 * ROWS);
    engine.checkpoint().unwrap();
    let tree = tree(&engine);
    for part in 1..4 {
        let gone = (0..40 * ROWS).filter(|row| row % 4 == part);
        let delete =
            |tx: &mut Transaction| gone.clone().try_for_each(|row| tx.delete(tree, &key(row)).map(drop));
        engine.transact(Durability::Disk, delete).unwrap();
    }
    (0..3).for_each(|_| engine.checkpoint().unwrap());
    let used = || engine.stats().space.used_blocks - engine.stats().space.waiting_blocks;
    let before = used();
    engine.compact(&mut |_| Ok(())).unwrap();
    let after = used();
    eprintln!("{before} {after}");
    assert!(after < before * 2 / 3, "{before} blocks, {after} after a compaction");
    let again = engine.compact(&mut |_| Ok(())).unwrap();
    assert_eq!(again.moved_bytes, 0, "packed leaves are left alone");
}

/// An earlier build can read the copy of a database that it can read.
#[test]
fn a_copy_compresses_as_its_database_does() {
    for compress in [true, false] {
        let disk = MemDisk::new(4);
        let engine = open(&disk, options(compress));
        fill(&engine, 0..ROWS);
        engine.copy_to(Path::new("/copy"), &|_, value| value, &mut |_| Ok(())).unwrap();
        let copy = disk.read_file(Path::new("/copy/data")).unwrap();
        assert_eq!(FEATURES_AT.map(|at| copy[at]), [if compress { 2 } else { 0 }; 2]);
    }
}
