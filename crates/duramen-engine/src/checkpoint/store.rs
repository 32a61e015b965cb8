//! The data file with what a root needs besides: pages, space, registered readers, reducers.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use duramen_disk::File;

use crate::alarm::{Alarm, locked};
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
pub(crate) struct Store {
    /// Why nothing is acknowledged any more, if so.
    pub alarm: Arc<Alarm>,
    /// Nodes and pages: reads and memory accounting.
    pub pages: Pages,
    /// Which blocks are used, and for what.
    pub space: Space,
    /// Which roots have registered readers.
    pub registry: Arc<Registry>,
    /// The registered reducers.
    pub reducers: Reducers,
    /// Sizes.
    pub geometry: Geometry,
    /// Whether leaves become patches to their pages.
    pub patches: bool,
    /// When space is given back.
    pub give_back: GiveBack,
    /// Dropped big values with an unread list of extents.
    pub unread: UnreadValues,
}

/// Dropped big values with a list of extents that could not be read, each with the commit that dropped it.
#[derive(Debug, Default)]
pub(crate) struct UnreadValues(Mutex<Vec<(CommitSeq, Vec<u8>)>>);

impl Store {
    /// Defers the free of the extents of a big value that commit `unused_since` dropped. If its list cannot
    /// be read, the next checkpoint tries again. The extents of a corrupt list stay used: space is lost, no
    /// data, and `check` reports them.
    pub(crate) fn defer_free_value(&self, value: &[u8], unused_since: CommitSeq) {
        match BigRef::decode(value).and_then(|value| value.pages(&self.pages)) {
            Ok(pages) => self.space.defer_free_pages(&pages, unused_since),
            Err(error) if error.is_corruption() => {}
            Err(_) => self.unread.lock().push((unused_since, value.to_vec())),
        }
    }

    /// Retries the unread values of commits up to `root`. A checkpoint of an older root still needs later
    /// ones.
    ///
    /// The maps of earlier checkpoints call the extents used, so they count as dropped by commit `root`, the
    /// first without such a map.
    pub(crate) fn defer_free_unread(&self, root: CommitSeq) {
        let unread: Vec<_> = self.unread.lock().extract_if(.., |(dropped, _)| *dropped <= root).collect();
        unread.iter().for_each(|(_, value)| self.defer_free_value(value, root));
    }
}

impl UnreadValues {
    fn lock(&self) -> MutexGuard<'_, Vec<(CommitSeq, Vec<u8>)>> {
        locked(self.0.lock())
    }
}

/// The generations of the superblocks that can be read. Fewer than two after corruption or a cut in a
/// checkpoint.
///
/// # Errors
/// `Io`.
pub(crate) fn whole_superblocks(file: &dyn File, path: &Path) -> Result<Vec<Generation>> {
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
pub(crate) fn read_superblocks(
    file: &Arc<dyn File>,
    path: &Path,
) -> Result<(Superblock, Option<Superblock>)> {
    let io = |e| Error::io("read", path, &e);
    let [first, second] = SUPERBLOCK_OFFSETS.map(|offset| read_superblock(&**file, offset));
    let mut found = newest_first(path, [first.map_err(io)?, second.map_err(io)?])?.into_iter();
    let newest = found.next().expect("there is one, or it is an error");
    Ok((newest, found.next()))
}

/// The superblocks left in a corrupt file, the newest first: at least one.
///
/// # Errors
/// As [`read_superblocks`], but a superblock that the disk fails to read counts as corrupt.
pub(crate) fn superblocks_left(file: &Arc<dyn File>, path: &Path) -> Result<Vec<Superblock>> {
    let read = |offset| read_superblock(&**file, offset).unwrap_or(Err(SuperblockError::Corrupt));
    newest_first(path, SUPERBLOCK_OFFSETS.map(read))
}

/// Makes the believed superblock durable before the database is written to: the twin superblocks (D2, D3).
///
/// Why two. A superblock is overwritten in place, and a power cut during the write may leave anything in its
/// sector. Generation `g` lies in slot `g % 2`. A checkpoint writes the slot of the older one, after a sync
/// of the pages it names. It never writes both in one sync. The newer superblock, its pages and the log
/// after it stay intact meanwhile. Space and log are therefore released by what the older superblock needs,
/// not the newer.
///
/// Which one is believed. Of those with a valid checksum and plausible numbers, the one with the higher
/// generation. If either is of another format, opening refuses: the one of this format may be an older state
/// that a later release left behind. Two superblocks of different databases are corruption.
///
/// Why the believed one is written again. It may exist in the kernel's cache only: its process was killed
/// before the sync, or the sync failed. After a failed sync the kernel marks the page clean, and another sync
/// writes nothing and succeeds. The next checkpoint would then overwrite the other superblock, perhaps the
/// only one on the disk; a power cut would leave none, or an older state. Writing the same bytes makes the
/// page dirty. If the power fails during that write, the other superblock is complete.
///
/// Why an unread one becomes a copy. The read may have been wrong once while the sector is fine. Nothing that
/// superblock leads to was held at opening: its pages and its log will be reused. A later open might read it
/// and believe it (D3). The same applies if its space map could not be read, because its pages are then
/// unknown. The copy is written and synced before the believed one: if a power cut tears a lone superblock
/// while it is written again, the copy is there. A copy found by a later open is written again too, since
/// only one of the two may be on the disk.
///
/// If the believed bytes are not read again, the open fails without a write. Two equal superblocks do no
/// harm: the next checkpoint overwrites one of them.
///
/// # Errors
/// `Io`; `CorruptSuperblock` if the superblock now reads otherwise: the database is unchanged.
pub(crate) fn make_durable(newest: &Superblock, other_leads_nowhere: bool, data: &DataFile) -> Result<()> {
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
            Error::new(Code::CorruptSuperblock, message).with_hint("look at the disk, then open again")
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

/// The superblocks that can be read, the newest first.
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
    // A later release may have left one of this format behind: an older state, which must not be served.
    if let Some(error) = unsupported(path, &problems) {
        return Err(error);
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    match &found[..] {
        [] => Err(no_superblock(path, &problems)),
        [newest, other] if other.database != newest.database || other.log != newest.log => {
            Err(Error::corrupt_data(path, 0, "the two superblocks are of different databases"))
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
        SuperblockError::NotOne | SuperblockError::Corrupt => None,
    })?;
    let error = Error::new(Code::Unsupported, format!("{} {why}", path.display()));
    Some(error.with_hint("use the release that wrote it to export, and import here"))
}

fn no_superblock(path: &Path, problems: &[SuperblockError]) -> Error {
    if problems.contains(&SuperblockError::Corrupt) {
        return Error::new(Code::CorruptSuperblock, format!("{}: no superblock can be read", path.display()));
    }
    Error::new(Code::NotADatabase, format!("{} is not a Duramen data file", path.display()))
        .with_hint("give the directory of a database, or import into a new one")
}
