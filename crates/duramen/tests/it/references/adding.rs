//! References that are added to data, changed and taken away, by types and by tools.

use std::path::Path;

use duramen::prelude::*;
use duramen::{Code, MemDisk, OnDelete, Reference, ReferenceState, ViewPhase, doc};

use super::{refused, sound};
use crate::golden::{load, open_db, store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/references-1/closed");

/// Collections without types: 20 towns, and 60 people of which number 30 and 40 live nowhere.
fn towns(disk: &MemDisk) -> Db {
    let db = open_db(disk, false);
    db.ensure(&Schema::new("towns").key(["name"])).unwrap();
    db.ensure(&Schema::new("people").key(["id"])).unwrap();
    db.write(|tx| {
        (0..20).try_for_each(|n| tx.documents("towns").put(doc! { "name": format!("t{n}") }))?;
        (0..60).try_for_each(|id: u64| {
            let town = if id == 30 || id == 40 { "nowhere".to_owned() } else { format!("t{}", id % 20) };
            tx.documents("people").put(doc! { "id": id, "town": town })
        })
    })
    .unwrap();
    db
}

fn reference() -> Reference {
    Reference::new("town", "towns")
}

fn state(db: &Db) -> ReferenceState {
    db.documents("people").references().unwrap().remove(0)
}

fn build(db: &Db) -> duramen::Result<()> {
    db.documents("people").build_views(|_| Ok(()))
}

#[test]
fn data_that_breaks_a_new_reference_is_named() {
    let db = towns(&MemDisk::new(1));
    assert!(db.documents("people").add_reference(reference()).unwrap());
    assert!(!db.documents("people").add_reference(reference()).unwrap());
    let words = ["2 documents of people", "30 to nowhere, 40 to nowhere", "put what is missing in towns"];
    refused(build(&db), Code::MissingTarget, &words);
    let failed = state(&db).failed.unwrap();
    assert!(failed.contains("2 documents"), "{failed}");
    let report = db.check_documents().unwrap();
    assert!(report.is_clean());
    assert_eq!((report.dangling_count, report.dangling.len()), (2, 2), "{report:?}");
    assert_eq!(report.dangling[0], "people 30: town refers to nowhere of towns, which is not there");
    // Writes are checked already, and deletes go on: the wrong documents must be changed somehow.
    let people = db.documents("people");
    refused(people.put(doc! { "id": 99, "town": "nowhere" }), Code::MissingTarget, &[]);
    refused(db.documents("towns").delete("t1"), Code::StillReferenced, &["people 1 by town"]);
    people.put(doc! { "id": 30, "town": "t0" }).unwrap();
    people.delete(40).unwrap();
    build(&db).unwrap();
    assert_eq!(state(&db).phase, ViewPhase::Ready);
    sound(&db);
    assert_eq!(
        db.documents("towns").delete_counting("t19").map_err(|error| error.code()),
        Err(Code::StillReferenced)
    );
}

// A delete during the check must not leave documents behind that the check has yet to reach.
#[test]
fn deletes_wait_until_every_document_is_checked() {
    let db = towns(&MemDisk::new(2));
    let people = db.documents("people");
    people.delete_counting(30).unwrap();
    people.delete(40).unwrap();
    people.add_reference(reference().on_delete(OnDelete::Cascade)).unwrap();
    assert!(matches!(state(&db).phase, ViewPhase::Building { documents: 0, of: 58 }));
    refused(db.documents("towns").delete("t3"), Code::Rebuilding, &["town", "0 of 58", "build_views"]);
    people.put(doc! { "id": 100, "town": "t3" }).unwrap();
    let stopped = people.build_views(|progress| {
        if progress.documents < progress.of { Err(duramen::Error::invalid("stop")) } else { Ok(()) }
    });
    assert!(stopped.is_err());
    refused(db.documents("towns").delete("t3"), Code::Rebuilding, &[]);
    build(&db).unwrap();
    assert_eq!(db.documents("towns").delete_counting("t3").unwrap().followed.cascaded, 4);
    sound(&db);
}

#[test]
fn what_cannot_be_a_reference_is_refused_and_leaves_nothing() {
    let db = towns(&MemDisk::new(3));
    let people = db.documents("people");
    let add = |reference: Reference| people.add_reference(reference);
    refused(
        add(Reference::new("town", "villages")),
        Code::NoSuchTree,
        &["people.town", "villages", "create it"],
    );
    refused(
        add(Reference::new("id", "towns")),
        Code::InvalidArgument,
        &["holds int", "key of towns is text"],
    );
    refused(
        add(Reference::new("id", "people").on_delete(OnDelete::Clear)),
        Code::InvalidArgument,
        &["key of people"],
    );
    refused(add(Reference::new("", "towns")), Code::InvalidArgument, &[]);
    let twice = Schema::new("x").key(["id"]).reference(reference()).reference(reference());
    refused(db.ensure(&twice).map(drop), Code::InvalidArgument, &["two references"]);
    assert!(people.references().unwrap().is_empty());
    assert!(db.documents("towns").schema().unwrap().referred_by().is_empty());
    refused(people.put(doc! { "id": 1, "town": doc! { "a": 1 } }), Code::InvalidArgument, &[]);
}

#[test]
fn a_schema_brings_its_references() {
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("towns").key(["name"])).unwrap();
    let people = Schema::new("people").key(["id"]).reference(reference());
    db.ensure(&people).unwrap();
    db.ensure(&people).unwrap();
    refused(db.documents("people").put(doc! { "id": 1, "town": "x" }), Code::MissingTarget, &[]);
    db.ensure(&Schema::new("pets").key(["id"])).unwrap();
    db.ensure(&Schema::new("pets").key(["id"]).reference(Reference::new("of", "people").each())).unwrap();
    refused(
        db.documents("pets").put(doc! { "id": 1, "of": Value::List(vec![1.into()]) }),
        Code::MissingTarget,
        &["document 1 of pets has 1 in of"],
    );
    refused(db.documents("pets").put(doc! { "id": 1, "of": 1 }), Code::MissingTarget, &[]);
    sound(&db);
}

#[test]
fn a_change_of_the_action_checks_anew_and_a_drop_ends_it() {
    let db = towns(&MemDisk::new(4));
    let people = db.documents("people");
    people.delete(30).unwrap();
    people.delete(40).unwrap();
    people.add_reference(reference()).unwrap();
    build(&db).unwrap();
    assert!(people.add_reference(reference().on_delete(OnDelete::Clear)).unwrap());
    build(&db).unwrap();
    assert_eq!(db.documents("towns").delete_counting("t5").unwrap().followed.cleared, 3);
    assert!(people.drop_reference("town").unwrap());
    assert!(!people.drop_reference("town").unwrap());
    assert!(db.documents("towns").delete("t6").unwrap());
    assert!(db.documents("towns").schema().unwrap().referred_by().is_empty());
    let trees = db.snapshot().unwrap().trees().unwrap();
    assert!(trees.iter().all(|tree| !tree.tree.contains("\u{1}town\u{1}")), "{trees:?}");
    sound(&db);
}

mod plain {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "people")]
    pub(super) struct Person {
        #[key]
        pub(super) id: u64,
        pub(super) town: Option<String>,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "towns")]
struct Town {
    #[key]
    name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "people")]
struct Person {
    #[key]
    id: u64,
    #[references(Town, on_delete = clear)]
    town: Option<String>,
}

fn person(id: u64, town: &str) -> plain::Person {
    plain::Person { id, town: Some(town.into()) }
}

#[test]
fn a_type_that_gets_the_attribute_checks_the_data_and_one_that_loses_it_ends_it() {
    let disk = MemDisk::new(5);
    let db = open_db(&disk, false);
    db.put(&person(1, "a")).unwrap();
    db.close().unwrap();
    drop(db);
    let db = open_db(&disk, false);
    // The collection that it names comes with it.
    db.register::<Person>().unwrap();
    assert_eq!(db.collection::<Town>().count().unwrap(), 0);
    refused(
        db.build_views::<Person>(|_| Ok(())),
        Code::MissingTarget,
        &["document 1 of people has town = a, and towns has no document a"],
    );
    db.put(&Town { name: "a".into() }).unwrap();
    db.build_views::<Person>(|_| Ok(())).unwrap();
    // A second type of the same program does not end it.
    refused(db.put(&person(2, "b")), Code::MissingTarget, &[]);
    assert_eq!(db.delete_counting::<Town>("a").unwrap().followed.cleared, 1);
    sound(&db);
    db.close().unwrap();
    drop(db);
    let db = open_db(&disk, false);
    db.put(&person(2, "b")).unwrap();
    assert!(db.documents("people").references().unwrap().is_empty());
    assert!(db.documents("towns").schema().unwrap().referred_by().is_empty());
    sound(&db);
}

// A tool's reference is not the type's to take away, and neither is one of a field that the type lacks.
#[test]
fn references_of_tools_stay() {
    let disk = MemDisk::new(6);
    let db = open_db(&disk, false);
    db.ensure(&Schema::new("towns").key(["name"])).unwrap();
    db.write(|tx| tx.put(&plain::Person { id: 1, town: None })).unwrap();
    db.documents("people").add_reference(reference()).unwrap();
    build(&db).unwrap();
    db.put(&plain::Person { id: 2, town: None }).unwrap();
    refused(db.put(&person(2, "b")), Code::MissingTarget, &[]);
}

mod older {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "members")]
    pub(super) struct Member {
        #[key]
        pub(super) id: u64,
        pub(super) town: String,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "members")]
#[migrate_from(older::Member)]
struct Member {
    #[key]
    id: u64,
    #[references(Town, on_delete = cascade)]
    home: String,
}

impl From<older::Member> for Member {
    fn from(old: older::Member) -> Member {
        Member { id: old.id, home: old.town.to_lowercase() }
    }
}

// Only the program knows what an old document refers to once it is converted.
#[test]
fn a_migration_checks_what_it_converts() {
    let db = Db::in_memory().unwrap();
    (0..500).for_each(|id| drop(db.put(&older::Member { id, town: format!("T{}", id % 3) }).unwrap()));
    (0..2).for_each(|n| drop(db.put(&Town { name: format!("t{n}") }).unwrap()));
    db.register::<Member>().unwrap();
    refused(db.delete::<Town>("t0"), Code::Rebuilding, &["home", "migrated", "Db::migrate"]);
    refused(db.migrate::<Member>(|_| Ok(())), Code::MissingTarget, &["home", "2 to t2"]);
    db.put(&Town { name: "t2".into() }).unwrap();
    db.migrate::<Member>(|_| Ok(())).unwrap();
    sound(&db);
    assert_eq!(db.delete_counting::<Town>("t0").unwrap().followed.cascaded, 167);
    sound(&db);
}

// An entry of a later version is refused by a build that does not know references.
#[test]
fn entries_on_both_sides_have_the_version_of_references() {
    let db = towns(&MemDisk::new(7));
    let version = |name: &str| {
        let stored = db.documents(name).schema().unwrap().to_bytes().unwrap();
        Document::from_bytes(&stored).unwrap().get("v").cloned()
    };
    assert_eq!(version("towns"), Some(1.into()));
    db.documents("people").add_reference(reference()).unwrap();
    assert_eq!((version("towns"), version("people")), (Some(7.into()), Some(7.into())));
    db.documents("people").drop_reference("town").unwrap();
    assert_eq!(version("towns"), Some(1.into()));
}

fn put_golden(db: &Db) {
    (0..5).for_each(|n| drop(db.put(&Town { name: format!("t{n}") }).unwrap()));
    (0..20).for_each(|id| drop(db.put(&Person { id, town: Some(format!("t{}", id % 5)) }).unwrap()));
    db.put(&Person { id: 20, town: None }).unwrap();
}

fn verify_golden(db: &Db) {
    sound(db);
    let states = db.documents("people").references().unwrap();
    assert!(states[0].is_checked());
    assert_eq!(*states[0].reference.field(), *"town");
    assert_eq!(states[0].reference.action(), OnDelete::Clear);
    assert_eq!(db.collection::<Person>().count().unwrap(), 21);
}

// D9: the stored form of references, and of the rows that they keep.
#[test]
fn databases_with_references_are_read() {
    let golden = Path::new(GOLDEN);
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.exists() {
        let disk = MemDisk::new(1);
        let db = open_db(&disk, false);
        put_golden(&db);
        db.close().unwrap();
        drop(db);
        store(&disk, golden);
    }
    let disk = load(golden);
    verify_golden(&open_db(&disk, true));
    let db = open_db(&disk, false);
    verify_golden(&db);
    refused(db.documents("people").put(doc! { "id": 1, "town": "x" }), Code::MissingTarget, &[]);
    assert_eq!(db.documents("towns").delete_counting("t1").unwrap().followed.cleared, 4);
    put_golden(&db);
    verify_golden(&db);
}
