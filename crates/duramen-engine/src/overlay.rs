//! The overlay: what opening found in the log, sorted, over the trees of the newest checkpoint until it is in them.
//!
//! Owns exact answers in the meantime: a change stands before what the tree has under its key; what only a tree can answer
//! (counts, places, reductions) is asked of a private fork with the changes of the range applied, or of the trees
//! themselves once everything is in them. Never decides when that happens. I1 rests here (a snapshot never changes, whether
//! the log is in the trees or not), and D3: who reads through an overlay holds the checkpoint's root and, once there is one, the root
//! with everything in it.

mod cursor;
mod notes;
mod sorted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::catalog::{Root, TreeState};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::options::Geometry;
use crate::page_cache::{Buffered, Pages};
use crate::snapshot::Registration;
use crate::tree::{Apply, KeyRange, Loading, Slot, Stop};

pub use cursor::OverlaidCursor;
pub use notes::RecordNotes;
pub use sorted::{ChangesOf, Gathered, SortedChanges};

const POISON: &str = "nothing panics while forks are locked";

/// Brings the changes into the trees, or waits until they are in them.
type Drain = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// How much a fork may hold of what an overlay holds.
#[derive(Debug, Clone, Copy)]
pub struct ForkLimit {
    /// More changes than these are not applied for one question: it waits until all are in the trees.
    pub changes_max: usize,
    /// Threads that share the work.
    pub threads: usize,
}

/// Changes over the trees of a root.
pub struct Overlay {
    seq: CommitSeq,
    changes: SortedChanges,
    geometry: Geometry,
    limit: ForkLimit,
    /// The root with all changes in it, held for as long as somebody reads through this overlay.
    drained: OnceLock<Registration>,
    drain: OnceLock<Drain>,
    /// Of each tree the newest fork, and the range whose changes are applied in it: who counts a range often reduces it, too.
    forks: Mutex<BTreeMap<TreeId, (KeyRange, Option<Slot>)>>,
    /// The memory that the changes take.
    _buffered: Buffered,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("seq", &self.seq).finish_non_exhaustive()
    }
}

/// A tree as a question needs it.
pub enum Asked<'a> {
    /// As it is in a root.
    Rooted(&'a TreeState),
    /// With changes applied for this question alone.
    Forked(&'a TreeState, Option<Slot>),
}

impl Asked<'_> {
    /// What the tree is.
    pub fn state(&self) -> &TreeState {
        match self {
            Asked::Rooted(state) | Asked::Forked(state, _) => state,
        }
    }

    /// Its root node.
    pub fn slot(&self) -> Option<&Slot> {
        match self {
            Asked::Rooted(state) => state.slot.as_ref(),
            Asked::Forked(_, slot) => slot.as_ref(),
        }
    }
}

impl Overlay {
    /// Of changes up to the commit `seq`.
    #[must_use]
    pub fn new(
        seq: CommitSeq,
        changes: SortedChanges,
        bytes: usize,
        pages: &Pages,
        geometry: Geometry,
        limit: ForkLimit,
    ) -> Overlay {
        let mut buffered = Buffered::new(pages.meter());
        buffered.queue(bytes);
        Overlay {
            seq,
            changes,
            geometry,
            limit,
            drained: OnceLock::new(),
            drain: OnceLock::new(),
            forks: Mutex::default(),
            _buffered: buffered,
        }
    }

    /// The last commit in it.
    pub fn seq(&self) -> CommitSeq {
        self.seq
    }

    /// The changes.
    pub fn changes(&self) -> &SortedChanges {
        &self.changes
    }

    /// Sets, once, what brings the changes into the trees.
    pub fn drain_by(&self, drain: Drain) {
        assert!(self.drain.set(drain).is_ok(), "an overlay is drained in one way");
    }

    /// The changes are in the trees of this root, which is held from before anything newer could replace it.
    pub fn drained(&self, held: Registration) {
        assert!(self.drained.set(held).is_ok(), "an overlay is drained once");
        self.forks.lock().expect(POISON).clear();
    }

    /// Runs with the forks locked. In a test, [`Overlay::drained`] sets the root and does not return before this does.
    #[cfg(test)]
    pub(crate) fn while_forks_are_locked<T>(&self, run: impl FnOnce() -> T) -> T {
        let _locked = self.forks.lock().expect(POISON);
        run()
    }

    /// The root with all changes in it, once there is one.
    pub fn drained_root(&self) -> Option<&Arc<Root>> {
        self.drained.get().map(Registration::root)
    }

    /// Waits until the changes are in the trees, and holds their root.
    ///
    /// # Errors
    /// What bringing them there said; `Invalid` if nobody does.
    pub fn wait(&self) -> Result<&Registration> {
        if self.drained.get().is_none() {
            self.drain.get().map_or(Ok(()), |drain| drain())?;
        }
        self.drained
            .get()
            .ok_or_else(|| Error::new(Code::Closed, "the database was left before it was ready"))
    }

    /// A tree of which so much is as with all changes as a question about `range` needs.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read, by whoever brings the changes into the trees, too.
    pub fn asked<'a>(&'a self, pages: &Pages, state: &'a TreeState, range: &KeyRange) -> Result<Asked<'a>> {
        let changes = self.changes.of_tree(state.id).within(range);
        if changes.is_empty() {
            return Ok(Asked::Rooted(state));
        }
        if changes.len() > self.limit.changes_max && self.drain.get().is_some() {
            let root = self.wait()?.root();
            return match root.trees.get(state.id) {
                Some(state) => Ok(Asked::Rooted(state)),
                None => Err(Error::new(Code::NoSuchTree, format!("there is no tree with id {}", state.id))),
            };
        }
        let known = self.forks.lock().expect(POISON).get(&state.id).cloned();
        if let Some((_, fork)) = known.filter(|(applied, _)| covers(applied, range)) {
            return Ok(Asked::Forked(state, fork));
        }
        let fork = self.fork(pages, state, changes)?;
        let mut forks = self.forks.lock().expect(POISON);
        if self.drained.get().is_none() {
            forks.insert(state.id, (range.clone(), fork.clone()));
        }
        drop(forks);
        Ok(Asked::Forked(state, fork))
    }

    fn fork(&self, pages: &Pages, state: &TreeState, changes: ChangesOf<'_>) -> Result<Option<Slot>> {
        let mut apply = Apply::new(pages, &self.geometry, self.seq, Loading::Allowed)
            .reduced_by(state.reducer.as_deref())
            .in_bulk(self.limit.threads)
            .in_private();
        apply.tree(state.slot.as_ref(), &changes.to_list()).map_err(Stop::into_error)
    }
}

/// Whether every key of a range belongs to another one.
fn covers(outer: &KeyRange, inner: &KeyRange) -> bool {
    let ends_before = |outer: &Vec<u8>| inner.to.as_ref().is_some_and(|inner| inner <= outer);
    outer.from <= inner.from && outer.to.as_ref().is_none_or(ends_before)
}
