//! An id must never be given twice, whatever runs beside a close.

#![allow(clippy::disallowed_methods, reason = "tests start threads")]

use std::sync::Arc;
use std::thread;

use duramen_disk::MemDisk;
use serde::{Deserialize, Serialize};

use crate::{Code, Collection, Db, Disk, Result};

#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(name = "tickets")]
struct Ticket {
    #[key(assigned)]
    id: u64,
}

fn open(disk: &Arc<dyn Disk>) -> Db {
    Db::options().open_on(Arc::clone(disk), "/db").unwrap()
}

fn push(db: &Db) -> Result<u64> {
    Ok(db.push(Ticket { id: 0 })?.id)
}

/// After the rest was given back, the bound in memory covers ids that the next process gives.
#[test]
fn no_id_is_given_once_the_rest_was_given_back() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
    let db = open(&disk);
    assert_eq!(push(&db).unwrap(), 1);
    db.end_ids();
    assert_eq!(push(&db).unwrap_err().code(), Code::Closed);
    db.close().unwrap();
    drop(db);
    assert_eq!(push(&open(&disk)).unwrap(), 2);
}

/// A transaction that has its id already commits after the rest was given back.
#[test]
fn an_id_of_a_transaction_beside_the_close_is_not_given_again() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(2));
    let db = open(&disk);
    assert_eq!(push(&db).unwrap(), 1);
    let id = db.transact(|tx| {
        let id = tx.push(Ticket { id: 0 })?.id;
        thread::scope(|scope| scope.spawn(|| db.end_ids()).join().unwrap());
        Ok(id)
    });
    assert_eq!(id.unwrap(), 2);
    // It must not come from the document, which keeps its id from being given again.
    db.delete::<Ticket>(2u64).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(push(&open(&disk)).unwrap(), 3);
}

/// The transaction that writes the bound for its own id conflicts with the one that gives the rest back.
#[test]
fn a_transaction_that_raises_the_bound_beside_the_close_is_not_undone() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(3));
    let db = open(&disk);
    let mut pushed = (1..=1024).map(|_| push(&db)).collect::<Result<Vec<_>>>().unwrap();
    let next = db.transact(|tx| {
        let id = tx.push(Ticket { id: 0 })?.id;
        thread::scope(|scope| scope.spawn(|| db.end_ids()).join().unwrap());
        Ok(id)
    });
    pushed.extend(next.ok());
    let last = *pushed.last().unwrap();
    db.delete::<Ticket>(last).unwrap();
    db.close().unwrap();
    drop(db);
    let again = push(&open(&disk)).unwrap();
    assert!(again > last, "{again} was given already");
}
