//! Blob uploads in progress. While one runs, its pieces are not deleted as orphans.
//!
//! In a node of a cluster an upload ends with the lineage of commits in which it began: another node may have
//! led since, and deleted some of its pieces.

use std::collections::HashMap;
use std::sync::Mutex;

const POISON: &str = "nothing panics while the uploads are locked";

/// The id that ties a blob's pieces together. Never assigned twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlobId(pub(crate) [u8; 16]);

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// With the lineage in which each began.
    under_way: Mutex<HashMap<BlobId, Option<u64>>>,
}

impl Uploads {
    /// An upload begins.
    pub(crate) fn begin(&self, id: BlobId, lineage: Option<u64>) {
        self.under_way.lock().expect(POISON).insert(id, lineage);
    }

    /// An upload has ended, finished or abandoned.
    pub(crate) fn end(&self, id: BlobId) {
        self.under_way.lock().expect(POISON).remove(&id);
    }

    /// Whether a blob is still being uploaded, in this lineage.
    pub(crate) fn is_under_way(&self, id: BlobId, lineage: Option<u64>) -> bool {
        self.under_way.lock().expect(POISON).get(&id) == Some(&lineage)
    }
}
