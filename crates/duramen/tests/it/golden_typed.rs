//! Typed databases of every release are read by the types that wrote them, with all answers of their views
//! (D9).
//!
//! They are in `tests/golden/typed-N`, like those of golden.rs, and never change once committed. `typed-1`
//! has catalogue entries without the fields of documents, `typed-2` with them. Types that have changed since
//! read them too. `DURAMEN_WRITE_GOLDEN=1 cargo test -p duramen --test it golden_typed` writes missing ones.

use std::path::{Path, PathBuf};

use duramen::MemDisk;
use duramen::prelude::*;

use crate::golden::{load, open_db, store};

/// The directory that this build would write.
const NEWEST: &str = "typed-2";

const TOWNS: [&str; 3] = ["Bergen", "Oslo", "Tromsø"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(ByTown, key = (town, placed), value = cents, reduce = (Count, Sum, Min, Max)),
    view(ByTag, key = tags, each, reduce = Sum(cents)),
    view(ByCode, key = code, unique),
)]
pub(crate) struct Order {
    #[key(assigned)]
    pub(crate) id: u64,
    pub(crate) town: String,
    pub(crate) placed: Time,
    pub(crate) cents: i64,
    pub(crate) tags: Vec<String>,
    pub(crate) code: Option<String>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) product: String,
    pub(crate) price: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "readings", positional, view(ByLevel, key = level, value = level, reduce = (Count, Max)))]
pub(crate) struct Reading {
    #[key]
    pub(crate) station: String,
    #[key]
    pub(crate) at: Time,
    pub(crate) level: Option<i32>,
    pub(crate) ok: bool,
}

fn at(n: u64) -> Time {
    Time::new(i64::try_from(n).unwrap() * 3_600, 0).unwrap()
}

fn town(n: u64) -> String {
    TOWNS[usize::try_from(n % 3).unwrap()].to_owned()
}

pub(crate) fn order(id: u64) -> Order {
    Order {
        id,
        town: town(id),
        placed: at(id / 7),
        cents: i64::try_from(id).unwrap() * 31 - 900,
        tags: (0..id % 3).map(|tag| format!("tag {}", (id + tag) % 5)).collect(),
        code: id.is_multiple_of(4).then(|| format!("C{id:05}")),
        lines: (0..id % 2)
            .map(|line| Line { product: format!("part {line}"), price: id as f64 / 4.0 })
            .collect(),
    }
}

pub(crate) fn reading(n: u64) -> Reading {
    let level = (!n.is_multiple_of(5)).then(|| i32::try_from(n).unwrap() - 40);
    Reading { station: town(n), at: at(n), level, ok: !n.is_multiple_of(9) }
}

/// The ids of orders that were pushed and not deleted.
pub(crate) fn ids() -> impl Iterator<Item = u64> {
    (1..=200).filter(|id| id % 10 != 3)
}

/// Makes a database as a program would that is closed, continues and is killed.
fn make() -> [(&'static str, MemDisk); 2] {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    for id in 1..=150 {
        assert_eq!(db.push(Order { id: 0, ..order(id) }).unwrap().id, id);
    }
    for n in 0..100 {
        db.put(&reading(n)).unwrap();
    }
    finish(&db);
    db.close().unwrap();
    drop(db);
    let closed = disk.deep_clone();
    let db = open_db(&disk, false);
    db.transact(|tx| (0..100).step_by(3).try_for_each(|n| tx.put(&reading(n)))).unwrap();
    let killed = disk.deep_clone();
    [("closed", closed), ("killed", killed)]
}

/// The work left after the first hundred and fifty ids: the last ids may begin anywhere after those.
fn finish(db: &Db) {
    db.transact(|tx| {
        (151..=200).try_for_each(|id| tx.put(&order(id)))?;
        (1..=200).filter(|id| id % 10 == 3).try_for_each(|id| tx.delete::<Order>(id).map(drop))
    })
    .unwrap();
}

/// Every golden database there is.
pub(crate) fn all() -> Vec<(String, MemDisk)> {
    let golden = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"));
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.join(NEWEST).exists() {
        make().iter().for_each(|(name, disk)| store(disk, &golden.join(NEWEST).join(name)));
    }
    let mut found = Vec::new();
    for directory in ["typed-1", "typed-2"] {
        for name in ["closed", "killed"] {
            found.push((format!("{directory}/{name}"), load(&golden.join(directory).join(name))));
        }
    }
    found
}

/// Documents and views hold what was stored.
pub(crate) fn verify(db: &Db) {
    let orders: Vec<Order> = ids().map(order).collect();
    assert_eq!(db.collection::<Order>().to_vec().unwrap(), orders);
    let oslo = || orders.iter().filter(|order| order.town == "Oslo").map(|order| order.cents);
    let found = db.view::<ByTown>().prefix("Oslo").reduce().unwrap();
    let sum = oslo().map(i128::from).sum::<i128>();
    assert_eq!(found, (oslo().count() as u64, sum, oslo().min(), oslo().max()));
    for tag in 0..5 {
        let tag = format!("tag {tag}");
        let of_tag = orders.iter().filter(|order| order.tags.contains(&tag));
        let sum = of_tag.map(|order| i128::from(order.cents)).sum::<i128>();
        assert_eq!(db.view::<ByTag>().key(&tag).reduce().unwrap(), sum);
    }
    let codes = orders.iter().filter_map(|order| order.code.clone());
    assert!(db.view::<ByCode>().iter().unwrap().map(|row| row.unwrap().key).eq(codes));
    verify_readings(db);
    assert!(db.check().unwrap().is_clean());
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
}

fn verify_readings(db: &Db) {
    let mut readings: Vec<Reading> = (0..100).map(reading).collect();
    readings.sort_by(|a, b| (&a.station, a.at).cmp(&(&b.station, b.at)));
    assert_eq!(db.collection::<Reading>().to_vec().unwrap(), readings);
    let levels = || readings.iter().filter_map(|reading| reading.level);
    let found = db.view::<ByLevel>().reduce().unwrap();
    assert_eq!(found, (levels().count() as u64, levels().max()));
    let shown = db.documents("readings").get(("Oslo", at(1))).unwrap().unwrap();
    assert_eq!(shown.get("level"), Some(&Value::Int(-39)));
}

#[test]
fn typed_databases_are_read_by_the_types_that_wrote_them() {
    for (name, disk) in all() {
        println!("{name}");
        verify(&open_db(&disk, true));
        let db = open_db(&disk, false);
        verify(&db);
        let pushed = db.push(Order { id: 0, code: None, ..order(7) }).unwrap();
        assert!(pushed.id > 200, "{} was given before", pushed.id);
        assert!(db.delete::<Order>(pushed.id).unwrap());
        db.put(&reading(50)).unwrap();
        db.close().unwrap();
        drop(db);
        verify(&open_db(&disk, true));
    }
}

/// Databases that this build makes have the same contents.
#[test]
fn typed_databases_made_now_hold_the_same() {
    for (_, disk) in make() {
        verify(&open_db(&disk, true));
    }
    assert!(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(NEWEST).exists());
}

/// The types as a later release of the program might have them: with a field more, a field less, and another
/// name.
mod later {
    use duramen::prelude::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByPlace, key = place, value = cents, reduce = Sum))]
    pub(super) struct Order {
        #[key(assigned)]
        pub(super) id: u64,
        #[serde(alias = "town")]
        pub(super) place: String,
        pub(super) cents: i64,
        #[serde(default)]
        pub(super) paid: bool,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", positional, view(ByValue, key = value))]
    pub(super) struct Reading {
        #[key]
        pub(super) station: String,
        #[key]
        pub(super) at: Time,
        #[serde(alias = "level")]
        pub(super) value: Option<i64>,
        pub(super) ok: bool,
        #[serde(default)]
        pub(super) unit: Option<String>,
    }
}

#[test]
fn types_with_other_fields_read_them() {
    for (name, disk) in all() {
        println!("{name}");
        let db = open_db(&disk, false);
        let read: later::Order = db.get(5).unwrap().unwrap();
        assert_eq!(read, later::Order { id: 5, place: town(5), cents: order(5).cents, paid: false });
        db.put(&later::Order { id: 5, paid: true, ..read }).unwrap();
        db.put(&later::Reading { station: "Alta".into(), at: at(1), value: Some(-39), ok: true, unit: None })
            .unwrap();
        db.build_views::<later::Order>(|_| Ok(())).unwrap();
        db.build_views::<later::Reading>(|_| Ok(())).unwrap();
        let oslo: i128 =
            ids().map(order).filter(|order| order.town == "Oslo").map(|order| i128::from(order.cents)).sum();
        assert_eq!(db.view::<later::ByPlace>().key("Oslo").reduce().unwrap(), oslo);
        let stations = db.view::<later::ByValue>().key(-39).docs().unwrap();
        assert_eq!(stations.iter().map(|found| &found.station[..]).collect::<Vec<_>>(), ["Alta", "Oslo"]);
        assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new(), "{name}");
    }
}

/// A later release of the program that needs a conversion.
mod converted {
    use duramen::prelude::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByTown, key = town, value = amount, reduce = (Count, Max)))]
    #[migrate_from(super::Order)]
    pub(super) struct Order {
        #[key(assigned)]
        pub(super) id: u64,
        pub(super) town: String,
        pub(super) amount: String,
    }

    impl From<super::Order> for Order {
        fn from(old: super::Order) -> Order {
            Order { id: old.id, town: old.town, amount: format!("{:06}", old.cents + 900) }
        }
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "readings", view(ByLevel, key = level))]
    #[migrate_from(super::Reading)]
    pub(super) struct Reading {
        #[key]
        pub(super) station: String,
        #[key]
        pub(super) at: Time,
        pub(super) level: i64,
    }

    impl From<super::Reading> for Reading {
        fn from(old: super::Reading) -> Reading {
            Reading { station: old.station, at: old.at, level: old.level.map_or(-1_000, i64::from) }
        }
    }
}

#[test]
fn types_that_migrate_read_and_convert_them() {
    for (name, disk) in all() {
        println!("{name}");
        let db = open_db(&disk, false);
        let orders: Vec<converted::Order> = ids().map(|id| order(id).into()).collect();
        assert_eq!(db.collection::<converted::Order>().to_vec().unwrap(), orders);
        db.migrate::<converted::Order>(|_| Ok(())).unwrap();
        db.migrate::<converted::Reading>(|_| Ok(())).unwrap();
        assert_eq!(db.collection::<converted::Order>().to_vec().unwrap(), orders);
        let oslo = || orders.iter().filter(|order| order.town == "Oslo").map(|order| order.amount.clone());
        let found = db.view::<converted::ByTown>().key("Oslo").reduce().unwrap();
        assert_eq!(found, (oslo().count() as u64, oslo().max()));
        assert_eq!(db.view::<converted::ByLevel>().key(-1_000).count().unwrap(), 20);
        let pushed = db.push(converted::Order { id: 0, town: String::new(), amount: String::new() }).unwrap();
        assert!(pushed.id > 200, "{} was given before", pushed.id);
        assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new(), "{name}");
        assert!(db.check().unwrap().is_clean());
        let error = db.get::<Order>(1).unwrap_err();
        assert!(error.message().contains("of version 2"), "{error}");
    }
}
