//! Patches: what changes in a leaf is written with the node above it, and merged into the leaf later.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, FaultPlan};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{
    Builtin, Code, Direction, Durability, Engine, Event, EventHook, Geometry, GiveBack, Hooks, Keep,
    KeyRange, Options, Transaction, TreeId,
};

use crate::basics::{open, tiny};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where the incompatible features of both superblocks lie.
const FEATURES_AT: [usize; 2] = [28, 16384 + 28];

const PATCHES: u8 = 4;

/// Leaves of some hundred rows, and memory for a part of them.
fn options() -> Options {
    let geometry = Geometry { leaf_bytes_max: 8192, inner_bytes_max: 1024, ..tiny().geometry };
    let checkpoint_log_bytes = Some(4 << 20);
    let give_back = GiveBack::SMALL;
    Options { geometry, memory_bytes: 512 * 1024, compress: false, checkpoint_log_bytes, give_back, ..tiny() }
}

/// With a background of its own, and memory for less than half of 120,000 rows.
fn open_beside_background() -> Engine {
    let background = duramen_engine::Background::Threads;
    open(&MemDisk::new(4), Options { memory_bytes: 4 << 20, background, ..options() })
}

fn key(row: u32) -> Vec<u8> {
    row.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
}

fn value(row: u32, version: u32) -> Vec<u8> {
    let mut value = i64::from(row + version).to_le_bytes().to_vec();
    value.extend([u8::try_from(version % 251).unwrap(); 24]);
    value
}

fn create(engine: &Engine) -> TreeId {
    engine.transact(Durability::Disk, |tx| tx.create_tree("rows", Some(Builtin::Sum.spec()))).unwrap().0
}

/// Puts rows with a version, `some` in a transaction, with the background's work in between.
fn put(engine: &Engine, tree: TreeId, rows: &[u32], version: u32, model: &mut Model) {
    for some in rows.chunks(25) {
        let put = |tx: &mut Transaction| {
            some.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row, version)))
        };
        engine.transact(Durability::Disk, put).unwrap();
        model.extend(some.iter().map(|row| (key(*row), value(*row, version))));
        engine.step().unwrap();
    }
}

/// Puts rows with values of some 230 bytes in one transaction.
fn put_wide(engine: &Engine, tree: TreeId, rows: &[u32], version: u32, model: &mut Model) {
    let wide = |row: u32| [value(row, version), vec![7; 200]].concat();
    let put = |tx: &mut Transaction| rows.iter().try_for_each(|row| tx.put(tree, &key(*row), &wide(*row)));
    engine.transact(Durability::Disk, put).unwrap();
    model.extend(rows.iter().map(|row| (key(*row), wide(*row))));
}

/// As [`put_wide`], 50 rows in a transaction, with the background's work in between.
fn put_wide_in_steps(engine: &Engine, tree: TreeId, rows: &[u32], version: u32, model: &mut Model) {
    for some in rows.chunks(50) {
        put_wide(engine, tree, some, version, model);
        engine.step().unwrap();
    }
}

/// Rows in the order of their keys.
fn sorted_rows(count: u32) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..count).collect();
    rows.sort_unstable_by_key(|row| key(*row));
    rows
}

fn delete(engine: &Engine, tree: TreeId, rows: &[u32], model: &mut Model) {
    for some in rows.chunks(25) {
        let delete = |tx: &mut Transaction| some.iter().try_for_each(|row| tx.delete(tree, &key(*row)));
        engine.transact(Durability::Disk, delete).unwrap();
        some.iter().for_each(|row| drop(model.remove(&key(*row))));
        engine.step().unwrap();
    }
}

fn holds(engine: &Engine, tree: TreeId, model: &Model) {
    let snapshot = engine.snapshot().unwrap();
    holds_in(&snapshot, tree, model);
    drop(snapshot);
    let check = engine.check().unwrap();
    assert!(check.is_clean() && check.unreached.is_empty(), "{check:?}");
}

fn holds_in(snapshot: &duramen_engine::Snapshot, tree: TreeId, model: &Model) {
    let mut rows = snapshot.rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let mut expected = model.iter();
    while let Some(row) = rows.next().unwrap() {
        let (key, value) = expected.next().unwrap();
        assert_eq!((row.key(), &*row.value().unwrap()), (&**key, &**value));
    }
    assert_eq!(expected.next(), None);
    let of = |value: &Vec<u8>| i128::from(i64::from_le_bytes(value[..8].try_into().unwrap()));
    for from in model.keys().step_by(model.len() / 7 + 1) {
        let range = KeyRange { from: from.clone(), to: None };
        let rest = || model.range(from.clone()..);
        assert_eq!(snapshot.count(tree, &range).unwrap(), rest().count() as u64);
        let sum = snapshot.reduce(tree, &range).unwrap().value.unwrap();
        assert_eq!(i128::from_le_bytes(sum.try_into().unwrap()), rest().map(|(_, value)| of(value)).sum());
    }
}

fn features(disk: &MemDisk) -> [u8; 2] {
    let data = disk.read_file(Path::new("/db/data")).unwrap();
    FEATURES_AT.map(|at| data[at] & PATCHES)
}

/// Counts the bytes that checkpoints and merges write.
fn open_counting(disk: &MemDisk, options: Options) -> (Engine, Arc<AtomicU64>) {
    let bytes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&bytes);
    let on_event: EventHook = Arc::new(move |event: &Event| {
        if let Event::Checkpoint { written_bytes, .. } = event {
            count.fetch_add(*written_bytes, Ordering::Relaxed);
        }
    });
    let hooks = Hooks { on_event: Some(on_event), ..Hooks::default() };
    (Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, hooks).unwrap(), bytes)
}

/// The same random changes with and without patches: the same rows, and checkpoints write less with them.
#[test]
fn random_changes_equal_a_model_with_little_memory() {
    let mut writes = Vec::new();
    for patches in [true, false] {
        let disk = MemDisk::new(1);
        let (engine, bytes) = open_counting(&disk, Options { patches, ..options() });
        let (tree, mut model) = (create(&engine), Model::new());
        put(&engine, tree, &(0..20_000).collect::<Vec<_>>(), 0, &mut model);
        holds(&engine, tree, &model);
        for version in 1..4 {
            put(
                &engine,
                tree,
                &(0..20_000).filter(|row| row % 3 == version % 3).collect::<Vec<_>>(),
                version,
                &mut model,
            );
            let gone: Vec<u32> = (0..20_000).filter(|row| row % 17 == version).collect();
            delete(&engine, tree, &gone, &mut model);
            holds(&engine, tree, &model);
        }
        let stats = engine.stats();
        assert_eq!(stats.patch_bytes > 0, patches);
        assert_eq!(stats.leaves_merged > 100, patches, "{stats:?}");
        // A merged leaf takes about a leaf.
        let leaf_bytes = options().geometry.leaf_bytes_max as u64;
        writes.push(bytes.load(Ordering::Relaxed) + stats.leaves_merged * leaf_bytes);
        engine.close().unwrap();
        drop(engine);
        assert_eq!(features(&disk), [if patches { PATCHES } else { 0 }; 2]);
        // What is there is read either way, and stays so.
        let engine = open(&disk, Options { patches: !patches, ..options() });
        holds(&engine, tree, &model);
        put(&engine, tree, &(0..1000).collect::<Vec<_>>(), 9, &mut model);
        engine.checkpoint().unwrap();
        holds(&engine, tree, &model);
        engine.close().unwrap();
        assert_eq!(features(&disk), [PATCHES; 2]);
        drop(engine);
        let reader = open(&disk, Options { read_only: true, ..options() });
        holds_in(&reader.snapshot().unwrap(), tree, &model);
    }
    assert!(writes[0] < writes[1] * 2 / 3, "bytes written with patches and without: {writes:?}");
}

/// D3: a page that a patch still needs is used by every snapshot since it was made, whenever the patch was.
#[test]
fn snapshots_keep_the_pages_under_patches() {
    let disk = MemDisk::new(2);
    let engine = open(&disk, options());
    let (tree, mut model) = (create(&engine), Model::new());
    put(&engine, tree, &(0..20_000).collect::<Vec<_>>(), 0, &mut model);
    engine.checkpoint().unwrap();
    let mut held = vec![(engine.snapshot().unwrap(), model.clone())];
    for version in 1..5 {
        put(&engine, tree, &(0..20_000).step_by(4).collect::<Vec<_>>(), version, &mut model);
        held.push((engine.snapshot().unwrap(), model.clone()));
        put(&engine, tree, &(0..20_000).filter(|row| row % 4 == 2).collect::<Vec<_>>(), version, &mut model);
        (0..3).for_each(|_| engine.checkpoint().unwrap());
    }
    assert!(engine.stats().leaves_merged > 0);
    for (snapshot, model) in &held {
        holds_in(snapshot, tree, model);
    }
    drop(held);
    holds(&engine, tree, &model);
}

/// As above, of a leaf that stays in memory from its patch until it is built anew.
#[test]
fn a_snapshot_keeps_the_page_under_a_patch_that_came_after_it() {
    let disk = MemDisk::new(8);
    let engine = open(&disk, options());
    let (tree, mut model) = (create(&engine), Model::new());
    put(&engine, tree, &(0..400).collect::<Vec<_>>(), 0, &mut model);
    engine.checkpoint().unwrap();
    let (snapshot, held) = (engine.snapshot().unwrap(), model.clone());
    put(&engine, tree, &(0..400).step_by(40).collect::<Vec<_>>(), 1, &mut model);
    let rows: Vec<u32> = (0..400).collect();
    let put_all =
        |tx: &mut Transaction| rows.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row, 2)));
    engine.transact(Durability::Disk, put_all).unwrap();
    model.extend(rows.iter().map(|row| (key(*row), value(*row, 2))));
    (0..3).for_each(|_| engine.checkpoint().unwrap());
    // What was freed is used again, and what the snapshot has leaves memory.
    let (other, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("other", None)).unwrap();
    put(&engine, other, &(0..20_000).collect::<Vec<_>>(), 3, &mut Model::new());
    (0..3).for_each(|_| engine.checkpoint().unwrap());
    holds_in(&snapshot, tree, &held);
    drop(snapshot);
    holds(&engine, tree, &model);
}

/// No node is above a root that is a leaf: it is written whole.
#[test]
fn a_tree_of_one_leaf_has_no_patch() {
    let disk = MemDisk::new(3);
    let engine = open(&disk, options());
    let (tree, mut model) = (create(&engine), Model::new());
    put(&engine, tree, &[1, 2, 3], 0, &mut model);
    engine.checkpoint().unwrap();
    put(&engine, tree, &[2], 1, &mut model);
    engine.checkpoint().unwrap();
    assert_eq!((engine.stats().patch_bytes, features(&disk)), (0, [0; 2]));
    // A tree that shrinks to one leaf has none either.
    put(&engine, tree, &(0..600).collect::<Vec<_>>(), 2, &mut model);
    engine.checkpoint().unwrap();
    put(&engine, tree, &(0..600).step_by(97).collect::<Vec<_>>(), 3, &mut model);
    engine.checkpoint().unwrap();
    assert!(engine.stats().patch_bytes > 0);
    // All but the first leaf in one transaction: what is left of the tree is a leaf with a patch.
    let gone: Vec<Vec<u8>> = model.keys().skip(130).cloned().collect();
    engine.transact(Durability::Disk, |tx| gone.iter().try_for_each(|key| tx.delete(tree, key))).unwrap();
    model.retain(|key, _| !gone.contains(key));
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().patch_bytes, 0);
    holds(&engine, tree, &model);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, options());
    holds(&engine, tree, &model);
}

/// Two threads write to the same leaves, most of which are not in memory: what one built before the order
/// lock does not replace what the other has committed.
#[test]
fn leaves_built_before_the_lock_lose_no_commit() {
    let engine = open_beside_background();
    let (tree, mut model) = (create(&engine), Model::new());
    let rows: Vec<u32> = (0..120_000).collect();
    for some in rows.chunks(2000) {
        let put =
            |tx: &mut Transaction| some.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row, 0)));
        engine.transact(Durability::Process, put).unwrap();
    }
    std::thread::scope(|scope| {
        for writer in 0..2u32 {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..24 {
                    let mine = (0..120_000).filter(|row| row % 2 == writer && row / 2 % 24 == round);
                    let put = |tx: &mut Transaction| {
                        mine.clone().try_for_each(|row| tx.put(tree, &key(row), &value(row, 1 + round)))
                    };
                    engine.transact(Durability::Process, put).unwrap();
                }
            });
        }
    });
    for row in rows {
        model.insert(key(row), value(row, 1 + row / 2 % 24));
    }
    holds(&engine, tree, &model);
}

/// A transaction that fits into memory once patches are merged is not refused for the patches that earlier
/// ones have made: it waits for the merge.
#[test]
fn a_transaction_is_not_refused_for_the_patches_of_others() {
    let engine = open_beside_background();
    let (tree, mut model) = (create(&engine), Model::new());
    let rows: Vec<u32> = (0..120_000).collect();
    let mut commit = |rows: &[u32], version: u32| {
        let put = |tx: &mut Transaction| {
            rows.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row, version)))
        };
        engine.transact(Durability::Process, put).unwrap();
        model.extend(rows.iter().map(|row| (key(*row), value(*row, version))));
    };
    let every =
        |step: usize, from: usize| rows.iter().copied().skip(from).step_by(step).collect::<Vec<u32>>();
    rows.chunks(2000).for_each(|some| commit(some, 0));
    (0..12).for_each(|from| commit(&every(48, from), 1));
    (0..20).for_each(|from| commit(&every(20, from), 2));
    holds(&engine, tree, &model);
}

/// Commits of many rows are shared among threads, where there is more than one processor: beside each other
/// they lose no row, and one that is dropped changes nothing.
#[test]
fn commits_that_threads_share_are_whole() {
    let disk = MemDisk::new(10);
    let background = duramen_engine::Background::Threads;
    let options = Options { memory_bytes: 16 << 20, background, give_back: GiveBack::SMALL, ..tiny() };
    let engine = open(&disk, options);
    let (tree, mut model) = (create(&engine), Model::new());
    let put_all = |rows: &[u32], version: u32| {
        let put = |tx: &mut Transaction| {
            rows.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row, version)))
        };
        engine.transact(Durability::Disk, put).map(drop)
    };
    let all: Vec<u32> = (0..8000).collect();
    all.chunks(1000).for_each(|rows| put_all(rows, 0).unwrap());
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (put_all, all) = (&put_all, &all);
            scope.spawn(move || {
                for version in 1..7 {
                    let mine: Vec<u32> = all.iter().copied().filter(|row| row % 2 == writer).collect();
                    mine.chunks(1000).for_each(|rows| put_all(rows, version).unwrap());
                }
            });
        }
    });
    model.extend(all.iter().map(|row| (key(*row), value(*row, 6))));
    holds(&engine, tree, &model);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal").for_good());
    let dropped = engine.transact(Durability::Disk, |tx| {
        all.iter().step_by(3).try_for_each(|row| tx.put(tree, &key(*row), &value(*row, 9)))?;
        all.iter().skip(1).step_by(3).try_for_each(|row| tx.delete(tree, &key(*row)))
    });
    assert_eq!(dropped.unwrap_err().code(), Code::DiskFull);
    disk.set_faults(FaultPlan::none());
    holds(&engine, tree, &model);
    engine.close().unwrap();
}

/// D7: a group without room in the log is dropped. What its commits had replaced counts again.
#[test]
fn dropped_commits_leave_the_room_for_patches_as_it_was() {
    let disk = MemDisk::new(5);
    let engine = open(&disk, options());
    let (tree, mut model) = (create(&engine), Model::new());
    put(&engine, tree, &(0..5000).collect::<Vec<_>>(), 0, &mut model);
    engine.checkpoint().unwrap();
    put(&engine, tree, &(0..5000).step_by(50).collect::<Vec<_>>(), 1, &mut model);
    let before = engine.stats().patch_bytes;
    assert!(before > 0);
    disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
    let mut transaction = engine.begin().unwrap();
    (0..5000).step_by(40).for_each(|row| transaction.put(tree, &key(row), &value(row, 2)).unwrap());
    assert_eq!(transaction.commit(Durability::Disk).unwrap_err().code(), Code::DiskFull);
    assert_eq!(engine.stats().patch_bytes, before);
    holds(&engine, tree, &model);
}

/// Any one corrupt page: a repaired tree has no entry that is older than the checkpoint, and the entries of
/// patches are there where their page is not.
#[test]
fn a_repair_never_brings_an_older_entry_back() {
    let disk = MemDisk::new(6);
    let engine = open(&disk, options());
    let (tree, mut model) = (create(&engine), Model::new());
    put(&engine, tree, &(0..3000).collect::<Vec<_>>(), 0, &mut model);
    engine.checkpoint().unwrap();
    put(&engine, tree, &(0..3000).step_by(40).collect::<Vec<_>>(), 1, &mut model);
    delete(&engine, tree, &(5..3000).step_by(90).collect::<Vec<_>>(), &mut model);
    engine.close().unwrap();
    assert_eq!(features(&disk), [PATCHES; 2]);
    drop(engine);
    let blocks = disk.read_file("/db/data").unwrap().len() / options().geometry.block_bytes;
    let (mut uncertain, mut salvaged) = (0, 0);
    for block in 64..blocks {
        let corrupt = disk.deep_clone();
        corrupt.flip_bit("/db/data", (block * 512 + 99) as u64, 2).unwrap();
        let on: Arc<dyn Disk> = Arc::new(corrupt.clone());
        let (from, to) = (Path::new("/db"), Path::new("/new"));
        let keep = &|_: &str| Keep::Entries;
        let options = Options { memory_bytes: 4 << 20, ..options() };
        let repaired = Engine::repair(&on, from, to, &options, Hooks::default(), keep, &mut |_| Ok(()));
        let Ok((new, repair)) = repaired else { continue };
        uncertain += repair.found.uncertain.len();
        let snapshot = new.snapshot().unwrap();
        let Some(tree) = snapshot.tree("rows").unwrap() else { continue };
        let mut rows = snapshot.rows(tree, KeyRange::all(), Direction::Forward).unwrap();
        let (mut found, mut changed) = (0, 0);
        while let Some(row) = rows.next().unwrap() {
            let value = row.value().unwrap();
            assert_eq!(model.get(row.key()).map(|value| &**value), Some(&*value), "block {block}");
            found += 1;
            changed += usize::from(value[8] == 1);
        }
        let all = (0..3000).step_by(40).count();
        salvaged += usize::from(found + 20 < model.len() && changed == all);
    }
    assert!(uncertain > 3, "{uncertain} trees of uncertain entries");
    assert!(salvaged > 3, "{salvaged} times leaves were lost, and all of their patches were there");
}

/// Patches that fill the memory are merged, without a checkpoint for it. What waits for one is bounded.
#[test]
fn patches_that_fill_the_memory_begin_no_checkpoint() {
    let disk = MemDisk::new(8);
    let give_back = GiveBack { kept_patch_percent: 75, ..GiveBack::SMALL };
    let options =
        Options { checkpoint_log_bytes: Some(1 << 30), memory_bytes: 4 << 20, give_back, ..options() };
    let engine = open(&disk, options.clone());
    let (tree, mut model) = (create(&engine), Model::new());
    put_wide_in_steps(&engine, tree, &sorted_rows(40_000), 0, &mut model);
    engine.checkpoint().unwrap();
    let before = engine.stats();
    (1..4).for_each(|version| {
        let rows: Vec<u32> = (version..40_000).step_by(3).collect();
        put_wide_in_steps(&engine, tree, &rows, version, &mut model);
    });
    let stats = engine.stats();
    let merged = stats.leaves_merged - before.leaves_merged;
    let checkpoints = stats.checkpoints - before.checkpoints;
    // Were patches merged before checkpoints alone, these would be some 110.
    assert!(merged > 130 * checkpoints, "{merged} leaves were merged, with {checkpoints} checkpoints");
    assert!(stats.resident_bytes < options.memory_bytes as u64, "{stats:?}");
    assert!(stats.space.waiting_blocks < stats.space.file_blocks / 2, "{stats:?}");
    holds(&engine, tree, &model);
    // A power cut: what was merged since the checkpoint is not there, and all changes are.
    let left = disk.crash(&CrashChoice::None);
    drop(engine);
    let engine = open(&left, options);
    holds(&engine, tree, &model);
}

/// D7: a merge whose group has no room in the log is dropped. The patches are there again, and the pages of
/// merged leaves are free.
#[test]
fn a_merge_that_is_dropped_changes_nothing() {
    let give_back = GiveBack { kept_patch_percent: 20, ..GiveBack::SMALL };
    let options =
        Options { checkpoint_log_bytes: Some(1 << 30), memory_bytes: 4 << 20, give_back, ..options() };
    // Returns how many leaves were merged, and how many writes to the log failed.
    let merge = |fault: FaultPlan| {
        let disk = MemDisk::new(9);
        let engine = open(&disk, options.clone());
        let (tree, mut model) = (create(&engine), Model::new());
        put_wide_in_steps(&engine, tree, &sorted_rows(40_000), 0, &mut model);
        engine.checkpoint().unwrap();
        let changed: Vec<u32> = (0..40_000).step_by(7).collect();
        changed.chunks(50).for_each(|some| put_wide(&engine, tree, some, 1, &mut model));
        let before = engine.stats().leaves_merged;
        disk.set_faults(fault);
        // What cannot be merged is written as it is.
        engine.checkpoint().unwrap();
        let merged = (engine.stats().leaves_merged - before, disk.fault_hit_count());
        disk.set_faults(FaultPlan::none());
        holds(&engine, tree, &model);
        let left = disk.crash(&CrashChoice::None);
        drop(engine);
        holds(&open(&left, options.clone()), tree, &model);
        merged
    };
    let (merged, failed) = merge(FaultPlan::none());
    assert!(merged > 20 && failed == 0, "{merged} leaves are merged");
    let no_room = Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal").for_good();
    let (merged, failed) = merge(FaultPlan::none().with(no_room));
    assert!(merged == 0 && failed > 0, "{merged} leaves were merged, {failed} writes failed");
}
