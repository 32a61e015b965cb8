//! Key-values as a program uses them: exact expiry, atomic methods, one transaction with documents, freed
//! space.

use std::sync::Arc;
use std::time::Duration;

use duramen::kv::{CompareAndSet, Expiry};
use duramen::prelude::*;
use duramen::{Code, Kv, MemDisk};
use duramen_engine::Background;

mod model;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const START: u64 = 1_800_000_000 * SECOND;

fn open_on(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

/// A database whose clock stands at [`START`].
fn open() -> (MemDisk, Db) {
    let disk = MemDisk::new(1);
    let db = open_on(&disk);
    disk.set_wall_clock(START);
    (disk, db)
}

/// A test with `Db::in_memory` waits for an expiry as a program does.
#[test]
fn a_value_in_memory_expires_by_the_clock_of_the_system() -> Result<()> {
    let db = Db::in_memory()?;
    db.kv("sessions").put_with("ann", &1, Ttl::millis(20))?;
    while db.kv("sessions").get::<i64>("ann")?.is_some() {
        std::thread::yield_now();
    }
    let change = db.all_changes().from_beginning().next().expect("the put")?;
    let age = Time::now().seconds() - change.time.seconds();
    assert!((0..600).contains(&age), "{change:?}");
    Ok(())
}

/// A value exists until a millisecond before it expires, for every method.
#[test]
fn an_expired_value_is_absent_for_every_verb() -> Result<()> {
    let (disk, db) = open();
    let values = db.kv("v");
    values.put("stays", &1)?;
    let renew = || {
        disk.set_wall_clock(START + 60 * SECOND);
        values.put_with("k", &5, Ttl::seconds(60)).map(|_| ())
    };
    renew()?;
    disk.set_wall_clock(START + 120 * SECOND - MS);
    assert_eq!(values.get("k")?, Some(5));
    assert_eq!(values.ttl("k")?, Some(Duration::from_millis(1)));
    let at = Time::new(1_800_000_120, 0).unwrap();
    assert_eq!(values.expiry("k")?, Some(Expiry::At(at)));
    assert_eq!(values.expiry("stays")?, Some(Expiry::Never));
    assert_eq!(values.count(Span::all())?, 2);
    disk.set_wall_clock(START + 120 * SECOND);
    assert_eq!(values.get::<i64>("k")?, None);
    assert!(!values.exists("k")?);
    assert_eq!((values.ttl("k")?, values.expiry("k")?), (None, None));
    assert_eq!((values.count(Span::all())?, values.count(Span::prefix("k")?)?), (1, 0));
    assert_eq!(values.scan::<String, i64>(Span::all())?.count(), 1);
    assert!(!values.touch("k", Ttl::forever())?);
    assert!(!values.delete("k")?);
    Ok(())
}

/// As above, for methods that replace a value: the old expiry must go with the old value.
#[test]
fn writes_over_an_expired_value_begin_anew() -> Result<()> {
    let (disk, db) = open();
    let values = db.kv("v");
    for (step, write) in (0_u64..).zip([
        |values: &Kv| values.increment("k", 3).map(|sum| assert_eq!(sum, 3)),
        |values: &Kv| values.put_if_absent("k", &3, Ttl::forever()).map(|done| assert!(done)),
        |values: &Kv| values.put_if_present("k", &3, Ttl::forever()).map(|done| assert!(!done)),
        |values: &Kv| values.compare_and_set("k", None, Some(&3)).map(|done| assert!(done.is_set())),
        |values: &Kv| values.replace("k", &3, Ttl::keep()).map(|old| assert_eq!(old, None)),
        |values: &Kv| values.take::<i64>("k").map(|old| assert_eq!(old, None)),
        |values: &Kv| values.put_with("k", &3, Ttl::keep()).map(|_| ()),
    ]) {
        // Deleted at the namespace's first write only: the expired value still exists when the method runs.
        values.put_with("k", &5, Ttl::seconds(60))?;
        disk.set_wall_clock(START + (step + 1) * 100 * SECOND);
        write(&values)?;
        if let Some(found) = values.get::<i64>("k")? {
            assert_eq!((found, values.expiry("k")?), (3, Some(Expiry::Never)), "verb {step}");
        }
        assert!(db.check_documents()?.is_clean(), "verb {step}");
    }
    Ok(())
}

#[test]
fn atomic_verbs_do_what_they_say() -> Result<()> {
    let (_, db) = open();
    let values = db.kv("v");
    assert_eq!(values.increment("n", 5)?, 5);
    assert_eq!(values.decrement("n", 7)?, -2);
    assert_eq!(values.increment_saturating("n", i64::MIN)?, i64::MIN);
    let error = values.decrement("n", 1).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("n of v"), "{error}");
    assert_eq!(values.decrement_saturating("n", 1)?, i64::MIN);
    assert_eq!(values.get("n")?, Some(i64::MIN));

    assert!(values.put_if_absent("a", "one", Ttl::seconds(9))?);
    assert!(!values.put_if_absent("a", "two", Ttl::forever())?);
    assert!(values.put_if_present("a", "two", Ttl::keep())?);
    assert_eq!(values.ttl("a")?.map(|left| left.as_secs()), Some(9));
    assert_eq!(values.replace("a", &"three".to_owned(), Ttl::forever())?.as_deref(), Some("two"));
    assert_eq!(values.expiry("a")?, Some(Expiry::Never));
    let differs = values.compare_and_set("a", Some(&"two".to_owned()), None)?;
    assert_eq!(differs, CompareAndSet::Differs(Some("three".to_owned())));
    assert!(values.compare_and_set("a", Some(&"three".to_owned()), None)?.is_set());
    assert_eq!(values.compare_and_set("a", Some(&1), Some(&2))?, CompareAndSet::Differs(None));
    values.put("t", &(1, "x".to_owned()))?;
    assert_eq!(values.take("t")?, Some((1, "x".to_owned())));
    assert_eq!(values.take::<i64>("t")?, None);
    values.put_bytes("b", &[0, 255], Ttl::forever())?;
    assert_eq!(values.get_bytes("b")?, Some(vec![0, 255]));
    Ok(())
}

/// Increments of many threads must all count, and of concurrent compare-and-sets one wins.
#[test]
fn atomic_verbs_hold_between_threads() -> Result<()> {
    let db = Db::in_memory()?;
    let wins = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let values = db.kv("v");
                scope.spawn(move || {
                    for _ in 0..50 {
                        values.increment("n", 1).unwrap();
                    }
                    values.compare_and_set("leader", None, Some(&thread)).unwrap().is_set()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!((db.kv("v").get("n")?, wins), (Some(200), 1));
    Ok(())
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_it() -> Result<()> {
    let (_, db) = open();
    let values = db.kv("v");
    values.put(("user", 7), "text")?;
    for error in [
        values.get::<i64>(("user", 7)).unwrap_err(),
        values.increment(("user", 7), 1).unwrap_err(),
        values.get_bytes(("user", 7)).unwrap_err(),
        values.take::<Vec<u8>>(("user", 7)).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::Unreadable);
        assert!(error.message().starts_with("the value user,7 of v does not read as"), "{error}");
    }
    assert_eq!(values.get::<String>(("user", 7))?.as_deref(), Some("text"));
    values.put("large", &u64::MAX)?;
    assert_eq!(values.increment("large", -1).unwrap_err().code(), Code::Unreadable);
    Ok(())
}

#[test]
fn what_cannot_be_stored_is_refused() -> Result<()> {
    let (_, db) = open();
    assert_eq!(db.kv("").put("k", &1).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(db.kv("").clear().unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(db.kv("n".repeat(1007)).get::<u8>("k").unwrap_err().code(), Code::InvalidArgument);
    db.kv("n".repeat(1006)).put_with("k".repeat(1013), &1, Ttl::millis(u64::MAX))?;
    assert_eq!(db.kv("v").put("k".repeat(1014), &1).unwrap_err().code(), Code::KeyTooLong);
    let odd = std::collections::HashMap::from([(vec![1], 2)]);
    let error = db.kv("v").put("k", &odd).unwrap_err();
    assert!(error.message().starts_with("the value k of v cannot be stored"), "{error}");
    assert_eq!(db.bytes("duramen/kv/v").put("k", "v").unwrap_err().code(), Code::InvalidArgument);
    assert!(db.snapshot()?.byte_trees()?.is_empty());
    Ok(())
}

/// The answers of a snapshot or a transaction must not change while it lives.
#[test]
fn time_stands_still_in_a_snapshot_and_in_a_transaction() -> Result<()> {
    let (disk, db) = open();
    let values = db.kv("v");
    values.put_with("k", &1, Ttl::seconds(60))?;
    let snapshot = db.snapshot()?;
    assert!(snapshot.kv("v").exists("k")?);
    let mut runs = 0;
    db.transact(|tx| {
        runs += 1;
        let is_first = runs == 1;
        assert_eq!(tx.kv("v").exists("k")?, is_first, "it has expired before the commit, so it runs again");
        disk.set_wall_clock(START + (60 + runs) * SECOND);
        assert_eq!(tx.kv("v").get("k")?, is_first.then_some(1));
        assert_eq!(tx.kv("v").count(Span::all())?, u64::from(is_first));
        tx.kv("v").put_with("other", &1, Ttl::seconds(60))
    })?;
    assert_eq!(runs, 2);
    assert_eq!(snapshot.clone().kv("v").get("k")?, Some(1));
    assert_eq!(values.get::<i64>("k")?, None);
    // Written at the transaction's time, not at the clock's.
    assert!(values.ttl("other")? < Some(Duration::from_secs(60)));
    Ok(())
}

#[test]
fn a_time_that_has_passed_deletes() -> Result<()> {
    let (_, db) = open();
    let values = db.kv("v");
    values.put("k", &1)?;
    values.put_with("k", &2, Ttl::until(Time::new(1, 0).unwrap()))?;
    assert!(!values.exists("k")?);
    values.put("k", &1)?;
    values.touch("k", Ttl::seconds(0))?;
    assert!(!values.exists("k")?);
    assert_eq!(values.stats()?.expired, 0);
    Ok(())
}

#[test]
fn key_values_and_documents_commit_together_or_not_at_all() -> Result<()> {
    let (_, db) = open();
    let orders = db.ensure(&Schema::new("orders").key(["id"]))?;
    let failed = db.transact(|tx| {
        tx.documents("orders").put(doc! { "id": 1 })?;
        tx.kv("v").put_with("last", &1, Ttl::hours(1))?;
        assert_eq!(tx.kv("v").increment("count", 1)?, 1);
        Err::<(), _>(Error::invalid("no"))
    });
    assert!(failed.is_err());
    assert_eq!((orders.count(Span::all())?, db.kv("v").count(Span::all())?), (0, 0));
    db.transact(|tx| {
        tx.documents("orders").put(doc! { "id": 1 })?;
        tx.kv("v").put("last", &1)
    })?;
    assert_eq!((orders.count(Span::all())?, db.kv("v").count(Span::all())?), (1, 1));
    Ok(())
}

#[test]
fn namespaces_are_apart_and_are_cleared_whole() -> Result<()> {
    let (_, db) = open();
    for namespace in ["a", "a/b", "kv-expiry/a"] {
        db.kv(namespace).put_with("k", namespace, Ttl::hours(1))?;
        db.kv(namespace).put("l", &1)?;
    }
    assert_eq!(db.snapshot()?.kv_namespaces()?, ["a", "a/b", "kv-expiry/a"]);
    assert!(db.kv("a").clear()?);
    assert!(!db.kv("a").clear()?);
    assert_eq!(db.snapshot()?.kv_namespaces()?, ["a/b", "kv-expiry/a"]);
    assert_eq!(db.kv("a").get::<String>("k")?, None);
    assert_eq!(db.kv("a/b").get::<String>("k")?.as_deref(), Some("a/b"));
    db.transact(|tx| {
        tx.kv("a").put_with("k", &1, Ttl::hours(1))?;
        tx.kv("a").clear()?;
        tx.kv("a").put_with("k", &2, Ttl::hours(2))
    })?;
    assert_eq!(db.kv("a").get("k")?, Some(2));
    let report = db.check_documents()?;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.namespaces, report.key_values), (3, 5));
    Ok(())
}

/// The published lag is that of the oldest expired value; deleting them makes it zero.
#[test]
fn expiry_tells_how_far_it_is_behind() -> Result<()> {
    let (disk, db) = open();
    db.transact(|tx| {
        for n in 0..2_000_u64 {
            tx.kv("v").put_with(n, &n, Ttl::millis(1_000 + n))?;
        }
        tx.kv("other").put("k", &1)
    })?;
    disk.set_wall_clock(START + 10 * SECOND);
    let stats = db.kv_stats()?;
    assert_eq!((stats.namespaces, stats.values, stats.expired), (2, 1, 2_000));
    assert_eq!(stats.oldest, Time::new(1_800_000_001, 0));
    assert_eq!(stats.lag, Duration::from_secs(9));
    assert_eq!(db.kv("other").stats()?.expired, 0);
    assert_eq!(db.sweep_expired()?, 2_000);
    let stats = db.kv_stats()?;
    assert_eq!((stats.values, stats.expired, stats.oldest, stats.lag), (1, 0, None, Duration::ZERO));
    Ok(())
}

/// A program that only writes sessions, and never calls `sweep_expired`, must not fill the disk with expired
/// ones.
#[test]
fn writes_alone_keep_what_has_expired_bounded() -> Result<()> {
    let (disk, db) = open();
    let mut most = 0;
    for n in 0..3_000_u64 {
        disk.set_wall_clock(START + n * MS);
        db.at(Durability::Memory).kv("v").put_with(n, &n, Ttl::millis(50))?;
        most = most.max(db.kv("v").stats()?.expired);
    }
    assert!(most <= 64, "{most} expired values");
    disk.set_wall_clock(START + 10_000 * MS);
    for batch in 0..4_u64 {
        db.transact(|tx| (0..5_000).try_for_each(|n| tx.kv("v").put_with((batch, n), &n, Ttl::millis(1))))?;
        disk.set_wall_clock(START + (10_001 + batch) * 1_000 * MS);
        assert!(db.kv("v").stats()?.expired <= 5_064);
    }
    Ok(())
}

/// Expired values must not keep the disk full.
#[test]
fn expired_values_give_their_space_back() -> Result<()> {
    let (disk, db) = open();
    let big = vec![7; 1 << 20];
    let mut db = db;
    let mut first = None;
    for round in 0..5 {
        for n in 0..8_u64 {
            db.kv("v").put_bytes((round, n), &big, Ttl::seconds(60))?;
        }
        disk.set_wall_clock(START + (round + 1) * 100 * SECOND);
        assert!(db.sweep_expired()? <= 8);
        assert_eq!(db.kv_stats()?.expired, 0);
        db.close()?;
        drop(db);
        let used = *first.get_or_insert(disk.used_bytes());
        assert!(
            disk.used_bytes() <= used + used / 2,
            "round {round}: {} bytes, first {used}",
            disk.used_bytes()
        );
        db = open_on(&disk);
    }
    Ok(())
}

#[test]
fn values_expire_across_reopening() -> Result<()> {
    let (disk, db) = open();
    db.kv("v").put_with("k", &1, Ttl::seconds(60))?;
    db.close()?;
    drop(db);
    disk.set_wall_clock(START + 59 * SECOND);
    let db = open_on(&disk);
    assert_eq!(db.kv("v").get("k")?, Some(1));
    disk.set_wall_clock(START + 61 * SECOND);
    assert_eq!(db.kv("v").get::<i64>("k")?, None);
    // The clock is set back: expired values stay expired.
    disk.set_wall_clock(START);
    assert_eq!(db.kv("v").get::<i64>("k")?, None);
    Ok(())
}
