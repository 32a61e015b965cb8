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
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for offset in SUPERBLOCK_OFFSETS {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        match file.read_at(&mut bytes, offset) {
            Ok(()) => match Superblock::decode(&bytes) {
                Ok(superblock) => found.push(superblock),
                Err(problem) => problems.push(problem),
            },
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => problems.push(SuperblockError::NotOne),
            Err(e) => return Err(Error::io("read", path, &e)),
        }
    }
    // A later release may have left one of this format behind: it is an older state, and not to be served.
    if let Some(error) = unsupported(path, &problems) {
        return Err(error);
    }
    found.sort_by_key(|superblock| superblock.generation);
    let Some(newest) = found.pop() else { return Err(no_superblock(path, &problems)) };
    match found.pop() {
        Some(other) if other.database != newest.database || other.log != newest.log => {
            Err(Error::damaged_data(path, 0, "the two superblocks are of different databases"))
        }
        older => Ok((newest, older)),
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
