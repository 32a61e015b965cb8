//! Collects unreferenced blobs: deleted, replaced, abandoned, or cut short by a crash.
//!
//! It keeps no list of its own. An id in the stored orphan list that belongs to no upload of this process is
//! collected, a bounded number of pieces per transaction.

use crate::store::Durability;

use super::record::{BlobId, ORPHANED, PIECES};
use crate::access::background_work::Outlook;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::snapshot::Snapshot;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange, Source};

/// Pieces deleted per step, at most.
const PIECES_MAX: usize = 512;

/// Steps that a write of a blob runs, at most.
const STEPS_A_WRITE: usize = 16;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Collected {
    /// Pieces deleted.
    pub(crate) freed: u64,
    /// Whether there is more to do.
    pub(crate) more: bool,
}

/// Deletes pieces of one unreferenced blob, in one transaction that does not wait for the disk.
pub(crate) fn step(db: &Db) -> Result<Collected> {
    step_as_of(&db.snapshot()?, db)
}

/// As [`step`], for the ids that a snapshot lists.
pub(super) fn step_as_of(snapshot: &Snapshot, db: &Db) -> Result<Collected> {
    let Some(Dead { id, more_ids }) = find(snapshot, db)? else { return Ok(Collected::default()) };
    let (freed, is_rest) = db.at(Durability::Memory).transact(|tx| {
        let shared = tx.shared();
        let Some(orphaned) = shared.tree(ORPHANED)? else { return Ok((0, true)) };
        // Attached since, or already collected by another thread.
        if shared.get(orphaned, &id.0)?.is_none() {
            return Ok((0, true));
        }
        // Read now: the upload may have stored more between the snapshot that listed it and its end.
        let pieces = first_pieces(shared, id)?;
        if let Some(tree) = shared.tree(PIECES)? {
            pieces.iter().try_for_each(|piece| shared.delete(tree, piece))?;
        }
        let is_rest = pieces.len() < PIECES_MAX;
        if is_rest {
            shared.delete(orphaned, &id.0)?;
        }
        Ok((pieces.len() as u64, is_rest))
    })?;
    Ok(Collected { freed, more: more_ids || !is_rest })
}

/// Collects after a blob was written or deleted. What takes long is left to the background.
pub(crate) fn after_writes(db: &Db) -> Result<()> {
    for _ in 0..STEPS_A_WRITE {
        if !step(db)?.more {
            return Ok(());
        }
    }
    db.open_state().wake();
    Ok(())
}

/// Whether the background has blobs to collect.
pub(crate) fn has_work(db: &Db) -> Result<bool> {
    Ok(find(&db.snapshot()?, db)?.is_some())
}

/// A step of the background.
pub(crate) fn background_step(db: &Db, _now_ns: u64) -> Result<Outlook> {
    Ok(if step(db)?.more { Outlook::More } else { Outlook::Nothing })
}

/// An id that can be collected.
struct Dead {
    id: BlobId,
    /// Whether there are more such ids.
    more_ids: bool,
}

/// The first id that can be collected.
fn find(snapshot: &Snapshot, db: &Db) -> Result<Option<Dead>> {
    let (source, lineage) = (snapshot.source(), db.engine().lineage());
    let Some(orphaned) = source.tree(ORPHANED)? else { return Ok(None) };
    let all = KeyRange { from: Vec::new(), to: None };
    let mut ids = source.cursor(orphaned, all, Direction::Forward)?;
    let mut dead = Vec::new();
    while dead.len() < 2
        && let Some(row) = ids.next_key()?
    {
        let id = BlobId::decode(row)?;
        if !db.open_state().uploads.is_under_way(id, lineage) {
            dead.push(id);
        }
    }
    Ok(dead.first().map(|id| Dead { id: *id, more_ids: dead.len() > 1 }))
}

/// The keys of the first pieces of an id.
fn first_pieces(source: &dyn Source, id: BlobId) -> Result<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    if let Some(tree) = source.tree(PIECES)? {
        let mut cursor = source.cursor(tree, pieces_of(id), Direction::Forward)?;
        while pieces.len() < PIECES_MAX
            && let Some(key) = cursor.next_key()?
        {
            pieces.push(key.to_vec());
        }
    }
    Ok(pieces)
}

/// The keys of all pieces of an id.
pub(crate) fn pieces_of(id: BlobId) -> KeyRange {
    let to = [&id.piece(u64::MAX)[..], &[0]].concat();
    KeyRange { from: id.0.to_vec(), to: Some(to) }
}
