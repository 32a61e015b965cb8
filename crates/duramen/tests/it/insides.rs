//! The insides of fields: a type that cannot read those of stored documents does not write beside them, and
//! errors name the field.

use std::collections::BTreeMap;

use duramen::prelude::*;
use duramen::{Code, Time};

mod before {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) article: String,
        pub(super) price: String,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) lines: Vec<Line>,
    }

    pub(super) fn order(id: u64) -> Order {
        let line = |price: &str| Line { article: "pen".into(), price: price.into() };
        Order { id, lines: vec![line("12"), line("3")] }
    }
}

mod after {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub(super) struct Line {
        pub(super) article: String,
        pub(super) price: u32,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) lines: Vec<Line>,
    }
}

fn database() -> Db {
    let db = Db::in_memory().unwrap();
    (1..=3).for_each(|id| drop(db.put(&before::order(id)).unwrap()));
    db
}

fn says(error: &Error, message: &str, hint: &str) {
    assert!(error.message().contains(message), "{error}");
    assert!(error.hint().contains(hint), "{}", error.hint());
}

#[test]
fn a_type_that_does_not_read_the_insides_of_stored_documents_does_not_write() {
    let db = database();
    let new = after::Order { id: 4, lines: Vec::new() };
    for error in [db.put(&new).unwrap_err(), db.register::<after::Order>().unwrap_err()] {
        assert_eq!(error.code(), Code::InvalidArgument);
        says(
            &error,
            "the document 1 of orders does not read as Order: its field lines[0].price holds the text \"12\", and Order \
             wants u32 there",
            "nothing was written",
        );
        says(&error, "", "#[migrate_from]");
    }
    // A read of the type in the same transaction, or before, admits no write.
    let read_first = db.transact(|tx| {
        let _ = tx.get::<after::Order>(4)?;
        tx.put(&new)
    });
    assert_eq!(read_first.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(db.collection::<after::Order>().count().unwrap(), 3);
    assert!(db.put(&new).is_err());
    db.put(&before::order(5)).unwrap();
    // The documents may go.
    assert_eq!(db.delete_range::<after::Order>(..).unwrap(), 4);
    db.put(&new).unwrap();
}

// One document that a tool has stored in another form must not stop the program that would mend it.
#[test]
fn a_type_that_reads_most_documents_writes_and_replaces_the_others() {
    let numbered =
        |id: u64| after::Order { id, lines: vec![after::Line { article: "pen".into(), price: 12 }] };
    let odd =
        |id: u64| doc! { "id": id, "lines": vec![Value::from(doc! { "article": "pen", "price": "12" })] };
    let stored_by_a_tool = |odd_ids: &[u64]| {
        let db = Db::in_memory().unwrap();
        db.transact(|tx| tx.ensure(&Schema::new("orders").key(["id"])).map(drop)).unwrap();
        for id in 1..=5_u64 {
            let line = Value::from(doc! { "article": "pen", "price": 12 });
            let document = if odd_ids.contains(&id) {
                odd(id)
            } else {
                doc! { "id": id, "lines": vec![line] }
            };
            db.documents("orders").put(document).unwrap();
        }
        db
    };
    let db = stored_by_a_tool(&[1, 5]);
    assert_eq!(db.get::<after::Order>(1).unwrap_err().code(), Code::Unreadable);
    db.put(&numbered(1)).unwrap();
    db.put(&numbered(6)).unwrap();
    assert_eq!(db.get::<after::Order>(1).unwrap(), Some(numbered(1)));
    let db = stored_by_a_tool(&[1, 3, 5]);
    says(&db.put(&numbered(6)).unwrap_err(), "the document 1 of orders", "nothing was written");
}

#[test]
fn a_new_field_inside_is_refused_without_a_default_and_fine_with_one() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Line {
        article: String,
        amount: u32,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    struct Order {
        #[key]
        id: u64,
        lines: Vec<Line>,
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct LineWithDefault {
        article: String,
        #[serde(default)]
        amount: u32,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    struct WithDefault {
        #[key]
        id: u64,
        lines: Vec<LineWithDefault>,
    }
    let db = database();
    says(
        &db.register::<Order>().unwrap_err(),
        "it has no field lines[0].amount, and Order wants one",
        "#[serde(default)]",
    );
    db.put(&WithDefault { id: 4, lines: Vec::new() }).unwrap();
}

/// The previous type as a user wrote it down, wrongly.
mod wrong {
    use super::*;

    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    pub(super) struct OldOrder {
        #[key]
        pub(super) id: u64,
        pub(super) lines: Vec<after::Line>,
    }

    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    #[migrate_from(OldOrder)]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) cents: u64,
    }

    impl From<OldOrder> for Order {
        fn from(old: OldOrder) -> Order {
            Order { id: old.id, cents: old.lines.iter().map(|line| u64::from(line.price)).sum() }
        }
    }
}

/// As it should be.
mod right {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    #[migrate_from(before::Order)]
    pub(super) struct Order {
        #[key]
        pub(super) id: u64,
        pub(super) cents: u64,
    }

    impl From<before::Order> for Order {
        fn from(old: before::Order) -> Order {
            Order {
                id: old.id,
                cents: old.lines.iter().filter_map(|line| line.price.parse::<u64>().ok()).sum(),
            }
        }
    }
}

#[test]
fn a_migration_whose_old_type_does_not_read_the_documents_does_not_begin() {
    let db = database();
    for error in [
        db.migrate::<wrong::Order>(|_| Ok(())).unwrap_err(),
        db.put(&wrong::Order { id: 9, cents: 1 }).unwrap_err(),
    ] {
        says(
            &error,
            "its field lines[0].price holds the text \"12\", and OldOrder wants u32 there",
            "nothing was written",
        );
    }
    db.put(&before::order(4)).unwrap();
    db.migrate::<right::Order>(|_| Ok(())).unwrap();
    assert_eq!(db.get::<right::Order>(4).unwrap(), Some(right::Order { id: 4, cents: 15 }));
}

// The sample before a migration cannot see every document.
#[test]
fn a_migration_that_meets_an_unreadable_document_names_it_and_goes_on_with_a_mended_type() {
    let db = Db::in_memory().unwrap();
    let numbered =
        |id: u64| doc! { "id": id, "lines": vec![Value::from(doc! { "article": "pen", "price": 12 })] };
    db.transact(|tx| tx.ensure(&Schema::new("orders").key(["id"])).map(drop)).unwrap();
    db.transact(|tx| (1..=1000).try_for_each(|id| tx.documents("orders").put(numbered(id)).map(drop)))
        .unwrap();
    let odd = doc! { "id": 500, "lines": vec![Value::from(doc! { "article": "pen", "price": "12" })] };
    db.documents("orders").put(odd).unwrap();
    let error = db.migrate::<wrong::Order>(|_| Ok(())).unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    says(
        &error,
        "the document 500 of orders, of version 1: it does not read as OldOrder: its field lines[0].price holds the text \
         \"12\", and OldOrder wants u32 there",
        "call Db::migrate again: it goes on behind the documents that are converted",
    );
    // The mended program.
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Price {
        Number(u64),
        Text(String),
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct Line {
        price: Price,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    struct OldOrder {
        #[key]
        id: u64,
        lines: Vec<Line>,
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    #[collection(name = "orders")]
    #[migrate_from(OldOrder)]
    struct Order {
        #[key]
        id: u64,
        cents: u64,
    }
    impl From<OldOrder> for Order {
        fn from(old: OldOrder) -> Order {
            let cents = old.lines.iter().map(|line| match &line.price {
                Price::Number(number) => *number,
                Price::Text(text) => text.parse().unwrap_or_default(),
            });
            Order { id: old.id, cents: cents.sum() }
        }
    }
    db.migrate::<Order>(|_| Ok(())).unwrap();
    assert!(db.collection::<Order>().iter().unwrap().all(|order| order.unwrap().cents == 12));
    assert!(!db.documents("orders").schema().unwrap().is_migrating());
}

/// How a document of tools fails to read as a type.
fn failure<C: Collection + std::fmt::Debug>(document: Document) -> String {
    let db = Db::in_memory().unwrap();
    db.transact(|tx| tx.ensure(&Schema::new(C::NAME).key(["id"])).map(drop)).unwrap();
    db.documents(C::NAME).put(document).unwrap();
    let error = db.collection::<C>().first().unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    error.message().to_owned()
}

#[test]
fn a_document_that_does_not_decode_names_the_field_and_both_kinds() {
    #[derive(Debug, Serialize, Deserialize)]
    enum State {
        Open,
        Closed { at: Time, by: Option<u32> },
    }
    #[derive(Debug, Serialize, Deserialize, Collection)]
    struct Ticket {
        #[key]
        id: u64,
        #[serde(default)]
        states: Vec<State>,
        #[serde(default)]
        votes: BTreeMap<u32, i8>,
        #[serde(default)]
        about: Option<(u8, String)>,
    }
    let at = Time::parse("2024-01-01T00:00:00Z").unwrap();
    let states = |state: Value| doc! { "id": 1, "states": vec![Value::from("Open"), state] };
    let closed = |at: Value, by: Value| Value::from(doc! { "Closed": doc! { "at": at, "by": by } });
    for (document, wanted) in [
        (
            states("Lost".into()),
            "its field states[1] holds the variant Lost, and Ticket wants one of Open, Closed there",
        ),
        (
            states(closed("now".into(), Value::Null)),
            "its field states[1].Closed.at holds the text \"now\", and Ticket wants a time there",
        ),
        (
            states(closed(at.into(), "x".into())),
            "its field states[1].Closed.by holds the text \"x\", and Ticket wants u32 there",
        ),
        (
            doc! { "id": 1, "votes": doc! { "7": 300 } },
            "its field votes.7 holds the integer 300, and Ticket wants i8 there",
        ),
        (
            doc! { "id": 1, "about": vec![Value::Int(1)] },
            "its field about: invalid length 1, expected a tuple of size 2",
        ),
        (
            doc! { "id": 1, "about": true },
            "its field about holds true, and Ticket wants a tuple of size 2 there",
        ),
    ] {
        let message = failure::<Ticket>(document);
        assert_eq!(message, format!("the document 1 of ticket does not read as Ticket: {wanted}"));
    }
}
