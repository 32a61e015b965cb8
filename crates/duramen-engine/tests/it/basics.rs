//! Whole databases: written, read, closed, opened again, compared with a model.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{
    Background, Builtin, Combined, Direction, Durability, Engine, Geometry, Hooks, KeyRange, Options,
    ReducerSpec, TreeId,
};

/// Tiny blocks and nodes, so that few rows pass every boundary.
pub(crate) fn tiny() -> Options {
    Options {
        geometry: Geometry {
            block_bytes: 512,
            leaf_bytes_max: 512,
            inner_bytes_max: 512,
            big_value_bytes: 300,
            big_value_extent_bytes: 400,
            segment_bytes_min: 16 * 1024,
            segment_bytes_max: 64 * 1024,
        },
        memory_bytes: 4 * 1024 * 1024,
        background: Background::Stepped,
        ..Options::default()
    }
}

pub(crate) fn open(disk: &MemDisk, options: Options) -> Engine {
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap()
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.next(20) {
        0 => 300 + random.next(2000),
        1 => 0,
        _ => 8 + random.next(60),
    };
    (0..length.max(8)).map(|i| u8::try_from((i * 7 + random.0) % 251).unwrap()).collect()
}

fn sum(model: &Model, from: &[u8], to: &[u8]) -> Option<i128> {
    if from >= to {
        return None;
    }
    let rows = model.range(from.to_vec()..to.to_vec());
    rows.map(|(_, v)| i128::from(i64::from_le_bytes(v[..8].try_into().unwrap()))).reduce(|a, b| a + b)
}

fn compare(engine: &Engine, tree: TreeId, model: &Model, random: &mut Random) {
    let snapshot = engine.snapshot().unwrap();
    let rows: Vec<_> = snapshot
        .rows(tree, KeyRange::all(), Direction::Forward)
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(rows == expected, "{} rows, want {}", rows.len(), expected.len());
    let back: Vec<_> = snapshot
        .rows(tree, KeyRange::all(), Direction::Reverse)
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(back.iter().eq(expected.iter().rev()));
    for _ in 0..20 {
        let (a, b) = (key(random), key(random));
        let range = KeyRange::between(a.clone(), b.clone());
        let count = if a < b { model.range(a.clone()..b.clone()).count() } else { 0 };
        assert_eq!(snapshot.count(tree, &range).unwrap(), count as u64);
        assert_eq!(snapshot.rank(tree, &a).unwrap(), model.range(..a.clone()).count() as u64);
        assert_eq!(snapshot.get(tree, &a).unwrap().as_ref(), model.get(&a));
        let nth = random.next(model.len() as u64 + 2);
        let want = expected.get(usize::try_from(nth).unwrap()).cloned();
        assert_eq!(snapshot.nth_key(tree, nth).unwrap(), want.as_ref().map(|(key, _)| key.clone()));
        assert_eq!(snapshot.nth(tree, nth).unwrap(), want);
        let reduced = snapshot.reduce(tree, &range).unwrap().value;
        let reduced = reduced.map(|bytes| i128::from_le_bytes(bytes.try_into().unwrap()));
        assert_eq!(reduced, sum(model, &a, &b));
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key{:05}", random.next(3000)).into_bytes()
}

#[test]
fn a_long_random_run_equals_its_model_across_checkpoints_and_reopenings() {
    for seed in 1..=3u64 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let disk = MemDisk::new(seed);
        let mut engine = open(&disk, tiny());
        let mut model = Model::new();
        let (tree, _) =
            engine.transact(Durability::Disk, |tx| tx.create_tree("t", Some(Builtin::Sum.spec()))).unwrap();
        for round in 0..120 {
            let mut next = model.clone();
            let mut tx = engine.begin().unwrap();
            for _ in 0..random.next(60) {
                let key = key(&mut random);
                if random.next(3) == 0 {
                    tx.delete(tree, &key).unwrap();
                    next.remove(&key);
                } else {
                    let value = value(&mut random);
                    tx.put(tree, &key, &value).unwrap();
                    next.insert(key, value);
                }
            }
            if random.next(10) == 0 {
                drop(tx);
            } else {
                tx.commit(Durability::Disk).unwrap();
                model = next;
            }
            engine.step().unwrap();
            match random.next(12) {
                0 => engine.checkpoint().unwrap(),
                1 => {
                    engine.close().unwrap();
                    drop(engine);
                    engine = open(&disk, tiny());
                }
                2 => {
                    engine.abandon();
                    engine = open(&disk, tiny());
                }
                _ => {}
            }
            if round % 5 == 0 {
                compare(&engine, tree, &model, &mut random);
                let report = engine.check().unwrap();
                assert!(report.is_clean(), "{:?}", report.problems);
                assert_eq!(report.unreached, [], "round {round}: {report:?}");
            }
        }
        compare(&engine, tree, &model, &mut random);
    }
}

/// A transaction at level `Disk` without writes returns only after everything it may have read is durable.
#[test]
fn a_receipt_never_says_disk_before_the_disk_does() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let (_, weak) = engine.transact(Durability::Memory, |tx| tx.put(tree, b"k", b"v")).unwrap();
    assert_eq!(weak.durability(), Durability::Memory);
    let (_, read) = engine.transact(Durability::Disk, |tx| tx.get(tree, b"k")).unwrap();
    assert_eq!(read.durability(), Durability::Disk);
    assert!(engine.stats().commit.durable >= read.seq());
    assert_eq!(weak.durability(), Durability::Disk, "the later sync covered it");
}

#[test]
fn a_write_that_is_refused_is_not_committed_with_the_others() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, Options { geometry: Geometry::default(), ..tiny() });
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let mut tx = engine.begin().unwrap();
    let refused =
        (0..100u8).find(|n| tx.put(tree, &[*n], &[0; 30_000]).is_err()).expect("a quarter of 4 MiB is less");
    tx.commit(Durability::Disk).unwrap();
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(snapshot.count(tree, &KeyRange::all()).unwrap(), u64::from(refused));
}

#[test]
fn a_transaction_runs_again_when_its_tree_was_dropped_meanwhile() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let mut first = true;
    engine
        .transact(Durability::Disk, |tx| {
            let tree = match tx.tree("t")? {
                Some(tree) => tree,
                None => tx.create_tree("t", None)?,
            };
            if std::mem::take(&mut first) {
                engine.transact(Durability::Disk, |other| other.drop_tree("t"))?;
            }
            tx.put(tree, b"k", b"v")
        })
        .unwrap();
    let snapshot = engine.snapshot().unwrap();
    let tree = snapshot.tree("t").unwrap().expect("created again");
    assert_eq!(snapshot.get(tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn values_of_a_tree_dropped_in_the_same_transaction_take_no_space() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let mut tx = engine.begin().unwrap();
    let tree = tx.create_tree("t", None).unwrap();
    tx.put(tree, b"k", &[1; 5000]).unwrap();
    tx.drop_tree("t").unwrap();
    tx.create_tree("u", None).unwrap();
    tx.commit(Durability::Disk).unwrap();
    assert_eq!(engine.check().unwrap().unreached, []);
}

/// An ended snapshot returns the same state as ever or the error that it was ended, never another state (I1).
#[test]
fn a_snapshot_that_holds_too_much_is_ended_by_name() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, Options { snapshot_space_bytes_max: Some(64 * 1024), ..tiny() });
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let write = |n: u8| {
        let put =
            |tx: &mut duramen_engine::Transaction| (0..200u8).try_for_each(|k| tx.put(tree, &[k], &[n; 100]));
        engine.transact(Durability::Disk, put).unwrap();
        engine.checkpoint().unwrap();
    };
    write(0);
    let held = engine.snapshot().unwrap();
    (1..20).for_each(write);
    for row in held.rows(tree, KeyRange::all(), Direction::Forward).unwrap() {
        match row {
            Ok((_, value)) => assert_eq!(value, [0; 100]),
            Err(error) => assert_eq!(error.code(), duramen_engine::Code::SnapshotExpired),
        }
    }
    let stats = engine.stats().space;
    assert!(stats.used_blocks * 512 < 400 * 1024, "its space came back: {stats:?}");
}

/// All pages of a dropped tree are freed over several checkpoints, restarts included.
#[test]
fn a_dropped_tree_gives_all_its_space_back() {
    let disk = MemDisk::new(1);
    let mut engine = open(&disk, tiny());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("huge", None)).unwrap();
    let (other, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("other", None)).unwrap();
    for batch in 0..20u8 {
        let put = |tx: &mut duramen_engine::Transaction| {
            (0..100u8).try_for_each(|k| tx.put(tree, &[k, batch], &[7; 60]))
        };
        engine.transact(Durability::Disk, put).unwrap();
    }
    engine.transact(Durability::Disk, |tx| tx.put(tree, b"big", &[1; 3000])).unwrap();
    engine.checkpoint().unwrap();
    let full = engine.stats().space.used_blocks;
    engine.transact(Durability::Disk, |tx| tx.drop_tree("huge")).unwrap();
    for round in 0..200u8 {
        engine.transact(Durability::Disk, |tx| tx.put(other, b"k", &[round])).unwrap();
        engine.checkpoint().unwrap();
        let report = engine.check().unwrap();
        assert!(report.is_clean() && report.unreached.is_empty(), "round {round}: {report:?}");
        if round % 7 == 0 {
            engine.abandon();
            engine = open(&disk, tiny());
        }
    }
    let left = engine.stats().space.used_blocks;
    assert!(left < full / 4, "{left} blocks of {full} are still in use");
}

/// No commit follows the drop: the background reclaims the pages, and then rests. The bounds of a release
/// build are larger than this database.
#[cfg(debug_assertions)]
#[test]
fn a_dropped_tree_gives_its_space_back_while_nobody_commits() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("huge", None)).unwrap();
    for batch in 0..10u8 {
        let put = |tx: &mut duramen_engine::Transaction| {
            (0..100u8).try_for_each(|k| tx.put(tree, &[k, batch], &[7; 60]))
        };
        engine.transact(Durability::Disk, put).unwrap();
    }
    engine.checkpoint().unwrap();
    let full = engine.stats().space.used_blocks;
    engine.transact(Durability::Disk, |tx| tx.drop_tree("huge")).unwrap();
    engine.checkpoint().unwrap();
    let idle_step = || {
        disk.advance_clock(200_000_000);
        engine.step().unwrap();
    };
    (0..200).for_each(|_| idle_step());
    let stats = engine.stats();
    assert!(stats.space.used_blocks < full / 3, "{:?} of {full} blocks", stats.space);
    (0..10).for_each(|_| idle_step());
    let rested = engine.stats();
    assert_eq!(rested.commit.published, stats.commit.published, "it rests");
    let report = engine.check().unwrap();
    assert!(report.is_clean() && report.unreached.is_empty(), "{report:?}");
}

/// `check` reads the log, too: it alone holds the commits since the newest checkpoint.
#[test]
fn check_finds_corruption_in_the_log_of_an_open_database() {
    let disk = MemDisk::new(1);
    let engine = open(&disk, tiny());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap();
    engine.checkpoint().unwrap();
    for n in 0..20u8 {
        engine.transact(Durability::Disk, |tx| tx.put(tree, &[n], &[n; 100])).unwrap();
    }
    let report = engine.check().unwrap();
    assert!(report.is_clean() && report.log_commits == 20, "{report:?}");
    let at = |needle: &[u8]| {
        let segments = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "wal"));
        segments.into_iter().find_map(|path| {
            let bytes = disk.read_file(&path).unwrap();
            let at = bytes.windows(needle.len()).position(|window| window == needle)?;
            Some((path, at as u64))
        })
    };
    let (path, offset) = at(&[9; 100]).unwrap();
    disk.flip_bit(&path, offset, 0).unwrap();
    let report = engine.check().unwrap();
    assert!(!report.is_clean(), "{report:?}");
    disk.flip_bit(&path, offset, 0).unwrap();
    assert!(engine.check().unwrap().is_clean());
}

/// A combined reducer answers as its parts would, in memory, after a checkpoint, and after reopening.
#[test]
fn several_reducers_of_one_tree_answer_for_themselves() {
    let disk = MemDisk::new(1);
    let mut engine = open(&disk, tiny());
    let parts = [Builtin::Max, Builtin::Sum, Builtin::Min];
    let spec = ReducerSpec::combined(&parts.map(Builtin::spec));
    let (tree, _) =
        engine.transact(Durability::Disk, |tx| tx.create_tree("rows", Some(spec.clone()))).unwrap();
    let number = |n: i64| (n * 7919 + 13) % 1000 - 500;
    let put = |tx: &mut duramen_engine::Transaction| {
        (0..300i64).try_for_each(|n| tx.put(tree, &n.to_be_bytes(), &number(n).to_le_bytes()))
    };
    engine.transact(Durability::Disk, put).unwrap();
    for round in 0..3 {
        for (from, to) in [(0, 300), (0, 1), (17, 18), (3, 250), (150, 299)] {
            let range = KeyRange::between(i64::to_be_bytes(from), i64::to_be_bytes(to));
            let reduced = engine.snapshot().unwrap().reduce(tree, &range).unwrap().value.unwrap();
            let numbers: Vec<i64> = (from..to).map(number).collect();
            let sum: i128 = numbers.iter().copied().map(i128::from).sum();
            let (max, min) = (numbers.iter().max().unwrap(), numbers.iter().min().unwrap());
            let wanted = [&max.to_le_bytes()[..], &sum.to_le_bytes(), &min.to_le_bytes()];
            assert_eq!(Combined::parts(&reduced).unwrap(), wanted, "round {round}, {from}..{to}");
        }
        if round == 0 {
            engine.checkpoint().unwrap();
        } else {
            engine.close().unwrap();
            drop(engine);
            engine = open(&disk, tiny());
        }
    }
    let nested = ReducerSpec::combined(&[ReducerSpec::combined(&[Builtin::Sum.spec()])]);
    let unknown = ReducerSpec::combined(&[ReducerSpec { name: "none".into(), version: 1, params: vec![] }]);
    for spec in [nested, unknown, ReducerSpec::combined(&[])] {
        let refused = engine.transact(Durability::Disk, |tx| tx.create_tree("other", Some(spec.clone())));
        assert!(refused.is_err(), "{spec:?}");
    }
    let cut = &ReducerSpec::combined(&parts.map(Builtin::spec)).params[..30];
    let spec = ReducerSpec { name: "combined".into(), version: 1, params: cut.to_vec() };
    assert!(engine.transact(Durability::Disk, |tx| tx.create_tree("other", Some(spec.clone()))).is_err());
}

// A cache over a tree is validated by its mark: any commit to the tree must clear the mark, and a commit to
// another tree must not.
#[test]
fn a_mark_holds_until_its_tree_changes() {
    let engine = open(&MemDisk::new(1), tiny());
    let commit = |tree: TreeId, value: &[u8]| {
        engine.transact(Durability::Memory, |tx| tx.put(tree, b"key", value)).unwrap();
        engine.snapshot().unwrap()
    };
    let create = |name: &str| engine.transact(Durability::Memory, |tx| tx.create_tree(name, None)).unwrap().0;
    let (marked, other) = (create("marked"), create("other"));
    let first = commit(marked, b"1");
    let mark = first.mark(marked).unwrap();
    assert!(first.is_as_marked(&mark));
    assert!(commit(other, b"2").is_as_marked(&mark));
    for value in [b"1", b"3"] {
        assert!(!commit(marked, value).is_as_marked(&mark));
    }
    assert!(first.is_as_marked(&mark), "the old state is as it was");
    engine.transact(Durability::Memory, |tx| tx.drop_tree("marked")).unwrap();
    let dropped = engine.snapshot().unwrap();
    assert!(!dropped.is_as_marked(&mark));
    assert!(dropped.mark(marked).is_none());
}

// A tree that the transaction itself created is empty at first, and not unknown.
#[test]
fn a_value_of_a_tree_of_the_same_transaction_is_opened_as_it_is_got() {
    let engine = open(&MemDisk::new(94), tiny());
    let (opened, _) = engine
        .transact(Durability::Disk, |tx| {
            let tree = tx.create_tree("t", None)?;
            tx.put(tree, b"there", &[7; 1_000])?;
            let none = tx.open_value(tree, b"missing")?.is_none() && tx.get(tree, b"missing")?.is_none();
            Ok((none, tx.open_value(tree, b"there")?))
        })
        .unwrap();
    let mut value = Vec::new();
    opened.1.unwrap().read_to_end(&mut value).unwrap();
    assert_eq!((opened.0, value), (true, vec![7; 1_000]));
}
