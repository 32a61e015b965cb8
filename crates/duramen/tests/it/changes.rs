//! The change feed as programs see it: typed and untyped, followed, and handled by consumers with a stored
//! position.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::{AnyChange, AnyChanged, Change, Changed, Code, CommitSeq, ErrorKind, MemDisk, Origin};
use duramen_disk::memory::{CallKind, Effect, Fault, FaultPlan, SyncGate};
use duramen_engine::Background;

use crate::asynchronous::block_on;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = city, reduce = Count))]
struct Order {
    #[key]
    id: u64,
    city: String,
}

/// The same collection, as a later program declares it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Priced {
    #[key]
    id: u64,
    city: String,
    cents: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "points", positional)]
struct Point {
    #[key]
    id: u64,
    x: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "mails")]
struct Mail {
    #[key]
    order: u64,
    times: u64,
}

fn order(id: u64, city: &str) -> Order {
    Order { id, city: city.to_owned() }
}

fn open(disk: &MemDisk) -> Db {
    Db::options().open_on(Arc::new(disk.clone()), "/db").unwrap()
}

fn what(change: Result<Change<Order>>) -> String {
    match change.unwrap().what {
        Changed::Put(order) => format!("{} {}", order.id, order.city),
        Changed::Deleted(id) => format!("{id} gone"),
        Changed::Dropped => "dropped".to_owned(),
    }
}

/// A mirror of a collection needs every put, delete and drop, in order, from any point on, and nothing of
/// other collections.
#[test]
fn changes_of_a_type_come_once_and_in_order_from_any_point() {
    let disk = MemDisk::new(1);
    let mut db = open(&disk);
    let keeper = db.consumer("keeper").register().unwrap();
    let start = keeper.position().unwrap();
    drop(keeper);
    let mut seqs = vec![start];
    for id in 1..=3 {
        seqs.push(db.write(|tx| tx.put(&order(id, "Oslo"))).unwrap().seq());
        db.put(&Point { id, x: 5 }).unwrap();
        // Once from the log, and once from files.
        db.close().unwrap();
        drop(db);
        db = open(&disk);
    }
    let both = db.write(|tx| {
        tx.delete::<Order>(1)?;
        tx.put(&order(2, "Bergen"))
    });
    seqs.push(both.unwrap().seq());
    let all = ["1 Oslo", "2 Oslo", "3 Oslo", "1 gone", "2 Bergen"];
    for (index, seq) in seqs.iter().enumerate() {
        let from = if index == 4 { 5 } else { index };
        let found: Vec<_> = db.changes::<Order>().since(*seq).map(what).collect();
        assert_eq!(found, all[from..], "since {seq}");
    }
    let mut changes = db.changes::<Order>().since(seqs[3]);
    let both: Vec<_> = changes.by_ref().map(|change| change.unwrap().seq).collect();
    assert_eq!(both, [seqs[4], seqs[4]], "what one commit did has one sequence");
    // An iterator that has ended continues when there is more.
    db.transact(|tx| tx.drop_collection("orders")).unwrap();
    assert_eq!(changes.map(what).collect::<Vec<_>>(), ["dropped"]);
}

/// Tools see everything that programs store, and no derived data.
#[test]
fn all_changes_tell_documents_and_bytes_and_leave_out_what_is_derived() {
    let db = Db::in_memory().unwrap();
    let from = db.feed().newest;
    db.put(&order(7, "Oslo")).unwrap();
    db.put(&Point { id: 1, x: -3 }).unwrap();
    db.write(|tx| tx.put_bytes("photos", b"a", b"jpeg")).unwrap();
    db.write(|tx| tx.delete_bytes("photos", b"a").map(drop)).unwrap();
    let all: Vec<AnyChange> = db.all_changes().since(from).map(Result::unwrap).collect();
    let lines: Vec<String> = all
        .iter()
        .map(|change| {
            let what = match &change.what {
                AnyChanged::Created => "created",
                AnyChanged::Dropped => "dropped",
                AnyChanged::Put { .. } => "put",
                AnyChanged::Deleted { .. } => "deleted",
            };
            format!("{} {what}", change.origin.name())
        })
        .collect();
    let expected = [
        "orders created",
        "orders put",
        "points created",
        "points put",
        "photos created",
        "photos put",
        "photos deleted",
    ];
    assert_eq!(lines, expected);
    let put = &all[1];
    assert_eq!(put.document().unwrap().unwrap().get("city"), Some(&Value::from("Oslo")));
    assert_eq!(put.key_elements().unwrap(), [Element::Int(7)]);
    assert_eq!(put.origin, Origin::Collection("orders".to_owned()));
    assert_eq!(
        all[3].document().unwrap().unwrap().get("x"),
        Some(&Value::from(-3)),
        "positional ones get their names"
    );
    assert_eq!(all[5].document().unwrap(), None);
    assert!(all.windows(2).all(|pair| pair[0].time <= pair[1].time && pair[0].seq <= pair[1].seq));
}

/// A document of an older type must not stop the feed for ever.
#[test]
fn a_change_that_does_not_read_is_an_error_that_names_it_and_can_be_passed() {
    let db = Db::in_memory().unwrap();
    let from = db.put(&Priced { id: 3, city: "Bodø".into(), cents: 1 }).unwrap().seq();
    // A tool may leave out a field that the type wants.
    db.documents("orders").put(doc! { "id": 1, "city": "Oslo" }).unwrap();
    db.put(&Priced { id: 2, city: "Voss".into(), cents: 5 }).unwrap();
    let mut changes = db.changes::<Priced>().since(from);
    let error = changes.next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    assert!(error.message().contains("orders") && error.message().contains('1'), "{error}");
    assert_eq!(changes.next().unwrap().unwrap().key(), Some(2));
    assert!(changes.next().is_none());
    let consumer = db.consumer("prices").after(from).register().unwrap();
    for _ in 0..2 {
        let error = consumer.read::<Change<Priced>>().unwrap().run(|_, _| Ok(())).unwrap_err();
        assert_eq!(error.code(), Code::Unreadable, "{error}");
    }
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passed);
    let mut consuming = consumer.read::<Change<Priced>>().unwrap().skip_unreadable(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(consuming.run(|_, _| Ok(())).unwrap(), 1);
    assert_eq!(passed.load(Ordering::Relaxed), 1);
}

/// A sound change whose names cannot be read for a moment must not be skipped: it would be lost for good.
#[test]
fn a_change_that_a_passing_failure_hides_is_not_passed_over() {
    let disk = MemDisk::new(22);
    let open = || {
        let options = Db::options().engine(|options| options.background = Background::Stepped);
        options.open_on(Arc::new(disk.clone()), "/db").unwrap()
    };
    let db = open();
    db.consumer("mirror").register().unwrap();
    db.put(&Point { id: 1, x: 5 }).unwrap();
    db.checkpoint_with(&mut || ()).unwrap();
    // Opened without a hot-page list, so nothing of the catalogue is in memory.
    db.abandon();
    let db = open();
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    let mirror = db.consumer("mirror").register().unwrap();
    let mut consuming = mirror
        .read::<AnyChange>()
        .unwrap()
        .skip_unreadable(move |error| noted.lock().unwrap().push(error.clone()));
    disk.set_faults(Fault::new(CallKind::Read, 0, Effect::EIO).on("data").for_good());
    let failed = consuming.step(|_, _| Ok(())).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
    disk.set_faults(FaultPlan::none());
    let mut seen = Vec::new();
    let read = consuming.run(|_, changes| {
        seen.extend(changes.iter().filter_map(|change| change.document().unwrap()));
        Ok(())
    });
    assert_eq!((read.unwrap(), seen), (2, vec![doc! { "id": 1, "x": 5 }]));
    assert!(told.lock().unwrap().is_empty());
}

/// An undecodable change must not prevent earlier changes from being handled, however often it is met.
#[test]
fn what_comes_before_an_unreadable_change_is_handled() {
    let db = Db::in_memory().unwrap();
    let from = db.put(&Priced { id: 1, city: "Oslo".into(), cents: 1 }).unwrap().seq();
    let last_good = db.put(&Priced { id: 2, city: "Voss".into(), cents: 5 }).unwrap().seq();
    db.documents("orders").put(doc! { "id": 3, "city": "Bergen" }).unwrap();
    let consumer = db.consumer("prices").after(from).register().unwrap();
    let mut consuming = consumer.read::<Change<Priced>>().unwrap();
    let mut handled = Vec::new();
    for _ in 0..3 {
        let error = consuming
            .run(|_, changes| {
                handled.extend(changes.iter().filter_map(Change::key));
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.code(), Code::Unreadable, "{error}");
    }
    assert_eq!(handled, [2]);
    assert_eq!(consumer.position().unwrap(), last_good);
}

// A program that polls and never waits would otherwise poll for ever.
#[test]
fn who_polls_hears_that_nothing_will_come_any_more() {
    let disk = MemDisk::new(21);
    let db = Db::options().background(false).open_on(Arc::new(disk.clone()), "/db").unwrap();
    let mut changes = db.changes::<Priced>().from_now();
    db.put(&Priced { id: 1, city: "Oslo".into(), cents: 1 }).unwrap();
    assert_eq!(changes.next().unwrap().unwrap().key(), Some(1));
    assert!(changes.next().is_none());
    disk.set_faults(Fault::new(CallKind::Sync, 0, Effect::EIO).on("wal"));
    db.put(&Priced { id: 2, city: "Voss".into(), cents: 1 }).unwrap_err();
    let error = changes.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    assert!(changes.next().is_none());
}

fn send(tx: &mut Transaction<'_>, changes: &[Change<Order>]) -> Result<()> {
    for order in changes.iter().filter_map(Change::document) {
        let times = tx.get::<Mail>(order.id)?.map_or(0, |mail| mail.times);
        tx.put(&Mail { order: order.id, times: times + 1 })?;
    }
    Ok(())
}

/// The work and the position are one transaction: a failed batch is delivered again, and none twice.
#[test]
fn a_consumer_handles_each_change_once_whatever_fails_between() {
    let disk = MemDisk::new(2);
    let mut db = open(&disk);
    let mailer = db.consumer("mailer").register().unwrap();
    for id in 0..10 {
        db.put(&order(id, "Oslo")).unwrap();
    }
    let mut consuming = mailer.read::<Change<Order>>().unwrap().batch(4);
    assert_eq!(consuming.step(send).unwrap(), 4);
    let failed = consuming.step(|tx, changes| {
        send(tx, changes)?;
        Err(Error::invalid("the mail server is away"))
    });
    assert!(failed.is_err());
    assert_eq!(consuming.step(send).unwrap(), 4);
    let position = mailer.position().unwrap();
    drop((consuming, mailer));
    db.close().unwrap();
    drop(db);
    db = open(&disk);
    let mailer = db.consumer("mailer").from_oldest().register().unwrap();
    assert_eq!(mailer.position().unwrap(), position, "who is registered stays where it is");
    assert_eq!(mailer.read::<Change<Order>>().unwrap().run(send).unwrap(), 2);
    assert_eq!(mailer.read::<Change<Order>>().unwrap().run(send).unwrap(), 0);
    let mails = db.collection::<Mail>().to_vec().unwrap();
    assert_eq!(mails, (0..10).map(|order| Mail { order, times: 1 }).collect::<Vec<_>>());
}

/// The changes of one commit must not be half handled.
#[test]
fn the_changes_of_a_commit_are_handed_over_together() {
    let db = Db::in_memory().unwrap();
    let consumer = db.consumer("all").register().unwrap();
    for round in 0..3u64 {
        db.write(|tx| (0..5).try_for_each(|id| tx.put(&order(round * 5 + id, "Oslo")))).unwrap();
    }
    let mut sizes = Vec::new();
    let mut consuming = consumer.read::<Change<Order>>().unwrap().batch(6);
    consuming
        .run(|_, changes| {
            sizes.push(changes.len());
            Ok(())
        })
        .unwrap();
    assert_eq!(sizes, [10, 5]);
}

/// If two programs run the same consumer, only one may do the work.
#[test]
fn an_overtaken_consumer_gets_an_error_and_goes_on_after_the_other() {
    let db = Db::in_memory().unwrap();
    let consumer = db.consumer("mailer").register().unwrap();
    db.put(&order(1, "Oslo")).unwrap();
    let mut slow = consumer.read::<Change<Order>>().unwrap();
    assert_eq!(consumer.read::<Change<Order>>().unwrap().run(send).unwrap(), 1);
    assert_eq!(slow.step(send).unwrap_err().code(), Code::WriteConflict);
    db.put(&order(2, "Oslo")).unwrap();
    assert_eq!(slow.run(send).unwrap(), 1);
    assert!(db.collection::<Mail>().to_vec().unwrap().iter().all(|mail| mail.times == 1));
}

/// A consumer that was moved reads anew; a stopper handed out earlier must still stop it.
#[test]
fn a_stopper_outlives_being_overtaken() {
    let db = Db::in_memory().unwrap();
    let consumer = db.consumer("mailer").register().unwrap();
    db.put(&order(1, "Oslo")).unwrap();
    let mut slow = consumer.read::<Change<Order>>().unwrap();
    let stop = slow.stopper();
    assert_eq!(consumer.read::<Change<Order>>().unwrap().run(send).unwrap(), 1);
    assert_eq!(slow.step(send).unwrap_err().code(), Code::WriteConflict);
    stop.stop();
    assert_eq!(slow.follow(send).unwrap(), 0);
}

/// An operator must see which consumer keeps which changes, and be able to remove it.
#[test]
fn consumers_are_listed_moved_and_forgotten() {
    let db = Db::in_memory().unwrap();
    let first = db.put(&order(1, "Oslo")).unwrap().seq();
    let consumer = db.consumer("mirror").after(first).refuse_writers().register().unwrap();
    let last = db.put(&order(2, "Oslo")).unwrap().seq();
    let listed = db.consumers().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].position), ("mirror", first));
    assert!(listed[0].refuses_writers && !listed[0].has_gap && listed[0].lag_commits > 0, "{listed:?}");
    consumer.seek(last).unwrap();
    assert_eq!(consumer.read::<Change<Order>>().unwrap().run(|_, _| Ok(())).unwrap(), 0);
    assert_eq!(consumer.seek(CommitSeq(last.0 + 1_000)).unwrap_err().code(), Code::FeedGap);
    let same = consumer.clone();
    assert!(consumer.unregister().unwrap());
    assert_eq!(same.position().unwrap_err().code(), Code::NoSuchKey);
    assert!(!same.unregister().unwrap());
    assert_eq!(db.consumers().unwrap(), []);
    assert!(db.consumer("").register().is_err());
}

/// At level `Memory` a call returns before a snapshot sees its commit, as long as a sync is in flight. A
/// consumer that was just registered or moved must still be found, at its new position.
#[test]
fn a_consumer_at_level_memory_reads_on_from_what_it_did_last() {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    let seqs: Vec<CommitSeq> =
        (1..=6).map(|id| db.write(|tx| tx.put(&order(id, "Oslo"))).unwrap().seq()).collect();
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    let (unseen, handled) = std::thread::scope(|scope| {
        scope.spawn(|| db.put(&order(7, "Oslo")).unwrap());
        gate.wait_blocked(1);
        let consumer = db.at(Durability::Memory).consumer("c").from_oldest().register();
        let unseen = consumer.clone().and_then(|consumer| consumer.position());
        let work = scope.spawn(|| -> Result<Vec<CommitSeq>> {
            let consumer = consumer?;
            consumer.seek(seqs[4])?;
            let mut handled = Vec::new();
            consumer.read::<Change<Order>>()?.step(|_, changes| {
                handled.extend(changes.iter().map(|change| change.seq));
                Ok(())
            })?;
            Ok(handled)
        });
        // It waits, or has ended with an error.
        for _ in 0..10_000 {
            if !work.is_finished() {
                std::thread::yield_now();
            }
        }
        gate.open();
        (unseen, work.join().expect("it does not panic"))
    });
    assert_eq!(unseen.unwrap_err().code(), Code::NoSuchKey, "no snapshot saw it yet");
    assert_eq!(handled.unwrap()[0], seqs[5]);
}

/// A consumer of one collection must not keep the changes of all others for ever.
#[test]
fn a_consumer_moves_on_over_what_is_not_for_it() {
    let db = Db::in_memory().unwrap();
    let consumer = db.consumer("mailer").register().unwrap();
    let before = consumer.position().unwrap();
    for id in 0..100 {
        db.put(&Point { id, x: 1 }).unwrap();
    }
    assert_eq!(consumer.read::<Change<Order>>().unwrap().run(send).unwrap(), 0);
    assert!(consumer.position().unwrap().0 >= before.0 + 100);
}

/// Following waits for commits, not for a clock, and ends when it is stopped or the database is closed.
#[test]
fn who_follows_is_woken_by_commits_and_ended_by_a_stop_or_a_close() {
    let db = Db::in_memory().unwrap();
    let changes = db.changes::<Order>().from_now().follow();
    let stop = changes.stopper();
    let consumer = db.consumer("mailer").register().unwrap();
    let mut consuming = consumer.read::<Change<Order>>().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| changes.take(3).map(what).collect::<Vec<_>>());
        let worker = scope.spawn(|| consuming.follow(send));
        for id in 1..=3 {
            db.put(&order(id, "Oslo")).unwrap();
        }
        assert_eq!(follower.join().unwrap(), ["1 Oslo", "2 Oslo", "3 Oslo"]);
        let mut waiting = db.changes::<Order>().from_now();
        let note = Arc::clone(&told);
        waiting.call_when_more(move || note.lock().unwrap().push("more"));
        db.put(&order(4, "Oslo")).unwrap();
        assert_eq!(waiting.next().map(what).as_deref(), Some("4 Oslo"));
        stop.stop();
        let other = db.changes::<Order>().from_now().follow();
        let ends = other.stopper();
        let ended = scope.spawn(|| other.count());
        ends.stop();
        assert_eq!(ended.join().unwrap(), 0);
        db.close().unwrap();
        let handled = worker.join().unwrap();
        assert!(handled.is_ok_and(|count| count <= 4), "a close ends it");
    });
    assert_eq!(*told.lock().unwrap(), ["more"]);
}

/// A reader that falls too far behind gets one error, with the position to continue from.
#[test]
fn a_gap_is_the_first_item_and_the_last() {
    let disk = MemDisk::new(3);
    let db = open(&disk);
    db.put(&order(1, "Oslo")).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(&disk);
    let mut changes = db.changes::<Order>().since(CommitSeq(0));
    let error = changes.next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::FeedGap);
    assert!(error.hint().contains(&db.feed().oldest.to_string()), "{}", error.hint());
    assert!(changes.next().is_none() && changes.is_at_end());
    let kept = MemDisk::new(4);
    let retaining =
        || Db::options().feed_retain_bytes(1 << 20).open_on(Arc::new(kept.clone()), "/db").unwrap();
    let db = retaining();
    db.put(&order(1, "Oslo")).unwrap();
    db.close().unwrap();
    drop(db);
    let found: Vec<_> = retaining().changes::<Order>().since(CommitSeq(0)).map(what).collect();
    assert_eq!(found, ["1 Oslo"], "what was to be retained is there");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "priced")]
struct OldPrice {
    #[key]
    id: u64,
    euros: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "priced")]
#[migrate_from(OldPrice)]
struct Price {
    #[key]
    id: u64,
    cents: i64,
}

impl From<OldPrice> for Price {
    fn from(old: OldPrice) -> Price {
        Price { id: old.id, cents: old.euros * 100 }
    }
}

// Changes from before and after a migration are of one collection: a reader meets both, by type and by name.
#[test]
fn changes_of_every_version_of_a_type_are_told() {
    let db = Db::in_memory().unwrap();
    let begin = db.put(&OldPrice { id: 1, euros: 3 }).unwrap().seq();
    db.put(&OldPrice { id: 2, euros: 4 }).unwrap();
    db.migrate::<Price>(|_| Ok(())).unwrap();
    db.put(&Price { id: 2, cents: 5 }).unwrap();
    let of_two =
        |change: &Change<Price>| change.document().filter(|price| price.id == 2).map(|price| price.cents);
    let typed: Vec<i64> =
        db.changes::<Price>().since(begin).map(Result::unwrap).filter_map(|change| of_two(&change)).collect();
    assert_eq!(typed, [400, 400, 5]);
    let any = db.all_changes().since(begin).map(Result::unwrap);
    let shown: Vec<String> = any
        .filter_map(|change| change.document().unwrap())
        .filter(|document| document.get("id") == Some(&2.into()))
        .map(|document| format!("{:?} {:?}", document.get("euros"), document.get("cents")))
        .collect();
    assert_eq!(shown, ["Some(Int(4)) None", "None Some(Int(400))", "None Some(Int(5))"]);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "points", positional)]
#[migrate_from(Point)]
struct Place {
    #[key]
    id: u64,
    east: i64,
    north: i64,
}

impl From<Point> for Place {
    fn from(old: Point) -> Place {
        Place { id: old.id, east: old.x, north: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "points", positional)]
#[migrate_from(Place)]
struct Spot {
    #[key]
    id: u64,
    name: String,
}

impl From<Place> for Spot {
    fn from(old: Place) -> Spot {
        Spot { id: old.id, name: format!("{} east", old.east) }
    }
}

// A consumer may read changes long after the last document of their version is gone: without their field
// names it could neither decode nor pass them.
#[test]
fn positional_changes_keep_their_names_after_the_migrations_that_ended_their_versions() {
    let disk = MemDisk::new(5);
    let db = open(&disk);
    let mirror = db.consumer("mirror").refuse_writers().register().unwrap();
    db.put(&Point { id: 1, x: 5 }).unwrap();
    db.migrate::<Place>(|_| Ok(())).unwrap();
    db.migrate::<Spot>(|_| Ok(())).unwrap();
    drop(mirror);
    db.close().unwrap();
    drop(db);

    let db = open(&disk);
    let mut seen = Vec::new();
    let read = |_: &mut Transaction<'_>, changes: &[AnyChange]| {
        seen.extend(changes.iter().filter_map(|change| change.document().unwrap()));
        Ok(())
    };
    db.consumer("mirror").register().unwrap().read::<AnyChange>().unwrap().run(read).unwrap();
    let shown: Vec<String> = seen.iter().map(|document| document.to_json().unwrap()).collect();
    assert_eq!(shown, [r#"{"id":1,"x":5}"#, r#"{"id":1,"east":5,"north":0}"#, r#"{"id":1,"name":"5 east"}"#]);
}

/// Another collection, whose documents lie under the same name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "points", positional)]
struct Pixel {
    #[key]
    id: u64,
    shade: i64,
}

// A positional document contains values only: with the fields of a later collection of the same name it would
// become another document.
#[test]
fn positional_changes_of_a_dropped_collection_take_no_names_from_another() {
    let db = Db::in_memory().unwrap();
    let from = db.feed().newest;
    db.put(&Point { id: 1, x: 5 }).unwrap();
    db.transact(|tx| tx.drop_collection("points")).unwrap();
    let shown = |db: &Db| -> Vec<String> {
        let told = db.all_changes().since(from).filter_map(|change| match change {
            Ok(change) => change.document().unwrap().map(|document| document.to_json().unwrap()),
            Err(error) => Some(format!("{:?}", error.code())),
        });
        told.collect()
    };
    assert_eq!(shown(&db), ["Unreadable"]);
    db.put(&Pixel { id: 2, shade: 7 }).unwrap();
    assert_eq!(shown(&db), ["Unreadable", r#"{"id":2,"shade":7}"#]);
}

/// Panics once, at this document.
static FUSE: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "fragile")]
struct Fragile {
    #[key]
    id: u64,
    fuse: Fuse,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fuse(u64);

impl<'de> Deserialize<'de> for Fuse {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Fuse, D::Error> {
        let id = u64::deserialize(deserializer)?;
        assert!(FUSE.compare_exchange(id, 0, Ordering::SeqCst, Ordering::SeqCst).is_err(), "the fuse burns");
        Ok(Fuse(id))
    }
}

/// The program's code runs while changes are read: where it panics, the changes that were read and never
/// handed over come again.
#[test]
fn a_panic_of_the_programs_code_passes_over_no_change() {
    let disk = MemDisk::new(23);
    let db = open(&disk);
    let consumer = db.consumer("mirror").register().unwrap();
    let from = consumer.position().unwrap();
    // Commits of three changes: the panic comes in the middle of one, after whole ones.
    for first in [1, 4, 7] {
        db.transact(|tx| (first..first + 3).try_for_each(|id| tx.put(&Fragile { id, fuse: Fuse(id) })))
            .unwrap();
    }
    let all: Vec<u64> = (1..10).collect();
    let check = |next: &mut dyn FnMut(&mut Vec<u64>) -> bool, what: &str| {
        let (mut found, mut panics) = (Vec::new(), 0);
        FUSE.store(5, Ordering::SeqCst);
        loop {
            match catch_unwind(AssertUnwindSafe(|| next(&mut found))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => panics += 1,
            }
        }
        assert_eq!((&found, panics), (&all, 1), "{what}");
    };

    let mut consuming = consumer.read::<Change<Fragile>>().unwrap();
    let handled = &mut |found: &mut Vec<u64>| {
        let step = consuming.step(|_, changes| {
            found.extend(changes.iter().filter_map(Change::key));
            Ok(())
        });
        step.unwrap() > 0
    };
    check(handled, "a consumer");

    let mut changes = db.changes::<Fragile>().since(from);
    let told = &mut |found: &mut Vec<u64>| {
        let next = changes.next().map(|change| change.unwrap().key().unwrap());
        found.extend(next);
        next.is_some()
    };
    check(told, "an iterator");

    let tasks = AsyncDb::with_threads(db.clone(), 1);
    let mut changes = tasks.changes::<Fragile>().since(from);
    let awaited = &mut |found: &mut Vec<u64>| {
        if found.len() == all.len() {
            return false;
        }
        found.push(block_on(changes.next()).unwrap().unwrap().key().unwrap());
        true
    };
    check(awaited, "an iterator that is awaited");
}
