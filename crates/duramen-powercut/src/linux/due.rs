//! Requests of the kernel that are answered after a latency, and in which order.
//!
//! Owns that order: by the time of the answer, then by arrival. It never waits and answers nothing.

use std::cmp::Reverse;
use std::time::Instant;

use duramen_powercut::drive::{FlushId, WriteId};

/// What is left to do when a latency has passed.
#[derive(Debug)]
pub(crate) enum Work {
    Written { drive: usize, write: WriteId, bytes: usize },
    Flushed { drive: usize, flush: FlushId },
    Read { drive: usize, offset: u64, bytes: usize },
}

/// Work that waits; the earliest is the greatest.
pub(crate) struct Due {
    pub(crate) at: Reverse<(Instant, u64)>,
    pub(crate) unique: u64,
    pub(crate) work: Work,
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
