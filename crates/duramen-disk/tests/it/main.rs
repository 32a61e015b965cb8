#![allow(missing_docs, reason = "tests are named by what they show")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]
#![allow(clippy::disallowed_methods, reason = "the disk is checked from outside of its door")]
#![allow(clippy::print_stdout, reason = "what a machine cannot do is told")]

mod contract;
#[cfg(target_os = "linux")]
mod probe;
mod system;

use std::path::{Path, PathBuf};

use duramen_disk::{Disk, MemDisk, OsDisk};

/// A disk and a directory on it that is the test's own.
struct Place {
    disk: Box<dyn Disk>,
    directory: PathBuf,
    _cleanup: Option<tempfile::TempDir>,
}

impl Place {
    /// A directory of the operating system, on the file system that the build uses.
    fn system() -> Place {
        let cleanup = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let directory = cleanup.path().to_path_buf();
        Place { disk: Box::new(OsDisk::new()), directory, _cleanup: Some(cleanup) }
    }

    fn memory() -> Place {
        let disk = MemDisk::new(11);
        disk.create_dir(Path::new("/test")).unwrap();
        Place { disk: Box::new(disk), directory: PathBuf::from("/test"), _cleanup: None }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}
