//! Points in time: seconds and nanoseconds since 1970, and their text form (RFC 3339).
//!
//! Owns the calendar arithmetic. Reads the clock for [`Time::now`] only; knows no time zones but fixed
//! offsets, and no leap seconds.

mod arithmetic;
mod foreign;
pub(crate) mod serde;
#[cfg(test)]
mod tests;

use std::fmt;

use duramen_disk::{Disk as _, OsDisk};

const NANOSECONDS: u32 = 1_000_000_000;
const SECONDS_A_DAY: i64 = 86_400;

/// A point in time, to the nanosecond, in UTC.
///
/// A [`std::time::SystemTime`] becomes a `Time` and back, and so do the times of `chrono` and `jiff` with the
/// features of these names. A [`std::time::Duration`] is added and subtracted. The operators never panic:
/// they stop at [`Time::MIN`] and [`Time::MAX`]. [`Time::checked_add`] and [`Time::checked_sub`] tell.
///
/// ```
/// use std::time::Duration;
///
/// use duramen::prelude::*;
///
/// let noon = Time::parse("2013-01-01T12:00:00Z").expect("a time");
/// let later = noon + Duration::from_secs(90 * 60);
/// assert_eq!(later.to_string(), "2013-01-01T13:30:00Z");
/// assert_eq!(later - noon, Duration::from_secs(5_400));
/// assert_eq!(Time::from_seconds(noon.seconds()), noon);
/// assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    seconds: i64,
    nanoseconds: u32,
}

impl Time {
    /// The earliest time: 292 billion years before 1970.
    pub const MIN: Time = Time { seconds: i64::MIN, nanoseconds: 0 };

    /// The latest time: 292 billion years after 1970.
    pub const MAX: Time = Time { seconds: i64::MAX, nanoseconds: NANOSECONDS - 1 };

    /// Seconds since 1970 (negative before) and nanoseconds after that second; `None` for a full second or
    /// more.
    #[must_use]
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Time> {
        (nanoseconds < NANOSECONDS).then_some(Time { seconds, nanoseconds })
    }

    /// Whole seconds since 1970, negative before.
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Time {
        Time { seconds, nanoseconds: 0 }
    }

    /// The system's time now. It may go back when the clock is set; ids and expiry use a time that does not.
    #[must_use]
    pub fn now() -> Time {
        let wall_ns = OsDisk::new().wall_ns();
        let (seconds, rest) = (wall_ns / u64::from(NANOSECONDS), wall_ns % u64::from(NANOSECONDS));
        Time {
            seconds: i64::try_from(seconds).expect("a u64 of nanoseconds are fewer seconds"),
            nanoseconds: u32::try_from(rest).expect("less than a second"),
        }
    }

    /// Whole seconds since 1970, rounded towards the past.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds after [`Time::seconds`].
    #[must_use]
    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Reads `2013-01-01T10:00:00Z`, with fractions of a second down to nanoseconds and offsets such as
    /// `+02:00`.
    ///
    /// `None` for anything else: no other form, no 30th of February, no 61st second.
    #[must_use]
    pub fn parse(text: &str) -> Option<Time> {
        Time::parse_with(text, parse_offset)
    }

    /// Reads what a column of times takes: also a date, and a time without offset, which is in UTC.
    pub(crate) fn parse_in_column(text: &str) -> Option<Time> {
        let offset = |rest: &str| if rest.is_empty() { Some(0) } else { parse_offset(rest) };
        Time::parse_with(text, offset).or_else(|| Time::parse_date(text))
    }

    fn parse_with(text: &str, parse_offset: impl Fn(&str) -> Option<i64>) -> Option<Time> {
        let (days, rest) = parse_date(text)?;
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (hour, rest) = digits(rest, 2)?;
        let (minute, rest) = digits(rest.strip_prefix(':')?, 2)?;
        let (second, rest) = digits(rest.strip_prefix(':')?, 2)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let (nanoseconds, rest) = parse_fraction(rest)?;
        let offset = parse_offset(rest)?;
        let seconds = days.checked_mul(SECONDS_A_DAY)?.checked_add(hour * 3600 + minute * 60 + second)?;
        Time::new(seconds.checked_sub(offset)?, nanoseconds)
    }

    /// Reads `2013-01-01` as the first instant of that day in UTC. `None` for anything else.
    #[must_use]
    pub fn parse_date(text: &str) -> Option<Time> {
        match parse_date(text)? {
            (days, "") => Time::new(days.checked_mul(SECONDS_A_DAY)?, 0),
            _ => None,
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.seconds.div_euclid(SECONDS_A_DAY));
        let second = self.seconds.rem_euclid(SECONDS_A_DAY);
        if (0..=9999).contains(&year) {
            write!(f, "{year:04}")?;
        } else {
            write!(f, "{year:+05}")?;
        }
        write!(f, "-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        if self.nanoseconds != 0 {
            let fraction = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Exactly `count` digits at the start.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let (head, rest) = text.split_at_checked(count)?;
    head.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    Some((head.parse().ok()?, rest))
}

/// Days since 1970 and what follows the date. A year beyond four digits needs its sign.
fn parse_date(text: &str) -> Option<(i64, &str)> {
    let signed = text.starts_with(['+', '-']);
    let width = if signed { text[1..].find('-')? } else { 4 };
    if signed && !(4..=12).contains(&width) {
        return None;
    }
    let (magnitude, rest) = digits(&text[usize::from(signed)..], width)?;
    let year = if text.starts_with('-') { -magnitude } else { magnitude };
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    Some((days_of(year, month, day), rest))
}

fn parse_fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=9).contains(&length) {
        return None;
    }
    let scale = 10_u32.pow(u32::try_from(9 - length).ok()?);
    Some((rest[..length].parse::<u32>().ok()? * scale, &rest[length..]))
}

/// Seconds east of UTC.
fn parse_offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = digits(&text[1..], 2)?;
    let (minutes, rest) = digits(rest.strip_prefix(':')?, 2)?;
    (rest.is_empty() && hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date. Years are counted from March, so that the leap day ends its year; 400
/// years are 146,097 days whatever their start.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
