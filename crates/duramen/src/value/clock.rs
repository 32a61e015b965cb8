//! The time for expiry: the disk's wall clock in milliseconds, made monotonic; and ids made from it.
//!
//! Owns the promise that an expired value stays expired while the database is open, whatever the system's
//! clock does. Reads no clock but the disk's, so that a simulation controls it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use duramen_disk::Disk;

use crate::store::error::Result;
use crate::value::time::Time;

const NS_A_MS: u64 = 1_000_000;

/// An id is 48 bits of time, then these random bits.
const RANDOM_BITS: u128 = (1 << 80) - 1;

/// A point in time, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) u64);

impl Millis {
    /// The first one not before `time`; 0 for times before 1970.
    pub(crate) fn not_before(time: Time) -> Millis {
        let Ok(seconds) = u64::try_from(time.seconds()) else { return Millis(0) };
        let rest = u64::from(time.nanoseconds()).div_ceil(NS_A_MS);
        Millis(seconds.saturating_mul(1000).saturating_add(rest))
    }

    pub(crate) fn to_time(self) -> Time {
        let nanoseconds = u32::try_from(self.0 % 1000 * NS_A_MS).expect("less than a second");
        let seconds = i64::try_from(self.0 / 1000).expect("a thousandth of a u64");
        Time::new(seconds, nanoseconds).expect("less than a second")
    }
}

/// The clock of an open database.
pub(crate) struct Clock {
    disk: Arc<dyn Disk>,
    latest_ms: AtomicU64,
}

impl Clock {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Clock {
        Clock { disk, latest_ms: AtomicU64::new(0) }
    }

    /// Sixteen bytes that are never repeated: the time, so that keys made together are close together, then
    /// random bits.
    pub(crate) fn new_id(&self) -> [u8; 16] {
        let time_ms = u128::from(self.now().0) << 80;
        (time_ms | self.random() & RANDOM_BITS).to_be_bytes()
    }

    /// Random bits.
    pub(crate) fn random(&self) -> u128 {
        u128::from(self.disk.random()) << 64 ^ u128::from(self.disk.random())
    }

    /// The time now, or the latest time returned so far if the clock was set back.
    pub(crate) fn now(&self) -> Millis {
        let wall_ms = self.disk.wall_ns() / NS_A_MS;
        let latest_ms = self.latest_ms.load(Ordering::Relaxed);
        // Written at most once per millisecond: meanwhile the cores of other readers keep their copy of the
        // cache line.
        if wall_ms <= latest_ms {
            return Millis(latest_ms);
        }
        Millis(wall_ms.max(self.latest_ms.fetch_max(wall_ms, Ordering::Relaxed)))
    }
}

/// A clock that is set once, and then runs with the disk's monotonic clock: no later change of the system's
/// clock moves it.
#[derive(Debug, Default)]
pub(crate) struct SteadyClock {
    set: OnceLock<(Millis, u64)>,
}

impl SteadyClock {
    /// Sets it to the time of another clock, or to `earliest` if that is later. Only the first call does.
    ///
    /// # Errors
    /// That of `earliest`.
    pub(crate) fn start(&self, clock: &Clock, earliest: impl FnOnce() -> Result<Millis>) -> Result<()> {
        if self.set.get().is_none() {
            let start = clock.now().max(earliest()?);
            self.set.get_or_init(|| (start, clock.disk.monotonic_ns()));
        }
        Ok(())
    }

    /// Whether it has been set.
    #[cfg(feature = "async")]
    pub(crate) fn is_started(&self) -> bool {
        self.set.get().is_some()
    }

    /// The time now.
    pub(crate) fn now(&self, clock: &Clock) -> Millis {
        let (start, since_ns) = self.set.get().expect("started before it is read");
        Millis(start.0 + (clock.disk.monotonic_ns() - since_ns) / NS_A_MS)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("latest_ms", &self.latest_ms).finish_non_exhaustive()
    }
}
