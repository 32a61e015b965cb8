//! The data file with everything around it that a root needs: pages, space, registered readers, reducers.

use std::path::Path;
use std::sync::Arc;

use duramen_disk::File;

use crate::allocator::Space;
use crate::data_file::{FORMAT_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, SuperblockError};
use crate::error::{Code, Error, Result};
use crate::ids::Generation;
use crate::options::Geometry;
use crate::page_cache::Pages;
use crate::snapshot::Registry;
use crate::tree::Reducers;

/// Pages, space, readers and reducers of one open database.
#[derive(Debug)]
pub struct Store {
    /// Where pages come from.
    pub pages: Pages,
    /// Which blocks are whose.
    pub space: Space,
    /// Who looks at which root.
    pub registry: Arc<Registry>,
    /// The reducers that were registered.
    pub reducers: Reducers,
    /// Sizes.
    pub geometry: Geometry,
}

/// The generations of the superblocks that can be read: two, but after damage or a cut in the middle of a checkpoint.
///
/// # Errors
/// `Io`.
pub fn whole_superblocks(file: &dyn File, path: &Path) -> Result<Vec<Generation>> {
    let mut whole = Vec::new();
    for offset in SUPERBLOCK_OFFSETS {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        file.read_at(&mut bytes, offset).map_err(|e| Error::io("read", path, &e))?;
        whole.extend(Superblock::decode(&bytes).map(|superblock| superblock.generation));
    }
    Ok(whole)
}

/// Reads both superblocks: the newer, and the older if it can be read.
///
/// # Errors
/// `NotADatabase` if neither is one, `Unsupported` for another format, `Corrupt` if neither can be read.
pub fn read_superblocks(file: &Arc<dyn File>, path: &Path) -> Result<(Superblock, Option<Superblock>)> {
    let io = |e| Error::io("read", path, &e);
    let [first, second] = SUPERBLOCK_OFFSETS.map(|offset| read_superblock(&**file, offset));
    let mut found = newest_first(path, [first.map_err(io)?, second.map_err(io)?])?.into_iter();
    let newest = found.next().expect("there is one, or it is an error");
    Ok((newest, found.next()))
}

/// The superblocks that are left of a damaged file, the newest first: at least one.
///
/// # Errors
/// As [`read_superblocks`]; what the disk does not give counts as damaged.
pub fn superblocks_left(file: &Arc<dyn File>, path: &Path) -> Result<Vec<Superblock>> {
    let read = |offset| read_superblock(&**file, offset).unwrap_or(Err(SuperblockError::Damaged));
    newest_first(path, SUPERBLOCK_OFFSETS.map(read))
}

fn read_superblock(
    file: &dyn File,
    offset: u64,
) -> std::io::Result<std::result::Result<Superblock, SuperblockError>> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    match file.read_at(&mut bytes, offset) {
        Ok(()) => Ok(Superblock::decode(&bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Err(SuperblockError::NotOne)),
        Err(e) => Err(e),
    }
}

/// Those of the two that can be read.
fn newest_first(
    path: &Path,
    slots: [std::result::Result<Superblock, SuperblockError>; 2],
) -> Result<Vec<Superblock>> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for slot in slots {
        match slot {
            Ok(superblock) => found.push(superblock),
            Err(problem) => problems.push(problem),
        }
    }
    // A later release may have left one of this format behind: it is an older state, and not to be served.
    if let Some(error) = unsupported(path, &problems) {
        return Err(error);
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    match &found[..] {
        [] => Err(no_superblock(path, &problems)),
        [newest, other] if other.database != newest.database || other.log != newest.log => {
            Err(Error::damaged_data(path, 0, "the two superblocks are of different databases"))
        }
        _ => Ok(found),
    }
}

fn unsupported(path: &Path, problems: &[SuperblockError]) -> Option<Error> {
    let why = problems.iter().find_map(|problem| match problem {
        SuperblockError::OtherFormat(0) => {
            Some("has format 0, a draft from before the first release".to_owned())
        }
        SuperblockError::OtherFormat(version) => {
            Some(format!("has format {version}, this build reads format {FORMAT_VERSION}"))
        }
        SuperblockError::OtherFeatures => Some("needs features that this build does not have".to_owned()),
        SuperblockError::NotOne | SuperblockError::Damaged => None,
    })?;
    let error = Error::new(Code::Unsupported, format!("{} {why}", path.display()));
    Some(error.with_hint("use the release that wrote it to export, and import here"))
}

fn no_superblock(path: &Path, problems: &[SuperblockError]) -> Error {
    if problems.contains(&SuperblockError::Damaged) {
        return Error::new(Code::DamagedSuperblock, format!("{}: no superblock can be read", path.display()));
    }
    Error::new(Code::NotADatabase, format!("{} is not a Duramen data file", path.display()))
        .with_hint("give the directory of a database, or import into a new one")
}
