//! Repair of the engine's own trees: lost names, entries that a reducer refuses. The tests over all
//! corruptions is in duramen-sim.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::memory::CrashChoice;
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{
    Durability, Engine, Hooks, Keep, KeyRange, Reducer, ReducerSpec, Reducers, Repair, Result,
};

use crate::basics::{open, tiny};

fn repair(disk: &MemDisk, hooks: Hooks) -> Result<(Engine, Repair)> {
    let on: Arc<dyn Disk> = Arc::new(disk.clone());
    let (from, to) = (Path::new("/db"), Path::new("/new"));
    Engine::repair(&on, from, to, &tiny(), hooks, &|_| Keep::Entries, &mut |_| Ok(()))
}

/// Counts entries; may refuse entries with the value `bad`.
struct Picky {
    refuses: bool,
}

impl Reducer for Picky {
    fn one(&self, _: &[u8], value: &[u8], out: &mut Vec<u8>) -> std::result::Result<(), String> {
        if self.refuses && value == b"bad" {
            return Err("it is bad".to_owned());
        }
        out.push(1);
        Ok(())
    }

    fn join(&self, left: &[u8], right: &[u8], out: &mut Vec<u8>) {
        out.push(left[0].wrapping_add(right[0]));
    }
}

pub(crate) fn picky(refuses: bool) -> Hooks {
    let mut reducers = Reducers::default();
    reducers.register(Arc::new(move |_: &ReducerSpec| Some(Arc::new(Picky { refuses }) as Arc<dyn Reducer>)));
    Hooks { reducers, ..Hooks::default() }
}

// The checkpoint's value is older than the lost one: beside other changes of its commit, it would be a state
// that never existed.
#[test]
fn an_entry_that_is_refused_does_not_leave_an_older_one() {
    let disk = MemDisk::new(1);
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), picky(false)).unwrap();
    let spec = ReducerSpec { name: "picky".to_owned(), version: 1, params: Vec::new() };
    let disk_level = Durability::Disk;
    let (tree, _) = engine.transact(disk_level, |tx| tx.create_tree("t", Some(spec.clone()))).unwrap();
    engine
        .transact(disk_level, |tx| {
            ["a", "b", "c"].iter().try_for_each(|key| tx.put(tree, key.as_bytes(), b"old"))
        })
        .unwrap();
    engine.checkpoint().unwrap();
    engine
        .transact(disk_level, |tx| ["a", "b"].iter().try_for_each(|key| tx.put(tree, key.as_bytes(), b"bad")))
        .unwrap();
    engine.transact(disk_level, |tx| tx.put(tree, b"b", b"new")).unwrap();
    let killed = disk.crash(&CrashChoice::All);
    drop(engine);

    let (new, repair) = repair(&killed, picky(true)).unwrap();
    let snapshot = new.snapshot().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    let get = |key: &[u8]| snapshot.get(tree, key).unwrap().map(|value| value.to_vec());
    assert_eq!(get(b"a"), None);
    assert_eq!(get(b"b"), Some(b"new".to_vec()));
    assert_eq!(get(b"c"), Some(b"old".to_vec()));
    let lost: Vec<_> = repair.ranges.iter().map(|range| range.after.clone()).collect();
    assert_eq!(lost, [Some(b"a".to_vec())], "what was replaced is not lost: {repair:?}");
}

// Memory is bounded, and a loss is named: a key beyond the bound is reported as lost at once, whatever
// follows.
#[test]
fn keys_that_were_missed_are_held_up_to_a_bound_and_told_as_lost_beyond_it() {
    // 4 MiB are available for such keys, and each takes 64 bytes besides its own.
    const HELD: usize = 4 * 1024 * 1024 / (1000 + 64);
    const KEYS: usize = HELD + 50;
    let disk = MemDisk::new(3);
    let engine = Engine::open(Arc::new(disk.clone()), Path::new("/db"), tiny(), picky(false)).unwrap();
    let spec = ReducerSpec { name: "picky".to_owned(), version: 1, params: Vec::new() };
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", Some(spec.clone()))).unwrap();
    let key = |n: usize| format!("{n:08}{}", "x".repeat(992)).into_bytes();
    for value in [b"bad", b"new"] {
        // Everything before a new tree is applied before the tree is created: all keys are missed before any
        // is replaced.
        let name = String::from_utf8_lossy(value);
        engine.transact(Durability::Disk, |tx| tx.create_tree(&name, None).map(drop)).unwrap();
        for from in (0..KEYS).step_by(100) {
            let all = |tx: &mut duramen_engine::Transaction| {
                (from..KEYS.min(from + 100)).try_for_each(|n| tx.put(tree, &key(n), value))
            };
            engine.transact(Durability::Disk, all).unwrap();
        }
    }
    let killed = disk.crash(&CrashChoice::All);
    drop(engine);

    let (new, repair) = repair(&killed, picky(true)).unwrap();
    let snapshot = new.snapshot().unwrap();
    let tree = snapshot.tree("t").unwrap().unwrap();
    assert_eq!(snapshot.count(tree, &KeyRange::all()).unwrap(), KEYS as u64, "all were replaced");
    let lost: Vec<_> = repair.ranges.iter().map(|range| range.after.clone().unwrap()).collect();
    assert_eq!(lost, (HELD..KEYS).map(key).collect::<Vec<_>>());
}

// A lost page of names loses these names. New trees in the log, of which nothing can be lost, must not lose
// more.
#[test]
fn a_new_tree_in_the_log_takes_no_nameless_one_away() {
    let disk = MemDisk::new(2);
    let engine = open(&disk, tiny());
    for n in 0..60 {
        let create = |tx: &mut duramen_engine::Transaction| {
            let tree = tx.create_tree(&format!("tree of the checkpoint {n:02}"), None)?;
            tx.put(tree, b"key", b"value")
        };
        engine.transact(Durability::Disk, create).unwrap();
    }
    engine.checkpoint().unwrap();
    // Both checkpoints share the pages of names: with a corrupt one, neither has all names.
    let tree = engine.snapshot().unwrap().tree("tree of the checkpoint 00").unwrap().unwrap();
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"key", b"other")).unwrap();
    engine.checkpoint().unwrap();
    engine.transact(Durability::Disk, |tx| tx.create_tree("z of the log", None)).unwrap();
    let killed = disk.crash(&CrashChoice::All);
    drop(engine);

    let blocks = killed.read_file("/db/data").unwrap().len() as u64 / 512;
    for block in (0..blocks).rev() {
        let corrupt = killed.deep_clone();
        corrupt.flip_bit("/db/data", block * 512 + 200, 3).unwrap();
        let Ok((new, repair)) = repair(&corrupt, Hooks::default()) else { continue };
        let names = repair.ranges.iter().filter(|range| range.tree.contains("names of trees"));
        // One leaf of the names, and not the last one.
        if names.clone().count() == 1 && names.clone().all(|range| range.before.is_some()) {
            assert!(!repair.nameless.is_empty(), "{repair:?}");
            let snapshot = new.snapshot().unwrap();
            for name in &repair.nameless {
                let tree = snapshot.tree(name).unwrap().unwrap();
                assert_eq!(snapshot.count(tree, &KeyRange::all()).unwrap(), 1, "{name}");
            }
            return;
        }
    }
    panic!("no block of names among {blocks}");
}
