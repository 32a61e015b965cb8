//! Compactions while calls fail: each ends, is stopped, or is refused with an excused error, and no entry
//! changes.
//!
//! Owns what the empty commits of a compaction mean for the book. After a refusal for want of room the
//! compaction is asked again, with room.

use std::sync::Arc;

use duramen_engine::{Durability, Engine, Error, ErrorKind};

use super::Living;
use crate::faulty::storm::Armed;
use crate::faulty::tally::Consequence;

/// The error with which a life stops a compaction.
const STOPPED: &str = "stopped";

impl Living {
    /// Compacts. If the disk is full, compacts again once it has room.
    pub(super) fn compact(&mut self) -> Result<(), String> {
        if self.armed.is_none() && self.may_fail && self.weather.chance(1, 2) {
            let armed = Armed::draw(&self.ledger.disk, &mut self.weather);
            self.arm(armed, 0);
        }
        let refused = self.compact_once()?;
        let is_poisoned = self.is_engine_poisoned();
        if refused.is_some() {
            let came =
                if is_poisoned { Consequence::CompactionPoisoned } else { Consequence::CompactionRefused };
            self.ledger.notes().tally.came(came);
        }
        if refused != Some(ErrorKind::Full) || is_poisoned {
            return Ok(());
        }
        self.disarm();
        if self.compact_once()?.is_none() {
            self.ledger.notes().tally.came(Consequence::CompactedAgain);
        }
        Ok(())
    }

    /// Compacts with commits between the slices. Returns the error that a fault excuses.
    fn compact_once(&mut self) -> Result<Option<ErrorKind>, String> {
        let (ledger, engine) = (Arc::clone(&self.ledger), self.engine().clone());
        let geometry = self.options.geometry;
        ledger.disk.annotate("compacting");
        let mut began_at = ledger.disk.recorded_len();
        if self.random.chance(1, 3) {
            let seed = self.random.bits();
            ledger.disk.set_blocker(Some(ledger.blocker(&engine, geometry, "/data", seed)));
        }
        let random = &mut self.random;
        let (stops, is_quiet) = (random.chance(1, 4), random.chance(1, 2));
        let compacted = engine.compact(&mut |_| {
            ledger.follow(&engine);
            if !is_quiet && random.chance(1, 4) {
                let levels = [Durability::Memory, Durability::Process, Durability::Disk];
                ledger.inner_commits(&engine, geometry, random, &levels);
            }
            began_at = ledger.disk.recorded_len();
            if stops && random.chance(1, 6) { Err(Error::invalid(STOPPED)) } else { Ok(()) }
        });
        ledger.disk.set_blocker(None);
        match compacted {
            Ok(_) => Ok(None),
            Err(error) if error.message() == STOPPED => Ok(None),
            Err(error) => {
                self.own_commit_failed(&engine, began_at);
                self.ledger.excused(&engine, "a compaction", &error).map(|()| Some(error.kind()))
            }
        }
    }

    /// Notes that an empty commit of the engine may have been in progress since `began_at`; it changes
    /// nothing.
    pub(super) fn own_commit_failed(&self, engine: &Engine, began_at: usize) {
        if self.is_poisoned {
            return;
        }
        let now = self.disk().recorded_len();
        let is_in_doubt = engine.durability_status().poisoned.is_some();
        let published = engine.stats().commit.published.0;
        let mut notes = self.ledger.notes();
        // Earlier calls of the event have made these, and returned no error.
        let event_at = notes.event_at;
        while notes.book.latest().seq < published {
            let seq = notes.book.begin(&[], event_at);
            notes.book.acknowledged(seq, Durability::Memory);
        }
        let seq = notes.book.begin(&[], began_at);
        if !is_in_doubt {
            notes.book.refused(seq, now);
        }
    }

    fn is_engine_poisoned(&self) -> bool {
        self.engine().durability_status().poisoned.is_some()
    }
}
