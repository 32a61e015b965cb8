//! Compaction: the file becomes as short as what is left, every entry stays, other threads notice nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::{
    Background, Builtin, Code, CompactReport, Direction, Durability, Engine, Error, Hooks, KeyRange, Options,
    Reducer, ReducerSpec, Reducers, Result, Transaction, TreeId,
};

use crate::basics::{open, tiny};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Little memory, so that checkpoints come often and little room is kept for them.
pub(crate) fn options() -> Options {
    Options { memory_bytes: 256 * 1024, ..tiny() }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % end
    }
}

pub(crate) fn key(row: u32) -> Vec<u8> {
    format!("row/{row:08}").into_bytes()
}

/// Eight bytes for the sum, then some more; one in fifty lies outside of leaves.
pub(crate) fn value(row: u32) -> Vec<u8> {
    let more = if row % 50 == 7 { 1500 } else { 40 + row % 60 };
    let mut value = i64::from(row).to_le_bytes().to_vec();
    value.extend((0..more).map(|at| ((row + at) % 251) as u8));
    value
}

fn sum() -> Option<ReducerSpec> {
    Some(Builtin::Sum.spec())
}

/// A database of these rows, put in the order of their keys.
pub(crate) fn filled(disk: &MemDisk, options: Options, rows: &[u32]) -> (Engine, TreeId) {
    let engine = open(disk, options);
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", sum())).unwrap();
    put(&engine, tree, rows);
    (engine, tree)
}

fn put(engine: &Engine, tree: TreeId, rows: &[u32]) {
    for some in rows.chunks(100) {
        let put = |tx: &mut duramen_engine::Transaction| {
            some.iter().try_for_each(|row| tx.put(tree, &key(*row), &value(*row)))
        };
        engine.transact(Durability::Process, put).unwrap();
        engine.step().unwrap();
    }
}

fn delete(engine: &Engine, tree: TreeId, rows: &[u32]) {
    for some in rows.chunks(100) {
        let delete = |tx: &mut duramen_engine::Transaction| {
            some.iter().try_for_each(|row| tx.delete(tree, &key(*row)).map(|_| ()))
        };
        engine.transact(Durability::Process, delete).unwrap();
        engine.step().unwrap();
    }
}

/// Deletes nine in ten at random, and returns what is left.
pub(crate) fn thin_out(engine: &Engine, tree: TreeId, rows: u32, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let (left, gone): (Vec<u32>, Vec<u32>) = (0..rows).partition(|_| random.below(10) == 0);
    delete(engine, tree, &gone);
    left
}

fn compact(engine: &Engine) -> CompactReport {
    engine.compact(&mut |_| Ok(())).unwrap()
}

fn model(rows: &[u32]) -> Model {
    rows.iter().map(|row| (key(*row), value(*row))).collect()
}

fn holds(engine: &Engine, tree: TreeId, wanted: &Model) {
    let snapshot = engine.snapshot().unwrap();
    let found = snapshot.rows(tree, KeyRange::all(), Direction::Forward).unwrap();
    let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    let wanted_rows: Vec<_> = wanted.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert!(found == wanted_rows, "{} rows, want {}", found.len(), wanted_rows.len());
    assert_eq!(snapshot.count(tree, &KeyRange::all()).unwrap(), wanted.len() as u64);
    let report = engine.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert_eq!(report.unreached, []);
}

fn data_bytes(disk: &MemDisk) -> u64 {
    disk.read_file(Path::new("/db/data")).unwrap().len() as u64
}

/// The length of a database into which these rows were put in order.
fn fresh_bytes(options: Options, rows: &[u32]) -> u64 {
    let disk = MemDisk::new(77);
    let (engine, _) = filled(&disk, options, rows);
    engine.close().unwrap();
    drop(engine);
    data_bytes(&disk)
}

/// The promise of the command: after most was deleted, the file is about as long as a new one.
#[test]
fn a_file_is_as_short_as_what_is_left_in_it() {
    for seed in 0..6 {
        let disk = MemDisk::new(seed);
        // Packed leaves of these sizes take one block, of which compression saves none.
        let options = Options { compress: false, ..options() };
        let (engine, tree) = filled(&disk, options.clone(), &(0..6000).collect::<Vec<_>>());
        let left = thin_out(&engine, tree, 6000, seed);
        let before = data_bytes(&disk);
        let report = compact(&engine);
        holds(&engine, tree, &model(&left));
        engine.close().unwrap();
        drop(engine);
        let (after, fresh) = (data_bytes(&disk), fresh_bytes(options.clone(), &left));
        assert!(after * 10 <= fresh * 13, "seed {seed}: {before}, then {after}, new {fresh}: {report:?}");
        let engine = open(&disk, options);
        holds(&engine, tree, &model(&left));
    }
}

/// A compaction may take minutes, and other threads write meanwhile. None of their commits may conflict with
/// it, and none may be lost.
#[test]
fn commits_between_slices_neither_conflict_nor_get_lost() {
    for seed in 0..8 {
        let disk = MemDisk::new(seed);
        let (engine, tree) = filled(&disk, options(), &(0..4000).collect::<Vec<_>>());
        let mut wanted = model(&thin_out(&engine, tree, 4000, seed));
        let mut random = Random(seed);
        let mut slices = 0;
        let report = engine.compact(&mut |_| {
            slices += 1;
            let row = u32::try_from(random.below(5000)).unwrap();
            // It has read what compaction may move before the commit.
            let mut tx = engine.begin()?;
            assert_eq!(tx.get(tree, &key(row))?, wanted.get(&key(row)).cloned(), "row {row}");
            tx.reduce(tree, &KeyRange::all())?;
            if random.below(2) == 0 {
                tx.put(tree, &key(row), &value(row + 1))?;
                wanted.insert(key(row), value(row + 1));
            } else {
                tx.delete(tree, &key(row))?;
                wanted.remove(&key(row));
            }
            tx.commit(Durability::Disk)?;
            if random.below(4) == 0 {
                engine.step()?;
            }
            Ok(())
        });
        report.unwrap();
        assert!(slices > 3, "{slices} slices");
        assert_eq!(engine.stats().commit.conflicts, 0);
        holds(&engine, tree, &wanted);
    }
}

/// Compaction copies a big value before the commit that swaps the reference. A value that a transaction
/// replaced in between must not come back.
#[test]
fn transactions_that_were_open_during_a_slice_win() {
    let disk = MemDisk::new(5);
    let (engine, tree) = filled(&disk, options(), &(0..2000).collect::<Vec<_>>());
    let mut wanted = model(&thin_out(&engine, tree, 2000, 5));
    let rows: Vec<Vec<u8>> = wanted.keys().cloned().collect();
    let mut open: Vec<(Vec<u8>, Transaction)> = Vec::new();
    let mut next = 0;
    engine
        .compact(&mut |_| {
            for (key, mut tx) in open.drain(..) {
                // Read before the slice, and written after it.
                let mut longer = tx.get(tree, &key)?.unwrap();
                longer.extend([1; 400]);
                tx.put(tree, &key, &longer)?;
                tx.commit(Durability::Process)?;
                wanted.insert(key, longer);
            }
            for _ in 0..5 {
                let key = rows[next % rows.len()].clone();
                next += 1;
                let mut tx = engine.begin()?;
                tx.get(tree, &key)?;
                open.push((key, tx));
            }
            Ok(())
        })
        .unwrap();
    open.clear();
    assert_eq!(engine.stats().commit.conflicts, 0);
    holds(&engine, tree, &wanted);
}

/// Its pages stay, and it is named: without it the file would be shorter.
#[test]
fn a_snapshot_keeps_what_it_reads_and_is_named_with_its_age() {
    let disk = MemDisk::new(2);
    let rows: Vec<u32> = (0..4000).collect();
    let (engine, tree) = filled(&disk, options(), &rows);
    let snapshot = engine.snapshot().unwrap();
    let left = thin_out(&engine, tree, 4000, 2);
    disk.advance_clock(3_000_000_000);
    let reads = |when: &str| {
        let found = snapshot.rows(tree, KeyRange::all(), Direction::Forward).unwrap();
        let found: Model = found.into_iter().map(|row| row.unwrap()).collect();
        assert!(found == model(&rows), "{when}: {} rows", found.len());
    };
    let report = engine
        .compact(&mut |_| {
            reads("between slices");
            engine.step()
        })
        .unwrap();
    reads("afterwards");
    let held = report.oldest_snapshot.unwrap();
    assert_eq!(held.seq, snapshot.seq());
    assert!(held.age.unwrap().as_secs() >= 3, "{:?}", held.age);
    assert!(report.held_bytes > 0);
    drop(snapshot);
    let after = compact(&engine);
    assert_eq!((after.held_bytes, after.oldest_snapshot), (0, None));
    assert!(after.after_bytes < report.after_bytes / 2, "{report:?}, then {after:?}");
    holds(&engine, tree, &model(&left));
}

/// A crash in any slice leaves the same entries, and the next compaction goes on.
#[test]
fn a_crash_between_slices_loses_nothing_and_the_next_one_goes_on() {
    for seed in 0..3 {
        let disk = MemDisk::new(seed);
        let (engine, tree) = filled(&disk, options(), &(0..2500).collect::<Vec<_>>());
        let left = thin_out(&engine, tree, 2500, seed);
        // Durable, so that each survivor holds it.
        engine.transact(Durability::Disk, |tx| tx.delete(tree, b"no row").map(|_| ())).unwrap();
        let mut survivors = Vec::new();
        engine
            .compact(&mut |_| {
                survivors.push(disk.crash(&CrashChoice::None));
                survivors.push(disk.crash(&CrashChoice::All));
                Ok(())
            })
            .unwrap();
        assert!(survivors.len() > 4, "{} survivors of a few slices", survivors.len());
        engine.close().unwrap();
        drop(engine);
        let uninterrupted = data_bytes(&disk);
        for survivor in survivors {
            let again = open(&survivor, options());
            holds(&again, tree, &model(&left));
            let report = compact(&again);
            holds(&again, tree, &model(&left));
            again.close().unwrap();
            drop(again);
            let after = data_bytes(&survivor);
            assert!(after * 10 <= uninterrupted * 12, "{after}, {uninterrupted} without a crash: {report:?}");
        }
    }
}

/// What was moved stays moved, and nothing else is changed.
#[test]
fn an_error_of_the_callback_stops_it_and_another_call_goes_on() {
    let disk = MemDisk::new(9);
    let (engine, tree) = filled(&disk, options(), &(0..4000).collect::<Vec<_>>());
    let left = thin_out(&engine, tree, 4000, 9);
    let mut moved = 0;
    for calls in [1, 2, 5] {
        let mut left_calls = calls;
        let stopped = engine.compact(&mut |progress| {
            moved = moved.max(progress.moved_bytes);
            left_calls -= 1;
            if left_calls == 0 { Err(Error::invalid("enough")) } else { Ok(()) }
        });
        assert_eq!(stopped.unwrap_err().message(), "enough");
        holds(&engine, tree, &model(&left));
    }
    assert!(moved > 0);
    let report = compact(&engine);
    assert!(report.after_bytes < report.before_bytes);
    holds(&engine, tree, &model(&left));
}

#[test]
fn it_is_refused_where_it_could_not_work() {
    let disk = MemDisk::new(1);
    let (engine, tree) = filled(&disk, options(), &(0..500).collect::<Vec<_>>());
    let left = thin_out(&engine, tree, 500, 1);
    let mut inner = None;
    engine
        .compact(&mut |_| {
            inner = engine.compact(&mut |_| Ok(())).err();
            Ok(())
        })
        .unwrap();
    let inner = inner.unwrap();
    assert_eq!(inner.code(), Code::InvalidArgument);
    assert!(inner.hint().contains("wait"), "{inner}");
    holds(&engine, tree, &model(&left));
    engine.close().unwrap();
    assert_eq!(engine.compact(&mut |_| Ok(())).unwrap_err().code(), Code::Closed);
    drop(engine);
    let reader = open(&disk, Options { read_only: true, ..options() });
    assert_eq!(reader.compact(&mut |_| Ok(())).unwrap_err().code(), Code::ReadOnly);
}

/// D7: deletes made room in the file, not on the disk.
#[test]
fn on_a_full_disk_it_uses_the_room_that_deletes_made() {
    for seed in 0..4 {
        let disk = MemDisk::new(seed);
        let (engine, tree) = filled(&disk, options(), &(0..4000).collect::<Vec<_>>());
        let left = thin_out(&engine, tree, 4000, seed);
        disk.set_capacity(Some(disk.used_bytes()));
        let before = data_bytes(&disk);
        let report = compact(&engine);
        assert!(report.after_bytes < before / 5 * 2, "{before}: {report:?}");
        holds(&engine, tree, &model(&left));
    }
}

/// Without any room nothing is lost, and the error tells what to do. Pages that nothing else may use take
/// all of the file here.
#[test]
fn without_any_room_it_fails_with_advice() {
    let disk = MemDisk::new(3);
    let (engine, tree) = filled(&disk, options(), &(0..2000).collect::<Vec<_>>());
    let holder = engine.snapshot().unwrap();
    let left = thin_out(&engine, tree, 2000, 3);
    disk.set_capacity(Some(disk.used_bytes()));
    match engine.compact(&mut |_| Ok(())) {
        Ok(report) => assert!(report.oldest_snapshot.is_some(), "{report:?}"),
        Err(error) => {
            assert_eq!(error.code(), Code::DiskFull);
            assert!(error.hint().contains("free some space"), "{error}");
        }
    }
    holds(&engine, tree, &model(&left));
    drop(holder);
    let report = compact(&engine);
    assert!(report.after_bytes < report.before_bytes, "{report:?}");
    holds(&engine, tree, &model(&left));
}

/// A command line does not have the code of every view. Reductions that it cannot compute must stay.
#[test]
fn reductions_of_unregistered_reducers_stay_known() {
    #[derive(Debug)]
    struct Longest;
    impl Reducer for Longest {
        fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
            out.extend_from_slice(&(value.len() as u64).to_le_bytes());
            Ok(())
        }
        fn join(&self, a: &[u8], b: &[u8], out: &mut Vec<u8>) {
            let length = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            out.extend_from_slice(&length(a).max(length(b)).to_le_bytes());
        }
    }
    let spec = ReducerSpec { name: "longest".into(), version: 1, params: Vec::new() };
    let hooks = || {
        let mut reducers = Reducers::default();
        let known = spec.clone();
        reducers.register(Arc::new(move |of| (*of == known).then(|| Arc::new(Longest) as Arc<dyn Reducer>)));
        Hooks { reducers, ..Hooks::default() }
    };
    let disk = MemDisk::new(4);
    let with = |hooks| Engine::open(Arc::new(disk.clone()), "/db", options(), hooks).unwrap();
    let engine = with(hooks());
    let (other, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("other", None)).unwrap();
    put(&engine, other, &(0..3000).collect::<Vec<_>>());
    let (tree, _) =
        engine.transact(Durability::Disk, |tx| tx.create_tree("rows", Some(spec.clone()))).unwrap();
    put(&engine, tree, &(0..1000).collect::<Vec<_>>());
    delete(&engine, other, &(0..3000).collect::<Vec<_>>());
    engine.close().unwrap();
    drop(engine);
    let engine = with(Hooks::default());
    let report = compact(&engine);
    assert!(report.moved_bytes > 0 && report.after_bytes < report.before_bytes, "{report:?}");
    engine.close().unwrap();
    drop(engine);
    let engine = with(hooks());
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.stale_keys(tree, b"", 10).unwrap(), Vec::<Vec<u8>>::new());
    holds(&engine, tree, &model(&(0..1000).collect::<Vec<_>>()));
}

/// Dropped trees are reclaimed first, the catalogue and the tree of roots move too.
#[test]
fn many_trees_some_of_them_dropped() {
    let disk = MemDisk::new(6);
    let engine = open(&disk, options());
    let create =
        |name: String| engine.transact(Durability::Process, |tx| tx.create_tree(&name, sum())).unwrap().0;
    let trees: Vec<TreeId> = (0..200).map(|tree| create(format!("tree {tree}"))).collect();
    let rows: Vec<u32> = (0..40).collect();
    for tree in &trees {
        put(&engine, *tree, &rows);
    }
    for tree in (0..200).filter(|tree| tree % 8 != 7) {
        engine.transact(Durability::Process, |tx| tx.drop_tree(&format!("tree {tree}"))).unwrap();
    }
    let report = compact(&engine);
    assert!(report.after_bytes < report.before_bytes / 4, "{report:?}");
    for tree in trees.iter().skip(7).step_by(8) {
        let found = engine.snapshot().unwrap().count(*tree, &KeyRange::all()).unwrap();
        assert_eq!(found, rows.len() as u64);
    }
    let check = engine.check().unwrap();
    assert!(check.is_clean() && check.unreached.is_empty(), "{check:?}");
}

/// Threads of the engine checkpoint, evict and punch holes meanwhile.
#[test]
fn with_threads_and_concurrent_writers() {
    let disk = MemDisk::new(8);
    let threaded = Options { background: Background::Threads, memory_bytes: 4 << 20, ..tiny() };
    let engine = open(&disk, threaded);
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", sum())).unwrap();
    let commit = |rows: &[u32], puts: bool| {
        let change = |tx: &mut Transaction| {
            rows.iter().try_for_each(|row| match puts {
                true => tx.put(tree, &key(*row), &value(*row)),
                false => tx.delete(tree, &key(*row)),
            })
        };
        engine.transact(Durability::Process, change).unwrap();
    };
    let rows: Vec<u32> = (0..20_000).collect();
    rows.chunks(200).for_each(|some| commit(some, true));
    let (left, gone): (Vec<u32>, Vec<u32>) = rows.iter().partition(|row| *row % 10 == 0);
    gone.chunks(200).for_each(|some| commit(some, false));
    let before = data_bytes(&disk);
    let writers: Vec<u32> = (100_000..100_004).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in &writers {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || {
                for count in 0u64.. {
                    let add = |tx: &mut Transaction| {
                        let before = tx.get(tree, &key(*writer))?;
                        let before = before.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
                        assert_eq!(before, count, "writer {writer}");
                        tx.put(tree, &key(*writer), &(count + 1).to_le_bytes())
                    };
                    engine.transact(Durability::Disk, add).unwrap();
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        compact(&engine);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let snapshot = engine.snapshot().unwrap();
    let wanted = model(&left);
    let found =
        snapshot.rows(tree, KeyRange { from: Vec::new(), to: Some(key(100_000)) }, Direction::Forward);
    let found: Model = found.unwrap().into_iter().map(Result::unwrap).collect();
    assert!(found == wanted, "{} rows, want {}", found.len(), wanted.len());
    drop(snapshot);
    assert_eq!(engine.stats().commit.conflicts, 0);
    assert!(engine.check().unwrap().is_clean());
    // The writers' last transactions may have held pages at the end of the file.
    let report = compact(&engine);
    assert!(report.after_bytes < before / 2, "{before}, then {report:?}");
}

/// Overwrites without end, and a compaction now and then: neither makes the file grow.
#[test]
fn endless_overwrites_with_compactions_stay_bounded() {
    let disk = MemDisk::new(10);
    let rows: Vec<u32> = (0..600).collect();
    let (engine, tree) = filled(&disk, options(), &rows);
    let mut random = Random(10);
    let mut longest = 0;
    for turn in 0..60 {
        let some: Vec<u32> = (0..100).map(|_| u32::try_from(random.below(600)).unwrap()).collect();
        put(&engine, tree, &some);
        if turn % 6 == 5 {
            compact(&engine);
        }
        if turn == 20 {
            longest = data_bytes(&disk);
        }
        assert!(turn < 20 || data_bytes(&disk) <= longest * 2, "turn {turn}: {}", data_bytes(&disk));
    }
    holds(&engine, tree, &model(&rows));
}
