//! Assigned ids: each is assigned once, in order, and not again after a restart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::{Disk, MemDisk};
use duramen_disk::memory::{CallKind, CrashChoice, Effect, Fault, SyncGate};
use duramen_engine::Background;

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Ticket {
    #[key(assigned)]
    id: u64,
    text: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Invoice {
    #[key(sequential)]
    number: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
struct Wide {
    #[key(sequential)]
    number: u64,
}

fn ticket(text: &str) -> Ticket {
    Ticket { id: 0, text: text.to_owned() }
}

#[test]
fn ids_begin_at_one_and_rise() {
    let db = Db::in_memory().unwrap();
    assert_eq!(db.push(ticket("a")).unwrap().id, 1);
    assert_eq!(db.push(ticket("b")).unwrap().id, 2);
    let pushed = db.transact(|tx| Ok((tx.push(ticket("c"))?, tx.push(ticket("d"))?))).unwrap();
    assert_eq!((pushed.0.id, pushed.1.id), (3, 4));
    assert_eq!(db.get::<Ticket>(2).unwrap(), Some(Ticket { id: 2, text: "b".to_owned() }));
}

// An id that was handed out must never come to mean another document.
#[test]
fn an_id_is_not_given_again_after_a_restart() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(7));
    let open = || Db::options().open_on(Arc::clone(&disk), "/db").unwrap();
    let mut given = BTreeSet::new();
    for _ in 0..3 {
        let db = open();
        for _ in 0..5 {
            let id = db.push(ticket("x")).unwrap().id;
            assert!(given.insert(id), "{id} was given twice");
            db.delete::<Ticket>(id).unwrap();
        }
        db.close().unwrap();
    }
}

/// A gap at each start of the program would look like lost documents.
#[test]
fn ids_continue_without_a_gap_after_a_clean_close() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(9));
    let open = || Db::options().open_on(Arc::clone(&disk), "/db").unwrap();
    for round in 0..4 {
        let db = open();
        for id in 1..=3 {
            assert_eq!(db.push(ticket("x")).unwrap().id, round * 3 + id);
        }
        // Dropping the last handle closes, too.
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
    let db = Db::options().background(false).open_on(Arc::clone(&disk), "/db").unwrap();
    assert_eq!(db.push(ticket("x")).unwrap().id, 13);
    drop(db);
    assert_eq!(open().push(ticket("x")).unwrap().id, 14);
}

/// The program may have shown or sent the id of a transaction that failed.
#[test]
fn an_id_of_a_failed_transaction_is_not_given_after_a_clean_close() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(10));
    let open = || Db::options().open_on(Arc::clone(&disk), "/db").unwrap();
    for expected in [1, 4] {
        let db = open();
        let fail = |tx: &mut Transaction<'_>| {
            let id = tx.push(ticket("x"))?.id;
            Err::<(), _>(Error::invalid(format!("changed my mind about {id}")))
        };
        let error = db.transact(fail).unwrap_err();
        assert_eq!(error.message(), format!("changed my mind about {expected}"));
        db.close().unwrap();
        drop(db);
        let db = open();
        assert_eq!(db.push(ticket("x")).unwrap().id, expected + 1);
        db.transact(fail).unwrap_err();
    }
}

/// A power cut at any moment, also in the middle of giving ids back: no id that was acknowledged is given
/// again. The documents are deleted at once, so that they do not keep their ids from being given.
#[test]
fn a_power_cut_never_repeats_an_id() {
    let disk = MemDisk::new(11);
    let open = |disk: &MemDisk| {
        let options = Db::options().engine(|options| options.background = Background::Stepped);
        options.open_on(Arc::new(disk.clone()), "/db").unwrap()
    };
    open(&disk).register::<Ticket>().unwrap();
    disk.record();
    let mut given = Vec::new();
    for _ in 0..2 {
        let db = open(&disk);
        for _ in 0..2 {
            let id = db.push(ticket("x")).unwrap().id;
            given.push((disk.recorded_len(), id));
            db.delete::<Ticket>(id).unwrap();
        }
        db.close().unwrap();
    }
    assert_eq!(given.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let trace = disk.trace();
    for at in 0..=trace.len() {
        let last = given.iter().filter(|(from, _)| *from <= at).map(|(_, id)| *id).max().unwrap_or(0);
        let seed = at as u64;
        for choice in [CrashChoice::None, CrashChoice::All, CrashChoice::Random { seed }] {
            let after = trace.crash_image(at, &choice);
            let db = open(&after);
            let again = db.push(ticket("x")).unwrap().id;
            assert!(again > last, "{again} is given after {last} was, cut at {at}, {choice:?}");
            db.close().unwrap();
            drop(db);
            assert_eq!(open(&after).push(ticket("x")).unwrap().id, again + 1);
        }
    }
}

/// A commit at level `Memory` may be dropped long after its call returned, and with it the bound that it
/// wrote. Later acknowledged commits must not rely on that bound.
#[test]
fn an_id_is_not_given_again_where_the_commit_that_wrote_the_bound_was_dropped() {
    let disk = MemDisk::new(8);
    let open = || {
        let options = Db::options().engine(|options| options.background = Background::Stepped);
        options.open_on(Arc::new(disk.clone()), "/db").unwrap()
    };
    let db = open();
    db.register::<Ticket>().unwrap();
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    thread::scope(|scope| {
        let leader = scope.spawn(|| db.bytes("t").put("leader", "value").unwrap());
        gate.wait_blocked(1);
        assert_eq!(db.at(Durability::Memory).push(ticket("dropped")).unwrap().id, 1);
        disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
        gate.open();
        leader.join().unwrap();
    });
    disk.set_blocker(None);
    assert_eq!((disk.fault_hit_count(), db.stats().commit.dropped), (1, 1), "its group had no room");
    let sent = db.push(ticket("sent")).unwrap().id;
    assert_eq!(sent, 2);
    db.delete::<Ticket>(sent).unwrap();
    // A close would write the next id.
    db.abandon();
    let again = open().push(ticket("another")).unwrap().id;
    assert!(again > sent, "{again} is given, and {sent} will be once more");
}

#[test]
fn an_id_that_somebody_took_by_hand_is_left_out() {
    let db = Db::in_memory().unwrap();
    assert_eq!(db.push(ticket("a")).unwrap().id, 1);
    for id in [2, 3, 50] {
        db.put(&Ticket { id, text: "by hand".to_owned() }).unwrap();
    }
    assert_eq!(db.push(ticket("b")).unwrap().id, 51);
    assert_eq!(db.get::<Ticket>(2).unwrap().unwrap().text, "by hand");
}

// Many writers push concurrently: no two get the same id, and nothing is lost.
#[test]
fn writers_that_push_at_once_get_ids_of_their_own() {
    let db = Db::in_memory().unwrap();
    let pushed: Vec<u64> = thread::scope(|scope| {
        let push = || (0..200).map(|_| db.push(ticket("x")).unwrap().id).collect::<Vec<_>>();
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(push)).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(pushed.iter().collect::<BTreeSet<_>>().len(), 800);
    assert_eq!(db.collection::<Ticket>().count().unwrap(), 800);
}

#[test]
fn sequential_numbers_have_no_gaps() {
    let db = Db::in_memory().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| assert!(db.push(Invoice { number: 0 }).unwrap().number > 0)));
        }
    });
    let failed = db.transact(|tx| {
        tx.push(Invoice { number: 0 })?;
        Err::<(), _>(Error::invalid("changed my mind"))
    });
    assert!(failed.is_err());
    let numbers: Vec<u32> = db.collection::<Invoice>().keys().unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
}

#[test]
fn ids_run_out_with_an_error() {
    let db = Db::in_memory().unwrap();
    db.put(&Invoice { number: u32::MAX }).unwrap();
    let error = db.push(Invoice { number: 0 }).unwrap_err();
    assert!(error.message().contains("the ids of invoice have run out"), "{error}");
    assert_eq!(db.get::<Invoice>(u32::MAX).unwrap(), Some(Invoice { number: u32::MAX }));
    db.put(&Wide { number: u64::MAX }).unwrap();
    let error = db.push(Wide { number: 0 }).unwrap_err();
    assert!(error.message().contains("the ids of wide have run out"), "{error}");
    db.put(&Ticket { id: u64::MAX, text: String::new() }).unwrap();
    let error = db.push(ticket("x")).unwrap_err();
    assert!(error.message().contains("the ids of ticket have run out"), "{error}");
}

// A callback after a commit runs once, and not for a transaction that was rolled back.
#[test]
fn after_commit_is_called_once_and_only_after_a_commit() {
    let db = Db::in_memory().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut runs = 0;
    db.transact(|tx| {
        runs += 1;
        let (sender, run) = (sender.clone(), runs);
        tx.after_commit(move || sender.send(run).unwrap());
        // Another commit causes a conflict the first time.
        let count = tx.collection::<Ticket>().count()?;
        if run == 1 {
            thread::scope(|scope| scope.spawn(|| db.push(ticket("in between"))).join().unwrap())?;
        }
        tx.put(&Ticket { id: 1000 + count, text: "x".to_owned() })
    })
    .unwrap();
    assert_eq!(runs, 2);
    let failed = db.write(|tx| {
        let sender = sender.clone();
        tx.after_commit(move || sender.send(0).unwrap());
        Err(Error::invalid("changed my mind"))
    });
    assert!(failed.is_err());
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2]);
}
