//! Blobs: bytes by the gigabyte under keys in namespaces, streamed in and out in constant memory.
//!
//! Owns the handle of a [`Db`]; `write` brings blobs in, `attach` says which there are, `read` reads them, `record` is how they are stored,
//! `sweep` gives back what nobody can see. Promises of their own: a blob is there whole or not at all; one that is being
//! read stays whole; an upload that was not finished leaks no space.

mod attach;
mod read;
mod record;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

use std::io::Read;
use std::ops::Range;

use crate::access::handle::Db;
use crate::access::reads::Reads;
use crate::store::Source;
use crate::store::error::{Error, Result};
use crate::value::span::Span;
use crate::value::tuple::{Key, OwnedKey, encode};

pub use read::{BlobInfo, BlobIter, BlobReader, BlobsOf};
pub(crate) use record::{BlobId, LOOSE, PIECES, Record, namespace_of_records, records_tree};
pub(crate) use sweep::{after_writes, pieces_of, step};
pub use write::{BlobWriter, Upload};

/// The size of a piece unless another is asked for, and the largest.
pub const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// The smallest size of a piece.
pub const PIECE_BYTES_MIN: usize = 1024;

/// A namespace of blobs of a [`Db`].
///
/// Keys are any [`Key`]: a name, or the key of the document that a blob belongs to. Nothing but that key ties them together: a program
/// that deletes the document deletes the blob in the same transaction, or keeps it.
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
/// reader.read_to_string(&mut picture).expect("it is read from memory");
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
/// In pieces of 1 MiB, each in extents of its own, written once: neither log nor memory holds them. An upload stores its pieces in
/// transactions of their own, so it may be larger than a transaction, and keeps no old state alive while it lasts. The last
/// transaction makes the blob visible. What was deleted, replaced or not finished is swept by the next write of a blob, or by
/// [`Db::sweep_blobs`].
///
/// # Errors
/// Those of [`BlobsOf`], and of a commit.
#[derive(Debug, Clone)]
pub struct Blobs {
    db: Db,
    namespace: String,
    piece_bytes: usize,
}

impl Blobs {
    /// The same namespace for blobs in pieces of another size: smaller ones where small ranges are read, since a range is
    /// read by whole pieces. Blobs that are there keep theirs.
    ///
    /// # Errors
    /// `InvalidArgument` unless it is from [`PIECE_BYTES_MIN`] to [`PIECE_BYTES_MAX`].
    pub fn piece_bytes(mut self, bytes: usize) -> Result<Blobs> {
        if !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&bytes) {
            return Err(Error::invalid(format!(
                "pieces of blobs have {PIECE_BYTES_MIN} to {PIECE_BYTES_MAX} bytes, not {bytes}"
            )));
        }
        self.piece_bytes = bytes;
        Ok(self)
    }

    /// Stores all that a source gives, in constant memory, in the place of any blob that is there.
    ///
    /// # Errors
    /// As [`BlobWriter::finish`]; `System` if the source fails.
    pub fn put(&self, key: impl Key, mut source: impl Read) -> Result<BlobInfo> {
        let mut writer = self.writer(key)?;
        writer.copy_from(&mut source)?;
        writer.finish()
    }

    /// Begins a blob that is written piece by piece.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn writer(&self, key: impl Key) -> Result<BlobWriter> {
        records_tree(&self.namespace)?;
        let key = encode(&key)?;
        Ok(BlobWriter::new(self.db.clone(), self.namespace.clone(), key, self.piece_bytes))
    }

    /// Stores all that a source gives, for a transaction to attach.
    ///
    /// # Errors
    /// As [`Blobs::put`].
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

    /// Opens a part of a blob for reading, as far as it goes; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn range(&self, key: impl Key, bytes: Range<u64>) -> Result<Option<BlobReader>> {
        self.db.snapshot()?.blobs(&self.namespace).range(key, bytes)
    }

    /// What the blob under a key is; `None` if there is none.
    ///
    /// # Errors
    /// As [`BlobsOf`].
    pub fn info(&self, key: impl Key) -> Result<Option<BlobInfo>> {
        self.db.snapshot()?.blobs(&self.namespace).info(key)
    }

    /// The blobs of a range of one state, in order of their keys.
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
    /// As [`BlobsOf`], and those of a commit.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.blobs(&self.namespace).delete(&key))
    }

    /// Gives a blob another key, in the place of any blob that is there. Returns whether there was one.
    ///
    /// # Errors
    /// As [`BlobsOf`], and those of a commit.
    pub fn rename(&self, from: impl Key, to: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.blobs(&self.namespace).rename(&from, &to))
    }
}

/// The namespaces that are there, by name.
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

    /// Gives back the space of all blobs that nobody can see: deleted, replaced, given up, or cut short by a crash. Returns how many
    /// pieces they had. Writes of blobs do the same by themselves, step by step.
    ///
    /// # Errors
    /// Those of a commit; what reading the disk said.
    pub fn sweep_blobs(&self) -> Result<u64> {
        let mut freed = 0;
        loop {
            let swept = step(self)?;
            freed += swept.freed;
            if !swept.more {
                return Ok(freed);
            }
        }
    }
}
