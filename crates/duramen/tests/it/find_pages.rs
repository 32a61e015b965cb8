//! Pages of queries by conditions: together they are the whole answer, along every access path.

use duramen::Code;
use duramen::find::{Condition, Find, OrderBy};
use duramen::prelude::*;
use duramen::view::{KeyField, ViewSpec};
use duramen::{PageToken, Span};

fn flights(db: &Db) -> duramen::Documents {
    let schema = Schema::new("flights")
        .key(["id"])
        .column("carrier", ColumnType::Text)
        .column("delay", ColumnType::Int)
        .view(ViewSpec::new("by_carrier", ["carrier"]))
        .view(ViewSpec::new("by_delay", [KeyField::field("carrier"), KeyField::field("delay").descending()]));
    let flights = db.ensure(&schema).unwrap();
    for id in 0..40 {
        let carrier = ["UA", "AA", "B6"][usize::try_from(id % 3).unwrap()];
        flights.put(doc! { "id": id, "carrier": carrier, "delay": id * 7 % 11 }).unwrap();
    }
    flights
}

/// Pages of each size equal the whole answer. Tokens survive as text.
fn check(find: &Find<'_>) {
    let whole: Vec<Document> = find.iter().unwrap().collect::<Result<_>>().unwrap();
    assert!(!whole.is_empty(), "{find:?}");
    for size in [1, 2, 3, 7, whole.len(), whole.len() + 1] {
        let (mut found, mut after) = (Vec::new(), None::<PageToken>);
        loop {
            let page = find.page(size, after.as_ref()).unwrap();
            assert!(page.items.len() == size || page.next.is_none(), "{find:?}");
            found.extend(page.items);
            assert!(found.len() <= whole.len(), "{find:?}: a page begins again");
            let Some(next) = page.next else { break };
            after = Some(next.to_string().parse().unwrap());
        }
        assert_eq!(found, whole, "{find:?}, pages of {size}");
    }
}

#[test]
fn pages_together_are_the_whole_answer() {
    let db = Db::in_memory().unwrap();
    let flights = flights(&db);
    let schema = flights.schema().unwrap();
    let parsed = |text: &str| Condition::parse(&schema, text).unwrap();
    let of = |text: &str| flights.find([parsed(text)]);
    let queries = [
        flights.find([]),
        of("id >= 10"),
        of("id in (3, 30, 7)"),
        of("delay > 4"),
        of("carrier = UA"),
        of("carrier in (UA, AA)"),
        of("carrier != UA"),
        flights.find([]).view("by_delay"),
        of("carrier = AA").view("by_delay"),
        of("carrier in (UA, AA)").and([parsed("delay > 3")]).view("by_delay"),
        flights.find([]).range(Span::between(5, 31).unwrap()),
        of("carrier = UA").order_by([OrderBy::descending("delay")]),
        flights.find([]).order_by([OrderBy::ascending("carrier")]),
        of("delay > 4").fields(["delay"]),
    ];
    for find in &queries {
        check(find);
        check(&find.reverse());
    }
}

// Such a row is not read for its value: only its key is.
#[test]
fn pages_along_a_view_that_keeps_large_values() {
    let db = Db::in_memory().unwrap();
    let schema = Schema::new("notes").key(["id"]).column("topic", ColumnType::Text);
    let notes = db.ensure(&schema.view(ViewSpec::new("by_topic", ["topic"]).values(["text"]))).unwrap();
    for id in 0..7 {
        let text = "long ".repeat(if id % 2 == 0 { 8_000 } else { 1 });
        notes.put(doc! { "id": id, "topic": format!("topic {}", id % 3), "text": text }).unwrap();
    }
    let find = notes.find([]).view("by_topic");
    check(&find);
    check(&find.reverse());
}

// What is written between two pages must not repeat or hide other documents.
#[test]
fn writes_between_pages_hide_nothing() {
    let db = Db::in_memory().unwrap();
    let flights = flights(&db);
    let find = flights.find([]).view("by_carrier");
    let first = find.page(5, None).unwrap();
    let last = first.items[4].get("id").cloned().unwrap();
    flights.put(doc! { "id": 100, "carrier": "AA", "delay": 0 }).unwrap();
    let Value::Int(last) = last else { panic!("an id is a number") };
    flights.delete(u64::try_from(last).unwrap()).unwrap();
    let second = find.page(50, first.next.as_ref()).unwrap();
    assert_eq!((second.items.len(), second.next), (36, None));
}

#[test]
fn a_query_that_sorts_and_a_token_of_another_path_are_refused() {
    let db = Db::in_memory().unwrap();
    let flights = flights(&db);
    let schema = flights.schema().unwrap();
    let sorted = flights.find([Condition::parse(&schema, "delay > 4").unwrap()]);
    let sorted = sorted.order_by([OrderBy::ascending("delay")]);
    let error = sorted.page(5, None).unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.hint().contains("view"), "{error:?}");
    let token = flights.find([]).page(5, None).unwrap().next.unwrap();
    let error = flights.find([]).view("by_carrier").page(5, Some(&token)).unwrap_err();
    assert!(error.message().contains("another collection or view"), "{error:?}");
}
