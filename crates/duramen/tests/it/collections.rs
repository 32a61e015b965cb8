//! Collections of documents: their methods, their definitions, and that both survive a reopening.

use duramen::prelude::*;
use duramen::{Code, Direction, KeyRange};

fn orders(db: &Db) -> Documents {
    db.ensure(&Schema::new("orders").key(["town", "id"]).sum(["cents"])).unwrap()
}

fn order(town: &str, id: u64, cents: Option<i64>) -> Document {
    doc! { "town": town, "id": id, "cents": cents }
}

fn filled() -> (Db, Documents) {
    let db = Db::in_memory().unwrap();
    let orders = orders(&db);
    for (town, id, cents) in
        [("Oslo", 1, Some(5)), ("Oslo", 2, None), ("Bergen", 1, Some(-7)), ("Oslo", 10, Some(100))]
    {
        orders.put(order(town, id, cents)).unwrap();
    }
    (db, orders)
}

#[test]
fn the_verbs_of_a_collection() {
    let (_, orders) = filled();
    assert_eq!(orders.get(("Oslo", 2)).unwrap(), Some(order("Oslo", 2, None)));
    assert_eq!(orders.get(("Oslo", 3)).unwrap(), None);
    assert_eq!(orders.count(Span::all()).unwrap(), 4);
    let oslo = orders.reduce(Span::prefix("Oslo").unwrap()).unwrap();
    assert_eq!(
        (oslo.count(), oslo.sum("cents"), oslo.nulls("cents"), oslo.sum("id")),
        (3, Some(105), Some(1), None)
    );
    let none = orders.reduce(Span::prefix("Osl").unwrap()).unwrap();
    assert_eq!((none.count(), none.sum("cents"), none.nulls("cents")), (0, Some(0), Some(0)));
    assert_eq!(orders.rank(("Oslo", 10)).unwrap(), 3);
    assert_eq!(orders.nth(3).unwrap(), Some(order("Oslo", 10, Some(100))));
    assert_eq!(orders.nth(4).unwrap(), None);
    let range = Span::between(("Oslo", 1), ("Oslo", 10)).unwrap();
    let scanned: Vec<Document> = orders.scan(range).unwrap().map(Result::unwrap).collect();
    assert_eq!(scanned, [order("Oslo", 1, Some(5)), order("Oslo", 2, None)]);
    assert!(orders.delete(("Oslo", 1)).unwrap());
    assert!(!orders.delete(("Oslo", 1)).unwrap());
    assert_eq!(orders.reduce(Span::all()).unwrap().sum("cents"), Some(93));
}

#[test]
fn insert_refuses_what_put_replaces() {
    let (_, orders) = filled();
    let error = orders.insert(order("Oslo", 1, Some(6))).unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    assert!(error.message().contains("Oslo,1"), "{error}");
    orders.put(order("Oslo", 1, Some(6))).unwrap();
    orders.insert(order("Voss", 1, None)).unwrap();
    assert_eq!(orders.reduce(Span::all()).unwrap().sum("cents"), Some(99));
}

#[test]
fn documents_that_do_not_fit_change_nothing() {
    let (db, orders) = filled();
    for (document, word) in [
        (doc! { "town": "Oslo" }, "no id"),
        (doc! { "town": "Oslo", "id": "x" }, "id holds text"),
        (doc! { "town": "Oslo", "id": 9, "cents": 1.5 }, "cents holds float"),
        (doc! { "town": "Oslo", "id": 9, "big": Value::Int(1 << 80) }, "64 bits"),
        (doc! { "town": "x".repeat(2000), "id": 9 }, "1024"),
    ] {
        let error = orders.put(document).unwrap_err();
        assert!(error.message().contains(word), "{word}: {error}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(orders.count(Span::all()).unwrap(), 4);
    assert!(orders.schema().unwrap().kind("big").is_none(), "a column came of a refused document");
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn fields_met_on_the_way_become_columns() {
    let (db, orders) = filled();
    orders
        .put(doc! { "town": "Voss", "id": 1, "note": "first", "weight": 1.5, "tags": vec![Value::from("a")] })
        .unwrap();
    let schema = orders.schema().unwrap();
    assert_eq!(schema.kind("note"), Some(ColumnType::Text));
    assert_eq!(schema.kind("weight"), Some(ColumnType::Float));
    assert_eq!(schema.kind("tags"), Some(ColumnType::Any));
    orders.put(doc! { "town": "Voss", "id": 2, "weight": 2 }).unwrap();
    assert_eq!(orders.get(("Voss", 2)).unwrap().unwrap().get("weight"), Some(&Value::Float(2.0)));
    assert!(orders.put(doc! { "town": "Voss", "id": 3, "note": 5 }).is_err());
    assert_eq!(db.collections().unwrap().len(), 1);
}

#[test]
fn terms_are_settled_at_creation() {
    let (db, _) = filled();
    db.ensure(&Schema::new("orders").key(["town", "id"]).sum(["cents"])).unwrap();
    for other in [
        Schema::new("orders").key(["id", "town"]).sum(["cents"]),
        Schema::new("orders").key(["town", "id"]),
        Schema::new("orders").key(["town", "id"]).sum(["cents"]).column("id", ColumnType::Text),
    ] {
        assert_eq!(db.ensure(&other).unwrap_err().code(), Code::InvalidArgument);
    }
    let created = db.transact(|tx| tx.create(&Schema::new("orders").key(["id"])));
    assert_eq!(created.unwrap_err().code(), Code::AlreadyExists);
    let unknown = db.documents("order").count(Span::all()).unwrap_err();
    assert_eq!((unknown.code(), unknown.kind()), (Code::NoSuchTree, ErrorKind::NotFound));
}

#[test]
fn a_dropped_collection_leaves_nothing() {
    let (db, orders) = filled();
    assert!(db.transact(|tx| tx.drop_collection("orders")).unwrap());
    assert!(!db.transact(|tx| tx.drop_collection("orders")).unwrap());
    assert!(orders.count(Span::all()).is_err());
    let again = db.ensure(&Schema::new("orders").key(["id"])).unwrap();
    assert_eq!(again.count(Span::all()).unwrap(), 0);
    assert!(db.check().unwrap().is_clean());
}

/// What does not fit one transaction is deleted in several, the first keys first.
#[test]
fn a_range_is_deleted_some_at_a_time() {
    let (db, orders) = filled();
    let all = orders.count(Span::all()).unwrap();
    let first = orders.nth(0).unwrap().unwrap();
    let delete =
        |at_most| db.transact(|tx| tx.documents("orders").delete_first(Span::all(), at_most)).unwrap();
    assert_eq!((delete(0), delete(1)), (0, 1));
    assert_ne!(orders.nth(0).unwrap().unwrap(), first);
    assert_eq!(delete(all), all - 1);
    assert_eq!((delete(all), orders.count(Span::all()).unwrap()), (0, 0));
}

/// All at once, in one small transaction, as `duramen del --all` does.
#[test]
fn a_collection_is_emptied_by_dropping_and_creating_it_in_one_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Db::open(directory.path().join("shop.duramen")).unwrap();
    let db = open();
    let orders = orders(&db);
    orders.put(order("Oslo", 1, Some(5))).unwrap();
    let schema = orders.schema().unwrap();
    let before = db.snapshot().unwrap();
    db.transact(|tx| {
        tx.drop_collection("orders")?;
        tx.create(&schema)?;
        assert_eq!(tx.documents("orders").count(Span::all())?, 0);
        tx.documents("orders").put(order("Bergen", 2, Some(7)))
    })
    .unwrap();
    assert_eq!(before.documents("orders").count(Span::all()).unwrap(), 1);
    let check = |db: &Db| {
        assert_eq!(db.documents("orders").schema().unwrap(), schema);
        assert_eq!(db.documents("orders").reduce(Span::all()).unwrap().sum("cents"), Some(7));
        assert!(db.check().unwrap().is_clean());
    };
    check(&db);
    drop((db, orders, before));
    check(&open());
}

#[test]
fn everything_comes_back_after_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.duramen");
    let db = Db::open(&path).unwrap();
    orders(&db).put(order("Oslo", 1, Some(5))).unwrap();
    db.bytes("sessions").put(b"sid", b"42").unwrap();
    db.close().unwrap();
    assert_eq!(db.documents("orders").put(order("Oslo", 2, None)).unwrap_err().code(), Code::Closed);
    assert_eq!(db.snapshot().unwrap().documents("orders").count(Span::all()).unwrap(), 1, "reads go on");
    drop(db);

    let db = Db::options().read_only(true).open(&path).unwrap();
    assert_eq!(db.documents("orders").reduce(Span::all()).unwrap().sum("cents"), Some(5));
    assert_eq!(db.bytes("sessions").get(b"sid").unwrap(), Some(b"42".to_vec()));
    assert_eq!(db.documents("orders").put(order("Oslo", 2, None)).unwrap_err().code(), Code::ReadOnly);
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn trees_of_bytes_keep_clear_of_ours() {
    let (db, _) = filled();
    let tree = db.bytes("sessions");
    assert_eq!(tree.get(b"a").unwrap(), None);
    assert_eq!(tree.count(&KeyRange::all()).unwrap(), 0);
    for key in [&b"a"[..], b"b", b"\xff", b""] {
        tree.put(key, [key, b"!"].concat()).unwrap();
    }
    let mut rows = tree.scan(KeyRange::all(), Direction::Reverse).unwrap();
    let mut keys = Vec::new();
    while let Some((key, value)) = rows.next().unwrap() {
        assert_eq!(value, [key, b"!"].concat());
        keys.push(key.to_vec());
    }
    assert_eq!(keys, [&b"\xff"[..], b"b", b"a", b""]);
    assert!(tree.delete(b"a").unwrap());
    assert_eq!(db.snapshot().unwrap().byte_trees().unwrap(), ["sessions"]);
    for name in ["", "duramen/collections", "duramen/rows/orders", "duramen/x"] {
        assert_eq!(db.bytes(name).put(b"a", b"b").unwrap_err().code(), Code::InvalidArgument, "{name}");
        assert!(db.bytes(name).get(b"a").is_err(), "{name}");
    }
}

#[test]
fn large_documents_are_whole() {
    let (db, _) = filled();
    let notes = db.ensure(&Schema::new("notes").key(["id"])).unwrap();
    let text: String = (0..300_000).map(|i| char::from(b'a' + u8::try_from(i % 26).unwrap())).collect();
    notes.put(doc! { "id": 1, "text": text.as_str() }).unwrap();
    assert_eq!(notes.get(1).unwrap().unwrap().get("text"), Some(&Value::Text(text)));
    assert_eq!(notes.scan(Span::all()).unwrap().count(), 1);
}
