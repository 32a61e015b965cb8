//! Applies the changes of a transaction to all trees at once. Commits and replay share this code.

use std::sync::Arc;

use crate::alarm::invariant;
use crate::catalog::{CATALOG, CatalogRow, TreeState, TreeTable};
use crate::checkpoint::Store;
use crate::error::{Code, Error};
use crate::ids::{CommitSeq, TreeId};
use crate::page_cache::Pages;
use crate::tree::{
    Apply, ApplyError, Change, DeferredPage, Loading, Node, Prebuilt, Slot, StoredPatch, find,
};

/// The trees after a transaction, and what they no longer reference.
#[derive(Debug)]
pub(crate) struct Applied {
    /// The new table.
    pub trees: TreeTable,
    /// Nodes that the new trees do not reference.
    pub replaced: Vec<Arc<Node>>,
    /// Patches that the new trees do not have.
    pub superseded: Vec<Arc<StoredPatch>>,
    /// Pages of nodes that the new trees do not reference. Replay does not keep the nodes themselves.
    pub deferred: Vec<DeferredPage>,
    /// References to big values that the new trees do not hold.
    pub dropped_values: Vec<Vec<u8>>,
}

/// The source of the changes that are applied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Applying<'a> {
    /// One transaction. Writing to a tree that does not exist is an error.
    Commit {
        /// What may be read from disk.
        loading: Loading,
        /// The leaves that were built for it.
        prebuilt: &'a Prebuilt,
        /// Number of threads that share many changes.
        threads: usize,
    },
    /// Many transactions, shared among threads. A tree that does not exist was dropped later in the log.
    Replay {
        /// Number of threads.
        threads: usize,
    },
}

/// Applies changes, sorted by tree and key, to a table of trees for the commit `seq`. The catalogue comes
/// first.
///
/// # Errors
/// [`ApplyError`]; then nothing changed.
pub(crate) fn apply_changes(
    store: &Store,
    trees: &TreeTable,
    changes: &[(TreeId, Vec<Change<'_>>)],
    seq: CommitSeq,
    applying: Applying<'_>,
) -> Result<Applied, ApplyError> {
    // The catalogue is tree 0: a tree is created before anything is put into it.
    invariant!(changes.is_sorted_by(|a, b| a.0 < b.0), "the trees of commit {seq} are sorted, each once");
    let mut applied = Applied {
        trees: trees.clone(),
        replaced: Vec::new(),
        superseded: Vec::new(),
        deferred: Vec::new(),
        dropped_values: Vec::new(),
    };
    for (id, changes) in changes.iter().filter(|(_, changes)| !changes.is_empty()) {
        if *id == CATALOG {
            catalogue(store, &mut applied.trees, changes, seq)?;
        }
        one_tree(store, &mut applied, *id, changes, seq, applying)?;
    }
    Ok(applied)
}

fn one_tree(
    store: &Store,
    applied: &mut Applied,
    id: TreeId,
    changes: &[Change<'_>],
    seq: CommitSeq,
    applying: Applying<'_>,
) -> Result<(), ApplyError> {
    let known = applied.trees.get(id).filter(|tree| tree.dropped_at.is_none());
    let tree = match (known, applying) {
        (Some(tree), _) => Arc::clone(tree),
        (None, Applying::Replay { .. }) => return Ok(()),
        (None, Applying::Commit { .. }) => {
            let message = format!("tree {id} was dropped or never created");
            return Err(ApplyError::Failed(Error::new(Code::NoSuchTree, message)));
        }
    };
    let reducer = tree.reducer.as_deref();
    let apply = |loading| {
        let apply = Apply::new(&store.pages, &store.geometry, seq, loading);
        // The catalogue can be read leaf by leaf when all else is lost.
        apply.reduced_by(reducer).with_patches(store.patches && id != CATALOG)
    };
    let mut apply = match applying {
        Applying::Commit { loading, prebuilt, threads } => {
            apply(loading).with_prebuilt(prebuilt.get(&id)).shared_by(threads)
        }
        Applying::Replay { threads } => apply(Loading::PassThrough).in_bulk(threads),
    };
    let slot = apply.tree(tree.slot.as_ref(), changes)?;
    applied.replaced.append(&mut apply.replaced);
    applied.superseded.append(&mut apply.superseded);
    applied.deferred.append(&mut apply.deferred);
    applied.dropped_values.append(&mut apply.dropped_values);
    let has_big_values = tree.has_big_values || changes.iter().any(|c| c.value.is_some_and(|v| v.big));
    // What the other list holds would never be freed.
    let is_one_kind = match applying {
        Applying::Commit { .. } => applied.deferred.is_empty(),
        Applying::Replay { .. } => applied.replaced.is_empty(),
    };
    invariant!(is_one_kind, "commits keep the nodes they replace, and replay only their pages: tree {id}");
    applied.trees.set(id, Some(TreeState { slot, has_big_values, ..(*tree).clone() }));
    Ok(())
}

/// The catalogue row of a name, if there is one.
///
/// # Errors
/// `CorruptData` if its row cannot be decoded. Any error from reading the catalogue.
pub(crate) fn named(
    pages: &Pages,
    catalogue: Option<&Slot>,
    name: &[u8],
) -> Result<Option<CatalogRow>, Error> {
    let row = find(pages, catalogue, name, |value| CatalogRow::decode(value.bytes))?;
    row.map(|row| row.ok_or_else(|| bad_row(name))).transpose()
}

fn bad_row(name: &[u8]) -> Error {
    let name = name.escape_ascii();
    Error::new(Code::CorruptData, format!("the catalogue's row for \"{name}\" cannot be read"))
}

/// Applies changed catalogue rows to the table: a new row creates a tree, a deleted or replaced row drops its
/// tree.
fn catalogue(
    store: &Store,
    trees: &mut TreeTable,
    changes: &[Change<'_>],
    seq: CommitSeq,
) -> Result<(), ApplyError> {
    let slot = trees.get(CATALOG).and_then(|tree| tree.slot.clone());
    for change in changes {
        let old = named(&store.pages, slot.as_ref(), change.key)?;
        let new =
            change.value.map(|value| CatalogRow::decode(value.bytes).ok_or_else(|| bad_row(change.key)));
        let new = new.transpose()?;
        if let Some(old) = &old
            && new.as_ref().is_none_or(|new| new.id != old.id)
            && let Some(tree) = trees.get(old.id).map(|tree| TreeState::clone(tree))
        {
            let dropped = tree.slot.is_some().then_some(TreeState { dropped_at: Some(seq), ..tree });
            trees.set(old.id, dropped);
        }
        if let Some(new) = new
            && trees.get(new.id).is_none()
        {
            let empty = TreeState::empty(new.id, new.spec, &store.reducers);
            trees.set(new.id, Some(TreeState { features: new.features, ..empty }));
        }
    }
    Ok(())
}
