//! JSON against another implementation, and the numbers that implementation would round.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{from_stored, parse, write_base64};
use crate::value::document::{Document, Value};
use crate::value::time::Time;

fn check(text: &str, expected: &Value) {
    assert_eq!(&parse(text).unwrap(), expected, "{text}");
}

#[test]
fn integers_are_exact_to_64_bits() {
    check("9007199254740993", &Value::Int(9_007_199_254_740_993));
    check("18446744073709551615", &Value::Int(u64::MAX.into()));
    check("-9223372036854775808", &Value::Int(i64::MIN.into()));
    for text in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        assert!(parse(text).unwrap_err().message().contains("64 bits"), "{text}");
    }
    let text = r#"{"id":9007199254740993,"big":18446744073709551615}"#;
    assert_eq!(Document::from_json(text).unwrap().to_json().unwrap(), text);
}

#[test]
fn floats_stay_floats() {
    check("1.0", &Value::Float(1.0));
    check("1e3", &Value::Float(1000.0));
    check("-0", &Value::Float(-0.0));
    let text = r#"{"a":1.0,"b":1e300,"c":0.1,"d":-0.0,"e":5e-324}"#;
    assert_eq!(Document::from_json(text).unwrap().to_json().unwrap(), text);
}

#[test]
fn what_json_cannot_say_is_text() {
    let document = Document::new()
        .with("bytes", vec![0_u8, 255, 16])
        .with("time", Time::new(0, 0).unwrap())
        .with("nan", f64::NAN)
        .with("inf", f64::NEG_INFINITY);
    let expected = r#"{"bytes":"AP8Q","time":"1970-01-01T00:00:00Z","nan":"NaN","inf":"-Infinity"}"#;
    assert_eq!(document.to_json().unwrap(), expected);
}

#[test]
fn base64_of_the_standard() {
    for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
        let mut out = Vec::new();
        write_base64(&mut out, bytes.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

#[test]
fn strings_with_everything() {
    check(r#""\u0041\n\"\\\/\b\f\r\t\ud83d\ude00é""#, &Value::Text("A\n\"\\/\u{8}\u{c}\r\t😀é".into()));
    let document = Document::new().with("a\"\u{0}\u{1f}\\", "😀\n");
    assert_eq!(document.to_json().unwrap(), r#"{"a\"\u0000\u001f\\":"😀\n"}"#);
}

#[test]
fn text_that_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "nul",
        "truee",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\n\"",
        "1 2",
        "NaN",
        "1e999",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1,\"a\":2}",
        "\u{feff}1",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(parse(&deep).is_err());
    assert!(parse(&format!("{}{}", "[".repeat(64), "]".repeat(64))).is_ok());
    assert!(parse(&format!("{}{}", "[".repeat(65), "]".repeat(65))).is_err());
}

fn as_theirs(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => {
            i64::try_from(*value).map_or_else(|_| u64::try_from(*value).unwrap().into(), Into::into)
        }
        Value::Float(value) => (*value).into(),
        Value::Text(value) => value.as_str().into(),
        Value::List(values) => values.iter().map(as_theirs).collect::<Vec<_>>().into(),
        Value::Map(document) => document
            .iter()
            .map(|(name, value)| (name.to_owned(), as_theirs(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Bytes(_) | Value::Time(_) => unreachable!("JSON has no such value"),
    }
}

fn json_like() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\"",
        "\"\\u00e9\"",
        "1",
        "-2.5",
        "1e3",
        "true",
        "null",
        " ",
        "0",
        "\\",
        "\"",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Readers that convert digits and exponent separately return a neighbour of the nearest float.
#[test]
fn a_number_reads_as_the_nearest_float() {
    let text = "-2.51e31";
    assert_eq!(as_theirs(&parse(text).unwrap()), serde_json::json!(-2.51e31));
    assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), serde_json::json!(-2.51e31));
}

proptest! {
    #[test]
    fn agrees_with_another_reader(text in json_like()) {
        match (parse(&text), serde_json::from_str::<serde_json::Value>(&text)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(as_theirs(&ours), theirs),
            (Err(_), Err(_)) => {}
            (Ok(ours), Err(error)) => prop_assert!(false, "{} read as {:?}, they say {}", text, ours, error),
            (Err(error), Ok(_)) => prop_assert!(error.message().contains("twice"), "{}: {}", text, error),
        }
    }

    #[test]
    fn foreign_bytes_are_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = from_stored(&bytes);
    }
}
