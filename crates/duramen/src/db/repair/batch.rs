//! Changes of the new database, in transactions of a bounded size.

use crate::access::handle::Db;
use crate::store::TreeId;
use crate::store::error::Result;

/// Bytes of keys and values per transaction.
const BATCH_BYTES: usize = 256 * 1024;

/// Changes that are not committed yet.
pub(crate) struct Batch<'a> {
    db: &'a Db,
    changes: Vec<(TreeId, Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(db: &'a Db) -> Batch<'a> {
        Batch { db, changes: Vec::new(), bytes: 0 }
    }

    pub(crate) fn put(&mut self, tree: TreeId, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.push(tree, key, Some(value))
    }

    pub(crate) fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.push(tree, key.to_vec(), None)
    }

    fn push(&mut self, tree: TreeId, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<()> {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.changes.push((tree, key, value));
        if self.bytes >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    /// Commits the collected changes.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        self.bytes = 0;
        if changes.is_empty() {
            return Ok(());
        }
        self.db.transact(|tx| {
            changes.iter().try_for_each(|(tree, key, value)| match value {
                Some(value) => tx.shared().put(*tree, key, value),
                None => tx.shared().delete(*tree, key),
            })
        })
    }
}
