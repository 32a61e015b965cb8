//! Assigned ids: each is assigned once, and writers do not wait for each other.
//!
//! A counter in memory assigns them. A row in the tree `duramen/ids` bounds the assigned ids, a block ahead.
//! A restart continues from there, so that the id of a deleted document is not assigned again. The
//! transaction that first exceeds the bound reads and writes the row, so the bound is durable whenever that
//! id is. A bound written by a commit at level `Memory` may still be dropped: until a commit that read the
//! row is in the log, every transaction reads it.
//!
//! A clean close lowers the bound to the next id, so that the next process continues without a gap. A crash,
//! or a close that cannot commit, skips what is left of the block. The order of the steps keeps every id from
//! being assigned twice: first the counter ends, under its lock, and fails each later request with `Closed`.
//! So the next id is above all that were ever taken, also by transactions that have not committed, or failed.
//! Only then a transaction reads the row and lowers it. A transaction that raises the row for an id which it
//! took before conflicts with this one, since both read and write the row: the one that commits second runs
//! again. The counter does not begin again in this process, because ids below the old bound would be
//! assigned without reading the row.
//!
//! In a node of a cluster the counters begin anew in each lineage of commits: other nodes may have led since,
//! and what was assigned in an order that was given up may never have happened. A transaction of an earlier
//! lineage takes no id. No bound is lowered there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::store::error::{Code, Error, Result};
use crate::store::{Direction, KeyRange, Shared, Source, TreeId};
use crate::value::tuple::{Element, decode, encode};

/// The counters of all collections. Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct IdCounters {
    of_collections: Mutex<HashMap<String, Arc<IdCounter>>>,
}

impl IdCounters {
    /// Ends the assignment of ids. Returns the counters that are in use, by collection; none the second time.
    pub(crate) fn end(&self) -> Vec<(String, Arc<IdCounter>)> {
        let counters = self.of_collections.lock().expect("nothing panics while the counters are locked");
        let mut in_use = Vec::new();
        for (name, counter) in counters.iter() {
            if counter.end() {
                in_use.push((name.clone(), Arc::clone(counter)));
            }
        }
        in_use.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        in_use
    }

    /// The counter of a collection's ids.
    pub(crate) fn of(&self, collection: &str) -> Arc<IdCounter> {
        let mut counters = self.of_collections.lock().expect("nothing panics while the counters are locked");
        if let Some(counter) = counters.get(collection) {
            return Arc::clone(counter);
        }
        Arc::clone(counters.entry(collection.to_owned()).or_default())
    }
}

/// The tree of bounds: key is the encoded name of a collection, value the first unassigned id (`u64`,
/// little-endian).
pub(crate) const BOUNDS: &str = "duramen/ids";

/// How far ahead the bound is set: at most this many ids are skipped by a crash.
const BLOCK: u64 = 1024;

/// Gives the ids of one collection.
#[derive(Debug, Default)]
pub(crate) struct IdCounter {
    state: Mutex<Given>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Given {
    /// In a node of a cluster: the lineage of commits in which ids are assigned.
    lineage: Option<u64>,
    /// The next id; 0 before the first is requested.
    next: u64,
    /// Ids below are covered by a bound that is in the log.
    bound: u64,
    /// No more ids are assigned: the database is being closed.
    ended: bool,
}

/// An id, and the bound that the transaction has written for it.
pub(crate) struct NewId {
    pub(crate) id: u64,
    pub(crate) bound: Option<u64>,
}

impl IdCounter {
    /// The next id for a document of `collection`, which lies in `rows`.
    pub(crate) fn take(&self, tx: &Shared<'_>, collection: &str, rows: TreeId) -> Result<NewId> {
        let given = self.next(tx, collection, rows)?;
        if given.next < given.bound {
            return Ok(NewId { id: given.next, bound: None });
        }
        let bounds = bounds_tree(tx)?;
        let key = encode(collection)?;
        let mut bound = stored_bound(tx, bounds, &key)?;
        if bound <= given.next {
            bound = given.next.checked_add(BLOCK).ok_or_else(|| run_out(collection))?;
            tx.put(bounds, &key, &bound.to_le_bytes())?;
        }
        Ok(NewId { id: given.next, bound: Some(bound) })
    }

    /// Ends the assignment. Returns whether this call ended it and ids were assigned.
    fn end(&self) -> bool {
        let mut state = self.lock();
        !std::mem::replace(&mut state.ended, true) && state.next > 0
    }

    /// Sets the stored bound to the next id. Call it only after the counter ended.
    pub(crate) fn give_back(&self, tx: &Shared<'_>, collection: &str) -> Result<()> {
        let bounds = bounds_tree(tx)?;
        let key = encode(collection)?;
        let next = self.lock().next;
        // It is above the stored bound if transactions took ids and failed.
        if next == stored_bound(tx, bounds, &key)? {
            return Ok(());
        }
        tx.put(bounds, &key, &next.to_le_bytes())
    }

    /// Records that a bound is in the log.
    pub(crate) fn bounded(&self, bound: u64) {
        let mut state = self.lock();
        state.bound = state.bound.max(bound);
    }

    /// Moves the counter past the largest id, because a document already has the id that was to be assigned.
    pub(crate) fn pass(&self, tx: &Shared<'_>, rows: TreeId) -> Result<()> {
        let last = last_id(tx, rows)?;
        let mut state = self.lock();
        state.next = state.next.max(last.saturating_add(1));
        Ok(())
    }

    /// The state from which an id is taken.
    fn next(&self, tx: &Shared<'_>, collection: &str, rows: TreeId) -> Result<Given> {
        // The tree is read before the lock is taken: a page may have to be read from the disk.
        let lineage = tx.lineage();
        let is_unset = |state: &Given| state.next == 0 || state.lineage < lineage;
        let first = if is_unset(&self.lock()) { Some(first_id(tx, collection, rows)?) } else { None };
        let mut state = self.lock();
        if is_unset(&state) {
            let next = first.expect("a counter that was set stays set in its lineage");
            *state = Given { lineage, next, bound: 0, ended: state.ended };
        }
        if state.lineage > lineage {
            return Err(tx.is_of_an_earlier_leadership());
        }
        if state.ended {
            return Err(Error::new(Code::Closed, "the database is being closed")
                .with_hint("open it again to assign more ids"));
        }
        let given = *state;
        state.next = state.next.checked_add(1).ok_or_else(|| run_out(collection))?;
        Ok(given)
    }

    fn lock(&self) -> MutexGuard<'_, Given> {
        self.state.lock().expect("nothing panics while a counter is locked")
    }
}

fn bounds_tree(tx: &Shared<'_>) -> Result<TreeId> {
    tx.tree(BOUNDS)?.map_or_else(|| tx.create_tree(BOUNDS, None), Ok)
}

/// The first id of this process.
fn first_id(tx: &Shared<'_>, collection: &str, rows: TreeId) -> Result<u64> {
    let bound = match tx.tree(BOUNDS)? {
        Some(tree) => stored_bound(tx, tree, &encode(collection)?)?,
        None => 0,
    };
    Ok(bound.max(last_id(tx, rows)?.saturating_add(1)))
}

fn stored_bound(tx: &Shared<'_>, bounds: TreeId, key: &[u8]) -> Result<u64> {
    let Some(stored) = tx.get(bounds, key)? else { return Ok(0) };
    let bytes = stored.as_slice().try_into().map_err(|_| {
        Error::new(Code::CorruptData, format!("the bound of assigned ids has {} bytes, not 8", stored.len()))
    })?;
    Ok(u64::from_le_bytes(bytes))
}

/// The largest id there is a document for; 0 without one.
pub(crate) fn last_id(tx: &Shared<'_>, rows: TreeId) -> Result<u64> {
    let mut cursor = tx.cursor(rows, KeyRange { from: Vec::new(), to: None }, Direction::Reverse)?;
    let Some(key) = cursor.next_key()? else { return Ok(0) };
    match decode(key)?.as_slice() {
        [Element::Int(id)] => Ok(u64::try_from(*id).unwrap_or(0)),
        _ => Err(Error::invalid("the last key of a collection with assigned ids is no integer")),
    }
}

#[cold]
pub(crate) fn run_out(collection: &str) -> Error {
    Error::invalid(format!("the ids of {collection} have run out"))
        .with_hint("its key is too narrow for another one: use u64")
}
