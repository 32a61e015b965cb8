//! Opens a database for a command, and finds a collection in it, with suggestions for misspelt names.
//!
//! Reading commands open read-only: they write nothing, not even the text of a lock file. In a shell all
//! commands share the database that the [`Session`] has open, which is read-only too until one of them
//! writes.

mod session;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use duramen::{Code, Db, DbOptions, Durability, LocalReads, Schema, Snapshot};

use crate::args::DatabaseArgs;
use crate::byte_tree;
use crate::failure::{FAILED, Failure, Result};
use crate::file_system;

pub(crate) use session::Session;

/// Bytes of changes that short writing commands keep for observers: their last checkpoint would release the
/// log. An import keeps none, because that would write everything twice.
const WATCHED_BYTES: u64 = 1024 * 1024;

/// The memory of a command that reads each page once.
const ONCE_BYTES: usize = 4 << 20;

/// An open database: of one command, which ends with it, or shared by those of a shell.
#[derive(Debug)]
pub(crate) struct Opened {
    db: Db,
    is_shared: bool,
}

impl Opened {
    /// Of one command.
    pub(crate) fn alone(db: Db) -> Opened {
        Opened { db, is_shared: false }
    }

    /// Closes the database unless a shell shares it.
    pub(crate) fn close(&self) -> duramen::Result<()> {
        if self.is_shared { Ok(()) } else { self.db.close() }
    }

    /// The command reads each page once from now on: it gains nothing by keeping them. To open, the database
    /// may have needed more memory: the log after the newest checkpoint is replayed then.
    pub(crate) fn keep_few_pages(&self) -> duramen::Result<()> {
        if self.is_shared { Ok(()) } else { self.db.set_memory_bytes(ONCE_BYTES) }
    }

    /// Whether commands of a shell share it.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl Deref for Opened {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// Opens for reading. The lock is held as long as the returned value lives: keep it beside its snapshot.
pub(crate) fn open_to_read(args: &DatabaseArgs) -> Result<Opened> {
    match &args.session {
        Some(session) => session.to_read(|| read(args)),
        None => Ok(Opened::alone(read(args)?)),
    }
}

/// Opens an existing database for writing, if its disk can keep `level`.
pub(crate) fn open_to_write(args: &DatabaseArgs, level: Durability) -> Result<Opened> {
    check_path(&args.db)?;
    check_level(args, level)?;
    let write = || {
        let options = options(args).durability(level).feed_retain_bytes(WATCHED_BYTES);
        options.create(false).open(&args.db).map_err(|error| when_log_is_inside(error, args))
    };
    match &args.session {
        Some(session) => session.to_write(level, write, || read(args)),
        None => Ok(Opened::alone(write()?)),
    }
}

/// Opens for writing, and creates a database that does not exist.
pub(crate) fn open_or_create(args: &DatabaseArgs, level: Durability) -> Result<Opened> {
    if args.session.is_some() {
        return open_to_write(args, level);
    }
    let is_there = args.db.exists();
    if is_there {
        check_path(&args.db)?;
    }
    // An interrupted creation exists too, and is created anew.
    let db = options(args).durability(level).open(&args.db).map_err(|error| match is_there {
        true => error.into(),
        false => Failure::from(error).when_full("make room on the disk, or name another place for it"),
    })?;
    Ok(Opened::alone(db))
}

fn read(args: &DatabaseArgs) -> Result<Db> {
    check_path(&args.db)?;
    // A command that reads writes nothing beside the data: large sorts go where the system has room for such.
    let options = options(args).create(false).read_only(true).spill_dir(std::env::temp_dir());
    options.open(&args.db).map_err(|error| when_log_is_inside(error, args))
}

/// The failure of an opening. If `--wal` names no log of the database, and one lies inside it, the hint says
/// so.
fn when_log_is_inside(error: duramen::Error, args: &DatabaseArgs) -> Failure {
    let inside = args.db.join("wal");
    let is_missing = error.code() == Code::LogMissing && args.wal.as_ref().is_some_and(|wal| *wal != inside);
    let failure = Failure::from(error);
    if !is_missing || !inside.join("00000001.wal").is_file() {
        return failure;
    }
    failure.hinted(format!("there is a log in {}: run the command without --wal", inside.display()))
}

/// Refuses a level that the disk of the database, or that of its log, cannot keep. Levels below `disk`
/// promise nothing that a file system could break.
pub(crate) fn check_level(args: &DatabaseArgs, level: Durability) -> Result<()> {
    match level {
        Durability::Disk => check_file_systems(
            args,
            "use --durability process, which survives kill -9, or name a directory on a disk",
        ),
        Durability::Process | Durability::Memory => Ok(()),
    }
}

/// Refuses a database or a log on a file system that survives no power cut.
pub(crate) fn check_file_systems(args: &DatabaseArgs, hint: &str) -> Result<()> {
    [Some(&args.db), args.wal.as_ref()]
        .into_iter()
        .flatten()
        .try_for_each(|path| file_system::check(path, hint))
}

/// Options from the command line's arguments for the database, and no others.
pub(crate) fn options(args: &DatabaseArgs) -> DbOptions {
    let options = Db::options();
    match &args.wal {
        Some(wal) => options.wal_dir(wal),
        None => options,
    }
}

/// Errors that this program can explain better than the engine.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    let shown = path.display();
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = match near_databases(path) {
                near if near.is_empty() => format!(
                    "create one with `duramen import {shown} FILE --collection NAME --key COLUMN,...`, or try `duramen demo`"
                ),
                near => format!("there is {}", near.join(", ")),
            };
            return Err(Failure::said(
                FAILED,
                Code::NoSuchDatabase,
                format!("there is no database at {shown}"),
                hint,
            ));
        }
        Err(error) => return Err(Failure::io("open", path, &error)),
    };
    if let Some(database) = is_part_of(path, metadata.is_dir()) {
        let database = database.display();
        let message = format!("{shown} is a part of the database {database}");
        return Err(Failure::said(FAILED, Code::NotADatabase, message, format!("give {database}")));
    }
    if metadata.is_dir() {
        return Ok(());
    }
    Err(Failure::said(
        FAILED,
        Code::NotADatabase,
        format!("{shown} is a file, and a database is a directory"),
        format!(
            "to load it into a database: duramen import NAME.duramen {shown} --collection NAME --key COLUMN,..."
        ),
    ))
}

/// The database that a path is a file or directory of.
fn is_part_of(path: &Path, is_directory: bool) -> Option<PathBuf> {
    let names: &[&str] = if is_directory { &["wal", "feed"] } else { &["data", "lock"] };
    let above = path.parent()?;
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let is_database = above.join("data").is_file() && above.join("lock").is_file();
    (is_database && names.iter().any(|name| path.ends_with(name))).then(|| above.to_owned())
}

/// The names of databases beside a path that does not exist.
fn near_databases(path: &Path) -> Vec<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = parent.read_dir() else { return Vec::new() };
    let named = entries.flatten().map(|entry| entry.path()).filter(|path| {
        path.is_dir()
            && (path.extension().is_some_and(|end| end == "duramen") || path.ends_with("duramen-demo"))
    });
    let mut near: Vec<String> = named.map(|path| path.display().to_string()).take(100).collect();
    near.sort_unstable();
    near.truncate(5);
    near
}

/// A collection's schema. The error suggests similar names.
pub(crate) fn schema(snapshot: &Snapshot, name: &str) -> Result<Schema> {
    snapshot.documents(name).schema().map_err(|error| {
        if error.code() != Code::NoSuchTree {
            return error.into();
        }
        let names: Vec<String> = snapshot
            .collections()
            .unwrap_or_default()
            .iter()
            .map(|schema| schema.name().to_owned())
            .collect();
        Failure::said(
            FAILED,
            Code::NoSuchTree,
            format!("there is no collection {name}"),
            match names.as_slice() {
                _ if byte_tree::is_one(snapshot, name).is_ok_and(|is_one| is_one) => {
                    "it is a tree of bytes: `count`, `scan` and `export --format ndjson` read it".to_owned()
                }
                [] => "the database has no collections: `duramen import` makes one".to_owned(),
                names => candidates("collections", name, names),
            },
        )
    })
}

/// A hint with the nearest names, or else with all in their order, if they are not too many.
pub(crate) fn candidates(things: &str, name: &str, names: &[String]) -> String {
    const NEAR: f64 = 0.75;
    const SHOWN_MAX: usize = 40;
    let lower = name.to_lowercase();
    if let Some(same) = names.iter().find(|known| known.to_lowercase() == lower && *known != name) {
        return format!("did you mean {same}?");
    }
    let likeness = |known: &String| strsim::jaro_winkler(&lower, &known.to_lowercase());
    let mut near: Vec<(f64, &str)> = names.iter().map(|known| (likeness(known), known.as_str())).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let close: Vec<&str> =
        near.iter().filter(|(likeness, _)| *likeness >= NEAR).take(3).map(|(_, name)| *name).collect();
    if close.is_empty() {
        let some: Vec<&str> = names.iter().take(SHOWN_MAX).map(String::as_str).collect();
        let more = if names.len() > some.len() { ", ..." } else { "" };
        return format!("the {things} are {}{more}", some.join(", "));
    }
    format!("did you mean {}?", close.join(" or "))
}
