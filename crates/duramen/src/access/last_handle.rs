//! What ends with the last handle of the program: the background work, and the assignment of ids.
//!
//! A clean close gives back the ids that the stored bounds cover and that were not assigned, so that the next
//! process continues without a gap. See [`crate::catalog::ids`] for why none is assigned twice.

use std::fmt;
use std::sync::Arc;

use crate::access::background_work::BackgroundWork;
use crate::access::handle::Db;
use crate::store::Durability;
use crate::store::error::Result;

/// Shared by all handles of the program; not by the background work, which has handles of its own.
pub(crate) struct LastHandle {
    background: Option<Arc<dyn BackgroundWork>>,
    /// A handle without this.
    db: Db,
}

impl LastHandle {
    pub(crate) fn new(db: Db, background: Option<Arc<dyn BackgroundWork>>) -> LastHandle {
        LastHandle { background, db }
    }

    /// Stops the background work.
    pub(crate) fn stop(&self) {
        if let Some(background) = &self.background {
            background.stop();
        }
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        drop(self.background.take());
        // A transaction may have panicked while it held what the commit needs.
        if !std::thread::panicking() {
            self.db.end_ids();
        }
    }
}

impl fmt::Debug for LastHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastHandle").field("background", &self.background).finish_non_exhaustive()
    }
}

impl Db {
    /// Ends the assignment of ids, and gives back those that were not assigned. Does nothing where this
    /// thread may not commit.
    pub(crate) fn end_ids(&self) {
        if self.may_commit().is_ok() {
            // Whatever fails here leaves the bounds as they are: ids are skipped, and none is repeated.
            drop(self.give_ids_back());
        }
    }

    fn give_ids_back(&self) -> Result<()> {
        if self.engine().lineage().is_some() {
            // The node that leads next goes on after the bound.
            return Ok(());
        }
        let counters = self.open_state().ids.end();
        if counters.is_empty() {
            return Ok(());
        }
        // The close that follows makes it durable.
        self.at(Durability::Memory).transact(|tx| {
            counters.iter().try_for_each(|(collection, counter)| counter.give_back(tx.shared(), collection))
        })
    }
}

#[cfg(test)]
mod tests;
