//! Conditions of `duramen find`: a field, an operator, and a value read by the type of the field's column.
//!
//! Pure. Values compare as elements of keys do, so that a condition means the same on a document and on an
//! index.

use std::cmp::Ordering;

use duramen::cell::key_element;
use duramen::schema::ColumnType;
use duramen::tuple::Element;
use duramen::{Document, Schema, Time, Value, json};

use crate::database::candidates;
use crate::failure::{Failure, Result};

/// A condition on a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    pub(super) field: String,
    operator: Operator,
    pub(super) value: Element,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Equal to a value given as JSON.
    EqualJson,
}

/// The text of each operator; of two with a common prefix the longer comes first.
const OPERATORS: [(&str, Operator); 7] = [
    (":=", Operator::EqualJson),
    ("!=", Operator::Different),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// The range of an index's order to which a condition restricts it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Leaves {
    /// A single value.
    One,
    /// Values from this one on.
    From(Element),
    /// Values before this one.
    Before(Element),
    /// No restriction.
    Anything,
}

impl Condition {
    /// Parses one condition.
    pub(super) fn parse(schema: &Schema, text: &str) -> Result<Condition> {
        let found = text.char_indices().find_map(|(at, _)| {
            OPERATORS.iter().find(|(sign, _)| text[at..].starts_with(sign)).map(|found| (at, *found))
        });
        let Some((at, (sign, operator))) = found.filter(|(at, _)| *at > 0) else {
            return Err(Failure::usage(
                format!("{text:?} is no condition"),
                "write FIELD=VALUE, with = != < <= > >= or := and JSON; quote < and > for your shell",
            ));
        };
        let (field, value) = (&text[..at], &text[at + sign.len()..]);
        let Some(kind) = schema.kind(field) else {
            let names: Vec<String> = schema.columns().iter().map(|column| column.name.clone()).collect();
            return Err(Failure::usage(
                format!("{} has no field {field}", schema.name()),
                candidates("fields", field, &names),
            ));
        };
        let read = match operator {
            Operator::EqualJson => from_json(kind, value),
            _ => key_element(kind, value),
        };
        let value = read.ok_or_else(|| {
            Failure::usage(
                format!("{text}: the field {field} is of type {kind}, and {value:?} is not"),
                hint(kind),
            )
        })?;
        Ok(Condition { field: field.to_owned(), operator, value })
    }

    /// Whether a document satisfies it. A document without the field, under any of its names, has null there.
    pub(super) fn holds(&self, schema: &Schema, document: &Document) -> bool {
        let found = document.get_in(schema, &self.field).unwrap_or(&Value::Null).to_element();
        let order = found.filter(|found| same_kind(found, &self.value)).map(|found| found.cmp(&self.value));
        match self.operator {
            Operator::Equal | Operator::EqualJson => order == Some(Ordering::Equal),
            Operator::Different => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }

    /// Whether it fails for every document without the field. An index has rows only for documents with all
    /// of its fields.
    pub(super) fn excludes_null(&self) -> bool {
        self.operator != Operator::Different && self.value != Element::Null
    }

    /// The range to which it restricts an order by the field.
    ///
    /// Inexact bounds are wider: [`Condition::holds`] decides.
    pub(super) fn leaves(&self) -> Leaves {
        match self.operator {
            Operator::Equal | Operator::EqualJson => Leaves::One,
            Operator::Different => Leaves::Anything,
            Operator::Less => Leaves::Before(self.value.clone()),
            Operator::LessOrEqual => next(&self.value).map_or(Leaves::Anything, Leaves::Before),
            Operator::Greater => Leaves::From(next(&self.value).unwrap_or_else(|| self.value.clone())),
            Operator::GreaterOrEqual => Leaves::From(self.value.clone()),
        }
    }

    /// The condition as text.
    pub(super) fn shown(&self) -> String {
        let is = |known: &&(&str, Operator)| known.1 == self.operator;
        let sign = OPERATORS.iter().find(is).map_or("=", |(sign, _)| *sign);
        format!("{} {} {}", self.field, sign.trim_start_matches(':'), self.value)
    }
}

/// An example of a value of a type.
fn hint(kind: ColumnType) -> String {
    let example = match kind {
        ColumnType::Int => "an int is written -5 or 60",
        ColumnType::Float => "a float is written -0.5 or 1e9",
        ColumnType::Bool => "a bool is true or false",
        ColumnType::Time => "a time is written 2013-01-01T10:00:00Z",
        ColumnType::Text | ColumnType::Any | ColumnType::Unknown => "behind := stands JSON",
    };
    format!("{example}; FIELD:=null finds documents without it")
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
    use duramen::doc;

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
    fn what_is_wrong_is_said_with_what_is_near() {
        for (text, said) in [
            ("delai=5", "did you mean delay?"),
            ("delay", "write FIELD=VALUE"),
            ("=5", "write FIELD=VALUE"),
            ("delay=soon", "-5 or 60"),
            ("carrier:=x", "behind := stands JSON"),
        ] {
            let Err(Failure::Said(failure)) = Condition::parse(&schema(), text) else { panic!("{text}") };
            assert!(failure.hint.contains(said), "{text}: {}", failure.hint);
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
