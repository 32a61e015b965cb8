//! Conditions of a find: a field, an operator, and a value of the type of the field's column.
//!
//! Pure. Values compare as elements of keys do, so that a condition means the same on a document and on an
//! index.

use std::cmp::Ordering;
use std::fmt;

use crate::catalog::cell::key_element;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::json;
use crate::value::time::Time;
use crate::value::tuple::Element;

/// A condition on a field of documents.
///
/// Values compare as elements of keys do: 0.0 and -0.0 differ, and values of different types are unequal and
/// in no order. A document without the field has null there. It satisfies `Equal` with null, and `NotEqual`
/// with anything else.
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::find::{Condition, Operator};
///
/// # fn main() -> Result<()> {
/// let flights = Schema::new("flights").key(["id"]).column("delay", ColumnType::Int);
/// let parsed = Condition::parse(&flights, "delay>=60")?;
/// assert_eq!(parsed, Condition::new(&flights, "delay", Operator::GreaterOrEqual, 60)?);
/// assert_eq!(parsed.to_string(), "delay >= 60");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    field: String,
    operator: Operator,
    value: Element,
}

/// How a field compares with the value of a [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// The sign before a value that is given as JSON. The operator is then `Equal`.
const JSON_SIGN: &str = ":=";

/// The signs of conditions in text; of two with a common prefix the longer comes first.
const SIGNS: [(&str, Operator); 7] = [
    (JSON_SIGN, Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// The range of an index's order to which a condition restricts it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Restriction {
    /// A single value.
    One,
    /// Values from this one on.
    From(Element),
    /// Values before this one.
    Before(Element),
    /// No restriction.
    None,
}

impl Condition {
    /// A condition from its parts.
    ///
    /// The value must have the type of the field's column, after a lossless conversion: integers become
    /// floats, and RFC 3339 text and dates become times. Null stands for a field that is absent.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a field that the schema does not have, for a value of another type, and
    /// for a map, which has no order.
    pub fn new(
        schema: &Schema,
        field: impl Into<String>,
        operator: Operator,
        value: impl Into<Value>,
    ) -> Result<Condition> {
        let (field, mut value) = (field.into(), value.into());
        let kind = known(schema, &field)?;
        let element = if kind.admit(&mut value) { value.to_element() } else { None };
        let value = element.ok_or_else(|| {
            let found = value.kind();
            Error::invalid(format!(
                "the field {field} is of type {kind}, and cannot be compared with {found}"
            ))
            .with_hint("compare it with a value of its type, or with null")
        })?;
        Ok(Condition { field, operator, value })
    }

    /// Parses a condition: a field, one of the signs `=` `!=` `<` `<=` `>` `>=`, and a value as in a cell of
    /// CSV, by the type of the field's column; or a field, `:=` and a value in JSON.
    ///
    /// `carrier=UA`, `delay>=60`, `time<2013-01-01T10:00:00Z`, `tailnum:=null`.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a text without a sign, for a field that the schema does not have, and
    /// for a value that is not of the field's type. The hint contains the correct form.
    pub fn parse(schema: &Schema, text: &str) -> Result<Condition> {
        let Some((field, sign, operator, value)) = split(text) else {
            return Err(Error::invalid(format!("{text:?} is no condition"))
                .with_hint("write FIELD=VALUE, with = != < <= > >= or := and JSON"));
        };
        let kind = known(schema, field)?;
        let element = if sign == JSON_SIGN { from_json(kind, value) } else { key_element(kind, value) };
        let value = element.ok_or_else(|| {
            Error::invalid(format!("{text}: the field {field} is of type {kind}, and {value:?} is not"))
                .with_hint(format!("{}; FIELD:=null finds documents without it", example(kind)))
        })?;
        Ok(Condition { field: field.to_owned(), operator, value })
    }

    /// The field in the text of a condition, before its first sign; `None` for a text that is no condition.
    /// The field need not exist.
    #[must_use]
    pub fn field_of(text: &str) -> Option<&str> {
        split(text).map(|(field, ..)| field)
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The value, as an element of a key.
    #[must_use]
    pub fn value(&self) -> &Element {
        &self.value
    }

    /// Whether a document of the schema's collection satisfies the condition.
    ///
    /// The field is found under any name that it has had. Reads no disk; costs O(fields of the document).
    #[must_use]
    pub fn holds(&self, schema: &Schema, document: &Document) -> bool {
        let found = document.get_in(schema, &self.field).unwrap_or(&Value::Null).to_element();
        let order = found.filter(|found| same_kind(found, &self.value)).map(|found| found.cmp(&self.value));
        match self.operator {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }

    /// Checks that the schema has the field: the condition may have been made for another collection.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        known(schema, &self.field).map(drop)
    }

    /// Whether it fails for every document without the field. An index has rows only for documents with all
    /// of its fields.
    pub(super) fn excludes_null(&self) -> bool {
        self.operator != Operator::NotEqual && self.value != Element::Null
    }

    /// The range to which it restricts an order by the field.
    ///
    /// Inexact bounds are wider: [`Condition::holds`] decides.
    pub(super) fn restriction(&self) -> Restriction {
        match self.operator {
            Operator::Equal => Restriction::One,
            Operator::NotEqual => Restriction::None,
            Operator::Less => Restriction::Before(self.value.clone()),
            Operator::LessOrEqual => next(&self.value).map_or(Restriction::None, Restriction::Before),
            Operator::Greater => Restriction::From(next(&self.value).unwrap_or_else(|| self.value.clone())),
            Operator::GreaterOrEqual => Restriction::From(self.value.clone()),
        }
    }
}

impl fmt::Display for Condition {
    /// Readable form for messages: `delay >= 60`. It cannot always be parsed back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.field, self.operator, self.value)
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
        })
    }
}

/// Field, sign, operator and value of a condition in text.
fn split(text: &str) -> Option<(&str, &str, Operator, &str)> {
    let (at, (sign, operator)) = text.char_indices().find_map(|(at, _)| {
        SIGNS.iter().find(|(sign, _)| text[at..].starts_with(sign)).map(|found| (at, *found))
    })?;
    (at > 0).then(|| (&text[..at], sign, operator, &text[at + sign.len()..]))
}

/// The type of a field's column.
fn known(schema: &Schema, field: &str) -> Result<ColumnType> {
    const SHOWN_MAX: usize = 8;
    schema.kind(field).ok_or_else(|| {
        let columns = schema.columns();
        let some: Vec<&str> = columns.iter().take(SHOWN_MAX).map(|column| column.name.as_str()).collect();
        let more = if columns.len() > SHOWN_MAX { ", ..." } else { "" };
        Error::invalid(format!("{} has no field {field}", schema.name()))
            .with_hint(format!("the fields are {}{more}", some.join(", ")))
    })
}

/// An example of a value of a type.
fn example(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Int => "an int is written -5 or 60",
        ColumnType::Float => "a float is written -0.5 or 1e9",
        ColumnType::Bool => "a bool is true or false",
        ColumnType::Time => "a time is written 2013-01-01T10:00:00Z, and a date 2013-01-01",
        ColumnType::Text | ColumnType::Any | ColumnType::Unknown => "write JSON after :=",
    }
}

fn from_json(kind: ColumnType, text: &str) -> Option<Element> {
    let mut value = json::parse(text).ok()?;
    kind.admit(&mut value).then(|| value.to_element()).flatten()
}

fn same_kind(one: &Element, other: &Element) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// The smallest greater element of the same kind.
fn next(element: &Element) -> Option<Element> {
    const NANOSECOND_MAX: u32 = 999_999_999;
    Some(match element {
        Element::Text(text) => Element::Text(format!("{text}\0")),
        Element::Bytes(bytes) => Element::Bytes([bytes.as_slice(), &[0]].concat()),
        Element::Int(value) if *value < u64::MAX.into() => Element::Int(value + 1),
        Element::Float(value) if value.is_finite() && *value != 0.0 => Element::Float(value.next_up()),
        Element::Bool(false) => Element::Bool(true),
        Element::Time(time) if time.nanoseconds() < NANOSECOND_MAX => {
            Element::Time(Time::new(time.seconds(), time.nanoseconds() + 1)?)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    //! A misread condition finds the wrong documents.
    use super::*;
    use crate::doc;

    fn schema() -> Schema {
        Schema::new("flights")
            .key(["carrier"])
            .column("carrier", ColumnType::Text)
            .column("delay", ColumnType::Int)
            .column("distance", ColumnType::Float)
            .column("time", ColumnType::Time)
            .column("more", ColumnType::Any)
    }

    fn check(text: &str, document: Document, holds: bool) {
        let condition = Condition::parse(&schema(), text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(condition.holds(&schema(), &document), holds, "{text}");
    }

    #[test]
    fn values_are_read_by_the_columns_type() {
        check("carrier=0123", doc! { "carrier": "0123" }, true);
        check("delay>=60", doc! { "delay": 60 }, true);
        check("delay>60", doc! { "delay": 60 }, false);
        check("delay<=60", doc! { "delay": 61 }, false);
        check("delay=-5", doc! { "delay": -5 }, true);
        check("distance<100", doc! { "distance": 99.5 }, true);
        check("carrier=a=b", doc! { "carrier": "a=b" }, true);
        check("more:=[1,\"x\"]", doc! { "more": vec![Value::from(1), Value::from("x")] }, true);
        let midnight = Value::Time(Time::parse("2013-01-02T00:00:00Z").unwrap());
        check("time=2013-01-02", doc! { "time": midnight.clone() }, true);
        check("time>=2013-01-03", doc! { "time": midnight }, false);
        let noon = Value::Time(Time::parse("2013-01-01T12:00:00Z").unwrap());
        check("time>=2013-01-01T12:00:00Z", doc! { "time": noon.clone() }, true);
        check("time<2013-01-01T12:00:00Z", doc! { "time": noon }, false);
    }

    #[test]
    fn a_document_without_the_field_equals_null_and_nothing_else() {
        check("delay:=null", doc! {}, true);
        check("delay=5", doc! {}, false);
        check("delay!=5", doc! {}, true);
        check("delay<5", doc! {}, false);
        check("delay!=5", doc! { "delay": 5 }, false);
    }

    #[test]
    fn a_wrong_condition_is_refused_with_a_hint() {
        for (text, hint) in [
            ("delai=5", "the fields are carrier, delay"),
            ("delay", "write FIELD=VALUE"),
            ("=5", "write FIELD=VALUE"),
            ("delay=soon", "-5 or 60"),
            ("carrier:=x", "write JSON after :="),
        ] {
            let error = Condition::parse(&schema(), text).unwrap_err();
            assert!(error.hint().contains(hint), "{text}: {}", error.hint());
        }
        assert_eq!(["delai=5", "=5", "delay"].map(Condition::field_of), [Some("delai"), None, None]);
    }

    // A program's integer must find floats: the column decides, not the literal.
    #[test]
    fn parts_are_held_to_the_columns_type() {
        let condition = Condition::new(&schema(), "distance", Operator::Less, 100).unwrap();
        assert_eq!(condition, Condition::parse(&schema(), "distance<100").unwrap());
        assert!(condition.holds(&schema(), &doc! { "distance": 99.5 }));
        let absent = Condition::new(&schema(), "delay", Operator::Equal, Value::Null).unwrap();
        assert_eq!(absent, Condition::parse(&schema(), "delay:=null").unwrap());
        for (field, value) in [("delay", Value::from("5")), ("more", Value::Map(doc! {})), ("x", 5.into())] {
            let error = Condition::new(&schema(), field, Operator::Equal, value).unwrap_err();
            assert_eq!(error.code(), crate::Code::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn nothing_lies_between_an_element_and_the_next() {
        for (element, expected) in [
            (Element::Int(5), Some(Element::Int(6))),
            (Element::Int(u64::MAX.into()), None),
            (Element::Text("a".into()), Some(Element::Text("a\0".into()))),
            (Element::Float(1.0), Some(Element::Float(1.0_f64.next_up()))),
            (Element::Bool(true), None),
        ] {
            assert_eq!(next(&element), expected);
        }
    }
}
