//! Cells of CSV: what type their text has, and whole rows turned into keys and stored documents.
//!
//! Owns the grammar of cells (integers canonical, floats decimal or exponent, never nan or inf) and the fast
//! path of an import: a row becomes key and document without copying any cell. The caller parses the CSV,
//! including its quotes.

mod row;
#[cfg(test)]
mod tests;

pub use row::{BadCell, Misfit, RowEncoder, key_element};

use crate::catalog::schema::ColumnType;

/// The type of one cell's text: integer, float or text. Times and bools count as text unless requested.
#[must_use]
pub fn infer(cell: &[u8]) -> ColumnType {
    if parse_int(cell).is_some() {
        ColumnType::Int
    } else if parse_float(cell).is_some() {
        ColumnType::Float
    } else {
        ColumnType::Text
    }
}

/// The type of a column that holds cells of both types: integer widens to float, and anything to text.
#[must_use]
pub fn widen(known: ColumnType, cell: ColumnType) -> ColumnType {
    match (known, cell) {
        (a, b) if a == b => a,
        (ColumnType::Unknown, kind) | (kind, ColumnType::Unknown) => kind,
        (ColumnType::Int, ColumnType::Float) | (ColumnType::Float, ColumnType::Int) => ColumnType::Float,
        _ => ColumnType::Text,
    }
}

/// Whether a cell fits a column of type `known` without widening it; cheaper than inferring its type.
#[must_use]
pub fn fits(known: ColumnType, cell: &[u8]) -> bool {
    match known {
        ColumnType::Int => parse_int(cell).is_some(),
        ColumnType::Float => parse_float(cell).is_some(),
        ColumnType::Text => true,
        _ => false,
    }
}

/// Canonical text of an `i64`, or of a `u64` beyond it: no plus, no leading zero, no `-0`.
fn parse_int(cell: &[u8]) -> Option<i128> {
    let (negative, digits) = match cell {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(value.into())?;
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude).map(i128::from) } else { Some(magnitude.into()) }
}

/// A number with a decimal point or an exponent, finite; or canonical integer text.
fn parse_float(cell: &[u8]) -> Option<f64> {
    let digits = cell.strip_prefix(b"-").unwrap_or(cell);
    let whole = count_digits(digits);
    if whole == 0 || (whole > 1 && digits[0] == b'0') {
        return None;
    }
    let mut rest = &digits[whole..];
    if rest.is_empty() {
        return parse_int(cell).and_then(crate::catalog::schema::exact_float);
    }
    if let [b'.', tail @ ..] = rest {
        let fraction = count_digits(tail);
        if fraction == 0 {
            return None;
        }
        rest = &tail[fraction..];
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        let tail = tail.strip_prefix(b"-").or_else(|| tail.strip_prefix(b"+")).unwrap_or(tail);
        let exponent = count_digits(tail);
        if exponent == 0 {
            return None;
        }
        rest = &tail[exponent..];
    }
    if !rest.is_empty() {
        return None;
    }
    std::str::from_utf8(cell).ok()?.parse::<f64>().ok().filter(|value| value.is_finite())
}

fn count_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}
