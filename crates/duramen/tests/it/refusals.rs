//! A failed write leaves nothing behind, whatever the closure does with its error. A document that cannot be
//! stored is refused before anything is written.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

use duramen::prelude::*;
use duramen::{Code, ReplaceError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "users", view(ByEmail, key = email, unique), view(Longest, key = id, reduce = Max(name)))]
struct User {
    #[key]
    id: u64,
    email: String,
    name: String,
}

fn user(id: u64, email: &str, name: &str) -> User {
    User { id, email: email.to_owned(), name: name.to_owned() }
}

fn clean(db: &Db) {
    let report = db.check_documents().unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert!(db.check().unwrap().is_clean());
}

// A closure that discards the error of a put must not commit half of it: the old row removed, the new one
// missing.
#[test]
fn a_swallowed_error_leaves_no_half_write() {
    let db = Db::in_memory().unwrap();
    db.put(&user(1, "a", "one")).unwrap();
    db.put(&user(2, "b", "two")).unwrap();
    // Refused before anything was written: the transaction continues.
    db.transact(|tx| {
        assert_eq!(tx.put(&user(1, "b", "one")).unwrap_err().code(), Code::UniqueViolation);
        tx.put(&user(3, "c", "three"))
    })
    .unwrap();
    clean(&db);
    assert_eq!(db.put(&user(4, "a", "four")).unwrap_err().code(), Code::UniqueViolation);
    // Refused by the reducer, after rows were written: the transaction can no longer commit.
    let long = "n".repeat(50);
    let swallowed = db.transact(|tx| {
        drop(tx.put(&user(1, "z", &long)));
        Ok(())
    });
    let error = swallowed.unwrap_err();
    assert!(error.message().contains("the view longest"), "{error}");
    assert_eq!(db.get::<User>(1).unwrap(), Some(user(1, "a", "one")));
    clean(&db);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes")]
struct Note {
    #[key]
    id: u64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "notes", view(ByText, key = text))]
struct Viewed {
    #[key]
    id: u64,
    text: String,
}

// A view that was added later and cannot hold a document must not make the document immutable.
#[test]
fn a_document_that_a_view_cannot_take_can_still_be_changed_and_deleted() {
    let db = Db::in_memory().unwrap();
    for id in [1, 2] {
        db.put(&Note { id, text: "x".repeat(2_000) }).unwrap();
    }
    let error = db.build_views::<Viewed>(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::KeyTooLong);
    assert!(error.message().contains("the document 1 of notes"), "{error}");
    db.put(&Viewed { id: 1, text: "short".into() }).unwrap();
    assert!(db.delete::<Note>(2).unwrap());
    db.build_views::<Viewed>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByText>().key("short").count().unwrap(), 1);
    clean(&db);
}

#[test]
fn a_view_that_was_dropped_is_gone_and_comes_back_with_its_type() {
    let db = Db::options().background(false).in_memory().unwrap();
    db.put(&user(1, "a", "one")).unwrap();
    assert!(db.transact(|tx| tx.drop_view("users", "by_email")).unwrap());
    assert!(!db.transact(|tx| tx.drop_view("users", "by_email")).unwrap());
    assert_eq!(db.view::<ByEmail>().count().unwrap_err().code(), Code::Rebuilding);
    db.build_views::<User>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<ByEmail>().key("a").count().unwrap(), 1);
    clean(&db);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "rooms", positional)]
struct Positional {
    #[key]
    id: u64,
    width: u32,
    height: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "rooms")]
struct Reordered {
    #[key]
    id: u64,
    height: u32,
    width: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "rooms")]
struct Named {
    #[key]
    id: u64,
    width: u32,
    height: u32,
    #[serde(default)]
    color: String,
}

// Positional documents are identified by position: a type with another order must not mix up fields.
#[test]
fn positional_documents_are_not_read_in_another_order() {
    let db = Db::in_memory().unwrap();
    db.put(&Positional { id: 1, width: 10, height: 20 }).unwrap();
    let error = db.get::<Reordered>(1).unwrap_err();
    assert!(error.message().contains("(id, width, height) in this order"), "{error}");
    let named = Named { id: 1, width: 10, height: 20, color: String::new() };
    assert_eq!(db.get::<Named>(1).unwrap(), Some(named));
    db.put(&Named { id: 2, width: 1, height: 2, color: "red".into() }).unwrap();
    assert_eq!(db.get::<Positional>(2).unwrap(), Some(Positional { id: 2, width: 1, height: 2 }));
    clean(&db);
}

/// Every form that serde writes and tools must show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Forms {
    #[key]
    id: u64,
    float: f32,
    letter: char,
    wide: Option<u64>,
    by_number: BTreeMap<u32, String>,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    sometimes: Option<String>,
    #[serde(flatten)]
    rest: Rest,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Sized { size: u8 },
    Pair(i8, i8),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Rest {
    at: Time,
    unit: (),
}

#[test]
fn every_form_comes_back_and_tools_can_show_it() {
    let db = Db::in_memory().unwrap();
    let kinds = [Kind::Plain, Kind::Sized { size: 3 }, Kind::Pair(-1, 1)];
    for (id, kind) in (0..).zip(kinds) {
        let forms = Forms {
            id,
            float: 0.1,
            letter: 'ø',
            wide: (id > 0).then_some(u64::MAX),
            by_number: BTreeMap::from([(7, "seven".to_owned())]),
            kind,
            sometimes: (id == 1).then(|| "yes".to_owned()),
            rest: Rest { at: Time::parse("2026-11-21T10:00:00.5Z").unwrap(), unit: () },
            bytes: vec![1, 2],
        };
        db.put(&forms).unwrap();
        assert_eq!(db.get::<Forms>(id).unwrap(), Some(forms));
        let shown = db.documents("forms").get(id).unwrap().unwrap();
        assert!(shown.to_json().unwrap().contains(r#""by_number":{"7":"seven"}"#), "{shown}");
    }
    clean(&db);
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Unshowable {
    #[key]
    id: u64,
    by_pair: HashMap<(u8, u8), u8>,
}

// A document that tools cannot show would fail every scan: it is refused when it is written.
#[test]
fn what_tools_cannot_show_is_refused() {
    let db = Db::in_memory().unwrap();
    let error = db.put(&Unshowable { id: 1, by_pair: HashMap::from([((1, 2), 3)]) }).unwrap_err();
    assert!(error.message().contains("a key that cannot be shown as a name"), "{error}");
    assert_eq!(
        db.put(&Unshowable { id: 1, by_pair: HashMap::new() }).map(|_| ()).err().map(|e| e.code()),
        None
    );
}

// An error type of the program must not prevent the engine from retrying a transaction.
#[test]
fn an_error_of_ones_own_does_not_hide_one_that_running_again_mends() {
    let db = Db::options().memory_bytes(8 << 20).in_memory().unwrap();
    let note = |id: u64| Note { id, text: "x".repeat(1_000) };
    let notes =
        |tx: &mut Transaction<'_>, from: u64| (from..from + 1_500).try_for_each(|id| tx.put(&note(id)));
    db.put(&note(0)).unwrap();
    let (held, is_held) = mpsc::channel();
    let (end, has_ended) = mpsc::channel();
    let mut runs = 0;
    thread::scope(|scope| {
        let (db, notes) = (&db, &notes);
        let hold = |from: u64| {
            let (release, is_released) = mpsc::channel::<()>();
            let (held, end) = (held.clone(), end.clone());
            scope.spawn(move || {
                let holder = db.transact(|tx| {
                    notes(tx, from)?;
                    held.send(()).unwrap();
                    is_released.recv().unwrap();
                    Ok(())
                });
                end.send(holder).unwrap();
            });
            is_held.recv().unwrap();
            release
        };
        let holders = [hold(1), hold(5_000)];
        let done: std::result::Result<(), ReplaceError<Note>> = db.try_transact(|tx| {
            runs += 1;
            if runs == 2 {
                for release in &holders {
                    release.send(()).unwrap();
                    has_ended.recv().unwrap().unwrap();
                }
            }
            Ok(notes(tx, 10_000)?)
        });
        done.unwrap();
    });
    assert!(runs >= 2, "the first run found the memory held");
    assert_eq!(db.collection::<Note>().count().unwrap(), 4_501);
}

mod rival {
    use duramen::prelude::*;

    /// Another type with a view of the same name.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "notes", view(ByText, key = (text, id)))]
    pub(super) struct Rival {
        #[key]
        id: u64,
        text: String,
    }
}

// Two types of one program declare views of one name with different definitions: both are kept, and both
// answer.
#[test]
fn two_types_with_a_view_of_one_name_are_both_answered() {
    let db = Db::in_memory().unwrap();
    db.put(&Viewed { id: 1, text: "a".into() }).unwrap();
    db.build_views::<rival::Rival>(|_| Ok(())).unwrap();
    assert_eq!(db.view::<rival::ByText>().prefix("a").count().unwrap(), 1);
    assert_eq!(db.view::<ByText>().count().unwrap(), 1);
    db.put(&Viewed { id: 2, text: "a".into() }).unwrap();
    assert_eq!(db.view::<rival::ByText>().prefix("a").count().unwrap(), 2);
    assert_eq!(db.view::<ByText>().key("a").count().unwrap(), 2);
    clean(&db);
}

/// A key that is too long to be written is absent: it is no error to read or delete it.
#[test]
fn a_key_or_name_beyond_every_limit_is_absent_or_refused() {
    let db = Db::in_memory().unwrap();
    let (notes, long) = (db.bytes("notes"), "n".repeat(70_000));
    notes.put("a", "1").unwrap();
    assert!(!notes.delete(&long).unwrap());
    db.transact(|tx| {
        assert_eq!(tx.get_bytes("notes", long.as_bytes())?, None);
        assert_eq!(tx.get_bytes(&long, b"a")?, None);
        Ok(())
    })
    .unwrap();
    assert_eq!(notes.put(&long, "1").unwrap_err().code(), Code::KeyTooLong);
    assert_eq!(db.bytes(&long).put("a", "1").unwrap_err().code(), Code::KeyTooLong);
}
