//! How values compare in queries.
//!
//! Pure. In a column with a type values compare as elements of keys do. In a column of type any and inside of
//! values, where no column sets a type, integers and floats compare by their numeric value.

use std::cmp::Ordering;

use super::condition::Operator;
use super::ranges::ElementRange;
use crate::catalog::schema::exact_float;
use crate::value::document::Value;
use crate::value::json;
use crate::value::msgpack::Token;
use crate::value::time::Time;
use crate::value::tuple::Element;

/// What the value at a path is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// In a column with a type: an element of that type, or null.
    Typed(Element),
    /// Where no column sets a type: the type of the value that is found decides which of these it is compared
    /// with. At most one is a number.
    Untyped(Vec<Element>),
}

impl Wanted {
    /// Every reading of a text, for a place without a type.
    pub(super) fn of_text(text: &str) -> Wanted {
        let mut readings = vec![Element::Text(text.to_owned())];
        match json::parse(text) {
            Ok(Value::Text(_)) | Err(_) => {}
            Ok(value) => readings.extend(value.to_element()),
        }
        readings.extend(Time::parse(text).map(Element::Time));
        Wanted::Untyped(readings)
    }

    /// The readings of a text in a comparison by order. A number is only a number there: as text 10 comes
    /// before 9.
    pub(super) fn of_text_in_order(text: &str) -> Wanted {
        let Wanted::Untyped(mut readings) = Wanted::of_text(text) else { return Wanted::of_text(text) };
        let is_number = |element: &Element| matches!(element, Element::Int(_) | Element::Float(_));
        if readings.iter().any(is_number) {
            readings.retain(is_number);
        }
        Wanted::Untyped(readings)
    }

    pub(super) fn elements(&self) -> &[Element] {
        match self {
            Wanted::Typed(element) => std::slice::from_ref(element),
            Wanted::Untyped(elements) => elements,
        }
    }

    /// Whether null satisfies equality.
    pub(super) fn is_null(&self) -> bool {
        self.elements().contains(&Element::Null)
    }

    /// The text, if a text is wanted.
    pub(super) fn text(&self) -> Option<&str> {
        self.elements().iter().find_map(|element| match element {
            Element::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// How a value that was found compares; `None` for a value of another type.
    pub(super) fn order(&self, found: &Value) -> Option<Ordering> {
        let Value::List(_) = found else { return self.order_of_scalar(&found.token()) };
        let is_tuple = |wanted: &&Element| matches!(wanted, Element::Tuple(_));
        self.elements().iter().filter(is_tuple).find_map(|wanted| Some(found.to_element()?.cmp(wanted)))
    }

    /// As [`Wanted::order`], of a value that is no list or map.
    pub(super) fn order_of_scalar(&self, found: &Token<'_>) -> Option<Ordering> {
        match self {
            Wanted::Typed(element) => typed(found, element),
            Wanted::Untyped(elements) => elements.iter().find_map(|element| untyped(found, element)),
        }
    }

    pub(super) fn equals(&self, found: &Value) -> bool {
        self.order(found) == Some(Ordering::Equal)
    }

    /// The elements of an index that compare so with it, in their order.
    pub(super) fn ranges(&self, operator: Operator) -> Vec<ElementRange> {
        let own = |element| ElementRange::compared(operator, element);
        let mut ranges: Vec<ElementRange> = match self {
            Wanted::Typed(element) => own(element).into_iter().collect(),
            Wanted::Untyped(elements) => elements
                .iter()
                .flat_map(|element| [own(element), ElementRange::of_other_numbers(operator, element)])
                .flatten()
                .collect(),
        };
        ranges.retain(|range| range.and(range).is_some());
        ranges.sort_by(|a, b| a.from.0.cmp(&b.from.0));
        ranges
    }

    /// The elements of an index that equal it, in their order.
    pub(super) fn points(&self) -> Vec<Element> {
        let mut points: Vec<Element> = match self {
            Wanted::Typed(element) => vec![element.clone()],
            Wanted::Untyped(elements) => elements.iter().flat_map(same_values).collect(),
        };
        points.sort();
        points.dedup();
        points
    }
}

/// How a scalar compares with an element of the same type.
fn typed(found: &Token<'_>, wanted: &Element) -> Option<Ordering> {
    Some(match (found, wanted) {
        (Token::Null, Element::Null) => Ordering::Equal,
        (Token::Bool(found), Element::Bool(wanted)) => found.cmp(wanted),
        (Token::Int(found), Element::Int(wanted)) => found.cmp(wanted),
        (Token::Float(found), Element::Float(wanted)) => found.total_cmp(wanted),
        (Token::Text(found), Element::Text(wanted)) => (*found).cmp(wanted),
        (Token::Bytes(found), Element::Bytes(wanted)) => (*found).cmp(wanted),
        (Token::Time(found), Element::Time(wanted)) => found.cmp(wanted),
        _ => return None,
    })
}

fn untyped(found: &Token<'_>, wanted: &Element) -> Option<Ordering> {
    match (found, wanted) {
        (Token::Int(found), Element::Float(wanted)) => Some(by_value(*found, *wanted)),
        (Token::Float(found), Element::Int(wanted)) => Some(by_value(*wanted, *found).reverse()),
        _ => typed(found, wanted),
    }
}

/// The order of an integer and a float by their exact values; NaNs are outermost, as in the total order.
pub(super) fn by_value(int: i128, float: f64) -> Ordering {
    // No integer of a document is nearly this large.
    const BEYOND: f64 = 1e30;
    if float.is_nan() {
        return if float.is_sign_negative() { Ordering::Greater } else { Ordering::Less };
    }
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation, reason = "the float was found to be within an i128")]
    let whole = float.trunc() as i128;
    int.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

/// The elements of indexes that have the same value as this one.
fn same_values(element: &Element) -> Vec<Element> {
    let zeros = || vec![Element::Int(0), Element::Float(-0.0), Element::Float(0.0)];
    match element {
        Element::Int(0) => zeros(),
        Element::Int(value) => {
            [Element::Int(*value)].into_iter().chain(exact_float(*value).map(Element::Float)).collect()
        }
        Element::Float(value) if *value == 0.0 => vec![Element::Int(0), element.clone()],
        Element::Float(value) if value.is_finite() && value.fract() == 0.0 && value.abs() < 1e20 => {
            #[allow(clippy::cast_possible_truncation, reason = "a whole number far within an i128")]
            let int = *value as i128;
            let fits = i64::try_from(int).is_ok() || u64::try_from(int).is_ok();
            [element.clone()].into_iter().chain(fits.then_some(Element::Int(int))).collect()
        }
        other => vec![other.clone()],
    }
}

#[cfg(test)]
mod tests {
    //! Numbers of two types are one order, to the last bit.
    use super::*;

    #[test]
    fn an_integer_and_a_float_compare_by_their_exact_values() {
        for (int, float, order) in [
            (5, 5.0, Ordering::Equal),
            (0, -0.0, Ordering::Equal),
            (5, 5.5, Ordering::Less),
            (-5, -5.5, Ordering::Greater),
            ((1 << 53) + 1, 9_007_199_254_740_992.0, Ordering::Greater),
            (i128::from(u64::MAX), 18_446_744_073_709_551_616.0, Ordering::Less),
            (i128::from(i64::MIN), -9_223_372_036_854_775_808.0, Ordering::Equal),
            (0, f64::INFINITY, Ordering::Less),
            (0, f64::NEG_INFINITY, Ordering::Greater),
            (0, f64::NAN, Ordering::Less),
            (0, -f64::NAN, Ordering::Greater),
        ] {
            assert_eq!(by_value(int, float), order, "{int} and {float}");
        }
    }

    #[test]
    fn a_text_is_read_as_the_type_that_is_found() {
        let five = Wanted::of_text("5");
        for (found, equals) in [
            (Value::from(5), true),
            (Value::from(5.0), true),
            (Value::from("5"), true),
            (Value::from(5.5), false),
            (Value::Null, false),
        ] {
            assert_eq!(five.equals(&found), equals, "{found:?}");
        }
        let noon = Time::parse("2013-01-01T12:00:00Z").unwrap();
        assert!(Wanted::of_text("2013-01-01T12:00:00Z").equals(&Value::Time(noon)));
        assert!(Wanted::of_text("true").equals(&Value::Bool(true)));
        assert!(Wanted::of_text("null").is_null());
    }

    #[test]
    fn a_number_in_an_order_is_no_text() {
        for (text, elements) in [
            ("5", vec![Element::Int(5)]),
            ("5.5", vec![Element::Float(5.5)]),
            ("0150", vec![Element::Text("0150".into())]),
            ("true", vec![Element::Text("true".into()), Element::Bool(true)]),
        ] {
            assert_eq!(Wanted::of_text_in_order(text).elements(), elements, "{text}");
        }
    }

    #[test]
    fn an_index_is_searched_for_every_element_of_the_same_value() {
        let text = Element::Text;
        for (wanted, points) in [
            ("5", vec![text("5".into()), Element::Int(5), Element::Float(5.0)]),
            ("0", vec![text("0".into()), Element::Int(0), Element::Float(-0.0), Element::Float(0.0)]),
            ("-0.0", vec![text("-0.0".into()), Element::Int(0), Element::Float(-0.0)]),
            ("2.5", vec![text("2.5".into()), Element::Float(2.5)]),
            ("x", vec![text("x".into())]),
        ] {
            assert_eq!(Wanted::of_text(wanted).points(), points, "{wanted}");
        }
    }
}
