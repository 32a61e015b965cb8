//! Blobs: large byte objects under keys in namespaces, streamed in and out in constant memory.
//!
//! Owns the handle of a [`Db`]. `write` uploads blobs, `attach` adds and removes them, `read` reads them.
//! `record` is the stored form; `collect` deletes unreferenced pieces. Promises: a blob is stored whole or
//! not at all. A blob that is being read stays whole. An unfinished upload leaks no space.

mod attach;
mod collect;
mod read;
mod record;
#[cfg(test)]
mod tests;
mod write;

use std::io::Read;
use std::ops::Range;

use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::store::Source;
use crate::store::error::{Error, Result};
use crate::value::span::Span;
use crate::value::tuple::{Key, OwnedKey, encode};

pub(crate) use collect::{after_writes, background_step, has_work, pieces_of, step};
pub use read::{BlobInfo, BlobIter, BlobReader, BlobsOf, EncodedBlobs, encoded_blobs};
pub(crate) use record::{BlobId, ORPHANED, PIECES, Record, namespace_of_records, records_tree};
pub use write::{BlobWriter, Upload};

/// The default size of a piece, and the largest.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// The smallest size of a piece.
pub const PIECE_BYTES_MIN: usize = 1024;

/// A namespace of blobs of a [`Db`].
///
/// A key is any [`Key`]: a name, or the key of the document that the blob belongs to. Only that key ties blob
/// and document together. To delete both, a program deletes document and blob in the same transaction.
///
/// ```
/// # use std::io::Read;
/// # use duramen::prelude::*;
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let avatars = db.blobs("avatars");
/// let info = avatars.put("ada", &b"a picture"[..])?;
/// assert_eq!(info.len, 9);
///
/// let mut picture = String::new();
/// let mut reader = avatars.get("ada")?.expect("it was just put");
/// reader.read_to_string(&mut picture).map_err(Error::from_io)?;
/// assert_eq!(picture, "a picture");
///
/// // With a document, or not at all.
/// let users = db.ensure(&Schema::new("users").key(["name"]))?;
/// let upload = avatars.upload(&b"another picture"[..])?;
/// db.transact(|tx| {
///     tx.documents("users").put(doc! { "name": "grace" })?;
///     tx.blobs("avatars").attach("grace", &upload)
/// })?;
/// assert_eq!(avatars.info("grace")?.map(|info| info.len), Some(15));
/// # assert_eq!(users.count(Span::all())?, 1);
/// # Ok(()) }
/// ```
///
/// # How blobs are stored
/// A blob is stored in pieces of 1 MiB, each written once to extents of its own. Neither the log nor memory
/// holds them. An upload stores its pieces in several transactions, so it may be larger than one transaction.
/// It holds no snapshot open. The last transaction makes the blob visible. Deleted, replaced and unfinished
/// blobs are collected by the next write of a blob, in the background, or by [`Db::sweep_blobs`].
///
/// # Errors
/// As [`BlobsOf`], and those of a [commit](crate::Error#commits) for a write.
#[derive(Debug, Clone)]
pub struct Blobs {
    db: Db,
    namespace: String,
    piece_bytes: usize,
}

impl Blobs {
    /// The same namespace with another piece size for new blobs.
    ///
    /// Use smaller pieces where small ranges are read: a range is read by whole pieces. Existing blobs keep
    /// their piece size.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) unless it is from [`PIECE_BYTES_MIN`] to [`PIECE_BYTES_MAX`].
    pub fn piece_bytes(mut self, bytes: usize) -> Result<Blobs> {
        if !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&bytes) {
            return Err(Error::invalid(format!(
                "pieces of blobs have {PIECE_BYTES_MIN} to {PIECE_BYTES_MAX} bytes, not {bytes}"
            )));
        }
        self.piece_bytes = bytes;
        Ok(self)
    }

    /// Stores everything that a source yields, in constant memory, replacing any blob under the key.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) for an invalid namespace;
    /// `KeyTooLong` (E0202); `System` (E1001) if the source fails.
    pub fn put(&self, key: impl Key, mut source: impl Read) -> Result<BlobInfo> {
        let mut writer = self.writer(key)?;
        writer.copy_from(&mut source)?;
        writer.finish()
    }

    /// Opens a writer for a blob that is written piece by piece.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an invalid namespace; `KeyTooLong` (E0202).
    pub fn writer(&self, key: impl Key) -> Result<BlobWriter> {
        records_tree(&self.namespace)?;
        let key = encode(&key)?;
        Ok(BlobWriter::new(self.db.clone(), self.namespace.clone(), key, self.piece_bytes))
    }

    /// Stores everything that a source yields, for a transaction to attach.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) for an invalid namespace;
    /// `System` (E1001) if the source fails.
    pub fn upload(&self, mut source: impl Read) -> Result<Upload> {
        let mut writer = self.writer(())?;
        writer.copy_from(&mut source)?;
        writer.finish_unattached()
    }

    /// Opens a blob for reading; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn get(&self, key: impl Key) -> Result<Option<BlobReader>> {
        self.db.snapshot()?.blobs(&self.namespace).get(key)
    }

    /// Opens a byte range of a blob for reading, cut at the end of the blob; `None` if there is no blob.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn range(&self, key: impl Key, bytes: Range<u64>) -> Result<Option<BlobReader>> {
        self.db.snapshot()?.blobs(&self.namespace).range(key, bytes)
    }

    /// The metadata of the blob under a key; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn info(&self, key: impl Key) -> Result<Option<BlobInfo>> {
        self.db.snapshot()?.blobs(&self.namespace).info(key)
    }

    /// The blobs of a range as of one snapshot, in key order.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn scan<K: OwnedKey>(&self, span: Span) -> Result<BlobIter<K>> {
        self.db.snapshot()?.blobs(&self.namespace).scan(span)
    }

    /// How many blobs a range holds, in O(log n).
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn count(&self, span: Span) -> Result<u64> {
        self.db.snapshot()?.blobs(&self.namespace).count(span)
    }

    /// Deletes a blob. Returns whether it was there.
    ///
    /// # Errors
    /// As [`BlobsOf`], and those of a [commit](crate::Error#commits).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.blobs(&self.namespace).delete(&key))
    }

    /// Gives a blob another key, replacing any blob under that key. Returns whether there was one to rename.
    ///
    /// # Errors
    /// As [`BlobsOf`], and those of a [commit](crate::Error#commits).
    pub fn rename(&self, from: impl Key, to: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.blobs(&self.namespace).rename(&from, &to))
    }
}

/// The names of the existing namespaces.
pub(crate) fn namespaces(source: &dyn Source) -> Result<Vec<String>> {
    let names = source.tree_names()?;
    Ok(names.iter().filter_map(|name| namespace_of_records(name)).map(str::to_owned).collect())
}

impl Db {
    /// A namespace of blobs.
    #[must_use]
    pub fn blobs(&self, namespace: impl Into<String>) -> Blobs {
        Blobs { db: self.clone(), namespace: namespace.into(), piece_bytes: PIECE_BYTES_MAX }
    }

    /// Frees the space of all unreferenced blobs: deleted, replaced, abandoned, or cut short by a crash.
    ///
    /// Returns how many pieces it freed. Writes of blobs and the background do the same on their own, step by
    /// step.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits).
    pub fn sweep_blobs(&self) -> Result<u64> {
        let mut freed = 0;
        loop {
            let collected = step(self)?;
            freed += collected.freed;
            if !collected.more {
                return Ok(freed);
            }
        }
    }
}
