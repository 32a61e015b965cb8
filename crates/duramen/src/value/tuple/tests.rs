//! The key encoding is the file format: its bytes are pinned, its order and its canonicity are properties.
#![allow(clippy::unwrap_used)]

use std::cmp::{Ordering, Reverse};

use proptest::prelude::*;

use super::{Element, Key, decode, encode, prefix_end, successor};
use crate::store::error::Code;
use crate::value::time::Time;

fn element() -> impl Strategy<Value = Element> {
    let floats = prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -f64::NAN,
            f64::MIN_POSITIVE
        ]),
    ];
    let edges: Vec<i128> = (0..=64_u32)
        .flat_map(|bit| [(1_i128 << bit) - 1, -(1_i128 << bit.min(63)), (1_i128 << bit.min(63)) + 1])
        .collect();
    let ints = prop_oneof![
        any::<i64>().prop_map(i128::from),
        any::<u64>().prop_map(i128::from),
        (-3_i128..3),
        prop::sample::select(edges),
    ];
    let time =
        (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Element::Time(Time::new(s, n).unwrap()));
    let leaf = prop_oneof![
        Just(Element::Null),
        prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()], 0..6)
            .prop_map(Element::Bytes),
        "[\u{0}\u{1}ab\u{ff}\u{10ffff}]{0,5}".prop_map(Element::Text),
        ints.prop_map(Element::Int),
        floats.prop_map(Element::Float),
        any::<bool>().prop_map(Element::Bool),
        any::<[u8; 16]>().prop_map(Element::Uuid),
        time,
    ];
    leaf.prop_recursive(3, 12, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Element::Tuple))
}

fn tuple() -> impl Strategy<Value = Vec<Element>> {
    prop::collection::vec((element(), any::<bool>()).prop_map(|(element, down)| element.directed(down)), 0..5)
}

/// Tuples of up to four values without directions, and a direction for each place.
fn pair_and_directions() -> impl Strategy<Value = (Vec<Element>, Vec<Element>, Vec<bool>)> {
    let values = || prop::collection::vec(element(), 0..5);
    (values(), values(), 0..5_usize, prop::collection::vec(any::<bool>(), 4)).prop_map(
        |(a, mut b, shared, directions)| {
            let shared = shared.min(a.len()).min(b.len());
            b[..shared].clone_from_slice(&a[..shared]);
            (a, b, directions)
        },
    )
}

/// The order of two tuples by values and directions, written without the encoding.
fn by_values(a: &[Element], b: &[Element], directions: &[bool]) -> Ordering {
    let unequal =
        a.iter().zip(b).zip(directions).map(|((a, b), down)| if *down { b.cmp(a) } else { a.cmp(b) });
    unequal.into_iter().find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
}

proptest! {
    #[test]
    fn bytes_compare_as_the_tuples_do(a in tuple(), b in tuple()) {
        prop_assert_eq!(encode(&a).unwrap().cmp(&encode(&b).unwrap()), a.cmp(&b));
    }

    #[test]
    fn each_element_has_its_own_direction((a, b, directions) in pair_and_directions()) {
        let directed = |values: &[Element]| -> Vec<Element> {
            values.iter().zip(&directions).map(|(value, down)| value.clone().directed(*down)).collect()
        };
        let (left, right) = (encode(&directed(&a)).unwrap(), encode(&directed(&b)).unwrap());
        prop_assert_eq!(left.cmp(&right), by_values(&a, &b, &directions));
        prop_assert_eq!(decode(&left).unwrap(), directed(&a));
        prop_assert_eq!(super::directed(&left, |_| false).unwrap(), encode(&a).unwrap());
        prop_assert_eq!(super::directed(&encode(&a).unwrap(), |at| directions[at]).unwrap(), left);
    }

    #[test]
    fn neighbours_compare_as_the_tuples_do(shared in tuple(), a in element(), b in element(), tail in tuple()) {
        let mut left = shared.clone();
        left.push(a);
        left.extend(tail);
        let mut right = shared;
        right.push(b);
        prop_assert_eq!(encode(&left).unwrap().cmp(&encode(&right).unwrap()), left.cmp(&right));
    }

    #[test]
    fn decoding_gives_back_what_was_encoded(tuple in tuple()) {
        prop_assert_eq!(decode(&encode(&tuple).unwrap()).unwrap(), tuple);
    }

    #[test]
    fn accepted_bytes_are_canonical(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), 0_u8..0x42, 0xbd_u8.., any::<u8>()], 0..24)) {
        if let Ok(elements) = decode(&bytes) {
            prop_assert_eq!(encode(&elements).unwrap(), bytes);
        }
    }

    #[test]
    fn corrupt_keys_decode_or_fail_cleanly(tuple in tuple(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = encode(&tuple).unwrap();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(elements) = decode(&bytes) {
                prop_assert_eq!(encode(&elements).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn leading_elements_are_a_prefix_of_the_bytes(tuple in tuple(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(tuple.len() + 1);
        let whole = encode(&tuple).unwrap();
        let head = encode(&tuple[..cut]).unwrap();
        prop_assert!(whole.starts_with(&head));
    }

    #[test]
    fn a_prefix_range_holds_exactly_the_tuples_that_begin_so(prefix in tuple(), other in tuple()) {
        let from = encode(&prefix).unwrap();
        let key = encode(&other).unwrap();
        let inside = from <= key && key < prefix_end(&from);
        prop_assert_eq!(inside, other.starts_with(&prefix));
    }

    #[test]
    fn nothing_lies_between_a_key_and_its_successor(a in tuple(), b in tuple()) {
        let (a, b) = (encode(&a).unwrap(), encode(&b).unwrap());
        prop_assert!(a < successor(&a));
        prop_assert!(b <= a || b >= successor(&a));
    }

    #[test]
    fn another_implementation_writes_the_same_bytes(number in any::<i64>(), unsigned in any::<u64>(), float in any::<f64>(), text in "\\PC{0,8}\u{0}?\\PC{0,3}", bytes in prop::collection::vec(0_u8..3, 0..6), flag in any::<bool>()) {
        let theirs = foundationdb_tuple::pack(&(number, unsigned, float, text.as_str(), foundationdb_tuple::Bytes::from(bytes.as_slice()), flag, (text.as_str(), Option::<i64>::None, number)));
        let nested = Element::Tuple(vec![Element::Text(text.clone()), Element::Null, Element::Int(i128::from(number))]);
        let ours = encode(&(number, unsigned, float, text.as_str(), bytes.as_slice(), flag, nested)).unwrap();
        prop_assert_eq!(ours, theirs);
    }
}

fn golden(key: &(impl Key + ?Sized), hex: &str) {
    let bytes = encode(key).unwrap();
    let shown: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown.join(" "), hex);
    assert_eq!(encode(&decode(&bytes).unwrap()).unwrap(), bytes);
}

/// These bytes exist on disk: a change here is a change of format.
#[test]
fn golden_vectors() {
    golden(&(), "");
    golden(&Element::Null, "00");
    golden(&b"a\0b".as_slice(), "01 61 00 ff 62 00");
    golden("", "02 00");
    golden("UA", "02 55 41 00");
    golden("\0", "02 00 ff 00");
    golden("é€😀", "02 c3 a9 e2 82 ac f0 9f 98 80 00");
    golden(&Element::Tuple(vec![]), "05 00");
    golden(
        &Element::Tuple(vec![Element::Null, Element::Int(1), Element::Tuple(vec![])]),
        "05 00 ff 15 01 05 00 00",
    );
    golden(&0, "14");
    golden(&1, "15 01");
    golden(&255, "15 ff");
    golden(&256, "16 01 00");
    golden(&1545, "16 06 09");
    golden(&(1_u64 << 63), "1c 80 00 00 00 00 00 00 00");
    golden(&u64::MAX, "1c ff ff ff ff ff ff ff ff");
    golden(&i64::MAX, "1c 7f ff ff ff ff ff ff ff");
    golden(&-1, "13 fe");
    golden(&-255, "13 00");
    golden(&-256, "12 fe ff");
    golden(&i64::MIN, "0c 7f ff ff ff ff ff ff ff");
    golden(&0.0, "21 80 00 00 00 00 00 00 00");
    golden(&-0.0, "21 7f ff ff ff ff ff ff ff");
    golden(&1.5, "21 bf f8 00 00 00 00 00 00");
    golden(&f64::NEG_INFINITY, "21 00 0f ff ff ff ff ff ff");
    golden(&false, "26");
    golden(&true, "27");
    golden(&Element::Uuid([0xab; 16]), "30 ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab ab");
    golden(&Time::default(), "40 80 00 00 00 00 00 00 00 00 00 00 00");
    golden(&Time::new(-1, 999_999_999).unwrap(), "40 7f ff ff ff ff ff ff ff 3b 9a c9 ff");
    golden(&("UA", 1545, Option::<i64>::None, true), "02 55 41 00 16 06 09 00 27");
}

/// The descending forms exist on disk, too, in rows of views.
#[test]
fn golden_vectors_of_descending_elements() {
    golden(&Reverse(Element::Null), "fe");
    golden(&Reverse(b"a\0b".as_slice()), "fd 9e ff 00 9d ff ff");
    golden(&Reverse(""), "fc ff ff");
    golden(&Reverse("UA"), "fc aa be ff ff");
    golden(&Reverse("\0"), "fc ff 00 ff ff");
    golden(&Reverse(Element::Tuple(vec![])), "f9 ff ff");
    golden(
        &Reverse(Element::Tuple(vec![Element::Null, Element::Int(1), Element::Text("a".into())])),
        "f9 ff 00 ea fe fd 9e ff ff ff",
    );
    golden(&Reverse(0), "ea");
    golden(&Reverse(1), "e9 fe");
    golden(&Reverse(1545), "e8 f9 f6");
    golden(&Reverse(-1), "eb 01");
    golden(&Reverse(i64::MIN), "f2 80 00 00 00 00 00 00 00");
    golden(&Reverse(u64::MAX), "e2 00 00 00 00 00 00 00 00");
    golden(&Reverse(1.5), "dd 40 07 ff ff ff ff ff ff");
    golden(&Reverse(false), "d8");
    golden(&Reverse(true), "d7");
    golden(&Reverse(Element::Uuid([0xab; 16])), "ce 54 54 54 54 54 54 54 54 54 54 54 54 54 54 54 54");
    golden(&Reverse(Time::default()), "be 7f ff ff ff ff ff ff ff ff ff ff ff");
    golden(&("UA", Reverse(1545), Option::<i64>::None), "02 55 41 00 e8 f9 f6 00");
    golden(&(Reverse("UA"), Option::<i64>::None), "fc aa be ff ff 00");
}

#[test]
fn a_direction_is_of_a_whole_element() {
    let down = |element| Element::Descending(Box::new(element));
    for element in [down(down(Element::Int(1))), Element::Tuple(vec![down(Element::Int(1))])] {
        let error = encode(&element).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("inside of another"), "{error}");
    }
}

#[test]
fn bytes_that_no_key_has_are_refused() {
    for bytes in [
        &b"\x03"[..], // no such code
        b"\x0b\x01",  // integers beyond eight bytes
        b"\x1d\x09",
        b"\x20\0\0\0\0", // single floats are not ours
        b"\x33",
        b"\xff",
        b"\x15",   // cut short
        b"\x15\0", // longer than need be
        b"\x16\0\x01",
        b"\x13\xff",
        b"\x12\xff\x01",
        b"\x0c\x7f\xff\xff\xff\xff\xff\xff\xfe", // less than i64::MIN
        b"\x02ab",                               // no end
        b"\x02\xff\xfe\0",                       // not UTF-8
        b"\x02a\0\xff",                          // escape, then no end
        b"\x05\x14",                             // no end
        b"\x05\0\xff",
        b"\x21\0\0",
        b"\x30\0",
        b"\x40\0\0\0\0\0\0\0\0\x3b\x9a\xca\x00", // a thousand million nanoseconds
        b"\xbd",
        b"\xcd",
        b"\xe9",     // descending: cut short
        b"\xe9\xff", // longer than need be
        b"\xfc\x9e",
        b"\xfc\x9e\xff",
        b"\xfc\x9e\xff\x01", // neither end nor NUL
        b"\xfc\0\xff\xff",   // not UTF-8
        b"\xf9\xea\xff",     // a tuple without an end
        b"\xf9\x01\xff\xff", // descending twice
        b"\x05\xea\0",       // descending inside of a tuple
    ] {
        assert_eq!(decode(bytes).unwrap_err().code(), Code::InvalidArgument, "{bytes:x?}");
    }
}

#[test]
fn deep_nesting_is_survived() {
    let mut deep = vec![5_u8; 512];
    deep.extend([0_u8; 512]);
    assert_eq!(encode(&decode(&deep).unwrap()).unwrap(), deep);
    assert!(decode(&[5_u8; 1024]).is_err());
}

/// An encoded key has at most `KEY_BYTES_MAX` bytes.
#[test]
fn a_key_of_1024_bytes_is_the_longest() {
    let fits = "x".repeat(1022);
    assert_eq!(encode(&fits).unwrap().len(), 1024);
    let error = encode(&"x".repeat(1023)).unwrap_err();
    assert_eq!(error.code(), Code::KeyTooLong);
    assert_eq!(decode(&[0x14; 1025]).unwrap_err().code(), Code::KeyTooLong);
}

#[test]
fn integers_beyond_64_bits_are_refused() {
    for value in [i128::from(u64::MAX) + 1, i128::from(i64::MIN) - 1, i128::MAX, i128::MIN] {
        assert_eq!(encode(&Element::Int(value)).unwrap_err().code(), Code::InvalidArgument);
    }
}

/// Before the random tests: the order as written by hand.
#[test]
fn the_order_on_one_page() {
    let ordered: Vec<Vec<u8>> = [
        encode(&()),
        encode(&Element::Null),
        encode(&b"".as_slice()),
        encode(&""),
        encode(&("U", 9)),
        encode(&"U\0"),
        encode(&"UA"),
        encode(&("UA", 1)),
        encode(&"UA\u{1}"),
        encode(&"US"),
        encode(&Element::Tuple(vec![])),
        encode(&Element::Tuple(vec![Element::Null])),
        encode(&i64::MIN),
        encode(&-1),
        encode(&0),
        encode(&1),
        encode(&(1_u64 << 63)),
        encode(&-f64::NAN),
        encode(&f64::NEG_INFINITY),
        encode(&-0.0),
        encode(&0.0),
        encode(&f64::INFINITY),
        encode(&f64::NAN),
        encode(&false),
        encode(&true),
        encode(&Element::Uuid([0; 16])),
        encode(&Time::default()),
        encode(&Reverse(Time::default())),
        encode(&Reverse(true)),
        encode(&Reverse(1)),
        encode(&Reverse(0)),
        encode(&Reverse(-1)),
        encode(&Reverse("UA\u{1}")),
        encode(&Reverse("UA\0")),
        encode(&Reverse("UA")),
        encode(&(Reverse("UA"), Option::<i64>::None)),
        encode(&(Reverse("UA"), Reverse(Element::Null))),
        encode(&Reverse("U")),
        encode(&Reverse("")),
        encode(&Reverse(Element::Null)),
    ]
    .into_iter()
    .map(Result::unwrap)
    .collect();
    for pair in ordered.windows(2) {
        assert_eq!(pair[0].cmp(&pair[1]), Ordering::Less, "{pair:x?}");
    }
}
