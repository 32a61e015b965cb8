//! The memory of an import.
//!
//! Rows in the order of their keys need little memory, whatever their number: what is stored is not read
//! again. Rows in another order need the tree in memory. Which it is shows in the pages that the batches read
//! back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use duramen::Db;

use crate::failure::Result;

/// Enough for rows in the order of their keys.
const SMALL_BYTES: usize = 24 << 20;

/// Pages that may be read back before memory is raised: catalogue, and inner nodes of a large tree.
const PAGES_FREE: u64 = 256;

/// Beyond these pages, one for so many rows may be read back.
const ROWS_A_PAGE: u64 = 32;

/// The memory of one import: small until its batches need more.
#[derive(Debug)]
pub(super) struct Memory {
    /// The target that the database was opened with.
    full_bytes: usize,
    is_raised: AtomicBool,
    rows: AtomicU64,
}

impl Memory {
    /// Lowers the memory of a database to what rows in order need.
    pub(super) fn small(db: &Db) -> Result<Memory> {
        let memory = Memory::full(db);
        db.set_memory_bytes(SMALL_BYTES.min(memory.full_bytes))?;
        Ok(Memory { is_raised: AtomicBool::new(false), ..memory })
    }

    /// The memory that the database was opened with.
    pub(super) fn full(db: &Db) -> Memory {
        let full_bytes = usize::try_from(db.durability_status().memory_bytes).unwrap_or(usize::MAX);
        Memory { full_bytes, is_raised: AtomicBool::new(true), rows: AtomicU64::new(0) }
    }

    /// Raises the memory if batches read many pages back.
    pub(super) fn review(&self, db: &Db, rows: usize) -> Result<()> {
        let rows = self.rows.fetch_add(rows as u64, Ordering::Relaxed) + rows as u64;
        if !self.is_raised.load(Ordering::Relaxed) && db.stats().pages_read > PAGES_FREE + rows / ROWS_A_PAGE
        {
            self.raise(db)?;
        }
        Ok(())
    }

    /// Raises the memory; `false` if it was raised before.
    pub(super) fn raise(&self, db: &Db) -> Result<bool> {
        let raises = !self.is_raised.swap(true, Ordering::Relaxed);
        if raises {
            db.set_memory_bytes(self.full_bytes)?;
        }
        Ok(raises)
    }
}
