//! The check of documents: it reads around every corrupt node, and reports each range that it cannot read.

use std::sync::Arc;

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen::{Disk, DocumentReport, MemDisk};

const LINES: u64 = 20_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "lines")]
struct Line {
    #[key]
    id: u64,
    text: String,
}

/// The text of a line, by which its page is found.
fn text(id: u64) -> String {
    format!("line number {id:05}, with some more words after the number")
}

fn open(disk: &Arc<MemDisk>) -> Db {
    // A text is looked for in the pages.
    let options = Db::options().engine(|engine| engine.compress = false);
    options.background(false).open_on(Arc::clone(disk) as Arc<dyn Disk>, "/db").unwrap()
}

fn corrupt(disk: &MemDisk, id: u64) {
    let (data, text) = (disk.read_file("/db/data").unwrap(), text(id));
    let found: Vec<u64> = data
        .windows(text.len())
        .zip(0..)
        .filter(|(here, _)| *here == text.as_bytes())
        .map(|(_, at)| at)
        .collect();
    assert!(!found.is_empty(), "{text}");
    found.iter().for_each(|at| disk.flip_bit("/db/data", *at, 1).unwrap());
}

/// Corrupts the pages of these lines, and compares the report with what a lookup of each line answers.
fn check(corrupted: &[u64], wanted: usize) -> DocumentReport {
    let disk = Arc::new(MemDisk::new(21));
    let db = open(&disk);
    db.transact(|tx| (0..LINES).try_for_each(|id| tx.put(&Line { id, text: text(id) }))).unwrap();
    db.close().unwrap();
    drop(db);
    corrupted.iter().for_each(|id| corrupt(&disk, *id));

    let db = open(&disk);
    let report = db.check_documents().unwrap();
    let readable: Vec<u64> = (0..LINES).filter(|id| db.get::<Line>(*id).is_ok()).collect();
    assert_eq!(report.documents, readable.len() as u64, "{report:?}");
    let mut stretches = Vec::new();
    let ends = readable.iter().map(|id| Some(*id)).chain([None]);
    let mut after = None;
    for before in ends {
        let (first, end) = (after.map_or(0, |id| id + 1), before.unwrap_or(LINES));
        if first < end {
            stretches.push((after, before, end - first));
        }
        after = before;
    }
    let id = |key: &Option<Vec<Element>>| match key.as_deref() {
        Some([Element::Int(id)]) => Some(u64::try_from(*id).unwrap()),
        None => None,
        other => panic!("{other:?}"),
    };
    let found = report.unreadable.iter();
    let reported: Vec<_> =
        found.map(|one| (id(&one.after), id(&one.before), one.documents.unwrap())).collect();
    assert_eq!(reported, stretches, "{report:?}");
    assert_eq!((report.unreadable.len(), report.unreadable_count), (wanted, wanted as u64));
    assert_eq!(report.is_clean(), wanted == 0);
    report
}

#[test]
fn a_sound_collection_has_no_unreadable_range() {
    let report = check(&[], 0);
    assert_eq!(report.documents, LINES);
}

#[test]
fn each_corrupt_leaf_costs_its_own_documents() {
    check(&[10_000], 1);
    // What lies between two corrupt leaves can be read.
    check(&[3_000, 12_000], 2);
    let report = check(&[2_000, 5_000, 9_000, 13_000, 17_000], 5);
    assert!(report.documents > LINES * 9 / 10, "{report:?}");
}

#[test]
fn the_first_and_the_last_leaf_may_be_corrupt() {
    check(&[0, 10_000, LINES - 1], 3);
}
