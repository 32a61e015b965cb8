//! A query that owns the snapshot on which it runs.

use super::found::{Finding, Step};
use super::group::Grouping;
use crate::access::reads::sealed::Readable;
use crate::access::selection::{Held, Of};
use crate::access::snapshot::Snapshot;
use crate::store::error::{Error, Result};

/// What a query finds, documents or groups, together with the snapshot that it is of. From
/// [`Find::cursor`](crate::find::Find::cursor) and [`Grouped::cursor`](crate::find::Grouped::cursor).
///
/// It borrows nothing: it may rest between two calls, and go on in another thread.
pub struct FindCursor {
    /// While documents are still to be read.
    snapshot: Option<Snapshot>,
    running: Running,
}

const _: () = {
    const fn moves<T: Send + 'static>() {}
    moves::<FindCursor>();
};

pub(super) enum Running {
    Documents(Box<Finding>),
    Groups(Box<Grouping>),
}

impl FindCursor {
    pub(super) fn of(of: Of<'_>, begin: impl FnOnce(&dyn Readable) -> Result<Running>) -> Result<FindCursor> {
        let snapshot = match of.hold()? {
            Held::Own(snapshot) => snapshot,
            Held::Lent(state) => state.as_snapshot().cloned().ok_or_else(|| {
                Error::invalid("a query in a transaction has no cursor of its own")
                    .with_hint("use iter(), or a snapshot")
            })?,
        };
        let running = begin(&snapshot)?;
        Ok(FindCursor { snapshot: Some(snapshot), running })
    }

    /// How many documents were read so far, results included.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        match &self.running {
            Running::Documents(finding) => finding.read_count(),
            Running::Groups(grouping) => grouping.read_count(),
        }
    }

    /// With how many threads the next documents are read.
    #[must_use]
    pub fn threads(&self) -> usize {
        match &self.running {
            Running::Documents(_) => 1,
            Running::Groups(grouping) => grouping.threads(),
        }
    }

    /// Reads until a document is found or a group is complete, but at most `read_max` documents.
    ///
    /// # Errors
    /// As [`FindIter::next_within`](super::FindIter::next_within) and
    /// [`GroupIter::next_within`](super::GroupIter::next_within).
    pub fn next_within(&mut self, read_max: u64) -> Result<Step> {
        let state = self.snapshot.as_ref().map(|snapshot| snapshot as &dyn Readable);
        let (step, reads) = match &mut self.running {
            Running::Documents(finding) => (finding.next_within(state, read_max), finding.reads()),
            Running::Groups(grouping) => (grouping.next_within(state, read_max), grouping.reads()),
        };
        if !reads {
            // What is sorted or grouped holds no space that newer states have replaced.
            self.snapshot = None;
        }
        step
    }
}

impl std::fmt::Debug for FindCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FindCursor").field("read_count", &self.read_count()).finish_non_exhaustive()
    }
}
