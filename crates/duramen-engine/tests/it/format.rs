//! Databases of other releases (D9): refused with an error, or opened read-only, as their version and flags
//! demand.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk, MemDisk};
use duramen_engine::data_file::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS};
use duramen_engine::{Code, Durability, Engine, Hooks, Options, Result};
use xxhash_rust::xxh3::xxh3_128;

use crate::basics::{open, tiny};

const FORMAT_AT: usize = 8;
const COMPATIBLE_AT: usize = 12;
const READ_ONLY_COMPATIBLE_AT: usize = 20;
const INCOMPATIBLE_AT: usize = 28;
const GENERATION_AT: usize = 68;

/// A closed database with one row.
fn database() -> MemDisk {
    let disk = MemDisk::new(4);
    let engine = open(&disk, tiny());
    engine
        .transact(Durability::Disk, |tx| {
            let tree = tx.create_tree("rows", None)?;
            tx.put(tree, b"key", b"value")
        })
        .unwrap();
    engine.close().unwrap();
    disk
}

/// The offsets of the superblocks, the newer first.
fn superblocks(disk: &MemDisk) -> [u64; 2] {
    let generation = |offset: u64| {
        let mut bytes = [0; 8];
        let file = disk.open(Path::new("/db/data"), Access::READ).unwrap();
        file.read_at(&mut bytes, offset + GENERATION_AT as u64).unwrap();
        u64::from_le_bytes(bytes)
    };
    let [a, b] = SUPERBLOCK_OFFSETS;
    if generation(a) > generation(b) { [a, b] } else { [b, a] }
}

/// Changes a byte of a superblock, and updates its checksum.
fn patch(disk: &MemDisk, offset: u64, at: usize, byte: u8) {
    let file = disk.open(Path::new("/db/data"), Access::WRITE).unwrap();
    let mut bytes = [0; SUPERBLOCK_BYTES];
    file.read_at(&mut bytes, offset).unwrap();
    bytes[at] = byte;
    let checksum = xxh3_128(&bytes[..SUPERBLOCK_BYTES - 16]).to_le_bytes();
    bytes[SUPERBLOCK_BYTES - 16..].copy_from_slice(&checksum);
    file.write_at(&bytes, offset).unwrap();
}

fn try_open(disk: &MemDisk, read_only: bool) -> Result<Engine> {
    let options = Options { read_only, ..tiny() };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default())
}

fn value(engine: &Engine) -> Option<Vec<u8>> {
    let snapshot = engine.snapshot().unwrap();
    let tree = snapshot.tree("rows").unwrap().unwrap();
    snapshot.get(tree, b"key").unwrap()
}

/// In the newer or in the older superblock: what a later release left in this format is an older state.
#[test]
fn another_format_or_feature_in_either_superblock_is_refused_with_a_sentence() {
    for (at, byte, words) in [
        (FORMAT_AT, 2, "has format 2, this build reads format 1"),
        (FORMAT_AT, 0, "has format 0, a draft"),
        (INCOMPATIBLE_AT, 128, "needs features"),
    ] {
        for which in [0, 1] {
            let disk = database();
            patch(&disk, superblocks(&disk)[which], at, byte);
            for read_only in [false, true] {
                let error = try_open(&disk, read_only).unwrap_err();
                assert_eq!(error.code(), Code::Unsupported, "{error}");
                assert!(error.message().contains(words), "{error}");
                assert!(error.hint().contains("release"), "{error}");
            }
        }
    }
}

#[test]
fn a_feature_that_writers_must_know_leaves_the_database_readable() {
    let disk = database();
    // A node of a cluster, and a feature of a later release.
    for (bit, code, word) in [(1, Code::IsReplica, "cluster"), (2, Code::Unsupported, "write")] {
        patch(&disk, superblocks(&disk)[0], READ_ONLY_COMPATIBLE_AT, bit);
        let error = try_open(&disk, false).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(word), "{error}");
    }
    assert_eq!(value(&try_open(&disk, true).unwrap()).as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_compatible_feature_is_taken_away_by_a_writer_that_does_not_know_it() {
    let disk = database();
    let newest = superblocks(&disk)[0];
    patch(&disk, newest, COMPATIBLE_AT, 1);
    let engine = try_open(&disk, false).unwrap();
    assert_eq!(value(&engine).as_deref(), Some(&b"value"[..]));
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    engine.close().unwrap();
    let file = disk.open(Path::new("/db/data"), Access::READ).unwrap();
    for offset in SUPERBLOCK_OFFSETS {
        let mut flags = [1; 8];
        file.read_at(&mut flags, offset + COMPATIBLE_AT as u64).unwrap();
        assert_eq!(flags, [0; 8]);
    }
}

#[test]
fn a_data_file_cut_short_is_told_at_once() {
    let disk = database();
    let file = disk.open(Path::new("/db/data"), Access::WRITE).unwrap();
    file.set_len(33_000).unwrap();
    let error = try_open(&disk, true).unwrap_err();
    assert!(error.is_corruption() && error.message().contains("cut short"), "{error}");
}

/// D4: a data file without a header is corruption, not a new database, if its log holds commits.
#[test]
fn a_data_file_that_is_none_beside_a_log_with_commits_is_corruption() {
    for (len, first) in [(0, 0), (1, 0), (60_000, 0xa5)] {
        let disk = database();
        let file = disk.open(Path::new("/db/data"), Access::WRITE).unwrap();
        file.set_len(len).unwrap();
        file.write_at(&vec![first; usize::try_from(len).unwrap().min(32 * 1024)], 0).unwrap();
        for read_only in [false, true] {
            let error = try_open(&disk, read_only).unwrap_err();
            assert!(error.is_corruption() && error.message().contains("a log with commits"), "{error}");
            assert!(error.hint().contains("backup"), "{error}");
        }
    }
}

fn corrupt_one(disk: &MemDisk, superblock: u64) {
    let file = disk.open(Path::new("/db/data"), Access::WRITE).unwrap();
    file.write_at(&[0xa5; 16], superblock + 100).unwrap();
}

/// D3: an opening for writing replaces it. Left there and misread only once, it might be trusted later.
#[test]
fn a_corrupt_superblock_is_reported_to_readers_and_written_anew_by_an_opening() {
    for which in [0, 1] {
        let disk = database();
        corrupt_one(&disk, superblocks(&disk)[which]);
        let engine = try_open(&disk, true).unwrap();
        assert_eq!(value(&engine).as_deref(), Some(&b"value"[..]));
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.superblocks == 1, "{report:?}");
        drop(engine);
        let engine = try_open(&disk, false).unwrap();
        assert_eq!(value(&engine).as_deref(), Some(&b"value"[..]));
        assert_eq!(engine.check().unwrap().superblocks, 2);
        engine.checkpoint().unwrap();
        assert_eq!(engine.check().unwrap().superblocks, 2);
        corrupt_one(&disk, superblocks(&disk)[0]);
        let report = engine.check().unwrap();
        assert!(report.problems[0].contains("the newest superblock"), "{report:?}");
    }
}
