//! Power cuts under a migration: whatever survives is every document once, of the old version or converted, as some commits in a
//! row left it; the migration goes on, and then views say what the documents say (D1, D2).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;

/// More than a step has, so that there is a middle to be cut in.
const DOCUMENTS: u64 = 700;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = city, value = amount, reduce = (Count, Sum)))]
struct Old {
    #[key]
    id: u64,
    city: String,
    amount: i64,
}

/// The same fields with another meaning: nothing but the version tells the documents apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(ByTown, key = city, value = amount, reduce = (Count, Sum)),
    view(ByAmount, key = (amount, id), unique)
)]
#[migrate_from(Old)]
struct New {
    #[key]
    id: u64,
    city: String,
    amount: i64,
}

impl From<Old> for New {
    fn from(old: Old) -> New {
        New { id: old.id, city: format!("{}!", old.city), amount: old.amount * 100 }
    }
}

type Orders = BTreeMap<u64, New>;

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

fn old(id: u64, dice: &mut Dice) -> Old {
    let amount = i64::try_from(dice.below(1_000)).unwrap();
    Old { id, city: format!("city {}", dice.below(5)), amount }
}

/// What was there after each commit, in the words of the new type, and how much was recorded when it was acknowledged.
struct Run {
    disk: MemDisk,
    begins: usize,
    states: Vec<(usize, Orders)>,
}

fn run(seed: u64) -> Run {
    let (disk, mut dice) = (MemDisk::new(seed), Dice::new(seed));
    let db = open(&disk).unwrap();
    let documents: Vec<Old> = (0..DOCUMENTS).map(|id| old(id, &mut dice)).collect();
    db.transact(|tx| documents.iter().try_for_each(|document| tx.put(document))).unwrap();
    db.close().unwrap();
    drop(db);
    disk.record();
    let begins = disk.recorded_len();
    let mut model: Orders = documents.into_iter().map(|old| (old.id, New::from(old))).collect();
    let mut states = vec![(begins, model.clone())];
    for _ in 0..3 {
        let db = open(&disk).unwrap();
        // A step, then writers, then an end in the middle of it.
        let stopped = db.migrate::<New>(|_| {
            for _ in 0..3 {
                change(&db, &mut model, &mut dice);
                states.push((disk.recorded_len(), model.clone()));
            }
            Err(Error::invalid("stopped after a step"))
        });
        assert!(stopped.is_err());
        db.close().unwrap();
    }
    let db = open(&disk).unwrap();
    db.migrate::<New>(|_| Ok(())).unwrap();
    states.push((disk.recorded_len(), model));
    db.close().unwrap();
    Run { disk, begins, states }
}

fn change(db: &Db, model: &mut Orders, dice: &mut Dice) {
    let id = dice.below(DOCUMENTS + 20);
    if dice.below(4) == 0 {
        assert_eq!(db.delete::<New>(id).unwrap(), model.remove(&id).is_some());
    } else {
        let new = New::from(old(id, dice));
        db.put(&new).unwrap();
        model.insert(id, new);
    }
}

fn check_views(db: &Db, orders: &Orders, when: &str) {
    let mut towns: BTreeMap<String, (u64, i128)> = BTreeMap::new();
    for order in orders.values() {
        let town = towns.entry(order.city.clone()).or_default();
        *town = (town.0 + 1, town.1 + i128::from(order.amount));
    }
    let found: BTreeMap<_, _> = db.view::<ByTown>().group_by::<String>().unwrap().into_iter().collect();
    assert_eq!(found, towns, "{when}");
    assert_eq!(db.view::<ByAmount>().count().unwrap(), orders.len() as u64, "{when}");
}

/// Returns whether the cut left documents of both versions.
fn check_cut(run: &Run, at: usize, choice: &CrashChoice) -> bool {
    let when = format!("cut at operation {at}, {choice:?}");
    let image = run.disk.trace().crash_image(at, choice);
    let acknowledged = run.states.partition_point(|(recorded, _)| *recorded <= at).max(1) - 1;
    let db = open(&image).unwrap_or_else(|error| panic!("{when}: {error}"));
    let read = || -> Orders {
        let all: Vec<New> = db.collection::<New>().to_vec().unwrap();
        assert_eq!(all.len() as u64, db.collection::<New>().count().unwrap(), "{when}");
        all.into_iter().map(|order| (order.id, order)).collect()
    };
    let found = read();
    let is_state = run.states[acknowledged..].iter().any(|(_, state)| *state == found);
    assert!(is_state, "{when}: not what any {acknowledged} commits or more made");
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{when}: {report:?}");
    let migrating = db.collections().unwrap()[0].is_migrating();
    db.migrate::<New>(|_| Ok(())).unwrap();
    assert_eq!(read(), found, "{when}: a migration changes nothing");
    check_views(&db, &found, &when);
    let report = db.check_documents().unwrap();
    assert!(report.is_clean() && db.check().unwrap().is_clean(), "{when}: {report:?}");
    migrating
}

#[test]
fn a_migration_survives_power_cuts_and_goes_on() {
    let (mut cuts, mut halfway) = (0, 0);
    for seed in [1, 2] {
        println!("seed {seed}");
        let run = run(seed);
        let (mut dice, operations) = (Dice::new(seed), run.disk.recorded_len());
        for at in (run.begins..operations).step_by((operations - run.begins) / 60 + 1) {
            let choices =
                [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed: dice.below(u64::MAX) }];
            for choice in choices {
                cuts += 1;
                halfway += usize::from(check_cut(&run, at, &choice));
            }
        }
    }
    println!("{cuts} cuts, {halfway} of them in the middle of the migration");
    assert!(cuts > 150 && halfway > 50, "{cuts} cuts, {halfway} in the middle");
}
