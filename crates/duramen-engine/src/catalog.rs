//! Which trees there are, and one state of all of them: a [`Root`].
//!
//! Owns the catalogue rows (tree 0: name -> id and reducer), the table of trees that a root is, and the entries of
//! the tree of roots that checkpoints write. D2 rests here: a root is one pointer, so all trees change together.

mod row;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::ids::{CommitSeq, TreeId};
use crate::tree::{Reducer, ReducerSpec, Reducers, Slot};
use crate::wal::LogPosition;

pub use row::{CatalogRow, RootEntry};

/// The tree that names the others.
pub const CATALOG: TreeId = TreeId(0);

const CHUNK_TREES: usize = 16;

/// One tree in one state.
#[derive(Clone)]
pub struct TreeState {
    /// Its id.
    pub id: TreeId,
    /// Its root node; `None` while it is empty.
    pub slot: Option<Slot>,
    /// What it reduces to, if anything.
    pub spec: Option<ReducerSpec>,
    /// The reducer of the spec, if it is registered.
    pub reducer: Option<Arc<dyn Reducer>>,
    /// Whether a big value was ever put into it.
    pub has_big_values: bool,
    /// The commit that dropped it; its pages are being given back.
    pub dropped_at: Option<CommitSeq>,
    /// Pages before this key have been given back already.
    pub reaped_to: Vec<u8>,
}

impl fmt::Debug for TreeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeState").field("id", &self.id).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl TreeState {
    /// An empty tree.
    #[must_use]
    pub fn empty(id: TreeId, spec: Option<ReducerSpec>, reducers: &Reducers) -> TreeState {
        let reducer = spec.as_ref().and_then(|spec| reducers.find(spec));
        TreeState {
            id,
            slot: None,
            spec,
            reducer,
            has_big_values: false,
            dropped_at: None,
            reaped_to: Vec::new(),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.slot.as_ref().map_or(0, |slot| slot.count)
    }
}

type Chunk = [Option<Arc<TreeState>>; CHUNK_TREES];

/// All trees by id. Copying it for one changed tree copies a few pointers.
#[derive(Debug, Clone, Default)]
pub struct TreeTable {
    chunks: Vec<Option<Arc<Chunk>>>,
}

fn split(id: TreeId) -> (usize, usize) {
    let index = usize::try_from(id.0).expect("64-bit targets only");
    (index / CHUNK_TREES, index % CHUNK_TREES)
}

impl TreeTable {
    /// The tree with this id.
    #[must_use]
    pub fn get(&self, id: TreeId) -> Option<&Arc<TreeState>> {
        let (chunk, index) = split(id);
        self.chunks.get(chunk)?.as_ref()?[index].as_ref()
    }

    /// Puts a tree in, or takes one out.
    pub fn set(&mut self, id: TreeId, tree: Option<TreeState>) {
        let (chunk, index) = split(id);
        if self.chunks.len() <= chunk {
            self.chunks.resize(chunk + 1, None);
        }
        let slots = self.chunks[chunk].get_or_insert_with(|| Arc::new(Chunk::default()));
        Arc::make_mut(slots)[index] = tree.map(Arc::new);
        if slots.iter().all(Option::is_none) {
            self.chunks[chunk] = None;
        }
    }

    /// All trees in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TreeState>> {
        self.chunks.iter().flatten().flat_map(|chunk| chunk.iter().flatten())
    }

    /// The ids whose state differs from an older table's.
    #[must_use]
    pub fn changed_since(&self, older: &TreeTable) -> Vec<TreeId> {
        let mut changed = Vec::new();
        for chunk in 0..self.chunks.len().max(older.chunks.len()) {
            let mine = self.chunks.get(chunk).and_then(Option::as_ref);
            let theirs = older.chunks.get(chunk).and_then(Option::as_ref);
            if let (Some(mine), Some(theirs)) = (mine, theirs)
                && Arc::ptr_eq(mine, theirs)
            {
                continue;
            }
            for index in 0..CHUNK_TREES {
                let (a, b) = (mine.and_then(|c| c[index].as_ref()), theirs.and_then(|c| c[index].as_ref()));
                let same = match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (None, None) => true,
                    _ => false,
                };
                if !same {
                    changed.push(TreeId((chunk * CHUNK_TREES + index) as u64));
                }
            }
        }
        changed
    }
}

/// One state of the database: what a snapshot points at.
#[derive(Debug)]
pub struct Root {
    /// The last commit in it.
    pub seq: CommitSeq,
    /// Counts the times that commits were dropped because the log had no room: roots of different lineages do not
    /// follow each other.
    pub lineage: u64,
    /// The trees.
    pub trees: TreeTable,
    /// The log frame that holds the last commit; set when it was written.
    pub position: OnceLock<LogPosition>,
}

impl Root {
    /// A root at a known place of the log.
    #[must_use]
    pub fn at(seq: CommitSeq, trees: TreeTable, position: LogPosition) -> Root {
        Root { seq, lineage: 0, trees, position: OnceLock::from(position) }
    }
}
