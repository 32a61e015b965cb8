//! Ranges of values that a comparison leaves, each of one type.
//!
//! Pure. An index has values of one type side by side, so a comparison that holds for several types leaves
//! several ranges. Together they hold exactly the values for which the comparison does.

use std::cmp::Ordering;

use super::compare::by_value;
use super::condition::Operator;
use crate::value::time::Time;
use crate::value::tuple::Element;

/// A bound, and whether it belongs to the range.
pub(super) type Edge = (Element, bool);

/// Elements between two bounds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ElementRange {
    pub(super) from: Edge,
    pub(super) to: Edge,
}

const INT_MIN: i128 = i64::MIN as i128;
const INT_MAX: i128 = u64::MAX as i128;

impl ElementRange {
    /// All elements of the type of this one.
    pub(super) fn of_type(element: &Element) -> ElementRange {
        // The first float in the total order is the NaN with every bit set.
        let float = || Element::Float(f64::from_bits(u64::MAX));
        let time = |seconds, nanoseconds| Time::new(seconds, nanoseconds).map(Element::Time);
        let (times_from, times_to) = (time(i64::MIN, 0), time(i64::MAX, 999_999_999));
        let times_from = times_from.expect("a second begins with its nanosecond 0");
        let (from, to) = match element {
            Element::Null => (Element::Null, (Element::Null, true)),
            Element::Bytes(_) => (Element::Bytes(Vec::new()), (Element::Text(String::new()), false)),
            Element::Text(_) => (Element::Text(String::new()), (Element::Tuple(Vec::new()), false)),
            Element::Tuple(_) => (Element::Tuple(Vec::new()), (Element::Int(INT_MIN), false)),
            Element::Int(_) => (Element::Int(INT_MIN), (Element::Int(INT_MAX), true)),
            Element::Float(_) => (float(), (Element::Bool(false), false)),
            Element::Bool(_) => (Element::Bool(false), (Element::Bool(true), true)),
            Element::Uuid(_) => (Element::Uuid([0; 16]), (times_from, false)),
            Element::Time(_) => (times_from, (times_to.expect("the last nanosecond of a second"), true)),
            Element::Descending(inside) => return ElementRange::of_type(inside),
        };
        ElementRange { from: (from, true), to }
    }

    /// The elements of one type that compare so with an element of it.
    pub(super) fn compared(operator: Operator, element: &Element) -> Option<ElementRange> {
        let all = ElementRange::of_type(element);
        let at = |is_inside| (element.clone(), is_inside);
        match operator {
            Operator::Less => Some(ElementRange { to: at(false), ..all }),
            Operator::LessOrEqual => Some(ElementRange { to: at(true), ..all }),
            Operator::Greater => Some(ElementRange { from: at(false), ..all }),
            Operator::GreaterOrEqual => Some(ElementRange { from: at(true), ..all }),
            Operator::Equal | Operator::NotEqual => None,
        }
    }

    /// The numbers of the other type that compare so with a number, by exact value.
    pub(super) fn of_other_numbers(operator: Operator, element: &Element) -> Option<ElementRange> {
        match element {
            Element::Int(value) => floats(operator, *value),
            Element::Float(value) => ints(operator, *value),
            _ => None,
        }
    }

    /// The elements in both; `None` if there are none.
    pub(super) fn and(&self, other: &ElementRange) -> Option<ElementRange> {
        let later = |a: &Edge, b: &Edge| if (&a.0, !a.1) >= (&b.0, !b.1) { a.clone() } else { b.clone() };
        let earlier = |a: &Edge, b: &Edge| if (&a.0, a.1) <= (&b.0, b.1) { a.clone() } else { b.clone() };
        let both = ElementRange { from: later(&self.from, &other.from), to: earlier(&self.to, &other.to) };
        let is_empty = match both.from.0.cmp(&both.to.0) {
            Ordering::Less => false,
            Ordering::Equal => !(both.from.1 && both.to.1),
            Ordering::Greater => true,
        };
        (!is_empty).then_some(both)
    }
}

/// Floats compared with an integer.
fn floats(operator: Operator, value: i128) -> Option<ElementRange> {
    #[allow(clippy::cast_precision_loss, reason = "the order of both is compared next")]
    let near = value as f64;
    // Where no float is equal the nearest one is on one side. Both zeros are equal to the integer.
    let (first_from, last_to) = match by_value(value, near) {
        Ordering::Equal if value == 0 => (-0.0, 0.0),
        Ordering::Equal => (near, near),
        Ordering::Less => (near, near.next_down()),
        Ordering::Greater => (near.next_up(), near),
    };
    let all = ElementRange::of_type(&Element::Float(near));
    let at = |float, is_inside| (Element::Float(float), is_inside);
    match operator {
        Operator::Less => Some(ElementRange { to: at(first_from, false), ..all }),
        Operator::LessOrEqual => Some(ElementRange { to: at(last_to, true), ..all }),
        Operator::Greater => Some(ElementRange { from: at(last_to, false), ..all }),
        Operator::GreaterOrEqual => Some(ElementRange { from: at(first_from, true), ..all }),
        Operator::Equal | Operator::NotEqual => None,
    }
}

/// Integers compared with a float.
fn ints(operator: Operator, value: f64) -> Option<ElementRange> {
    let first = |is_after: fn(Ordering) -> bool| {
        let (mut low, mut high) = (INT_MIN, INT_MAX + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_after(by_value(middle, value)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    };
    let (from, after) = (first(Ordering::is_ge), first(Ordering::is_gt));
    let (from, to) = match operator {
        Operator::Less => (INT_MIN, from - 1),
        Operator::LessOrEqual => (INT_MIN, after - 1),
        Operator::Greater => (after, INT_MAX),
        Operator::GreaterOrEqual => (from, INT_MAX),
        Operator::Equal | Operator::NotEqual => return None,
    };
    (from <= to).then_some(ElementRange { from: (Element::Int(from), true), to: (Element::Int(to), true) })
}

#[cfg(test)]
mod tests {
    //! A range that lacks a value loses documents; one that has too many returns wrong ones.
    use super::*;
    use crate::find::Condition;
    use crate::value::document::Value;
    use crate::{Schema, doc};

    fn values() -> Vec<Value> {
        let ints = [i64::MIN, -(1 << 53) - 1, -1, 0, 1, 5, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX];
        let floats = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -1e30,
            -9_223_372_036_854_775_808.0,
            -5.5,
            -0.0,
            0.0,
            4.5,
            5.0,
            9_007_199_254_740_992.0,
            9_007_199_254_740_994.0,
            18_446_744_073_709_551_616.0,
            f64::INFINITY,
            f64::NAN,
        ];
        let more = [
            Value::Null,
            Value::from(u64::MAX),
            Value::from(u64::MAX - 1),
            Value::from(&b"b"[..]),
            Value::from(""),
            Value::from("5"),
            Value::from("a\0"),
            Value::from(vec![Value::from(1)]),
            Value::from(false),
            Value::from(true),
            Value::Time(Time::parse("2013-01-01T00:00:00Z").unwrap()),
        ];
        ints.into_iter().map(Value::from).chain(floats.into_iter().map(Value::from)).chain(more).collect()
    }

    /// Whether the ranges of a condition hold a value.
    fn is_inside(condition: &Condition, value: &Value) -> Option<bool> {
        let element = value.to_element().unwrap();
        let super::super::condition::Restriction::Ranges(ranges) = condition.restriction() else {
            return None;
        };
        let after = |edge: &Edge| element > edge.0 || (element == edge.0 && edge.1);
        let before = |edge: &Edge| element < edge.0 || (element == edge.0 && edge.1);
        assert!(ranges.is_sorted_by(|a, b| a.to.0 <= b.from.0), "{condition}: {ranges:?}");
        Some(ranges.iter().any(|range| after(&range.from) && before(&range.to)))
    }

    #[test]
    fn ranges_hold_what_the_comparison_does() {
        let schema = Schema::new("x").column("a", crate::schema::ColumnType::Any);
        let operators = [Operator::Less, Operator::LessOrEqual, Operator::Greater, Operator::GreaterOrEqual];
        for field in ["a", "a.b"] {
            for (operator, wanted) in
                operators.iter().flat_map(|one| values().into_iter().map(move |v| (one, v)))
            {
                let condition = Condition::new(&schema, field, *operator, wanted).unwrap();
                for value in values() {
                    let document = match field {
                        "a" => doc! { "a": value.clone() },
                        _ => doc! { "a": Value::Map(doc! { "b": value.clone() }) },
                    };
                    let holds = condition.holds(&schema, &document);
                    assert_eq!(is_inside(&condition, &value), Some(holds), "{condition}: {value:?}");
                }
            }
        }
    }

    // A text stands for every type that it can be read as.
    #[test]
    fn ranges_of_a_text_hold_each_of_its_readings() {
        let schema = Schema::new("x").column("a", crate::schema::ColumnType::Any);
        for text in ["a.b>=5", "a.b<5", "a.b<=2013-01-01T00:00:00Z", "a.b>true", "a.b starts with a"] {
            let condition = Condition::parse(&schema, text).unwrap();
            for value in values() {
                let document = doc! { "a": Value::Map(doc! { "b": value.clone() }) };
                let holds = condition.holds(&schema, &document);
                assert_eq!(is_inside(&condition, &value), Some(holds), "{text}: {value:?}");
            }
        }
    }

    #[test]
    fn an_intersection_has_what_both_have() {
        let int = |value| Element::Int(value);
        let range = |from, to| ElementRange { from, to };
        let one = range((int(1), true), (int(5), false));
        for (other, both) in [
            (range((int(1), false), (int(9), true)), Some(range((int(1), false), (int(5), false)))),
            (range((int(0), true), (int(5), true)), Some(one.clone())),
            (range((int(5), true), (int(9), true)), None),
            (range((int(0), true), (int(1), true)), Some(range((int(1), true), (int(1), true)))),
            (range((int(0), true), (int(1), false)), None),
        ] {
            assert_eq!(one.and(&other), both);
        }
    }
}
