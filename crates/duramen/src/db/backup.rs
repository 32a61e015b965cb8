//! Backups: a copy of one state of the database, itself a complete database.
//!
//! Owns what is different in a backup: the positions of consumers. The copy itself is the engine's.

use std::path::Path;

use crate::access::handle::Db;
use crate::feed::positions;
use crate::store::error::Result;

pub use crate::store::CopyProgress;

impl Db {
    /// Copies the newest state into a new database in the directory `path`.
    ///
    /// The copy can be opened as it is. To restore, open it, or move it to the place of the original.
    ///
    /// Readers and writers continue meanwhile. The backup is one state with everything committed before the
    /// call, except commits at level `Memory` that are not published yet. When this returns, the backup was
    /// read back, checked and synced. An interrupted backup is marked `UnfinishedCopy` and cannot be opened.
    ///
    /// The copy has its own order of commits. Consumers of the change feed keep their names and policies,
    /// but not their positions, which mean nothing there: each gets [`FeedGap`](crate::Code::FeedGap) when
    /// it reads the copy. A view that is reduced by code which is not registered is copied without its
    /// reductions: a program with the code computes them from the rows. A backup reads everything once and
    /// writes it once. Space that is freed meanwhile becomes reusable at the end.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let directory = tempfile::tempdir().expect("a place for the example");
    /// # let db = Db::open(directory.path().join("shop.duramen"))?;
    /// # let to = directory.path().join("backup.duramen");
    /// db.bytes("notes").put("a", "1")?;
    /// db.backup(&to)?;
    /// let backup = Db::open(&to)?;
    /// assert_eq!(backup.bytes("notes").get("a")?, Some(b"1".to_vec()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at the path. Those of a [read](crate::Error#reads) of
    /// this database; those of [opening](crate::Error#opening) and a [commit](crate::Error#commits) of the
    /// copy; `CorruptData` (E0501) if it reads otherwise than it was written.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<CopyProgress> {
        self.backup_with(path, |_| Ok(()))
    }

    /// As [`Db::backup`], and reports its progress. An error from `progress` stops it.
    ///
    /// # Errors
    /// As [`Db::backup`]; errors of `progress`.
    pub fn backup_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        self.copy_to(path.as_ref(), &positions::value_in_copy, &mut progress)
    }
}
