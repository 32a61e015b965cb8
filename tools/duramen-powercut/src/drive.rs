//! A drive with a volatile write cache: the current content, the durable content, and the writes between the
//! two.
//!
//! Owns the meaning of writes, flushes and their completions. A flush makes durable every write that had
//! completed before the flush arrived, and no other. A file system may rely on that and on nothing more. It
//! never chooses what survives.

use std::collections::VecDeque;
use std::iter::Sum;

use crate::content::Content;

/// The capacity of the drive's cache. Beyond it the oldest write becomes durable, as in any real cache.
pub const PENDING_BYTES_MAX: u64 = 2 << 30;

/// What the drive does with a completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Keeps it in memory until a flush.
    Volatile,
    /// Writes it to the medium: there is no cache, or one with a battery.
    WriteThrough,
    /// Keeps it in memory, and completes flushes without doing them.
    Lying,
}

/// A requested write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where it begins.
    pub offset: u64,
    /// What it writes.
    pub bytes: Vec<u8>,
}

/// A write that has not completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteId(u64);

/// A flush that has not completed: how many writes had completed when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushId(u64);

/// Completions since the drive was armed.
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
    /// The content that a read returns.
    current: Content,
    /// The content that is certainly on the medium.
    durable: Content,
    /// Requested but not completed, in order of arrival.
    in_flight: VecDeque<(u64, Write)>,
    /// Completed but not flushed, in order of completion, each with its number in that order.
    pending: VecDeque<(u64, Write)>,
    pending_bytes: u64,
    pending_bytes_max: u64,
    begun: u64,
    answered: u64,
    counts: Counts,
}

impl Drive {
    /// A drive on which all of `content` is durable.
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

    /// The same drive with another cache capacity.
    #[must_use]
    pub fn with_pending_bytes_max(self, pending_bytes_max: u64) -> Drive {
        Drive { pending_bytes_max, ..self }
    }

    /// The size of the drive.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.current.size_bytes()
    }

    /// The content that is certainly on the medium.
    #[must_use]
    pub fn durable(&self) -> &Content {
        &self.durable
    }

    /// The writes that a cut now may lose: first the completed ones, then those in flight.
    pub fn unflushed(&self) -> impl Iterator<Item = &Write> {
        self.pending.iter().chain(&self.in_flight).map(|(_, write)| write)
    }

    /// How many writes have completed but are not flushed.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// How many writes were requested but have not completed.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Completions since the drive was armed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Makes everything that has completed durable, and counts from zero: from here on the power can be cut.
    pub fn arm(&mut self) {
        self.make_durable(u64::MAX);
        self.counts = Counts::default();
    }

    /// Reads the current content.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive: check [`Drive::holds`] before.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.current.read(offset, buffer);
    }

    /// Whether a range lies inside of the drive.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: usize) -> bool {
        self.current.holds(offset, bytes)
    }

    /// Begins a write. Reads see it at once; no flush covers it until it has completed.
    ///
    /// # Panics
    /// If the range does not lie inside of the drive: check [`Drive::holds`] before.
    pub fn begin_write(&mut self, write: Write) -> WriteId {
        self.current.write(write.offset, &write.bytes);
        self.begun += 1;
        self.in_flight.push_back((self.begun, write));
        WriteId(self.begun)
    }

    /// Completes a write: it waits for a flush, or is durable if there is no volatile cache.
    ///
    /// # Panics
    /// If it had completed before.
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

    /// A flush arrives: it covers the writes completed until now.
    #[must_use]
    pub fn begin_flush(&self) -> FlushId {
        FlushId(self.answered)
    }

    /// Completes a flush.
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
