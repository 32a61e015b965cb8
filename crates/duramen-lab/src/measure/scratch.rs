//! A file for measurements: created, opened as often as needed, and always removed at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use duramen_disk::sync_choice::MEASURE_PREFIX;
use duramen_disk::{Access, Disk, File, OpenMode, OsDisk, SyncMethod};

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    disk: OsDisk,
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty file in a directory; its name is synced.
    pub(super) fn make(directory: &Path) -> io::Result<Scratch> {
        let disk = OsDisk::new();
        let path = directory.join(format!("{MEASURE_PREFIX}{:016x}", disk.random()));
        drop(disk.open(&path, Access::CREATE)?);
        let scratch = Scratch { disk, path };
        scratch.disk.sync_dir(directory)?;
        Ok(scratch)
    }

    /// Opens the file for durable writes by `sync`.
    pub(super) fn open(&self, sync: SyncMethod) -> io::Result<Arc<dyn File>> {
        self.disk.open(&self.path, Access { mode: OpenMode::Write, sync })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure has no caller to report to.
        drop(self.disk.remove(&self.path));
    }
}
