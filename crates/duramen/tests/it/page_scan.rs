//! Repair by pages: nothing leads to a page any more, and its rows are found all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, Disk, MemDisk, RepairReport, StoreKind, UncertainRows};

const DOCUMENTS: u64 = 20_000;

fn open(disk: &Arc<MemDisk>, path: &str) -> Db {
    Db::options().background(false).open_on(Arc::clone(disk) as Arc<dyn Disk>, path).unwrap()
}

fn repair(disk: &Arc<MemDisk>) -> Result<RepairReport> {
    Db::options().repair_on(Arc::clone(disk) as Arc<dyn Disk>, "/db", "/new", |_| Ok(()))
}

fn flight(id: u64, round: u64) -> Document {
    doc! { "id": id, "round": round, "note": format!("flight {id} of round {round}, and some more words to fill a page of the file") }
}

/// Rows by their ids, each with its round.
fn rows(db: &Db, collection: &str) -> BTreeMap<u64, u64> {
    let number = |document: &Document, field: &str| match document.get(field) {
        Some(Value::Int(number)) => u64::try_from(*number).unwrap(),
        other => panic!("{field} is {other:?}"),
    };
    let documents = db.documents(collection).scan(Span::all()).unwrap();
    documents.map(|row| row.unwrap()).map(|row| (number(&row, "id"), number(&row, "round"))).collect()
}

/// A database of documents that were put three times, and of which some were deleted.
fn filled(disk: &Arc<MemDisk>, patches: bool) -> BTreeMap<u64, u64> {
    let open = |disk: &Arc<MemDisk>, path: &str| {
        let options = Db::options().background(false).engine(|engine| engine.patches = patches);
        options.open_on(Arc::clone(disk) as Arc<dyn Disk>, path).unwrap()
    };
    open(disk, "/db").ensure(&Schema::new("flights").key(["id"]).sum(["round"])).unwrap();
    for round in 0..3 {
        let db = open(disk, "/db");
        let changed: Vec<u64> = (0..DOCUMENTS).filter(|id| round == 0 || id % (2 + round) == 0).collect();
        db.transact(|tx| {
            changed.iter().try_for_each(|&id| tx.documents("flights").put(flight(id, round)).map(drop))
        })
        .unwrap();
        // Closing writes a checkpoint.
        db.close().unwrap();
    }
    let db = open(disk, "/db");
    db.transact(|tx| {
        (0..DOCUMENTS).step_by(10).try_for_each(|id| tx.documents("flights").delete(id).map(drop))
    })
    .unwrap();
    let rows = rows(&db, "flights");
    db.close().unwrap();
    rows
}

/// Repairs, and opens the new database.
fn repaired(disk: &Arc<MemDisk>) -> (RepairReport, Db) {
    let report = repair(disk).unwrap();
    (report, open(disk, "/new"))
}

/// The database with one block of its data lost.
fn without_block(disk: &MemDisk, block: usize) -> Arc<MemDisk> {
    let disk = Arc::new(disk.deep_clone());
    let mut data = disk.read_file("/db/data").unwrap();
    data[block * 4096..][..4096].fill(0);
    disk.write_file("/db/data", &data).unwrap();
    disk
}

fn uncertain(report: &RepairReport) -> &UncertainRows {
    let of_flights = report.uncertain.iter().find(|one| one.of == "flights");
    of_flights.unwrap_or_else(|| panic!("{report:?}"))
}

// Everything that leads to a page is at the end of the file: the last checkpoint wrote it there.
#[test]
fn a_file_cut_at_sixty_percent_gives_what_is_whole() {
    let disk = Arc::new(MemDisk::new(3));
    let stored = filled(&disk, false);
    let data = disk.read_file("/db/data").unwrap();
    let used = data.len() - data.iter().rev().take_while(|byte| **byte == 0).count();
    disk.write_file("/db/data", &data[..used * 6 / 10]).unwrap();
    let (report, db) = repaired(&disk);
    let found = rows(&db, "flights");
    assert!(found.len() > 1000, "{report:?}");
    assert!(found.iter().all(|row| stored.get(row.0) == Some(row.1)), "each is current");
    assert!(report.found_rows >= found.len() as u64);
    assert!(!report.is_whole() && report.uncertain.is_empty(), "the space map is whole: {report:?}");
}

// Both superblocks are gone, and every page is whole. Of the pages of a range the newest counts, so a
// document that was deleted out of it does not come back.
#[test]
fn without_a_superblock_the_newest_page_of_each_range_counts() {
    let disk = Arc::new(MemDisk::new(4));
    let stored = filled(&disk, true);
    let mut data = disk.read_file("/db/data").unwrap();
    data[..20_000].fill(0);
    disk.write_file("/db/data", &data).unwrap();
    let (report, db) = repaired(&disk);
    assert_eq!(report.superblocks, 0);
    let uncertain = uncertain(&report);
    assert_eq!((uncertain.store, uncertain.name.as_str()), (StoreKind::Collection, "flights-uncertain"));
    let found = rows(&db, &uncertain.name);
    assert_eq!(found.len() as u64, uncertain.rows);
    assert_eq!(db.documents("flights").count(Span::all()).unwrap_err().code(), Code::NoSuchTree);
    for (id, round) in &stored {
        assert_eq!(found.get(id), Some(round), "the newest of the document {id}");
    }
    let deleted = found.keys().filter(|id| !stored.contains_key(id)).count();
    // Only between two pages: no page covers a key there.
    assert!(deleted < 300, "{deleted} of {} deleted documents are there", DOCUMENTS / 10);
    assert!(db.check_documents().unwrap().is_clean());
}

// An inner node is lost. The space map says that the leaves below it are current, so nothing is.
#[test]
fn leaves_below_a_lost_node_are_current() {
    let disk = Arc::new(MemDisk::new(5));
    let stored = filled(&disk, false);
    let data = disk.read_file("/db/data").unwrap();
    let inner = |block: &usize| data[block * 4096..].starts_with(b"DPAG\x02");
    let mut complete = 0;
    for block in (0..data.len() / 4096).filter(inner) {
        let (report, db) = repaired(&without_block(&disk, block));
        assert_eq!(rows(&db, "flights"), stored, "block {block}");
        assert!(report.uncertain.is_empty() && report.is_whole(), "{report:?}");
        complete += u64::from(report.found_rows > 0);
    }
    assert!(complete > 0, "some node that leads to leaves was lost");
}

// With an inner node go the patches of the leaves below it. What the leaves hold may be older than that:
// their rows are uncertain, and none of them is among the current ones.
#[test]
fn leaves_below_a_lost_node_with_patches_are_uncertain() {
    let disk = Arc::new(MemDisk::new(6));
    filled(&disk, true);
    let db = open(&disk, "/db");
    // Few changes below each node: the leaves have room for them in patches.
    db.transact(|tx| {
        let mut some = (1..DOCUMENTS).step_by(101);
        some.try_for_each(|id| tx.documents("flights").put(flight(id, 7)).map(drop))
    })
    .unwrap();
    let stored = rows(&db, "flights");
    db.close().unwrap();
    drop(db);
    let data = disk.read_file("/db/data").unwrap();
    // Flags of an inner node at level 1.
    let inner = |block: &usize| {
        let page = &data[block * 4096..];
        page.starts_with(b"DPAG\x02") && page[48 + 2..48 + 4] == [1, 2]
    };
    let mut seen = 0;
    for block in (0..data.len() / 4096).filter(inner) {
        let (report, db) = repaired(&without_block(&disk, block));
        let found = rows(&db, "flights");
        assert!(found.iter().all(|row| stored.get(row.0) == Some(row.1)), "block {block}: each is current");
        if found == stored {
            continue;
        }
        seen += 1;
        let lost = uncertain(&report);
        let also = rows(&db, &lost.name);
        let is_there = |id: &u64| found.contains_key(id) || also.contains_key(id);
        let missing = stored.keys().filter(|id| !is_there(id)).count();
        assert!(missing < stored.len() / 10, "{missing} of {} are nowhere", stored.len());
    }
    assert!(seen > 0, "some node with patches was lost");
}
