//! Keys and ranges of keys, between messages and the library.
//!
//! A key has at most [`ELEMENTS_MAX`] elements, tuples included. Encoded keys are decoded and compared with
//! their own encoding: two encodings of one key would be two documents.

use duramen::error::{Code, Error, Result};
use duramen::tuple::{self, Element};
use duramen::{KeyRange, Span};

use crate::v1;

/// The most elements of a key, those inside of tuples included.
pub const ELEMENTS_MAX: usize = 64;

/// The elements of a key, or of its beginning.
///
/// # Errors
/// `InvalidArgument` (E0201) if it is no key.
pub fn elements(key: &v1::Key) -> Result<Vec<Element>> {
    if key.encoded.is_empty() {
        let mut left = ELEMENTS_MAX;
        return all(&key.elements, &mut left, false);
    }
    if !key.elements.is_empty() {
        return Err(wrong("it has both elements and an encoded form"));
    }
    let decoded = tuple::decode(&key.encoded)?;
    if count(&decoded) > ELEMENTS_MAX {
        return Err(too_many());
    }
    if tuple::encode(&decoded)? != key.encoded.as_ref() {
        return Err(wrong("its encoded form is not the one that its elements have"));
    }
    Ok(decoded)
}

/// As [`elements`], of a key that a message must have.
///
/// # Errors
/// As [`elements`]; `InvalidArgument` (E0201) if there is none.
pub fn required(key: Option<&v1::Key>) -> Result<Vec<Element>> {
    let elements = elements(key.ok_or_else(|| wrong("there is none"))?)?;
    if elements.is_empty() {
        return Err(wrong("it has no elements"));
    }
    Ok(elements)
}

/// A key of elements.
#[must_use]
pub fn of(elements: &[Element]) -> v1::Key {
    v1::Key { elements: elements.iter().map(of_element).collect(), encoded: bytes::Bytes::new() }
}

/// The range of a message; all keys without one.
///
/// # Errors
/// As [`elements`]; `InvalidArgument` (E0201) for a prefix together with a bound; `KeyTooLong` (E0202) if no
/// key can be that long.
pub fn span(range: Option<&v1::Range>) -> Result<Span> {
    let Some(v1::Range { prefix, from, to, encoded }) = range else { return Ok(Span::all()) };
    let bound = |key: &Option<v1::Key>| key.as_ref().map(elements).transpose();
    match (bound(prefix)?, bound(from)?, bound(to)?, encoded) {
        (None, None, None, Some(v1::EncodedRange { from, to })) => {
            Ok(Span::of_encoded(KeyRange { from: from.to_vec(), to: to.as_ref().map(|to| to.to_vec()) }))
        }
        (None, None, None, None) => Ok(Span::all()),
        (Some(prefix), None, None, None) => Span::prefix(prefix),
        (None, Some(from), None, None) => Span::from(from),
        (None, None, Some(to), None) => Span::to(to),
        (None, Some(from), Some(to), None) => Span::between(from, to),
        _ => Err(Error::invalid("a range has a prefix, or bounds, or encoded bounds: one of them")),
    }
}

/// A range as a message.
#[must_use]
pub fn of_span(span: Span) -> v1::Range {
    let KeyRange { from, to } = span.into_bytes();
    let encoded = v1::EncodedRange { from: from.into(), to: to.map(Into::into) };
    v1::Range { encoded: Some(encoded), ..v1::Range::default() }
}

fn all(elements: &[v1::Element], left: &mut usize, is_inside: bool) -> Result<Vec<Element>> {
    elements.iter().map(|element| one(element, left, is_inside)).collect()
}

fn one(element: &v1::Element, left: &mut usize, is_inside: bool) -> Result<Element> {
    use v1::element::Kind;
    *left = left.checked_sub(1).ok_or_else(too_many)?;
    Ok(match element.kind.as_ref().ok_or_else(|| wrong("one of its elements is of no kind"))? {
        Kind::NullValue(_) => Element::Null,
        Kind::BoolValue(value) => Element::Bool(*value),
        Kind::IntValue(value) => Element::Int(i128::from(*value)),
        Kind::UintValue(value) => Element::Int(i128::from(*value)),
        Kind::FloatValue(value) => Element::Float(*value),
        Kind::TextValue(text) => Element::Text(text.clone()),
        Kind::BytesValue(bytes) => Element::Bytes(bytes.to_vec()),
        Kind::TimeValue(time) => Element::Time(to_time(time)?),
        Kind::UuidValue(bytes) => {
            Element::Uuid(bytes.as_ref().try_into().map_err(|_| wrong("a UUID in it has not 16 bytes"))?)
        }
        Kind::TupleValue(tuple) if tuple.encoded.is_empty() => {
            Element::Tuple(all(&tuple.elements, left, true)?)
        }
        Kind::TupleValue(_) => return Err(wrong("a tuple inside of a key has elements, no encoded form")),
        Kind::DescendingValue(inner) => match one(inner, left, true)? {
            _ if is_inside => return Err(wrong("a descending element is not inside of another one")),
            element => Element::Descending(Box::new(element)),
        },
    })
}

fn of_element(element: &Element) -> v1::Element {
    use v1::element::Kind;
    let kind = match element {
        Element::Null => Kind::NullValue(v1::NullValue::NullValue.into()),
        Element::Bool(value) => Kind::BoolValue(*value),
        Element::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(value), _) => Kind::IntValue(value),
            // The range of the library's integers ends with that of `u64`.
            (Err(_), value) => Kind::UintValue(value.unwrap_or(u64::MAX)),
        },
        Element::Float(value) => Kind::FloatValue(*value),
        Element::Text(text) => Kind::TextValue(text.clone()),
        Element::Bytes(bytes) => Kind::BytesValue(bytes.clone().into()),
        Element::Time(time) => Kind::TimeValue(of_time(*time)),
        Element::Uuid(bytes) => Kind::UuidValue(bytes.to_vec().into()),
        Element::Tuple(elements) => Kind::TupleValue(of(elements)),
        Element::Descending(inner) => Kind::DescendingValue(Box::new(of_element(inner))),
    };
    v1::Element { kind: Some(kind) }
}

/// A time as a message.
#[must_use]
pub fn of_time(time: duramen::Time) -> v1::Time {
    v1::Time { seconds: time.seconds(), nanoseconds: time.nanoseconds() }
}

/// The time of a message.
///
/// # Errors
/// `InvalidArgument` (E0201) for a second or more of nanoseconds.
pub fn to_time(time: &v1::Time) -> Result<duramen::Time> {
    duramen::Time::new(time.seconds, time.nanoseconds)
        .ok_or_else(|| wrong("a time in it has a full second of nanoseconds"))
}

fn count(elements: &[Element]) -> usize {
    elements
        .iter()
        .map(|element| match element {
            Element::Tuple(elements) => 1 + count(elements),
            Element::Descending(inner) => 1 + count(std::slice::from_ref(inner)),
            _ => 1,
        })
        .sum()
}

fn wrong(why: &str) -> Error {
    Error::invalid(format!("the key of the call is none: {why}"))
        .with_hint("give the elements of the key in their order")
}

fn too_many() -> Error {
    Error::new(Code::KeyTooLong, format!("the key has more than {ELEMENTS_MAX} elements"))
}

#[cfg(test)]
mod tests {
    //! A key that comes back as another one finds another document.
    use super::*;

    fn kept(elements: Vec<Element>) {
        let message = of(&elements);
        assert_eq!(super::elements(&message).expect("a key"), elements);
        let encoded = tuple::encode(&elements).expect("it can be encoded");
        let message = v1::Key { elements: Vec::new(), encoded: encoded.into() };
        assert_eq!(super::elements(&message).expect("a key"), elements);
    }

    #[test]
    fn keys_come_back_as_they_were() {
        kept(vec![Element::Null, Element::Bool(true), Element::Text("a\0b".into()), Element::Bytes(vec![0])]);
        let ends = [i128::from(i64::MIN), -1, 0, i128::from(i64::MAX), i128::from(u64::MAX)];
        kept(ends.map(Element::Int).to_vec());
        kept(vec![Element::Float(-0.0), Element::Float(f64::INFINITY), Element::Uuid([7; 16])]);
        kept(vec![Element::Time(duramen::Time::MIN), Element::Time(duramen::Time::MAX)]);
        kept(vec![Element::Tuple(vec![Element::Tuple(vec![]), Element::Int(1)])]);
        kept(vec![Element::Descending(Box::new(Element::Int(3)))]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let code = |message: v1::Key| super::elements(&message).expect_err("it is no key").code();
        let of_kind = |kind| v1::Key { elements: vec![v1::Element { kind }], ..v1::Key::default() };
        use v1::element::Kind;
        assert_eq!(code(of_kind(None)), Code::InvalidArgument);
        assert_eq!(code(of_kind(Some(Kind::UuidValue(vec![1].into())))), Code::InvalidArgument);
        let time = v1::Time { seconds: 0, nanoseconds: 1_000_000_000 };
        assert_eq!(code(of_kind(Some(Kind::TimeValue(time)))), Code::InvalidArgument);
        let twice = v1::Element { kind: Some(Kind::DescendingValue(Box::default())) };
        assert_eq!(code(of_kind(Some(Kind::DescendingValue(Box::new(twice))))), Code::InvalidArgument);
        let many = v1::Key { elements: vec![of_element(&Element::Null); 65], ..v1::Key::default() };
        assert_eq!(code(many), Code::KeyTooLong);
        let garbage = v1::Key { elements: Vec::new(), encoded: vec![255, 255].into() };
        assert_eq!(code(garbage), Code::InvalidArgument);
        assert!(required(None).is_err() && required(Some(&v1::Key::default())).is_err());
    }

    /// The same key in two encodings would be two documents.
    #[test]
    fn an_encoding_that_is_not_its_own_is_refused() {
        for bytes in (0..=u16::MAX).map(u16::to_be_bytes) {
            let message = v1::Key { elements: Vec::new(), encoded: bytes.to_vec().into() };
            if let Ok(elements) = super::elements(&message) {
                assert_eq!(tuple::encode(&elements).expect("it was decoded"), bytes);
            }
        }
    }
}
