//! Requests of the kernel that are answered after a latency, and their order.
//!
//! Owns the latencies, drawn from the seed, and the order: by the time of the answer, then by arrival. It
//! neither waits nor answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use duramen_powercut::drive::{FlushId, WriteId};
use duramen_powercut::moment::Span;
use duramen_powercut::random::Random;

/// The purpose of the stream of latencies.
const LATENCIES: u64 = 2;

/// The work left after a latency.
#[derive(Debug)]
pub(crate) enum Work {
    Written { drive: usize, write: WriteId, bytes: usize },
    Flushed { drive: usize, flush: FlushId },
    Read { drive: usize, offset: u64, bytes: usize },
}

/// Waiting work; the earliest is the greatest.
pub(crate) struct Due {
    at: Reverse<(Instant, u64)>,
    pub(crate) unique: u64,
    pub(crate) work: Work,
}

/// All waiting work.
pub(crate) struct Waiting {
    span_us: Span,
    random: Random,
    heap: BinaryHeap<Due>,
    arrived: u64,
}

impl Waiting {
    pub(crate) fn new(span_us: Span, seed: u64) -> Waiting {
        Waiting { span_us, random: Random::for_purpose(seed, LATENCIES), heap: BinaryHeap::new(), arrived: 0 }
    }

    /// Adds work that arrives now, and draws its latency.
    pub(crate) fn push(&mut self, now: Instant, unique: u64, work: Work) {
        let wait = Duration::from_micros(self.span_us.draw(&mut self.random));
        self.arrived += 1;
        self.heap.push(Due { at: Reverse((now + wait, self.arrived)), unique, work });
    }

    /// When the next work is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.heap.peek().map(|due| due.at.0.0)
    }

    pub(crate) fn pop(&mut self) -> Option<Due> {
        self.heap.pop()
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}
