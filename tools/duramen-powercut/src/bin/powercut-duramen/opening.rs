//! How the database of a life is opened, and the names of everything in it.
//!
//! Owns the sizes: the shipped ones, or small ones, so that little data exceeds every limit.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use duramen::{Db, DbOptions, Durability, Geometry, LocalReads, OnDelete, Reference, Schema};
use duramen_engine::GiveBack;

use crate::plan::Terms;
use crate::releases::{ORDERS, Release};
use crate::wrong::{Outcome, Wrong};

/// A row for each commit of a writer.
pub(crate) const COMMITS: &str = "commits";
/// The tickets that all writers share: which commit has taken which, and the next.
pub(crate) const TICKETS: &str = "tickets";
pub(crate) const NEXT_TICKET: &[u8] = b"next";
/// The parameters of a life, the running release, and whether there is a view by name.
pub(crate) const LIFE: &str = "life";
pub(crate) const TERMS: &[u8] = b"terms";
pub(crate) const RELEASE: &[u8] = b"release";
pub(crate) const HAS_VIEW: &[u8] = b"view by name";
/// Bytes of any size.
pub(crate) const PLAIN: &str = "plain";
pub(crate) const LOG: &str = "log";
/// Documents that refer to orders, and are deleted with them.
pub(crate) const PARCELS: &str = "parcels";
pub(crate) const COUNTERS: &str = "counters";
pub(crate) const SESSIONS: &str = "sessions";
pub(crate) const FILES: &str = "files";

/// A writer's own collection, which is created and dropped.
pub(crate) fn temporary(writer: u32) -> String {
    format!("temporary-{writer}")
}

/// A writer's own namespace, which is cleared now and then.
pub(crate) fn scratch(writer: u32) -> String {
    format!("scratch-{writer}")
}

/// Documents with a number that is summed.
pub(crate) fn numbers(name: &str) -> Schema {
    Schema::new(name).key(["id"]).sum(["n"])
}

/// Parcels, with the order that each refers to, and the commit that stored it.
pub(crate) fn parcels() -> Schema {
    let order = Reference::new("order", ORDERS).on_delete(OnDelete::Cascade);
    Schema::new(PARCELS).key(["id"]).sum(["number"]).reference(order)
}

pub(crate) fn row_key(writer: u32, number: u64) -> Vec<u8> {
    [&writer.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

/// From which sizes on things happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sizes {
    /// As the library has them; memory and with it the time of checkpoints are set so low that a few seconds
    /// reach all of them
    Shipped,
    /// Small ones, that little data passes
    Small,
}

/// Where the database lies, and how it is opened.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The database, a directory; backups are made beside it
    #[arg(long)]
    pub(crate) db: PathBuf,
    /// Where the log lies, if not in the database
    #[arg(long)]
    pub(crate) wal: Option<PathBuf>,
    /// From which sizes on things happen: the same for all that open it
    #[arg(long, value_enum, default_value_t = Sizes::Small)]
    pub(crate) sizes: Sizes,
}

impl Place {
    fn options(&self, level: Durability) -> DbOptions {
        let options = Release::options().durability(level);
        match self.sizes {
            Sizes::Shipped => options.memory_bytes(32 * 1024 * 1024).engine(|own| {
                own.geometry = Geometry::default();
                own.give_back = GiveBack::SHIPPED;
            }),
            Sizes::Small => {
                options.memory_bytes(4 * 1024 * 1024).feed_bytes_max(32 * 1024 * 1024).engine(|own| {
                    own.geometry = Geometry {
                        block_bytes: 4096,
                        leaf_bytes_max: 1024,
                        inner_bytes_max: 1024,
                        big_value_bytes: 300,
                        big_value_extent_bytes: 4096,
                        segment_bytes_min: 32 * 1024,
                        segment_bytes_max: 128 * 1024,
                    };
                    own.give_back = GiveBack::SMALL;
                    own.checkpoint_log_bytes = Some(64 * 1024);
                })
            }
        }
    }

    /// Opens the database, or creates it.
    pub(crate) fn open(&self, level: Durability, has_background: bool) -> Outcome<Db> {
        let mut options = self.options(level).background(has_background);
        if let Some(wal) = &self.wal {
            options = options.wal_dir(wal);
        }
        options.open(&self.db).map_err(|error| Wrong::from(error).while_doing("cannot open"))
    }

    /// Opens a backup for reading.
    pub(crate) fn open_backup(&self, path: &Path) -> duramen::Result<Db> {
        self.options(Durability::Disk).create(false).read_only(true).open(path)
    }

    /// The directory of backups.
    pub(crate) fn backups(&self) -> PathBuf {
        self.db.with_extension("backups")
    }
}

/// The parameters of the life of a database; `None` if it has not begun.
pub(crate) fn terms(db: &Db) -> Outcome<Option<Terms>> {
    let Some(stored) = stored(db, TERMS)? else { return Ok(None) };
    Ok(Some(Terms::decode(&stored).ok_or("the terms of the life are not what was written")?))
}

/// The running release.
pub(crate) fn release(db: &Db) -> Outcome<Release> {
    let Some(stored) = stored(db, RELEASE)? else { return Ok(Release::Plain) };
    let [byte] = stored[..] else { return Err("the release is not what was written".into()) };
    Ok(Release::of_byte(byte).ok_or("a release that there never was")?)
}

pub(crate) fn stored(db: &Db, key: &[u8]) -> Outcome<Option<Vec<u8>>> {
    Ok(crate::releases::answer(db.snapshot()?.get_bytes(LIFE, key))?.flatten())
}
