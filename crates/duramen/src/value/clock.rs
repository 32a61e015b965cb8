//! The time for expiry: the disk's wall clock in milliseconds, made monotonic; and ids made from it.
//!
//! Owns the promise that an expired value stays expired while the database is open, whatever the system's
//! clock does. Reads no clock but the disk's, so that a simulation controls it.
//!
//! In a node of a cluster the time is that of the log, which a leader makes and all nodes have: a value has
//! expired in a state if the time of its last commit has come, on every node alike.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use duramen_disk::Disk;

use crate::store::error::Result;
use crate::value::time::Time;

const NS_A_MS: u64 = 1_000_000;

const POISON: &str = "nothing panics while the clock is locked";

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

    /// The time by a log, which has nanoseconds.
    pub(crate) fn of_log(time_ns: u64) -> Millis {
        Millis(time_ns / NS_A_MS)
    }

    pub(crate) fn to_time(self) -> Time {
        let nanoseconds = u32::try_from(self.0 % 1000 * NS_A_MS).expect("less than a second");
        let seconds = i64::try_from(self.0 / 1000).expect("a thousandth of a u64");
        Time::new(seconds, nanoseconds).expect("less than a second")
    }
}

/// Tells the time by the log of a cluster, in nanoseconds since 1970.
pub(crate) type LogTime = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The clock of an open database.
pub(crate) struct Clock {
    disk: Arc<dyn Disk>,
    latest_ms: AtomicU64,
    by_log: Option<LogTime>,
}

impl Clock {
    /// The clock of a database. That of a node of a cluster goes by its log.
    pub(crate) fn new(disk: Arc<dyn Disk>, by_log: Option<LogTime>) -> Clock {
        Clock { disk, latest_ms: AtomicU64::new(0), by_log }
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

    /// The time of the system's clock, whatever was returned before.
    pub(crate) fn wall(&self) -> Millis {
        Millis(self.disk.wall_ns() / NS_A_MS)
    }

    /// The time now, or the latest time returned so far if the clock was set back.
    pub(crate) fn now(&self) -> Millis {
        if let Some(time_ns) = self.by_log.as_ref().and_then(|tell| tell()) {
            return Millis::of_log(time_ns);
        }
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
    set: RwLock<Option<Set>>,
}

/// What it was set to.
#[derive(Debug, Clone, Copy)]
struct Set {
    /// In a node of a cluster: the lineage of commits for which it was set.
    lineage: Option<u64>,
    to: Millis,
    since_ns: u64,
}

impl SteadyClock {
    /// Sets it to the time of another clock, or to `earliest` if that is later. Only the first call of a
    /// lineage does: in a node of a cluster other nodes may have led since the last one.
    ///
    /// # Errors
    /// That of `earliest`.
    pub(crate) fn start(
        &self,
        clock: &Clock,
        lineage: Option<u64>,
        earliest: impl FnOnce() -> Result<Millis>,
    ) -> Result<()> {
        if self.is_started(lineage) {
            return Ok(());
        }
        let to = clock.now().max(earliest()?);
        let since_ns = clock.disk.monotonic_ns();
        let mut set = self.set.write().expect(POISON);
        if set.is_none_or(|set| set.lineage < lineage) {
            *set = Some(Set { lineage, to, since_ns });
        }
        Ok(())
    }

    /// Whether it has been set, in this lineage or a later one.
    pub(crate) fn is_started(&self, lineage: Option<u64>) -> bool {
        self.set.read().expect(POISON).is_some_and(|set| set.lineage >= lineage)
    }

    /// The time now.
    pub(crate) fn now(&self, clock: &Clock) -> Millis {
        let set = self.set.read().expect(POISON).expect("started before it is read");
        Millis(set.to.0 + (clock.disk.monotonic_ns() - set.since_ns) / NS_A_MS)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("latest_ms", &self.latest_ms).finish_non_exhaustive()
    }
}
