//! How the database of a boot is opened, also while calls fail, and how each opening is checked.
//!
//! Owns the verdict on what an opening and a snapshot show: the state, the feed, the engine's own check.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::Disk;
use duramen_disk::memory::Blocker;
use duramen_engine::{Builtin, Engine, Error, ErrorKind, Hooks, Options, Snapshot};

use super::{Going, Living, PATH, STORMY_OPENS_MAX};
use crate::contents::Contents;
use crate::faulty::storm::{Armed, FaultKind};
use crate::faulty::tally::Consequence;
use crate::search::compare::snapshot_equals;
use crate::search::feed::feed_equals;
use crate::search::model::State;

/// The error of an opening when the cache drops pages of the log while they are read.
const LOG_CHANGED: &str = "the log changed while it was opened";

impl Living {
    fn open(&self) -> Result<Engine, Error> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk().clone());
        let answer_before_replay = Some(self.disk().recorded_len().is_multiple_of(2));
        let options =
            Options { create: self.created_at.is_none(), answer_before_replay, ..self.options.clone() };
        Engine::open(disk, Path::new(PATH), options, Hooks::default())
    }

    /// Opens the database, at last on a healthy disk, and checks what it finds against the book.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn arrive(&mut self, is_stormy: bool) -> Result<Going, String> {
        let mut notes = self.ledger.notes();
        (notes.excuses.misread, notes.excuses.is_past) = (false, false);
        drop(notes);
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
                // What a failed sync left in the cache is dropped while the log is read and copied.
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
                Err(error) if evicts && error.message().ends_with(LOG_CHANGED) => {}
                Err(error) => self.not_opened(&error, met)?,
            }
            self.evict();
        }
        Ok(())
    }

    /// A fault that was met ends an opening.
    fn not_opened(&self, error: &Error, met: Option<FaultKind>) -> Result<(), String> {
        self.disk().annotate(format!("not opened: {error}"));
        let mut notes = self.ledger.notes();
        match error.kind() {
            ErrorKind::Io | ErrorKind::Full | ErrorKind::InDoubt | ErrorKind::Poisoned if met.is_some() => {
                notes.tally.came(Consequence::OpenFailed);
                Ok(())
            }
            ErrorKind::Corrupt if notes.excuses.lie || met == Some(FaultKind::FlippedRead) => Ok(()),
            kind => Err(format!("with the fault {met:?}, opening says {kind:?}: {} {error}", error.code())),
        }
    }

    /// Checks that an opening found a commit of the book; it is there from now on.
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
        let database = self.engine().durability_status().database.to_string();
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
            // Only that it returns matters.
            drop(self.engine().check());
        } else {
            let fed = self.feed_equals(now, seq);
            fed.and_then(|()| self.check()).map_err(|what| format!("opened at commit {seq}: {what}"))?;
        }
        Ok(Going::On)
    }

    /// Checks that the retained changes lead through every state. A feed that cannot retain for a minute
    /// releases changes.
    fn feed_equals(&self, now: usize, seq: u64) -> Result<(), String> {
        if self.options.feed_retain_bytes == 0 {
            return Ok(());
        }
        let oldest = self.engine().feed_stats().oldest.0;
        let notes = self.ledger.notes();
        feed_equals(self.engine(), oldest, &|seq| notes.book.at(now, seq), seq)
    }

    /// The engine's own check, with every block accounted for.
    fn check(&self) -> Result<(), String> {
        let report = self.engine().check().map_err(|error| format!("check: {error}"))?;
        if report.problems.is_empty() && (report.unreached.is_empty() || self.may_leak) {
            return Ok(());
        }
        Err(format!("check: problems {:?}, unreached {:?}", report.problems, report.unreached))
    }

    fn may_misread(&self) -> bool {
        let excuses = self.ledger.notes().excuses;
        excuses.lie || excuses.misread || self.armed.is_some()
    }

    /// Checks that every answer is right. Where reads may fail, an answer may be an error, but never wrong
    /// (D4).
    pub(super) fn compare(&mut self, snapshot: &Snapshot, state: &State) -> Result<(), String> {
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

    /// Compares the published state with the book.
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
}

/// A state in the form of the comparison that tolerates errors.
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
