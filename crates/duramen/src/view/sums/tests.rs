//! A reducer that is not associative bit for bit would give answers that depend on page splits.
#![allow(clippy::unwrap_used)]

use crate::store::{Reducer, ReducerSpec};
use proptest::prelude::*;

use super::{FIELDS_MAX, FieldSum, Sums};
use crate::doc;
use crate::value::document::{Document, Value};

fn sums(fields: &[&str]) -> Sums {
    Sums::new(&fields.iter().map(|&field| field.to_owned()).collect::<Vec<_>>()).unwrap()
}

fn one(sums: &Sums, document: &Document) -> Vec<u8> {
    let mut out = Vec::new();
    sums.one(b"", &document.to_bytes().unwrap(), &mut out).unwrap();
    out
}

fn join(sums: &Sums, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    sums.join(left, right, &mut out);
    out
}

#[test]
fn absent_and_null_count_as_null() {
    let sums = sums(&["a", "b"]);
    let total = [
        doc! { "a": 5, "b": Value::Null },
        doc! { "b": -7 },
        doc! { "a": u64::MAX, "b": i64::MIN, "c": "x" },
    ]
    .iter()
    .map(|document| one(&sums, document))
    .reduce(|left, right| join(&sums, &left, &right))
    .unwrap();
    let expected = vec![
        FieldSum { sum: 5 + i128::from(u64::MAX), nulls: 1 },
        FieldSum { sum: -7 + i128::from(i64::MIN), nulls: 1 },
    ];
    assert_eq!(sums.decode(&total).unwrap(), expected);
    assert_eq!(sums.decode(b"").unwrap(), vec![FieldSum::default(); 2]);
}

#[test]
fn what_is_no_integer_is_refused_by_name() {
    let sums = sums(&["a"]);
    for (document, word) in [
        (doc! { "a": 1.5 }, "order of the additions"),
        (doc! { "a": "1" }, "text"),
        (doc! { "a": true }, "bool"),
        (doc! { "a": vec![Value::Null] }, "list"),
    ] {
        let error = sums.one(b"", &document.to_bytes().unwrap(), &mut Vec::new()).unwrap_err();
        assert!(error.contains("the field a") && error.contains(word), "{error}");
    }
    assert!(sums.one(b"", b"\x05", &mut Vec::new()).is_err());
}

/// These bytes exist on disk.
#[test]
fn golden_reductions() {
    let sums = sums(&["a", "b"]);
    assert_eq!(one(&sums, &doc! { "a": 0, "b": -1 }), [0, 0, 1, 0]);
    assert_eq!(one(&sums, &doc! { "a": 300, "x": 1 }), [0xd8, 0x04, 0, 0, 1]);
    let spec = sums.spec().unwrap();
    assert_eq!(
        (spec.name.as_str(), spec.version, spec.params.as_slice()),
        ("sums", 1, &b"\x92\xa1a\xa1b"[..])
    );
}

#[test]
fn a_spec_gives_back_its_reducer() {
    let sums = sums(&["dep_delay", "distance"]);
    let spec = sums.spec().unwrap();
    assert_eq!(Sums::from_spec(&spec), Some(sums));
    assert_eq!(Sums::from_spec(&ReducerSpec { version: 2, ..spec.clone() }), None);
    assert_eq!(
        Sums::from_spec(&ReducerSpec { params: vec![0xdd, 0xff, 0xff, 0xff, 0xff], ..spec.clone() }),
        None
    );
    assert_eq!(Sums::from_spec(&ReducerSpec { name: "other".into(), ..spec }), None);
}

#[test]
fn too_many_fields_and_repeated_ones_are_refused() {
    let names: Vec<String> = (0..=FIELDS_MAX).map(|i| format!("f{i}")).collect();
    assert!(Sums::new(&names).is_err());
    assert!(Sums::new(&names[1..]).is_ok());
    assert!(Sums::new(&["a".into(), "a".into()]).is_err());
}

#[test]
fn unreadable_reductions_stay_unreadable() {
    let sums = sums(&["a"]);
    let good = one(&sums, &doc! { "a": 1 });
    for bad in
        [&b"\xff"[..], b"\x00", b"\x00\x00\x00", &[0x80; 40], b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"]
    {
        let joined = join(&sums, &good, bad);
        assert!(sums.decode(&joined).is_err(), "{bad:x?}");
        assert_eq!(join(&sums, &joined, &good), joined);
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-200_i64..200).prop_map(Value::from)
    ]
}

proptest! {
    #[test]
    fn any_bracketing_gives_the_same_bytes(rows in prop::collection::vec((value(), value()), 1..20), cuts in prop::collection::vec(any::<prop::sample::Index>(), 20)) {
        let sums = sums(&["a", "b"]);
        let mut parts: Vec<Vec<u8>> = rows.iter().map(|(a, b)| one(&sums, &doc! { "a": a.clone(), "b": b.clone() })).collect();
        let from_left = parts.iter().cloned().reduce(|left, right| join(&sums, &left, &right)).unwrap();
        for cut in cuts {
            if parts.len() < 2 { break }
            let at = cut.index(parts.len() - 1);
            let right = parts.remove(at + 1);
            parts[at] = join(&sums, &parts[at], &right);
        }
        let bracketed = parts.into_iter().reduce(|left, right| join(&sums, &left, &right)).unwrap();
        prop_assert_eq!(&bracketed, &from_left);
        let exact: i128 = rows.iter().map(|(a, _)| if let Value::Int(a) = a { *a } else { 0 }).sum();
        prop_assert_eq!(sums.decode(&bracketed).unwrap()[0].sum, exact);
    }

    #[test]
    fn the_widest_sums_fit_in_a_node(seed in any::<[i128; FIELDS_MAX]>(), nulls in any::<u64>()) {
        let mut out = Vec::new();
        for sum in seed {
            super::append(&mut out, FieldSum { sum, nulls });
        }
        prop_assert!(out.len() <= crate::store::limits::REDUCTION_BYTES_MAX);
        let read = super::read(&out, FIELDS_MAX).unwrap();
        let expected: Vec<FieldSum> = seed.iter().map(|&sum| FieldSum { sum, nulls }).collect();
        prop_assert_eq!(read, expected);
    }
}
