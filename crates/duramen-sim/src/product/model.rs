//! What the database of a life must hold: a state after each commit of a program, and what was promised when.
//!
//! Owns plain maps and nothing of the database. Sequences in between belong to the database itself (build
//! steps, deletion of expired values, positions of consumers): they change nothing that a program stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::references::Referring;
use super::shop::{Order, Release};

/// Namespaces of key-values.
pub const NAMESPACES: [&str; 2] = ["sessions", "counters"];

/// A blob by its length and its first byte.
pub type BlobModel = (usize, u8);

/// A value and when it expires, in milliseconds.
pub type ValueModel = (i64, Option<u64>);

/// Everything that programs have stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Documents of `orders`, each with its version.
    pub orders: BTreeMap<u64, (u32, Order)>,
    /// Documents of `log`, which are written without a type.
    pub log: BTreeMap<u64, i64>,
    /// Documents of a collection that is created and dropped.
    pub temporary: Option<BTreeMap<u64, i64>>,
    /// By namespace and key. Expired values stay here until they are written or found deleted.
    pub values: BTreeMap<(usize, u64), ValueModel>,
    /// Blobs by key.
    pub blobs: BTreeMap<u64, BlobModel>,
    /// Documents under ids assigned by the database.
    pub tickets: BTreeMap<u64, i64>,
    /// The largest id ever assigned.
    pub last_ticket: u64,
    /// Documents that refer to each other.
    pub referring: Referring,
    /// A tree of bytes.
    pub bytes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether the collection `orders` has the view added by name.
    pub has_by_cents: bool,
}

impl State {
    /// The documents as a release reads them.
    #[must_use]
    pub fn orders_of(&self, release: Release) -> Vec<Order> {
        let seen = |(version, order): &(u32, Order)| {
            if *version < release.version() { order.migrated() } else { order.clone() }
        };
        self.orders.values().map(seen).collect()
    }
}

/// What a consumer of the change feed must get: a change of `orders` or `log`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedChange {
    /// Collection, key and kind of the change, in words.
    pub what: String,
}

/// One or several commits that turn the previous state into this one.
#[derive(Debug, Clone)]
pub struct Step {
    /// The first commit that may have made it.
    pub from: u64,
    /// The commit from which on it is complete.
    pub to: u64,
    /// Operations of the disk before it began.
    pub began: usize,
    /// The state.
    pub state: Arc<State>,
    /// The changes that the feed returns for it, sorted.
    pub told: Vec<ExpectedChange>,
    /// Whether the process was killed: earlier steps newer than `from` are lost.
    pub is_return: bool,
}

/// All steps in the order they were made, and all promises.
#[derive(Debug, Default)]
pub struct History {
    steps: Vec<Step>,
    /// Each operation from which a commit survives a power cut.
    promises: Vec<(usize, u64)>,
    /// Each operation since which commits up to this one may exist.
    begun: Vec<(usize, u64)>,
}

impl History {
    /// Begins with one state, which is promised.
    #[must_use]
    pub fn starting(seq: u64, state: Arc<State>) -> History {
        let first = Step { from: seq, to: seq, began: 0, state, told: Vec::new(), is_return: true };
        History { steps: vec![first], promises: vec![(0, seq)], begun: vec![(0, seq)] }
    }

    /// Continues the steps that a database made before.
    ///
    /// `found` is the state it holds, and `state` what is left of that once expired values are deleted.
    #[must_use]
    pub fn continuing(seq: u64, found: &Arc<State>, state: Arc<State>, line: &[&Step]) -> History {
        let made = line.iter().map(|step| Step { began: 0, ..Step::clone(step) });
        let mut steps: Vec<Step> = made.collect();
        if steps.last().is_some_and(|last| !Arc::ptr_eq(&last.state, found)) {
            // The step may have been in progress, and is not part of the found state.
            steps.pop();
        }
        steps.push(Step { from: seq, to: seq, began: 0, state, told: Vec::new(), is_return: true });
        History { steps, promises: vec![(0, seq)], begun: vec![(0, seq)] }
    }

    /// The newest state.
    #[must_use]
    pub fn latest(&self) -> &Arc<State> {
        &self.steps.last().expect("there is always a first state").state
    }

    /// Adds a state.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Notes that commit `seq` survives a power cut from operation `at_op` on.
    pub fn promise(&mut self, at_op: usize, seq: u64) {
        if self.promises.last().is_none_or(|(_, known)| *known < seq) {
            self.promises.push((at_op, seq));
        }
    }

    /// Notes that commits up to `seq` were made between operation `began` and now.
    pub fn made(&mut self, began: usize, seq: u64) {
        self.begun.push((began, seq));
    }

    /// The newest commit that must survive a cut after the first `at_op` operations.
    #[must_use]
    pub fn floor(&self, at_op: usize) -> u64 {
        let known = self.promises.partition_point(|(at, _)| *at <= at_op);
        self.promises[..known].last().map_or(0, |(_, seq)| *seq)
    }

    /// The newest commit that can exist after the first `at_op` operations.
    #[must_use]
    pub fn ceiling(&self, at_op: usize) -> u64 {
        self.begun.iter().rev().find(|(began, _)| *began <= at_op).map_or(0, |(_, seq)| *seq)
    }

    /// The steps, up to a commit, that a database may have made before a cut after `at_op` operations.
    #[must_use]
    pub fn line(&self, at_op: usize, seq: u64) -> Vec<&Step> {
        let mut line: Vec<&Step> = Vec::new();
        for step in self.steps.iter().filter(|step| step.began <= at_op) {
            if step.is_return {
                line.retain(|before| before.from <= step.from);
            }
            line.push(step);
        }
        line.retain(|step| step.from <= seq);
        line
    }

    /// Possible states of a database at commit `seq`: the newest, and the one before if the newest may be
    /// incomplete.
    #[must_use]
    pub fn candidates(&self, at_op: usize, seq: u64) -> Vec<Arc<State>> {
        let line = self.line(at_op, seq);
        let Some(last) = line.last() else { return Vec::new() };
        let mut states = vec![Arc::clone(&last.state)];
        if seq < last.to && line.len() > 1 {
            states.push(Arc::clone(&line[line.len() - 2].state));
        }
        states
    }
}

/// The bytes of a blob.
#[must_use]
pub fn blob_bytes((length, first): BlobModel) -> Vec<u8> {
    let step = |at: usize| u8::try_from(at * 31 % 255).expect("less than 255");
    (0..length).map(|at| first.wrapping_add(step(at))).collect()
}
