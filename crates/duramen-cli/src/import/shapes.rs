//! Cells that a person takes for a number or a time, but an import for text.

use duramen::cell;
use duramen::schema::ColumnType;

/// The shortest time: a date, the time of day, and a zone or none.
const TIME_BYTES_MIN: usize = 19;

/// How a number is written that is not in its plain form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `1,5`
    DecimalComma,
    /// `1,234`
    Thousands,
    /// ` 5`
    Blanks(ColumnType),
    /// `+5`
    Plus(ColumnType),
}

/// A text with a plus and more digits is probably a telephone number.
const PLUS_BYTES_MAX: usize = 7;

/// Whether a person takes a text for a number, in its plain form or in another one.
pub(crate) fn is_number_to_a_person(text: &str) -> bool {
    Shape::of(text.as_bytes()).is_some() || text.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

impl Shape {
    /// The shape of a cell that is no number; `None` if it is no number in another form either.
    pub(super) fn of(cell: &[u8]) -> Option<Shape> {
        let begins = |byte: &u8| byte.is_ascii_digit() || b"+-".contains(byte) || byte.is_ascii_whitespace();
        let text = std::str::from_utf8(cell).ok().filter(|_| cell.first().is_some_and(begins))?;
        let trimmed = text.trim_ascii();
        if trimmed.len() < text.len() {
            let kind = cell::infer(trimmed.as_bytes());
            return (kind != ColumnType::Text).then_some(Shape::Blanks(kind));
        }
        if let Some(number) = text.strip_prefix('+').filter(|_| text.len() <= PLUS_BYTES_MAX) {
            let kind = cell::infer(number.as_bytes());
            let is_number =
                number.starts_with(|first: char| first.is_ascii_digit()) && kind != ColumnType::Text;
            return is_number.then_some(Shape::Plus(kind));
        }
        let (whole, rest) = text.strip_prefix('-').unwrap_or(text).split_once(',')?;
        if is_grouped(whole, rest) {
            return Some(Shape::Thousands);
        }
        let is_whole = whole.split('.').all(is_digits);
        (is_whole && is_digits(rest)).then_some(Shape::DecimalComma)
    }

    /// The type that the column would have.
    pub(super) fn kind(self) -> ColumnType {
        match self {
            Shape::DecimalComma => ColumnType::Float,
            Shape::Thousands => ColumnType::Int,
            Shape::Blanks(kind) | Shape::Plus(kind) => kind,
        }
    }

    /// The rest of a sentence that begins with the cell.
    pub(super) fn problem(self) -> &'static str {
        match self {
            Shape::DecimalComma => ", which has a decimal comma",
            Shape::Thousands => ", which has a separator of thousands",
            Shape::Blanks(_) => ", which has blanks around the number",
            Shape::Plus(_) => ", which has a plus sign",
        }
    }

    pub(super) fn remedy(self) -> &'static str {
        match self {
            Shape::DecimalComma => "write decimal points in the input, 1.5",
            Shape::Thousands => "write the numbers in the input without separators, 1234",
            Shape::Blanks(_) => "remove the blanks around the numbers from the input",
            Shape::Plus(_) => "write the numbers in the input without a plus sign, 5",
        }
    }
}

/// Whether the digits after the first comma are groups of three, the last perhaps with a fraction.
fn is_grouped(whole: &str, rest: &str) -> bool {
    let (groups, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let begins = whole.len() <= 3 && is_digits(whole) && !whole.starts_with('0');
    begins && is_digits(fraction) && groups.split(',').all(|group| group.len() == 3 && is_digits(group))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a cell is a time, not only a date.
pub(super) fn is_time(cell: &[u8]) -> bool {
    let may_be = cell.len() >= TIME_BYTES_MIN && cell[0].is_ascii_digit();
    let time = |cell| cell::key_element(ColumnType::Time, std::str::from_utf8(cell).ok()?);
    may_be && time(cell).is_some()
}

#[cfg(test)]
mod tests {
    //! Which cells are numbers or times to a person.
    use super::*;

    #[test]
    fn numbers_in_other_forms() {
        let check = |cell: &str, shape| assert_eq!(Shape::of(cell.as_bytes()), shape, "{cell:?}");
        check("1,5", Some(Shape::DecimalComma));
        check("-1.234,50", Some(Shape::DecimalComma));
        check("0,125", Some(Shape::DecimalComma));
        check("1,234", Some(Shape::Thousands));
        check("1,234,567.8", Some(Shape::Thousands));
        check(" 5", Some(Shape::Blanks(ColumnType::Int)));
        check("5.5 ", Some(Shape::Blanks(ColumnType::Float)));
        check("+5", Some(Shape::Plus(ColumnType::Int)));
        check("+12.5", Some(Shape::Plus(ColumnType::Float)));
        for cell in
            ["+4712345678", "+-5", "+x", "1,x", "1,", ",5", "1,2,3", "007", "N14", "", " ", "-", "1 2"]
        {
            check(cell, None);
        }
    }

    #[test]
    fn times() {
        let check = |cell: &str, wanted| assert_eq!(is_time(cell.as_bytes()), wanted, "{cell}");
        check("2013-01-01T10:00:00Z", true);
        check("2013-01-01 10:00:00.5+02:00", true);
        check("2013-01-01", false);
        check("2013-01-01T10:61:00Z", false);
    }
}
