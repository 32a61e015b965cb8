//! All flights of 2013: positions, ranks, counts and sums equal those of a sorted vector, in memory and from
//! disk.

use std::path::Path;

use duramen::DocumentsOf;
use duramen::prelude::*;
use duramen_disk::memory::Random;

use crate::flights_table::cells;

/// Enough for the tree of roots and some paths, far less than the flights: answers come from disk.
const LITTLE_MEMORY: usize = 4 << 20;

/// The distance between two positions that are queried; prime, so that it matches no shape of the tree.
const STRIDE: usize = 13;

/// Carrier, hour, flight, origin; its order is that of the collection.
type FlightKey = (String, String, u64, String);

struct Flight {
    key: FlightKey,
    dep_delay: Option<i64>,
    distance: i64,
}

impl Flight {
    fn document(&self) -> Document {
        let (carrier, hour, flight, origin) = &self.key;
        doc! {
            "carrier": carrier.as_str(), "hour": hour.as_str(), "flight": *flight, "origin": origin.as_str(),
            "dep_delay": self.dep_delay, "distance": self.distance,
        }
    }
}

/// The flights in order of time, as the file has them.
fn flights() -> Vec<Flight> {
    let wanted = ["carrier", "time_hour", "flight", "origin", "dep_delay", "distance"];
    let flight = |[carrier, hour, flight, origin, dep_delay, distance]: [String; 6]| Flight {
        key: (carrier, hour, flight.parse().unwrap(), origin),
        dep_delay: (dep_delay != "NA").then(|| dep_delay.parse().unwrap()),
        distance: distance.parse().unwrap(),
    };
    cells(wanted).into_iter().map(flight).collect()
}

/// The sorted vector, with the sums of everything before each position.
struct Oracle {
    sorted: Vec<Flight>,
    distance_before: Vec<i128>,
    dep_delay_before: Vec<i128>,
}

impl Oracle {
    fn new(mut flights: Vec<Flight>) -> Oracle {
        flights.sort_by(|a, b| a.key.cmp(&b.key));
        let before = |number: fn(&Flight) -> i64| {
            let mut sum = 0;
            let sums = flights.iter().map(|flight| {
                sum += i128::from(number(flight));
                sum
            });
            std::iter::once(0).chain(sums).collect()
        };
        let distance_before = before(|flight| flight.distance);
        let dep_delay_before = before(|flight| flight.dep_delay.unwrap_or(0));
        Oracle { sorted: flights, distance_before, dep_delay_before }
    }

    fn rank(&self, key: &FlightKey) -> usize {
        self.sorted.partition_point(|flight| flight.key < *key)
    }

    fn check_range(&self, stored: &DocumentsOf<'_, Snapshot>, span: Span, from: usize, to: usize) {
        let count = (to - from) as u64;
        assert_eq!(stored.count(span.clone()).unwrap(), count, "{span:?}");
        let found = stored.reduce(span.clone()).unwrap();
        let sums = |before: &[i128]| Some(before[to] - before[from]);
        assert_eq!(found.count(), count, "{span:?}");
        assert_eq!(found.sum("distance"), sums(&self.distance_before), "{span:?}");
        assert_eq!(found.sum("dep_delay"), sums(&self.dep_delay_before), "{span:?}");
    }
}

fn lend(key: &FlightKey) -> (&str, &str, u64, &str) {
    (&key.0, &key.1, key.2, &key.3)
}

/// A small generator of numbers.
struct Draw(Random);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// A key of a flight, or a key near one, which usually does not exist.
    fn key(&mut self, sorted: &[Flight]) -> FlightKey {
        let mut key = sorted[self.below(sorted.len())].key.clone();
        match self.below(8) {
            0 => key.0.push('0'),
            1 => key.1.push('\0'),
            2 => key.1.truncate("2013-01".len()),
            3 => key.2 += 1,
            4 => key.2 = [0, 255, 256, u64::MAX][self.below(4)],
            5 => key.3 = ["", "AAA", "JFK\0", "ZZZ"][self.below(4)].to_owned(),
            _ => {}
        }
        key
    }
}

/// Positions and the ranks of the keys found there; absent keys between, below and above; ranges.
fn compare(db: &Db, oracle: &Oracle, draw: &mut Draw) {
    let snapshot = db.snapshot().unwrap();
    let stored = snapshot.documents("flights");
    let (sorted, all) = (&oracle.sorted, oracle.sorted.len());
    for rank in (0..all).step_by(STRIDE).chain([1, all - 2, all - 1]) {
        let found = stored.nth(rank as u64).unwrap();
        assert_eq!(found, Some(sorted[rank].document()), "position {rank}");
        assert_eq!(stored.rank(lend(&sorted[rank].key)).unwrap(), rank as u64);
    }
    for beyond in [all as u64, all as u64 + 1, u64::MAX] {
        assert_eq!(stored.nth(beyond).unwrap(), None);
    }
    for (below, above) in [("", "zz"), ("0", "\u{10ffff}")] {
        assert_eq!(stored.rank(below).unwrap(), 0);
        assert_eq!(stored.rank((below, "2013", 1, "JFK")).unwrap(), 0);
        assert_eq!(stored.rank(above).unwrap(), all as u64);
        assert_eq!(stored.rank((above, "2013", 1, "JFK")).unwrap(), all as u64);
    }
    for _ in 0..5_000 {
        let (a, b) = (draw.key(sorted), draw.key(sorted));
        let (from, to) = if a < b { (&a, &b) } else { (&b, &a) };
        let (from_rank, to_rank) = (oracle.rank(from), oracle.rank(to));
        assert_eq!(stored.rank(lend(from)).unwrap(), from_rank as u64, "{from:?}");
        oracle.check_range(&stored, Span::between(lend(from), lend(to)).unwrap(), from_rank, to_rank);
        oracle.check_range(&stored, Span::from(lend(from)).unwrap(), from_rank, all);
        oracle.check_range(&stored, Span::to(lend(to)).unwrap(), 0, to_rank);
        let (carrier, hour) = (a.0.as_str(), a.1.as_str());
        let start = sorted.partition_point(|flight| flight.key.0.as_str() < carrier);
        let end = sorted.partition_point(|flight| flight.key.0.as_str() <= carrier);
        assert_eq!(stored.rank(carrier).unwrap(), start as u64);
        oracle.check_range(&stored, Span::prefix(carrier).unwrap(), start, end);
        let of_hour = |flight: &Flight| (flight.key.0.as_str(), flight.key.1.as_str()).cmp(&(carrier, hour));
        let start = sorted.partition_point(|flight| of_hour(flight).is_lt());
        let end = sorted.partition_point(|flight| of_hour(flight).is_le());
        oracle.check_range(&stored, Span::prefix((carrier, hour)).unwrap(), start, end);
    }
    oracle.check_range(&stored, Span::all(), 0, all);
}

fn load(path: &Path, flights: &[Flight]) -> Db {
    let db = Db::options().durability(Durability::Memory).open(path).unwrap();
    let key = ["carrier", "hour", "flight", "origin"];
    db.ensure(&Schema::new("flights").key(key).sum(["dep_delay", "distance"])).unwrap();
    for batch in flights.chunks(1_000) {
        let put = |tx: &mut Transaction<'_>| {
            let stored = tx.documents("flights");
            batch.iter().try_for_each(|flight| stored.put(flight.document()))
        };
        db.transact(put).unwrap();
    }
    db
}

#[test]
fn positions_and_ranks_of_all_flights_are_those_of_a_sort() {
    let seed = std::env::var("DURAMEN_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("flights.duramen");
    let flights = flights();
    assert_eq!(flights.len(), 336_776);
    let db = load(&path, &flights);
    let oracle = Oracle::new(flights);
    assert_eq!(oracle.distance_before.last(), Some(&350_217_607));
    assert_eq!(oracle.dep_delay_before.last(), Some(&4_152_200));
    compare(&db, &oracle, &mut draw);
    assert_eq!(db.stats().pages_read, 0, "not all of it was resident");
    db.close().unwrap();
    drop(db);
    for options in [Db::options(), Db::options().memory_bytes(LITTLE_MEMORY)] {
        let db = options.create(false).open(&path).unwrap();
        compare(&db, &oracle, &mut draw);
        assert!(db.stats().pages_read > 0, "nothing came from disk");
        assert!(db.check().unwrap().is_clean());
        db.close().unwrap();
    }
}
