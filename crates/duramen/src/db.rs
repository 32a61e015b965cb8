//! Opening and closing a database, and the work behind the scenes.

pub(crate) mod background;
pub(crate) mod backup;
pub mod migrate;
pub(crate) mod options;
pub(crate) mod recover;
pub(crate) mod verify;
pub(crate) mod views;

use std::path::Path;

use crate::access::handle::Db;
use crate::db::options::DbOptions;
use crate::db::verify::DocumentReport;
use crate::store::error::Result;
use crate::{blobs, kv};

impl Db {
    /// Opens the database in this directory, or creates it. A commit is then on disk when it returns.
    ///
    /// # Errors
    /// `NotADatabase`, `DatabaseLocked`, damage, and what the system said.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::options().open(path)
    }

    /// Options to open with.
    #[must_use]
    pub fn options() -> DbOptions {
        DbOptions::default()
    }

    /// Opens an empty database on a disk in memory; for tests.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory() -> Result<Db> {
        Db::options().in_memory()
    }

    /// Reads every document of every collection: it decodes, lies under its own key, its fields fit its columns, and views have its
    /// rows; and every key-value: it decodes, and the expiry index has a row for each that expires and no other. Blobs
    /// have as many pieces as their lengths say.
    ///
    /// # Errors
    /// What kept it from reading at all. What cannot be read from the disk is in the report, as are documents that are
    /// wrong.
    pub fn check_documents(&self) -> Result<DocumentReport> {
        verify::documents(&self.snapshot()?)
    }
}

/// As [`AfterWrites`](crate::access::handle::AfterWrites) says.
pub(crate) fn sweep_after(db: &Db, kv_due: &[(String, u64)], wrote_blobs: bool) {
    for (namespace, writes) in kv_due {
        let _ = kv::after_writes(db, namespace, *writes);
    }
    if wrote_blobs {
        let _ = blobs::after_writes(db);
    }
}
