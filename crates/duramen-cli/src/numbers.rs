//! Numbers in readable form: grouped digits, bytes and times with units.

use std::time::Duration;

/// `336776` as `336,776`.
pub(crate) fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `27,004 rows`; also of what ends in `ch` or `y`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let number_text = grouped(number);
    match thing.strip_suffix('y') {
        _ if number == 1 => format!("{number_text} {thing}"),
        Some(stem) => format!("{number_text} {stem}ies"),
        None if thing.ends_with("ch") => format!("{number_text} {thing}es"),
        None => format!("{number_text} {thing}s"),
    }
}

/// Bytes with the largest unit that leaves a number of at least one.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (count.checked_ilog2().unwrap_or(0) / 10).min(4);
    if unit == 0 {
        return format!("{count} bytes");
    }
    let tenths = (u128::from(count) * 10) >> (10 * unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit as usize])
}

/// A time with a unit.
pub(crate) fn time(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1000, micros / 100 % 10),
        _ => format!("{}.{:02} s", micros / 1_000_000, micros / 10_000 % 100),
    }
}

/// How many per second, rounded down.
pub(crate) fn rate(count: u64, duration: Duration) -> u64 {
    let micros = duration.as_micros().max(1);
    u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    //! Readable numbers must equal the counted ones.
    use super::*;

    #[test]
    fn digits_are_grouped() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (-336_776, "-336,776"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn units_fit_the_number() {
        for (count, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1_600_000, "1.5 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (count, thing, text) in [
            (1, "batch", "1 batch"),
            (2, "batch", "2 batches"),
            (1, "entry", "1 entry"),
            (0, "entry", "0 entries"),
            (2000, "row", "2,000 rows"),
        ] {
            assert_eq!(counted(count, thing), text);
        }
        assert_eq!(time(Duration::from_micros(1_234)), "1.2 ms");
        assert_eq!(time(Duration::from_micros(12_345_678)), "12.34 s");
        assert_eq!(rate(27_004, Duration::from_millis(500)), 54_008);
    }
}
