//! The parameters of each drive of a run, from the command line.
//!
//! Owns which parameters the second drive shares with the first. It touches no file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::linux::args::{Cache, RunArgs};
use crate::linux::environment;
use crate::linux::failure::Result;
use crate::linux::file_system::FileSystem;

/// One drive of a run.
#[derive(Debug)]
pub(crate) struct DriveSpec<'a> {
    /// Its name in error messages.
    pub(crate) name: &'static str,
    pub(crate) fs: FileSystem,
    pub(crate) cache: Cache,
    pub(crate) mkfs_opts: Option<&'a str>,
    pub(crate) mount_opts: Option<&'a str>,
    /// Its initial image, if it does not begin with an empty file system.
    pub(crate) image: Option<PathBuf>,
    /// Where its content after the cut is kept.
    pub(crate) kept: Option<PathBuf>,
}

/// The drives of a run, the first one first.
pub(crate) fn all(args: &RunArgs) -> Result<Vec<DriveSpec<'_>>> {
    let image = args.image.as_deref().map(environment::absolute_image).transpose()?;
    let kept = args.keep_image.as_deref().map(environment::absolute_image).transpose()?;
    let second = args.second().map(|(fs, cache)| DriveSpec {
        name: "the second drive",
        fs,
        cache,
        mkfs_opts: None,
        mount_opts: None,
        image: image.as_deref().map(of_second),
        kept: kept.as_deref().map(of_second),
    });
    let first = DriveSpec {
        name: if second.is_some() { "the first drive" } else { "the drive" },
        fs: args.fs,
        cache: args.cache,
        mkfs_opts: args.mkfs_opts.as_deref(),
        mount_opts: args.mount_opts.as_deref(),
        image,
        kept,
    };
    Ok(std::iter::once(first).chain(second).collect())
}

/// The image of the second drive is beside that of the first: a run keeps both or none.
fn of_second(image: &Path) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(".second");
    PathBuf::from(name)
}
