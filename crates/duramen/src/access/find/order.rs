//! The order of documents by any fields, and the bytes that have it.
//!
//! Pure. Values of different types are in the order in which elements of keys are: null, bytes, text, lists,
//! numbers, bools, times; maps come last. Integers and floats are one order, by their numeric value. Within a
//! column with a type that is the order of an index.

use super::path::Path;
use crate::catalog::schema::Schema;
use crate::store::Direction;
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::msgpack::Token;
use crate::value::tuple::Encoder;

/// A field by which documents are ordered.
///
/// ```
/// use duramen::find::OrderBy;
///
/// # fn main() -> duramen::Result<()> {
/// assert_eq!(OrderBy::parse("delay:desc")?, OrderBy::descending("delay"));
/// assert_eq!(OrderBy::parse("home.city")?, OrderBy::ascending("home.city"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderBy {
    pub(super) field: String,
    pub(super) direction: Direction,
}

impl OrderBy {
    /// The smallest value first; null before all.
    #[must_use]
    pub fn ascending(field: impl Into<String>) -> OrderBy {
        OrderBy { field: field.into(), direction: Direction::Forward }
    }

    /// The largest value first; null after all.
    #[must_use]
    pub fn descending(field: impl Into<String>) -> OrderBy {
        OrderBy { field: field.into(), direction: Direction::Reverse }
    }

    /// Parses `delay`, `delay:asc` or `delay:desc`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a text without a field.
    pub fn parse(text: &str) -> Result<OrderBy> {
        let (field, direction) = match text.rsplit_once(':') {
            Some((field, word)) if word.eq_ignore_ascii_case("desc") => (field, Direction::Reverse),
            Some((field, word)) if word.eq_ignore_ascii_case("asc") => (field, Direction::Forward),
            _ => (text, Direction::Forward),
        };
        if field.is_empty() {
            return Err(Error::invalid(format!("{text:?} is no order"))
                .with_hint("write FIELD, or FIELD:desc for the largest first"));
        }
        Ok(OrderBy { field: field.to_owned(), direction })
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Whether the smallest or the largest value comes first.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }
}

impl std::fmt::Display for OrderBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.field)?;
        f.write_str(if self.direction == Direction::Reverse { " descending" } else { "" })
    }
}

/// Paths with directions: what a sort compares.
#[derive(Debug, Clone, Default)]
pub(super) struct SortOrder {
    parts: Vec<(Path, Direction)>,
    /// The order of equal documents: that of their keys, in the direction of the last field.
    ties: Option<Direction>,
}

impl SortOrder {
    /// # Errors
    /// `InvalidArgument` for a field that the schema does not have, and for one with several values.
    pub(super) fn of(schema: &Schema, order: &[OrderBy]) -> Result<SortOrder> {
        let part = |by: &OrderBy| {
            let path = Path::of(schema, &by.field)?;
            if path.is_each() {
                let message = format!("{} has several values in a document, and no order", by.field);
                return Err(Error::invalid(message).with_hint("order by one item of the list, such as a[0]"));
            }
            Ok((path, by.direction))
        };
        let parts = order.iter().map(part).collect::<Result<Vec<_>>>()?;
        Ok(SortOrder { ties: parts.last().map(|(_, direction)| *direction), parts })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|(path, _)| path)
    }

    pub(super) fn parts(&self) -> &[(Path, Direction)] {
        &self.parts
    }

    /// Appends bytes that compare as the documents do; no two documents with different keys have the same.
    pub(super) fn write_key(&self, schema: &Schema, document: &Document, key: &[u8], out: &mut Vec<u8>) {
        for (path, direction) in &self.parts {
            let from = out.len();
            write_value(path.value(schema, document), false, out);
            end(*direction, from, out);
        }
        let from = out.len();
        out.extend_from_slice(key);
        end(self.ties.unwrap_or(Direction::Forward), from, out);
    }
}

/// Ends an element, so that one that continues with an escaped NUL comes after it whatever follows; and turns
/// its bytes around if the largest comes first.
fn end(direction: Direction, from: usize, out: &mut Vec<u8>) {
    out.push(0);
    if direction == Direction::Reverse {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The first byte of a value by its kind, where it is not that of keys.
mod code {
    pub(super) const LIST: u8 = 0x05;
    pub(super) const NUMBER: u8 = 0x14;
    pub(super) const MAP: u8 = 0x50;
    pub(super) const END: u8 = 0x00;
    pub(super) const ESCAPE: u8 = 0xff;
}

/// Appends the bytes of a value that compare as values do. Equal bytes are equal values.
pub(super) fn write_value(value: &Value, is_inside: bool, out: &mut Vec<u8>) {
    match value {
        Value::List(items) => {
            out.push(code::LIST);
            items.iter().for_each(|item| write_value(item, true, out));
            out.push(code::END);
        }
        Value::Map(document) => {
            out.push(code::MAP);
            let mut fields: Vec<(&str, &Value)> = document.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in fields {
                Encoder::new(out).text(name);
                write_value(value, true, out);
            }
            out.push(code::END);
        }
        scalar => write_scalar(&scalar.token(), is_inside, out),
    }
}

/// As [`write_value`], of a value that is no list or map.
pub(super) fn write_scalar(value: &Token<'_>, is_inside: bool, out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(out);
    match value {
        Token::Null => {
            encoder.null();
            if is_inside {
                out.push(code::ESCAPE);
            }
        }
        Token::Bool(value) => encoder.bool(*value),
        Token::Int(value) => write_int(*value, out),
        Token::Float(value) => write_number(*value, 0, 1, out),
        Token::Text(value) => encoder.text(value),
        Token::Bytes(value) => encoder.bytes(value),
        Token::Time(value) => encoder.time(*value),
        Token::UncheckedText(_) | Token::List(_) | Token::Map(_) => unreachable!("it is a scalar"),
    }
}

/// Before an equal float: the nearest float, and the rest. Rounding keeps the order.
fn write_int(value: i128, out: &mut Vec<u8>) {
    #[allow(clippy::cast_precision_loss, reason = "what is lost is the rest, which is written too")]
    let near = value as f64;
    #[allow(clippy::cast_possible_truncation, reason = "it was made from an integer")]
    let rest = value - near as i128;
    write_number(near, i64::try_from(rest).expect("an integer of 64 bits is near its float"), 0, out);
}

fn write_number(near: f64, rest: i64, kind: u8, out: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = near.to_bits();
    out.push(code::NUMBER);
    out.extend_from_slice(&(if bits & SIGN == 0 { bits ^ SIGN } else { !bits }).to_be_bytes());
    out.extend_from_slice(&(rest.cast_unsigned() ^ SIGN).to_be_bytes());
    out.push(kind);
}

#[cfg(test)]
mod tests {
    //! Bytes that compare otherwise than their values put documents in the wrong order.
    use super::*;
    use crate::doc;
    use crate::value::time::Time;

    /// Values in their order.
    fn values() -> Vec<Value> {
        let time = |text: &str| Value::Time(Time::parse(text).unwrap());
        vec![
            Value::Null,
            Value::from(&b""[..]),
            Value::from(&b"\0"[..]),
            Value::from(""),
            Value::from("a"),
            Value::from("a\0"),
            Value::from("a\u{1}"),
            Value::from("b"),
            Value::from(Vec::<Value>::new()),
            Value::from(vec![Value::Null]),
            Value::from(vec![Value::Null, Value::Null]),
            Value::from(vec![Value::from("a")]),
            Value::from(-f64::NAN),
            Value::from(f64::NEG_INFINITY),
            Value::from(i64::MIN),
            Value::from(-9_223_372_036_854_775_808.0),
            Value::from(i64::MIN + 1),
            Value::from(-1.5),
            Value::from(-1),
            Value::from(-0.0),
            Value::from(0),
            Value::from(0.0),
            Value::from(f64::MIN_POSITIVE),
            Value::from(1),
            Value::from(1.0),
            Value::from((1_u64 << 53) - 1),
            Value::from(1_u64 << 53),
            Value::from(9_007_199_254_740_992.0),
            Value::from((1_u64 << 53) + 1),
            Value::from(u64::MAX - 1),
            Value::from(u64::MAX),
            Value::from(18_446_744_073_709_551_616.0),
            Value::from(f64::INFINITY),
            Value::from(f64::NAN),
            Value::from(false),
            Value::from(true),
            time("1969-01-01T00:00:00Z"),
            time("2013-01-01T00:00:00Z"),
            Value::Map(doc! {}),
            Value::Map(doc! { "a": 1 }),
            Value::Map(doc! { "a": 2 }),
            Value::Map(doc! { "b": 0, "a": 3 }),
        ]
    }

    fn keys(order: &[OrderBy], documents: &[Document]) -> Vec<Vec<u8>> {
        let schema = Schema::new("x").column("v", crate::schema::ColumnType::Any);
        let schema = schema.column("w", crate::schema::ColumnType::Any);
        let order = SortOrder::of(&schema, order).unwrap();
        let key = |(at, document): (usize, &Document)| {
            let mut out = Vec::new();
            order.write_key(&schema, document, &crate::tuple::encode(&(at as u64)).unwrap(), &mut out);
            out
        };
        documents.iter().enumerate().map(key).collect()
    }

    #[test]
    fn bytes_compare_as_values_in_both_directions() {
        let documents: Vec<Document> = values().into_iter().map(|value| doc! { "v": value }).collect();
        assert!(keys(&[OrderBy::ascending("v")], &documents).is_sorted());
        assert!(keys(&[OrderBy::descending("v")], &documents).iter().rev().is_sorted());
    }

    // What one value ends with and the next begins with must not be taken for one.
    #[test]
    fn every_pair_of_values_is_in_order_whatever_follows() {
        let pairs: Vec<Document> = values()
            .iter()
            .flat_map(|v| values().into_iter().map(move |w| doc! { "v": v.clone(), "w": w }))
            .collect();
        let (v, w) = (OrderBy::ascending("v"), OrderBy::descending("w"));
        assert!(keys(&[v.clone(), OrderBy::ascending("w")], &pairs).is_sorted());
        let down = [OrderBy::descending("v"), w.clone()];
        assert!(keys(&down, &pairs).iter().rev().is_sorted());
        let mixed = keys(&[v, w], &pairs);
        let count = values().len();
        for (at, keys) in mixed.chunks(count).enumerate() {
            assert!(keys.iter().rev().is_sorted(), "{:?}", values()[at]);
            let next = mixed.get((at + 1) * count..).unwrap_or_default();
            assert!(next.iter().all(|next| keys.iter().all(|key| key < next)), "{:?}", values()[at]);
        }
    }

    #[test]
    fn equal_values_are_in_the_order_of_keys() {
        let same: Vec<Document> = (0..3).map(|_| doc! { "v": 5 }).collect();
        assert!(keys(&[OrderBy::ascending("v")], &same).is_sorted());
        assert!(keys(&[OrderBy::descending("v")], &same).iter().rev().is_sorted());
    }
}
