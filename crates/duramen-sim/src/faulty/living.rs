//! One boot of a database on a disk that fails: what it goes through from the start of the machine to the power cut.
//!
//! Owns the order of events, and when faults begin and end. What is done comes from one stream of the seed and what fails from
//! another. After each failure the database goes on, or is opened again in the same boot with the cache as it is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::memory::{Blocker, Trace};
use duramen_disk::{Disk, MemDisk};
use duramen_engine::{Builtin, Durability, Engine, ErrorKind, Hooks, Options, Snapshot};

use super::book::Book;
use super::ledger::{Aim, Excuses, Ledger};
use super::storm::{Armed, FaultKind};
use super::tally::{Consequence, Tally};
use crate::contents::Contents;
use crate::search::compare::snapshot_equals;
use crate::search::model::State;
use crate::search::random::{Random, joined};
use crate::search::run::some_level;
use crate::search::shapes::Shape;

const PATH: &str = "/db";

/// Attempts to open that a fault may end, in a row.
const STORMY_OPENS_MAX: usize = 3;

/// Events that a fault stays for, at most.
const ARMED_EVENTS_MAX: usize = 4;

/// Operations that a failure tells of.
const OPERATIONS_TOLD: usize = 60;

/// Whether life goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// It does.
    On,
    /// The medium lied, and the database says so.
    Over,
}

/// What a boot has left behind.
#[derive(Debug)]
pub struct Boot {
    /// Everything that changed its disk.
    pub trace: Trace,
    /// What may be found at each cut.
    pub book: Book,
    /// How the database was opened.
    pub options: Options,
    /// The operation before which the database had been created, if it was.
    pub created_at: Option<usize>,
    /// Its identity.
    pub database: Option<String>,
    /// The operation before which the medium had not lied yet.
    pub lied_at: Option<usize>,
    /// Where the disk was full.
    pub full: Vec<Range<usize>>,
    /// What was met.
    pub tally: Tally,
}

/// A boot under way.
pub struct Living {
    ledger: Arc<Ledger>,
    options: Options,
    engine: Option<Engine>,
    /// What is done.
    random: Random,
    /// What fails.
    weather: Random,
    armed: Option<(Armed, usize)>,
    armed_at: usize,
    created_at: Option<usize>,
    database: Option<String>,
    lied_at: Option<usize>,
    full: Vec<Range<usize>>,
    held: Vec<(Snapshot, State)>,
    /// A sync may have failed: what was only written is not promised to the next opening.
    in_doubt: bool,
    /// A sync may have failed in this boot: the cache may hold clean pages that are not on the medium.
    is_stale: bool,
    /// The engine is poisoned, and that was looked into.
    is_poisoned: bool,
}

/// What is known of a database before the machine starts.
#[derive(Debug)]
pub struct Before {
    /// Its disk.
    pub disk: MemDisk,
    /// What may be found there.
    pub book: Book,
    /// How it is opened.
    pub options: Options,
    /// Its identity, if it was created.
    pub database: Option<String>,
    /// Whether the medium has lied.
    pub has_lied: bool,
}

impl Living {
    /// Starts the machine.
    #[must_use]
    pub fn start(before: Before, seed: u64) -> Living {
        let Before { disk, book, options, database, has_lied } = before;
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
            created_at: database.is_some().then_some(0),
            database,
            lied_at: has_lied.then_some(0),
            full: Vec::new(),
            held: Vec::new(),
            in_doubt: false,
            is_stale: false,
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

    /// Whether nothing is acknowledged any more.
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

    /// Cuts the power: everything that was done and told until here.
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
        let Living { options, created_at, database, lied_at, full, .. } = self;
        Boot { trace, book, options, created_at, database, lied_at, full, tally }
    }

    fn arm(&mut self, armed: Armed, events: usize) {
        self.disarm();
        self.ledger.notes().excuses.fault = true;
        self.disk().annotate(format!("armed: {}", armed.kind.name()));
        self.armed_at = self.disk().recorded_len();
        self.armed = Some((armed, events));
    }

    /// Ends a fault, and notes what it means if it was met.
    fn disarm(&mut self) {
        let Some((armed, _)) = self.armed.take() else { return };
        let (kind, now) = (armed.kind, self.disk().recorded_len());
        if kind == FaultKind::FullDisk {
            self.full.push(self.armed_at..now + 1);
        }
        let is_met = armed.end();
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
        drop(notes);
        self.in_doubt |= kind.fails_syncs();
        self.is_stale |= self.in_doubt;
    }

    /// A fault that was met has its meaning from the call on that met it.
    fn note_met(&mut self) {
        let Some((armed, _)) = &self.armed else { return };
        if armed.is_met() {
            let mut notes = self.ledger.notes();
            notes.excuses.lie |= armed.kind.lies();
            notes.excuses.misread |= armed.kind == FaultKind::FlippedRead;
            drop(notes);
            self.in_doubt |= armed.kind.fails_syncs();
            self.is_stale |= self.in_doubt;
            if armed.kind.lies() {
                self.lied_at.get_or_insert(self.armed_at);
            }
        } else {
            self.armed_at = self.disk().recorded_len();
        }
    }

    /// The cache lets go of what it takes for clean. Only a poisoned engine may notice.
    fn evict(&mut self) {
        let seed = self.weather.bits();
        if self.disk().evict(seed) > 0 {
            self.disk().annotate("clean pages left the cache");
            self.ledger.notes().tally.came(Consequence::ReadOld);
        }
    }

    fn open(&self) -> Result<Engine, duramen_engine::Error> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk().clone());
        let answer_before_replay = Some(self.disk().recorded_len().is_multiple_of(2));
        let options =
            Options { create: self.created_at.is_none(), answer_before_replay, ..self.options.clone() };
        Engine::open(disk, Path::new(PATH), options, Hooks::default())
    }

    /// Opens the database, at last on a healthy disk, and holds what it finds against the book.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn arrive(&mut self, is_stormy: bool) -> Result<Going, String> {
        self.ledger.notes().excuses.fault = false;
        self.ledger.notes().excuses.misread = false;
        if is_stormy {
            self.open_in_storm()?;
        }
        if self.engine.is_none() {
            if self.is_stale && self.weather.chance(1, 2) {
                self.evict();
            }
            match self.open() {
                Ok(engine) => self.engine = Some(engine),
                Err(error) if self.ledger.notes().excuses.lie && error.kind() == ErrorKind::Corrupt => {
                    self.ledger.notes().tally.came(Consequence::NamedAtOpen);
                    return Ok(Going::Over);
                }
                Err(error) => return Err(format!("does not open: {} {error}", error.code())),
            }
        }
        self.found()
    }

    fn open_in_storm(&mut self) -> Result<(), String> {
        for _ in 0..self.weather.between(1, STORMY_OPENS_MAX) {
            let armed = Armed::draw_for_opening(&self.ledger.disk, &mut self.weather);
            self.arm(armed, 0);
            let evicts = self.weather.chance(1, 2);
            if evicts {
                // What a failed sync left in the cache goes while the log is being read and copied.
                let (disk, seed) = (self.disk().clone(), self.weather.bits());
                let evicting: Blocker = Arc::new(move |_: &Path| {
                    disk.evict(seed);
                });
                self.disk().set_blocker(Some(evicting));
            }
            let opened = self.open();
            self.disk().set_blocker(None);
            let met = self.armed.as_ref().filter(|(armed, _)| armed.is_met()).map(|(armed, _)| armed.kind);
            self.disarm();
            match opened {
                Ok(engine) => {
                    if met.is_some() {
                        self.ledger.notes().tally.came(Consequence::OpenWentOn);
                    }
                    self.engine = Some(engine);
                    return Ok(());
                }
                Err(error) => self.not_opened(&error, met, evicts)?,
            }
            self.evict();
        }
        Ok(())
    }

    /// A fault ends an opening, and so does a log that reads otherwise the second time.
    fn not_opened(
        &self,
        error: &duramen_engine::Error,
        met: Option<FaultKind>,
        evicts: bool,
    ) -> Result<(), String> {
        self.disk().annotate(format!("not opened: {error}"));
        let mut notes = self.ledger.notes();
        match error.kind() {
            ErrorKind::Io | ErrorKind::Full | ErrorKind::InDoubt | ErrorKind::Poisoned
                if met.is_some() || evicts =>
            {
                notes.tally.came(Consequence::OpenFailed);
                Ok(())
            }
            ErrorKind::Corrupt if notes.excuses.lie || met == Some(FaultKind::FlippedRead) => Ok(()),
            kind => Err(format!("with the fault {met:?}, opening says {kind:?}: {} {error}", error.code())),
        }
    }

    /// What an opening found must be in the book, and stays.
    fn found(&mut self) -> Result<Going, String> {
        let now = self.disk().recorded_len();
        let snapshot = self.engine().snapshot().map_err(|e| format!("snapshot: {e}"))?;
        let seq = snapshot.seq().0;
        let (floor, state, doubt) = {
            let notes = self.ledger.notes();
            let book = &notes.book;
            let floor = if self.in_doubt { book.floor(now) } else { book.floor(now).max(book.written()) };
            (floor, book.at(now, seq).cloned(), book.doubt(now))
        };
        let Some(state) = state.filter(|_| seq >= floor) else {
            return Err(format!(
                "found commit {seq}, which is not one that may be there; {floor} was promised"
            ));
        };
        if let Some(doubt) = doubt {
            let came = if seq >= doubt { Consequence::DoubtKept } else { Consequence::DoubtLost };
            self.ledger.notes().tally.came(came);
        }
        let database = self.engine().posture().database.to_string();
        if self.database.as_ref().is_some_and(|known| *known != database) {
            return Err(format!("the database {database} was made in place of the one that was there"));
        }
        self.compare(&snapshot, &state).map_err(|what| format!("opened at commit {seq}: {what}"))?;
        drop(snapshot);
        self.disk().annotate(format!("opened at commit {seq}"));
        self.created_at.get_or_insert(now);
        self.database = Some(database);
        self.ledger.notes().book.found(seq, now);
        self.in_doubt = false;
        self.is_poisoned = false;
        if self.may_misread() {
            // Whatever it finds, it ends.
            drop(self.engine().check());
        } else {
            self.check().map_err(|what| format!("opened at commit {seq}: {what}"))?;
        }
        Ok(Going::On)
    }

    /// The engine's own check, with every block accounted for.
    fn check(&self) -> Result<(), String> {
        let report = self.engine().check().map_err(|error| format!("check: {error}"))?;
        if report.problems.is_empty() && report.unreached.is_empty() {
            return Ok(());
        }
        Err(format!("check: problems {:?}, unreached {:?}", report.problems, report.unreached))
    }

    fn may_misread(&self) -> bool {
        let excuses = self.ledger.notes().excuses;
        excuses.lie || excuses.misread || self.armed.is_some()
    }

    /// Every answer is right. Where reads may fail, an answer may be an error, and is never wrong (D4).
    fn compare(&mut self, snapshot: &Snapshot, state: &State) -> Result<(), String> {
        if !self.may_misread() {
            return snapshot_equals(snapshot, state, &mut self.random);
        }
        let comparison = contents_of(state).compare(snapshot);
        if let Some(wrong) = comparison.wrong {
            return Err(format!("a wrong answer: {wrong}"));
        }
        let engine = self.engine();
        comparison.errors.iter().try_for_each(|error| self.ledger.excused(engine, "a read", error))
    }

    /// Compares what is published with the book.
    ///
    /// # Errors
    /// What differs.
    pub fn look(&mut self) -> Result<(), String> {
        let snapshot = self.engine().snapshot().map_err(|e| format!("snapshot: {e}"))?;
        let (seq, now) = (snapshot.seq().0, self.disk().recorded_len());
        let state = self.ledger.notes().book.at(now, seq).cloned();
        let state = state.ok_or_else(|| format!("commit {seq} is published, and was never made"))?;
        self.compare(&snapshot, &state).map_err(|what| format!("at commit {seq}: {what}"))
    }

    /// One event of a life in which calls fail; with lies of the medium instead, if it is a life of lies.
    ///
    /// # Errors
    /// What broke a promise.
    pub fn event(&mut self, is_lied_to: bool) -> Result<Going, String> {
        self.change_weather(is_lied_to);
        let now = self.disk().recorded_len();
        self.ledger.notes().event_at = now;
        let going = self.act()?;
        self.settle(going)
    }

    /// A fault ends, or stays, or one begins.
    fn change_weather(&mut self, is_lied_to: bool) {
        if let Some((_, events)) = &mut self.armed {
            if *events > 0 {
                *events -= 1;
            } else {
                self.disarm();
            }
        } else if is_lied_to && self.lied_at.is_none() && self.weather.chance(1, 3) {
            let armed = Armed::draw_lie(&self.ledger.disk, &mut self.weather);
            self.arm(armed, ARMED_EVENTS_MAX);
        } else if !is_lied_to && self.weather.chance(1, 5) {
            let armed = Armed::draw(&self.ledger.disk, &mut self.weather);
            let events = self.weather.below(ARMED_EVENTS_MAX);
            self.arm(armed, events);
        }
    }

    /// One event on a healthy disk.
    ///
    /// # Errors
    /// What broke a promise.
    pub fn calm_event(&mut self) -> Result<Going, String> {
        let now = self.disk().recorded_len();
        self.ledger.notes().event_at = now;
        match self.random.below(10) {
            0..=2 => self.checkpoint()?,
            3 => self.step()?,
            4..=7 => self.transaction(Shape::Small)?,
            8 => self.transaction(Shape::Big)?,
            _ => self.transaction(Shape::Catalogue)?,
        }
        self.settle(Going::On)
    }

    /// What holds after every event.
    fn settle(&mut self, going: Going) -> Result<Going, String> {
        self.note_met();
        if let Some(what) = self.ledger.notes().failure.take() {
            return Err(what);
        }
        if going == Going::Over {
            return Ok(going);
        }
        self.ledger.note_durable(self.engine());
        if self.engine().posture().poisoned.is_some() {
            if !self.is_poisoned {
                self.probe_poisoned()?;
            }
        } else if let Ok(transaction) = self.engine().begin() {
            self.ledger.reconcile(transaction.base_seq().0)?;
        }
        if self.is_stale && self.weather.chance(1, 3) {
            self.evict();
        }
        Ok(Going::On)
    }

    fn act(&mut self) -> Result<Going, String> {
        if self.is_poisoned && self.random.chance(2, 3) {
            return self.reopen(false);
        }
        match self.random.below(40) {
            0..=10 => self.transaction(Shape::Small)?,
            11..=13 => self.transaction(Shape::Bulk)?,
            14..=15 => self.transaction(Shape::Shrink)?,
            16..=19 => self.transaction(Shape::Big)?,
            20..=21 => self.transaction(Shape::Catalogue)?,
            22 => self.given_up()?,
            23..=25 => self.sealed_behind()?,
            26..=29 => self.checkpoint()?,
            30..=31 => self.step()?,
            32 => self.idle(150)?,
            33 => self.idle(1100)?,
            34 => self.hold()?,
            35 => self.let_go()?,
            36 => self.look()?,
            37 => return self.reopen(true),
            _ => return self.reopen(false),
        }
        Ok(Going::On)
    }

    fn transact(&mut self, shape: Shape, level: Durability, hook: Option<Blocker>) -> Result<(), String> {
        let (ledger, geometry) = (Arc::clone(&self.ledger), self.options.geometry);
        let engine = self.engine().clone();
        let aim = Aim { shape, level, hook, is_inner: false, random: &mut self.random };
        ledger.transact(&engine, geometry, aim)
    }

    fn transaction(&mut self, shape: Shape) -> Result<(), String> {
        let level = some_level(&mut self.random);
        self.transact(shape, level, None)?;
        if level != Durability::Disk && self.random.chance(1, 3) {
            self.transact(Shape::Small, Durability::Disk, None)?;
        }
        Ok(())
    }

    fn given_up(&mut self) -> Result<(), String> {
        let (ledger, geometry) = (Arc::clone(&self.ledger), self.options.geometry);
        let engine = self.engine().clone();
        let shape = *self.random.pick(&[Shape::Small, Shape::Big, Shape::Catalogue]);
        let random = &mut self.random;
        let mut aim = Aim { shape, level: Durability::Disk, hook: None, is_inner: false, random };
        ledger.draft(&engine, geometry, &mut aim).map(drop)
    }

    /// One group syncs while the next is sealed, and the sync may fail.
    fn sealed_behind(&mut self) -> Result<(), String> {
        let shape = *self.random.pick(&[Shape::Small, Shape::Small, Shape::Bulk, Shape::Big]);
        let (seed, geometry) = (self.random.bits(), self.options.geometry);
        let hook = self.ledger.blocker(self.engine(), geometry, ".wal", seed);
        self.transact(shape, Durability::Disk, Some(hook))
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let (ledger, engine) = (Arc::clone(&self.ledger), self.engine().clone());
        let geometry = self.options.geometry;
        if self.random.chance(1, 3) {
            let seed = self.random.bits();
            self.disk().set_blocker(Some(ledger.blocker(&engine, geometry, "/data", seed)));
        }
        let random = &mut self.random;
        let quiet = random.chance(1, 2);
        let written = engine.checkpoint_with(&mut || {
            if !quiet && random.chance(1, 4) {
                let levels = [Durability::Memory, Durability::Process, Durability::Disk];
                ledger.inner_commits(&engine, geometry, random, &levels);
            }
        });
        self.disk().set_blocker(None);
        match written {
            Ok(()) => Ok(()),
            Err(error) => self.ledger.excused(&engine, "a checkpoint", &error),
        }
    }

    /// What is due behind the scenes, empty commits for dropped trees among it.
    fn step(&mut self) -> Result<(), String> {
        let began_at = self.disk().recorded_len();
        let engine = self.engine().clone();
        let Err(error) = engine.step() else { return Ok(()) };
        if !self.is_poisoned {
            // An empty commit may have been under way; it changes nothing.
            let now = self.disk().recorded_len();
            let is_in_doubt = engine.posture().poisoned.is_some();
            let mut notes = self.ledger.notes();
            let seq = notes.book.begin(&[], began_at);
            if !is_in_doubt {
                notes.book.refused(seq, now);
            }
        }
        self.ledger.excused(&engine, "a step", &error)
    }

    fn idle(&mut self, ms: u64) -> Result<(), String> {
        self.step()?;
        self.disk().advance_clock(ms * 1_000_000);
        self.step()
    }

    fn hold(&mut self) -> Result<(), String> {
        let snapshot = self.engine().snapshot().map_err(|e| format!("snapshot: {e}"))?;
        let (seq, now) = (snapshot.seq().0, self.disk().recorded_len());
        let state = self.ledger.notes().book.at(now, seq).cloned();
        self.held.push((snapshot, state.ok_or_else(|| format!("commit {seq} was never made"))?));
        Ok(())
    }

    /// A snapshot is what it was, whatever has failed since.
    fn let_go(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (snapshot, state) = self.held.swap_remove(self.random.below(self.held.len()));
        self.compare(&snapshot, &state).map_err(|what| format!("a snapshot that was held: {what}"))
    }

    /// D6: a poisoned engine acknowledges nothing and goes on reading.
    fn probe_poisoned(&mut self) -> Result<(), String> {
        self.is_poisoned = true;
        self.disk().annotate("poisoned");
        // Which sync it was does not matter: what is not durable is in doubt.
        self.in_doubt = true;
        self.ledger.notes().excuses.misread = true;
        self.ledger.notes().tally.came(Consequence::Poisoned);
        for level in [Durability::Disk, Durability::Process, Durability::Memory] {
            let outcome = self.engine().transact(level, |tx| tx.create_tree("never", None));
            match outcome.map_err(|error| error.kind()) {
                // Where the log's tail could not be brought into the trees, that error comes first.
                Err(ErrorKind::Poisoned | ErrorKind::Io | ErrorKind::Corrupt) => {}
                other => return Err(format!("poisoned, and a commit at {level:?} says {other:?}")),
            }
        }
        if self.engine().checkpoint().is_ok() {
            return Err("poisoned, and a checkpoint succeeds".to_owned());
        }
        let weak = self.ledger.notes().weak.take();
        let durable = self.engine().posture().durable;
        if let Some(weak) = weak.filter(|receipt| receipt.seq() > durable)
            && weak.wait(Durability::Disk).is_ok()
        {
            return Err(format!("poisoned, and commit {} became durable", weak.seq()));
        }
        self.look().map_err(|what| format!("poisoned: {what}"))
    }

    /// Ends the process and opens the database again in the same boot: the cache is as it was.
    fn reopen(&mut self, cleanly: bool) -> Result<Going, String> {
        self.held.clear();
        let engine = self.engine.take().expect("the engine is taken only while it is opened again");
        self.disk().annotate(if cleanly { "closing" } else { "killed" });
        self.ledger.notes().weak = None;
        if cleanly {
            let closed = engine.close();
            let is_poisoned = engine.posture().poisoned.is_some();
            match closed {
                Ok(()) if !is_poisoned => {
                    let now = self.disk().recorded_len();
                    let mut notes = self.ledger.notes();
                    let last = notes.book.latest().seq;
                    notes.book.promise(now, last);
                }
                Ok(()) => self.in_doubt = true,
                Err(error) => {
                    self.in_doubt |= is_poisoned;
                    self.ledger.excused(&engine, "closing", &error)?;
                }
            }
            drop(engine);
        } else {
            engine.abandon();
        }
        self.note_met();
        self.disarm();
        if self.is_poisoned {
            self.ledger.notes().tally.came(Consequence::Reopened);
        }
        let is_stormy = self.ledger.notes().excuses.fault && !self.ledger.notes().excuses.lie;
        let is_stormy = is_stormy && self.weather.chance(1, 2);
        self.arrive(is_stormy)
    }
}

/// A state as the comparison that survives errors takes it.
fn contents_of(state: &State) -> Contents {
    let mut contents = Contents::default();
    for (name, tree) in &state.trees {
        let copy = contents.tree_mut(name);
        copy.reducer = tree.sums.then_some(Builtin::Sum);
        copy.rows =
            tree.rows.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect::<BTreeMap<_, _>>();
    }
    contents
}
