//! Pinned bytes of key-values; expiry concurrent with writers; the clock.

use std::sync::Arc;

use super::expire::{due, free};
use super::row::{self, Row};
use super::{Ttl, step};
use crate::access::reads::sealed::Readable;
use crate::store::Background;
use crate::store::Source;
use crate::value::clock::{Clock, Millis};
use crate::{Db, MemDisk, Result, Span, Time};

const MS: u64 = 1_000_000;

fn open(disk: &MemDisk) -> Db {
    let options = Db::options().engine(|engine| engine.background = Background::Stepped);
    options.open_on(Arc::new(disk.clone()), "/db").unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All rows of a tree, as docs/format.md shows them.
fn tree(db: &Db, name: &str) -> Vec<(String, String)> {
    let snapshot = db.snapshot().unwrap();
    let tree = snapshot.source().tree(name).unwrap().unwrap();
    let all = Span::all().into_bytes();
    let mut cursor = snapshot.source().cursor(tree, all, crate::Direction::Forward).unwrap();
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        rows.push((hex(key), hex(value)));
    }
    rows
}

/// Other builds must read these bytes: docs/format.md, "Key-values", defines them.
#[test]
fn stored_bytes_are_as_documented() {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    disk.set_wall_clock(1_800_000_000_000 * MS);
    let values = db.kv("s");
    values.put("a", &7).unwrap();
    values.put_with("b", &-1, Ttl::until(Time::new(2_000_000_000, 1).unwrap())).unwrap();
    values.put_bytes(1_u64, &[1, 2], Ttl::forever()).unwrap();
    let rows = [("026100", "0007"), ("026200", "01 01204aa9d1010000 ff"), ("1501", "00c4020102")];
    let rows = rows.map(|(key, value)| (key.to_owned(), value.replace(' ', "")));
    assert_eq!(tree(&db, "duramen/kv/s"), rows);
    let index = [("1a01d1a94a2001026200".to_owned(), String::new())];
    assert_eq!(tree(&db, "duramen/kv-expiry/s"), index);
}

/// A renewed session must not be deleted by a run of expiry that looked before.
#[test]
fn what_was_renewed_after_expiry_looked_stays() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    let values = db.kv("s");
    values.put_with("renewed", &1, Ttl::seconds(1))?;
    values.put_with("expired", &1, Ttl::seconds(1))?;
    disk.advance_clock(1_500 * MS);
    let found = due(&db.snapshot()?, db.open_state().clock.now(), "s")?;
    assert_eq!(found.len(), 2);
    values.put_with("renewed", &2, Ttl::seconds(9))?;
    assert_eq!(free(&db, "s", &found)?, 1);
    assert_eq!(values.get("renewed")?, Some(2));
    assert_eq!(values.count(Span::all())?, 1);
    assert!(db.check_documents()?.is_clean());
    let newest = db.write(|tx| tx.put_bytes("other", b"a", b"1"))?.seq();
    assert_eq!(free(&db, "s", &found)?, 0, "a second run finds nothing");
    let next = db.write(|tx| tx.put_bytes("other", b"a", b"2"))?.seq();
    assert_eq!(next.0, newest.0 + 1, "and commits nothing");
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// A background thread sleeps until `next_due`, and must neither spin nor oversleep.
#[test]
fn a_step_says_when_the_next_value_expires() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    assert_eq!(step(&db)?.next_due, None);
    let at = Time::parse("2026-01-01T00:00:00Z").unwrap();
    db.kv("one").put_with("a", &1, Ttl::until(at))?;
    db.kv("two").put_with("a", &1, Ttl::days(9_999))?;
    let expired = step(&db)?;
    assert_eq!((expired.freed, expired.next_due), (0, Some(at)));
    disk.set_wall_clock(Millis::not_before(at).0 * MS);
    let expired = step(&db)?;
    assert_eq!(expired.freed, 1);
    assert!(expired.next_due > Some(at));
    Ok(())
}

/// A row of the index without a value, as only corruption makes one, must not keep expiry running.
#[test]
fn a_surplus_row_of_the_index_ends_with_its_expiry() -> Result<()> {
    let disk = MemDisk::new(1);
    let db = open(&disk);
    db.kv("s").put_with("a", &1, Ttl::days(1))?;
    db.transact(|tx| {
        let tree = tx.shared().tree(&row::expiries_tree("s"))?.unwrap();
        tx.shared().put(tree, &row::index_key(Millis(5), b"\x02b\0"), &[])
    })?;
    assert_eq!(db.check_documents()?.problem_count, 1);
    assert_eq!(db.sweep_expired()?, 0);
    assert!(db.check_documents()?.is_clean());
    Ok(())
}

/// A check must find each way in which values and their index can disagree.
#[test]
fn check_finds_what_does_not_agree() -> Result<()> {
    type Break = fn(&crate::Transaction<'_>) -> Result<()>;
    let cases: [(Break, &str); 4] = [
        (
            |tx| {
                let tree = tx.shared().tree(&row::expiries_tree("s"))?.unwrap();
                let key = due_of(tx, tree)?;
                tx.shared().delete(tree, &key)
            },
            "key-values s k: the expiry index lacks it",
        ),
        (
            |tx| {
                let tree = tx.shared().tree(&row::expiries_tree("s"))?.unwrap();
                tx.shared().put(tree, &row::index_key(Millis(5), b"\x02k\0"), &[])
            },
            "the expiry index has 2 rows, and 1 values expire",
        ),
        (
            |tx| {
                let tree = tx.shared().tree(&row::rows_tree("s"))?.unwrap();
                tx.shared().put(tree, b"\x02l\0", b"\x07")
            },
            "key-values s l: a key-value does not begin with its expiry",
        ),
        (|tx| tx.shared().drop_tree(&row::rows_tree("s")), "there are no values"),
    ];
    for (broken, wanted) in cases {
        let db = Db::in_memory()?;
        db.kv("s").put_with("k", &1, Ttl::days(9))?;
        db.transact(|tx| broken(tx))?;
        let report = db.check_documents()?;
        assert!(report.problems.iter().any(|problem| problem.contains(wanted)), "{wanted}: {report:?}");
    }
    Ok(())
}

/// The first row of an expiry index.
fn due_of(tx: &crate::Transaction<'_>, tree: crate::store::TreeId) -> Result<Vec<u8>> {
    let all = Span::all().into_bytes();
    let mut cursor = tx.shared().cursor(tree, all, crate::Direction::Forward)?;
    Ok(cursor.next_key()?.unwrap().to_vec())
}

/// An expired value must not come back because the clock is set back.
#[test]
fn a_clock_set_back_stands_still() {
    let disk = MemDisk::new(1);
    disk.set_wall_clock(5_000 * MS);
    let clock = Clock::new(Arc::new(disk.clone()), None);
    assert_eq!(clock.now(), Millis(5_000));
    disk.set_wall_clock(1_000 * MS);
    assert_eq!(clock.now(), Millis(5_000));
    disk.set_wall_clock(5_001 * MS);
    assert_eq!(clock.now(), Millis(5_001));
}

#[test]
fn lifetimes_are_rounded_up_to_the_millisecond() {
    let at = |seconds, nanoseconds| Millis::not_before(Time::new(seconds, nanoseconds).unwrap());
    assert_eq!(
        (at(1, 0), at(1, 1), at(1, 1_000_000), at(-5, 3)),
        (Millis(1000), Millis(1001), Millis(1001), Millis(0))
    );
    assert_eq!(Ttl::from(std::time::Duration::from_nanos(1)), Ttl::millis(1));
    assert_eq!(Ttl::days(u64::MAX).expires(Millis(5), None), Some(Millis(u64::MAX)));
    assert_eq!(Millis(u64::MAX).to_time().nanoseconds(), 615_000_000);
}

/// Foreign bytes are an error of corruption, never a panic.
#[test]
fn bytes_that_are_no_value_are_refused() {
    for stored in [&[][..], &[2, 7], &[1, 0, 0, 0, 0, 0, 0, 0]] {
        assert!(Row::decode(stored.to_vec()).is_err(), "{stored:?}");
    }
    for index in [&[][..], &[0x02, b'a', 0], &[0x1c, 1], &[0x13, 0xfe]] {
        assert!(row::split_index_key(index).is_err(), "{index:?}");
    }
}
