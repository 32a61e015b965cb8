//! Mirrors: readers of the change feed that begin late, or after the database was restored, are told what
//! they miss.

use std::collections::BTreeMap;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Change, Changed, Code, CommitSeq, FeedPosition, MemDisk};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders")]
struct Order {
    #[key]
    id: u64,
    city: String,
}

fn order(id: u64, city: &str) -> Order {
    Order { id, city: city.to_owned() }
}

fn open(disk: &MemDisk, path: &str) -> Db {
    Db::options().open_on(Arc::new(disk.clone()), path).unwrap()
}

/// A database whose first changes are no longer kept.
fn grown(disk: &MemDisk) -> Db {
    let db = open(disk, "/db");
    db.put(&order(1, "Oslo")).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(disk, "/db");
    db.put(&order(2, "Voss")).unwrap();
    db
}

fn copied(db: &Db) -> BTreeMap<u64, Order> {
    let orders = db.collection::<Order>().to_vec().unwrap();
    orders.into_iter().map(|order| (order.id, order)).collect()
}

/// A mirror that is built from changes alone lacks what was stored before the oldest of them.
#[test]
fn a_consumer_from_the_beginning_is_refused_where_the_beginning_is_gone() {
    let db = grown(&MemDisk::new(1));
    let error = db.consumer("mirror").from_beginning().register().unwrap_err();
    assert_eq!(error.code(), Code::FeedGap);
    assert!(error.hint().contains("first copy, then follow"), "{}", error.hint());
    assert_eq!(db.consumers().unwrap(), [], "it is not registered");
    let first = db.changes::<Order>().from_beginning().next().unwrap();
    assert_eq!(first.unwrap_err().code(), Code::FeedGap);
    // The oldest kept change is what it says, and no more.
    let part = db.consumer("part").from_oldest().register().unwrap();
    assert_eq!(part.read::<Change<Order>>().unwrap().run(|_, _| Ok(())).unwrap(), 1);
    // A registered consumer goes on where it was.
    let again = db.consumer("part").from_beginning().register().unwrap();
    assert_eq!(again.position().unwrap(), part.position().unwrap());
}

#[test]
fn a_consumer_from_the_beginning_gets_every_change_there_was() {
    let disk = MemDisk::new(2);
    let db = open(&disk, "/db");
    db.put(&order(1, "Oslo")).unwrap();
    let mirror = db.consumer("mirror").from_beginning().register().unwrap();
    drop((mirror, db.close().unwrap(), db));
    let db = open(&disk, "/db");
    db.put(&order(2, "Voss")).unwrap();
    let mirror = db.consumer("mirror").from_beginning().register().unwrap();
    assert_eq!(mirror.read::<Change<Order>>().unwrap().run(|_, _| Ok(())).unwrap(), 2);
    assert_eq!(db.changes::<Order>().from_beginning().count(), 2);
}

/// A database that was opened, registered types and was closed has no change that a mirror could miss.
#[test]
fn a_database_without_documents_can_be_followed_from_the_beginning() {
    let disk = MemDisk::new(3);
    let db = open(&disk, "/db");
    db.close().unwrap();
    drop(db);
    open(&disk, "/db").consumer("mirror").from_beginning().register().unwrap();
}

/// The restored database is another order of commits. A consumer that begins "now" there, without an error,
/// would never learn what was lost or had not been handled.
#[test]
fn a_consumer_of_a_restored_backup_gets_the_gap() {
    let disk = MemDisk::new(4);
    let db = open(&disk, "/db");
    db.put(&order(1, "Oslo")).unwrap();
    let mirror = db.consumer("mirror").refuse_writers().register().unwrap();
    for _ in 0..20 {
        db.put(&order(2, "Voss")).unwrap();
    }
    mirror.read::<Change<Order>>().unwrap().run(|_, _| Ok(())).unwrap();
    let handled = mirror.position().unwrap();
    db.put(&order(3, "Bodø")).unwrap();
    db.backup("/restored").unwrap();

    let restored = open(&disk, "/restored");
    let state = restored.consumers().unwrap();
    assert!(state.len() == 1 && state[0].has_gap && state[0].refuses_writers, "{state:?}");
    // The position of the original would mean a commit of the restored database by now.
    while restored.feed().newest.0 <= handled.0 {
        restored.put(&order(3, "Bodø")).unwrap();
    }
    let mirror = restored.consumer("mirror").register().unwrap();
    let error = mirror.read::<Change<Order>>().unwrap_err();
    assert_eq!(error.code(), Code::FeedGap);
    assert!(
        error.hint().contains("restored backup") && error.hint().contains("first copy"),
        "{}",
        error.hint()
    );
    let place = restored.feed().newest;
    assert_eq!(copied(&restored).len(), 3, "the mirror copies");
    mirror.seek(place).unwrap();
    restored.put(&order(4, "Moss")).unwrap();
    assert_eq!(mirror.read::<Change<Order>>().unwrap().run(|_, _| Ok(())).unwrap(), 1);
}

/// A mirror outside of the database knows only what it has stored. In a restored database its position means
/// other commits, also once the restored one has more commits than the position says.
#[test]
fn a_position_of_another_database_is_a_gap() {
    let disk = MemDisk::new(5);
    let db = open(&disk, "/db");
    db.backup("/restored").unwrap();
    for id in 0..20 {
        db.put(&order(id, "Oslo")).unwrap();
    }
    let position = db.feed_position();
    let stored: FeedPosition = position.to_string().parse().unwrap();
    assert_eq!(stored, position);
    let json = serde_json::to_string(&position).unwrap();
    assert_eq!(serde_json::from_str::<FeedPosition>(&json).unwrap(), position, "{json}");
    assert_eq!(db.changes::<Order>().resume(position).count(), 0);

    let restored = open(&disk, "/restored");
    let code =
        |mut changes: duramen::ChangeIter<Change<Order>>| changes.next().map(|one| one.unwrap_err().code());
    assert_eq!(code(restored.changes().since(position.seq)), Some(Code::FeedGap), "it is ahead");
    assert_eq!(code(restored.changes().resume(position)), Some(Code::FeedGap));
    while restored.feed().newest < CommitSeq(position.seq.0 + 5) {
        restored.put(&order(100, "Voss")).unwrap();
    }
    assert_eq!(code(restored.changes().resume(position)), Some(Code::FeedGap), "its commits are others");
    assert_eq!(code(restored.changes().resume(restored.feed_position())), None);
}

/// First copy, then follow: whatever is written meanwhile, the mirror ends as the collection.
#[test]
fn what_is_copied_first_and_followed_then_is_the_collection() {
    let db = grown(&MemDisk::new(6));
    let mirror = db.consumer("mirror").register().unwrap();
    db.put(&order(3, "between")).unwrap();
    db.delete::<Order>(1).unwrap();
    let mut outside = copied(&db);
    db.put(&order(2, "Bergen")).unwrap();
    db.delete::<Order>(3).unwrap();
    db.put(&order(4, "Moss")).unwrap();
    mirror
        .read::<Change<Order>>()
        .unwrap()
        .run(|_, changes| {
            for change in changes {
                match &change.what {
                    Changed::Put(order) => drop(outside.insert(order.id, order.clone())),
                    Changed::Deleted(id) => drop(outside.remove(id)),
                    Changed::Dropped => outside.clear(),
                }
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(outside, copied(&db));
}

#[test]
fn a_position_that_is_none_does_not_parse() {
    for text in [
        "",
        "7",
        "0123:7",
        "zz:7",
        "0123456789abcdef0123456789abcdef:",
        "0123456789abcdef0123456789abcdef:-1",
    ] {
        let error = text.parse::<FeedPosition>().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{text}");
    }
}
