//! Repair of a corrupt database: makes a new, sound one from what can still be read.
//!
//! Owns which trees are copied and which are made anew. Data derived from documents and values is derived
//! again, so that nothing in the new database refers to a lost row. The engine does the reading. The repair
//! finishes only after the new database passed `check` and a check of every document. D4 rests here: the
//! report names what is missing.

mod batch;
mod blobs;
mod collections;
mod key_values;
mod mentions;
mod names;
mod report;
mod uncertain;

use std::collections::BTreeSet;
use std::path::Path;

use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::access::reads::sealed::Readable;
use crate::catalog::progress::{FAILURES, WALKS};
use crate::db::options::DbOptions;
use crate::feed::positions;
use crate::kv::namespace_of_expiries;
use crate::requests::{forget_all, minute_of};
use crate::store::error::{Code, Error, Result};
use crate::store::{Keep, KeyRange, Repair, Source, UncertainTree};
use crate::view::spec::TREES as VIEW_TREES;

use report::origin_of;
pub use report::{
    LeftOut, Lost, Missing, RepairProgress, RepairReport, RepairStage, Repaired, StoreKind, UncertainRows,
    WaitingView,
};

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Repairs a corrupt database: makes a new, sound one at `to` from what can still be read at `from`.
///
/// See [`DbOptions::repair`].
///
/// # Errors
/// As [`DbOptions::repair`].
pub fn repair(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: DbOptions,
    progress: impl FnMut(&RepairProgress) -> Result<()>,
) -> Result<RepairReport> {
    options.repair(from, to, progress)
}

/// What a tree becomes in the new database. View rows, the expiry index and build progress are derived from
/// the rest.
pub(crate) fn keep(tree: &str) -> Keep {
    if tree.starts_with(VIEW_TREES) {
        // Their reducers may be in code that this program lacks: the trees are created with the same
        // definition.
        Keep::Name
    } else if minute_of(tree).is_some() {
        // For their minutes: all requests are forgotten, since some may be missing.
        Keep::Name
    } else if namespace_of_expiries(tree).is_some() || [WALKS, FAILURES].contains(&tree) {
        Keep::Nothing
    } else {
        Keep::Entries
    }
}

/// The state that the steps of a repair share.
pub(crate) struct Mending<'a> {
    db: &'a Db,
    report: RepairReport,
    progress: &'a mut dyn FnMut(&RepairProgress) -> Result<()>,
    at: RepairProgress,
    /// Trees of bytes that were made of a collection's documents.
    of_collections: BTreeSet<String>,
    /// Numbers of shapes that were in neither tree of shapes: they may be of a commit that a crash has
    /// dropped.
    guessed: BTreeSet<u32>,
}

/// Makes the data that was read consistent, checks the new database, and allows it to be opened.
pub(crate) fn make_sound(
    db: &Db,
    repair: Repair,
    progress: &mut dyn FnMut(&RepairProgress) -> Result<()>,
) -> Result<RepairReport> {
    let (uncertain, of_log) = (repair.found.uncertain.clone(), repair.found.of_log.clone());
    let mut mending = Mending {
        db,
        report: RepairReport::new(repair),
        progress,
        at: RepairProgress::of_stage(RepairStage::Mending),
        of_collections: BTreeSet::new(),
        guessed: BTreeSet::new(),
    };
    mending.shapes(&uncertain, &of_log)?;
    mending.uncertain(&uncertain)?;
    mending.stores(&uncertain)?;
    mending.views()?;
    forget_all(db)?;
    mending.report.consumers = db.transact(|tx| positions::set_back(tx.shared()))?;
    mending.check()?;
    db.finish_repair()?;
    Ok(mending.report)
}

impl Mending<'_> {
    /// Repairs everything that a program stores.
    fn stores(&mut self, uncertain: &[UncertainTree]) -> Result<()> {
        let names = self.db.snapshot()?.source().tree_names()?;
        let state = self.db.snapshot()?;
        for name in names.iter().filter(|name| origin_of(name).is_some()) {
            self.at.of += count(state.source(), name)?;
        }
        let schemas = self.collections()?;
        for schema in &schemas {
            self.documents(schema)?;
        }
        for namespace in state.kv_namespaces()? {
            self.key_values(&namespace)?;
        }
        self.blobs()?;
        self.names(uncertain)?;
        self.report.count_rows(self.db)
    }

    fn views(&mut self) -> Result<()> {
        self.at = RepairProgress::of_stage(RepairStage::Views);
        for schema in self.db.collections()? {
            if !schema.views().is_empty() || schema.refers() {
                self.views_of(schema.name())?;
            }
        }
        Ok(())
    }

    /// Reads the whole new database, as its later users would.
    fn check(&mut self) -> Result<()> {
        self.at = RepairProgress::of_stage(RepairStage::Checking);
        (self.progress)(&self.at)?;
        self.db.checkpoint()?;
        let pages = self.db.check()?;
        (self.progress)(&self.at)?;
        let documents = self.db.check_documents()?;
        if pages.is_clean() && documents.is_clean() {
            return Ok(());
        }
        let problems = pages.problems.iter().chain(&documents.problems);
        let first = problems.chain(documents.unreadable.iter().map(|stretch| &stretch.why)).next();
        let message = format!(
            "the repaired database reads otherwise than it was written: {}",
            first.map_or("something is wrong", String::as_str)
        );
        Err(Error::new(Code::CorruptData, message)
            .with_hint("check the disk of the new database; the corrupt one was only read"))
    }

    /// Counts one more entry.
    fn pass(&mut self) -> Result<()> {
        self.at.done += 1;
        if self.at.done.is_multiple_of(TOLD_EVERY) { (self.progress)(&self.at) } else { Ok(()) }
    }

    /// Notes a row that could be read but cannot be kept.
    fn leave_out(&mut self, store: StoreKind, name: &str, key: &[u8], why: impl Into<String>) {
        let one = LeftOut { store, name: name.to_owned(), key: key.to_vec(), why: why.into() };
        self.report.leave_out(one);
    }
}

/// Entries between two calls of `progress`.
const TOLD_EVERY: u64 = 256;

fn count(source: &dyn Source, tree: &str) -> Result<u64> {
    source.tree(tree)?.map_or(Ok(0), |tree| source.count(tree, &ALL))
}
