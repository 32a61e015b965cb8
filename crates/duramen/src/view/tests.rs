//! The bytes of views: they are in files, and must stay as they are (docs/format.md).
#![allow(clippy::unwrap_used)]

use duramen_engine::Reducer;

use super::mapped::row_keys;
use super::reducer::{Outcome, Part, Reductions};
use super::rows::rows;
use super::spec::{Coded, Reduce, ViewSpec};
use crate::doc;
use crate::document::{Document, Value};
use crate::error::Code;
use crate::schema::Schema;
use crate::tuple::encode;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec() -> ViewSpec {
    let reduce = [Reduce::Sum(0), Reduce::Min(0), Reduce::Max(1)];
    ViewSpec::new("sales", ["city", "tags"]).each().values(["cents", "note"]).reduce(reduce)
}

#[test]
fn rows_are_as_the_format_says() {
    let tags = Value::List(vec!["b".into(), "a".into(), "b".into(), Value::Null]);
    let document = doc! { "id": 7, "city": "Oslo", "tags": tags, "cents": -300 }.to_bytes().unwrap();
    let found = rows(&spec(), &[], &encode(&7).unwrap(), &document).unwrap();
    let found: Vec<String> =
        found.iter().map(|(row, value)| format!("{} {}", hex(row), hex(value))).collect();
    assert_eq!(found, ["024f736c6f000261001507 d1fed4c0", "024f736c6f000262001507 d1fed4c0"]);
}

#[test]
fn documents_without_a_key_field_have_no_row_and_maps_cannot_be_in_one() {
    let key = encode(&7).unwrap();
    for document in [doc! { "city": "Oslo" }, doc! { "tags": vec![Value::from("a")] }] {
        assert!(rows(&spec(), &[], &key, &document.to_bytes().unwrap()).unwrap().is_empty());
    }
    let map = doc! { "city": doc! { "name": "Oslo" }, "tags": "a" }.to_bytes().unwrap();
    assert_eq!(rows(&spec(), &[], &key, &map).unwrap_err().code(), Code::InvalidArgument);
    for garbage in [&b""[..], b"\xc0", b"\x81", b"\xdf\xff\xff\xff\xff", b"\x81\xa4city"] {
        assert!(rows(&spec(), &[], &key, garbage).is_err());
    }
}

fn one(reductions: &Reductions, cents: Value, note: Value) -> Vec<u8> {
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
    let alone = one(&reductions, Value::Int(300), Value::Null);
    assert_eq!(hex(&alone), "01d804010316012c00");
    let expected = [
        Part { seen: 1, outcome: Outcome::Sum(300) },
        Part { seen: 1, outcome: Outcome::Element(&[0x16, 0x01, 0x2c]) },
        Part { seen: 0, outcome: Outcome::Nothing },
    ];
    assert_eq!(reductions.decode(&alone).unwrap(), expected);
    for garbage in [&b"\xff"[..], b"\x01", b"\x01\x02\x00", b"\x00\x00\x00\x00"] {
        assert_eq!(reductions.decode(garbage).unwrap_err().code(), Code::DamagedData);
    }
}

// Where pages are split must not show: any grouping of the joins gives the same bytes.
#[test]
fn joining_is_associative_bit_for_bit() {
    let reductions = Reductions::of(&spec()).unwrap();
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
    let reductions = Reductions::of(&spec()).unwrap();
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
    for garbage in [&b"\xff"[..], b"\x02a", &one[..3]] {
        assert_eq!(row_keys(&spec, garbage, &key).unwrap_err().code(), Code::DamagedData);
    }
}
