//! Time as text: a wrong day here is a wrong key order for ever.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::Time;

fn check(text: &str, seconds: i64, nanoseconds: u32, shown: &str) {
    let time = Time::parse(text).unwrap();
    assert_eq!((time.seconds(), time.nanoseconds()), (seconds, nanoseconds), "{text}");
    assert_eq!(time.to_string(), shown, "{text}");
}

#[test]
fn known_instants() {
    check("1970-01-01T00:00:00Z", 0, 0, "1970-01-01T00:00:00Z");
    check("2013-01-01T10:00:00Z", 1_357_034_400, 0, "2013-01-01T10:00:00Z");
    check("2013-01-01T12:00:00+02:00", 1_357_034_400, 0, "2013-01-01T10:00:00Z");
    check("2000-02-29 23:59:59.5z", 951_868_799, 500_000_000, "2000-02-29T23:59:59.5Z");
    check("1969-12-31T23:59:59.999999999Z", -1, 999_999_999, "1969-12-31T23:59:59.999999999Z");
    check("0000-01-01T00:00:00Z", -62_167_219_200, 0, "0000-01-01T00:00:00Z");
    check("9999-12-31T23:59:59Z", 253_402_300_799, 0, "9999-12-31T23:59:59Z");
    check("+12345-06-07T08:09:10Z", 327_416_976_550, 0, "+12345-06-07T08:09:10Z");
}

#[test]
fn impossible_instants_are_refused() {
    for text in [
        "",
        "2013",
        "2013-01-01",
        "2013-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2013-13-01T00:00:00Z",
        "2013-00-01T00:00:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T00:60:00Z",
        "2013-01-01T00:00:60Z",
        "2013-01-01T00:00:00",
        "2013-01-01T00:00:00.Z",
        "2013-01-01T00:00:00.1234567890Z",
        "2013-01-01T00:00:00+2:00",
        "2013-01-01T00:00:00+02:00x",
        "+1-01-01T00:00:00Z",
        "2013-01-01X00:00:00Z",
        "é013-01-01T00:00:00Z",
        "+é-01-01T00:00:00Z",
        "99999999999999999999-01-01T00:00:00Z",
    ] {
        assert_eq!(Time::parse(text), None, "{text}");
    }
    assert_eq!(Time::new(0, 1_000_000_000), None);
}

#[test]
fn a_date_is_its_midnight_in_utc() {
    for (text, time) in [
        ("1970-01-01", Some("1970-01-01T00:00:00Z")),
        ("2000-02-29", Some("2000-02-29T00:00:00Z")),
        ("+12345-06-07", Some("+12345-06-07T00:00:00Z")),
        ("2013-02-29", None),
        ("2013-01", None),
        ("2013-01-01T", None),
        ("2013-01-01 ", None),
        ("01/02/2013", None),
        ("99999999999999999999-01-01", None),
    ] {
        assert_eq!(Time::parse_date(text).map(|time| time.to_string()).as_deref(), time, "{text}");
    }
}

proptest! {
    #[test]
    fn text_round_trips_in_every_year(seconds in -1_000_000_000_000_000_i64..1_000_000_000_000_000, nanoseconds in 0..1_000_000_000_u32) {
        let time = Time::new(seconds, nanoseconds).unwrap();
        prop_assert_eq!(Time::parse(&time.to_string()), Some(time));
    }

    #[test]
    fn any_text_is_survived(text in ".{0,40}") {
        let _ = Time::parse(&text);
    }
}

#[test]
fn the_ends_of_the_range_can_be_shown() {
    for seconds in [i64::MIN, i64::MAX] {
        let _ = Time::new(seconds, 0).unwrap().to_string();
    }
}

// Whatever the system's clock or a configuration gives, nothing panics.
#[test]
fn sums_stop_at_the_ends() {
    let second = Duration::from_secs(1);
    assert_eq!(Time::MAX + Duration::from_nanos(1), Time::MAX);
    assert_eq!(Time::MIN - second, Time::MIN);
    assert_eq!(Time::MIN + Duration::MAX, Time::new(i64::MAX, 999_999_999).unwrap());
    assert_eq!(Time::MAX.checked_add(Duration::from_nanos(1)), None);
    assert_eq!(Time::MIN.checked_sub(Duration::from_nanos(1)), None);
    assert_eq!(Time::MAX - Time::MIN, Duration::MAX);
    assert_eq!(Time::MIN - Time::MAX, Duration::ZERO);
    assert_eq!(Time::MIN.checked_duration_since(Time::MAX), None);
    let mut time = Time::from_seconds(1);
    time -= Duration::from_millis(1_250);
    assert_eq!((time.seconds(), time.nanoseconds()), (-1, 750_000_000));
    time += second;
    assert_eq!((time.seconds(), time.nanoseconds()), (0, 750_000_000));
}

#[test]
fn a_time_of_the_system_comes_back() {
    for (seconds, nanoseconds) in [(0, 0), (1_700_000_000, 1), (-1, 999_999_900), (-86_400, 0)] {
        let time = Time::new(seconds, nanoseconds / 100 * 100).unwrap();
        assert_eq!(Time::from(SystemTime::try_from(time).unwrap()), time);
    }
    // Where the system cannot hold it, that is an error.
    for time in [Time::MIN, Time::MAX] {
        if let Ok(system) = SystemTime::try_from(time) {
            assert_eq!(Time::from(system), time);
        }
    }
}

proptest! {
    #[test]
    fn sums_are_undone(seconds in any::<i64>(), nanoseconds in 0..1_000_000_000_u32, more in any::<u64>(), part in 0..1_000_000_000_u32) {
        let (time, duration) = (Time::new(seconds, nanoseconds).unwrap(), Duration::new(more, part));
        if let Some(later) = time.checked_add(duration) {
            prop_assert!(later >= time);
            prop_assert_eq!(later - time, duration);
            prop_assert_eq!(later.checked_sub(duration), Some(time));
        }
    }
}
