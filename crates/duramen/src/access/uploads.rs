//! Blob uploads in progress. While one runs, its pieces are not deleted as orphans.

use std::collections::HashSet;
use std::sync::Mutex;

const POISON: &str = "nothing panics while the uploads are locked";

/// The id that ties a blob's pieces together. Never assigned twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlobId(pub(crate) [u8; 16]);

/// Shared by all handles of an open database.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    under_way: Mutex<HashSet<BlobId>>,
}

impl Uploads {
    /// An upload begins.
    pub(crate) fn begin(&self, id: BlobId) {
        self.under_way.lock().expect(POISON).insert(id);
    }

    /// An upload has ended, finished or abandoned.
    pub(crate) fn end(&self, id: BlobId) {
        self.under_way.lock().expect(POISON).remove(&id);
    }

    /// Whether a blob is still being uploaded.
    pub(crate) fn is_under_way(&self, id: BlobId) -> bool {
        self.under_way.lock().expect(POISON).contains(&id)
    }
}
