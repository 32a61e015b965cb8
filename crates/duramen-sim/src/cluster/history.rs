//! What clients have asked, and what they were told.

use std::collections::BTreeMap;
use std::time::Duration;

use duramen_repl::simulation::{Instant as _, SimInstant};

/// What a transaction read under a key, or writes.
pub(super) type Values = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// One try of a request to write.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// The request, and which try of it: its row in the database names both.
    pub(super) request: u64,
    pub(super) number: u64,
    /// The commit that it was ordered as.
    pub(super) seq: u64,
    /// The commit whose state it read.
    pub(super) base: u64,
    pub(super) reads: Values,
    pub(super) writes: Values,
    pub(super) outcome: Outcome,
}

/// What a client knows of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Happened,
    Never,
    Unknown,
}

/// What a request was told, and when it was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// What had been acknowledged when it was asked.
    pub(super) floor: u64,
    /// The commit that it was told to be.
    pub(super) acknowledged: Option<u64>,
}

/// A read.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// What had been acknowledged when it was asked, if it is linearizable; so long before, if it may see a
    /// state of some age.
    pub(super) floor: u64,
    pub(super) seq: u64,
    pub(super) node: u64,
    pub(super) values: Values,
}

/// All of a run.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) attempts: Vec<Attempt>,
    /// By their numbers, from 1.
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) reads: Vec<Read>,
    /// What transactions have read, and at which commit: whatever became of them.
    pub(super) begun: Vec<(u64, Values)>,
    /// The newest commit that a client was told of: no later answer may be older.
    pub(super) acknowledged: u64,
    /// What that was, and since when.
    told: Vec<(SimInstant, u64)>,
}

impl History {
    /// A new request. Returns its number.
    pub(super) fn asks(&mut self) -> u64 {
        let number = self.requests.len() as u64 + 1;
        self.requests.insert(number, Request { floor: self.acknowledged, acknowledged: None });
        number
    }

    /// A client is told that a request is this commit.
    pub(super) fn acknowledges(&mut self, request: u64, seq: u64) {
        self.requests.get_mut(&request).expect("it was asked").acknowledged = Some(seq);
        self.is_told(seq);
    }

    /// A client is told of a commit, now.
    pub(super) fn is_told(&mut self, seq: u64) {
        if seq > self.acknowledged {
            self.acknowledged = seq;
            self.told.push((SimInstant::now(), seq));
        }
    }

    /// The newest commit that a client had been told of so long ago.
    pub(super) fn acknowledged_before(&self, age: Duration) -> u64 {
        let is_older = |(at, _): &&(SimInstant, u64)| at.elapsed() >= age;
        self.told.iter().rev().find(is_older).map_or(0, |(_, seq)| *seq)
    }
}
