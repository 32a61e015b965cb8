//! Compactions beside transactions, stopped before their end or not. They change nothing that a program
//! stored, and the change feed does not return their commits.

use duramen::Error;

use super::Life;
use crate::product::judge::{checks_are_clean, failed};

/// The error with which a life stops a compaction.
const STOPPED: &str = "stopped";

impl Life {
    /// Compacts, with transactions between the slices.
    pub(super) fn compact(&mut self) -> Result<(), String> {
        let (db, mut beside) = (self.db().clone(), Ok(()));
        let (stops, is_quiet) = (self.random.chance(1, 4), self.random.chance(1, 2));
        let mut moved = 0;
        let compacted = db.compact_with(|progress| {
            moved = progress.moved_bytes;
            if !is_quiet && beside.is_ok() && self.random.chance(1, 3) {
                beside = self.transaction(false).map(drop);
            }
            if stops && self.random.chance(1, 4) { Err(Error::invalid(STOPPED)) } else { Ok(()) }
        });
        beside.map_err(|what| format!("beside a compaction: {what}"))?;
        match compacted {
            Err(error) if error.message() == STOPPED => {}
            compacted => moved = compacted.map_err(failed("compact"))?.moved_bytes,
        }
        self.tally.compactions += u64::from(moved > 0);
        checks_are_clean(&db, &self.state)
    }
}
