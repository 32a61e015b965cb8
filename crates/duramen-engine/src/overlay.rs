//! Deferred redo: reads are answered before the log's tail is in the trees.
//!
//! Opening reads, checks and sorts the log, and applies only its catalogue rows: names, ids and reducers must
//! come from the root. Until the other changes are in the trees, a read uses the root of the newest
//! checkpoint with the sorted changes, the overlay, over it. `engine::deferred_redo` applies them with the
//! code that replays at open. The states:
//!
//! - Pending: point reads look at the changes first, and cursors merge both. Counts, ranks, entries by index
//!   and reductions need exact counts above the leaves. They use a private fork of the tree, with the changes
//!   of the range applied. A query over more changes than `ForkLimit` allows waits for the redo.
//! - Running: one thread holds the `work` lock. Writes, checkpoints, checks and close wait, or do the work if
//!   no thread has begun it. What a transaction has read through the overlay stays valid: no commit may be
//!   ordered before the redo ends.
//! - Done: `drained_root` is set, and all views read that root, those taken before included.
//! - Failed: a page could not be read. The engine is poisoned, and reads through the overlay go on.
//!
//! `DeferredRedo::finish` ends the redo in this order:
//!
//! 1. Register the new root for the overlay. Snapshots with the overlay read it from now on. If it were
//!    published first, a commit could replace its pages, and a checkpoint reuse them, before they are held
//!    (D3, I1).
//! 2. Publish it, and make it the latest root.
//! 3. Remove the overlay. If this came first, a reader could find the checkpoint's root and no overlay.
//!    `DeferredRedo::hold` registers again then, and would repeat that until step 2.
//! 4. Set `is_done`. If this came earlier, `DeferredRedo::wait` would let writers through to the checkpoint's
//!    root, and their commits would lose the log's changes.
//!
//! Pages that the redo replaces are freed as of the log's last commit. The checkpoint's root is registered
//! under its own, older sequence, so cursors begun before the end still find them (D3). I1 rests here: a
//! snapshot never changes, whether the log is in the trees or not.
//!
//! Tried or considered, and lost (decision 0010): merging changes into leaves on first use, since counts
//! above leaves are exact and only the leaf shows whether a change adds a key; redo by ranges on demand,
//! which publishes roots of no commit; a fork for each query, which doubles the memory of the redo.

mod cursor;
mod notes;
mod sorted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use crate::alarm::{invariant, locked};
use crate::catalog::{Root, TreeState};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::options::Geometry;
use crate::page_cache::{Buffered, Pages};
use crate::snapshot::Registration;
use crate::tree::{Apply, ApplyError, KeyRange, Loading, Slot};

pub(crate) use cursor::OverlaidCursor;
pub(crate) use notes::RecordNotes;
pub(crate) use sorted::{ChangesOf, Gathered, SortedChanges};

/// Applies the changes to the trees, or waits until that is done.
type Drain = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Limits of a fork.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForkLimit {
    /// A query over more changes than this waits for the redo.
    pub changes_max: usize,
    /// Threads that share the work.
    pub threads: usize,
}

/// Sorted changes over the trees of a root.
pub(crate) struct Overlay {
    seq: CommitSeq,
    changes: SortedChanges,
    geometry: Geometry,
    limit: ForkLimit,
    /// The root with all changes in it, registered for as long as a view uses this overlay.
    drained: OnceLock<Registration>,
    drain: OnceLock<Drain>,
    /// For each tree the newest fork, and the range whose changes are applied in it. Counting a range is
    /// often followed by reducing it.
    forks: Mutex<BTreeMap<TreeId, (KeyRange, Option<Slot>)>>,
    /// The memory charged for the changes.
    _buffered: Buffered,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("seq", &self.seq).finish_non_exhaustive()
    }
}

/// A tree in the form that a query needs.
pub(crate) enum QueriedTree<'a> {
    /// As it is in a root.
    Rooted(&'a TreeState),
    /// With changes applied for this query.
    Forked(&'a TreeState, Option<Slot>),
}

impl QueriedTree<'_> {
    /// The state of the tree.
    pub(crate) fn state(&self) -> &TreeState {
        match self {
            QueriedTree::Rooted(state) | QueriedTree::Forked(state, _) => state,
        }
    }

    /// Its root node.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        match self {
            QueriedTree::Rooted(state) => state.slot.as_ref(),
            QueriedTree::Forked(_, slot) => slot.as_ref(),
        }
    }
}

impl Overlay {
    /// An overlay of changes up to the commit `seq`.
    #[must_use]
    pub(crate) fn new(
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
    pub(crate) fn seq(&self) -> CommitSeq {
        self.seq
    }

    /// The changes.
    pub(crate) fn changes(&self) -> &SortedChanges {
        &self.changes
    }

    /// Sets, once, the function that applies the changes to the trees.
    pub(crate) fn drain_by(&self, drain: Drain) {
        assert!(self.drain.set(drain).is_ok(), "an overlay is drained in one way");
    }

    /// Sets the root with all changes in it. It is registered before anything newer can replace it.
    pub(crate) fn drained(&self, held: Registration) {
        // Snapshots that read through the overlay read this root from now on: the same state (I1).
        let (seq, shown) = (held.root().seq, self.seq);
        invariant!(seq == shown, "the root {seq} takes the place of an overlay up to {shown}");
        invariant!(self.drained.set(held).is_ok(), "the overlay up to {shown} is drained once");
        locked(self.forks.lock()).clear();
    }

    /// Runs with the forks locked. In a test, [`Overlay::drained`] sets the root and does not return before
    /// this does.
    #[cfg(test)]
    pub(crate) fn while_forks_are_locked<T>(&self, run: impl FnOnce() -> T) -> T {
        let _locked = locked(self.forks.lock());
        run()
    }

    /// The root with all changes in it, once there is one.
    pub(crate) fn drained_root(&self) -> Option<&Arc<Root>> {
        self.drained.get().map(Registration::root)
    }

    /// Waits until the changes are in the trees. Returns the registration of their root.
    ///
    /// # Errors
    /// Any error of the redo; `Invalid` if nothing runs it.
    pub(crate) fn wait(&self) -> Result<&Registration> {
        if self.drained.get().is_none() {
            self.drain.get().map_or(Ok(()), |drain| drain())?;
        }
        self.drained
            .get()
            .ok_or_else(|| Error::new(Code::Closed, "the database was left before it was ready"))
    }

    /// A tree with all changes applied that a query about `range` needs.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page cannot be read, by this query or by the redo that it waits for.
    pub(crate) fn asked<'a>(
        &'a self,
        pages: &Pages,
        state: &'a TreeState,
        range: &KeyRange,
    ) -> Result<QueriedTree<'a>> {
        let changes = self.changes.of_tree(state.id).within(range);
        if changes.is_empty() {
            return Ok(QueriedTree::Rooted(state));
        }
        if changes.len() > self.limit.changes_max && self.drain.get().is_some() {
            let root = self.wait()?.root();
            return match root.trees.get(state.id) {
                Some(state) => Ok(QueriedTree::Rooted(state)),
                None => Err(Error::new(Code::NoSuchTree, format!("there is no tree with id {}", state.id))),
            };
        }
        let known = locked(self.forks.lock()).get(&state.id).cloned();
        if let Some((_, fork)) = known.filter(|(applied, _)| covers(applied, range)) {
            return Ok(QueriedTree::Forked(state, fork));
        }
        let fork = self.fork(pages, state, changes)?;
        let mut forks = locked(self.forks.lock());
        if self.drained.get().is_none() {
            forks.insert(state.id, (range.clone(), fork.clone()));
        }
        drop(forks);
        Ok(QueriedTree::Forked(state, fork))
    }

    fn fork(&self, pages: &Pages, state: &TreeState, changes: ChangesOf<'_>) -> Result<Option<Slot>> {
        let mut apply = Apply::new(pages, &self.geometry, self.seq, Loading::Allowed)
            .reduced_by(state.reducer.as_deref())
            .in_bulk(self.limit.threads)
            .in_private();
        apply.tree(state.slot.as_ref(), &changes.to_list()).map_err(ApplyError::into_error)
    }
}

/// Whether `outer` contains every key of `inner`.
fn covers(outer: &KeyRange, inner: &KeyRange) -> bool {
    let ends_before = |outer: &Vec<u8>| inner.to.as_ref().is_some_and(|inner| inner <= outer);
    outer.from <= inner.from && outer.to.as_ref().is_none_or(ends_before)
}
