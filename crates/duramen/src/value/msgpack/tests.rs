//! MessagePack against another implementation, and against bytes of any kind.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{DEPTH_MAX, Reader, Token, check, write};

fn int(value: i128) -> Vec<u8> {
    let mut out = Vec::new();
    write::int(&mut out, value).unwrap();
    out
}

#[test]
fn integers_take_their_shortest_form() {
    for (value, length) in [
        (0, 1),
        (127, 1),
        (128, 2),
        (255, 2),
        (256, 3),
        (65_535, 3),
        (65_536, 5),
        (i128::from(u32::MAX), 5),
        (i128::from(u32::MAX) + 1, 9),
        (i128::from(u64::MAX), 9),
        (-1, 1),
        (-32, 1),
        (-33, 2),
        (-128, 2),
        (-129, 3),
        (-32_768, 3),
        (-32_769, 5),
        (i128::from(i32::MIN), 5),
        (i128::from(i32::MIN) - 1, 9),
        (i128::from(i64::MIN), 9),
    ] {
        let bytes = int(value);
        assert_eq!(bytes.len(), length, "{value}");
        assert_eq!(Reader::new(&bytes).next().unwrap(), Token::Int(value));
    }
    assert!(write::int(&mut Vec::new(), i128::from(u64::MAX) + 1).is_err());
}

#[test]
fn every_form_of_a_time_is_read() {
    for (bytes, seconds, nanoseconds) in [
        (&[0xd6, 0xff, 0, 0, 0, 7][..], 7, 0),
        (&[0xd7, 0xff, 0, 0, 0, 4, 0, 0, 0, 7], 7, 1),
        (&[0xc7, 12, 0xff, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], -1, 1),
    ] {
        let Token::Time(time) = Reader::new(bytes).next().unwrap() else { panic!("{bytes:?}") };
        assert_eq!((time.seconds(), time.nanoseconds()), (seconds, nanoseconds));
    }
    assert!(Reader::new(&[0xd6, 0x01, 0, 0, 0, 7]).next().is_err());
    assert!(Reader::new(&[0xc7, 12, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]).next().is_err());
}

/// A wrong length must cost nothing.
#[test]
fn claimed_lengths_are_not_believed() {
    for bytes in [
        &[0xdd, 0xff, 0xff, 0xff, 0xff][..],
        &[0xdf, 0xff, 0xff, 0xff, 0xff],
        &[0xdb, 0xff, 0xff, 0xff, 0xff],
        &[0xc6, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert!(Reader::new(bytes).skip().is_err());
    }
}

/// Passes a value by reading its tokens; text is not checked.
fn token_by_token(reader: &mut Reader<'_>) -> crate::Result<()> {
    let mut open = 1_u64;
    while open > 0 {
        open -= 1;
        match reader.unchecked()? {
            Token::List(count) => open += count as u64,
            Token::Map(count) => open += 2 * count as u64,
            _ => {}
        }
    }
    Ok(())
}

/// Lists and maps are counted however they are nested, and whatever stands beside them.
#[test]
fn a_document_nests_as_deep_as_is_allowed() {
    for (depth, is_fine) in [(DEPTH_MAX - 1, true), (DEPTH_MAX, false)] {
        // {"x": [[...[1, 2]..., 2], 2], "y": 3}
        let mut bytes = vec![0x82, 0xa1, b'x'];
        bytes.extend(std::iter::repeat_n(0x92, depth));
        bytes.push(1);
        bytes.extend(std::iter::repeat_n(2, depth));
        bytes.extend([0xa1, b'y', 3]);
        assert_eq!(check(&bytes).is_ok(), is_fine, "{depth}");
        assert_eq!(crate::Document::from_bytes(&bytes).is_ok(), is_fine, "{depth}");
        assert!(check(&bytes[..bytes.len() - 1]).is_err(), "cut short");
    }
    // A name that is null, at the top and further down.
    assert!(check(&[0x81, 0xc0, 1]).is_err());
    assert!(check(&[0x82, 0xa1, b'x', 0x81, 0xc0, 1, 0xa1, b'y', 3]).is_err());
    assert!(check(&[0x82, 0xa1, b'x', 0x81, 7, 0xc0, 0xa1, b'y', 0xc0]).is_ok());
}

fn theirs() -> impl Strategy<Value = rmpv::Value> {
    let leaf = prop_oneof![
        Just(rmpv::Value::Nil),
        any::<bool>().prop_map(rmpv::Value::from),
        any::<i64>().prop_map(rmpv::Value::from),
        any::<u64>().prop_map(rmpv::Value::from),
        any::<f64>().prop_map(rmpv::Value::from),
        ".{0,40}".prop_map(rmpv::Value::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(rmpv::Value::from),
    ];
    leaf.prop_recursive(3, 40, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(rmpv::Value::Array),
            prop::collection::vec(inner, 0..20).prop_map(|values| {
                rmpv::Value::Map(
                    values.into_iter().enumerate().map(|(i, v)| (format!("f{i}").into(), v)).collect(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_others_write_comes_back_byte_for_byte(value in theirs()) {
        let value = rmpv::Value::Map(vec![("x".into(), value)]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &value).unwrap();
        let document = crate::Document::from_bytes(&bytes).unwrap();
        prop_assert_eq!(document.to_bytes().unwrap(), bytes);
    }

    /// The fast way past a value ends where the slow one does, or both fail.
    #[test]
    fn values_are_passed_as_they_are_read(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xdf_u8], 0..40),
        count in 0..4_usize,
    ) {
        let mut fast = Reader::new(&bytes);
        let passed = fast.skip_values(count);
        let mut slow = Reader::new(&bytes);
        let read = (0..count).try_for_each(|_| token_by_token(&mut slow));
        prop_assert_eq!(passed.is_ok(), read.is_ok(), "{:02x?}", bytes);
        if read.is_ok() {
            prop_assert_eq!(fast.rest(), slow.rest());
        } else {
            // What failed can still say where.
            prop_assert!(fast.rest().len() <= bytes.len());
        }
    }

    #[test]
    fn a_name_is_compared_as_it_is_read(name in ".{0,40}", other in ".{0,3}", tail in any::<u8>()) {
        let mut bytes = Vec::new();
        write::text(&mut bytes, &name).unwrap();
        let length = bytes.len();
        bytes.push(tail);
        let mut reader = Reader::new(&bytes);
        prop_assert!(reader.name_is(&name).unwrap());
        prop_assert_eq!(reader.rest().len(), bytes.len() - length);
        prop_assert_eq!(Reader::new(&bytes).name_is(&other).unwrap(), name == other);
        prop_assert_eq!(Reader::new(&bytes).name_is(&format!("{name}{other}")).unwrap(), other.is_empty());
    }

    #[test]
    fn foreign_bytes_are_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = Reader::new(&bytes).skip();
        let _ = crate::Document::from_bytes(&bytes);
    }
}

// The bytes may be stored ones, which no change of the call can correct.
#[test]
fn the_error_of_bytes_that_are_no_document_or_key_says_what_to_do_about_stored_ones() {
    let of_document = crate::Document::from_bytes(&[0xc1]).unwrap_err();
    let of_version = crate::value::version::split(&[0xc1, 0]).unwrap_err();
    let of_key = crate::value::tuple::decode(&[0xff]).unwrap_err();
    for error in [of_document, of_version, of_key] {
        assert!(error.hint().contains("duramen check"), "{error}: {}", error.hint());
    }
}
