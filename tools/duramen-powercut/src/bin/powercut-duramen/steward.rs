//! Everything that happens to a database beside its writers: expiry, views that are added, dropped and built,
//! migrations, compactions, backups, and reopening, sometimes as the next release.

use std::fs::File;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use duramen::view::{Reduce, ViewSpec};
use duramen::{Durability, Error, LocalReads};
use duramen_disk::memory::Random;

use crate::acknowledged::{backup_line, compacted_line, gone_line};
use crate::load::{Open, Shop};
use crate::opening::{HAS_VIEW, LIFE, RELEASE};
use crate::releases::{ORDERS, Release, answer};
use crate::views::BY_CENTS;
use crate::wrong::{Outcome, Wrong};

/// The reason of an operation that is not to run to its end.
const STOPPED: &str = "stopped";

/// The maintenance thread of a load.
#[derive(Debug)]
pub(crate) struct Steward<'s, 'a> {
    shop: &'s Shop<'a>,
    random: Random,
    /// The existing backup.
    backup: Option<String>,
}

impl<'s, 'a> Steward<'s, 'a> {
    pub(crate) fn new(shop: &'s Shop<'a>, random: Random) -> Self {
        Steward { shop, random, backup: None }
    }

    /// Runs one operation after another until the writers end.
    pub(crate) fn work(mut self) -> Outcome<()> {
        loop {
            self.shop.wait(self.random.between(2, 25) as u64);
            if self.shop.is_over.load(Ordering::Acquire) {
                return Ok(());
            }
            let (doing, done) = match self.random.below(15) {
                0..=1 => ("sweep_expired", self.with(|open| Ok(open.db.sweep_expired().map(drop)?))),
                2 => ("sweep_blobs", self.with(|open| Ok(open.db.sweep_blobs().map(drop)?))),
                3..=4 => ("a view by name", self.view_by_name()),
                5..=7 => ("open again", self.open_again()),
                8..=9 => ("build", self.build()),
                10..=12 => ("compact", self.compact()),
                _ => ("backup", self.back_up()),
            };
            done.map_err(|wrong| wrong.while_doing(doing))?;
        }
    }

    fn with(&self, run: impl FnOnce(&Open) -> Outcome<()>) -> Outcome<()> {
        self.shop.with(run)
    }

    /// Adds, drops or rebuilds an untyped view.
    fn view_by_name(&mut self) -> Outcome<()> {
        let rebuilds = self.random.chance(1, 3);
        self.with(|open| {
            let orders = open.db.documents(ORDERS);
            let Some(schema) = answer(orders.schema())?.filter(|schema| !schema.is_migrating()) else {
                return Ok(());
            };
            if rebuilds && schema.views().iter().any(|view| view.name() == "by_owner" && view.is_ready()) {
                open.db.write(|tx| tx.rebuild_view(ORDERS, "by_owner"))?;
                return Ok(());
            }
            open.db.write(|tx| {
                let has_view =
                    answer(tx.get_bytes(LIFE, HAS_VIEW))?.flatten().is_some_and(|bytes| bytes == [1]);
                if has_view {
                    tx.drop_view(ORDERS, BY_CENTS)?;
                } else {
                    let spec = ViewSpec::new(BY_CENTS, ["cents"]).values(["id"]).reduce([Reduce::Sum(0)]);
                    tx.add_view(ORDERS, &spec)?;
                }
                tx.put_bytes(LIFE, HAS_VIEW, &[u8::from(!has_view)])
            })?;
            Ok(())
        })
    }

    /// The process ends, and the next one opens the database, possibly as the next release.
    fn open_again(&mut self) -> Outcome<()> {
        let (closes, upgrades) = (self.random.chance(1, 2), self.random.chance(2, 3));
        let mut guard = self.shop.open.write().unwrap_or_else(PoisonError::into_inner);
        let Open { db, release } = guard.take().ok_or("the database could not be opened again")?;
        if closes {
            db.close()?;
        }
        drop(db);
        let db = self.shop.place.open(Durability::Disk, true)?;
        let next = if upgrades { release.next() } else { release };
        if next != release {
            // Before the collection changes: the process after a cut must know by which type to read.
            db.write(|tx| tx.put_bytes(LIFE, RELEASE, &[next as u8]))?;
        }
        next.register(&db)?;
        *guard = Some(Open { db, release: next });
        Ok(())
    }

    /// Converts documents and builds views beside the writers, completely or in part.
    fn build(&mut self) -> Outcome<()> {
        let random = &mut self.random;
        self.shop.with(|open| {
            if open.release == Release::Plain {
                return Ok(());
            }
            unless_stopped(open.release.build(&open.db, || may_stop(random, 4)))
        })
    }

    /// Shortens the data file beside the writers, completely or in part.
    fn compact(&mut self) -> Outcome<()> {
        let random = &mut self.random;
        let mut moved_bytes = 0;
        self.shop.with(|open| {
            unless_stopped(open.db.compact_with(|progress| {
                moved_bytes = progress.moved_bytes;
                may_stop(random, 20)
            }))
        })?;
        self.shop.said.say(&compacted_line(moved_bytes))
    }

    /// Makes a backup beside the writers, and removes the previous one.
    fn back_up(&mut self) -> Outcome<()> {
        let backups = self.shop.place.backups();
        let failed = |error: std::io::Error| Wrong::from(format!("{}: {error}", backups.display()));
        if !backups.exists() {
            std::fs::create_dir(&backups).map_err(failed)?;
            let parent = backups.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))
                .and_then(|folder| folder.sync_all())
                .map_err(failed)?;
        }
        let name = (0_u32..).map(|at| at.to_string()).find(|name| !backups.join(name).exists());
        let name = name.expect("not so many backups are made");
        let counts = self.shop.seen_by_all();
        self.with(|open| Ok(open.db.backup(backups.join(&name)).map(drop)?))?;
        self.shop.said.say(&backup_line(&name, &counts))?;
        if let Some(before) = self.backup.replace(name) {
            self.shop.said.say(&gone_line(&before))?;
            std::fs::remove_dir_all(backups.join(before)).map_err(failed)?;
        }
        Ok(())
    }
}

/// Stops an operation between two of its steps, once in so many.
fn may_stop(random: &mut Random, times: usize) -> Result<(), Error> {
    if random.chance(1, times) { Err(Error::invalid(STOPPED)) } else { Ok(()) }
}

/// The error of an operation, unless it was stopped here.
fn unless_stopped<T>(done: Result<T, Error>) -> Outcome<()> {
    match done {
        Err(error) if error.to_string().contains(STOPPED) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}
