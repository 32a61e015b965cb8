//! Which blobs a namespace has: what a transaction changes.
//!
//! Owns the rule that every id with pieces is either named by one record or loose, in each state that commits. So nothing
//! leaks: what is loose and belongs to no upload is swept.

use super::read::BlobsOf;
use super::record::{BlobId, LOOSE, Record, records_tree};
use super::write::Upload;
use crate::engine::{Source, TreeId};
use crate::error::{Error, Result};
use crate::reads::sealed::Readable;
use crate::transaction::Transaction;
use crate::tuple::{Key, encode};

impl BlobsOf<'_, Transaction<'_>> {
    /// Puts an upload under a key, in the place of any blob that is there: it is seen by others when, and only if, this
    /// transaction commits.
    ///
    /// # Errors
    /// As [`BlobsOf`]; `InvalidArgument` for an upload that has a key already, is another database's, or was
    /// made before this database was opened again.
    pub fn attach(&self, key: impl Key, upload: &Upload) -> Result<()> {
        let key = encode(&key)?;
        let id = upload.record().id;
        // A row in `LOOSE` alone is not enough: an upload of an earlier opening is swept, also while this
        // transaction runs, and a backup holds only the pieces that were stored when it was taken.
        let is_live = self.within.known().uploads(|uploads| uploads.contains(&id));
        let tx = self.within.shared();
        let is_loose = match tx.tree(LOOSE)? {
            Some(loose) => tx.get(loose, &id.0)?.is_some(),
            None => false,
        };
        if !is_live || !is_loose {
            let what =
                "the upload is attached already, or was made in another database or an earlier opening";
            return Err(Error::invalid(what).with_hint("upload the bytes again, once for each key"));
        }
        let attached = self.tighten(id).and_then(|()| self.publish(&key, upload.record()));
        self.within.all_or_nothing(attached)
    }

    /// Deletes a blob. Returns whether it was there. Its space comes back behind the commit.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        let key = encode(&key)?;
        let Some(record) = self.record(&key)? else { return Ok(false) };
        let records = self.records()?;
        let deleted = self.loosen(record.id).and_then(|()| self.within.shared().delete(records, &key));
        self.within.all_or_nothing(deleted)?;
        Ok(true)
    }

    /// Gives a blob another key, in the place of any blob that is there. Returns whether there was one.
    ///
    /// # Errors
    /// As [`BlobsOf`].
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

    /// Stores a record, in the place of any that is there.
    pub(super) fn publish(&self, key: &[u8], record: &Record) -> Result<()> {
        if let Some(replaced) = self.record(key)? {
            self.loosen(replaced.id)?;
        }
        self.within.wrote_blobs();
        self.within.shared().put(self.records()?, key, &record.encode())
    }

    /// No record names this id any more, or none yet.
    pub(super) fn loosen(&self, id: BlobId) -> Result<()> {
        self.within.wrote_blobs();
        self.within.shared().put(self.tree(LOOSE)?, &id.0, &[])
    }

    /// A record names this id from now on.
    pub(super) fn tighten(&self, id: BlobId) -> Result<()> {
        self.within.shared().delete(self.tree(LOOSE)?, &id.0)
    }

    /// A tree, made if it is not there.
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
