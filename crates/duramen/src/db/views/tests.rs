//! Pinned bytes of views: they are on disk and must not change (docs/format.md).
#![allow(clippy::unwrap_used)]

mod cost;

use crate::store::Reducer;

use crate::access::views::mapped::row_keys;
use crate::catalog::rows::rows;
use crate::catalog::schema::Schema;
use crate::doc;
use crate::store::error::Code;
use crate::value::document::{Document, Value};
use crate::value::tuple::encode;
use crate::view::kinds::Reduce;
use crate::view::monoid::Codes;
use crate::view::reducer::{Outcome, Part, Reductions, ViewReducer};
use crate::view::spec::{Coded, ViewSpec};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value as JSON.
fn text(value: &Value) -> String {
    let text = crate::value::json::from_stored(&doc! { "v": value.clone() }.to_bytes().unwrap()).unwrap();
    text[5..text.len() - 1].to_owned()
}

fn schema() -> Schema {
    Schema::new("orders").key(["id"])
}

fn spec() -> ViewSpec {
    let reduce = [Reduce::Sum(0), Reduce::Min(0), Reduce::Max(1)];
    ViewSpec::new("sales", ["city", "tags"]).each().values(["cents", "note"]).reduce(reduce)
}

#[test]
fn rows_are_as_the_format_says() {
    let tags = Value::List(vec!["b".into(), "a".into(), "b".into(), Value::Null]);
    let document = doc! { "id": 7, "city": "Oslo", "tags": tags, "cents": -300 }.to_bytes().unwrap();
    let found = rows(&spec(), &schema(), &encode(&7).unwrap(), &document).unwrap();
    let found: Vec<String> =
        found.iter().map(|(row, value)| format!("{} {}", hex(row), hex(value))).collect();
    assert_eq!(found, ["024f736c6f000261001507 d1fed4c0", "024f736c6f000262001507 d1fed4c0"]);
}

#[test]
fn documents_without_a_key_field_have_no_row_and_maps_cannot_be_in_one() {
    let key = encode(&7).unwrap();
    for document in [doc! { "city": "Oslo" }, doc! { "tags": vec![Value::from("a")] }] {
        assert!(rows(&spec(), &schema(), &key, &document.to_bytes().unwrap()).unwrap().is_empty());
    }
    let map = doc! { "city": doc! { "name": "Oslo" }, "tags": "a" }.to_bytes().unwrap();
    assert_eq!(rows(&spec(), &schema(), &key, &map).unwrap_err().code(), Code::InvalidArgument);
    for garbage in [&b""[..], b"\xc0", b"\x81", b"\xdf\xff\xff\xff\xff", b"\x81\xa4city"] {
        assert!(rows(&spec(), &schema(), &key, garbage).is_err());
    }
}

fn reducer(spec: &ViewSpec) -> ViewReducer {
    Reductions::of(spec).unwrap().reducer(&Codes::default()).unwrap()
}

fn one(reductions: &ViewReducer, cents: Value, note: Value) -> Vec<u8> {
    let mut row = Vec::new();
    cents.write(&mut row, 8).unwrap();
    note.write(&mut row, 8).unwrap();
    let mut out = Vec::new();
    reductions.one(b"", &row, &mut out).unwrap();
    out
}

#[test]
fn reductions_are_as_the_format_says() {
    let reductions = Reductions::of(&spec()).unwrap();
    assert_eq!(hex(&reductions.spec().unwrap().params), "93000001000201");
    assert_eq!(Reductions::from_spec(&reductions.spec().unwrap()), Some(reductions.clone()));
    let reducer = reductions.reducer(&Codes::default()).unwrap();
    let alone = one(&reducer, Value::Int(300), Value::Null);
    assert_eq!(hex(&alone), "01d804010316012c00");
    let expected = [
        Part { seen: 1, outcome: Outcome::Sum(300) },
        Part { seen: 1, outcome: Outcome::Bytes(&[0x16, 0x01, 0x2c]) },
        Part { seen: 0, outcome: Outcome::Nothing },
    ];
    assert_eq!(reductions.decode(&alone).unwrap(), expected);
    for garbage in [&b"\xff"[..], b"\x01", b"\x01\x02\x00", b"\x00\x00\x00\x00"] {
        assert_eq!(reductions.decode(garbage).unwrap_err().code(), Code::CorruptData);
    }
}

// Page splits must not matter: any grouping of the joins gives the same bytes.
#[test]
fn joining_is_associative_bit_for_bit() {
    let reductions = reducer(&spec());
    let join = |left: &[u8], right: &[u8]| {
        let mut out = Vec::new();
        reductions.join(left, right, &mut out);
        out
    };
    let values =
        [Value::Null, Value::Int(-5), Value::Int(i128::from(u64::MAX)), Value::Int(i128::from(i64::MIN))];
    let notes = [Value::Null, Value::from("b"), Value::from("a"), Value::Bool(true)];
    let ones: Vec<Vec<u8>> = values
        .iter()
        .flat_map(|value| notes.iter().map(|note| one(&reductions, value.clone(), note.clone())))
        .chain([vec![0xff]])
        .collect();
    for a in &ones {
        for b in &ones {
            for c in &ones {
                assert_eq!(join(&join(a, b), c), join(a, &join(b, c)));
            }
        }
    }
}

#[test]
fn a_value_that_has_no_reduction_is_refused() {
    let reductions = reducer(&spec());
    let refused = |cents: Value, note: Value| {
        let mut row = Vec::new();
        cents.write(&mut row, 8).unwrap();
        note.write(&mut row, 8).unwrap();
        reductions.one(b"", &row, &mut Vec::new()).unwrap_err()
    };
    assert!(refused(Value::Float(1.0), Value::Null).contains("only integers"));
    assert!(refused(Value::Int(1), Value::from("x".repeat(50))).contains("up to 40 bytes"));
    assert!(reductions.one(b"", b"\xc0", &mut Vec::new()).is_err());
}

#[test]
fn views_in_code_are_stored_as_the_format_says() {
    let shape = Coded { version: 3, elements: 2, values: 1 };
    let spec = ViewSpec::coded("by_word", shape, vec![Reduce::Sum(0)], false);
    let Value::Map(stored) = spec.to_value() else { panic!("a view is a map") };
    assert_eq!(stored.get("coded"), Some(&Value::List(vec![3.into(), 2.into(), 1.into()])));
    assert_eq!(stored.get("key"), Some(&Value::List(Vec::new())));
    assert_eq!(ViewSpec::from_value(&Value::Map(stored.clone())), Some(spec.clone()));
    for broken in [Value::Null, Value::List(vec![1.into(), 0.into(), 1.into()]), Value::List(vec![1.into()])]
    {
        assert_eq!(ViewSpec::from_value(&Value::Map(stored.clone().with("coded", broken))), None);
    }
    let rows = "duramen/view/notes\u{1}by_word\u{1}0";
    let names = [rows.to_owned(), format!("{rows}\u{1}mapped"), format!("{rows}\u{1}unmapped")];
    assert_eq!(spec.tree_names("notes"), names);
    let entry = Schema::new("notes").key(["id"]).view(spec.clone()).to_bytes().unwrap();
    assert_eq!(Document::from_bytes(&entry).unwrap().get("v"), Some(&Value::from(4)));

    let (key, one, other) = (encode(&7).unwrap(), encode(&("a", 1)).unwrap(), encode(&("b", 2)).unwrap());
    let mapped = [&one[..], &other].concat();
    assert_eq!(hex(&mapped), "02610015010262001502");
    let found = row_keys(&spec, &mapped, &key).unwrap();
    assert_eq!(found, [[&one[..], &key].concat(), [&other[..], &key].concat()]);
    assert!(row_keys(&spec, b"", &key).unwrap().is_empty());
    for garbage in [&b"\xff"[..], b"\x02a", &one[..3], b"\x02\xff\x00\x15\x01"] {
        assert_eq!(row_keys(&spec, garbage, &key).unwrap_err().code(), Code::CorruptData);
    }
}

// Every kind is stored, in the catalogue entry and in the parameters of the tree's reducer.
#[test]
fn every_kind_of_reduction_has_its_stored_forms() {
    let code = Reduce::Code { value: 1, name: "mine".to_owned(), version: 7, bytes_max: 64 };
    let kinds = [
        (Reduce::Sum(0), r#"["sum",0]"#, "910000"),
        (Reduce::Min(1), r#"["min",1]"#, "910101"),
        (Reduce::Max(1), r#"["max",1]"#, "910201"),
        (Reduce::TopK(0, 5), r#"["top",0,5]"#, "91030005"),
        (Reduce::BottomK(0, 32), r#"["bottom",0,32]"#, "91040020"),
        (Reduce::Distinct(1), r#"["distinct",1]"#, "910501"),
        (Reduce::Quantiles(0), r#"["quantiles",0]"#, "910600"),
        (code, r#"["code",1,"mine",7,64]"#, "910701a46d696e650740"),
    ];
    for (kind, entry, params) in kinds {
        assert_eq!(text(&kind.to_value()), entry);
        assert_eq!(Reduce::from_value(&kind.to_value()), Some(kind.clone()));
        let of = ViewSpec::new("v", ["a"]).values(["b", "c"]).reduce([kind]);
        let reductions = Reductions::of(&of).unwrap();
        assert_eq!(hex(&reductions.spec().unwrap().params), params);
        assert_eq!(Reductions::from_spec(&reductions.spec().unwrap()), Some(reductions));
        assert_eq!(ViewSpec::from_value(&of.to_value()), Some(of));
    }
}

#[test]
fn a_view_that_could_outgrow_its_nodes_is_refused() {
    let view = |reduce: &[Reduce]| ViewSpec::new("v", ["a"]).values(["b"]).reduce(reduce.iter().cloned());
    let refused = |reduce: &[Reduce], words: &str| {
        let error = view(reduce).validate().unwrap_err();
        assert!(error.message().contains(words), "{error}");
    };
    assert!(view(&[Reduce::Quantiles(0), Reduce::Distinct(0), Reduce::TopK(0, 32)]).validate().is_ok());
    refused(
        &[Reduce::Quantiles(0), Reduce::Quantiles(0), Reduce::Distinct(0), Reduce::TopK(0, 32)],
        "declare another view",
    );
    refused(&[Reduce::TopK(0, 33)], "1 to 32");
    refused(&[Reduce::BottomK(0, 0)], "1 to 32");
    refused(&[Reduce::Code { value: 0, name: String::new(), version: 1, bytes_max: 1 }], "name");
    refused(&[Reduce::Code { value: 0, name: "x".to_owned(), version: 1, bytes_max: 9999 }], "1 to 2048");
}

// Sketches beside numbers, through every kind of join: entry by entry in memory, and stored part by stored
// part.
#[test]
fn a_running_join_is_the_join_of_its_parts() {
    let reduce =
        [Reduce::Sum(0), Reduce::TopK(1, 2), Reduce::Distinct(1), Reduce::Quantiles(0), Reduce::Min(1)];
    let spec = ViewSpec::new("v", ["a"]).values(["b", "c"]).reduce(reduce);
    let reducer = reducer(&spec);
    let mut running = reducer.running().unwrap();
    let mut joined = Vec::new();
    for number in 0..200 {
        let value = if number % 7 == 0 { Value::Null } else { Value::Int(number * number - 5000) };
        let text = if number % 5 == 0 { Value::Null } else { Value::from(format!("t{}", number % 40)) };
        let mut row = Vec::new();
        value.write(&mut row, 8).unwrap();
        text.write(&mut row, 8).unwrap();
        running.entry(b"", &row).unwrap();
        let one = one(&reducer, value, text);
        let mut next = Vec::new();
        if joined.is_empty() {
            next = one;
        } else {
            reducer.join(&joined, &one, &mut next);
        }
        joined = next;
    }
    let mut out = Vec::new();
    running.finish(&mut out);
    assert_eq!(hex(&out), hex(&joined));
    let parts = Reductions::of(&spec).unwrap();
    let shown: Vec<String> = spec
        .reductions()
        .iter()
        .zip(parts.decode(&out).unwrap())
        .map(|(reduce, part)| text(&reduce.shown(&part.outcome).unwrap()))
        .collect();
    assert_eq!(shown[1], r#"["t9","t9"]"#);
    assert_eq!(shown[2], "32");
    assert!(shown[3].starts_with(r#"{"min":-50"#) && shown[3].contains("relative_error"), "{}", shown[3]);
    assert_eq!(shown[4], r#""t1""#);
    // An unreadable value stays unreadable and does not panic.
    let mut unreadable = Vec::new();
    reducer.join(&out, b"\x01\x00", &mut unreadable);
    assert_eq!(unreadable, [0xff]);
}
