//! Documents by shape: beside documents with names, in every reader, and after what could confuse numbers.

mod formats;

use std::path::Path;
use std::sync::Arc;

use duramen::find::Condition;
use duramen::prelude::*;
use duramen::{AnyChange, AnyChanged, Code, Disk, MemDisk, ObserveFrom, Observer, RepairReport};
use duramen_disk::memory::{CallKind, Effect, Fault, SyncGate};
use duramen_engine::{Background, Direction, Engine, Hooks, KeyRange, Options, TreeId};

use crate::golden::{DATABASE, load, open_db, store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// Where the superblocks lie, and their incompatible features.
const SUPERBLOCKS: [usize; 2] = [0, 16384];
const FEATURES_AT: usize = 28;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "orders", view(ByCity, key = city, value = cents, reduce = (Count, Sum)))]
struct Order {
    #[key]
    id: u64,
    city: String,
    cents: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn order(id: u64) -> Order {
    let note = id.is_multiple_of(3).then(|| format!("note {id}"));
    Order { id, city: ["Oslo", "Bergen"][usize::from(id % 2 == 1)].into(), cents: 100, note }
}

fn sound(db: &Db) {
    assert!(db.check().unwrap().is_clean());
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn features(disk: &MemDisk) -> Vec<u64> {
    let data = disk.read_file(Path::new(DATABASE).join("data")).unwrap();
    let bits = |at: usize| u64::from_le_bytes(data[at + FEATURES_AT..][..8].try_into().unwrap());
    SUPERBLOCKS.map(bits).to_vec()
}

// An earlier build refuses the database once there is a document that it cannot read, and not before.
#[test]
fn the_feature_is_set_by_the_first_document() {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    db.bytes("notes").put("a", "1").unwrap();
    db.kv("sessions").put("a", &1).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(features(&disk), [0, 0]);
    let db = open_db(&disk, false);
    db.put(&order(1)).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(features(&disk), [1, 1]);
    let db = open_db(&disk, false);
    db.transact(|tx| tx.drop_collection("orders").map(drop)).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(features(&disk), [1, 1], "the feed may still have them");
}

// D9: a database of an earlier build has documents with names, which stay until they are put.
#[test]
fn documents_with_names_and_of_shapes_lie_side_by_side() {
    let disk = load(&Path::new(GOLDEN).join("typed-1/closed"));
    let db = open_db(&disk, false);
    let state = db.snapshot().unwrap();
    let collections = db.collections().unwrap();
    let all = |name: &str| -> Vec<Document> {
        state.documents(name).scan(Span::all()).unwrap().map(|document| document.unwrap()).collect()
    };
    let mut rewritten = 0;
    for schema in collections.iter().filter(|schema| !schema.is_migrating()) {
        for document in all(schema.name()).into_iter().step_by(2) {
            // A tool cannot write the documents of some types.
            rewritten += u32::from(db.documents(schema.name()).put(document).is_ok());
        }
    }
    assert!(rewritten > 5, "{rewritten}");
    for schema in &collections {
        let now: Vec<Document> = db
            .documents(schema.name())
            .scan(Span::all())
            .unwrap()
            .map(|document| document.unwrap())
            .collect();
        assert_eq!(now, all(schema.name()), "{}", schema.name());
    }
    sound(&db);
}

#[test]
fn a_revision_is_of_the_content() {
    let db = Db::in_memory().unwrap();
    db.put(&order(3)).unwrap();
    let read = db.get_versioned::<Order>(3).unwrap().unwrap();
    let revision = db.replace(&order(3), read.revision).unwrap();
    assert_eq!(revision, read.revision);
    let seq = db.feed().newest;
    db.modify::<Order>(3, |_| Ok(())).unwrap();
    let changes: Vec<_> = db.all_changes().since(seq).collect();
    assert!(changes.is_empty(), "a change of nothing writes nothing: {changes:?}");
}

// The number of a shape that was rolled back must not come to mean another shape.
#[test]
fn numbers_of_transactions_that_were_rolled_back_are_not_given_again() {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    for round in 0..4_i64 {
        let failed: Result<()> = db.transact(|tx| {
            tx.documents("a").put(Document::new().with("id", round).with(format!("lost {round}"), 1))?;
            Err(Error::invalid("on purpose"))
        });
        failed.unwrap_err();
        let kept = Document::new().with("id", round).with(format!("kept {round}"), 2);
        db.documents("a").put(kept).unwrap();
    }
    let verify = |db: &Db| {
        for round in 0..4_i64 {
            let found = db.documents("a").get(round).unwrap().unwrap();
            assert_eq!(found, Document::new().with("id", round).with(format!("kept {round}"), 2));
        }
        sound(db);
    };
    verify(&db);
    // Killed: what is not in the log is gone.
    let disk = disk.deep_clone();
    let db = open_db(&disk, false);
    verify(&db);
    db.documents("a").put(doc! { "id": 9, "new": 1 }).unwrap();
    verify(&db);
}

#[test]
fn a_collection_of_many_shapes_goes_on_with_names() {
    let disk = MemDisk::new(1);
    let of = |id: u64| Document::new().with("id", id).with(format!("field {id}"), id);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("wide").key(["id"])).unwrap();
    db.transact(|tx| (0..400).try_for_each(|id| tx.documents("wide").put(of(id)))).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open_db(&disk, false);
    for id in 0..400 {
        assert_eq!(db.documents("wide").get(id).unwrap(), Some(of(id)));
    }
    let wide = db.documents("wide");
    for condition in ["field 399=399", "field 7=7"] {
        let condition = Condition::parse(&wide.schema().unwrap(), condition).unwrap();
        assert_eq!(wide.find([condition]).count().unwrap(), 1);
    }
    sound(&db);
}

// Shapes are not the collection's: the feed goes on with its documents after it was dropped.
#[test]
fn changes_of_a_dropped_collection_have_names() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::options().feed_retain_bytes(1 << 20).open(&path).unwrap();
    let mut observer = Observer::open(&path, ObserveFrom::Oldest).unwrap();
    db.put(&order(1)).unwrap();
    db.transact(|tx| tx.drop_collection("orders").map(drop)).unwrap();
    db.put(&order(2)).unwrap();
    db.close().unwrap();
    let wanted = [order(1), order(2)].map(|order| Document::from_serialize(&order).unwrap());
    let documents = |changes: Vec<AnyChange>| -> Vec<Document> {
        let puts = changes.into_iter().filter(|change| matches!(change.what, AnyChanged::Put { .. }));
        puts.filter(|change| change.origin.name() == "orders")
            .map(|put| put.document().unwrap().unwrap())
            .collect()
    };
    let mut seen = Vec::new();
    while let Some(change) = observer.next().unwrap() {
        seen.push(change);
    }
    assert_eq!(documents(seen), wanted);
    drop(db);
    let db = Db::open(&path).unwrap();
    let changes = db.all_changes().from_oldest().map(|change| change.unwrap()).collect();
    assert_eq!(documents(changes), wanted);
}

// Sums are computed where no catalogue is at hand, such as at replay.
#[test]
fn sums_of_documents_in_any_order_of_fields() {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("sales").key(["id"]).sum(["cents", "pieces"])).unwrap();
    let documents = [
        doc! { "id": 1, "cents": 5, "pieces": 1 },
        doc! { "pieces": 2, "city": "Oslo", "cents": 7, "id": 2 },
        doc! { "id": 3, "cents": Value::Null, "pieces": 3 },
        doc! { "id": 4, "city": "Bergen", "pieces": 4 },
        doc! { "id": 5 },
    ];
    db.transact(|tx| documents.iter().try_for_each(|document| tx.documents("sales").put(document.clone())))
        .unwrap();
    let verify = |db: &Db| {
        let all = db.documents("sales").reduce(Span::all()).unwrap();
        assert_eq!((all.sum("cents"), all.nulls("cents")), (Some(12), Some(3)));
        assert_eq!((all.sum("pieces"), all.nulls("pieces")), (Some(10), Some(1)));
        let stored: Vec<_> =
            db.documents("sales").scan(Span::all()).unwrap().map(|one| one.unwrap()).collect();
        assert_eq!(stored, documents, "fields are shown in the order in which they were put");
        sound(db);
    };
    verify(&db);
    let disk = disk.deep_clone();
    let db = open_db(&disk, false);
    verify(&db);
    db.close().unwrap();
    drop(db);
    verify(&open_db(&disk, true));
}

/// Changes the rows of both trees of shapes, as corruption would.
fn change_shapes(
    disk: &MemDisk,
    change: impl Fn(&str, &mut duramen_engine::Transaction, TreeId) -> Result<()>,
) {
    let options =
        Options { background: Background::Stepped, feed_retain_bytes: 1 << 20, ..Options::default() };
    let engine =
        Engine::open(Arc::new(disk.clone()), Path::new(DATABASE), options, Hooks::default()).unwrap();
    let changes = |tx: &mut duramen_engine::Transaction| {
        for name in ["duramen/shapes", "duramen/shapes-copy"] {
            let tree = tx.tree(name)?.unwrap();
            change(name, tx, tree)?;
        }
        Ok(())
    };
    engine.transact(Durability::Disk, changes).unwrap();
    engine.close().unwrap();
}

fn key_of(number: u64) -> Vec<u8> {
    duramen::tuple::encode(&number).unwrap()
}

/// A database with documents of two shapes: the numbers 0 and 1.
fn two_shapes() -> (MemDisk, [Document; 3]) {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    let documents = [doc! { "id": 1, "x": 1 }, doc! { "id": 2, "y": 2 }, doc! { "id": 3, "x": 3 }];
    documents.iter().for_each(|document| drop(db.documents("a").put(document.clone()).unwrap()));
    db.close().unwrap();
    drop(db);
    (disk, documents)
}

fn repaired(disk: &MemDisk) -> (Db, RepairReport) {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = Db::options().repair_on(Arc::clone(&disk), DATABASE, "/new.duramen", |_| Ok(())).unwrap();
    let db = Db::options().open_on(disk, "/new.duramen").unwrap();
    sound(&db);
    (db, report)
}

// D4: the rows of shapes are there twice, so that one corrupt page costs no document its names.
#[test]
fn one_of_the_two_trees_of_shapes_is_enough() {
    for lost in ["duramen/shapes", "duramen/shapes-copy"] {
        for wrong in [None, Some(&b"\x81\xa1w\x02"[..])] {
            let (disk, documents) = two_shapes();
            change_shapes(&disk, |name, tx, tree| match wrong {
                _ if name != lost => Ok(()),
                None => tx.delete(tree, &key_of(1)).map(drop),
                Some(wrong) => tx.put(tree, &key_of(1), wrong),
            });
            let db = open_db(&disk, false);
            for (id, document) in (1..).zip(&documents) {
                assert_eq!(db.documents("a").get(id).unwrap().as_ref(), Some(document), "{lost}");
            }
            let report = db.check_documents().unwrap();
            assert!(report.problems.iter().any(|problem| problem.contains("duramen/shapes")), "{report:?}");
            // No shape is added to a tree that cannot be read.
            db.documents("a").put(doc! { "id": 4, "z": 4 }).unwrap();
            assert_eq!(db.documents("a").get(4).unwrap(), Some(doc! { "id": 4, "z": 4 }));
            db.close().unwrap();
            drop(db);
            let (db, report) = repaired(&disk);
            assert!(report.is_whole() && report.lost.is_empty() && report.renamed.is_empty(), "{report:?}");
            for (id, document) in (1..).zip(&documents) {
                assert_eq!(db.documents("a").get(id).unwrap().as_ref(), Some(document), "{lost}");
            }
        }
    }
}

// D4: a document without its shape cannot be read, and says so. The others can. A repair keeps its values.
#[test]
fn documents_whose_shape_is_lost_become_bytes_with_made_up_names() {
    let (disk, documents) = two_shapes();
    change_shapes(&disk, |_, tx, tree| tx.delete(tree, &key_of(1)).map(drop));
    let db = open_db(&disk, false);
    let error = db.documents("a").get(2).unwrap_err();
    assert_eq!(error.code(), Code::CorruptData);
    assert!(error.message().contains("the shape 1"), "{error}");
    assert_eq!(db.documents("a").get(1).unwrap().as_ref(), Some(&documents[0]));
    let report = db.check_documents().unwrap();
    assert!(report.problems.iter().any(|problem| problem.contains("the shape 1")), "{report:?}");
    db.close().unwrap();
    drop(db);
    let (db, report) = repaired(&disk);
    assert_eq!((report.left_out_count, &report.renamed[..]), (0, &["recovered/a".to_owned()][..]));
    let bytes = db.bytes("recovered/a").get(key_of(2)).unwrap().unwrap();
    assert_eq!(Document::from_bytes(&bytes).unwrap(), doc! { "shape": 1, "1": 2, "2": 2 });
    assert_eq!(db.documents("a").count(Span::all()).unwrap(), 2);
}

// D4: one corrupt page of either tree costs nothing, and a repair reports no loss.
#[test]
fn a_corrupt_page_of_shapes_loses_nothing() {
    let (disk, documents) = two_shapes();
    let data = Path::new(DATABASE).join("data");
    let bytes = disk.read_file(&data).unwrap();
    // The name of the collection that added a shape is in these pages only, behind its field.
    let is_of_shapes =
        |page: &[u8]| page.starts_with(b"DPAG") && page.windows(12).any(|bytes| bytes == b"collection\xa1a");
    let pages: Vec<usize> = bytes
        .chunks(512)
        .enumerate()
        .filter(|(_, page)| is_of_shapes(page))
        .map(|(at, _)| at * 512)
        .collect();
    assert!(pages.len() >= 2, "{pages:?}");
    for page in pages {
        let disk = disk.deep_clone();
        disk.flip_bit(&data, page as u64 + 60, 0).unwrap();
        let db = open_db(&disk, false);
        for (id, document) in (1..).zip(&documents) {
            assert_eq!(db.documents("a").get(id).unwrap().as_ref(), Some(document), "{page}");
        }
        db.abandon();
        let (db, report) = repaired(&disk);
        assert!(report.is_whole() && report.lost.is_empty(), "{page}: {report:?}");
        for (id, document) in (1..).zip(&documents) {
            assert_eq!(db.documents("a").get(id).unwrap().as_ref(), Some(document), "{page}");
        }
    }
}

/// Corrupts every page that has these bytes, and returns how many there are.
fn corrupt_pages_with(disk: &MemDisk, wanted: &[u8]) -> usize {
    let data = Path::new(DATABASE).join("data");
    let bytes = disk.read_file(&data).unwrap();
    let has =
        |page: &[u8]| page.starts_with(b"DPAG") && page.windows(wanted.len()).any(|bytes| bytes == wanted);
    let pages: Vec<usize> =
        bytes.chunks(512).enumerate().filter(|(_, page)| has(page)).map(|(at, _)| at * 512).collect();
    pages.iter().for_each(|page| disk.flip_bit(&data, *page as u64 + 60, 0).unwrap());
    pages.len()
}

// D4: a tree without a name may have shapes. One whose rows only look like shapes of a later release, because
// a document has a field `v`, has none.
#[test]
fn trees_without_names_are_searched_for_shapes_and_refuse_no_repair() {
    let disk = MemDisk::new(1);
    let open = |names_fields: bool| {
        let options = Db::options().names_fields(names_fields).engine(|engine| {
            engine.background = Background::Stepped;
            engine.geometry.block_bytes = 512;
            engine.compress = false;
        });
        options.open_on(Arc::new(disk.clone()), DATABASE).unwrap()
    };
    let db = open(true);
    db.ensure(&Schema::new("named").key(["id"])).unwrap();
    db.documents("named").put(doc! { "id": 1, "v": 2, "names": "x" }).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open(false);
    db.ensure(&Schema::new("shaped").key(["id"])).unwrap();
    (0..3).for_each(|id| drop(db.documents("shaped").put(doc! { "id": id, "city": "Oslo" }).unwrap()));
    db.close().unwrap();
    drop(db);
    assert!(corrupt_pages_with(&disk, b"rows/shaped") > 0);
    let (db, report) = repaired(&disk);
    assert!(!report.renamed.is_empty(), "{report:?}");
    // Each document has its names in whichever tree it is.
    let mut found = Vec::new();
    for repaired in report.repaired.iter().filter(|repaired| repaired.store == duramen::StoreKind::Bytes) {
        let tree = db.bytes(&repaired.name);
        let mut rows = tree.scan(KeyRange::all(), Direction::Forward).unwrap();
        while let Some((_, value)) = rows.next().unwrap() {
            found.extend(Document::from_bytes(value).ok());
        }
    }
    for id in 0..3 {
        assert!(found.contains(&doc! { "id": id, "city": "Oslo" }), "{found:?}");
    }
    assert!(found.contains(&doc! { "id": 1, "v": 2, "names": "x" }), "{found:?}");
}

// D4: each tree may have lost another row.
#[test]
fn what_either_of_the_two_trees_has_is_read() {
    let (disk, documents) = two_shapes();
    change_shapes(&disk, |name, tx, tree| {
        tx.put(tree, &key_of(u64::from(name == "duramen/shapes")), b"\x81\xa1w\x02")
    });
    let db = open_db(&disk, false);
    for (id, document) in (1..).zip(&documents) {
        assert_eq!(db.documents("a").get(id).unwrap().as_ref(), Some(document));
    }
}

// Rows that both have lost leave no trace but in the documents. Their number must not be given again.
#[test]
fn a_number_that_both_trees_have_lost_is_not_given_again_once_it_was_met() {
    let (disk, _) = two_shapes();
    change_shapes(&disk, |_, tx, tree| tx.delete(tree, &key_of(1)).map(drop));
    let db = open_db(&disk, false);
    db.documents("a").get(2).unwrap_err();
    db.documents("a").put(doc! { "id": 4, "z": 4 }).unwrap();
    assert_eq!(db.documents("a").get(4).unwrap(), Some(doc! { "id": 4, "z": 4 }));
    assert_eq!(db.documents("a").get(2).unwrap_err().code(), Code::CorruptData);
}

// D3: what rows a document of a lost shape has in views is unknown. If it went without them, they would stay.
#[test]
fn a_document_of_a_lost_shape_is_not_deleted_without_its_rows_in_views() {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    (0..2).for_each(|id| drop(db.put(&order(id)).unwrap()));
    db.close().unwrap();
    drop(db);
    change_shapes(&disk, |_, tx, tree| tx.delete(tree, &key_of(0)).map(drop));
    let db = open_db(&disk, false);
    for error in [db.delete::<Order>(0).unwrap_err(), db.put(&order(0)).unwrap_err()] {
        assert_eq!(error.code(), Code::CorruptData, "{error}");
    }
    db.put(&order(9)).unwrap();
    assert_eq!(db.get::<Order>(9).unwrap(), Some(order(9)));
}

// A change whose shape is lost is skipped like any other that cannot be read: others go on.
#[test]
fn a_consumer_skips_a_change_of_a_lost_shape() {
    let disk = MemDisk::new(1);
    let options = || Db::options().feed_retain_bytes(1 << 20);
    let open = || {
        let options = options().engine(|engine| engine.background = Background::Stepped);
        options.open_on(Arc::new(disk.clone()), DATABASE).unwrap()
    };
    let db = open();
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    for document in [doc! { "id": 1, "x": 1 }, doc! { "id": 2, "y": 2 }, doc! { "id": 3, "x": 3 }] {
        db.documents("a").put(document).unwrap();
    }
    db.close().unwrap();
    drop(db);
    change_shapes(&disk, |_, tx, tree| tx.delete(tree, &key_of(1)).map(drop));
    let db = open();
    let (mut seen, mut failed) = (Vec::new(), Vec::new());
    for change in db.all_changes().from_oldest() {
        match change {
            Ok(change) if matches!(change.what, AnyChanged::Put { .. }) => {
                seen.push(change.document().unwrap().unwrap());
            }
            Ok(_) => {}
            Err(error) => failed.push(error),
        }
    }
    assert_eq!(seen, [doc! { "id": 1, "x": 1 }, doc! { "id": 3, "x": 3 }]);
    assert!(failed.len() == 1 && failed[0].code() == Code::Unreadable, "{failed:?}");
}

// An observer reads the copy where the tree of shapes cannot be read.
#[test]
fn an_observer_reads_on_with_one_of_the_two_trees() {
    let (disk, _) = two_shapes();
    change_shapes(&disk, |name, tx, tree| match name {
        "duramen/shapes" => tx.put(tree, &key_of(0), b"\x81\xa1w\x02"),
        _ => Ok(()),
    });
    let db = open_db(&disk, false);
    let observed: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut observer = Observer::options().open_on(observed, DATABASE, ObserveFrom::Now).unwrap();
    let document = doc! { "id": 9, "x": 9 };
    db.documents("a").put(document.clone()).unwrap();
    // A later commit carries the mark that this one is durable.
    db.bytes("other").put("x", [0; 10]).unwrap();
    let change = observer.next().unwrap().expect("it is durable");
    assert_eq!(change.document().unwrap(), Some(document));
}

// An observer that cannot read the shapes for a moment returns the change with its next call.
#[test]
fn an_observer_loses_no_change_while_shapes_cannot_be_read() {
    let (disk, _) = two_shapes();
    let db = open_db(&disk, false);
    let mut failed = 0;
    for nth in 0..20 {
        let observed: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut observer = Observer::options().open_on(observed, DATABASE, ObserveFrom::Now).unwrap();
        let from = observer.position();
        let document = doc! { "id": 9, "x": nth };
        db.documents("a").put(document.clone()).unwrap();
        // A later commit carries the mark that this one is durable.
        db.bytes("other").put("x", [0; 10]).unwrap();
        disk.set_faults(Fault::any(nth, Effect::EIO).on("data"));
        let mut seen = Vec::new();
        loop {
            match observer.next() {
                Ok(Some(change)) => seen.extend(change.document().unwrap()),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.is_corruption() && observer.position() <= from.next(), "{nth}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(seen.contains(&document), "call {nth}: {seen:?}");
    }
    assert!(failed > 3, "{failed} calls failed");
}

// A first write of a type looks at some documents. One of a lost shape refuses no other.
#[test]
fn a_lost_shape_refuses_no_write_of_a_type() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Place {
        city: String,
    }
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "a")]
    struct Visit {
        #[key]
        id: u64,
        place: Option<Place>,
    }
    let (disk, _) = two_shapes();
    change_shapes(&disk, |_, tx, tree| tx.delete(tree, &key_of(0)).map(drop));
    let db = open_db(&disk, false);
    let visit = Visit { id: 9, place: Some(Place { city: "Oslo".to_owned() }) };
    db.put(&visit).unwrap();
    assert_eq!(db.get::<Visit>(9).unwrap(), Some(visit));
}

// A document that no struct reads field by field is read from its names.
#[test]
fn types_that_serialize_as_something_else_than_a_struct() {
    #[derive(Serialize, Deserialize)]
    enum Wire {
        Opened { id: u64, by: String },
        Closed { id: u64 },
    }
    #[derive(Debug, Clone, PartialEq, Collection)]
    #[collection(name = "events")]
    struct Event {
        #[key]
        id: u64,
        by: Option<String>,
    }
    impl Serialize for Event {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            let wire = match self.by.clone() {
                Some(by) => Wire::Opened { id: self.id, by },
                None => Wire::Closed { id: self.id },
            };
            wire.serialize(serializer)
        }
    }
    impl<'de> Deserialize<'de> for Event {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Event, D::Error> {
            Ok(match Wire::deserialize(from)? {
                Wire::Opened { id, by } => Event { id, by: Some(by) },
                Wire::Closed { id } => Event { id, by: None },
            })
        }
    }
    #[derive(Debug, Clone, PartialEq, Deserialize, Collection)]
    #[collection(name = "numbers")]
    struct Number {
        #[key]
        id: u64,
    }
    impl Serialize for Number {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            self.id.serialize(serializer)
        }
    }
    let db = Db::in_memory().unwrap();
    for event in [Event { id: 1, by: Some("ada".to_owned()) }, Event { id: 2, by: None }] {
        db.put(&event).unwrap();
        assert_eq!(db.get::<Event>(event.id).unwrap(), Some(event));
    }
    let error = db.put(&Number { id: 7 }).unwrap_err();
    assert!(error.message().contains("not written as its fields"), "{error}");
}

// Two collections may come to the same new shape at once: both transactions put its row, and both commit.
#[test]
fn two_threads_add_the_same_shape_for_two_collections() {
    let db = Db::in_memory().unwrap();
    for name in ["a", "b"] {
        db.ensure(&Schema::new(name).key(["id"])).unwrap();
        db.documents(name).put(doc! { "id": 0 }).unwrap();
    }
    let together = std::sync::Barrier::new(2);
    let of = |id: u64| Document::new().with("id", id).with(format!("field {id}"), id);
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let (db, together) = (&db, &together);
            scope.spawn(move || {
                for id in 1..100 {
                    together.wait();
                    db.documents(name).put(of(id)).unwrap();
                }
            });
        }
    });
    for (name, id) in ["a", "b"].into_iter().flat_map(|name| (1..100).map(move |id| (name, id))) {
        assert_eq!(db.documents(name).get(id).unwrap(), Some(of(id)));
    }
    sound(&db);
}

// D7: a commit at level `Memory` returns before it is in the log. If it is dropped, the next one with its
// shape must put the row of the shape again.
#[test]
fn a_shape_of_a_commit_that_was_dropped_is_put_again() {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    db.documents("a").put(doc! { "id": 0 }).unwrap();
    let gate = SyncGate::closed();
    disk.set_blocker(Some(gate.blocker(".wal")));
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| db.documents("a").put(doc! { "id": 1 }));
        gate.wait_blocked(1);
        let returned = db.at(Durability::Memory).documents("a").put(doc! { "id": 2, "new": 2 });
        returned.unwrap();
        disk.set_faults(Fault::new(CallKind::Write, 0, Effect::ENOSPC).on(".wal"));
        gate.open();
        leader.join().unwrap().unwrap();
    });
    // The group of the second is dropped by the time that a third has waited for its own.
    let third = doc! { "id": 3, "new": 3 };
    while db.documents("a").put(third.clone()).is_err() {}
    assert_eq!(disk.fault_hit_count(), 1);
    assert_eq!(db.documents("a").get(2).unwrap(), None, "it was dropped");
    sound(&db);
    let disk = disk.deep_clone();
    let db = open_db(&disk, false);
    assert_eq!(db.documents("a").get(3).unwrap(), Some(third));
    sound(&db);
}

// An observer reads shapes again when it meets one that is new.
#[test]
fn an_observer_follows_new_shapes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Db::open(&path).unwrap();
    db.ensure(&Schema::new("a").key(["id"])).unwrap();
    let mut observer = Observer::open(&path, ObserveFrom::Now).unwrap();
    for id in 0..20_u64 {
        let document = Document::new().with("id", id).with(format!("field {}", id / 2), id);
        db.documents("a").put(document.clone()).unwrap();
        if id == 10 {
            db.checkpoint_with(&mut || ()).unwrap();
        }
        // A later commit carries the mark that this one is durable.
        db.bytes("other").put("x", [0; 10]).unwrap();
        let mut seen = None;
        while seen.is_none() {
            let is_put = |change: &AnyChange| {
                change.origin.name() == "a" && matches!(change.what, AnyChanged::Put { .. })
            };
            seen = observer.next().unwrap().filter(is_put);
        }
        assert_eq!(seen.unwrap().document().unwrap(), Some(document));
    }
}

// D9: a backup needs the same build as its original.
#[test]
fn a_backup_has_the_feature() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("db"), directory.path().join("backup"));
    let db = Db::open(&path).unwrap();
    db.put(&order(1)).unwrap();
    db.backup(&backup).unwrap();
    let data = std::fs::read(backup.join("data")).unwrap();
    let features = SUPERBLOCKS.map(|at| data[at + FEATURES_AT]);
    assert!(features.iter().any(|bits| bits & 1 == 1), "{features:?}");
    let copy = Db::open(&backup).unwrap();
    assert_eq!(copy.get::<Order>(1).unwrap(), Some(order(1)));
    sound(&copy);
}
