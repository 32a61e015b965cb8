//! A drive with a volatile write cache: what is current, what is durable, and the writes between the two.
//!
//! Owns what a write, a flush and their answers mean. A flush makes durable every write that was answered before the
//! flush arrived, and no other: a file system may rely on that and on nothing more. It never chooses what survives.

use std::collections::VecDeque;
use std::iter::Sum;

use crate::content::Content;

/// What a drive may hold in its cache; beyond it the oldest write becomes durable, as in any real cache.
pub const PENDING_BYTES_MAX: u64 = 2 << 30;

/// What the drive does with a write that it has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Keeps it in memory until a flush.
    Volatile,
    /// Has it on the medium: no cache, or one with a battery.
    WriteThrough,
    /// Keeps it in memory, and answers flushes without doing them.
    Lying,
}

/// A write that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where it begins.
    pub offset: u64,
    /// What it writes.
    pub bytes: Vec<u8>,
}

/// A write that was not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteId(u64);

/// A flush that was not answered yet: how many writes had been answered when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushId(u64);

/// What was answered since the drive was armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            writes: sum.writes + one.writes,
            flushes: sum.flushes + one.flushes,
        })
    }
}

/// The drive.
#[derive(Debug)]
pub struct Drive {
    cache: Cache,
    /// What a read finds.
    current: Content,
    /// What is on the medium for certain.
    durable: Content,
    /// Asked for, not answered, in the order of arrival.
    in_flight: VecDeque<(u64, Write)>,
    /// Answered, not flushed, in the order of the answers; each with its place in that order.
    pending: VecDeque<(u64, Write)>,
    pending_bytes: u64,
    pending_bytes_max: u64,
    begun: u64,
    answered: u64,
    counts: Counts,
}

impl Drive {
    /// A drive on which all of this is durable.
    #[must_use]
    pub fn new(cache: Cache, content: Content) -> Drive {
        Drive {
            cache,
            current: content.clone(),
            durable: content,
            in_flight: VecDeque::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
            begun: 0,
            answered: 0,
            counts: Counts::default(),
        }
    }

    /// The same drive with another limit on what its cache holds.
    #[must_use]
    pub fn with_pending_bytes_max(self, pending_bytes_max: u64) -> Drive {
        Drive { pending_bytes_max, ..self }
    }

    /// The size of the drive.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.current.size_bytes()
    }

    /// What is on the medium for certain.
    #[must_use]
    pub fn durable(&self) -> &Content {
        &self.durable
    }

    /// What a cut now may lose, in the order of a real drive's choices: answered writes, then those in flight.
    pub fn unflushed(&self) -> impl Iterator<Item = &Write> {
        self.pending.iter().chain(&self.in_flight).map(|(_, write)| write)
    }

    /// How many writes were answered and not flushed.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// How many writes were asked for and not answered.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// What was answered since the drive was armed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Makes everything that was answered durable and counts from zero: here the part that can be cut begins.
    pub fn arm(&mut self) {
        self.make_durable(u64::MAX);
        self.counts = Counts::default();
    }

    /// Reads what is current.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive: ask [`Drive::holds`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.current.read(offset, buffer);
    }

    /// Whether a range lies inside of the drive.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: usize) -> bool {
        self.current.holds(offset, bytes)
    }

    /// Takes a write. Reads see it; no flush covers it until it is answered.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive: ask [`Drive::holds`].
    pub fn begin_write(&mut self, write: Write) -> WriteId {
        self.current.write(write.offset, &write.bytes);
        self.begun += 1;
        self.in_flight.push_back((self.begun, write));
        WriteId(self.begun)
    }

    /// The write was answered: it waits for a flush, or is durable where there is no volatile cache.
    ///
    /// # Panics
    /// If it was answered before.
    pub fn complete_write(&mut self, write: WriteId) {
        let place = self.in_flight.iter().position(|(id, _)| *id == write.0);
        let found = place.and_then(|place| self.in_flight.remove(place));
        let (_, write) = found.expect("a write is answered once");
        self.answered += 1;
        self.counts.writes += 1;
        if self.cache == Cache::WriteThrough {
            self.durable.write(write.offset, &write.bytes);
            return;
        }
        self.pending_bytes += write.bytes.len() as u64;
        self.pending.push_back((self.answered, write));
        while self.pending_bytes > self.pending_bytes_max {
            self.retire_oldest();
        }
    }

    /// A flush arrived: it covers what was answered until now.
    #[must_use]
    pub fn begin_flush(&self) -> FlushId {
        FlushId(self.answered)
    }

    /// The flush was answered.
    pub fn complete_flush(&mut self, flush: FlushId) {
        self.counts.flushes += 1;
        if self.cache != Cache::Lying {
            self.make_durable(flush.0);
        }
    }

    fn make_durable(&mut self, answered_max: u64) {
        while self.pending.front().is_some_and(|(answered, _)| *answered <= answered_max) {
            self.retire_oldest();
        }
    }

    fn retire_oldest(&mut self) {
        if let Some((_, write)) = self.pending.pop_front() {
            self.pending_bytes -= write.bytes.len() as u64;
            self.durable.write(write.offset, &write.bytes);
        }
    }
}
