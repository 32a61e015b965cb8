//! Migrations: documents of an older type are decoded as it, converted, and stored anew, concurrently with
//! readers and writers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use duramen::prelude::*;
use duramen::{Code, Disk, MemDisk, ReplaceError};

mod v1 {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", view(ByCity, key = city, value = euros, reduce = (Count, Max)))]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) city: String,
        pub(super) euros: u32,
    }
}

mod v2 {
    use super::*;

    /// The same fields, but the amount: in cents.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(
        name = "orders",
        view(ByCity, key = city, value = cents, reduce = (Count, Sum)),
        view(ByCode, key = code, unique)
    )]
    #[migrate_from(v1::Order)]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) city: String,
        pub(super) cents: i64,
        pub(super) code: String,
    }

    impl From<v1::Order> for Order {
        fn from(old: v1::Order) -> Order {
            let code = format!("{}-{}", old.city, old.id);
            Order { id: old.id, city: old.city.to_uppercase(), cents: i64::from(old.euros) * 100, code }
        }
    }
}

mod v3 {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", positional, view(ByTown, key = town, value = cents, reduce = Sum))]
    #[migrate_from(v2::Order)]
    pub(super) struct Order {
        #[key]
        pub(super) number: u64,
        pub(super) town: String,
        pub(super) cents: i64,
    }

    impl TryFrom<v2::Order> for Order {
        type Error = String;

        fn try_from(old: v2::Order) -> std::result::Result<Order, String> {
            if old.cents < 0 {
                return Err(format!("{} cents are less than nothing", old.cents));
            }
            Ok(Order { number: old.id, town: old.city, cents: old.cents })
        }
    }
}

fn old(id: u64) -> v1::Order {
    let city = if id.is_multiple_of(3) { "Oslo" } else { "Bergen" };
    v1::Order { id, city: city.to_owned(), euros: u32::try_from(id % 90).unwrap() }
}

fn fill(db: &Db, count: u64) {
    db.transact(|tx| (0..count).try_for_each(|id| tx.put(&old(id)))).unwrap();
}

fn done<C: Collection>(db: &Db) {
    db.migrate::<C>(|_| Ok(())).unwrap();
}

/// Documents and views are those of these orders, and the checks agree.
fn check(db: &Db, wanted: &BTreeMap<u64, v2::Order>) {
    let found: Vec<v2::Order> = db.collection().to_vec().unwrap();
    assert_eq!(found, wanted.values().cloned().collect::<Vec<_>>());
    let mut cities: BTreeMap<String, (u64, i128)> = BTreeMap::new();
    for order in wanted.values() {
        let city = cities.entry(order.city.clone()).or_default();
        *city = (city.0 + 1, city.1 + i128::from(order.cents));
    }
    let grouped = db.view::<v2::ByCity>().group_by::<String>().unwrap();
    assert_eq!(grouped.into_iter().collect::<BTreeMap<_, _>>(), cities);
    assert_eq!(db.view::<v2::ByCode>().count().unwrap(), wanted.len() as u64);
    checks(db);
}

fn checks(db: &Db) {
    assert_eq!(db.check_documents().unwrap().problems, Vec::<String>::new());
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn documents_are_converted_as_they_are_read_and_stored_anew_step_by_step() {
    let db = Db::in_memory().unwrap();
    fill(&db, 1_000);
    let mut wanted: BTreeMap<u64, v2::Order> = (0..1_000).map(|id| (id, old(id).into())).collect();
    // A reader changes nothing: the old program continues.
    assert_eq!(db.get::<v2::Order>(7).unwrap(), wanted.get(&7).cloned());
    assert_eq!(db.collection::<v2::Order>().range(10..20).to_vec().unwrap().len(), 10);
    assert_eq!(db.view::<v2::ByCity>().count().unwrap_err().code(), Code::Rebuilding);
    db.put(&old(7)).unwrap();

    db.register::<v2::Order>().unwrap();
    let error = db.put(&old(7)).unwrap_err();
    assert!(error.message().contains("its documents are of version 2, and Order is of version 1"), "{error}");
    assert!(error.hint().contains("#[collection(version = 2)]"), "{error}");
    assert!(db.get::<v1::Order>(7).is_err());
    assert_eq!(db.view::<v2::ByCity>().count().unwrap_err().code(), Code::Rebuilding);

    let mut seen = Vec::new();
    let stopped = db.migrate::<v2::Order>(|progress| {
        seen.push((progress.documents, progress.of));
        if seen.len() == 2 { Err(Error::invalid("that is enough")) } else { Ok(()) }
    });
    assert!(stopped.is_err());
    assert_eq!(seen, [(200, 1_000), (400, 1_000)]);
    // Half converted, everything is visible, each document once, and can be written.
    assert_eq!(db.collection::<v2::Order>().to_vec().unwrap(), wanted.values().cloned().collect::<Vec<_>>());
    checks(&db);
    for id in [100, 900] {
        let change = |order: &mut v2::Order| {
            order.cents += 1;
            Ok(())
        };
        wanted.insert(id, db.modify::<v2::Order>(id, change).unwrap().unwrap());
    }
    assert!(db.delete::<v2::Order>(950).unwrap() && db.delete::<v2::Order>(50).unwrap());
    wanted.retain(|id, _| ![50, 950].contains(id));
    checks(&db);
    done::<v2::Order>(&db);
    check(&db, &wanted);
    done::<v2::Order>(&db);
    assert!(!db.collections().unwrap()[0].is_migrating());
}

#[test]
fn tools_read_all_and_write_none_while_it_lasts() {
    let db = Db::in_memory().unwrap();
    fill(&db, 300);
    db.register::<v2::Order>().unwrap();
    db.put(&v2::Order { id: 3, city: "RØST".into(), cents: 5, code: "c".into() }).unwrap();
    let orders = db.documents("orders");
    let shown: Vec<Document> = orders.scan(Span::all()).unwrap().map(Result::unwrap).collect();
    assert_eq!(shown.len(), 300);
    assert_eq!(orders.get(3).unwrap().unwrap().get("cents"), Some(&Value::Int(5)));
    assert_eq!(orders.get(4).unwrap().unwrap().get("euros"), Some(&Value::Int(4)));
    let refused = orders.put(shown[4].clone()).unwrap_err();
    assert_eq!(refused.code(), Code::Rebuilding);
    assert!(orders.delete(5).unwrap());
    done::<v2::Order>(&db);
    let of_new = orders.get(4).unwrap().unwrap().with("cents", 1);
    orders.put(of_new).unwrap();
    assert_eq!(db.get::<v2::Order>(4).unwrap().unwrap().cents, 1);
    let columns = orders.schema().unwrap();
    assert!(columns.columns().iter().all(|column| column.name != "euros"), "{columns:?}");
    checks(&db);
}

// A converted document keeps its revision: an editor who read it before must not get a conflict.
#[test]
fn a_migration_changes_no_revision() {
    let db = Db::in_memory().unwrap();
    fill(&db, 3);
    let read = db.get_versioned::<v2::Order>(1).unwrap().unwrap();
    done::<v2::Order>(&db);
    let mine = v2::Order { cents: 77, ..read.document };
    db.replace(&mine, read.revision).unwrap();
    assert!(matches!(db.replace(&mine, read.revision), Err(ReplaceError::Changed(Some(_)))));
}

#[test]
fn a_chain_goes_from_the_first_to_the_last_also_from_halfway() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new(3));
    let open = || Db::options().open_on(Arc::clone(&disk), "/db").unwrap();
    let db = open();
    fill(&db, 500);
    let _ = db.migrate::<v2::Order>(|_| Err(Error::invalid("stop after a step")));
    db.close().unwrap();
    drop(db);
    let db = open();
    let wanted: Vec<v3::Order> = (0..500)
        .map(|id| v3::Order {
            number: id,
            town: old(id).city.to_uppercase(),
            cents: i64::from(old(id).euros) * 100,
        })
        .collect();
    assert_eq!(db.collection::<v3::Order>().to_vec().unwrap(), wanted);
    done::<v3::Order>(&db);
    assert_eq!(db.collection::<v3::Order>().to_vec().unwrap(), wanted);
    let sum: i128 = wanted.iter().map(|order| i128::from(order.cents)).sum();
    assert_eq!(db.view::<v3::ByTown>().reduce().unwrap(), sum);
    checks(&db);
    // Once no older documents are left, the chain may be cut, and the version number is kept.
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", positional, version = 3)]
    struct Last {
        #[key]
        number: u64,
        town: String,
        cents: i64,
    }
    assert_eq!(db.collection::<Last>().count().unwrap(), 500);
    db.put(&Last { number: 500, town: String::new(), cents: 0 }).unwrap();
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders", positional, version = 9)]
    struct TooFar {
        #[key]
        number: u64,
    }
    let error = db.register::<TooFar>().unwrap_err();
    assert!(error.message().contains("it has documents of version 3"), "{error}");
    assert!(error.hint().contains("version = 3)]\nstruct OldTooFar"), "{}", error.hint());
}

#[test]
fn a_document_that_cannot_be_converted_is_named_and_nothing_is_lost() {
    let db = Db::in_memory().unwrap();
    for id in 0..300 {
        let cents = if id == 250 { -1 } else { 1 };
        db.put(&v2::Order { id, city: "Oslo".into(), cents, code: id.to_string() }).unwrap();
    }
    let error = db.migrate::<v3::Order>(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    assert!(error.message().contains("the document 250 of orders, of version 2"), "{error}");
    assert!(error.message().contains("-1 cents are less than nothing"), "{error}");
    assert_eq!(db.documents("orders").count(Span::all()).unwrap(), 300);
    db.put(&v3::Order { number: 250, town: "OSLO".into(), cents: 0 }).unwrap();
    done::<v3::Order>(&db);
    checks(&db);
}

#[test]
fn two_that_would_have_the_same_unique_key_are_named() {
    let db = Db::in_memory().unwrap();
    fill(&db, 10);
    db.put(&v2::Order { id: 100, city: String::new(), cents: 0, code: "Oslo-3".into() }).unwrap();
    let error = db.migrate::<v2::Order>(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::UniqueViolation);
    assert!(error.message().contains("the document 3 of orders"), "{error}");
    db.delete::<v2::Order>(100).unwrap();
    done::<v2::Order>(&db);
    checks(&db);
}

/// It claims to be the old type, and is not.
#[test]
fn an_ancestor_that_does_not_read_what_was_written_is_refused() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    struct OldOrder {
        #[key]
        id: u64,
        city: String,
        cents: i64,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    #[migrate_from(OldOrder)]
    struct Order {
        #[key]
        id: u64,
    }
    impl From<OldOrder> for Order {
        fn from(old: OldOrder) -> Order {
            Order { id: old.id }
        }
    }
    let db = Db::in_memory().unwrap();
    fill(&db, 3);
    let error = db.migrate::<Order>(|_| Ok(())).unwrap_err();
    assert!(error.message().contains("its documents have no field cents"), "{error}");
    assert!(error.hint().contains("    euros: u32,\n"), "{}", error.hint());
}

#[test]
fn a_conversion_leaves_the_key_as_it_is() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    #[migrate_from(v1::Order)]
    struct Moved {
        #[key]
        id: u64,
    }
    impl From<v1::Order> for Moved {
        fn from(old: v1::Order) -> Moved {
            Moved { id: old.id + 1 }
        }
    }
    let db = Db::in_memory().unwrap();
    fill(&db, 3);
    let error = db.get::<Moved>(1).unwrap_err();
    assert!(error.message().contains("converted, it has the key 2"), "{error}");
}

// An empty collection has nothing to convert: it is of the new version at once.
#[test]
fn an_empty_collection_is_migrated_by_its_first_write() {
    let db = Db::in_memory().unwrap();
    db.register::<v1::Order>().unwrap();
    db.put(&v2::Order { id: 1, city: "OSLO".into(), cents: 1, code: "a".into() }).unwrap();
    assert_eq!(db.view::<v2::ByCity>().reduce().unwrap(), (1, 1));
    checks(&db);
}

#[test]
fn a_transaction_that_knows_both_types_converts_what_it_wrote_itself() {
    let db = Db::in_memory().unwrap();
    let read: v2::Order = db
        .transact(|tx| {
            tx.put(&old(1))?;
            tx.put(&v2::Order { id: 2, city: "OSLO".into(), cents: 1, code: "a".into() })?;
            Ok(tx.get(1)?.expect("it was just put"))
        })
        .unwrap();
    assert_eq!(read, old(1).into());
    done::<v2::Order>(&db);
    checks(&db);
}

// Values without names are identified by position: an ancestor with another order of fields would mix them
// up.
#[test]
fn an_ancestor_with_its_fields_in_another_order_is_refused() {
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "moves", positional)]
    struct Move {
        #[key]
        id: u64,
        from: i64,
        to: i64,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "moves", positional)]
    struct Other {
        #[key]
        id: u64,
        to: i64,
        from: i64,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "moves")]
    #[migrate_from(Other)]
    struct New {
        #[key]
        id: u64,
        by: i64,
    }
    impl From<Other> for New {
        fn from(old: Other) -> New {
            New { id: old.id, by: old.to - old.from }
        }
    }
    let db = Db::in_memory().unwrap();
    db.put(&Move { id: 1, from: 2, to: 5 }).unwrap();
    let error = db.get::<New>(1).unwrap_err();
    assert!(
        error.message().contains("its positional documents hold (id, from, to) in this order"),
        "{error}"
    );
    assert!(error.hint().contains("    from: i64,\n    to: i64,\n"), "{}", error.hint());
}

mod stock_v1 {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "stock")]
    pub(super) struct Stock {
        #[key]
        pub(super) id: u64,
        pub(super) pieces: BTreeMap<String, u32>,
    }
}

/// Its map is written in another order each time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "stock")]
#[migrate_from(stock_v1::Stock)]
struct Stock {
    #[key]
    id: u64,
    pieces: HashMap<String, HashMap<u64, u32>>,
}

impl From<stock_v1::Stock> for Stock {
    fn from(old: stock_v1::Stock) -> Stock {
        let shelves = |pieces: u32| (0..10).map(|shelf| (shelf, pieces + 1)).collect();
        Stock {
            id: old.id,
            pieces: old.pieces.into_iter().map(|(name, pieces)| (name, shelves(pieces))).collect(),
        }
    }
}

#[test]
fn the_revision_of_a_document_with_hash_maps_is_the_same_at_each_read_and_after_a_migration() {
    let db = Db::in_memory().unwrap();
    let pieces: BTreeMap<String, u32> = (0..20).map(|number| (format!("part {number}"), number)).collect();
    db.put(&stock_v1::Stock { id: 1, pieces: pieces.clone() }).unwrap();
    db.put(&stock_v1::Stock { id: 2, pieces }).unwrap();
    db.register::<Stock>().unwrap();
    let [first, second] = [1, 2].map(|id| db.get_versioned::<Stock>(id).unwrap().unwrap());
    assert_eq!(db.get_versioned::<Stock>(1).unwrap().unwrap().revision, first.revision);

    let mut edited = first.document.clone();
    edited.pieces.remove("part 7");
    let next = db.replace(&edited, first.revision).unwrap();
    assert_eq!(db.get_versioned::<Stock>(1).unwrap().unwrap().revision, next);
    assert!(matches!(db.replace(&edited, first.revision), Err(ReplaceError::Changed(Some(_)))));
    done::<Stock>(&db);
    assert_eq!(db.get_versioned::<Stock>(2).unwrap().unwrap().revision, second.revision);
    let moved = Stock { id: 2, ..edited };
    db.replace(&moved, second.revision).unwrap();
}
