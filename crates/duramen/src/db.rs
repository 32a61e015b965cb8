//! Opening and closing a database, and its background work.

pub(crate) mod background;
pub(crate) mod backup;
pub(crate) mod compact;
pub mod migrate;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod repair;
pub(crate) mod verify;
pub(crate) mod views;

use std::path::Path;

use crate::access::after_commit::CleanUp;
use crate::access::handle::Db;
use crate::db::options::DbOptions;
use crate::db::verify::DocumentReport;
use crate::store::error::Result;
use crate::{blobs, kv, requests};

impl Db {
    /// Opens the database in this directory, or creates it. A commit is then on disk when it returns.
    ///
    /// Directories above it are created, too. [`DbOptions::create`] refuses a path without a database.
    ///
    /// # Errors
    /// Those of [opening](crate::Error#opening).
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::options().open(path)
    }

    /// Options to open with.
    #[must_use]
    pub fn options() -> DbOptions {
        DbOptions::default()
    }

    /// Opens an empty database on a disk in memory; for tests. See [`DbOptions::in_memory`].
    ///
    /// # Errors
    /// `System` (E1001) if the system gives no thread.
    pub fn in_memory() -> Result<Db> {
        Db::options().in_memory()
    }

    /// Reads and checks every document, key-value and blob.
    ///
    /// - Each document decodes, is stored under its own key, and its fields fit its columns. The views hold
    ///   its rows.
    /// - Each key-value decodes. The expiry index has one row for each value that expires, and no others.
    /// - Each blob has as many pieces as its length requires.
    /// - Each remembered answer of a [request](crate::requests) decodes.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads). Unreadable parts and wrong documents are in the report instead.
    pub fn check_documents(&self) -> Result<DocumentReport> {
        verify::documents(&self.snapshot()?)
    }
}

/// See [`AfterWrites`](crate::access::handle::AfterWrites).
pub(crate) fn clean_up(db: &Db, left: &CleanUp) {
    for (namespace, writes) in &left.kv_due {
        let _ = kv::after_writes(db, namespace, *writes);
    }
    if left.wrote_blobs {
        let _ = blobs::after_writes(db);
    }
    if left.begins_minute {
        requests::after_writes(db);
    }
}
