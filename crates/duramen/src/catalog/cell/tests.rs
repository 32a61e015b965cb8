//! The grammar of cells, and rows against the slow path over documents.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Misfit, RowEncoder, fits, infer, widen};
use crate::catalog::schema::{ColumnType, Schema};
use crate::value::document::{Document, Value};

#[test]
fn the_grammar_of_cells() {
    for text in ["0", "1", "-1", "1545", "9223372036854775807", "-9223372036854775808"] {
        assert_eq!(infer(text.as_bytes()), ColumnType::Int, "{text}");
    }
    // Integers beyond `i64`, as an export writes them, are read back as integers.
    for text in ["9223372036854775808", "18446744073709551615"] {
        assert_eq!(infer(text.as_bytes()), ColumnType::Int, "{text}");
    }
    for text in ["0.0", "-0.5", "1e5", "1E-7", "12.75e+3", "1e308"] {
        assert_eq!(infer(text.as_bytes()), ColumnType::Float, "{text}");
    }
    for text in [
        "",
        "-",
        "+1",
        "01",
        "-0",
        "00",
        "1.",
        ".5",
        "1e",
        "1e999",
        "nan",
        "NaN",
        "inf",
        "0x10",
        "1_000",
        " 1",
        "1 ",
        "--1",
        "18446744073709551616",
        "100000000000000000000",
        "-9223372036854775809",
        "2013-01-01T10:00:00Z",
        "true",
        "1.5.2",
        "01.5",
        "1e5x",
        "١",
    ] {
        assert_eq!(infer(text.as_bytes()), ColumnType::Text, "{text}");
    }
    assert_eq!(infer(b"\xff\xfe"), ColumnType::Text);
}

#[test]
fn integers_widen_to_floats_and_all_to_text() {
    use ColumnType::{Float, Int, Text, Unknown};
    for (a, b, wide) in [
        (Unknown, Int, Int),
        (Int, Float, Float),
        (Float, Int, Float),
        (Int, Text, Text),
        (Text, Float, Text),
        (Int, Int, Int),
    ] {
        assert_eq!(widen(a, b), wide);
    }
}

fn encoder(kinds: &[ColumnType]) -> RowEncoder {
    let names: Vec<String> = (0..kinds.len()).map(|i| format!("c{i}")).collect();
    let mut schema = Schema::new("t").key([names[0].clone()]);
    for (name, &kind) in names.iter().zip(kinds) {
        schema = schema.column(name.clone(), kind);
    }
    RowEncoder::new(&schema, &names, &["NA".to_owned()]).unwrap()
}

fn row(kinds: &[ColumnType], cells: &[&[u8]]) -> Result<Document, super::BadCell> {
    let (mut key, mut values) = (Vec::new(), Vec::new());
    let encoder = encoder(kinds);
    encoder.encode(|i| cells[i], &mut key, &mut values)?;
    let document = encoder.layout().document(&values).unwrap();
    let expected = document.get("c0").unwrap().to_element().unwrap();
    assert_eq!(crate::value::tuple::decode(&key).unwrap(), [expected]);
    Ok(document)
}

#[test]
fn a_row_becomes_key_and_document() {
    use ColumnType::{Bool, Float, Int, Text, Time};
    let cells: [&[u8]; 6] = [b"7", b"2", "Zürich\0".as_bytes(), b"true", b"1970-01-01T00:00:01Z", b"NA"];
    let document = row(&[Int, Float, Text, Bool, Time, Int], &cells).unwrap();
    let expected = r#"{"c0":7,"c1":2.0,"c2":"Zürich\u0000","c3":true,"c4":"1970-01-01T00:00:01Z","c5":null}"#;
    assert_eq!(document.to_string(), expected);
}

#[test]
fn a_cell_that_does_not_fit_is_named() {
    use ColumnType::{Bool, Float, Int, Text, Time, Unknown};
    for (kind, text, word) in [
        (Int, &b"x"[..], "\"x\", which is not an integer"),
        (Unknown, b"x", "\"x\", which is not null"),
        (Int, b"1.5", "not an integer"),
        (Float, b"9007199254740993", "not a decimal number"),
        (Float, b"nan", "not a decimal number"),
        (Bool, b"yes", "not true or false"),
        (Time, b"2013-01-32", "not a time"),
        (Time, b"01/02/2013", "or a date such as 2013-01-01"),
        (Float, b"18446744073709551615", "not a decimal number"),
        (Text, b"\xff", "not UTF-8"),
        (Int, &[b'9'; 500], "999...\", which"),
    ] {
        let bad = row(&[Int, kind], &[b"1", text]).unwrap_err();
        assert_eq!((bad.index, bad.column.as_str(), bad.wanted), (1, "c1", kind));
        assert!(bad.problem.contains(word), "{}", bad.problem);
    }
    assert!(row(&[Int, Unknown], &[b"1", b"NA"]).is_ok());
    let check = |kind, text: &[u8], why: Misfit, words: &str| {
        let bad = row(&[kind], &[text]).unwrap_err();
        assert_eq!(bad.why, why);
        assert!(bad.problem.contains(words), "{}", bad.problem);
    };
    check(Int, b"NA", Misfit::NullInKey, "part of the key");
    check(Text, &[b'x'; 2000], Misfit::KeyTooLong, "too long");
    check(Text, b"\xff", Misfit::NotUtf8, "not UTF-8");
    check(Int, b"x", Misfit::OtherType, "not an integer");
}

#[test]
fn integers_beyond_i64_fit() {
    let document = row(&[ColumnType::Int], &[b"18446744073709551615"]).unwrap();
    assert_eq!(document.get("c0"), Some(&Value::Int(u64::MAX.into())));
    assert!(row(&[ColumnType::Int], &[b"18446744073709551616"]).is_err());
    assert!(row(&[ColumnType::Int], &[b"018446744073709551615"]).is_err());
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let schema = Schema::new("t").key(["id"]).sum(["n"]);
    for (header, word) in [
        (names(&["id"]), "no column n"),
        (names(&["n"]), "no column id"),
        (names(&["id", "n", "id"]), "twice"),
    ] {
        let error = RowEncoder::new(&schema, &header, &[]).unwrap_err();
        assert!(error.message().contains(word), "{error}");
    }
}

proptest! {
    #[test]
    fn what_is_inferred_fits(cell in "-?[0-9]{0,21}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,4})?|\\PC{0,5}") {
        let kind = infer(cell.as_bytes());
        prop_assert!(fits(kind, cell.as_bytes()));
        prop_assert!(row(&[ColumnType::Int, kind], &[b"1", cell.as_bytes()]).is_ok());
        if kind == ColumnType::Int {
            prop_assert_eq!(cell.parse::<i128>().unwrap().to_string(), cell);
        }
    }

    #[test]
    fn any_bytes_are_survived(cell in prop::collection::vec(any::<u8>(), 0..30)) {
        for kind in ColumnType::NAMED {
            let _ = row(&[ColumnType::Int, kind], &[b"1", &cell]);
        }
    }
}
