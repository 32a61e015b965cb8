//! Views with rows for nulls: documents without a value are found as those with one are.
//!
//! `tests/golden/nulls-1` holds such a view (D9). `DURAMEN_WRITE_GOLDEN=1 cargo test -p duramen --test it
//! nulls` writes it if it is missing.

use std::path::Path;

use duramen::find::{Condition, Operator, OrderBy};
use duramen::prelude::*;
use duramen::{Code, MemDisk, ViewSpec, doc};

use crate::golden::{load, open_db, store};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/nulls-1/closed");

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "tickets",
    view(ByAssignee, key = assignee, nulls, value = points, reduce = (Count, Sum)),
    view(ByTeam, key = (team, assignee), nulls),
    view(Assigned, key = assignee),
    view(ByCode, key = code, nulls, unique)
)]
struct Ticket {
    #[key]
    id: u64,
    team: String,
    assignee: Option<String>,
    points: u32,
    code: Option<u64>,
}

fn ticket(id: u64) -> Ticket {
    Ticket {
        id,
        team: ["web", "ops"][(id % 2) as usize].into(),
        assignee: (!id.is_multiple_of(3)).then(|| ["ada", "bob"][(id % 2) as usize].into()),
        points: u32::try_from(id).unwrap(),
        code: (id > 0).then_some(id),
    }
}

fn put_all(db: &Db) {
    (0..30).for_each(|id| drop(db.put(&ticket(id)).unwrap()));
}

/// The answers about thirty tickets.
fn verify(db: &Db) {
    let of = |assignee: Option<&str>| {
        let tickets = (0..30).map(ticket);
        tickets.filter(|ticket| ticket.assignee.as_deref() == assignee).collect::<Vec<_>>()
    };
    let sum = |tickets: &[Ticket]| tickets.iter().map(|ticket| i128::from(ticket.points)).sum::<i128>();
    let unassigned = of(None);
    assert_eq!(unassigned.len(), 10);
    let view = db.view::<ByAssignee>();
    assert_eq!(view.key(None).docs().unwrap(), unassigned);
    assert_eq!(view.key(None).reduce().unwrap(), (10, sum(&unassigned)));
    assert_eq!(view.key("ada").reduce().unwrap(), (10, sum(&of(Some("ada")))));
    assert_eq!(view.key(Some("bob".to_owned())).docs().unwrap(), of(Some("bob")));
    assert_eq!(view.count().unwrap(), 30);
    let groups = view.group_by::<Option<String>>().unwrap();
    let names: Vec<_> = groups.into_iter().map(|(assignee, _)| assignee).collect();
    assert_eq!(names, [None, Some("ada".to_owned()), Some("bob".to_owned())], "null is before all others");
    let team = db.view::<ByTeam>();
    assert_eq!(team.prefix("ops").count().unwrap(), 15);
    assert_eq!(team.key(("ops", None::<String>)).count().unwrap(), 5);
    assert_eq!(team.key(("ops", "bob")).count().unwrap(), 10);
    // A view without `nulls` has no row for them, as ever.
    assert_eq!(db.view::<Assigned>().count().unwrap(), 20);
    assert_eq!(db.view::<ByCode>().key(7).count().unwrap(), 1);
    assert!(db.check().unwrap().is_clean());
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn documents_without_a_value_have_rows() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    verify(&db);
}

#[test]
fn rows_follow_a_field_that_becomes_null_and_back() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    db.modify::<Ticket>(1, |ticket| {
        ticket.assignee = None;
        Ok(())
    })
    .unwrap();
    assert_eq!(db.view::<ByAssignee>().key(None).count().unwrap(), 11);
    assert_eq!(db.view::<ByAssignee>().key("bob").count().unwrap(), 9);
    db.put(&ticket(1)).unwrap();
    db.delete::<Ticket>(0).unwrap();
    db.put(&ticket(0)).unwrap();
    verify(&db);
}

#[test]
fn a_unique_view_allows_one_null() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    let second = Ticket { code: None, ..ticket(99) };
    assert_eq!(db.put(&second).unwrap_err().code(), Code::UniqueViolation);
}

// A tool's document has no field at all; absent and null are the same.
#[test]
fn an_absent_field_is_null() {
    let db = Db::in_memory().unwrap();
    let schema = Schema::new("notes").key(["id"]).view(ViewSpec::new("by_tag", ["tag"]).nulls());
    let notes = db.ensure(&schema).unwrap();
    notes.put(doc! { "id": 1 }).unwrap();
    notes.put(doc! { "id": 2, "tag": Value::Null }).unwrap();
    notes.put(doc! { "id": 3, "tag": "a" }).unwrap();
    assert_eq!(notes.view("by_tag").key(duramen::tuple::Element::Null).count().unwrap(), 2);
    assert_eq!(notes.view("by_tag").count().unwrap(), 3);
}

// Conditions mean the same along such a view: null is less than nothing.
#[test]
fn find_answers_alike_with_and_without_the_view() {
    let db = Db::in_memory().unwrap();
    put_all(&db);
    let schema = db.documents("tickets").schema().unwrap();
    #[track_caller]
    fn check(db: &Db, condition: Condition, view: Option<&str>, count: usize) {
        let tickets = db.documents("tickets");
        let find = tickets.find([condition]);
        assert_eq!(find.plan().unwrap().path.view(), view);
        assert_eq!(find.iter().unwrap().map(Result::unwrap).count(), count);
        // Where all rows of the path are results they are counted, and not read.
        assert_eq!(find.count().unwrap(), count as u64);
        let sorted = find.order_by([OrderBy::parse("assignee").unwrap()]);
        let sorted: Vec<_> =
            sorted.iter().unwrap().map(|row| row.unwrap().get("assignee").cloned()).collect();
        assert!(sorted.is_sorted_by_key(|assignee| match assignee {
            Some(Value::Text(name)) => name.to_string(),
            _ => String::new(),
        }));
    }
    let condition = |operator, value: Value| Condition::new(&schema, "assignee", operator, value).unwrap();
    check(&db, condition(Operator::Equal, Value::Null), Some("by_assignee"), 10);
    check(&db, condition(Operator::Less, "bob".into()), Some("by_assignee"), 10);
    check(&db, condition(Operator::GreaterOrEqual, "ada".into()), Some("by_assignee"), 20);
    check(&db, condition(Operator::NotEqual, "ada".into()), None, 20);
}

// Which documents have no tag is a question as well.
#[test]
fn a_document_without_items_has_one_row() {
    let db = Db::in_memory().unwrap();
    let schema = Schema::new("notes").key(["id"]).view(ViewSpec::new("by_tag", ["tags"]).each().nulls());
    let notes = db.ensure(&schema).unwrap();
    let list = |tags: &[&str]| tags.iter().map(|tag| Value::from(*tag)).collect::<Vec<_>>();
    notes.put(doc! { "id": 1 }).unwrap();
    notes.put(doc! { "id": 2, "tags": Value::Null }).unwrap();
    notes.put(doc! { "id": 3, "tags": list(&[]) }).unwrap();
    notes.put(doc! { "id": 4, "tags": list(&["a", "b"]) }).unwrap();
    let none = || {
        let rows = notes.view("by_tag").key(duramen::tuple::Element::Null);
        rows.docs().unwrap().iter().map(|note| note.get("id").cloned().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(none(), [1.into(), 2.into(), 3.into()]);
    assert_eq!(notes.view("by_tag").count().unwrap(), 5);
    notes.put(doc! { "id": 1, "tags": list(&["a"]) }).unwrap();
    notes.put(doc! { "id": 4, "tags": list(&[]) }).unwrap();
    assert_eq!(none(), [2.into(), 3.into(), 4.into()]);
    assert_eq!(notes.view("by_tag").key("a").count().unwrap(), 1);
    assert!(db.check_documents().unwrap().is_clean());
}

#[test]
fn databases_with_rows_for_nulls_are_read() {
    let golden = Path::new(GOLDEN);
    if std::env::var("DURAMEN_WRITE_GOLDEN").is_ok() && !golden.exists() {
        let disk = MemDisk::new(1);
        let db = open_db(&disk, false);
        put_all(&db);
        db.close().unwrap();
        drop(db);
        store(&disk, golden);
    }
    let disk = load(golden);
    verify(&open_db(&disk, true));
    let db = open_db(&disk, false);
    put_all(&db);
    verify(&db);
}
