//! References while types change: other names of a field, defaults, migrations, several types.

use duramen::prelude::*;
use duramen::{Code, MemDisk, OnDelete, Reference, ViewPhase, doc};

use super::{User, refused, sound, user};
use crate::golden::open_db;

/// Types of the collection `notes`, of which each program has one or several.
mod notes {
    use super::*;

    /// A type with an author, under these attributes.
    macro_rules! note {
        ($name:ident, $(#[$attribute:meta])* $field:ident: $($kind:tt)+) => {
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
            #[collection(name = "notes")]
            pub(super) struct $name {
                #[key]
                pub(super) id: u64,
                $(#[$attribute])*
                pub(super) $field: $($kind)+,
            }
        };
    }

    note!(Refers, #[references(User)] author: Option<u64>);
    note!(Clears, #[references(User, on_delete = clear)] author: Option<u64>);
    note!(Plain, author: Option<u64>);
    note!(Aliased, #[references(User)] #[serde(alias = "writer")] author: Option<u64>);
    note!(Renamed, #[references(User, on_delete = cascade)] #[serde(alias = "author")] writer: Option<u64>);
    note!(PlainRenamed, #[serde(alias = "author")] writer: Option<u64>);
    note!(Defaulted, #[references(User)] #[serde(default)] author: u64);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "notes")]
    pub(super) struct Bare {
        #[key]
        pub(super) id: u64,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "notes")]
    #[migrate_from(Refers)]
    pub(super) struct Unsigned {
        #[key]
        pub(super) id: u64,
        pub(super) text: String,
    }

    impl From<Refers> for Unsigned {
        fn from(old: Refers) -> Unsigned {
            Unsigned { id: old.id, text: String::new() }
        }
    }
}

use notes::{Aliased, Bare, Clears, Defaulted, Plain, PlainRenamed, Refers, Renamed, Unsigned};

/// A database with two users and a note of the first, as a program with `Refers` leaves it.
fn database() -> MemDisk {
    let disk = MemDisk::new(1);
    let db = open_db(&disk, false);
    [1, 7].iter().for_each(|id| drop(db.put(&user(*id)).unwrap()));
    db.put(&Refers { id: 1, author: Some(1) }).unwrap();
    db.close().unwrap();
    disk
}

fn terms(db: &Db) -> Vec<(String, OnDelete)> {
    let states = db.documents("notes").references().unwrap();
    states.iter().map(|state| (state.reference.field().to_owned(), state.reference.action())).collect()
}

// What the type reads as its field was stored under a name that the reference did not know.
#[test]
fn a_new_name_of_a_field_checks_its_reference_anew() {
    let db = open_db(&database(), false);
    let notes = db.documents("notes");
    notes.put(doc! { "id": 2, "writer": 7 }).unwrap();
    notes.put(doc! { "id": 3, "writer": 9 }).unwrap();
    db.register::<Aliased>().unwrap();
    assert!(matches!(notes.references().unwrap()[0].phase, ViewPhase::Building { .. }));
    refused(db.delete::<User>(7), Code::Rebuilding, &["author", "0 of 3"]);
    refused(db.build_views::<Aliased>(|_| Ok(())), Code::MissingTarget, &["document 3 of notes", "9"]);
    notes.delete(3).unwrap();
    db.build_views::<Aliased>(|_| Ok(())).unwrap();
    refused(db.delete::<User>(7), Code::StillReferenced, &["notes 2 by author"]);
    refused(db.put(&Aliased { id: 2, author: Some(9) }), Code::MissingTarget, &[]);
    db.put(&Aliased { id: 2, author: Some(1) }).unwrap();
    assert!(db.delete::<User>(7).unwrap());
    sound(&db);
}

// A tool's document of that name comes later than the type.
#[test]
fn a_later_column_of_another_name_checks_the_reference_anew() {
    let db = open_db(&database(), false);
    db.put(&Aliased { id: 1, author: Some(1) }).unwrap();
    db.documents("notes").put(doc! { "id": 2, "writer": 7 }).unwrap();
    db.put(&Aliased { id: 3, author: None }).unwrap();
    db.build_views::<Aliased>(|_| Ok(())).unwrap();
    refused(db.delete::<User>(7), Code::StillReferenced, &["notes 2 by author"]);
    sound(&db);
}

// The type reads a key where the document refers to nothing.
#[test]
fn a_default_does_not_stand_for_a_stored_key() {
    let db = Db::in_memory().unwrap();
    db.put(&Bare { id: 1 }).unwrap();
    let words = ["its reference is of author, which stored documents may lack", "make author an Option<u64>"];
    refused(db.register::<Defaulted>(), Code::InvalidArgument, &words);
    refused(db.put(&Defaulted { id: 2, author: 0 }), Code::InvalidArgument, &words[..1]);
    assert_eq!(db.collection::<Bare>().count().unwrap(), 1);
    db.put(&Refers { id: 2, author: None }).unwrap();
    let db = Db::in_memory().unwrap();
    db.put(&user(1)).unwrap();
    db.put(&Defaulted { id: 1, author: 1 }).unwrap();
    refused(db.delete::<User>(1), Code::StillReferenced, &["notes 1 by author"]);
    db.put(&Bare { id: 2 }).unwrap();
    refused(db.get::<Defaulted>(2), Code::InvalidArgument, &words[..1]);
    sound(&db);
}

#[test]
fn a_renamed_field_has_one_reference() {
    let db = open_db(&database(), false);
    db.put(&Renamed { id: 2, writer: Some(7) }).unwrap();
    assert_eq!(terms(&db), [("writer".to_owned(), OnDelete::Cascade)]);
    db.build_views::<Renamed>(|_| Ok(())).unwrap();
    // The same reference by the field's earlier name is no other one.
    let same = Reference::new("author", "users").on_delete(OnDelete::Cascade);
    assert!(!db.documents("notes").add_reference(same).unwrap());
    assert_eq!(db.delete_counting::<User>(1).unwrap().followed.cascaded, 1);
    assert_eq!(db.delete_counting::<User>(7).unwrap().followed.cascaded, 1);
    let users = db.documents("users").schema().unwrap();
    assert_eq!(users.referred_by().len(), 1);
    sound(&db);
}

#[test]
fn a_renamed_field_without_the_attribute_ends_its_reference() {
    let db = open_db(&database(), false);
    db.register::<PlainRenamed>().unwrap();
    assert_eq!(terms(&db).len(), 1, "only a write takes it away");
    db.put(&PlainRenamed { id: 2, writer: None }).unwrap();
    assert_eq!(terms(&db), []);
    assert!(db.delete::<User>(1).unwrap());
}

#[test]
fn a_migration_ends_the_references_of_fields_that_are_gone() {
    let db = open_db(&database(), false);
    db.register::<Unsigned>().unwrap();
    db.migrate::<Unsigned>(|_| Ok(())).unwrap();
    assert_eq!(terms(&db), []);
    assert!(db.transact(|tx| tx.drop_collection("users")).unwrap());
    sound(&db);
}

// In either order: one type more must not end what another declares, not even until that is used.
#[test]
fn types_given_at_opening_keep_each_others_references() {
    let disk = database();
    let checked = |db: &Db| db.documents("notes").references().unwrap()[0].is_checked();
    let first = Db::options().background(false).collection::<Plain>().collection::<Refers>();
    let last = Db::options().background(false).collection::<Refers>().collection::<Plain>();
    for options in [first, last] {
        let db = options.open_on(std::sync::Arc::new(disk.clone()), crate::golden::DATABASE).unwrap();
        assert!(checked(&db), "it is not checked again");
        refused(db.put(&Plain { id: 9, author: Some(99) }), Code::MissingTarget, &[]);
        db.close().unwrap();
    }
    let db = open_db(&disk, false);
    db.register::<Plain>().unwrap();
    assert!(checked(&db), "a type that does not write ends nothing");
    db.put(&Plain { id: 9, author: Some(99) }).unwrap();
    assert_eq!(terms(&db), []);
}

#[test]
fn two_types_with_other_terms_do_not_take_turns() {
    let db = open_db(&database(), false);
    db.put(&Refers { id: 1, author: Some(1) }).unwrap();
    let words =
        ["author of notes", "users (on_delete = clear) in Clears", "users (on_delete = restrict) in another"];
    refused(db.put(&Clears { id: 2, author: None }), Code::InvalidArgument, &words);
    refused(db.register::<Clears>(), Code::InvalidArgument, &words);
    assert_eq!(db.get::<Clears>(1).unwrap(), Some(Clears { id: 1, author: Some(1) }));
    db.put(&Refers { id: 2, author: Some(7) }).unwrap();
    assert_eq!(terms(&db), [("author".to_owned(), OnDelete::Restrict)]);
    sound(&db);
}

// Tools convert a value to the type of its column, and a reference's column has the type of the key.
#[test]
fn a_field_without_a_type_takes_that_of_the_key() {
    let db = Db::in_memory().unwrap();
    db.ensure(&Schema::new("rates").key(["rate"]).column("rate", ColumnType::Float)).unwrap();
    db.documents("rates").put(doc! { "rate": 1 }).unwrap();
    db.ensure(&Schema::new("x").key(["id"]).reference(Reference::new("rate", "rates"))).unwrap();
    db.documents("x").put(doc! { "id": 1, "rate": 1 }).unwrap();
    refused(db.documents("rates").delete(1.0), Code::StillReferenced, &["x 1 by rate"]);
    refused(db.documents("x").put(doc! { "id": 2, "rate": "1" }), Code::InvalidArgument, &["rate"]);
    sound(&db);
}
