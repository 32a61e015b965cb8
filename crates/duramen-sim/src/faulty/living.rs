//! One boot of a database on a failing disk: from the start of the machine to the power cut.
//!
//! Owns when faults begin and end, and what they excuse: calls meet a fault only while it is in force. After
//! each failure the database goes on, or is opened again in the same boot with the cache as it is.

mod arriving;
mod compaction;
mod events;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use duramen_disk::MemDisk;
use duramen_disk::memory::Trace;
use duramen_engine::{Engine, Options, Snapshot};

use super::book::Book;
use super::ledger::{Excuses, Ledger};
use super::storm::{Armed, FaultKind};
use super::tally::{Consequence, Tally};
use crate::search::model::State;
use crate::search::random::{Random, joined};

const PATH: &str = "/db";

/// Consecutive attempts to open that a fault may end.
const STORMY_OPENS_MAX: usize = 3;

/// Events for which a fault stays, at most.
const ARMED_EVENTS_MAX: usize = 4;

/// Operations that a failure lists.
const OPERATIONS_TOLD: usize = 60;

/// Whether life goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// It goes on.
    On,
    /// The medium lied, and the database reported it.
    Over,
}

/// The record of a boot.
#[derive(Debug)]
pub struct Boot {
    /// Everything that changed its disk.
    pub trace: Trace,
    /// The states that may be found at each cut.
    pub book: Book,
    /// How the database was opened.
    pub options: Options,
    /// Number of operations after which the database had been created, if it was.
    pub created_at: Option<usize>,
    /// Its identity.
    pub database: Option<String>,
    /// Number of operations before which the medium had not lied.
    pub lied_at: Option<usize>,
    /// Ranges of operations during which the disk was full.
    pub full: Vec<Range<usize>>,
    /// Whether space may leak.
    pub may_leak: bool,
    /// Faults and consequences met.
    pub tally: Tally,
}

/// A boot in progress.
pub struct Living {
    ledger: Arc<Ledger>,
    options: Options,
    engine: Option<Engine>,
    /// Decides what is done.
    random: Random,
    /// Decides what fails.
    weather: Random,
    armed: Option<(Armed, usize)>,
    armed_at: usize,
    /// Calls may fail; the medium does not lie.
    may_fail: bool,
    /// Whether a fault was armed since the database was opened.
    had_fault: bool,
    created_at: Option<usize>,
    database: Option<String>,
    lied_at: Option<usize>,
    full: Vec<Range<usize>>,
    held: Vec<(Snapshot, State)>,
    /// A sync may have failed: what was only written is not promised to the next opening.
    in_doubt: bool,
    /// A sync may have failed in this boot: clean pages in the cache may not be on the medium.
    is_stale: bool,
    /// A read has failed: a dropped value whose list could not be read until the last checkpoint may leak its
    /// blocks.
    may_leak: bool,
    /// The engine is poisoned, and that was examined.
    is_poisoned: bool,
}

/// What is known of a database before the machine starts.
#[derive(Debug)]
pub struct Before {
    /// Its disk.
    pub disk: MemDisk,
    /// The states that may be found there.
    pub book: Book,
    /// How it is opened.
    pub options: Options,
    /// Its identity, if it was created.
    pub database: Option<String>,
    /// Whether the medium has lied.
    pub has_lied: bool,
    /// Whether space may leak.
    pub may_leak: bool,
}

impl Living {
    /// Starts the machine.
    #[must_use]
    pub fn start(before: Before, seed: u64) -> Living {
        let Before { disk, book, options, database, has_lied, may_leak } = before;
        disk.record();
        let excuses = Excuses { lie: has_lied, ..Excuses::default() };
        Living {
            ledger: Arc::new(Ledger::new(disk, book, excuses)),
            options,
            engine: None,
            random: Random::new(joined(seed, 1)),
            weather: Random::new(joined(seed, 11)),
            armed: None,
            armed_at: 0,
            may_fail: false,
            had_fault: false,
            created_at: database.is_some().then_some(0),
            database,
            lied_at: has_lied.then_some(0),
            full: Vec::new(),
            held: Vec::new(),
            in_doubt: false,
            is_stale: false,
            may_leak,
            is_poisoned: false,
        }
    }

    /// The newest commit that is published, if the database is open.
    #[must_use]
    pub fn seq(&self) -> Option<u64> {
        self.engine.as_ref().map(|engine| engine.stats().commit.published.0)
    }

    /// What is wrong, with the operations that led to it.
    #[must_use]
    pub fn tell(&self, what: &str) -> String {
        let trace = self.disk().trace();
        let last = (trace.len().saturating_sub(OPERATIONS_TOLD)..trace.len()).map(|at| trace.describe(at));
        format!("{what}\n    {}", last.collect::<Vec<_>>().join("\n    "))
    }

    /// Whether the engine has stopped acknowledging.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// Operations of the disk so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.disk().recorded_len()
    }

    fn disk(&self) -> &MemDisk {
        &self.ledger.disk
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is taken only while it is opened again")
    }

    /// Cuts the power, and returns everything done and acknowledged until here.
    #[must_use]
    pub fn cut(mut self) -> Boot {
        self.disarm();
        self.disk().set_blocker(None);
        self.held.clear();
        let mut notes = self.ledger.notes();
        notes.weak = None;
        let (book, mut tally) = (std::mem::take(&mut notes.book), std::mem::take(&mut notes.tally));
        drop(notes);
        if self.is_poisoned {
            tally.came(Consequence::CutPoisoned);
        }
        if let Some(engine) = self.engine.take() {
            engine.abandon();
        }
        let trace = self.ledger.disk.stop_recording();
        let Living { options, created_at, database, lied_at, full, may_leak, .. } = self;
        Boot { trace, book, options, created_at, database, lied_at, full, may_leak, tally }
    }

    fn arm(&mut self, armed: Armed, events: usize) {
        self.disarm();
        let mut notes = self.ledger.notes();
        notes.excuses.full = armed.error == Some(io::ErrorKind::StorageFull);
        notes.excuses.io = armed.error.is_some() && !notes.excuses.full;
        notes.excuses.corrupts_if_met = armed.kind.corrupts();
        drop(notes);
        self.had_fault = true;
        self.disk().annotate(format!("armed: {}", armed.kind.name()));
        self.armed_at = self.disk().recorded_len();
        self.armed = Some((armed, events));
    }

    /// Ends a fault, and notes its effect if it was met.
    fn disarm(&mut self) {
        let Some((armed, _)) = self.armed.take() else { return };
        let (kind, now) = (armed.kind, self.disk().recorded_len());
        let (is_met, has_failed_syncs) = (armed.is_met(), armed.has_failed_syncs());
        self.may_leak |= armed.has_failed_reads();
        if kind == FaultKind::FullDisk && is_met {
            self.full.push(self.armed_at..now + 1);
        }
        armed.end();
        let mut notes = self.ledger.notes();
        (notes.excuses.full, notes.excuses.io, notes.excuses.corrupts_if_met) = (false, false, false);
        drop(notes);
        self.disk().annotate(if is_met { "disarmed, was met" } else { "disarmed" });
        if !is_met {
            return;
        }
        let mut notes = self.ledger.notes();
        notes.tally.met(kind);
        if kind.lies() {
            notes.excuses.lie = true;
            self.lied_at.get_or_insert(self.armed_at);
        }
        notes.excuses.misread |= kind == FaultKind::FlippedRead;
        notes.excuses.is_past = true;
        drop(notes);
        self.in_doubt |= has_failed_syncs;
        self.is_stale |= self.in_doubt;
    }

    /// Notes the effect of a fault from the call on that met it.
    fn note_met(&mut self) {
        let Some((armed, _)) = &self.armed else { return };
        if armed.is_met() {
            let mut notes = self.ledger.notes();
            notes.excuses.lie |= armed.kind.lies();
            notes.excuses.misread |= armed.kind == FaultKind::FlippedRead;
            drop(notes);
            self.in_doubt |= armed.has_failed_syncs();
            self.is_stale |= self.in_doubt;
            if armed.kind.lies() {
                self.lied_at.get_or_insert(self.armed_at);
            }
        } else {
            self.armed_at = self.disk().recorded_len();
        }
    }

    /// Drops from the cache what it takes for clean. Only a poisoned engine may notice.
    fn evict(&mut self) {
        let seed = self.weather.bits();
        if self.disk().evict(seed) > 0 {
            self.disk().annotate("clean pages left the cache");
            self.ledger.notes().tally.came(Consequence::ReadOld);
        }
    }
}
