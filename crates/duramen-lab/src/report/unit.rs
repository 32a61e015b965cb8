//! Units of numbers, and how they are written beside an axis or a bar.

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Nanoseconds, written in the unit that fits: `470 µs`, `1.2 ms`.
    Nanoseconds,
    /// Bytes, written in powers of 1024: `64 KiB`.
    Bytes,
    /// A rate per second.
    PerSecond,
    /// Parts of a hundred.
    Percent,
}

impl Unit {
    /// The number in readable form, with at least three digits if it has them.
    ///
    /// ```
    /// use duramen_lab::report::Unit;
    /// assert_eq!(Unit::Nanoseconds.text(470_000.0), "470 µs");
    /// assert_eq!(Unit::Bytes.text(65536.0), "64 KiB");
    /// assert_eq!(Unit::PerSecond.text(2125.4), "2,125/s");
    /// ```
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Count => digits(value),
            Unit::Nanoseconds => scaled(value, 1000.0, &["ns", "µs", "ms", "s"]),
            Unit::Bytes => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
            Unit::PerSecond => format!("{}/s", digits(value)),
            Unit::Percent => format!("{} %", digits(value)),
        }
    }
}

fn scaled(value: f64, step: f64, names: &[&str]) -> String {
    let mut value = value;
    let mut index = 0;
    // A number that rounds to a thousand is one of the next unit.
    while value.abs() >= step - 0.5 && index + 1 < names.len() {
        value /= step;
        index += 1;
    }
    format!("{} {}", digits(value), names[index])
}

/// Whole numbers in groups of three; smaller ones with two decimals at most.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let written = format!("{value:.decimals$}");
    let (whole, part) = written.split_once('.').unwrap_or((&written, ""));
    let part = part.trim_end_matches('0');
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !part.is_empty() {
        out.push('.');
        out.push_str(part);
    }
    out
}
