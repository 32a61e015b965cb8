//! Shapes in memory, and the bytes of documents that name them.
#![allow(clippy::unwrap_used)]

use super::row::Row;
use super::*;
use crate::doc;
use crate::value::document::{Document, Value};
use crate::value::tuple::encode;

fn names(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn stored(shapes: &Shapes, collection: &str, sums: &[&str], document: &Document) -> Option<Vec<u8>> {
    let (last, sums) = (LastShape::default(), names(sums));
    let of = CollectionShapes { collection, sums: &sums, last: &last };
    let named = document.to_bytes().unwrap();
    let shaped = shapes.shaped(&of, &named).unwrap();
    shaped.map(|(_, stored)| stored)
}

fn named(shapes: &Shapes, stored: &[u8]) -> Document {
    let (shape, values) = shapes.split(stored).unwrap();
    let mut out = Vec::new();
    shape.layout().write_named(values, &mut out).unwrap();
    Document::from_bytes(&out).unwrap()
}

// The bytes are on disk.
#[test]
fn a_document_is_the_number_of_its_shape_and_its_values() {
    let shapes = Shapes::default();
    let first = doc! { "id": 1, "city": "Oslo" };
    assert_eq!(stored(&shapes, "a", &[], &first).unwrap(), b"\x00\x01\xa4Oslo");
    let other_order = doc! { "city": "Oslo", "id": 1 };
    assert_eq!(stored(&shapes, "a", &[], &other_order).unwrap(), b"\x01\xa4Oslo\x01");
    let null = doc! { "id": 1, "city": Value::Null };
    assert_eq!(stored(&shapes, "b", &[], &null).unwrap(), b"\x00\x01\xc0", "one shape for all collections");
    let absent = doc! { "id": 1 };
    assert_eq!(stored(&shapes, "b", &[], &absent).unwrap(), b"\x02\x01", "absent is not null");
}

// The reducer of sums knows no shapes: it reads the first values.
#[test]
fn summed_fields_are_the_first_values_and_the_document_is_shown_in_its_order() {
    let shapes = Shapes::default();
    let document = doc! { "id": 7, "b": 2, "c": "x", "a": 1 };
    let bytes = stored(&shapes, "a", &["a", "b"], &document).unwrap();
    assert_eq!(bytes, b"\x00\x01\x02\x07\xa1x");
    assert_eq!(named(&shapes, &bytes), document);
    let without = doc! { "id": 7, "a": 1 };
    assert_eq!(stored(&shapes, "a", &["a", "b"], &without), None, "it keeps its names");
}

// Rows of cells are values in the order of their layout.
#[test]
fn a_layout_gets_the_shape_that_has_its_order_or_none() {
    let (shapes, last) = (Shapes::default(), LastShape::default());
    let sums = names(&["b"]);
    let of = CollectionShapes { collection: "a", sums: &sums, last: &last };
    let layout = |shown: &[&str], sums: &[String]| Layout::of(shown, sums).unwrap();
    let summing = layout(&["a", "b"], &sums);
    let shape = shapes.of_layout(&of, &summing).unwrap().unwrap();
    assert_eq!((shape.layout().names(), shape.layout()), (&names(&["b", "a"])[..], &summing));
    assert!(
        shapes.of_layout(&of, &layout(&["a", "b"], &[])).unwrap().is_none(),
        "its values are in another order"
    );
    assert!(shapes.of_layout(&of, &layout(&[], &[])).unwrap().is_none());
    let many: Vec<String> = (0..=FIELDS_MAX).map(|at| format!("{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(["b"]).collect();
    assert!(shapes.of_layout(&of, &layout(&many, &sums)).unwrap().is_none());
}

#[test]
fn every_document_reads_back() {
    let shapes = Shapes::default();
    for count in [1_usize, 15, 16, 300] {
        let mut document = Document::new();
        (0..count).for_each(|at| document.set(format!("field {at}"), vec![Value::Int(at as i128)]));
        let bytes = stored(&shapes, "a", &[], &document).unwrap();
        assert_eq!(named(&shapes, &bytes), document);
    }
}

#[test]
fn beyond_its_shapes_a_collection_stores_names_and_others_do_not() {
    let shapes = Shapes::default();
    let of = |at: u32| Document::new().with(format!("f{at}"), 1);
    for at in 0..OF_A_COLLECTION_MAX {
        let bytes = stored(&shapes, "a", &[], &of(at)).unwrap();
        assert_eq!(named(&shapes, &bytes), of(at), "numbers of one, two and three bytes");
    }
    assert_eq!(stored(&shapes, "a", &[], &of(1000)), None);
    assert!(stored(&shapes, "a", &[], &of(3)).is_some(), "known ones go on");
    let bytes = stored(&shapes, "b", &[], &of(1000)).unwrap();
    assert_eq!(bytes, b"\xcc\xff\x01");
    assert!(stored(&shapes, "a", &[], &of(1000)).is_some(), "another collection has added it");
}

#[test]
fn documents_that_keep_their_names() {
    let shapes = Shapes::default();
    assert_eq!(stored(&shapes, "a", &[], &Document::new()), None);
    let long = Document::new().with("x".repeat(NAMES_BYTES_MAX + 1), 1);
    assert_eq!(stored(&shapes, "a", &[], &long), None);
    let mut wide = Document::new();
    (0..=FIELDS_MAX).for_each(|at| wide.push(format!("{at}"), Value::Null));
    assert_eq!(stored(&shapes, "a", &[], &wide), None);
    let last = LastShape::default();
    let of = CollectionShapes { collection: "a", sums: &[], last: &last };
    assert!(shapes.shaped(&of, b"\x92\x01\x02").unwrap().is_none(), "a positional one");
    let sums = names(&["a"]);
    for of in [of, CollectionShapes { collection: "b", sums: &sums, last: &last }] {
        for wrong in [&b"\x82\xa1a\x01\xa1a\x02"[..], b"\x82\xa1a\x01\x05\x02", b"\x82\xa1a\x01\xc3\x02"] {
            assert!(shapes.shaped(&of, wrong).unwrap().is_none(), "a name twice, or one that is no text");
        }
    }
}

// A writer of documents of several shapes finds each while others do, also when no more are added.
#[test]
fn shapes_that_alternate_are_found_together() {
    let shapes = Shapes::default();
    let last = LastShape::default();
    let of = CollectionShapes { collection: "a", sums: &[], last: &last };
    let document = |at: u32| Document::new().with(format!("f{at}"), 1);
    let put_all = || {
        for at in 0..OF_A_COLLECTION_MAX + 2000 {
            let shaped = shapes.shaped(&of, &document(at).to_bytes().unwrap()).unwrap();
            assert_eq!(shaped.is_some(), at < OF_A_COLLECTION_MAX, "{at}");
            if let Some((_, bytes)) = shaped {
                assert_eq!(named(&shapes, &bytes), document(at));
            }
        }
    };
    put_all();
    let _found_by_another = shapes.known();
    put_all();
}

#[test]
fn the_names_of_all_shapes_are_bounded() {
    let shapes = Shapes::default();
    let long = "x".repeat(NAMES_BYTES_MAX - 8);
    let bytes = NAMES_BYTES_MAX + NAME_OVERHEAD_BYTES;
    let row = |at: usize| Row {
        number: u32::try_from(at).unwrap(),
        layout: Layout::new(vec![format!("{long}{at:08}")], Vec::new()),
        collection: format!("c{}", at / 200),
    };
    let mut added = 0;
    for at in 0..2 * ALL_NAMES_BYTES_MAX / bytes {
        let document = Document::new().with(row(at).layout.names()[0].as_str(), 1);
        added += usize::from(stored(&shapes, &row(at).collection, &[], &document).is_some());
    }
    assert_eq!(added, ALL_NAMES_BYTES_MAX / bytes);
    let hostile = Shapes::default();
    let taken = (0..added + 5).filter(|at| {
        let row = row(*at);
        hostile.take(&encode(&u64::from(row.number)).unwrap(), &row.stored().unwrap()).is_ok()
    });
    assert_eq!(taken.count(), added);
}

// The number of a shape that is lost must not come to mean another.
#[test]
fn after_a_missing_shape_none_is_added() {
    let shapes = Shapes::default();
    assert!(stored(&shapes, "a", &[], &doc! { "x": 1 }).is_some());
    assert_eq!(shapes.split(b"\x01\x05").unwrap_err().code(), Code::CorruptData);
    assert_eq!(stored(&shapes, "a", &[], &doc! { "y": 1 }), None);
    assert!(stored(&shapes, "a", &[], &doc! { "x": 2 }).is_some());
}

// Both collections put the same bytes, so that their transactions do not conflict.
#[test]
fn a_row_has_the_collection_that_added_the_shape() {
    let shapes = Shapes::default();
    let document = doc! { "id": 1 }.to_bytes().unwrap();
    let last = [LastShape::default(), LastShape::default()];
    let of = |collection, at: usize| CollectionShapes { collection, sums: &[], last: &last[at] };
    let first = shapes.shaped(&of("a", 0), &document).unwrap().unwrap().0;
    let second = shapes.shaped(&of("b", 1), &document).unwrap().unwrap().0;
    assert!(std::ptr::eq(first, second));
    assert_eq!(Row::read(&encode(&0_u64).unwrap(), &first.stored).unwrap().collection, "a");
}

#[test]
fn a_row_reads_back_and_a_wrong_one_is_refused() {
    let row = Row {
        number: 300,
        layout: Layout::new(names(&["a", "b"]), vec![1, 0]),
        collection: "orders".to_owned(),
    };
    let (key, bytes) = (encode(&300_u64).unwrap(), row.stored().unwrap());
    let shapes = Shapes::default();
    shapes.take(&key, &bytes).unwrap();
    shapes.take(&key, &bytes).unwrap();
    assert_eq!(shapes.of(300).unwrap().layout(), &row.layout);
    assert_eq!(stored(&shapes, "orders", &["a"], &doc! { "b": 1, "a": 2 }).unwrap()[..3], [0xcd, 1, 44]);
    let other = Row { layout: Layout::new(names(&["a", "c"]), vec![1, 0]), ..row };
    for (key, bytes) in [
        (key.clone(), other.stored().unwrap()),
        (encode("x").unwrap(), bytes.clone()),
        (encode(&-1_i64).unwrap(), bytes.clone()),
        (encode(&65_536_u64).unwrap(), bytes.clone()),
        (encode(&(1_u64, 2_u64)).unwrap(), bytes.clone()),
        (encode(&1_u64).unwrap(), bytes[..bytes.len() - 1].to_vec()),
    ] {
        assert_eq!(shapes.take(&key, &bytes).unwrap_err().code(), Code::CorruptData);
    }
    let row = |text: &str| Document::from_json(text).unwrap().to_bytes().unwrap();
    let later = row(r#"{"v":2,"names":["a"],"collection":"x"}"#);
    assert_eq!(shapes.take(&encode(&1_u64).unwrap(), &later).unwrap_err().code(), Code::Unsupported);
    for text in [
        r#"{"v":0,"names":["a"],"collection":"x"}"#,
        r#"{"names":["a"],"collection":"x"}"#,
        r#"{"v":1,"names":[],"collection":"x"}"#,
        r#"{"v":1,"names":["a","a"],"collection":"x"}"#,
        r#"{"v":1,"names":["a",1],"collection":"x"}"#,
        r#"{"v":1,"names":["a"]}"#,
        r#"{"v":1,"names":["a","b"],"shown":[0],"collection":"x"}"#,
        r#"{"v":1,"names":["a","b"],"shown":[0,0],"collection":"x"}"#,
        r#"{"v":1,"names":["a","b"],"shown":[0,2],"collection":"x"}"#,
    ] {
        assert!(Row::read(&encode(&1_u64).unwrap(), &row(text)).is_err(), "{text}");
    }
}

#[test]
fn a_shape_that_is_not_there_is_corruption() {
    let shapes = Shapes::default();
    for document in [&b"\x05\x01"[..], b"\xcd\xff\xff\x01", b"\xce\xff\xff\xff\xff\x01"] {
        assert_eq!(shapes.split(document).unwrap_err().code(), Code::CorruptData);
    }
    assert!(shapes.split(b"\xcc").is_err());
}
