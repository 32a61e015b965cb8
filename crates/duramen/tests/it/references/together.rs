//! References under concurrent transactions: of two that would break one together, one runs again.

use std::cell::Cell;
use std::thread;

use duramen::Code;
use duramen::prelude::*;

use super::{Invoice, Post, User, comment, post, refused, shop, sound, user};

/// Runs `inner` as a transaction of its own, in another thread, once, in the middle of another.
fn between(
    db: &Db,
    first: impl Fn(&mut Transaction<'_>) -> duramen::Result<()>,
    inner: impl Fn(&Db) + Sync,
) -> (u32, duramen::Result<()>) {
    let runs = Cell::new(0);
    let done = db.transact(|tx| {
        runs.set(runs.get() + 1);
        first(tx)?;
        if runs.get() == 1 {
            thread::scope(|scope| scope.spawn(|| inner(db)).join().unwrap());
        }
        Ok(())
    });
    (runs.get(), done)
}

#[test]
fn a_put_meets_the_delete_of_its_target() {
    let db = shop();
    let (runs, done) =
        between(&db, |tx| tx.put(&Invoice { id: 1, user: 3 }), |db| assert!(db.delete::<User>(3).unwrap()));
    assert_eq!(runs, 2, "the second run sees that the user is gone");
    refused(done, Code::MissingTarget, &[]);
    sound(&db);
}

#[test]
fn a_delete_meets_the_put_of_a_document_that_refers_to_it() {
    let db = shop();
    // The reference exists before, so that the catalogue is not what conflicts.
    db.put(&Invoice { id: 9, user: 1 }).unwrap();
    let put = |db: &Db| drop(db.put(&Invoice { id: 1, user: 3 }).unwrap());
    let (runs, done) = between(&db, |tx| tx.delete::<User>(3).map(drop), put);
    assert_eq!(runs, 2);
    refused(done, Code::StillReferenced, &["invoices 1"]);
    // A cascade takes along what was put meanwhile.
    let put = |db: &Db| drop(db.put(&post(12, 2)).unwrap());
    let (runs, done) = between(&db, |tx| tx.delete::<User>(2).map(drop), put);
    assert_eq!((runs, done.is_ok()), (2, true));
    assert_eq!(db.get::<Post>(12).unwrap(), None);
    sound(&db);
}

// Neither writes what the other writes: only what they read makes one run again.
#[test]
fn documents_that_need_each_other_are_not_both_deleted() {
    let db = shop();
    db.put(&comment(300, 10, None)).unwrap();
    let inner = |db: &Db| assert!(db.delete::<super::Comment>(300).unwrap());
    let (runs, done) = between(&db, |tx| tx.put(&comment(301, 10, Some(300))), inner);
    assert_eq!(runs, 2);
    refused(done, Code::MissingTarget, &["document 301 of comments has parent = 300"]);
    sound(&db);
}

#[test]
fn writers_of_other_targets_do_not_meet() {
    let db = shop();
    db.put(&Invoice { id: 9, user: 1 }).unwrap();
    db.put(&user(4)).unwrap();
    let inner = |db: &Db| {
        assert!(db.delete::<User>(4).unwrap());
        db.put(&Invoice { id: 2, user: 1 }).unwrap();
        db.put(&user(5)).unwrap();
    };
    let (runs, done) = between(&db, |tx| tx.put(&Invoice { id: 1, user: 3 }), inner);
    assert_eq!((runs, done.is_ok()), (1, true));
    sound(&db);
}

#[test]
fn a_reference_that_is_added_meets_a_put_that_breaks_it() {
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    db.ensure(&Schema::new("b").key(["id"]).column("a", duramen::schema::ColumnType::Int)).unwrap();
    let put = |db: &Db| drop(db.documents("b").put(duramen::doc! { "id": 1, "a": 7 }).unwrap());
    let reference = duramen::Reference::new("a", "a");
    let (runs, done) = between(&db, |tx| tx.add_reference("b", &reference).map(drop), put);
    done.unwrap();
    assert_eq!(runs, 2, "the collection was empty in the first run");
    refused(
        db.documents("b").build_views(|_| Ok(())),
        Code::MissingTarget,
        &["document 1 of b has a = 7, and a has no document 7"],
    );
}
