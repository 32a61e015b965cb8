//! A tree of plain bytes, where each call is a transaction or a snapshot of its own.

use crate::store::Receipt;

use crate::access::handle::Db;
use crate::access::reads::Reads;
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
    /// `KeyTooLong`, `TooLarge`, and errors of a commit.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Receipt> {
        self.db.write(|tx| tx.put_bytes(&self.name, key.as_ref(), value.as_ref()))
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// Errors of a commit.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.db.transact(|tx| tx.delete_bytes(&self.name, key.as_ref()))
    }

    /// The value under a key.
    ///
    /// # Errors
    /// Errors of reading the disk.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.db.snapshot()?.get_bytes(&self.name, key.as_ref())
    }

    /// Keys and values of a range as of one snapshot, lent one at a time.
    ///
    /// # Errors
    /// `NoSuchTree` before the first put; errors of reading the disk.
    pub fn scan(&self, range: KeyRange, direction: Direction) -> Result<Rows> {
        self.db.snapshot()?.scan_bytes(&self.name, range, direction)
    }

    /// How many keys a range holds, in O(log n).
    ///
    /// # Errors
    /// Errors of reading the disk.
    pub fn count(&self, range: &KeyRange) -> Result<u64> {
        self.db.snapshot()?.count_bytes(&self.name, range)
    }
}
