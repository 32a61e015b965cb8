//! Backups: a copy of one state of the database that opens by itself.
//!
//! Owns what a backup leaves out; the copy itself is the engine's.

use std::path::Path;

use crate::access::handle::Db;
use crate::feed::positions;
use crate::store::error::Result;

pub use crate::store::CopyProgress;

impl Db {
    /// Copies the newest state into a new database in the directory `path`. It can be opened as it is: a restore is opening
    /// it, or moving it to where the original was.
    ///
    /// Others read and write meanwhile; the backup is one state, with everything that was committed before the call, but for what
    /// returned at level `Memory` and is still on its way. When this returns, the backup was read back and checked, and is on the
    /// disk. Cut short, it is `UnfinishedCopy` and opens for nobody.
    /// Consumers of the change feed are left out: the copy has an order of commits of its own, and positions in it.
    /// Costs a read of everything and a write of it; the space that is let go of meanwhile is given back at the end.
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
    /// `AlreadyExists` if there is something at the path; `Full`, `Io`; damage in what was read.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<CopyProgress> {
        self.backup_with(path, |_| Ok(()))
    }

    /// As [`Db::backup`], and tells how far it is. An error from `progress` ends it.
    ///
    /// # Errors
    /// As [`Db::backup`]; what `progress` said.
    pub fn backup_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(&CopyProgress) -> Result<()>,
    ) -> Result<CopyProgress> {
        // Positions in another order of commits mean nothing.
        self.copy_to(path.as_ref(), &|tree| tree != positions::CONSUMERS, &mut progress)
    }
}
