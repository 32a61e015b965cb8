//! What a recovery tells: how far it is, and in the end what is there and what is lost.

use std::collections::BTreeMap;

use crate::store::TreeLoss;

use super::ALL;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::blobs::{PIECES, namespace_of_records};
use crate::catalog::entries::Origin;
use crate::catalog::ids::BOUNDS;
use crate::store::CommitSeq;
use crate::store::error::Result;
use crate::store::{LostCommits, LostRange, Salvage};

/// So many rows that were left out are named, and the others counted.
const LEFT_OUT_MAX: usize = 1000;

/// What a recovery does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoverStage {
    /// Reads the damaged database.
    Reading,
    /// Looks at everything that was read, and leaves out what cannot be kept.
    Mending,
    /// Builds views.
    Views,
    /// Reads the new database and checks it.
    Checking,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoverProgress {
    /// What is being done.
    pub stage: RecoverStage,
    /// Entries of this stage that are done.
    pub done: u64,
    /// Entries there are, as far as that is known.
    pub of: u64,
}

impl RecoverProgress {
    pub(crate) fn of_stage(stage: RecoverStage) -> RecoverProgress {
        RecoverProgress { stage, done: 0, of: 0 }
    }

    pub(crate) fn reading(at: &crate::store::RecoverProgress) -> RecoverProgress {
        RecoverProgress { stage: RecoverStage::Reading, done: at.entries, of: at.of.max(at.entries) }
    }
}

/// What something in a database is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Store {
    /// A collection of documents.
    Collection,
    /// A namespace of key-values.
    KeyValues,
    /// A namespace of blobs; the contents of all of them have no name.
    Blobs,
    /// A tree of bytes.
    Bytes,
    /// What the database keeps for itself: the catalogue, bounds of assigned ids, positions of consumers.
    Own,
}

impl Store {
    /// In a word or two.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Store::Collection => "collection",
            Store::KeyValues => "key-values",
            Store::Blobs => "blobs",
            Store::Bytes => "bytes",
            Store::Own => "own",
        }
    }
}

/// What was recovered of one collection, namespace or tree, and what it has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// What it is.
    pub store: Store,
    /// Its name.
    pub name: String,
    /// Rows that are in the new database.
    pub rows: u64,
    /// Stretches of it that cannot be read.
    pub ranges: u64,
    /// About so many rows were in these.
    pub lost: u64,
    /// Of some stretch nothing says how many rows it had.
    pub may_be_more: bool,
}

/// A stretch that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What it was part of.
    pub store: Store,
    /// The name of that.
    pub name: String,
    /// The last key before it; `None` if it begins with the first. The same as `before` where one row alone is lost.
    pub after: Option<Vec<u8>>,
    /// The first key behind it; `None` if it ends with the last.
    pub before: Option<Vec<u8>>,
    /// About so many rows were in it, as the node above says; `None` where nothing says it.
    pub rows: Option<u64>,
    /// What is damaged, with file and offset.
    pub why: String,
}

/// A row that could be read, and cannot be kept: a document that does not decode, a blob of which a piece is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// What it was part of.
    pub store: Store,
    /// The name of that.
    pub name: String,
    /// Its key.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub why: String,
}

/// A view that does not hold every document yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingView {
    /// The collection.
    pub collection: String,
    /// The view.
    pub view: String,
    /// What it waits for, in words.
    pub why: String,
}

/// What a recovery came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoverReport {
    /// The commit of the damaged database whose state this is, less what is lost.
    pub seq: CommitSeq,
    /// The commit of the checkpoint that was read.
    pub checkpoint: CommitSeq,
    /// Commits applied from the log behind it.
    pub log_commits: u64,
    /// Superblocks that can be read, of two.
    pub superblocks: u64,
    /// Whether the checkpoint is the newest that can be found.
    pub is_newest: bool,
    /// Commits that are lost; `None` if the log is whole.
    pub lost_commits: Option<LostCommits>,
    /// What is there, and how much of each is lost.
    pub recovered: Vec<Recovered>,
    /// The first stretches that cannot be read.
    pub lost: Vec<Lost>,
    /// The first rows that could be read and cannot be kept.
    pub left_out: Vec<LeftOut>,
    /// How many of these there are.
    pub left_out_count: u64,
    /// Blobs of which contents are there, and what they are called is lost. They were left out.
    pub unnamed_blobs: u64,
    /// What could be read and not be told apart any more, each as a tree of bytes under a name of its own.
    pub renamed: Vec<String>,
    /// Views that were built.
    pub views_built: u64,
    /// Views that are not, each with the reason. What they hold can be had from documents that are there: nothing is missing for it.
    pub views_waiting: Vec<WaitingView>,
    /// Consumers of the change feed. They get `FeedGap` when they read.
    pub consumers: Vec<String>,
    /// Assigned ids may be given again: commits are lost that may have given some, or something is of what says which were given.
    pub ids_may_repeat: bool,
    names_lost: bool,
    totals: Vec<TreeLoss>,
}

impl RecoverReport {
    pub(crate) fn new(salvage: Salvage) -> RecoverReport {
        RecoverReport {
            seq: salvage.seq,
            checkpoint: salvage.checkpoint,
            log_commits: salvage.log_commits,
            superblocks: salvage.superblocks,
            is_newest: salvage.is_newest,
            lost_commits: salvage.lost_commits,
            recovered: Vec::new(),
            lost: salvage.ranges.into_iter().map(Lost::of).collect(),
            left_out: Vec::new(),
            left_out_count: 0,
            unnamed_blobs: 0,
            renamed: salvage.nameless,
            views_built: 0,
            views_waiting: Vec::new(),
            consumers: Vec::new(),
            ids_may_repeat: false,
            names_lost: salvage.names_lost,
            totals: salvage.trees,
        }
    }

    /// Whether nothing is missing of what programs stored. Views that are not built are none of that: see `views_waiting`.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost_commits.is_none()
            && self.totals.is_empty()
            && self.renamed.is_empty()
            && (self.left_out_count, self.unnamed_blobs) == (0, 0)
    }

    /// Rows that are in the new database.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.recovered.iter().map(|one| one.rows).sum()
    }

    /// Rows that are lost, as far as that is known.
    #[must_use]
    pub fn lost_rows(&self) -> u64 {
        self.recovered.iter().map(|one| one.lost).sum::<u64>() + self.left_out_count
    }

    pub(crate) fn leave_out(&mut self, one: LeftOut) {
        self.left_out_count += 1;
        if self.left_out.len() < LEFT_OUT_MAX {
            self.left_out.push(one);
        }
    }

    /// Counts what is there, and sets beside it what is lost.
    pub(crate) fn count_rows(&mut self, db: &Db) -> Result<()> {
        let snapshot = db.snapshot()?;
        let source = snapshot.source();
        let mut all = BTreeMap::new();
        let new = |(store, name): &(Store, String)| Recovered {
            store: *store,
            name: name.clone(),
            rows: 0,
            ranges: 0,
            lost: 0,
            may_be_more: false,
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
        self.recovered = all.into_values().collect();
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

/// What a tree is part of that a program stores, and its name; without a name, the contents of blobs.
pub(crate) fn origin_of(tree: &str) -> Option<(Store, String)> {
    if tree == PIECES {
        return Some((Store::Blobs, String::new()));
    }
    if let Some(namespace) = namespace_of_records(tree) {
        return Some((Store::Blobs, namespace.to_owned()));
    }
    Some(match Origin::of(tree)? {
        Origin::Collection(name) => (Store::Collection, name),
        Origin::KeyValues(name) => (Store::KeyValues, name),
        Origin::Bytes(name) => (Store::Bytes, name),
    })
}

/// The same of any tree; those of the engine have names that belong to Duramen, too.
fn store_of(tree: &str) -> (Store, String) {
    let own = || (Store::Own, tree.trim_start_matches("duramen/").to_owned());
    origin_of(tree).unwrap_or_else(own)
}
