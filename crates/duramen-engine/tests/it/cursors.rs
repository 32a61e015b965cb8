//! Cursors lend the entries of a range, each once, in both directions: of a snapshot, and of a transaction
//! that has changed some of them. A search for the first key finds what they lend first.

use std::collections::BTreeMap;

use duramen_disk::MemDisk;
use duramen_disk::memory::Random;
use duramen_engine::{Direction, Durability, Engine, KeyRange, Options, Row, Rows, TreeId};

use super::basics::{open, tiny};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Random) -> Vec<u8> {
    (0..1 + random.below(4)).map(|_| [0, 1, 7, 0xff][random.below(4)]).collect()
}

/// One value in eight is big: it lies in pages of its own.
fn value(random: &mut Random) -> Vec<u8> {
    let bytes = if random.below(8) == 0 { 400 + random.below(900) } else { random.below(60) };
    vec![random.bits().to_le_bytes()[0]; bytes]
}

fn range(random: &mut Random) -> KeyRange {
    let to = (random.below(4) > 0).then(|| key(random));
    KeyRange { from: if random.below(4) == 0 { Vec::new() } else { key(random) }, to }
}

fn expected(model: &Model, range: &KeyRange, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = model.iter().filter(|(key, _)| range.contains(key));
    let mut entries: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if direction == Direction::Reverse {
        entries.reverse();
    }
    entries
}

/// Walks all entries, in three ways in turns: lent at once, by their values alone, and lent later.
fn check_walk(mut rows: Rows, expected: &[(Vec<u8>, Vec<u8>)], random: &mut Random) {
    let copied = |row: Row<'_>| (row.key().to_vec(), row.value().unwrap().into_owned());
    assert!(rows.row().is_none(), "before the first entry");
    for entry in expected {
        let way = random.below(3);
        if way == 0 {
            assert_eq!(rows.next().unwrap().map(copied).as_ref(), Some(entry));
        } else {
            assert!(rows.advance().unwrap(), "{entry:?} comes next");
            let in_page = (!rows.is_big()).then_some(entry.1.as_slice());
            assert_eq!(rows.value_in_page(), in_page);
        }
        if way < 2 {
            assert_eq!(
                rows.row().map(copied).as_ref(),
                Some(entry),
                "the current entry is that of the last move"
            );
        }
    }
    assert!(!rows.advance().unwrap(), "after the last entry");
    assert!(!rows.is_big() && rows.value_in_page().is_none() && rows.row().is_none());
}

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];

fn change(engine: &Engine, tree: TreeId, model: &mut Model, random: &mut Random) {
    let changes: Vec<_> =
        (0..40).map(|_| (key(random), (random.below(3) > 0).then(|| value(random)))).collect();
    engine
        .transact(Durability::Disk, |tx| {
            changes.iter().try_for_each(|(key, value)| match value {
                Some(value) => tx.put(tree, key, value),
                None => tx.delete(tree, key),
            })
        })
        .unwrap();
    for (key, value) in changes {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

#[test]
fn cursors_lend_every_entry_once() {
    let seed = 0x7e57;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let engine = open(&MemDisk::new(seed), tiny());
    let (tree, _) = engine.transact(Durability::Process, |tx| tx.create_tree("t", None)).unwrap();
    let mut model = Model::new();
    for _ in 0..60 {
        change(&engine, tree, &mut model, &mut random);
        read_by_snapshot(&engine, tree, &model, &mut random);
        changed_by_a_transaction(&engine, tree, &model, &mut random);
    }
}

// Before the log is in the trees, its changes lie over them.
#[test]
fn cursors_lend_every_entry_once_before_the_log_is_replayed() {
    let seed = 0x0e1a;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let disk = MemDisk::new(seed);
    let engine = open(&disk, tiny());
    let (tree, _) = engine.transact(Durability::Disk, |tx| tx.create_tree("t", None)).unwrap();
    let (mut engine, mut model) = (Some(engine), Model::new());
    for _ in 0..30 {
        let writing = engine.take().unwrap_or_else(|| open(&disk, tiny()));
        (0..3).for_each(|_| change(&writing, tree, &mut model, &mut random));
        writing.checkpoint().unwrap();
        change(&writing, tree, &mut model, &mut random);
        writing.abandon();
        let reading = open(&disk, Options { answer_before_replay: Some(true), ..tiny() });
        for _ in 0..5 {
            read_by_snapshot(&reading, tree, &model, &mut random);
        }
        reading.abandon();
    }
}

/// Walks ranges of a snapshot.
fn read_by_snapshot(engine: &Engine, tree: TreeId, model: &Model, random: &mut Random) {
    let snapshot = engine.snapshot().unwrap();
    for direction in DIRECTIONS {
        for _ in 0..6 {
            let range = range(random);
            let rows = snapshot.rows(tree, range.clone(), direction).unwrap();
            check_walk(rows, &expected(model, &range, direction), random);
            let first = expected(model, &range, Direction::Forward).into_iter().next();
            let found = snapshot.first_key(tree, &range).unwrap();
            assert_eq!(found, first.map(|(key, _)| key), "{range:?}");
        }
    }
}

/// A transaction reads its own changes over the tree, and then commits nothing.
fn changed_by_a_transaction(engine: &Engine, tree: TreeId, model: &Model, random: &mut Random) {
    let ended = engine.transact(Durability::Process, |tx| {
        let mut model = model.clone();
        for _ in 0..8 {
            for _ in 0..4 {
                let (key, value) = (key(random), value(random));
                if random.below(2) == 0 {
                    tx.delete(tree, &key)?;
                    model.remove(&key);
                } else {
                    tx.put(tree, &key, &value)?;
                    model.insert(key, value);
                }
            }
            for direction in DIRECTIONS {
                let range = range(random);
                let rows = tx.rows(tree, range.clone(), direction)?;
                check_walk(rows, &expected(&model, &range, direction), random);
            }
        }
        Err::<(), _>(duramen_engine::Error::invalid("nothing is kept"))
    });
    assert!(ended.is_err());
}
