//! The parameters of each drive of a run, from the command line.
//!
//! Owns which parameters further drives share with the first. It touches no file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::linux::args::{Cache, RunArgs};
use crate::linux::environment;
use crate::linux::failure::Result;
use crate::linux::file_system::FileSystem;
use crate::linux::stage;

/// The names of drives in messages and reports, where there are several.
pub(crate) const NAMES: [&str; stage::DRIVE_FILES.len()] =
    ["the first drive", "the second drive", "the third drive"];

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
    let further = args.further();
    let first = DriveSpec {
        name: if further.is_empty() { "the drive" } else { NAMES[0] },
        fs: args.fs,
        cache: args.cache,
        mkfs_opts: args.mkfs_opts.as_deref(),
        mount_opts: args.mount_opts.as_deref(),
        image: image.clone(),
        kept: kept.clone(),
    };
    let further = further.into_iter().enumerate().map(|(index, (fs, cache))| {
        let of_drive = |image: &PathBuf| image_of(image, index + 1);
        DriveSpec {
            name: NAMES[index + 1],
            fs,
            cache,
            mkfs_opts: None,
            mount_opts: None,
            image: image.as_ref().map(of_drive),
            kept: kept.as_ref().map(of_drive),
        }
    });
    Ok(std::iter::once(first).chain(further).collect())
}

/// The image of a further drive is beside that of the first: a run keeps all or none.
fn image_of(first: &Path, drive_index: usize) -> PathBuf {
    let mut name = OsString::from(first);
    name.push(".");
    name.push(stage::DRIVE_FILES[drive_index]);
    PathBuf::from(name)
}
