//! Inside the closure of a transaction, a commit of its own through the same database is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use duramen::prelude::*;
use duramen::{Change, Code};

use crate::asynchronous::block_on;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes")]
struct Note {
    #[key]
    id: u64,
    text: String,
}

fn note(id: u64) -> Note {
    Note { id, text: "a note".to_owned() }
}

fn database() -> Db {
    let db = Db::in_memory().unwrap();
    db.put(&note(1)).unwrap();
    db
}

/// Outside of the transaction it would stay after a rollback, and be repeated by every run of the closure.
#[test]
fn a_commit_through_the_database_is_refused_at_the_first_run() {
    let db = database();
    type Write = fn(&Db) -> Result<()>;
    let writes: [(&str, Write); 12] = [
        ("put", |db| db.put(&note(2)).map(drop)),
        ("delete", |db| db.delete::<Note>(1).map(drop)),
        ("modify", |db| {
            db.modify::<Note>(1, |note| {
                note.text.clear();
                Ok(())
            })
            .map(drop)
        }),
        ("transact", |db| db.transact(|tx| tx.put(&note(2)))),
        ("write", |db| db.write(|tx| tx.put(&note(2))).map(drop)),
        ("at", |db| db.at(Durability::Memory).put(&note(2)).map(drop)),
        ("clone", |db| db.clone().put(&note(2)).map(drop)),
        ("documents", |db| db.documents("notes").put(doc! { "id": 2, "text": "x" }).map(drop)),
        ("kv", |db| db.kv("visits").increment("front", 1).map(drop)),
        ("bytes", |db| db.bytes("photos").put("a", "b").map(drop)),
        ("blobs", |db| db.blobs("files").put("a", &b"b"[..]).map(drop)),
        ("consumer", |db| db.consumer("mirror").register().map(drop)),
    ];
    let before = db.feed().newest;
    for (name, write) in writes {
        let mut runs = 0;
        let refused = db.transact(|_| {
            runs += 1;
            write(&db)
        });
        let error = refused.unwrap_err();
        assert_eq!((error.code(), runs), (Code::InvalidArgument, 1), "{name}: {error}");
        assert!(error.hint().contains("call it on `tx`"), "{name}: {}", error.hint());
    }
    assert_eq!(db.feed().newest, before, "nothing was committed");
    // A closure that goes on without the refused call commits its own writes.
    db.transact(|tx| {
        assert!(db.put(&note(3)).is_err());
        tx.put(&note(4))
    })
    .unwrap();
    assert_eq!(db.collection::<Note>().keys().unwrap().collect::<Result<Vec<_>>>().unwrap(), [1, 4]);
}

/// Reads are allowed, and see the state outside of the transaction.
#[test]
fn reads_through_the_database_see_what_is_published() {
    let db = database();
    db.transact(|tx| {
        tx.put(&note(2))?;
        assert_eq!(db.get::<Note>(2)?, None);
        assert_eq!(db.get::<Note>(1)?, Some(note(1)));
        assert_eq!(db.kv("visits").get::<i64>("front")?, None);
        assert_eq!(db.snapshot()?.collection::<Note>().count()?, 1);
        assert_eq!(db.changes::<Note>().from_beginning().count(), 1);
        Ok(())
    })
    .unwrap();
    assert_eq!(db.collection::<Note>().count().unwrap(), 2);
}

#[test]
fn other_databases_and_other_threads_may_commit() {
    let (db, other) = (database(), database());
    db.transact(|_| {
        other.put(&note(2))?;
        other.transact(|tx| {
            assert_eq!(db.put(&note(5)).unwrap_err().code(), Code::InvalidArgument, "two levels down");
            tx.put(&note(3))
        })?;
        thread::scope(|scope| scope.spawn(|| db.put(&note(6))).join().unwrap()).map(drop)
    })
    .unwrap();
    assert_eq!(other.collection::<Note>().count().unwrap(), 3);
    assert_eq!(db.collection::<Note>().count().unwrap(), 2);
}

/// A refusal must end with the closure, however that ends.
#[test]
fn after_the_closure_the_thread_may_commit_again() {
    let db = database();
    let panicked = catch_unwind(AssertUnwindSafe(|| db.transact(|_| -> Result<()> { panic!("on purpose") })));
    assert!(panicked.is_err());
    db.put(&note(2)).unwrap();
    db.transact(|_| Err::<(), _>(Error::invalid("no"))).unwrap_err();
    db.put(&note(3)).unwrap();
    let again = db.clone();
    db.write(|tx| {
        let again = again.clone();
        tx.after_commit(move || drop(again.put(&note(4)).unwrap()));
        Ok(())
    })
    .unwrap();
    assert_eq!(db.collection::<Note>().count().unwrap(), 4);
}

#[test]
fn the_step_of_a_consumer_is_a_transaction_too() {
    let db = database();
    let mirror = db.consumer("mirror").from_beginning().register().unwrap();
    let mut changes = mirror.read::<Change<Note>>().unwrap();
    let error = changes.step(|_, _| db.put(&note(2)).map(drop)).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(changes.step(|tx, _| tx.kv("mirror").put("notes", &1)).unwrap(), 1);
}

/// The closure runs in a thread of the pool: the rule is the same there.
#[test]
fn the_closure_of_an_asynchronous_transaction_too() {
    let db = database();
    let tasks = db.clone().into_async();
    let inside = db.clone();
    let refused = block_on(tasks.transact(move |_| inside.put(&note(2)).map(drop)));
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    let inside = db.clone();
    let own: std::result::Result<(), Error> =
        block_on(tasks.try_transact(move |_| inside.put(&note(2)).map(drop)));
    assert_eq!(own.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(db.collection::<Note>().count().unwrap(), 1);
    block_on(tasks.put(note(2))).unwrap();
}
