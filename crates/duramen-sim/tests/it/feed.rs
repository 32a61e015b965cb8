//! Power cuts under a consumer of the change feed, documents and views (D1, D2).
//!
//! After any cut the consumer goes on where its own transactions ended. Each change has had its effect once,
//! in order, and no change was returned that a cut took back.

use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::{AnyChange, Change, Changed, CommitSeq, Consumer, Origin};
use duramen_disk::MemDisk;
use duramen_disk::memory::CrashChoice;
use duramen_engine::Background;
use duramen_sim::contents::Dice;
use duramen_sim::search::shapes::GEOMETRY;
use duramen_sim::seeds;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = city, value = cents, reduce = (Count, Sum)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    /// Sometimes too large for a leaf.
    note: String,
}

/// The consumer's output: one document for each change, under its index among all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "seen")]
struct Seen {
    #[key]
    place: u64,
    seq: u64,
    what: String,
}

/// A transaction: its sequence, the length of the recording when it was acknowledged, and its changes.
struct Done {
    seq: u64,
    recorded: usize,
    changes: Vec<String>,
}

struct Run {
    disk: MemDisk,
    done: Vec<Done>,
    began_at: usize,
}

fn open(disk: &MemDisk) -> Result<Db> {
    let options = Db::options().engine(|options| {
        options.geometry = GEOMETRY;
        options.background = Background::Stepped;
        // Files of 4 KiB: many are begun and removed.
        options.feed_bytes_max = 32 * 1024;
    });
    options.open_on(Arc::new(disk.clone()), Path::new("/db"))
}

fn told(change: &Change<Order>) -> String {
    match &change.what {
        Changed::Put(order) => format!("put {} {} {}", order.id, order.cents, order.note.len()),
        Changed::Deleted(id) => format!("delete {id}"),
        Changed::Dropped => "drop".to_owned(),
    }
}

/// Handles the available changes, at most so many batches.
fn work(consumer: &Consumer, batches: usize) -> Result<usize> {
    let mut consuming = consumer.read::<Change<Order>>()?.batch(3);
    let mut count = 0;
    for _ in 0..batches {
        let handled = consuming.step(|tx, changes| {
            let first = tx.collection::<Seen>().count()?;
            for (place, change) in (first..).zip(changes) {
                tx.insert(&Seen { place, seq: change.seq.0, what: told(change) })?;
            }
            Ok(())
        })?;
        if handled == 0 {
            break;
        }
        count += handled;
    }
    Ok(count)
}

fn commit(db: &Db, dice: &mut Dice) -> (u64, Vec<String>) {
    let mut changes = Vec::new();
    let count = 1 + dice.below(3);
    let orders: Vec<(u64, bool, Order)> = (0..count)
        .map(|_| {
            let note = if dice.below(4) == 0 { "n".repeat(700) } else { "n".repeat(dice.index(40)) };
            let cents = i64::try_from(dice.below(1000)).unwrap();
            let id = dice.below(12);
            (id, dice.below(4) == 0, Order { id, city: format!("city {}", dice.below(3)), cents, note })
        })
        .collect();
    let receipt = db
        .write(|tx| {
            changes.clear();
            // Only the newest write to each key counts, and the changes of a commit come in key order.
            let mut last = std::collections::BTreeMap::new();
            for (id, deletes, order) in &orders {
                let is_there = tx.get::<Order>(*id)?.is_some();
                if *deletes && is_there {
                    tx.delete::<Order>(*id)?;
                    last.insert(*id, format!("delete {id}"));
                } else if !deletes {
                    tx.put(order)?;
                    last.insert(*id, format!("put {} {} {}", order.id, order.cents, order.note.len()));
                }
            }
            changes.extend(last.into_values());
            Ok(())
        })
        .unwrap();
    (receipt.seq().0, changes)
}

fn run(seed: u64) -> Run {
    let (disk, mut dice) = (MemDisk::new(seed), Dice::new(seed));
    disk.record();
    let mut db = open(&disk).unwrap();
    let mut consumer = db.consumer("mirror").register().unwrap();
    db.consumer("audit").from_oldest().register().unwrap();
    let began_at = disk.recorded_len();
    let mut done = Vec::new();
    for round in 0..5 {
        for n in 0..8 {
            let (seq, changes) = commit(&db, &mut dice);
            done.push(Done { seq, recorded: disk.recorded_len(), changes });
            if n % 4 == 3 && round != 2 {
                work(&consumer, 2).unwrap();
            }
        }
        db.close().unwrap();
        drop((db, consumer));
        db = open(&disk).unwrap();
        consumer = db.consumer("mirror").register().unwrap();
    }
    Run { disk, done, began_at }
}

/// The lines that the feed must return for these transactions.
fn lines(done: &[Done]) -> Vec<(u64, String)> {
    done.iter().flat_map(|done| done.changes.iter().map(|what| (done.seq, what.clone()))).collect()
}

fn check_cut(run: &Run, at: usize, choice: &CrashChoice) -> usize {
    let when = format!("cut at operation {at}, {choice:?}");
    let image = run.disk.trace().crash_image(at, choice);
    let db = open(&image).unwrap_or_else(|error| panic!("{when}: {error}"));
    let newest = db.feed().newest.0;
    let acknowledged = run.done.partition_point(|done| done.recorded <= at);
    let there = run.done.partition_point(|done| done.seq <= newest);
    assert!(there >= acknowledged, "{when}: {acknowledged} were acknowledged, {there} are there");
    let wanted = lines(&run.done[..there]);
    let consumer = db.consumer("mirror").register().unwrap();
    let before = db.collection::<Seen>().count().unwrap();
    let handled = work(&consumer, usize::MAX).unwrap_or_else(|error| panic!("{when}: {error}"));
    let seen = db.collection::<Seen>().to_vec().unwrap();
    assert_eq!(before + handled as u64, seen.len() as u64, "{when}");
    let found: Vec<_> = seen.into_iter().map(|seen| (seen.seq, seen.what)).collect();
    assert_eq!(found, wanted, "{when}: the consumer's work");
    check_audit(&db, &wanted, newest, &when);
    assert!(db.check().unwrap().is_clean(), "{when}: {:?}", db.check().unwrap().problems);
    handled
}

/// A consumer that has read nothing yet gets everything, from files and from the log.
fn check_audit(db: &Db, wanted: &[(u64, String)], newest: u64, when: &str) {
    let audit = db.consumers().unwrap().into_iter().find(|consumer| consumer.name == "audit");
    let position = audit.expect("it was registered").position;
    let mut found = Vec::new();
    let mut last = CommitSeq(0);
    for change in db.all_changes().since(position) {
        let change: AnyChange = change.unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(change.seq >= last, "{when}: in order");
        last = change.seq;
        if change.origin != Origin::Collection("orders".to_owned()) || change.seq.0 > newest {
            continue;
        }
        let Some(_) = change.key() else { continue };
        let [Element::Int(id)] = change.key_elements().unwrap()[..] else { panic!("{when}: another key") };
        let what = match change.document().unwrap() {
            Some(order) => {
                let number = |name: &str| match order.get(name) {
                    Some(Value::Int(number)) => *number,
                    other => panic!("{when}: {name} is {other:?}"),
                };
                let Some(Value::Text(note)) = order.get("note") else { panic!("{when}: no note") };
                format!("put {} {} {}", number("id"), number("cents"), note.len())
            }
            None => format!("delete {id}"),
        };
        found.push((change.seq.0, what));
    }
    assert_eq!(found, wanted, "{when}: the audit");
}

#[test]
fn a_consumers_work_survives_power_cuts_exactly_once_and_in_order() {
    let (mut cuts, mut handled, mut files) = (0, 0, 0);
    let fresh = seeds::of_this_commit("feed", 1);
    for seed in [1, 2].into_iter().chain(fresh.range) {
        println!("seed {seed}");
        let run = run(seed);
        files += run.disk.files().iter().filter(|path| path.starts_with("/db/feed")).count();
        let operations = run.disk.recorded_len();
        let mut dice = Dice::new(seed);
        for at in (run.began_at..operations).step_by((operations - run.began_at) / 120 + 1) {
            let random = CrashChoice::Random { seed: dice.below(u64::MAX) };
            for choice in [CrashChoice::None, CrashChoice::All, random] {
                cuts += 1;
                handled += usize::from(check_cut(&run, at, &choice) > 0);
            }
        }
    }
    println!("{cuts} cuts, {handled} with work left to do, {files} retained files at the end");
    assert!(cuts > 500 && handled > 300 && files > 3, "{cuts} cuts, {handled} with work left, {files} files");
}
