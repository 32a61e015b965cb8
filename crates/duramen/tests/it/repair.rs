//! Repair: a new database from what can be read of another, sound or corrupt. duramen-sim sweeps over every
//! byte.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use duramen::prelude::*;
use duramen::view::{CodedView, Emitter, reduce};
use duramen::{Change, Code, Disk, KeyRange, LeftOut, MemDisk, RepairReport, StoreKind};
use duramen_engine::{Engine, Hooks, Options};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "orders",
    view(ByMail, key = mail, unique),
    view(Sales, key = city, value = cents, reduce = (Count, Sum))
)]
struct Order {
    #[key]
    id: u64,
    city: String,
    mail: String,
    cents: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes", coded(ByWord))]
struct Note {
    #[key]
    id: u64,
    text: String,
}

struct ByWord;

impl CodedView for ByWord {
    type Collection = Note;
    type Key = String;
    type Value = ();
    type Reduce = (reduce::Count,);
    const NAME: &'static str = "by_word";
    const VERSION: u32 = 1;

    fn map(note: &Note, emit: &mut Emitter<'_, ByWord>) {
        note.text.split_whitespace().for_each(|word| emit.row(word, ()));
    }
}

fn order(id: u64) -> Order {
    let cents = i64::try_from(id).unwrap() * 3;
    Order { id, city: format!("city {}", id % 7), mail: format!("{id}@example.org"), cents }
}

fn note(id: u64) -> Note {
    Note { id, text: format!("note number {id}") }
}

fn open(disk: &Arc<MemDisk>, path: &str) -> Db {
    Db::options().background(false).open_on(Arc::clone(disk) as Arc<dyn Disk>, path).unwrap()
}

fn filled(disk: &Arc<MemDisk>) -> Db {
    let db = open(disk, "/db");
    db.transact(|tx| (0..2_000).try_for_each(|id| tx.put(&order(id)))).unwrap();
    db.transact(|tx| (0..50).try_for_each(|id| tx.put(&note(id)))).unwrap();
    db.kv("sessions").put_with("short", &1u64, Ttl::hours(1)).unwrap();
    db.kv("sessions").put("long", &2u64).unwrap();
    db.blobs("files").put("a", &vec![7u8; 3_000_000][..]).unwrap();
    db.blobs("files").put("b", &b"little"[..]).unwrap();
    db.bytes("pictures").put("cat", vec![9; 2_500_000]).unwrap();
    db.bytes("empty").put("key", "value").unwrap();
    db.bytes("empty").delete("key").unwrap();
    db
}

fn repair(disk: &Arc<MemDisk>) -> Result<RepairReport> {
    Db::options().repair_on(Arc::clone(disk) as Arc<dyn Disk>, "/db", "/new", |_| Ok(()))
}

fn old_files(disk: &MemDisk) -> BTreeMap<String, Vec<u8>> {
    let paths = disk.files().into_iter().map(|path| path.to_string_lossy().into_owned());
    let own = paths.filter(|path| path.starts_with("/db/"));
    own.map(|path| (path.clone(), disk.read_file(&path).unwrap())).collect()
}

// Repairing a sound database, as a precaution, must lose nothing.
#[test]
fn a_sound_database_is_repaired_whole() {
    let disk = Arc::new(MemDisk::new(1));
    let db = filled(&disk);
    db.close().unwrap();
    drop(db);
    let before = old_files(&disk);
    let report = repair(&disk).unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(old_files(&disk), before, "what reads never writes");
    assert_eq!((report.views_built, report.views_waiting.len()), (2, 1), "{report:?}");

    let new = open(&disk, "/new");
    assert_eq!(new.collection::<Order>().to_vec().unwrap(), (0..2_000).map(order).collect::<Vec<_>>());
    assert_eq!(new.view::<Sales>().key("city 3").reduce().unwrap(), {
        let own: Vec<Order> = (0..2_000).map(order).filter(|order| order.city == "city 3").collect();
        (own.len() as u64, own.iter().map(|order| i128::from(order.cents)).sum::<i128>())
    });
    let taken = new.put(&Order { mail: "5@example.org".to_owned(), ..order(9_000) }).unwrap_err();
    assert_eq!(taken.code(), Code::UniqueViolation);
    assert_eq!(new.kv("sessions").get::<u64>("long").unwrap(), Some(2));
    assert!(new.kv("sessions").ttl("short").unwrap().is_some());
    let mut bytes = Vec::new();
    new.blobs("files").get("a").unwrap().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, vec![7u8; 3_000_000]);
    assert_eq!(new.bytes("pictures").get("cat").unwrap(), Some(vec![9; 2_500_000]));
    assert_eq!(new.bytes("empty").count(&KeyRange::all()).unwrap(), 0);
    // The view in code is left for the program to build.
    new.build_views::<Note>(|_| Ok(())).unwrap();
    assert_eq!(new.view::<ByWord>().key("note").reduce().unwrap(), 50);
    let checked = new.check_documents().unwrap();
    assert!(checked.is_clean() && new.check().unwrap().is_clean(), "{checked:?}");
}

// The new database has its own order of commits: a position in the old order must never be used in it.
#[test]
fn a_consumer_is_told_that_changes_are_gone() {
    let disk = Arc::new(MemDisk::new(2));
    let db = filled(&disk);
    db.consumer("mailer").from_now().refuse_writers().register().unwrap();
    db.put(&order(3_000)).unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(repair(&disk).unwrap().consumers, ["mailer"]);
    let new = open(&disk, "/new");
    let state = &new.consumers().unwrap()[0];
    assert!(state.has_gap && state.refuses_writers, "{state:?}");
    let mailer = new.consumer("mailer").refuse_writers().register().unwrap();
    assert_eq!(mailer.read::<Change<Order>>().err().map(|error| error.code()), Some(Code::FeedGap));
    mailer.seek(new.feed().newest).unwrap();
    new.put(&order(3_001)).unwrap();
    let mut seen = Vec::new();
    let mut consuming = mailer.read::<Change<Order>>().unwrap();
    consuming
        .run(|_, changes: &[Change<Order>]| {
            seen.extend(changes.iter().filter_map(|change| change.document().map(|order| order.id)));
            Ok(())
        })
        .unwrap();
    assert_eq!(seen, [3_001]);
}

// An interrupted repair must not look like a complete one.
#[test]
fn half_a_repair_does_not_open() {
    let disk = Arc::new(MemDisk::new(3));
    filled(&disk).close().unwrap();
    let before = old_files(&disk);
    let mut stages = Vec::new();
    let on = || Arc::clone(&disk) as Arc<dyn Disk>;
    let done = Db::options().repair_on(on(), "/db", "/whole", |progress| {
        if stages.last() != Some(&progress.stage) {
            stages.push(progress.stage);
        }
        Ok(())
    });
    assert!(done.unwrap().is_whole());
    for stage in stages {
        let path = format!("/half {stage:?}");
        let stopped = Db::options().repair_on(on(), "/db", &path, |progress| {
            if progress.stage == stage { Err(Error::invalid("stopped")) } else { Ok(()) }
        });
        assert_eq!(stopped.unwrap_err().message(), "stopped", "{stage:?}");
        for read_only in [false, true] {
            let opened = Db::options().read_only(read_only).open_on(on(), Path::new(&path));
            assert_eq!(opened.unwrap_err().code(), Code::UnfinishedCopy, "{stage:?}");
        }
        let again = Db::options().repair_on(on(), &path, "/of half", |_| Ok(()));
        assert_eq!(again.unwrap_err().code(), Code::UnfinishedCopy);
        let over = Db::options().repair_on(on(), "/db", &path, |_| Ok(()));
        assert_eq!(over.unwrap_err().code(), Code::AlreadyExists);
    }
    let inside = Db::options().repair_on(on(), "/db", "/db/new", |_| Ok(()));
    assert_eq!(inside.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(old_files(&disk), before, "what reads never writes");
}

#[test]
fn a_database_that_is_written_to_is_not_repaired_meanwhile() {
    let disk = Arc::new(MemDisk::new(4));
    let db = filled(&disk);
    assert_eq!(repair(&disk).unwrap_err().code(), Code::DatabaseLocked);
    drop(db);
    assert!(repair(&disk).unwrap().is_whole());
}

/// Flips a bit in the first run of this byte that is longer than any node.
fn corrupt_one(disk: &MemDisk, byte: u8) {
    let data = disk.read_file("/db/data").unwrap();
    let run = data.chunks(64 * 1024).position(|chunk| chunk.iter().all(|here| *here == byte));
    let at = run.expect("what is to be corrupted is there") as u64 * 64 * 1024;
    disk.flip_bit("/db/data", at, 3).unwrap();
}

// A value outside of the nodes has its own pages: only its row is lost. A blob is whole or absent.
#[test]
fn a_corrupt_value_costs_its_own_row() {
    let disk = Arc::new(MemDisk::new(5));
    let db = filled(&disk);
    db.bytes("pictures").put("dog", vec![8; 100_000]).unwrap();
    db.close().unwrap();
    drop(db);
    corrupt_one(&disk, 9);
    corrupt_one(&disk, 7);
    let report = repair(&disk).unwrap();
    let lost: Vec<_> = report.lost.iter().map(|lost| (lost.store, lost.name.as_str(), lost.rows)).collect();
    assert!(lost.contains(&(StoreKind::Bytes, "pictures", Some(1))), "{lost:?}");
    let [LeftOut { store: StoreKind::Blobs, name, key, why }] = &report.left_out[..] else {
        panic!("{:?}", report.left_out)
    };
    assert_eq!((name.as_str(), key), ("files", &duramen::tuple::encode("a").unwrap()));
    assert!(why.contains("of 3 is lost"), "{why}");
    let new = open(&disk, "/new");
    assert_eq!(new.bytes("pictures").get("cat").unwrap(), None);
    assert_eq!(new.bytes("pictures").get("dog").unwrap(), Some(vec![8; 100_000]));
    assert!(new.blobs("files").get("a").unwrap().is_none());
    assert!(new.blobs("files").get("b").unwrap().is_some());
    assert_eq!(new.collection::<Order>().count().unwrap(), 2_000);
}

// An undecodable document would fail every reader of the new database. It is left out and named; the old one
// still has it.
#[test]
fn a_document_that_does_not_decode_is_left_out_and_named() {
    let disk = Arc::new(MemDisk::new(6));
    filled(&disk).close().unwrap();
    let on = || Arc::clone(&disk) as Arc<dyn Disk>;
    let engine = Engine::open(on(), "/db", Options::default(), Hooks::default()).unwrap();
    let key = duramen::tuple::encode(&77u64).unwrap();
    engine
        .transact(duramen_engine::Durability::Disk, |tx| {
            let tree = tx.tree("duramen/rows/orders")?.unwrap();
            tx.put(tree, &key, b"\x83 no map")
        })
        .unwrap();
    engine.close().unwrap();
    drop(engine);
    let report = repair(&disk).unwrap();
    assert_eq!((report.left_out_count, &report.left_out[0].key), (1, &key), "{report:?}");
    let new = open(&disk, "/new");
    assert_eq!(new.collection::<Order>().count().unwrap(), 1_999);
}

/// Changes the corrupt database through the engine, below its documents.
fn underneath(disk: &Arc<MemDisk>, change: impl Fn(&mut duramen_engine::Transaction) -> Result<()>) {
    let on = Arc::clone(disk) as Arc<dyn Disk>;
    let engine = Engine::open(on, "/db", Options::default(), Hooks::default()).unwrap();
    engine.transact(duramen_engine::Durability::Disk, |tx| change(tx)).unwrap();
    engine.close().unwrap();
}

// A unique view with two conflicting documents must not prevent others from being built, and is named.
#[test]
fn a_view_that_cannot_be_built_keeps_no_other_from_it() {
    let disk = Arc::new(MemDisk::new(9));
    filled(&disk).close().unwrap();
    let mail = |tx: &mut duramen_engine::Transaction| {
        let name = "duramen/view/orders\u{1}by_mail";
        let names: Vec<String> = tx.trees()?.into_iter().map(|(name, _)| name).collect();
        let name = names.iter().find(|own| own.starts_with(name)).expect("the view's tree").clone();
        let tree = tx.tree(&name)?.unwrap();
        let mut keys = Vec::new();
        let mut rows = tx.rows(tree, KeyRange::all(), duramen::Direction::Forward)?;
        while let Some(row) = rows.next()? {
            keys.push(row.key().to_vec());
        }
        drop(rows);
        keys.iter().try_for_each(|key| tx.delete(tree, key))
    };
    underneath(&disk, mail);
    let db = open(&disk, "/db");
    db.put(&Order { mail: "5@example.org".to_owned(), ..order(9_000) }).unwrap();
    db.close().unwrap();
    drop(db);
    let report = repair(&disk).unwrap();
    let waiting: Vec<_> = report.views_waiting.iter().map(|one| (&*one.collection, &*one.view)).collect();
    assert_eq!(waiting, [("notes", "by_word"), ("orders", "by_mail")], "{report:?}");
    assert!(report.views_waiting[1].why.contains("9000"), "{report:?}");
    assert_eq!(report.views_built, 1, "{report:?}");
    assert!(report.is_whole(), "what programs stored is all there: {report:?}");
    assert_eq!(open(&disk, "/new").view::<Sales>().key("city 5").reduce().unwrap().0, 286);
}

// Data of a later release is intact: leaving it out would lose it.
#[test]
fn a_blob_of_a_later_release_ends_the_repair() {
    let disk = Arc::new(MemDisk::new(10));
    filled(&disk).close().unwrap();
    underneath(&disk, |tx| {
        let tree = tx.tree("duramen/blobs/files")?.unwrap();
        tx.put(tree, &duramen::tuple::encode("later").unwrap(), &[99; 80])
    });
    assert_eq!(repair(&disk).unwrap_err().code(), Code::Unsupported);
}

/// A database whose newest commits are in its log only.
fn killed(seed: u64) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new(seed));
    filled(&disk).close().unwrap();
    let db = open(&disk, "/db");
    db.put(&order(5_000)).unwrap();
    let killed = disk.crash(&duramen_disk::memory::CrashChoice::All);
    drop(db);
    Arc::new(killed)
}

fn segments(disk: &MemDisk) -> Vec<String> {
    let paths = disk.files().into_iter().map(|path| path.to_string_lossy().into_owned());
    paths.filter(|path| path.starts_with("/db/wal/") && path.ends_with(".wal")).collect()
}

// A repair that misses a log that lies elsewhere would lose its commits for nothing.
#[test]
fn a_log_that_is_not_there_is_asked_for() {
    let absent = killed(11);
    segments(&absent).iter().for_each(|path| absent.delete(path).unwrap());
    let foreign = killed(11);
    let other = killed(12);
    segments(&foreign).iter().for_each(|path| foreign.delete(path).unwrap());
    for path in segments(&other) {
        foreign.write_file(&path, &other.read_file(&path).unwrap()).unwrap();
    }
    for disk in [absent, foreign] {
        let refused = repair(&disk).unwrap_err();
        assert_eq!(refused.code(), Code::LogMissing, "{refused}");
        assert!(refused.hint().contains("--wal DIR"), "{refused}");
        assert!(!disk.files().iter().any(|path| path.starts_with("/new")), "nothing was begun");
        let without = Db::options().repair_without_log(true);
        let on = Arc::clone(&disk) as Arc<dyn Disk>;
        let report = without.repair_on(on, "/db", "/new", |_| Ok(())).unwrap();
        let lost = report.lost_commits.as_ref().expect("the newest commit");
        assert!(lost.why.contains("--wal DIR"), "{lost:?}");
        assert!(report.ids_may_repeat && !report.is_whole(), "{report:?}");
        assert_eq!(open(&disk, "/new").collection::<Order>().count().unwrap(), 2_000);
    }
    let whole = killed(11);
    let without = Db::options().repair_without_log(true);
    let report = without.repair_on(Arc::clone(&whole) as Arc<dyn Disk>, "/db", "/new", |_| Ok(())).unwrap();
    assert!(report.is_whole() && !report.ids_may_repeat, "a log that is there is read: {report:?}");
    let inside = Db::options().wal_dir("/log").repair_on(whole, "/db", "/log/new", |_| Ok(()));
    assert_eq!(inside.unwrap_err().code(), Code::InvalidArgument);
}

// A segment of a later release is intact. Treating it as corruption would discard its commits.
#[test]
fn a_log_of_a_later_release_is_no_corruption() {
    let disk = killed(13);
    let has_header = |path: &String| disk.read_file(path).unwrap().len() >= 256;
    let path = segments(&disk).into_iter().find(has_header).unwrap();
    let mut bytes = disk.read_file(&path).unwrap();
    bytes[8] = 99;
    let checksum = xxhash_rust::xxh3::xxh3_128(&bytes[..240]);
    bytes[240..256].copy_from_slice(&checksum.to_le_bytes());
    disk.write_file(&path, &bytes).unwrap();
    for without in [false, true] {
        let options = Db::options().repair_without_log(without);
        let ran = options.repair_on(Arc::clone(&disk) as Arc<dyn Disk>, "/db", "/new", |_| Ok(()));
        assert_eq!(ran.unwrap_err().code(), Code::Unsupported);
    }
}

// Without its entry a collection becomes bytes; but they are kept.
#[test]
fn documents_whose_collection_is_lost_become_bytes() {
    let disk = Arc::new(MemDisk::new(7));
    filled(&disk).close().unwrap();
    let on = || Arc::clone(&disk) as Arc<dyn Disk>;
    let engine = Engine::open(on(), "/db", Options::default(), Hooks::default()).unwrap();
    let key = duramen::tuple::encode("orders").unwrap();
    engine
        .transact(duramen_engine::Durability::Disk, |tx| {
            let tree = tx.tree("duramen/collections")?.unwrap();
            tx.put(tree, &key, b"\xc1 no entry")
        })
        .unwrap();
    engine.close().unwrap();
    drop(engine);
    let report = repair(&disk).unwrap();
    assert_eq!(report.renamed, ["recovered/orders"]);
    assert!(!report.is_whole());
    let new = open(&disk, "/new");
    assert_eq!(new.bytes("recovered/orders").count(&KeyRange::all()).unwrap(), 2_000);
    // The name is free for a program to create its collection anew.
    new.put(&order(1)).unwrap();
    assert_eq!(new.collection::<Note>().count().unwrap(), 50);
}

// A name that a list still has must be in the report, even if nothing else of it is left.
#[test]
fn a_collection_that_vanished_is_named_by_what_mentions_it() {
    let disk = Arc::new(MemDisk::new(9));
    let db = open(&disk, "/db");
    db.transact(|tx| tx.put(&order(1)).and_then(|()| tx.put(&Receipt { id: 1, order: 1 }))).unwrap();
    db.close().unwrap();
    drop(db);
    let on = || Arc::clone(&disk) as Arc<dyn Disk>;
    let edit = |edit: &dyn Fn(&mut duramen_engine::Transaction) -> duramen::Result<()>| {
        let engine = Engine::open(on(), "/db", Options::default(), Hooks::default()).unwrap();
        engine.transact(duramen_engine::Durability::Disk, |tx| edit(tx)).unwrap();
        engine.close().unwrap();
    };
    let key = duramen::tuple::encode("orders").unwrap();
    let repair = |to: &str| Db::options().background(false).repair_on(on(), "/db", to, |_| Ok(())).unwrap();
    let names = |report: &duramen::RepairReport| {
        report.missing.iter().map(|one| (one.name.clone(), one.why.clone())).collect::<Vec<_>>()
    };

    // Its rows are not in the list of trees: the collection is there, empty, and its loss is unknown.
    edit(&|tx| tx.drop_tree("duramen/rows/orders").map(drop));
    let report = repair("/empty");
    let orders = report.repaired.iter().find(|one| one.name == "orders").unwrap();
    assert_eq!((orders.rows, orders.lost, orders.lost_unknown.is_some()), (0, 0, true), "{report:?}");
    assert!(report.may_have_lost_more() && !report.is_whole(), "{report:?}");

    // Its entry does not decode either: the list of collections has the name.
    edit(&|tx| {
        let tree = tx.tree("duramen/collections")?.unwrap();
        tx.put(tree, &key, b"\xc1 no entry")
    });
    let named = names(&repair("/undecodable"));
    assert!(
        named.len() == 1 && named[0].0 == "orders" && named[0].1.contains("list of collections"),
        "{named:?}"
    );

    // Its entry is lost too: the collection that refers to it has the name.
    edit(&|tx| {
        let tree = tx.tree("duramen/collections")?.unwrap();
        tx.delete(tree, &key)
    });
    let report = repair("/referred");
    let named = names(&report);
    assert!(
        named.len() == 1 && named[0].0 == "orders" && named[0].1.contains("receipts refers"),
        "{named:?}"
    );
    assert!(!report.is_whole());
}

// A tree has the name that users know, and its figures match its contents.
#[test]
fn the_shape_of_a_tree_is_what_is_in_it() {
    let disk = Arc::new(MemDisk::new(8));
    let db = filled(&disk);
    let snapshot = db.snapshot().unwrap();
    let trees = snapshot.trees().unwrap();
    for tree in &trees {
        let mut told = 0;
        let shape = snapshot
            .tree_shape(tree, |shape| {
                told = shape.entries;
                Ok(())
            })
            .unwrap();
        assert_eq!((shape.entries, told), (snapshot.tree_len(tree).unwrap(), shape.entries), "{tree:?}");
        assert_eq!(shape.levels.first().map_or(0, |leaves| leaves.items), shape.entries, "{tree:?}");
        for pair in shape.levels.windows(2) {
            assert_eq!(pair[1].items, pair[0].nodes, "{tree:?}");
        }
        assert_eq!(shape.keys.classes.iter().sum::<u64>(), shape.entries);
        assert_eq!(shape.values.classes.iter().sum::<u64>(), shape.entries);
    }
    let find = |name: &str| trees.iter().find(|tree| tree.name == name).unwrap();
    let pictures = snapshot.tree_shape(find("pictures"), |_| Ok(())).unwrap();
    assert_eq!((pictures.big_values, pictures.big_bytes, pictures.values.max), (1, 2_500_000, 2_500_000));
    let kept = snapshot.tree_reductions(find("orders.sales")).unwrap();
    assert_eq!((kept.len(), kept[0].reduce.as_str(), kept[0].field.as_deref()), (1, "sum", Some("cents")));
    let stopped = snapshot.tree_shape(find("orders"), |_| Err(Error::invalid("stopped")));
    assert_eq!(stopped.unwrap_err().message(), "stopped");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "receipts")]
struct Receipt {
    #[key]
    id: u64,
    #[references(Order, on_delete = cascade)]
    order: u64,
}

// What a reference leads to may be lost: then the reference is kept, and says which documents it breaks.
#[test]
fn references_are_carried_over_and_checked_anew() {
    let disk = Arc::new(MemDisk::new(1));
    let db = open(&disk, "/db");
    db.transact(|tx| (0..20).try_for_each(|id| tx.put(&order(id)))).unwrap();
    db.transact(|tx| (0..20).try_for_each(|id| tx.put(&Receipt { id, order: id }))).unwrap();
    db.close().unwrap();
    drop(db);
    let repair = |to: &str| {
        Db::options()
            .background(false)
            .repair_on(Arc::clone(&disk) as Arc<dyn Disk>, "/db", to, |_| Ok(()))
            .unwrap()
    };
    let report = repair("/whole");
    assert!(report.is_whole(), "{report:?}");
    let db = open(&disk, "/whole");
    assert!(db.documents("receipts").references().unwrap()[0].is_checked());
    assert_eq!(db.delete_counting::<Order>(3).unwrap().followed.cascaded, 1);
    assert_eq!(db.put(&Receipt { id: 99, order: 3 }).unwrap_err().code(), Code::MissingTarget);
    assert!(db.check_documents().unwrap().is_clean());
    drop(db);

    // An order that does not decode is left out of the repaired database.
    let engine = Engine::open(
        Arc::clone(&disk) as Arc<dyn Disk>,
        Path::new("/db"),
        Options::default(),
        Hooks::default(),
    );
    let engine = engine.unwrap();
    let broken = duramen::tuple::encode(&7u64).unwrap();
    engine
        .transact(duramen::Durability::Disk, |tx| {
            let tree = tx.tree("duramen/rows/orders")?.unwrap();
            tx.put(tree, &broken, b"\x83 no map")
        })
        .unwrap();
    engine.close().unwrap();
    drop(engine);
    let report = repair("/part");
    assert_eq!(report.left_out.len(), 1, "{report:?}");
    let waiting = &report.views_waiting[0];
    assert_eq!((waiting.collection.as_str(), waiting.view.as_str()), ("receipts", "order"));
    assert!(waiting.why.contains("document 7 of receipts has order = 7"), "{}", waiting.why);
    let db = open(&disk, "/part");
    let found = db.check_documents().unwrap();
    assert_eq!((found.is_clean(), found.dangling_count), (true, 1), "{found:?}");
    db.put(&order(7)).unwrap();
    db.build_views::<Receipt>(|_| Ok(())).unwrap();
    assert_eq!(db.check_documents().unwrap().dangling_count, 0);
}
