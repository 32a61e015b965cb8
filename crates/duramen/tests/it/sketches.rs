//! Sketches: correct against a naive computation, and the same for any order of writes.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duramen::prelude::*;
use duramen::view::reduce::Distinct;
use duramen::{Disk, MemDisk};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "trips",
    view(
        ByRoute,
        key = (from, id),
        value = delay,
        reduce = (Count, Mean, TopK(4), BottomK(3), Distinct(tail), Quantiles, TopK(2, tail), Quantiles(far))
    ),
    view(Plain, key = (from, id), value = delay, reduce = (Count, Mean)),
)]
struct Trip {
    #[key]
    id: u64,
    from: String,
    delay: Option<i32>,
    tail: String,
    far: f64,
}

/// The numbers of a seed, the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Delays as flights have them: most near zero, some far beyond, and some unknown.
fn trip(id: u64, seed: u64) -> Trip {
    let mut random = Random((seed << 32 | id).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let far = (random.next() % 100_000) as f64 / 7.0 - 3000.0;
    let delay = match random.next() % 20 {
        0 => None,
        1..=3 => Some((random.next() % 1300) as i32),
        _ => Some((random.next() % 60) as i32 - 43),
    };
    let tail = format!("N{:05}", random.next() % 4000);
    Trip { id, from: ["EWR", "JFK", "LGA"][(random.next() % 3) as usize].to_owned(), delay, tail, far }
}

fn put_all(db: &Db, trips: &[Trip]) {
    for some in trips.chunks(1000) {
        db.transact(|tx| some.iter().try_for_each(|trip| tx.put(trip))).unwrap();
    }
}

/// Compares every answer over a range of ids of one place with the documents.
fn check(db: &Db, trips: &BTreeMap<u64, Trip>, from: &str, ids: std::ops::Range<u64>) {
    let asked = db.view::<ByRoute>().range((from, ids.start)..(from, ids.end)).reduce().unwrap();
    let (count, mean, top, bottom, distinct, delays, tails, far) = asked;
    let inside: Vec<&Trip> =
        trips.range(ids).map(|(_, trip)| trip).filter(|trip| trip.from == from).collect();
    let mut known: Vec<i32> = inside.iter().filter_map(|trip| trip.delay).collect();
    known.sort_unstable();
    assert_eq!(count, inside.len() as u64);
    let sum: i64 = known.iter().map(|delay| i64::from(*delay)).sum();
    assert_eq!(mean, (!known.is_empty()).then(|| sum as f64 / known.len() as f64));
    assert_eq!(top, known.iter().rev().take(4).copied().collect::<Vec<_>>());
    assert_eq!(bottom, known.iter().take(3).copied().collect::<Vec<_>>());
    let different: BTreeSet<&str> = inside.iter().map(|trip| trip.tail.as_str()).collect();
    let off = (distinct as f64 - different.len() as f64).abs();
    assert!(
        off <= 4.0 * Distinct::STANDARD_ERROR * different.len() as f64 + 0.5,
        "{distinct} of {}",
        different.len()
    );
    let mut sorted: Vec<&str> = inside.iter().map(|trip| trip.tail.as_str()).collect();
    sorted.sort_unstable();
    assert_eq!(tails, sorted.iter().rev().take(2).map(|tail| (*tail).to_owned()).collect::<Vec<_>>());
    let known: Vec<f64> = known.into_iter().map(f64::from).collect();
    check_quantiles(&delays, &known);
    let mut distances: Vec<f64> = inside.iter().map(|trip| trip.far).collect();
    distances.sort_unstable_by(f64::total_cmp);
    check_quantiles(&far, &distances);
}

fn check_quantiles(asked: &duramen::view::Distribution, sorted: &[f64]) {
    assert_eq!(asked.count(), sorted.len() as u64);
    assert!(asked.relative_error() <= 0.01, "{}", asked.relative_error());
    for q in [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
        let Some(found) = asked.quantile(q) else {
            assert!(sorted.is_empty());
            continue;
        };
        let right = sorted[(q * (sorted.len() - 1) as f64) as usize];
        let allowed = right.abs() * asked.relative_error() * (1.0 + 1e-12);
        assert!((found - right).abs() <= allowed, "{q}: {found}, and it is {right}");
    }
}

// The answer of any range is that of the documents in it: after puts in any order, changes and deletions.
#[test]
fn answers_are_those_of_the_documents() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(0));
    let open = || Db::options().open_on(Arc::clone(&disk), "/trips").unwrap();
    let db = open();
    let mut trips: BTreeMap<u64, Trip> = (0..6000).map(|id| (id, trip(id, 1))).collect();
    put_all(&db, &trips.values().cloned().collect::<Vec<_>>());
    let ranges = [0..6000, 0..0, 17..18, 100..1234, 2999..3003, 5990..9000];
    for from in ["EWR", "JFK", "LGA", "OSL"] {
        ranges.iter().for_each(|ids| check(&db, &trips, from, ids.clone()));
    }
    for id in (0..6000).filter(|id| id % 3 == 0) {
        if id % 2 == 0 {
            trips.remove(&id);
            db.delete::<Trip>(id).unwrap();
        } else {
            db.put(&trip(id, 2)).unwrap();
            trips.insert(id, trip(id, 2));
        }
    }
    for from in ["EWR", "JFK"] {
        ranges.iter().for_each(|ids| check(&db, &trips, from, ids.clone()));
    }
    db.close().unwrap();
    drop(db);
    // And from the reductions on disk.
    let db = open();
    ranges.iter().for_each(|ids| check(&db, &trips, "LGA", ids.clone()));
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    assert!(report.reductions > 0);
}

// The order of writes determines the page splits: it must not affect one bit of an answer.
#[test]
fn the_order_of_writes_does_not_show() {
    let trips: Vec<Trip> = (0..5000).map(|id| trip(id, 3)).collect();
    let mut shuffled = trips.clone();
    let mut random = Random(7);
    (1..shuffled.len())
        .rev()
        .for_each(|last| shuffled.swap(last, (random.next() % (last as u64 + 1)) as usize));
    let mut backwards = trips.clone();
    backwards.reverse();
    let answers: Vec<_> = [trips, shuffled, backwards]
        .iter()
        .map(|trips| {
            let db = Db::in_memory().unwrap();
            put_all(&db, trips);
            let ask = |ids: std::ops::Range<u64>| {
                db.view::<ByRoute>().range(("EWR", ids.start)..("JFK", ids.end)).reduce().unwrap()
            };
            [ask(0..5000), ask(400..401), ask(12..4000)]
        })
        .collect();
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}
