//! The trees of a database, and one state of all of them: a [`Root`].
//!
//! It owns the catalogue rows (tree 0: name -> id and reducer), the state of a tree in one root, and the
//! entries of the tree of roots that checkpoints write. D2 rests here: a root is one pointer, so all trees
//! change together.

mod row;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::features::Features;
use crate::ids::{CommitSeq, TreeId};
use crate::tree::{Reducer, ReducerSpec, Reducers, Slot};
use crate::wal::LogPosition;

pub(crate) use row::{CatalogRow, RootEntry, of_later_build};
pub(crate) use table::TreeTable;

/// The id of the catalogue, the tree of names.
pub(crate) const CATALOG: TreeId = TreeId(0);

/// One tree in one state.
#[derive(Clone)]
pub(crate) struct TreeState {
    /// Its id.
    pub id: TreeId,
    /// Its root node; `None` while it is empty.
    pub slot: Option<Slot>,
    /// The name and version of its reducer, if it has one.
    pub spec: Option<ReducerSpec>,
    /// What a build must know to read it.
    pub features: Features,
    /// The reducer of the spec, if it is registered.
    pub reducer: Option<Arc<dyn Reducer>>,
    /// Whether a big value was ever put into it.
    pub has_big_values: bool,
    /// The commit that dropped it. Its pages are being reclaimed.
    pub dropped_at: Option<CommitSeq>,
    /// Pages before this key have been reclaimed.
    pub reclaimed_to: Vec<u8>,
}

impl fmt::Debug for TreeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeState").field("id", &self.id).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl TreeState {
    /// Whether reductions of new leaves can be computed. Without its reducer, compaction only moves the nodes
    /// of a tree, each with the reduction it has.
    pub(crate) fn can_be_packed(&self) -> bool {
        self.spec.is_none() || self.reducer.is_some()
    }

    /// An empty tree.
    #[must_use]
    pub(crate) fn empty(id: TreeId, spec: Option<ReducerSpec>, reducers: &Reducers) -> TreeState {
        let reducer = spec.as_ref().and_then(|spec| reducers.find(spec));
        TreeState {
            id,
            slot: None,
            spec,
            features: Features::NONE,
            reducer,
            has_big_values: false,
            dropped_at: None,
            reclaimed_to: Vec::new(),
        }
    }

    /// Number of entries.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.slot.as_ref().map_or(0, |slot| slot.count)
    }
}

/// One state of the database: what a snapshot reads.
#[derive(Debug)]
pub(crate) struct Root {
    /// The last commit in it.
    pub seq: CommitSeq,
    /// The rollback epoch: counts how often commits were dropped because the log had no room. Roots of
    /// different epochs are no successors of each other.
    pub rollback_epoch: u64,
    /// In a node of a cluster: the time of that commit, in nanoseconds since 1970. 0 in other databases.
    pub time_ns: u64,
    /// The trees.
    pub trees: TreeTable,
    /// The log frame with the last commit; set once it is written.
    pub position: OnceLock<LogPosition>,
}

impl Root {
    /// A root whose log position is known.
    #[must_use]
    pub(crate) fn at(seq: CommitSeq, trees: TreeTable, position: LogPosition) -> Root {
        Root { seq, rollback_epoch: 0, time_ns: 0, trees, position: OnceLock::from(position) }
    }
}
