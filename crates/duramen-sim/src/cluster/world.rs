//! The state of a run: machines, links, what clients have asked and were told, and what was met.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use duramen_engine::LogEnd;
use duramen_repl::simulation::{AsyncRuntime, Instant, SimInstant, SimRuntime};
use xxhash_rust::xxh3::Xxh3;

use super::history::History;
use super::machine::Machine;
use super::network::Links;
use super::run::Ran;
use super::{Counts, Met};
use crate::search::random::Random;

/// Machines of a cluster: the first three vote at first, and the others receive everything.
pub(super) const MACHINES: usize = 5;
pub(super) const FIRST_VOTERS: u64 = 3;

/// Less than a segment of Raft's log.
const LAGGING_BYTES: u64 = 512;

/// Is told everything that happens.
pub(super) type Tell = Option<Box<dyn FnMut(&str) + Send>>;

/// What a run changes. Locked for moments, never while anything waits.
pub(super) struct World {
    pub(super) random: Random,
    pub(super) machines: Vec<Machine>,
    pub(super) links: Links,
    pub(super) history: History,
    pub(super) counts: Counts,
    /// The node that took writes in each term.
    leaders: BTreeMap<u64, u64>,
    /// The node that others named as the leader of each term.
    named: BTreeMap<u64, u64>,
    /// What was applied, by its sequence.
    applied: BTreeMap<u64, LogEnd>,
    /// Everything that happens, in its order.
    trace: Xxh3,
    begun: SimInstant,
    tell: Tell,
    failure: Option<String>,
    /// Nothing breaks any more.
    pub(super) is_healed: bool,
    /// Bytes of Raft's log that nodes keep for members that lack entries.
    pub(super) lagging_bytes: Option<u64>,
}

/// The world, as tasks share it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<World>>);

/// Lets so much of the virtual time pass.
pub(super) async fn pass(time: Duration) {
    SimRuntime::sleep_until(SimInstant::now() + time).await;
}

impl Shared {
    pub(super) fn new(mut random: Random, machines: Vec<Machine>, tell: Tell) -> Shared {
        // Some clusters keep so little that members need copies of the state.
        let lagging_bytes = random.chance(1, 2).then_some(LAGGING_BYTES);
        Shared(Arc::new(Mutex::new(World {
            random,
            machines,
            links: Links::default(),
            history: History::default(),
            counts: Counts::default(),
            leaders: BTreeMap::new(),
            named: BTreeMap::new(),
            applied: BTreeMap::new(),
            trace: Xxh3::new(),
            begun: SimInstant::now(),
            tell,
            failure: None,
            is_healed: false,
            lagging_bytes,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a drawn time of so many microseconds.
    pub(super) async fn rest(&self, from_us: usize, to_us: usize) {
        let rest = self.lock().random.between(from_us, to_us);
        pass(Duration::from_micros(rest as u64)).await;
    }
}

impl World {
    /// Notes that something happened, now.
    pub(super) fn happens(&mut self, what: &str) {
        let now = self.begun.elapsed();
        self.trace.update(&now.as_nanos().to_le_bytes());
        self.trace.update(what.as_bytes());
        if let Some(tell) = &mut self.tell {
            tell(&format!("{:>10.3} ms  {what}", now.as_secs_f64() * 1e3));
        }
    }

    pub(super) fn meets(&mut self, met: Met, what: &str) {
        self.counts.note(met);
        self.happens(what);
    }

    /// A promise is broken: only the first counts.
    pub(super) fn fail(&mut self, what: String) {
        self.happens(&what);
        self.failure.get_or_insert(what);
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What the run has met.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn ran(&self) -> Result<Ran, String> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(Ran { counts: self.counts, trace: self.trace.digest() }),
        }
    }

    /// A node has applied an entry, at its place what others have.
    pub(super) fn applies(&mut self, node: u64, end: LogEnd) {
        let known = *self.applied.entry(end.id.seq.0).or_insert(end);
        if known != end {
            self.fail(format!("node {node} has applied {end:?}, and another one {known:?}"));
        }
    }

    /// A node says who leads in a term.
    pub(super) fn is_led(&mut self, leader: u64, term: u64) {
        let known = *self.named.entry(term).or_insert(leader);
        if known != leader {
            self.fail(format!("nodes {known} and {leader} are both said to lead in term {term}"));
        }
    }

    /// A node takes writes in a term.
    pub(super) fn leads(&mut self, node: u64, term: u64) {
        self.is_led(node, term);
        match self.leaders.insert(term, node) {
            None => self.meets(Met::Term, &format!("node {node} leads in term {term}")),
            Some(other) if other != node => {
                self.fail(format!("nodes {other} and {node} both lead in term {term}"));
            }
            Some(_) => {}
        }
    }
}
