//! Whole databases: written, read, closed, opened again, compared with a model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_engine::{
    Background, Builtin, Direction, Durability, Engine, Geometry, Hooks, KeyRange, Options, TreeId,
};

/// Tiny blocks and nodes, so that few rows pass every boundary.
pub fn tiny() -> Options {
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

pub fn open(disk: &MemDisk, options: Options) -> Engine {
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
