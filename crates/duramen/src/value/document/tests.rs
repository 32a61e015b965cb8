//! Documents are read back as they were written.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Document, KEPT_BYTES, Value};
use crate::doc;
use crate::value::json;
use crate::value::msgpack::Reader;
use crate::value::time::Time;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::Float),
        ".{0,8}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..8).prop_map(Value::from),
        (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Value::Time(Time::new(s, n).unwrap())),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            prop::collection::btree_map(".{0,4}", inner, 0..5).prop_map(|fields| {
                Value::Map(
                    fields.into_iter().fold(Document::new(), |map, (name, value)| map.with(name, value)),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn bytes_round_trip(fields in prop::collection::btree_map(".{0,6}", value(), 0..8)) {
        let document = fields.into_iter().fold(Document::new(), |map, (name, value)| map.with(name, value));
        prop_assert_eq!(Document::from_bytes(&document.to_bytes().unwrap()).unwrap(), document);
    }

    #[test]
    fn json_is_what_others_call_json(fields in prop::collection::btree_map(".{0,6}", value(), 0..8)) {
        let document = fields.into_iter().fold(Document::new(), |map, (name, value)| map.with(name, value));
        let text = document.to_json().unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        let again = Document::from_json(&text).unwrap().to_json().unwrap();
        prop_assert_eq!(again, text);
    }
}

#[test]
fn fields_keep_their_place() {
    let mut document = doc! { "b": 1, "a": Value::Null };
    document.set("b", 2);
    document.set("c", Some("x"));
    assert_eq!(document.to_string(), r#"{"b":2,"a":null,"c":"x"}"#);
    assert_eq!(document.remove("a"), Some(Value::Null));
    assert_eq!(document.len(), 2);
    assert_eq!(document.get("c"), Some(&Value::Text("x".into())));
    assert_eq!(doc! {}, Document::new());
}

#[test]
fn stored_documents_with_a_name_twice_are_refused() {
    assert!(Document::from_bytes(&[0x82, 0xa1, b'a', 1, 0xa1, b'a', 2]).is_err());
    assert!(Document::from_bytes(&[0x80, 0]).is_err());
    assert!(Document::from_bytes(&[0x81, 1, 1]).is_err());
    assert!(Document::from_bytes(&[0x90]).is_err());
}

#[test]
fn nesting_is_bounded_both_ways() {
    let mut value = Value::Null;
    for _ in 0..70 {
        value = Value::List(vec![value]);
    }
    assert!(doc! { "deep": value }.to_bytes().is_err());
    let mut bytes = vec![0x81, 0xa1, b'x'];
    bytes.extend([0x91; 100_000]);
    bytes.push(0);
    assert!(Document::from_bytes(&bytes).is_err());
}

#[test]
fn integers_beyond_64_bits_are_refused() {
    assert!(doc! { "n": Value::Int(1 << 70) }.to_bytes().is_err());
}

#[test]
fn a_text_does_not_keep_the_memory_of_a_long_one() {
    let mut value = Value::Null;
    for text in ["x".repeat(1 << 20), "y".to_owned(), "a few more letters".to_owned()] {
        let stored = doc! { "t": text.clone() }.to_bytes().unwrap();
        let mut reader = Reader::new(&stored[3..]);
        value.read_again(&mut reader, 8).unwrap();
        assert!(reader.at_end());
        let Value::Text(read) = &value else { panic!("{value:?}") };
        assert!(*read == text && read.capacity() <= text.len().max(KEPT_BYTES) * 4, "{}", read.capacity());
    }
}

/// A bound that is too small lets a stranger fill the memory.
#[test]
fn the_bound_of_parts_is_never_too_small() {
    fn parts(value: &Value) -> usize {
        match value {
            Value::List(items) => 1 + items.iter().map(parts).sum::<usize>(),
            Value::Map(fields) => 1 + fields.iter().map(|(_, value)| 1 + parts(value)).sum::<usize>(),
            _ => 1,
        }
    }
    let texts = [
        "null",
        "[]",
        "{}",
        r#"{"a":1,"b":[1,2,[3,{}]],"c":{"d":"x,y:[{\"\\"}}"#,
        r#"["\\",",","\"",[[[]]]]"#,
    ];
    for text in texts {
        let value = json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(json::parts_of(text) >= parts(&value), "{text}");
        let stored = value.to_msgpack().expect("a value");
        assert_eq!(Value::parts_of_msgpack(&stored), parts(&value), "{text}");
        assert!(Value::parts_of_msgpack(&stored[..stored.len() - 1]) < parts(&value), "{text}");
    }
}
