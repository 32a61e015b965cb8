//! Copies of the database: backups beside writers, and repairs as if it were corrupt.
//!
//! Owns what each must hold. A copy whose call returned is complete after any cut; one in progress is
//! complete, or does not open (D2).

use std::sync::Arc;

use duramen::{Db, Error};
use duramen_disk::MemDisk;
use duramen_engine::Options;

use super::{Life, PATH, open};
use crate::product::judge::{database_equals, failed, same};
use crate::product::model::State;
use crate::product::shop::Release;
use crate::product::tally::Tally;
use crate::product::views::Shown;
use crate::search::random::Random;

/// Where backups are written, and repaired databases.
const COPY: &str = "/copy";
pub(super) const REPAIRED: &str = "/recovered";

/// A copy of the database, by a backup or a repair.
#[derive(Debug, Clone)]
pub struct Copied {
    /// Where it lies.
    pub path: String,
    /// Operations of the disk before it began.
    pub began: usize,
    /// Operations after which it is complete.
    pub ended: usize,
    /// What it holds.
    pub state: Arc<State>,
    /// The program that wrote it.
    pub release: Release,
    /// The views of the state that was copied; a repair builds its own.
    pub shown: Option<Option<Shown>>,
}

impl Copied {
    /// Opens the copy and compares it with what it must hold. Returns what was counted.
    ///
    /// # Errors
    /// The error of opening, or what differs.
    pub fn equals(
        &self,
        disk: &MemDisk,
        options: &Options,
        expired_ms: u64,
        random: &mut Random,
    ) -> Result<Tally, String> {
        let at = |what: String| format!("the copy {}: {what}", self.path);
        let db = self.open(disk, options).map_err(failed("open")).map_err(at)?;
        let compared = database_equals(&db, &self.state, self.release, expired_ms, random).map_err(at)?;
        let Some(shown) = &self.shown else { return Ok(Tally { recoveries: 1, ..compared }) };
        same("its views", &Shown::of(&db)?, shown).map_err(at)?;
        Ok(Tally { backups: 1, ..compared })
    }

    /// Opens the copy.
    ///
    /// # Errors
    /// The error of opening.
    pub fn open(&self, disk: &MemDisk, options: &Options) -> Result<Db, Error> {
        let options = Options { wal_dir: None, read_only: true, create: false, ..options.clone() };
        open(disk, &self.path, &options)
    }
}

impl Life {
    /// Repairs the closed database into a new one, as if it were corrupt. Returns whether it did: once in
    /// each life.
    pub(super) fn recover(&mut self) -> Result<bool, String> {
        let to = format!("{REPAIRED}{}", self.copy_suffix);
        if self.copies.iter().any(|copied| copied.path == to) {
            return Ok(false);
        }
        recover(&self.disk, &self.options, &to)?;
        Ok(true)
    }

    /// Checks that a finished copy opens, and holds what the database does.
    pub(super) fn copied(&mut self, name: &str, began: usize) -> Result<(), String> {
        let (path, ended) = (format!("{name}{}", self.copy_suffix), self.disk.recorded_len());
        let state = Arc::clone(self.history.latest());
        self.compared(Copied { path, began, ended, state, release: self.release, shown: None })
    }

    fn compared(&mut self, copied: Copied) -> Result<(), String> {
        let expired_ms = self.expired_ms(usize::MAX);
        self.tally.add(&copied.equals(&self.disk, &self.options, expired_ms, &mut self.random)?);
        self.copies.push(copied);
        Ok(())
    }

    /// Makes a backup, with a transaction beside it.
    pub(super) fn backup(&mut self) -> Result<(), String> {
        let path = format!("{COPY}{}", self.copy_suffix);
        if self.copies.iter().any(|copied| copied.path == path) {
            return Ok(());
        }
        let (began, state) = (self.disk.recorded_len(), Arc::new(self.state.clone()));
        let shown = Some(Shown::of(self.db())?);
        let (db, mut beside) = (self.db().clone(), Some(Ok(())));
        let done = db.backup_with(&path, |_| {
            if beside.as_ref().is_some_and(Result::is_ok) && self.random.chance(1, 3) {
                beside = Some(self.transaction(false).map(drop));
            }
            Ok(())
        });
        done.map_err(failed("backup"))?;
        beside.unwrap_or(Ok(())).map_err(|what| format!("beside a backup: {what}"))?;
        let ended = self.disk.recorded_len();
        self.compared(Copied { path, began, ended, state, release: self.release, shown })
    }
}

/// Repairs a closed database as if it were corrupt: nothing may be missing.
///
/// # Errors
/// What is missing.
pub fn recover(disk: &MemDisk, options: &Options, to: &str) -> Result<(), String> {
    let own = Release::options().engine(|own| *own = options.clone());
    let report = own.repair_on(Arc::new(disk.clone()), PATH, to, |_| Ok(())).map_err(failed("recover"))?;
    if report.is_whole() { Ok(()) } else { Err(format!("a recovery found something missing: {report:?}")) }
}
