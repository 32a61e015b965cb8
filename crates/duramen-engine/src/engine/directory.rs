//! The directory of a database: what it holds, which database owns it, and which process may use it.
//!
//! It owns the names in it, the locks (D8), and the messages for directories that are no database, or no
//! longer one.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use duramen_disk::probe::WITNESS_PREFIX;
use duramen_disk::sync_choice::MEASURE_PREFIX;
use duramen_disk::{Access, Disk, Lock, LockError, PathKind};

use super::method::is_calibration;
use super::replica::RAFT;
use crate::data_file::node_bytes;
use crate::error::{Code, Error, Result};
use crate::feed::FEED_DIR;
use crate::options::Options;
use crate::wal::missing;

pub(super) const DATA: &str = "data";
pub(super) const DATA_NEW: &str = "data.new";
pub(super) const LOCK: &str = "lock";
pub(super) const WAL: &str = "wal";
/// Marks a copy until it is finished.
pub(super) const UNFINISHED: &str = "unfinished-copy";
/// Reserved: a later release lets readers of other processes register their snapshots here.
const READERS: &str = "readers";

pub(super) fn kind(disk: &dyn Disk, path: &Path) -> Result<Option<PathKind>> {
    disk.kind(path).map_err(|e| Error::io("look at", path, &e))
}

/// So much of a data file is searched for pages, in windows of the second number of bytes.
const LOOK_BYTES: u64 = 64 << 20;
const LOOK_WINDOW_BYTES: usize = 1 << 20;

/// Pages begin with a block, and a block has at least so many bytes.
const BLOCK_BYTES_LEAST: usize = 512;

const _: () = assert!(LOOK_WINDOW_BYTES.is_multiple_of(BLOCK_BYTES_LEAST), "windows begin with a block");

/// The hint where a database would be created if the options let it.
const NOT_CREATED: &str =
    "look at the path; a database is created there if it is opened to write, without `create(false)`";

/// The kind of content of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Only files of a creation that has not named its data file yet.
    Beginnings,
    Data,
    OtherThings,
}

/// Makes sure that there is a directory that is a database or may become one. A directory with other content
/// is left as it is.
pub(super) fn prepare_directory(
    disk: &dyn Disk,
    path: &Path,
    wal_dir: &Path,
    may_create: bool,
) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid("the path of the database is empty")
            .with_hint("give the directory of a database, or a name that does not exist yet"));
    }
    match kind(disk, path)? {
        None if !may_create => {
            let message = format!("there is no database at {}", path.display());
            Err(Error::new(Code::NoSuchDatabase, message).with_hint(NOT_CREATED))
        }
        None => {
            create_above(disk, path)?;
            disk.create_dir(path).map_err(|e| Error::io("create", path, &e))
        }
        Some(PathKind::Directory) => match what_it_holds(disk, path, wal_dir)? {
            Holds::OtherThings => Err(not_a_database(path, "it is a directory with other things in it")),
            Holds::Nothing if !may_create => Err(not_a_database(path, "it is empty").with_hint(NOT_CREATED)),
            Holds::Nothing | Holds::Beginnings | Holds::Data => Ok(()),
        },
        Some(PathKind::File) => Err(not_a_database(path, "it is a file, and a database is a directory")),
        Some(PathKind::Other) => {
            Err(not_a_database(path, "it is neither a file nor a directory; a link may lead nowhere"))
        }
    }
}

/// Creates the directory of the log for a new database, and checks that it exists for any other. It must hold
/// logs only: its lock protects the log, and the lock in the directory of a database protects the database.
pub(super) fn prepare_log_directory(
    disk: &dyn Disk,
    path: &Path,
    wal_dir: &Path,
    is_new: bool,
) -> Result<()> {
    if wal_dir == path || (is_new && kind(disk, &wal_dir.join(DATA))?.is_some()) {
        let message = format!("{} is the directory of a database, and cannot hold a log", wal_dir.display());
        return Err(Error::invalid(message).with_hint("give the log a directory of its own"));
    }
    if !is_new {
        return if kind(disk, wal_dir)?.is_none() { Err(missing(wal_dir, "the directory")) } else { Ok(()) };
    }
    create_above(disk, wal_dir)?;
    match disk.create_dir(wal_dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", wal_dir, &e)),
        _ => Ok(()),
    }
}

/// The directory that contains `path`; the current one for a path of one component.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Why a directory cannot be synced that this program has not made.
const WAS_THERE: [ErrorKind; 4] = [
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::InvalidInput,
    ErrorKind::Unsupported,
];

/// Creates the directories above `path` that are missing. [`sync_above`] makes their names durable.
fn create_above(disk: &dyn Disk, path: &Path) -> Result<()> {
    let above = directory_of(path);
    if kind(disk, above)?.is_some() {
        return Ok(());
    }
    create_above(disk, above)?;
    match disk.create_dir(above) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", above, &e)),
        _ => Ok(()),
    }
}

/// Makes the names of all directories above that of `path` durable (D1): this opening or one that was cut
/// short may have made them. A directory that the process may not open, in which nothing can be made, or
/// whose file system cannot sync it, was there before: the database's own is synced without exception.
pub(super) fn sync_above(disk: &dyn Disk, path: &Path) -> Result<()> {
    for directory in directory_of(path).ancestors().skip(1) {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match disk.sync_dir(directory) {
            Err(e) if !WAS_THERE.contains(&e.kind()) => return Err(Error::io("sync", directory, &e)),
            _ => {}
        }
    }
    Ok(())
}

/// Classifies a directory. Beside a data file other files may lie: its first bytes show whether it is ours.
/// Without a data file, any file that no creation makes shows that the directory is not ours.
fn what_it_holds(disk: &dyn Disk, path: &Path, wal_dir: &Path) -> Result<Holds> {
    let mut names = disk.list(path).map_err(|e| Error::io("list", path, &e))?;
    // Files that a killed measurement left do not count.
    names.retain(|path| !path.file_name().is_some_and(is_leftover));
    if names.iter().any(|name| name.ends_with(DATA)) {
        let is_directory = kind(disk, &path.join(DATA))? == Some(PathKind::Directory);
        return Ok(if is_directory { Holds::OtherThings } else { Holds::Data });
    }
    let own_log = wal_dir.file_name().filter(|_| wal_dir.parent() == Some(path));
    let is_ours = |name: &PathBuf| {
        [DATA_NEW, LOCK, WAL, READERS, UNFINISHED].iter().any(|known| name.ends_with(known))
            || name.file_name() == own_log
            || (name.ends_with(FEED_DIR) && names.iter().any(|name| name.ends_with(LOCK)))
            // Of a copy that was to become a node, and is made again.
            || (name.ends_with(RAFT) && names.iter().any(|name| name.ends_with(UNFINISHED)))
    };
    Ok(match names.iter().all(is_ours) {
        true if names.is_empty() => Holds::Nothing,
        true => Holds::Beginnings,
        false => Holds::OtherThings,
    })
}

fn is_leftover(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    [MEASURE_PREFIX, WITNESS_PREFIX].iter().any(|prefix| name.starts_with(prefix))
}

/// The error for a directory with the names of a database and no data file.
pub(super) fn without_data(disk: &dyn Disk, path: &Path, wal_dir: &Path, options: &Options) -> Error {
    match is_fresh_log(disk, wal_dir, options.geometry.block_bytes as u64) {
        Ok(true) => Error::new(
            Code::NotADatabase,
            format!(
                "{} holds no file `data`: its creation was cut short, or the file was removed",
                path.display()
            ),
        )
        .with_hint("if it held data, restore a backup; if not, remove the directory, or import into it"),
        Ok(false) => data_lost(path, wal_dir),
        Err(error) => error,
    }
}

/// Whether a log directory holds no more than a creation leaves: segments of zeroes after a header and one
/// frame.
fn is_fresh_log(disk: &dyn Disk, wal_dir: &Path, block_bytes: u64) -> Result<bool> {
    let names = match disk.list(wal_dir) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(Error::io("list", wal_dir, &e)),
    };
    let mut bytes = [0; 64 * 1024];
    let is_of_log = |name: &&OsStr| *name != LOCK && !is_calibration(name);
    for name in names.iter().filter_map(|name| name.file_name()).filter(is_of_log) {
        let path = wal_dir.join(name);
        let file = disk.open(&path, Access::READ).map_err(|e| Error::io("open", &path, &e))?;
        let end = file.len().map_err(|e| Error::io("measure", &path, &e))?;
        let mut offset = 2 * block_bytes;
        while offset < end {
            let count = usize::try_from(end - offset).map_or(bytes.len(), |left| left.min(bytes.len()));
            file.read_at(&mut bytes[..count], offset).map_err(|e| Error::io("read", &path, &e))?;
            if bytes[..count].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += count as u64;
        }
    }
    Ok(true)
}

/// Replaces `NotADatabase` if there is a log with commits, or a page in the file: it was a data file then.
pub(super) fn of_a_database(
    error: Error,
    disk: &dyn Disk,
    data: &Path,
    wal_dir: &Path,
    options: &Options,
) -> Error {
    if error.code() != Code::NotADatabase {
        return error;
    }
    if !is_fresh_log(disk, wal_dir, options.geometry.block_bytes as u64).unwrap_or(true) {
        let message =
            format!("{}, and {} holds a log with commits: it was one", error.message(), wal_dir.display());
        return Error::new(Code::CorruptSuperblock, message).with_hint(
            "`duramen repair DB NEW` (`DbOptions::repair`) finds the pages that are whole; or restore a backup",
        );
    }
    if !begins_pages(disk, data).unwrap_or(false) {
        return error;
    }
    let message = format!(
        "{}: no superblock can be read, there are pages of a database in it, and no log in {}",
        data.display(),
        wal_dir.display()
    );
    Error::new(Code::CorruptSuperblock, message).with_hint(
        "if the log lies elsewhere, name its directory (`--wal DIR`, `DbOptions::wal_dir`), and run `duramen repair DB NEW`; if it is lost, too, restore a backup",
    )
}

/// Whether something near the beginning of a file looks like a page of a tree.
fn begins_pages(disk: &dyn Disk, data: &Path) -> std::io::Result<bool> {
    let file = disk.open(data, Access::READ)?;
    let end = file.len()?.min(LOOK_BYTES);
    let mut bytes = vec![0; LOOK_WINDOW_BYTES];
    let mut offset = 0;
    while offset < end {
        let count = usize::try_from(end - offset).map_or(bytes.len(), |left| left.min(bytes.len()));
        file.read_at(&mut bytes[..count], offset)?;
        if bytes[..count].chunks(BLOCK_BYTES_LEAST).any(|block| node_bytes(block).is_some()) {
            return Ok(true);
        }
        offset += count as u64;
    }
    Ok(false)
}

pub(super) fn data_lost(path: &Path, wal_dir: &Path) -> Error {
    let what = format!("the file is not there, and {} holds a log with commits", wal_dir.display());
    if wal_dir.parent() == Some(path) {
        return Error::corrupt_data(&path.join(DATA), 0, what)
            .with_hint("the data file was lost: restore it from a backup");
    }
    let what = format!("{what}: of another database, or of one at this path whose file `data` was lost");
    Error::corrupt_data(&path.join(DATA), 0, what).with_hint(
        "give a new database a log directory of its own (`--wal DIR`); if the data file was lost, restore it from a backup",
    )
}

/// D3: fails if readers of a later release are registered. This build does not know their snapshots and would
/// overwrite them.
pub(super) fn refuse_later_readers(disk: &dyn Disk, path: &Path) -> Result<()> {
    let readers = path.join(READERS);
    if kind(disk, &readers)? != Some(PathKind::File) {
        return Ok(());
    }
    let file = disk.open(&readers, Access::READ).map_err(|e| Error::io("open", &readers, &e))?;
    if file.len().map_err(|e| Error::io("measure", &readers, &e))? == 0 {
        return Ok(());
    }
    let message = format!(
        "{} records that readers of a later release use this database; space cannot be reused safely",
        readers.display()
    );
    Err(Error::new(Code::Unsupported, message)
        .with_hint("use the release that wrote it, or close those readers and remove the file"))
}

fn not_a_database(path: &Path, why: &str) -> Error {
    Error::new(Code::NotADatabase, format!("{} is not a Duramen database: {why}", path.display()))
        .with_hint("give the directory of a database, or a name that does not exist yet")
}

/// D1, D8: checks the file systems of the database and of its log, which may differ. Locks and syncs are
/// theirs.
pub(super) fn check_file_systems(
    disk: &dyn Disk,
    path: &Path,
    wal_dir: &Path,
    options: &Options,
) -> Result<()> {
    check_file_system(disk, path, options)?;
    if wal_dir.parent() == Some(path) && kind(disk, wal_dir)?.is_none() {
        return Ok(());
    }
    // A directory that is not made yet will lie on the file system of the one above it.
    for directory in [wal_dir, directory_of(wal_dir)] {
        if kind(disk, directory)?.is_some() {
            return check_file_system(disk, directory, options);
        }
    }
    Ok(())
}

/// Checks one file system. A system that does not name types of file systems gives no reason to refuse one.
fn check_file_system(disk: &dyn Disk, path: &Path, options: &Options) -> Result<()> {
    let system = disk.file_system(path).map_err(|e| Error::io("look at", path, &e))?;
    if system.network == Some(true) && !options.allow_network_fs {
        let message =
            format!("{} is on {}, where locks and syncs cannot be trusted", path.display(), system.name);
        return Err(Error::new(Code::NetworkFileSystem, message).with_hint(
            "use a local file system, or allow_network_fs if you know that this one keeps its promises",
        ));
    }
    if system.read_only && !options.read_only {
        return Err(Error::new(Code::ReadOnly, format!("{} is on a read-only file system", path.display()))
            .with_hint("open it read-only"));
    }
    Ok(())
}

/// D8: takes the lock of a database. One process writes; read-only processes share the lock.
pub(super) fn lock(disk: &dyn Disk, path: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    match disk.lock(path, !options.read_only) {
        Ok(lock) => {
            if !options.read_only {
                // Only for the message to a process that is refused. The lock holds without it.
                drop(lock.set_holder(&this_process()));
            }
            Ok(lock)
        }
        Err(LockError::Held { holder }) => {
            let who = if holder.trim().is_empty() { "another process" } else { holder.trim() };
            let database = path.parent().unwrap_or(path).display();
            let hint = if who == this_process() {
                "this process has it open: clone the handle it has, or drop that handle and all that was made from \
                 it, such as snapshots, iterators, consumers, and readers of blobs"
                    .to_owned()
            } else {
                format!("wait for that process, or end it: `fuser -v {}` shows it", path.display())
            };
            let message = format!("{database} is in use by {who}");
            Err(Error::new(Code::DatabaseLocked, message).with_hint(hint))
        }
        Err(LockError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            Err(not_a_database(path.parent().unwrap_or(path), "its file `lock` is not there").with_hint(
                "it may be half of a copy; if nothing writes to it, create an empty file of that name in it",
            ))
        }
        Err(LockError::Io(error)) => Err(Error::io("lock", path, &error)),
    }
}

/// D8: takes the lock of a log directory, which holds the log of one database. Its holder has another
/// database open, since the lock of this database was free.
pub(super) fn lock_log(disk: &dyn Disk, wal_dir: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    lock(disk, &wal_dir.join(LOCK), options).map_err(|error| match error.code() {
        Code::DatabaseLocked => {
            let message = format!("{}: it holds the log of another database", error.message());
            Error::new(Code::DatabaseLocked, message)
                .with_hint("give each database a directory of its own for its log (`wal_dir`, `--wal DIR`)")
        }
        _ => error,
    })
}

fn this_process() -> String {
    format!("process {}", duramen_disk::process_id())
}
