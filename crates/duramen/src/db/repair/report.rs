//! The reports of a repair: its progress and, at the end, what was kept and what is lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::TreeLoss;

use super::ALL;
use super::mentions::{Mentions, is_renamed};
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::blobs::{PIECES, namespace_of_records};
use crate::catalog::entries::Origin;
use crate::catalog::ids::BOUNDS;
use crate::store::CommitSeq;
use crate::store::error::Result;
use crate::store::{LostCommits, LostRange, Repair};

/// Rows left out beyond this many are counted but not named.
const LEFT_OUT_MAX: usize = 1000;

/// The stages of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairStage {
    /// Reads the corrupt database.
    Reading,
    /// Checks everything that was read, and leaves out what cannot be kept.
    Mending,
    /// Builds views.
    Views,
    /// Reads and checks the new database.
    Checking,
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// The current stage.
    pub stage: RepairStage,
    /// Entries of this stage that are done.
    pub done: u64,
    /// Entries of this stage, as far as that is known.
    pub of: u64,
}

impl RepairProgress {
    pub(crate) fn of_stage(stage: RepairStage) -> RepairProgress {
        RepairProgress { stage, done: 0, of: 0 }
    }

    pub(crate) fn reading(at: &crate::store::RepairProgress) -> RepairProgress {
        RepairProgress { stage: RepairStage::Reading, done: at.entries, of: at.of.max(at.entries) }
    }
}

/// The kinds of stores in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKind {
    /// A collection of documents.
    Collection,
    /// A namespace of key-values.
    KeyValues,
    /// A namespace of blobs. The contents of all namespaces are one nameless store.
    Blobs,
    /// A tree of bytes.
    Bytes,
    /// The database's own data: the catalogue, bounds of assigned ids, positions of consumers.
    Own,
}

impl StoreKind {
    /// The kind in a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Collection => "collection",
            StoreKind::KeyValues => "key-values",
            StoreKind::Blobs => "blobs",
            StoreKind::Bytes => "bytes",
            StoreKind::Own => "own",
        }
    }
}

/// What was kept of one collection, namespace or tree, and what it has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// What it is.
    pub store: StoreKind,
    /// Its name.
    pub name: String,
    /// Rows that are in the new database.
    pub rows: u64,
    /// Ranges of it that cannot be read.
    pub ranges: u64,
    /// About how many rows these ranges had.
    pub lost: u64,
    /// Some range has an unknown number of rows.
    pub may_be_more: bool,
    /// Why the number of lost rows is unknown, if it is. `lost` is then what is known of it.
    pub lost_unknown: Option<String>,
}

/// A collection, namespace or tree that a readable list names, and of which nothing was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is.
    pub store: StoreKind,
    /// Its name.
    pub name: String,
    /// The list that names it, as text.
    pub why: String,
}

/// A range that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The kind of store it was part of.
    pub store: StoreKind,
    /// The name of that store.
    pub name: String,
    /// The last key before it; `None` if it begins with the first. Equal to `before` if a single row is lost.
    pub after: Option<Vec<u8>>,
    /// The first key after it; `None` if it ends with the last.
    pub before: Option<Vec<u8>>,
    /// About how many rows it had, from the node above; `None` if that is unknown.
    pub rows: Option<u64>,
    /// What is corrupt, with file and offset.
    pub why: String,
}

/// A row that could be read but cannot be kept: a document that does not decode, a blob that lacks a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The kind of store it was part of.
    pub store: StoreKind,
    /// The name of that store.
    pub name: String,
    /// Its key.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub why: String,
}

/// Rows of which it is not known whether they are current: they may be older than the state that was
/// repaired, or deleted. They are in a collection, namespace or tree of bytes of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncertainRows {
    /// The kind of store.
    pub store: StoreKind,
    /// The name of the store that they are of.
    pub of: String,
    /// The name of the store that they are in.
    pub name: String,
    /// How many there are.
    pub rows: u64,
    /// How many more were found, whose big values cannot be read.
    pub unreadable: u64,
}

/// A view that does not cover every document yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingView {
    /// The collection.
    pub collection: String,
    /// The view.
    pub view: String,
    /// What it waits for, as text.
    pub why: String,
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The commit of the corrupt database whose state this is, less what is lost.
    pub seq: CommitSeq,
    /// The commit of the checkpoint that was read.
    pub checkpoint: CommitSeq,
    /// Commits applied from the log after the checkpoint.
    pub log_commits: u64,
    /// Whether pieces of an unfinished write lie after them: a crash leaves such an end of the log, and so
    /// does corruption of the newest commits.
    pub log_torn: bool,
    /// How many of the two superblocks can be read.
    pub superblocks: u64,
    /// Whether the checkpoint is the newest that can be found.
    pub is_newest: bool,
    /// Commits that are lost; `None` if the log is whole.
    pub lost_commits: Option<LostCommits>,
    /// What was kept, and how much of each is lost.
    pub repaired: Vec<Repaired>,
    /// What readable lists name, and of which nothing was found. Nothing else is known of its rows.
    pub missing: Vec<Missing>,
    /// The first ranges that cannot be read.
    pub lost: Vec<Lost>,
    /// The first rows that could be read but cannot be kept.
    pub left_out: Vec<LeftOut>,
    /// How many such rows there are in all.
    pub left_out_count: u64,
    /// Blobs whose contents were found but whose names are lost. They were left out.
    pub unnamed_blobs: u64,
    /// Trees of bytes with collections whose entry is lost, and with documents whose shape is lost: their
    /// fields are called `1`, `2` and so on there.
    pub renamed: Vec<String>,
    /// Rows of nodes that were found without pointers to them, and are current. They are in their stores.
    pub found_rows: u64,
    /// Rows of which it is not known whether they are current.
    pub uncertain: Vec<UncertainRows>,
    /// Views that were built.
    pub views_built: u64,
    /// Views that are not built, each with the reason. No data is lost: their documents are there.
    pub views_waiting: Vec<WaitingView>,
    /// Consumers of the change feed. They get `FeedGap` when they read.
    pub consumers: Vec<String>,
    /// Whether assigned ids may be given again: lost commits may have given some, or the stored bounds of ids
    /// are lost.
    pub ids_may_repeat: bool,
    names_lost: bool,
    totals: Vec<TreeLoss>,
    /// Names that lists mention.
    pub(crate) mentions: Mentions,
    /// Stores whose trees were not found, and were created empty.
    pub(crate) made_anew: BTreeSet<(StoreKind, String)>,
}

impl RepairReport {
    pub(crate) fn new(repair: Repair) -> RepairReport {
        RepairReport {
            seq: repair.seq,
            checkpoint: repair.checkpoint,
            log_commits: repair.log_commits,
            log_torn: repair.log_torn,
            superblocks: repair.superblocks,
            is_newest: repair.is_newest,
            lost_commits: repair.lost_commits,
            repaired: Vec::new(),
            missing: Vec::new(),
            lost: repair.ranges.into_iter().map(Lost::of).collect(),
            left_out: Vec::new(),
            left_out_count: 0,
            unnamed_blobs: 0,
            renamed: repair.nameless,
            found_rows: repair.found.current,
            uncertain: Vec::new(),
            views_built: 0,
            views_waiting: Vec::new(),
            consumers: Vec::new(),
            ids_may_repeat: false,
            names_lost: repair.names_lost,
            totals: repair.trees,
            mentions: Mentions::of_trees(&repair.mentioned),
            made_anew: BTreeSet::new(),
        }
    }

    /// Whether no data of the program is missing. Views that are not built do not count: see `views_waiting`.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost_commits.is_none()
            && self.totals.is_empty()
            && self.renamed.is_empty()
            && !self.may_have_lost_more()
            && (self.left_out_count, self.unnamed_blobs) == (0, 0)
    }

    /// Rows that are in the new database.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.repaired.iter().map(|one| one.rows).sum()
    }

    /// Rows that are lost, as far as that is known.
    #[must_use]
    pub fn lost_rows(&self) -> u64 {
        let lost = self.repaired.iter().fold(0_u64, |sum, one| sum.saturating_add(one.lost));
        lost.saturating_add(self.left_out_count)
    }

    /// Whether more rows may be lost than [`RepairReport::lost_rows`].
    #[must_use]
    pub fn may_have_lost_more(&self) -> bool {
        !self.missing.is_empty() || self.repaired.iter().any(|one| one.lost_unknown.is_some())
    }

    /// Why it is unknown how many rows of a store are lost, if it is.
    fn lost_unknown(&self, one: &Repaired) -> Option<String> {
        let of = (one.store, one.name.clone());
        let is_uncertain =
            || self.uncertain.iter().any(|rows| (rows.store, &rows.name) == (one.store, &one.name));
        let has_lost = |loss: &TreeLoss| {
            let (store, name) = store_of(&loss.tree);
            one.store == StoreKind::Bytes && is_renamed(&one.name, store, &name)
        };
        let why = if one.may_be_more {
            "a range of rows cannot be read, and no page tells how many it had"
        } else if self.made_anew.contains(&of) {
            "no page with rows was found, although a list names it"
        } else if is_uncertain() {
            "the pages were found one by one, and no list of them is left"
        } else if self.totals.iter().any(has_lost) {
            "the losses are listed under the former name"
        } else if self.lost_commits.is_some() && one.store != StoreKind::Own {
            "commits are lost, and any of them may have had more rows"
        } else {
            return None;
        };
        Some(why.to_owned())
    }

    /// Names what is missing, and the stores whose loss is unknown.
    fn tell_unknown(&mut self) {
        let unknown: Vec<_> = self.repaired.iter().map(|one| self.lost_unknown(one)).collect();
        for (one, why) in self.repaired.iter_mut().zip(unknown) {
            one.lost_unknown = why;
        }
        let is_there = |store: StoreKind, name: &str| {
            self.repaired.iter().any(|one| (one.store, one.name.as_str()) == (store, name))
                || self.repaired.iter().any(|one| is_renamed(&one.name, store, name))
                || self.uncertain.iter().any(|rows| rows.of == name)
        };
        self.missing = self.mentions.missing(is_there);
    }

    /// Trees with the same rows: what one of them has lost is not lost if the other has lost nothing.
    pub(crate) fn has_one_of(&mut self, trees: &[String; 2]) {
        let has_lost = |name: &String| self.totals.iter().any(|loss| loss.tree == *name);
        if trees.iter().all(has_lost) {
            return;
        }
        self.totals.retain(|loss| !trees.contains(&loss.tree));
        let stores = trees.each_ref().map(|tree| store_of(tree));
        self.lost.retain(|range| !stores.contains(&(range.store, range.name.clone())));
    }

    pub(crate) fn leave_out(&mut self, one: LeftOut) {
        self.left_out_count += 1;
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(one);
        }
    }

    /// Counts what was kept, and adds what is lost.
    pub(crate) fn count_rows(&mut self, db: &Db) -> Result<()> {
        let snapshot = db.snapshot()?;
        let source = snapshot.source();
        let mut all = BTreeMap::new();
        let new = |(store, name): &(StoreKind, String)| Repaired {
            store: *store,
            name: name.clone(),
            rows: 0,
            ranges: 0,
            lost: 0,
            may_be_more: false,
            lost_unknown: None,
        };
        for tree in source.tree_names()? {
            let Some(of) = origin_of(&tree).filter(|(_, name)| !name.is_empty()) else { continue };
            let rows = source.tree(&tree)?.map_or(Ok(0), |tree| source.count(tree, &ALL))?;
            all.entry(of).or_insert_with_key(new).rows = rows;
        }
        for loss in &self.totals {
            let one = all.entry(store_of(&loss.tree)).or_insert_with_key(new);
            one.ranges += loss.ranges;
            one.lost += loss.entries;
            one.may_be_more |= loss.may_be_more;
        }
        self.repaired = all.into_values().collect();
        self.tell_unknown();
        let bounds_lost = self.totals.iter().any(|loss| loss.tree == BOUNDS)
            || (self.names_lost && source.tree(BOUNDS)?.is_none());
        self.ids_may_repeat = bounds_lost || self.lost_commits.is_some();
        Ok(())
    }
}

impl Lost {
    fn of(range: LostRange) -> Lost {
        let (store, name) = store_of(&range.tree);
        let LostRange { after, before, entries, why, .. } = range;
        Lost { store, name, after, before, rows: entries, why }
    }
}

/// The store and name that a tree of the program belongs to; without a name, the contents of blobs.
pub(crate) fn origin_of(tree: &str) -> Option<(StoreKind, String)> {
    if tree == PIECES {
        return Some((StoreKind::Blobs, String::new()));
    }
    if let Some(namespace) = namespace_of_records(tree) {
        return Some((StoreKind::Blobs, namespace.to_owned()));
    }
    Some(match Origin::of(tree)? {
        Origin::Collection(name) => (StoreKind::Collection, name),
        Origin::KeyValues(name) => (StoreKind::KeyValues, name),
        Origin::Bytes(name) => (StoreKind::Bytes, name),
    })
}

/// The store and name of any tree. Trees of the engine have reserved names too.
fn store_of(tree: &str) -> (StoreKind, String) {
    let own = || (StoreKind::Own, tree.trim_start_matches("duramen/").to_owned());
    origin_of(tree).unwrap_or_else(own)
}
