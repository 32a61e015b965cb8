//! What one boot has done and the results it got, shared with the hooks that commit in syncs and checkpoints.
//!
//! Owns the meaning of every error: each result is checked against the contract (docs/durability.md, D6 and
//! D7), and the book is updated with what may be there. Locked for moments, never across a call of the
//! engine.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duramen_disk::MemDisk;
use duramen_disk::memory::Blocker;
use duramen_engine::{Durability, Engine, Error, ErrorKind, Geometry, Receipt, Transaction};

use super::book::Book;
use super::tally::{Consequence, Tally};
use crate::search::model::{Effect, State};
use crate::search::random::Random;
use crate::search::shapes::{Shape, TEMPORARY};
use crate::search::writer::Filling;

/// The errors that are excused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Excuses {
    /// The current fault makes calls fail for want of room.
    pub full: bool,
    /// The current fault makes calls fail with another error.
    pub io: bool,
    /// A call has met a fault since the database was opened, and the fault is over. If the call was a
    /// write-out, the next sync reports the error and poisons the engine.
    pub is_past: bool,
    /// The medium lied since it was made.
    pub lie: bool,
    /// The fault in force makes an answer wrong as soon as a call meets it, possibly within the event under
    /// way.
    pub corrupts_if_met: bool,
    /// A read was flipped, or pages may read old, since the database was opened.
    pub misread: bool,
}

/// State shared by the hooks and the life.
#[derive(Debug)]
pub struct Ledger {
    /// The disk, recording.
    pub disk: MemDisk,
    notes: Mutex<Notes>,
}

/// The notes.
#[derive(Debug, Default)]
pub struct Notes {
    /// The states that may be there.
    pub book: Book,
    /// The errors that are excused.
    pub excuses: Excuses,
    /// Faults and consequences met.
    pub tally: Tally,
    /// A failure where no error can be returned: inside a sync.
    pub failure: Option<String>,
    /// A receipt that no sync has covered, as far as is known.
    pub weak: Option<Receipt>,
    /// The number of operations before the current event began.
    pub event_at: usize,
}

/// What is committed, how, and what happens inside.
pub struct Aim<'a> {
    /// What the transaction does.
    pub shape: Shape,
    /// What it waits for.
    pub level: Durability,
    /// The hook that the disk calls in the commit's syncs.
    pub hook: Option<Blocker>,
    /// Whether to leave the trees alone that come and go: another thread may be dropping them.
    pub is_inner: bool,
    /// The source of its rows.
    pub random: &'a mut Random,
}

impl Ledger {
    /// A ledger for a disk whose database is in one of the states of the book.
    #[must_use]
    pub fn new(disk: MemDisk, book: Book, excuses: Excuses) -> Ledger {
        Ledger { disk, notes: Mutex::new(Notes { book, excuses, ..Notes::default() }) }
    }

    /// The notes, locked.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks an error of a call against the contract.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn excused(&self, engine: &Engine, doing: &str, error: &Error) -> Result<(), String> {
        let poisoned = engine.durability_status().poisoned.is_some();
        let mut notes = self.notes();
        let excuses = notes.excuses;
        let is_corrupted = excuses.corrupts_if_met && self.disk.fault_hit_count() > 0;
        let came = match error.kind() {
            ErrorKind::Conflict => return Ok(()),
            ErrorKind::Full if excuses.full => Consequence::RefusedFull,
            ErrorKind::Io if excuses.io => Consequence::RefusedIo,
            ErrorKind::Full | ErrorKind::Io if excuses.is_past && poisoned => Consequence::RefusedIo,
            ErrorKind::InDoubt if poisoned => Consequence::InDoubt,
            ErrorKind::Poisoned if poisoned => return Ok(()),
            ErrorKind::Corrupt if excuses.lie || excuses.misread || is_corrupted => Consequence::NamedLater,
            kind => return Err(format!("{doing} says {kind:?}: {} {error}", error.code())),
        };
        notes.tally.came(came);
        Ok(())
    }

    /// Brings the book to the state at which the engine begins new transactions: commits taken back are
    /// removed, and commits that the engine made by itself are added.
    ///
    /// # Errors
    /// A commit was taken back that was acknowledged as written.
    pub fn reconcile(&self, sealed: u64) -> Result<(), String> {
        let now = self.disk.recorded_len();
        let mut notes = self.notes();
        let event_at = notes.event_at;
        while notes.book.latest().seq < sealed {
            let seq = notes.book.begin(&[], event_at);
            notes.book.acknowledged(seq, Durability::Memory);
        }
        if notes.book.latest().seq > sealed {
            let strongest = notes.book.refused(sealed + 1, now);
            if strongest > Some(Durability::Memory) {
                return Err(format!(
                    "commits after {sealed} were taken back, and one was acknowledged at {strongest:?}"
                ));
            }
            notes.tally.came(Consequence::TakenBack);
        }
        Ok(())
    }

    /// Adds the commits that a compaction has made so far.
    pub fn follow(&self, engine: &Engine) {
        let Ok(transaction) = engine.begin() else { return };
        if let Err(what) = self.reconcile(transaction.base_seq().0) {
            self.notes().failure.get_or_insert(what);
        }
    }

    /// Fills a transaction. `None` if a fault ended it.
    ///
    /// # Errors
    /// An error that is not excused.
    pub fn draft(
        &self,
        engine: &Engine,
        geometry: Geometry,
        aim: &mut Aim<'_>,
    ) -> Result<Option<(Transaction, Vec<Effect>)>, String> {
        let mut transaction = match engine.begin() {
            Ok(transaction) => transaction,
            Err(error) => return self.excused(engine, "begin", &error).map(|()| None),
        };
        self.reconcile(transaction.base_seq().0)?;
        let mut state: State = self.notes().book.latest().state.clone();
        if aim.is_inner {
            state.trees.retain(|name, _| !name.starts_with(TEMPORARY));
        }
        let mut effects = Vec::new();
        let mut filling = Filling { transaction: &mut transaction, geometry, effects: &mut effects };
        let has_trees = state.trees.contains_key("plain");
        let filled = if has_trees {
            aim.shape.fill(&mut filling, &state, aim.random)
        } else {
            crate::search::shapes::found_trees(&mut filling, &state)
        };
        match filled {
            Ok(()) if effects.is_empty() => Ok(None),
            Ok(()) => Ok(Some((transaction, effects))),
            Err(error) => {
                drop(transaction);
                self.excused(engine, "a transaction", &error).map(|()| None)
            }
        }
    }

    /// Commits a transaction of a shape, and notes how it ended.
    ///
    /// # Errors
    /// What is wrong with how it ended.
    pub fn transact(&self, engine: &Engine, geometry: Geometry, mut aim: Aim<'_>) -> Result<(), String> {
        let Some((transaction, effects)) = self.draft(engine, geometry, &mut aim)? else { return Ok(()) };
        self.disk.annotate(format!("commit, {} at {:?}", aim.shape.name(), aim.level));
        let seq = self.notes().book.begin(&effects, self.disk.recorded_len());
        if aim.hook.is_some() {
            self.disk.set_blocker(aim.hook.take());
        }
        let outcome = transaction.commit(aim.level);
        if !aim.is_inner {
            self.disk.set_blocker(None);
        }
        match outcome {
            Ok(receipt) => self.acknowledged(seq, receipt, aim.level),
            Err(error) => {
                self.disk.annotate(format!("refused: {:?}", error.kind()));
                if error.kind() != ErrorKind::InDoubt {
                    self.notes().book.refused(seq, self.disk.recorded_len());
                }
                self.excused(engine, &format!("a commit at {:?}", aim.level), &error)
            }
        }
    }

    fn acknowledged(&self, seq: u64, receipt: Receipt, level: Durability) -> Result<(), String> {
        let found = receipt.seq().0;
        if found != seq {
            return Err(format!("a commit got place {found} in the order, and {seq} was the next"));
        }
        self.disk.annotate(format!("committed {seq}"));
        let now = self.disk.recorded_len();
        let mut notes = self.notes();
        notes.book.acknowledged(seq, level.max(receipt.durability()));
        if receipt.durability() == Durability::Disk {
            notes.book.promise(now, seq);
        } else {
            notes.weak = Some(receipt);
        }
        Ok(())
    }

    /// A commit that the engine reports as durable is promised, too.
    pub fn note_durable(&self, engine: &Engine) {
        let durable = engine.stats().commit.durable.0;
        let now = self.disk.recorded_len();
        self.notes().book.promise(now, durable);
    }

    /// Commits while another commit or a checkpoint is in progress.
    pub fn inner_commits(
        &self,
        engine: &Engine,
        geometry: Geometry,
        random: &mut Random,
        levels: &[Durability],
    ) {
        for _ in 0..random.between(1, 3) {
            let level = *random.pick(levels);
            let aim = Aim { shape: Shape::Small, level, hook: None, is_inner: true, random };
            if let Err(what) = self.transact(engine, geometry, aim) {
                let what = format!("inside a sync or a checkpoint: {what}");
                self.notes().failure.get_or_insert(what);
            }
        }
    }

    /// A hook that commits in one of the next syncs of a file.
    #[must_use]
    pub fn blocker(
        self: &Arc<Ledger>,
        engine: &Engine,
        geometry: Geometry,
        part: &'static str,
        seed: u64,
    ) -> Blocker {
        let (ledger, engine) = (Arc::clone(self), engine.clone());
        let levels: &[Durability] = if part == ".wal" {
            &[Durability::Memory]
        } else {
            &[Durability::Memory, Durability::Process, Durability::Disk]
        };
        let wait = Mutex::new(seed % 2);
        Arc::new(move |path: &Path| {
            if !path.to_string_lossy().contains(part) {
                return;
            }
            let mut wait = wait.lock().unwrap_or_else(PoisonError::into_inner);
            let is_now = *wait == 0;
            *wait = wait.wrapping_sub(1);
            drop(wait);
            if is_now {
                ledger.inner_commits(&engine, geometry, &mut Random::new(seed), levels);
            }
        })
    }
}
