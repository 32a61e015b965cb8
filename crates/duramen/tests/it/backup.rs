//! Backups: one state of the database, which opens as a database or not at all.

use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, Direction, Disk, KeyRange, MemDisk};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(Sales, key = city, value = cents, reduce = (Count, Sum)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
}

fn order(id: u64) -> Order {
    Order { id, city: format!("city {}", id % 7), cents: i64::try_from(id).unwrap() * 3 }
}

fn open(disk: &Arc<dyn Disk>, path: &str) -> Result<Db> {
    Db::options().open_on(Arc::clone(disk), path)
}

fn filled(disk: &Arc<dyn Disk>) -> Db {
    let db = open(disk, "/db").unwrap();
    db.transact(|tx| (0..3_000).try_for_each(|id| tx.put(&order(id)))).unwrap();
    db.bytes("pictures").put("cat", vec![7; 300_000]).unwrap();
    db.bytes("empty").put("key", "value").unwrap();
    db.bytes("empty").delete("key").unwrap();
    db
}

// A backup that lacks a tree, a view's row or a big value would be noticed only when it is needed.
#[test]
fn a_backup_holds_everything_and_goes_on_by_itself() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(1));
    let db = filled(&disk);
    let mut told = Vec::new();
    let done = db
        .backup_with("/copy", |progress| {
            told.push(progress.entries);
            Ok(())
        })
        .unwrap();
    assert_eq!(done.entries, done.of);
    assert!(told.is_sorted() && told.last() == Some(&done.of));
    db.put(&order(9_000)).unwrap();

    let copy = open(&disk, "/copy").unwrap();
    assert_eq!(copy.collection::<Order>().to_vec().unwrap(), (0..3_000).map(order).collect::<Vec<_>>());
    assert_eq!(
        copy.view::<Sales>().key("city 3").reduce().unwrap(),
        db.view::<Sales>().key("city 3").reduce().unwrap()
    );
    assert_eq!(copy.bytes("pictures").get("cat").unwrap(), Some(vec![7; 300_000]));
    assert_eq!(copy.snapshot().unwrap().byte_trees().unwrap(), ["empty", "pictures"]);
    assert!(copy.check().unwrap().is_clean());
    let report = copy.check_documents().unwrap();
    assert_eq!((report.documents, report.problem_count), (3_000, 0));
    copy.put(&order(9_001)).unwrap();
    assert_eq!(db.get::<Order>(9_001).unwrap(), None, "the original knows nothing of it");
    assert_eq!(copy.get::<Order>(9_000).unwrap(), None, "nor the copy of what came after");
}

// Each document and its counterpart are written in one transaction: no backup may contain only one of them.
#[test]
fn a_backup_beside_writers_is_one_state() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(2));
    let db = filled(&disk);
    let mut next = 10_000;
    db.backup_with("/copy", |_| {
        // Concurrent writes during the backup.
        db.transact(|tx| {
            tx.put(&order(next))?;
            tx.put_bytes("pairs", &next.to_be_bytes(), b"written with it")
        })?;
        next += 1;
        Ok(())
    })
    .unwrap();
    assert!(next > 10_000);
    let copy = open(&disk, "/copy").unwrap();
    assert_eq!(copy.collection::<Order>().count().unwrap(), 3_000);
    assert!(copy.bytes("pairs").scan(KeyRange::all(), Direction::Forward).is_err());
}

#[test]
fn a_backup_overwrites_nothing() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(3));
    let db = filled(&disk);
    db.backup("/copy").unwrap();
    for path in ["/copy", "/db"] {
        assert_eq!(db.backup(path).unwrap_err().code(), Code::AlreadyExists, "{path}");
    }
    assert_eq!(open(&disk, "/copy").unwrap().collection::<Order>().count().unwrap(), 3_000);
}

// Restoring from half a backup would silently lose the other half.
#[test]
fn half_a_backup_does_not_open() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(4));
    let db = filled(&disk);
    let stopped = db.backup_with("/copy", |progress| {
        if progress.entries < progress.of { Ok(()) } else { Err(Error::invalid("stopped at the end")) }
    });
    assert_eq!(stopped.unwrap_err().message(), "stopped at the end");
    for read_only in [false, true] {
        let opened = Db::options().read_only(read_only).open_on(Arc::clone(&disk), Path::new("/copy"));
        let error = opened.unwrap_err();
        assert_eq!(error.code(), Code::UnfinishedCopy);
        assert!(error.hint().contains("delete"), "{}", error.hint());
    }
    assert_eq!(db.backup("/copy").unwrap_err().code(), Code::AlreadyExists);
}
