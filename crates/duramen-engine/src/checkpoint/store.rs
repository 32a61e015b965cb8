//! The data file with everything around it that a root needs: pages, space, registered readers, reducers.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use duramen_disk::File;

use crate::allocator::Space;
use crate::data_file::{
    DataFile, FORMAT_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, SuperblockError,
};
use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, Generation};
use crate::options::{Geometry, GiveBack};
use crate::page_cache::Pages;
use crate::snapshot::Registry;
use crate::tree::{BigRef, Reducers};

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
    /// When space is given back.
    pub give_back: GiveBack,
    /// Dropped big values whose list of extents could not be read.
    pub unread: UnreadValues,
}

/// Big values that commits dropped and whose lists of extents a read failed for, each with its commit.
#[derive(Debug, Default)]
pub struct UnreadValues(Mutex<Vec<(CommitSeq, Vec<u8>)>>);

impl Store {
    /// Puts the extents of a big value that commit `retired` dropped on the list of what waits to be free. If its list cannot be
    /// read, the next checkpoint tries again; a list that is damaged keeps its extents: space is lost, no data, and `check` tells.
    pub fn retire_value(&self, value: &[u8], retired: CommitSeq) {
        match BigRef::decode(value).and_then(|value| value.pages(&self.pages)) {
            Ok(pages) => self.space.retire_pages(&pages, retired),
            Err(error) if error.is_damage() => {}
            Err(_) => self.unread.lock().push((retired, value.to_vec())),
        }
    }

    /// Tries again what could not be read, of the commits up to `root`: a checkpoint of an older root needs the values that later
    /// commits dropped. The maps of earlier checkpoints call the extents used, so they are freed as if commit `root` had
    /// dropped them, the first that no such map is of.
    pub fn retire_unread(&self, root: CommitSeq) {
        let unread: Vec<_> = self.unread.lock().extract_if(.., |(dropped, _)| *dropped <= root).collect();
        unread.iter().for_each(|(_, value)| self.retire_value(value, root));
    }
}

impl UnreadValues {
    fn lock(&self) -> MutexGuard<'_, Vec<(CommitSeq, Vec<u8>)>> {
        self.0.lock().expect("nothing panics while it is locked")
    }
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

/// Writes the superblock that was read as the newest again, where it lies, and syncs it.
///
/// To be called before a database is written to. A superblock whose sync failed, or was never asked for because its process
/// ended, may be in the kernel's cache only; after a failed sync its page is even marked clean there, so that a sync alone
/// says that all is well. The next checkpoint writes over the other superblock, which may be the only one the disk has
/// (D2). Writing the same bytes makes the page dirty again. The other superblock and what it leads to stay as they are: if
/// power fails now, the disk holds a whole one.
///
/// Where the other superblock, or the map that it leads to, did not read as one, it becomes a copy first, and a copy is
/// written again like the first: only one of the two may be on the disk. It may be whole on the disk, and one read of it was
/// wrong: a later open would believe it, when the pages and the log that it leads to are used for something else (D3).
/// And if power fails while a lone superblock is written again, its sector may hold anything: then the copy is there.
///
/// # Errors
/// `Io`, `DamagedSuperblock` if what was read is not there any more: the database is as it was.
pub fn make_durable(newest: &Superblock, other_leads_nowhere: bool, data: &DataFile) -> Result<()> {
    let mut bytes = [vec![0; SUPERBLOCK_BYTES], vec![0; SUPERBLOCK_BYTES]];
    for (bytes, offset) in bytes.iter_mut().zip(SUPERBLOCK_OFFSETS) {
        data.file().read_at(bytes, offset).map_err(|e| Error::io("read", data.path(), &e))?;
    }
    let found = bytes.each_ref().map(|bytes| Superblock::decode(bytes));
    let write = |from: usize, to: usize| {
        let written = data.file().write_at(&bytes[from], SUPERBLOCK_OFFSETS[to]);
        written.map_err(|e| Error::io("write a superblock of", data.path(), &e.source))?;
        data.sync()
    };
    let Some(own) = found.iter().position(|found| found.as_ref() == Ok(newest)) else {
        let message = format!("{}: the superblocks read otherwise than a moment ago", data.path().display());
        return Err(
            Error::new(Code::DamagedSuperblock, message).with_hint("look at the disk, then open again")
        );
    };
    let is_copy = found[1 - own].as_ref() == Ok(newest);
    if other_leads_nowhere || is_copy || found[1 - own].is_err() {
        write(own, 1 - own)?;
    }
    write(own, own)
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
