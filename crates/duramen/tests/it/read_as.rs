//! Documents without types as types of serde and back: what is stored by type reads the same either way.

use std::collections::BTreeMap;

use duramen::Code;
use duramen::find::{Condition, Operator};
use duramen::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
#[key(by_number)]
#[serde(into = "u8", try_from = "u8")]
enum Status {
    Open = 1,
    Paid = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Key)]
#[key(by_name)]
#[serde(rename_all = "snake_case")]
enum Kind {
    TakeAway,
    EatHere,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Payment {
    Cash,
    Card { digits: String },
    Split(u32, u32),
    Voucher(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    price: f64,
    count: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
struct Order {
    #[key]
    id: u64,
    status: Status,
    kind: Option<Kind>,
    at: Time,
    lines: Vec<Line>,
    payment: Vec<Payment>,
    letter: char,
    by_size: BTreeMap<i32, Line>,
    pair: (i8, Option<String>),
    hash: duramen::ByteArray<4>,
}

fn order(id: u64) -> Order {
    Order {
        id,
        status: if id.is_multiple_of(2) { Status::Paid } else { Status::Open },
        kind: if id.is_multiple_of(3) { None } else { Some(Kind::TakeAway) },
        at: Time::from_seconds(-5) + std::time::Duration::from_nanos(id),
        lines: vec![Line { price: 1.5, count: 2 }, Line { price: 3.0, count: 1 }],
        payment: vec![
            Payment::Cash,
            Payment::Card { digits: "1234".into() },
            Payment::Split(1, 2),
            Payment::Voucher("x".into()),
        ],
        letter: 'ø',
        by_size: BTreeMap::from([(-3, Line { price: 0.0, count: 0 })]),
        pair: (-7, None),
        hash: [1, 2, 3, 4].into(),
    }
}

#[test]
fn a_document_reads_as_the_type_that_stored_it() {
    let db = Db::in_memory().unwrap();
    for id in 1..=6 {
        db.put(&order(id)).unwrap();
        let stored = db.documents("order").get(id).unwrap().unwrap();
        assert_eq!(stored.to::<Order>().unwrap(), order(id));
        assert_eq!(Document::from_serialize(&order(id)).unwrap(), stored);
        assert_eq!(stored.get("lines").unwrap().to::<Vec<Line>>().unwrap(), order(id).lines);
    }
    let schema = db.documents("order").schema().unwrap();
    let paid = Condition::new(&schema, "status", Operator::Equal, Status::Paid).unwrap();
    let away = Condition::new(&schema, "kind", Operator::Equal, Kind::TakeAway).unwrap();
    let orders = db.documents("order");
    let found = orders.find([paid, away]).iter().unwrap().map(|found| found.and_then(|found| found.to()));
    assert_eq!(found.collect::<Result<Vec<Order>>>().unwrap(), [order(2), order(4)]);
    assert_eq!(Value::from(Status::Paid), Value::Int(2));
    assert_eq!(Value::from(Some(Kind::EatHere)), Value::from("eat_here"));
}

#[test]
fn the_error_names_the_path() {
    let whole = Document::from_serialize(&order(1)).unwrap();
    let check = |document: Document, parts: &[&str]| {
        let error = document.to::<Order>().unwrap_err();
        assert_eq!(error.code(), Code::Unreadable);
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error:?}");
        assert!(!error.hint().is_empty());
    };
    let line = doc! { "price": 1.0, "count": "two" };
    let lines = vec![Value::from(doc! { "price": 1.0, "count": 2 }), Value::from(line)];
    check(whole.clone().with("lines", lines), &["lines[1].count", "Order", "\"two\"", "u16"]);
    check(whole.clone().with("id", -1), &["the field id ", "-1"]);
    check(whole.clone().with("status", 9), &["the field status ", "9 is no Status"]);
    check(whole.clone().with("payment", vec![Value::from("Gold")]), &["payment[0]", "Gold"]);
    let mut without = whole;
    without.remove("letter");
    check(without, &["missing field `letter`"]);
    let error = Document::from_serialize(&[1, 2, 3]).unwrap_err();
    assert!(error.code() == Code::InvalidArgument && error.hint().contains("struct"), "{error:?}");
}
