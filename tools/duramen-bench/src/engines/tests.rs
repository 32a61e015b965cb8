//! Every engine of the build has the properties on which all workloads rely. Otherwise its measurements would
//! not compare.

use std::fs;

use super::all;
use crate::data::{Digest, Rows};
use crate::engine::{Entry, Place, Range, Row, Scope, Shape, number_of};
use crate::reference::Reference;

const ROWS: u64 = 3000;

fn in_directory(name: &str, check: impl FnOnce(&std::path::Path)) {
    let dir = std::env::temp_dir().join(format!("duramen-bench-test-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    check(&dir);
    fs::remove_dir_all(&dir).unwrap();
}

/// The hash of all queries of one collection, on a newly opened database.
fn answers(entry: &Entry, dir: &std::path::Path, rows: &Rows) -> Vec<u64> {
    let engine = (entry.open)(dir, Shape::SUMMED).unwrap();
    let mut session = engine.session().unwrap();
    let mut all = Digest::default();
    session.scan(0, Range::ALL, &mut |key, value| all.see(key, value)).unwrap();
    let mut otherwise = all;
    let mut found = Digest::default();
    if session.scan_otherwise(Range::ALL, &mut |key, value| found.see(key, value)).unwrap() {
        otherwise = found;
    }
    let start = rows.head(7).to_be_bytes();
    let mut hundred = Digest::default();
    let range = Range { from: &start, to: None, limit: 100 };
    session.scan(0, range, &mut |key, value| hundred.see(key, value)).unwrap();
    let mut got = Digest::default();
    session.gets(&[rows.key(5)], &mut |value| got.add(rows.head(5), value)).unwrap();
    session.gets(&[rows.key(ROWS + 5)], &mut |_| panic!("nobody wrote this row")).unwrap();
    session.gets(&[rows.key(6), rows.key(8)], &mut |value| got.add(0, value)).unwrap();
    let total = session.total(&start, &[0xf0; 8]).unwrap();
    drop(session);
    engine.close().unwrap();
    vec![all.answer(), otherwise.answer(), hundred.answer(), got.answer(), total.answer()]
}

fn right(rows: &Rows) -> Vec<u64> {
    let reference = Reference::new(*rows, ROWS);
    let all = Digest::of_first(rows, ROWS).answer();
    let (mut got, mut value) = (Digest::default(), Vec::new());
    for (row, head) in [(5, rows.head(5)), (6, 0), (8, 0)] {
        rows.value(row, &mut value);
        got.add(head, &value);
    }
    let start = rows.head(7);
    let total = reference.total(start, u64::from_be_bytes([0xf0; 8]));
    vec![all, all, reference.range(start, 100).answer(), got.answer(), total.answer()]
}

#[test]
fn all_engines_give_the_same_right_answers_after_they_are_opened_again() {
    for entry in all().into_iter().filter(|entry| entry.scope == Scope::All) {
        in_directory(&format!("answers-{}", entry.name), |dir| {
            let rows = Rows::new(3, 100);
            let engine = (entry.open)(dir, Shape::SUMMED).unwrap();
            for batch in (0..ROWS).collect::<Vec<_>>().chunks(500) {
                let made: Vec<_> = batch
                    .iter()
                    .map(|row| {
                        let mut value = Vec::new();
                        rows.value(*row, &mut value);
                        (rows.key(*row), value)
                    })
                    .collect();
                let batch: Vec<Row<'_>> =
                    made.iter().map(|(key, value)| Row { key: key.bytes(), value }).collect();
                engine.session().unwrap().put(0, &batch).unwrap();
            }
            engine.close().unwrap();
            assert_eq!(answers(&entry, dir, &rows), right(&rows), "{}", entry.name);
        });
    }
}

#[test]
fn no_engine_loses_an_update_of_threads_that_compete() {
    const THREADS: u64 = 4;
    const EACH: u64 = 25;
    for entry in all().into_iter().filter(|entry| entry.scope >= Scope::Updates) {
        in_directory(&format!("updates-{}", entry.name), |dir| {
            let rows = Rows::new(4, 100);
            let engine = (entry.open)(dir, Shape::FIVE).unwrap();
            let mut value = Vec::new();
            rows.value_with(0, 0, &mut value);
            for collection in 0..5 {
                let key = rows.key(0);
                let row = Row { key: key.bytes(), value: &value };
                engine.session().unwrap().put(collection, &[row]).unwrap();
            }
            let places = [0, 1, 2].map(|collection| Place { collection, key: rows.key(0) });
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let mut session = engine.session().unwrap();
                        for _ in 0..EACH {
                            session.update(&places).unwrap();
                        }
                    });
                }
            });
            let mut numbers = Vec::new();
            for collection in 0..5 {
                let mut see = |_: &[u8], value: &[u8]| numbers.push(number_of(value));
                engine.session().unwrap().scan(collection, Range::ALL, &mut see).unwrap();
            }
            engine.close().unwrap();
            let all = i64::try_from(THREADS * EACH).unwrap();
            assert_eq!(numbers, [all, all, 0, 0, 0], "{}", entry.name);
        });
    }
}
