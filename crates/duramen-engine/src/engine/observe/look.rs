//! One look from outside: the newest checkpoint of a database, and the log position from which it is
//! followed.
//!
//! It only reads. If the data changes meanwhile, it reads again, and reports corruption only if nothing has
//! changed.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use duramen_disk::{Access, Disk};

use super::super::directory::DATA;
use super::LOOKS_MOVING;
use super::LOOKS_STILL;
use crate::catalog::CATALOG;
use crate::checkpoint::read_superblocks;
use crate::error::{Code, Error, Result};
use crate::feed::{FileReader, LiveReader, Retained};
use crate::ids::{CommitSeq, Generation};
use crate::options::{Geometry, Options};
use crate::recovery::{Loaded, load};
use crate::tree::Reducers;
use crate::wal::{LogIdentity, LogPlace};

/// The newest checkpoint that was read, and how far the log was read from there.
pub(super) struct Seen {
    pub(super) loaded: Loaded,
    pub(super) identity: LogIdentity,
    pub(super) live: LiveReader,
    /// The durable end of the log, as far as known.
    pub(super) durable: CommitSeq,
    /// The last whole commit in the log. Commits after `durable` may be durable as well, without the log
    /// declaring it yet.
    pub(super) whole: CommitSeq,
    pub(super) durable_at_ns: u64,
    pub(super) files: Option<Arc<Retained>>,
    pub(super) file: Option<(u64, FileReader)>,
}

/// Reads the newest checkpoint. If an identity is given, the database must still have it.
pub(super) fn look(
    disk: &dyn Disk,
    path: &Path,
    options: &Options,
    before: Option<LogIdentity>,
) -> Result<Seen> {
    let loaded = load_newest(disk, path, options)?;
    let superblock = &loaded.superblock;
    let identity = LogIdentity { database: superblock.database, log: superblock.log };
    if before.is_some_and(|before| before != identity) {
        let message = format!("{} was replaced by another database meanwhile", path.display());
        return Err(Error::new(Code::NotADatabase, message).with_hint("look at it anew"));
    }
    let catalogue = loaded.trees.get(CATALOG).and_then(|tree| tree.slot.as_ref());
    let live = LiveReader::begin(&loaded.store.pages, superblock.replay, catalogue)?;
    Ok(Seen {
        loaded,
        identity,
        live,
        durable: CommitSeq::default(),
        whole: CommitSeq::default(),
        durable_at_ns: 0,
        files: None,
        file: None,
    })
}

pub(super) fn load_newest(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Loaded> {
    let (mut generation, mut looks) = (Generation::default(), 0);
    loop {
        let file = data_file(disk, path)?;
        let error = match load(Arc::clone(&file), &path.join(DATA), options, false, &Reducers::default()) {
            Ok(loaded) => return Ok(loaded),
            Err(error) => error,
        };
        // Pages that a checkpoint frees are reused by the second one after it.
        let now = read_superblocks(&file, &path.join(DATA)).map_or(generation, |found| found.0.generation);
        looks += if now == generation { LOOKS_MOVING / LOOKS_STILL } else { 1 };
        generation = now;
        if looks > LOOKS_MOVING || !error.is_corruption() {
            return Err(error);
        }
    }
}

pub(super) fn data_file(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn duramen_disk::File>> {
    let data = path.join(DATA);
    disk.open(&data, Access::READ).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("there is no database at {} any more", path.display());
            Error::new(Code::NoSuchDatabase, message)
                .with_hint("it was moved or removed: look at it where it is now")
        }
        _ => Error::io("open", &data, &e),
    })
}

pub(super) fn place<'a>(
    disk: &'a dyn Disk,
    dir: &'a Path,
    identity: LogIdentity,
    geometry: &'a Geometry,
) -> LogPlace<'a> {
    LogPlace { disk, dir, identity, geometry }
}

/// The database was replaced by an older state: reported commits were durable and do not vanish otherwise.
pub(super) fn set_back(path: &Path, told: CommitSeq, durable: CommitSeq) -> Error {
    let message = format!(
        "{} was set back to commit {durable}, and changes up to commit {told} were already reported",
        path.display()
    );
    Error::new(Code::FeedGap, message).with_hint("read the current state; later commits will be reported")
}

/// The database, in its present state, has no such commit.
pub(super) fn no_commit(path: &Path, after: CommitSeq, newest: CommitSeq) -> Error {
    let message = format!("there is no commit {after} in {} yet: the newest is {newest}", path.display());
    Error::invalid(message).with_hint(
        "use the sequence of a receipt, of a change, or of an earlier look; if the database was set back to an \
         older state, read what it holds now and go on from there",
    )
}

pub(super) fn too_fast(path: &Path) -> Error {
    let message = format!("{} changes faster than it can be read from outside", path.display());
    Error::new(Code::FeedGap, message)
        .with_hint("try again, or read its changes inside the process that writes it")
}

/// Total size of the files in a directory; 0 if it does not exist.
pub(super) fn bytes_in(disk: &dyn Disk, dir: &Path) -> Result<u64> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(Error::io("list", dir, &e)),
    };
    // A file that was removed meanwhile counts as empty.
    let bytes =
        |name: &OsStr| disk.open(&dir.join(name), Access::READ).and_then(|file| file.len()).unwrap_or(0);
    Ok(names.iter().filter_map(|name| name.file_name()).map(bytes).sum())
}
