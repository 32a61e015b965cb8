//! A tree of plain bytes, where each call is a transaction or a snapshot of its own.

use crate::store::Receipt;

use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::access::rows::Rows;
use crate::store::error::Result;
use crate::store::{Direction, KeyRange};

/// A tree of byte keys and byte values of a [`Db`]. The first put creates it.
#[derive(Debug, Clone)]
pub struct ByteTree {
    db: Db,
    name: String,
}

impl ByteTree {
    pub(crate) fn new(db: Db, name: String) -> ByteTree {
        ByteTree { db, name }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `KeyTooLong` (E0202) for a key of more than 1,024 bytes;
    /// `InvalidArgument` (E0201) for a reserved name.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Receipt> {
        self.db.write(|tx| tx.put_bytes(&self.name, key.as_ref(), value.as_ref()))
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) for a reserved name.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.db.transact(|tx| tx.delete_bytes(&self.name, key.as_ref()))
    }

    /// The value under a key.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a reserved name.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.db.snapshot()?.get_bytes(&self.name, key.as_ref())
    }

    /// Keys and values of a range as of one snapshot, lent one at a time.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `NoSuchTree` (E0901) before the first put;
    /// `InvalidArgument` (E0201) for a reserved name.
    pub fn scan(&self, range: KeyRange, direction: Direction) -> Result<Rows> {
        self.db.snapshot()?.scan_bytes(&self.name, range, direction)
    }

    /// How many keys a range holds, in O(log n).
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a reserved name.
    pub fn count(&self, range: &KeyRange) -> Result<u64> {
        self.db.snapshot()?.count_bytes(&self.name, range)
    }
}
