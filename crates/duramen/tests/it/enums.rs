//! Enums in keys and views: in the order that their type chose, the same in documents, keys and views.
//!
//! `tests/golden/enums-1` is from a release whose derive made no enum choose: it stored names (D9).
//! `DURAMEN_WRITE_GOLDEN=1 cargo test -p duramen --test it enums` writes it if it is missing.

use std::path::Path;

use duramen::prelude::*;
use duramen::schema::ColumnType;
use duramen::{Code, MemDisk, doc};

use crate::golden::{load, open_db, store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/enums-1/closed");

/// Stored by name, which is the order High, low, medium.
mod named {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Key)]
    #[key(by_name)]
    pub(super) enum Priority {
        #[serde(rename = "low")]
        Low,
        #[serde(rename = "medium")]
        Medium,
        High,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(
        name = "tickets",
        view(ByPriority, key = priority, value = priority, reduce = (Count, Max)),
        view(ByNext, key = next)
    )]
    pub(super) struct Ticket {
        #[key]
        pub(super) queue: Priority,
        #[key]
        pub(super) id: u64,
        pub(super) priority: Priority,
        pub(super) next: Option<Priority>,
    }

    pub(super) fn ticket(id: u64) -> Ticket {
        let priority = |n: u64| [Priority::Low, Priority::Medium, Priority::High][(n % 3) as usize];
        Ticket {
            queue: priority(id / 3),
            id,
            priority: priority(id),
            next: (!id.is_multiple_of(4)).then(|| priority(id / 4)),
        }
    }
}

/// Stored by number.
mod numbered {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Key)]
    #[key(by_number)]
    #[serde(into = "u8", try_from = "u8")]
    pub(super) enum Priority {
        Low = 1,
        Medium = 2,
        High = 4,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(
        name = "tickets",
        view(ByPriority, key = priority, value = priority, reduce = (Count, Max, Min, TopK(2))),
        view(ByNext, key = next, reduce = Max(priority)),
        view(ByAll, key = all, each)
    )]
    pub(super) struct Ticket {
        #[key]
        pub(super) queue: Priority,
        #[key]
        pub(super) id: u64,
        pub(super) priority: Priority,
        pub(super) next: Option<Priority>,
        pub(super) all: Vec<Priority>,
    }

    pub(super) fn ticket(id: u64) -> Ticket {
        let priority = |n: u64| [Priority::Low, Priority::Medium, Priority::High][(n % 3) as usize];
        let next = (!id.is_multiple_of(4)).then(|| priority(id / 4));
        let all = (0..id % 3).map(priority).collect();
        Ticket { queue: priority(id / 3), id, priority: priority(id), next, all }
    }
}

/// The same with a variant in the middle, as a later program declares it.
mod grown {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Key)]
    #[key(by_number)]
    #[serde(into = "u8", try_from = "u8")]
    pub(super) enum Priority {
        Low = 1,
        Medium = 2,
        Raised = 3,
        High = 4,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
    #[collection(
        name = "tickets",
        view(ByPriority, key = priority, value = priority, reduce = (Count, Max, Min, TopK(2))),
        view(ByNext, key = next, reduce = Max(priority)),
        view(ByAll, key = all, each)
    )]
    pub(super) struct Ticket {
        #[key]
        pub(super) queue: Priority,
        #[key]
        pub(super) id: u64,
        pub(super) priority: Priority,
        pub(super) next: Option<Priority>,
        pub(super) all: Vec<Priority>,
    }
}

fn numbered() -> Db {
    let db = Db::in_memory().unwrap();
    (0..30).for_each(|id| drop(db.put(&numbered::ticket(id)).unwrap()));
    db
}

// The mistake that numbers prevent: by name, Medium is the largest while there are Highs.
#[test]
fn numbers_order_keys_views_and_reductions() {
    use numbered::{ByAll, ByNext, ByPriority, Priority, Ticket};
    let db = numbered();
    let (count, max, min, top) = db.view::<ByPriority>().reduce().unwrap();
    assert_eq!((count, max, min), (30, Some(Priority::High), Some(Priority::Low)));
    assert_eq!(top, [Priority::High, Priority::High]);
    assert_eq!(db.view::<ByPriority>().key(Priority::Medium).count().unwrap(), 10);
    assert_eq!(db.view::<ByPriority>().range(Priority::Medium..).count().unwrap(), 20);
    let order = [Priority::Low, Priority::Medium, Priority::High];
    let groups = db.view::<ByPriority>().group_by::<Priority>().unwrap();
    assert!(groups.into_iter().map(|(priority, _)| priority).eq(order));
    assert_eq!(db.view::<ByNext>().key(Priority::High).reduce().unwrap(), Some(Priority::High));
    assert_eq!(db.view::<ByAll>().key(Priority::Medium).count().unwrap(), 10);
    let keys: Vec<_> = db.collection::<Ticket>().keys().unwrap().collect::<Result<_>>().unwrap();
    assert!(keys.is_sorted());
    assert_eq!(keys.last().unwrap().0, Priority::High);
    assert!(db.check_documents().unwrap().is_clean());
}

// Tools and programs without the type see the numbers, in documents as in keys, and write them.
#[test]
fn documents_hold_the_numbers_too() {
    use numbered::{ByPriority, Priority, Ticket};
    let db = numbered();
    let tickets = db.documents("tickets");
    let shown = tickets.get((2, 5)).unwrap().unwrap();
    assert_eq!(shown.to_json().unwrap(), r#"{"queue":2,"id":5,"priority":4,"next":2,"all":[1,2]}"#);
    let schema = tickets.schema().unwrap();
    assert_eq!(schema.kind("queue"), Some(ColumnType::Int));
    assert_eq!(schema.kind("priority"), Some(ColumnType::Int));
    assert_eq!(schema.kind("next"), Some(ColumnType::Int));
    let new = doc! { "queue": 4, "id": 99, "priority": 4, "next": Value::Null, "all": vec![Value::Int(2)] };
    tickets.put(new).unwrap();
    let read = db.get::<Ticket>((Priority::High, 99)).unwrap().unwrap();
    assert_eq!((read.priority, read.next), (Priority::High, None));
    assert_eq!(db.view::<ByPriority>().key(Priority::High).count().unwrap(), 11);
}

#[test]
fn an_unknown_number_is_refused_with_those_there_are() {
    use numbered::{ByPriority, Priority, Ticket};
    let db = numbered();
    let unknown =
        doc! { "queue": 1, "id": 99, "priority": 3, "next": Value::Null, "all": Vec::<Value>::new() };
    db.documents("tickets").put(unknown).unwrap();
    let error = db.get::<Ticket>((Priority::Low, 99)).unwrap_err();
    assert_eq!(error.code(), Code::Unreadable);
    assert_eq!(
        error.message(),
        "the document 1,99 of tickets does not read as Ticket: its field priority: 3 is no Priority, which has Low = 1, Medium = 2, High = 4"
    );
    let rows: Result<Vec<_>> = db.view::<ByPriority>().iter().unwrap().collect();
    assert!(rows.err().unwrap().message().contains("3 is no Priority"));
}

// Declaration order would have moved High by one; numbers leave what is stored where it is.
#[test]
fn a_variant_added_in_the_middle_reorders_nothing() {
    use grown::{ByPriority, Priority, Ticket};
    let db = numbered();
    let before: Vec<_> = db.documents("tickets").scan(Span::all()).unwrap().map(Result::unwrap).collect();
    let raised =
        Ticket { queue: Priority::Raised, id: 99, priority: Priority::Raised, next: None, all: vec![] };
    db.put(&raised).unwrap();
    let order = [Priority::Low, Priority::Medium, Priority::Raised, Priority::High];
    let groups: Vec<_> = db.view::<ByPriority>().group_by::<Priority>().unwrap().into_iter().collect();
    assert!(groups.iter().map(|(priority, _)| *priority).eq(order));
    assert!(db.collection::<Ticket>().iter().unwrap().map(|ticket| ticket.unwrap().queue).is_sorted());
    db.delete::<Ticket>((Priority::Raised, 99)).unwrap();
    let after: Vec<_> = db.documents("tickets").scan(Span::all()).unwrap().map(Result::unwrap).collect();
    assert_eq!(before, after);
}

// Names and numbers in one view would be two orders; the type is refused before it reads or writes.
#[test]
fn an_enum_does_not_change_between_names_and_numbers() {
    mod by_name {
        use super::*;
        use named::Priority;

        #[derive(Default, Serialize, Deserialize, Collection)]
        #[collection(name = "tasks")]
        pub(super) struct Task {
            #[key]
            id: u64,
            priority: Option<Priority>,
        }
    }
    mod by_number {
        use super::*;
        use numbered::Priority;

        #[derive(Default, Serialize, Deserialize, Collection)]
        #[collection(name = "tasks")]
        pub(super) struct Task {
            #[key]
            id: u64,
            priority: Option<Priority>,
        }
    }
    #[track_caller]
    fn check<Before: Collection + Default, After: Collection>(message: &str) {
        let db = Db::in_memory().unwrap();
        db.put(&Before::default()).unwrap();
        let error = db.register::<After>().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(message), "{}", error.message());
        assert!(error.hint().contains("by_name or by_number"), "{}", error.hint());
    }
    check::<by_name::Task, by_number::Task>(
        "its field priority holds an enum as Option<Priority>, and the type stores Option<u8>",
    );
    check::<by_number::Task, by_name::Task>(
        "its field priority holds an enum as Option<u8>, and the type stores Option<Priority>",
    );
}

/// Everything that the release stored is read, in the order that it had.
fn verify(db: &Db) {
    use named::{ByNext, ByPriority, Priority, Ticket, ticket};
    let order = [Priority::High, Priority::Low, Priority::Medium];
    let place = |priority: Priority| order.iter().position(|other| *other == priority);
    let mut tickets: Vec<Ticket> = (0..30).map(ticket).collect();
    tickets.sort_by_key(|ticket| (place(ticket.queue), ticket.id));
    assert_eq!(db.collection::<Ticket>().to_vec().unwrap(), tickets);
    let groups = db.view::<ByPriority>().group_by::<Priority>().unwrap();
    assert!(groups.into_iter().eq(order.map(|priority| (priority, (10, Some(priority))))));
    let (count, max) = db.view::<ByPriority>().reduce().unwrap();
    assert_eq!((count, max), (30, Some(Priority::Medium)));
    assert_eq!(db.view::<ByNext>().count().unwrap(), 22);
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn names_stay_as_earlier_releases_stored_them() {
    let golden = Path::new(GOLDEN);
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.exists() {
        let disk = MemDisk::new(1);
        let db = open_db(&disk, false);
        (0..30).for_each(|id| drop(db.put(&named::ticket(id)).unwrap()));
        db.close().unwrap();
        drop(db);
        store(&disk, golden);
    }
    let disk = load(golden);
    verify(&open_db(&disk, true));
    let db = open_db(&disk, false);
    let entry = db.documents("tickets").schema().unwrap();
    verify(&db);
    for id in 0..30 {
        db.put(&named::ticket(id)).unwrap();
    }
    verify(&db);
    assert_eq!(db.documents("tickets").schema().unwrap(), entry, "the entry in the catalogue is as it was");
}
