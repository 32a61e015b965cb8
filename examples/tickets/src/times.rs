//! Calculating with the database's `Time`.

use std::time::Duration;

use duramen::Time;

const SECOND: i128 = 1_000_000_000;

/// How long it is until a time; zero if that has passed.
pub fn until(time: Time) -> Duration {
    u64::try_from(nanoseconds(time) - nanoseconds(Time::now())).map_or(Duration::ZERO, Duration::from_nanos)
}

/// The time after a delay from now; the last time there is for a longer delay.
pub fn later(delay: Duration) -> Time {
    let delay = i128::try_from(delay.as_nanos()).expect("2^64 seconds are fewer than 2^127 nanoseconds");
    let later = nanoseconds(Time::now()) + delay;
    let seconds = i64::try_from(later.div_euclid(SECOND)).unwrap_or(i64::MAX);
    let nanoseconds = u32::try_from(later.rem_euclid(SECOND)).expect("less than a second");
    Time::new(seconds, nanoseconds).expect("less than a second")
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds()) * SECOND + i128::from(time.nanoseconds())
}
