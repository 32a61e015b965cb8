//! The events of a boot: transactions, checkpoints, passing time, ends of the process, and faults that begin
//! and end.
//!
//! Owns the order of events. One stream of the seed decides what is done, and another what fails.

use std::sync::Arc;

use duramen_disk::memory::Blocker;
use duramen_engine::{Durability, ErrorKind};

use super::{ARMED_EVENTS_MAX, Going, Living};
use crate::faulty::ledger::Aim;
use crate::faulty::storm::Armed;
use crate::faulty::tally::Consequence;
use crate::search::run::some_level;
use crate::search::shapes::Shape;

impl Living {
    /// One event of a life in which calls fail, or in which the medium lies.
    ///
    /// # Errors
    /// A broken promise.
    pub fn event(&mut self, is_lied_to: bool) -> Result<Going, String> {
        self.may_fail = !is_lied_to;
        self.change_weather(is_lied_to);
        let now = self.disk().recorded_len();
        self.ledger.notes().event_at = now;
        let going = self.act()?;
        self.settle(going)
    }

    /// Ends a fault, keeps it, or begins one.
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
    /// A broken promise.
    pub fn calm_event(&mut self) -> Result<Going, String> {
        let now = self.disk().recorded_len();
        self.ledger.notes().event_at = now;
        match self.random.below(11) {
            0..=2 => self.checkpoint()?,
            3 => self.step()?,
            4..=7 => self.transaction(Shape::Small)?,
            8 => self.transaction(Shape::Big)?,
            9 => self.compact()?,
            _ => self.transaction(Shape::Catalogue)?,
        }
        self.settle(Going::On)
    }

    /// Checks what must hold after every event.
    fn settle(&mut self, going: Going) -> Result<Going, String> {
        self.note_met();
        if let Some(what) = self.ledger.notes().failure.take() {
            return Err(what);
        }
        if going == Going::Over {
            return Ok(going);
        }
        self.ledger.note_durable(self.engine());
        if self.engine().durability_status().poisoned.is_some() {
            if !self.is_poisoned {
                self.probe_poisoned()?;
            }
        } else {
            match self.engine().begin() {
                Ok(transaction) => self.ledger.reconcile(transaction.base_seq().0)?,
                Err(error) => self.ledger.excused(self.engine(), "begin", &error)?,
            }
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
        match self.random.below(42) {
            0..=10 => self.transaction(Shape::Small)?,
            11..=13 => self.transaction(Shape::Bulk)?,
            14..=15 => self.transaction(Shape::Shrink)?,
            16..=19 => self.transaction(Shape::Big)?,
            20..=21 => self.transaction(Shape::Catalogue)?,
            22 => self.given_up()?,
            23..=25 => self.ordered_in_a_sync()?,
            26..=29 => self.checkpoint()?,
            30..=31 => self.step()?,
            32 => self.idle(150)?,
            33 => self.idle(1100)?,
            34 => self.hold()?,
            35 => self.let_go()?,
            36 => self.look()?,
            37..=38 => self.compact()?,
            39 => return self.reopen(true),
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

    /// One group syncs while the next is ordered, and the sync may fail.
    fn ordered_in_a_sync(&mut self) -> Result<(), String> {
        if self.armed.is_none() && self.may_fail && self.weather.chance(1, 4) {
            self.arm(Armed::second_group(&self.ledger.disk), 0);
        }
        let shape = *self.random.pick(&[Shape::Small, Shape::Small, Shape::Bulk, Shape::Big]);
        let (seed, geometry) = (self.random.bits(), self.options.geometry);
        let hook = self.ledger.blocker(self.engine(), geometry, ".wal", seed);
        self.transact(shape, Durability::Disk, Some(hook))
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let (ledger, engine) = (Arc::clone(&self.ledger), self.engine().clone());
        let (geometry, began_at) = (self.options.geometry, self.disk().recorded_len());
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
            Err(error) => {
                // Patches may have been merged before it.
                self.own_commit_failed(&engine, began_at);
                self.ledger.excused(&engine, "a checkpoint", &error)
            }
        }
    }

    /// Runs the background work that is due, including empty commits for dropped trees.
    fn step(&mut self) -> Result<(), String> {
        let began_at = self.disk().recorded_len();
        let engine = self.engine().clone();
        let Err(error) = engine.step() else { return Ok(()) };
        self.own_commit_failed(&engine, began_at);
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

    /// Checks that a held snapshot is unchanged, whatever has failed since.
    fn let_go(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (snapshot, state) = self.held.swap_remove(self.random.below(self.held.len()));
        self.compare(&snapshot, &state).map_err(|what| format!("a snapshot that was held: {what}"))
    }

    /// D6: a poisoned engine acknowledges nothing and still serves reads.
    fn probe_poisoned(&mut self) -> Result<(), String> {
        self.is_poisoned = true;
        self.disk().annotate("poisoned");
        // Which sync failed does not matter: what is not durable is in doubt.
        self.in_doubt = true;
        self.ledger.notes().excuses.misread = true;
        self.ledger.notes().tally.came(Consequence::Poisoned);
        for level in [Durability::Disk, Durability::Process, Durability::Memory] {
            let outcome = self.engine().transact(level, |tx| tx.create_tree("never", None));
            match outcome.map_err(|error| error.kind()) {
                // If deferred redo failed, its error comes first.
                Err(ErrorKind::Poisoned | ErrorKind::Io | ErrorKind::Corrupt) => {}
                other => return Err(format!("poisoned, and a commit at {level:?} says {other:?}")),
            }
        }
        if self.engine().checkpoint().is_ok() {
            return Err("poisoned, and a checkpoint succeeds".to_owned());
        }
        if self.engine().compact(&mut |_| Ok(())).is_ok() {
            return Err("poisoned, and a compaction succeeds".to_owned());
        }
        let weak = self.ledger.notes().weak.take();
        let durable = self.engine().durability_status().durable;
        if let Some(weak) = weak.filter(|receipt| receipt.seq() > durable)
            && weak.wait(Durability::Disk).is_ok()
        {
            return Err(format!("poisoned, and commit {} became durable", weak.seq()));
        }
        self.look().map_err(|what| format!("poisoned: {what}"))
    }

    /// Ends the process and opens the database again in the same boot, with the cache as it was.
    fn reopen(&mut self, cleanly: bool) -> Result<Going, String> {
        self.held.clear();
        let engine = self.engine.take().expect("the engine is taken only while it is opened again");
        self.disk().annotate(if cleanly { "closing" } else { "killed" });
        self.ledger.notes().weak = None;
        if cleanly {
            let closed = engine.close();
            let is_poisoned = engine.durability_status().poisoned.is_some();
            match closed {
                Ok(()) if !is_poisoned => {
                    let now = self.disk().recorded_len();
                    let mut notes = self.ledger.notes();
                    let last = notes.book.latest().seq;
                    notes.book.promise(now, last);
                }
                Ok(()) => return Err("poisoned, and closing returned no error".to_owned()),
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
        let is_stormy = std::mem::take(&mut self.had_fault) && !self.ledger.notes().excuses.lie;
        let is_stormy = is_stormy && self.weather.chance(1, 2);
        self.arrive(is_stormy)
    }
}
