//! Transactions over documents: atomic, retried, and with error types of the program.

use std::sync::Arc;
use std::thread;

use duramen::prelude::*;
use duramen::{Code, MemDisk};
use duramen_disk::memory::CallKind;
use duramen_engine::Background;

fn accounts() -> Db {
    let db = Db::in_memory().unwrap();
    let accounts = db.ensure(&Schema::new("accounts").key(["id"]).sum(["cents"])).unwrap();
    for id in 0..4 {
        accounts.put(doc! { "id": id, "cents": 100 }).unwrap();
    }
    db
}

fn cents(document: &Document) -> i128 {
    match document.get("cents") {
        Some(Value::Int(cents)) => *cents,
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, PartialEq)]
enum Refused {
    Poor,
    NoAccount,
    Database(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Database(error.to_string())
    }
}

fn transfer(db: &Db, from: u64, to: u64, amount: i128) -> Result<(), Refused> {
    db.try_transact(|tx| {
        let accounts = tx.documents("accounts");
        let mut payer = accounts.get(from)?.ok_or(Refused::NoAccount)?;
        let mut payee = accounts.get(to)?.ok_or(Refused::NoAccount)?;
        let left = cents(&payer) - amount;
        if left < 0 {
            return Err(Refused::Poor);
        }
        payer.set("cents", Value::Int(left));
        payee.set("cents", Value::Int(cents(&payee) + amount));
        accounts.put(payer)?;
        accounts.put(payee)?;
        Ok(())
    })
}

/// The prelude's `Result` leaves functions with other errors as they are.
fn parse(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// A closure refuses its input with text, and the caller reads it as it was written.
#[test]
fn an_error_from_text_rolls_back() {
    let db = accounts();
    let refused = |text: &'static str| {
        db.transact(|tx| {
            tx.documents("accounts").delete(0_u64)?;
            let amount = parse(text).map_err(Error::invalid)?;
            if amount < 0 { Err(Error::invalid("less than nothing")) } else { Ok(amount) }
        })
    };
    for (text, message) in [("x", "x is no number"), ("-1", "less than nothing")] {
        let error = refused(text).unwrap_err();
        assert_eq!((error.code(), error.message(), &*error.hint()), (Code::InvalidArgument, message, ""));
    }
    assert_eq!(db.documents("accounts").count(Span::all()).unwrap(), 4);
}

#[test]
fn errors_of_ones_own_roll_back() {
    let db = accounts();
    assert_eq!(transfer(&db, 0, 1, 500), Err(Refused::Poor));
    assert_eq!(transfer(&db, 0, 9, 5), Err(Refused::NoAccount));
    assert_eq!(transfer(&db, 0, 1, 60), Ok(()));
    let error = db.try_transact(|tx| Ok::<_, Refused>(tx.documents("nobody").get(1)?)).unwrap_err();
    assert!(matches!(error, Refused::Database(_)));
    let written: Result<()> = db.transact(|tx| {
        tx.documents("accounts").delete(0)?;
        Err(Error::invalid("never mind"))
    });
    assert!(written.is_err());
    let all = db.documents("accounts").reduce(Span::all()).unwrap();
    assert_eq!((all.count(), all.sum("cents")), (4, Some(400)));
}

/// Each transaction reads the sum: no transaction may ever see a partial transfer.
#[test]
fn four_threads_keep_the_sum() {
    let db = accounts();
    thread::scope(|scope| {
        for own in 0..4_u64 {
            let db = db.clone();
            scope.spawn(move || {
                for round in 0..50 {
                    let _ = transfer(&db, own, (own + 1 + round % 3) % 4, 7);
                    let seen = db.transact(|tx| tx.documents("accounts").reduce(Span::all())).unwrap();
                    assert_eq!(seen.sum("cents"), Some(400));
                }
            });
        }
    });
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn a_transaction_sees_its_own_writes() {
    let db = accounts();
    db.transact(|tx| {
        let accounts = tx.documents("accounts");
        accounts.put(doc! { "id": 9, "cents": 1 })?;
        accounts.delete(0)?;
        assert_eq!(accounts.count(Span::all())?, 4);
        assert_eq!(accounts.reduce(Span::all())?.sum("cents"), Some(301));
        assert_eq!(accounts.rank(9)?, 3);
        assert_eq!(accounts.nth(0)?.unwrap().get("id"), Some(&Value::Int(1)));
        assert_eq!(accounts.scan(Span::from(3)?)?.count(), 2);
        assert_eq!(accounts.delete_span(Span::to(3)?)?, 2);
        tx.ensure(&Schema::new("log").key(["at"]))?;
        tx.documents("log").insert(doc! { "at": 1 })?;
        assert_eq!(tx.collections()?.len(), 2);
        Ok(())
    })
    .unwrap();
    assert_eq!(db.documents("log").count(Span::all()).unwrap(), 1);
    assert_eq!(db.documents("accounts").count(Span::all()).unwrap(), 2);
}

/// Ranges are deleted in parts: what the transaction itself has written is deleted with the rest, and no
/// document twice.
#[test]
fn a_range_of_many_documents_is_deleted_in_one_transaction() {
    let db = accounts();
    let many = |from: i64, tx: &Transaction<'_>| {
        let accounts = tx.documents("accounts");
        (from..5_000).step_by(2).try_for_each(|id| accounts.put(doc! { "id": id, "cents": 1 }))
    };
    db.transact(|tx| many(0, tx)).unwrap();
    db.transact(|tx| {
        many(1, tx)?;
        let accounts = tx.documents("accounts");
        assert_eq!(accounts.delete_first(Span::from(10)?, 2_000)?, 2_000);
        assert_eq!(accounts.delete_first(Span::from(10)?, 0)?, 0);
        assert_eq!(accounts.delete_span(Span::from(10)?)?, 2_990);
        assert_eq!(accounts.count(Span::all())?, 10);
        Ok(())
    })
    .unwrap();
    assert_eq!(db.documents("accounts").count(Span::all()).unwrap(), 10);
    assert!(db.check_documents().unwrap().is_clean());
}

/// A range that no transaction can delete is refused when the writes do not fit any more, not after all of it
/// was read into memory.
#[test]
fn a_range_that_is_too_large_is_refused_in_time() {
    let disk = MemDisk::new(1);
    let open = || {
        let options = Db::options().memory_bytes(8 << 20);
        let options = options.engine(|engine| engine.background = Background::Stepped);
        options.open_on(Arc::new(disk.clone()), "/db").unwrap()
    };
    let db = open();
    db.ensure(&Schema::new("names").key(["name"])).unwrap();
    for part in 0..40 {
        db.transact(|tx| {
            let names = tx.documents("names");
            (part * 500..(part + 1) * 500).try_for_each(|id| names.put(doc! { "name": format!("{id:0900}") }))
        })
        .unwrap();
    }
    // From here on the documents have to be read.
    db.close().unwrap();
    drop(db);
    let db = open();
    let names = db.documents("names");
    let reads = || disk.call_counts().of(CallKind::Read);
    let before = reads();
    assert_eq!(names.scan(Span::all()).unwrap().count(), 20_000);
    let of_all = reads() - before;
    let before = reads();
    let error = db.transact(|tx| tx.documents("names").delete_span(Span::all())).unwrap_err();
    assert_eq!(error.code(), Code::TooLarge, "{error}");
    let of_deletes = reads() - before;
    assert!(of_deletes * 2 < of_all, "{of_deletes} reads, {of_all} of the whole range");
}

#[test]
fn a_snapshot_never_changes() {
    let db = accounts();
    let before = db.snapshot().unwrap();
    transfer(&db, 0, 1, 50).unwrap();
    db.transact(|tx| tx.drop_collection("accounts")).unwrap();
    let accounts = before.documents("accounts");
    assert_eq!(accounts.reduce(Span::all()).unwrap().sum("cents"), Some(400));
    assert_eq!(cents(&accounts.get(0).unwrap().unwrap()), 100);
    let count = move || before.documents("accounts").count(Span::all()).unwrap();
    let there = thread::spawn(count).join().unwrap();
    assert_eq!(there, 4);
}

#[test]
fn receipts_grow_and_can_be_waited_on() {
    let db = accounts();
    let weak = db.at(Durability::Memory);
    assert_eq!((weak.durability(), db.durability()), (Durability::Memory, Durability::Disk));
    let first = weak.write(|tx| tx.documents("accounts").put(doc! { "id": 1, "cents": 0 })).unwrap();
    let second = weak.write(|tx| tx.documents("accounts").put(doc! { "id": 2, "cents": 0 })).unwrap();
    assert!(first.seq() < second.seq());
    second.wait(Durability::Disk).unwrap();
    assert_eq!((first.durability(), second.durability()), (Durability::Disk, Durability::Disk));
}
