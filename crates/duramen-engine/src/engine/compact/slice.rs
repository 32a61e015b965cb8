//! A slice of a compaction: the ranges that a commit moves, and the big values that were copied for it.

use std::io::Read;

use crate::catalog::TreeState;
use crate::checkpoint::Store;
use crate::checkpoint::write_value;
use crate::commit::{Committer, MovedRange, MovedValue, Relocation};
use crate::data_file::PagePointer;
use crate::error::{Code, Error, Result};
use crate::ids::TreeId;
use crate::tree::{BigReader, BigRef, Compacting, Cursor, Direction, KeyRange, Moved, Slot};

/// A slice: what one commit moves.
pub(super) struct Slice {
    pub relocation: Relocation,
    /// Bytes that the commit makes dirty, and of big values.
    pub bytes: u64,
    /// Bytes that were read and are free later: of pages as they are stored, and of big values.
    pub stored_bytes: u64,
}

/// A slice while it is put together. Dropped, it frees the copies of big values.
pub(super) struct Plan<'a> {
    relocation: Relocation,
    bytes: u64,
    stored_bytes: u64,
    /// It is full from so many bytes on.
    bytes_max: u64,
    /// Bytes of values that were copied and found no better place.
    tried_bytes: u64,
    store: &'a Store,
    committer: &'a Committer,
    /// A big value was not copied, because the disk has no room for it.
    lacks_room: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        store: &'a Store,
        committer: &'a Committer,
        compacting: Compacting,
        bytes_max: u64,
    ) -> Plan<'a> {
        let relocation =
            Relocation { compacting, ranges: Vec::new(), values: Vec::new(), merged: Vec::new() };
        Plan {
            relocation,
            bytes: 0,
            stored_bytes: 0,
            bytes_max,
            tried_bytes: 0,
            store,
            committer,
            lacks_room: false,
        }
    }

    pub(super) fn compacting(&self) -> Compacting {
        self.relocation.compacting
    }

    /// Whether enough is moved, or was copied for nothing.
    pub(super) fn is_full(&self) -> bool {
        self.bytes + self.tried_bytes >= self.bytes_max
    }

    pub(super) fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Adds a range with the pages that it moves.
    pub(super) fn range(&mut self, range: MovedRange, moved: Moved) {
        self.bytes += moved.bytes as u64;
        self.stored_bytes += moved.blocks * self.store.geometry.block_bytes as u64;
        self.relocation.ranges.push(range);
    }

    pub(super) fn finish(mut self) -> Slice {
        let Relocation { compacting, ranges, values, .. } = &mut self.relocation;
        let (ranges, values) = (std::mem::take(ranges), std::mem::take(values));
        let relocation = Relocation { compacting: *compacting, ranges, values, merged: Vec::new() };
        Slice { relocation, bytes: self.bytes, stored_bytes: self.stored_bytes }
    }

    /// Copies the big values between two keys that lie beyond the aimed end, until the slice is full. Returns
    /// the key of the next one then.
    pub(super) fn values(
        &mut self,
        tree: &TreeState,
        slot: &Slot,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        if !tree.has_big_values {
            return Ok(None);
        }
        let keys = KeyRange { from: from.to_vec(), to: to.map(<[u8]>::to_vec) };
        let mut entries = Cursor::new(Some(slot), keys, Direction::Forward);
        while let Some((key, value)) = entries.next(&self.store.pages)? {
            if !value.big {
                continue;
            }
            let old = BigRef::decode(value.bytes)?;
            let pages = old.pages(&self.store.pages)?;
            if end_of(&pages) <= self.relocation.compacting.end_block {
                continue;
            }
            // A later round moves it; see `commit/relocate.rs`.
            if self.store.space.is_in_log_alone(&pages) {
                continue;
            }
            if self.is_full() {
                return Ok(Some(key.to_vec()));
            }
            let (key, encoded) = (key.to_vec(), value.bytes.to_vec());
            self.value(tree.id, key, encoded, &old, end_of(&pages))?;
        }
        Ok(None)
    }

    fn value(&mut self, tree: TreeId, key: Vec<u8>, old: Vec<u8>, value: &BigRef, end: u64) -> Result<()> {
        self.committer.usable()?;
        let room_blocks = self.store.space.free_blocks_before(self.relocation.compacting.end_block);
        if room_blocks * (self.store.geometry.block_bytes as u64) < value.len {
            return Ok(());
        }
        let mut source = Source { reader: BigReader::open(&self.store.pages, value)?, failure: None };
        let written = write_value(self.store, &mut source);
        let (mut new, pages) = match (written, source.failure) {
            (Err(_), Some(failure)) => return Err(failure),
            (Err(error), None) if error.code() == Code::DiskFull => {
                self.lacks_room = true;
                self.tried_bytes += value.len.max(1);
                return Ok(());
            }
            (written, _) => written?,
        };
        if new.len != value.len || end_of(&pages) >= end {
            // There is no room for it further down.
            self.store.space.value_aborted(&pages);
            self.tried_bytes += value.len.max(1);
            return Ok(());
        }
        new.one.clone_from(&value.one);
        self.bytes += value.len;
        self.stored_bytes += value.len;
        self.relocation.values.push(MovedValue { tree, key, old, new: new.encode(), pages });
        Ok(())
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        self.relocation.values.iter().for_each(|value| self.store.space.value_aborted(&value.pages));
    }
}

/// A big value that is read, and why that failed.
struct Source {
    reader: BigReader,
    failure: Option<Error>,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer).map_err(|error| match error.downcast::<Error>() {
            Ok(failure) => {
                self.failure = Some(failure);
                std::io::Error::other("the value cannot be read")
            }
            Err(error) => error,
        })
    }
}

/// One after the last block of these pages.
fn end_of(pages: &[PagePointer]) -> u64 {
    pages.iter().map(|page| page.block + u64::from(page.block_count)).max().unwrap_or(0)
}
