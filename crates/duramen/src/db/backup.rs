//! Backups: a copy of one state of the database, itself a complete database.
//!
//! Owns what is different in a backup: the positions of consumers. The copy itself is the engine's.

use std::path::Path;

use crate::access::handle::Db;
use crate::db::options::DbOptions;
use crate::feed::positions;
use crate::store::error::Result;
use crate::store::{CommitSeq, CopySource, CopyTarget};

pub use crate::store::{CopyPart, CopyProgress};

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

/// The newest state of a database, part by part, for a backup that another process makes. The state is held
/// until this is dropped, and its space with it.
#[derive(Debug)]
pub struct BackupSource(CopySource);

impl BackupSource {
    /// The newest published state.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn of(db: &Db) -> Result<BackupSource> {
        db.copy_source().map(BackupSource)
    }

    /// The commit whose state it is.
    #[must_use]
    pub fn seq(&self) -> CommitSeq {
        self.0.seq()
    }

    /// How many entries there are in all.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.0.entries()
    }

    /// The next part; `None` after the last. Entries have about 256 KiB together, or one of them is larger.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    #[expect(clippy::should_implement_trait, reason = "it can fail, and then ends")]
    pub fn next(&mut self) -> Result<Option<CopyPart>> {
        self.0.next(&positions::value_in_copy)
    }

    /// A hash of all parts so far.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.0.digest()
    }
}

/// A backup that is made of the parts of a [`BackupSource`]. Until it is finished it opens as
/// `UnfinishedCopy` (E0215).
#[derive(Debug)]
pub struct BackupTarget(CopyTarget);

impl BackupTarget {
    /// Begins a backup in a new directory: of the state of a commit, with so many entries. The options say
    /// how the copy is written, and which code it has for reductions.
    ///
    /// # Errors
    /// `AlreadyExists` (E0210) if there is something at the path; those of [opening](crate::Error#opening).
    pub fn begin(options: DbOptions, path: &Path, seq: CommitSeq, entries: u64) -> Result<BackupTarget> {
        options.begin_copy(path, (seq, entries)).map(BackupTarget)
    }

    /// Stores the next part. Returns how far it is.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits); `InvalidArgument` (E0201) or `AlreadyExists` (E0210) if the
    /// parts are not in their order.
    pub fn take(&mut self, part: CopyPart) -> Result<CopyProgress> {
        self.0.take(part)?;
        Ok(self.0.progress())
    }

    /// Reads and checks the backup. It is on disk then, and opens.
    ///
    /// # Errors
    /// `CorruptData` (E0501) if its parts do not have this digest, or it reads otherwise than it was written.
    /// Those of a [commit](crate::Error#commits).
    pub fn finish(self, digest: u128) -> Result<CopyProgress> {
        self.0.finish(digest)
    }
}
