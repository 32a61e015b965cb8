//! Which blobs a namespace has: the changes of a transaction.
//!
//! Owns this rule: in every committed state each id with pieces is either named by one record or listed in
//! the orphan list (`ORPHANED`). So nothing leaks: an orphaned id without an upload is collected.

use super::read::BlobsOf;
use super::record::{BlobId, ORPHANED, Record, records_tree};
use super::write::Upload;
use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::store::error::{Error, Result};
use crate::store::{Source, TreeId};
use crate::value::tuple::{Key, encode};

impl BlobsOf<'_, Transaction<'_>> {
    /// Puts an upload under a key, replacing any blob there. It becomes visible if and when this transaction
    /// commits.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `InvalidArgument` (E0201) for an
    /// invalid namespace, or an upload that already has a key, belongs to another database, or was made
    /// before this database was opened again.
    pub fn attach(&self, key: impl Key, upload: &Upload) -> Result<()> {
        let key = encode(&key)?;
        let id = upload.record().id;
        // A row in `ORPHANED` alone is not enough: an upload of an earlier opening is collected, also while
        // this transaction runs, and a backup holds only the pieces that were stored when it was taken.
        let tx = self.within.shared();
        let is_live = self.within.open_state().uploads.is_under_way(id, tx.lineage());
        let is_orphaned = match tx.tree(ORPHANED)? {
            Some(orphaned) => tx.get(orphaned, &id.0)?.is_some(),
            None => false,
        };
        if !is_live || !is_orphaned {
            let what = "the upload is attached already, or was made in another database, in an earlier opening, or before this node of a cluster began to lead";
            return Err(Error::invalid(what).with_hint("upload the bytes again, once for each key"));
        }
        // The program may drop the upload before this transaction commits.
        self.within.hold(upload.live());
        let attached = self.adopt(id).and_then(|()| self.publish(&key, upload.record()));
        self.within.all_or_nothing(attached)
    }

    /// Deletes a blob. Returns whether it was there. Its space is freed after the commit.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `InvalidArgument` (E0201) for an
    /// invalid namespace.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        let key = encode(&key)?;
        let Some(record) = self.record(&key)? else { return Ok(false) };
        let records = self.records()?;
        let deleted = self.orphan(record.id).and_then(|()| self.within.shared().delete(records, &key));
        self.within.all_or_nothing(deleted)?;
        Ok(true)
    }

    /// Gives a blob another key, replacing any blob under that key. Returns whether there was one to rename.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `InvalidArgument` (E0201) for an
    /// invalid namespace.
    pub fn rename(&self, from: impl Key, to: impl Key) -> Result<bool> {
        let (from, to) = (encode(&from)?, encode(&to)?);
        let Some(record) = self.record(&from)? else { return Ok(false) };
        if from != to {
            let records = self.records()?;
            let moved = self.publish(&to, &record).and_then(|()| self.within.shared().delete(records, &from));
            self.within.all_or_nothing(moved)?;
        }
        Ok(true)
    }

    /// Stores a record, replacing any under the key.
    pub(super) fn publish(&self, key: &[u8], record: &Record) -> Result<()> {
        if let Some(replaced) = self.record(key)? {
            self.orphan(replaced.id)?;
        }
        self.within.wrote_blobs();
        self.within.shared().put(self.records()?, key, &record.encode())
    }

    /// Lists an id as orphaned: no record names it any more, or none yet.
    pub(super) fn orphan(&self, id: BlobId) -> Result<()> {
        self.within.wrote_blobs();
        self.within.shared().put(self.tree(ORPHANED)?, &id.0, &[])
    }

    /// Removes an id from the orphan list, because a record names it from now on.
    pub(super) fn adopt(&self, id: BlobId) -> Result<()> {
        self.within.shared().delete(self.tree(ORPHANED)?, &id.0)
    }

    /// A tree, created if it does not exist.
    pub(super) fn tree(&self, name: &str) -> Result<TreeId> {
        let tx = self.within.shared();
        match tx.tree(name)? {
            Some(tree) => Ok(tree),
            None => tx.create_tree(name, None),
        }
    }

    fn records(&self) -> Result<TreeId> {
        self.tree(&records_tree(self.namespace)?)
    }
}
