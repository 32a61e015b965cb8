//! The interface to the engine: the only file of this crate that calls it.
//!
//! Translates what documents need (named trees, ranges, reductions) into calls of the engine. A change of the
//! engine's interface changes this file only.

pub mod error;
pub(crate) mod skip;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

pub(crate) use duramen_engine::ids::{DatabaseId, TreeId};
pub(crate) use duramen_engine::limits;
#[cfg(feature = "async")]
pub(crate) use duramen_engine::processors;
pub(crate) use duramen_engine::side_by_side;
pub(crate) use duramen_engine::{
    Background, CheckReport, CommitSeq, Condition, CopySource, CopyTarget, Direction, Durability,
    DurabilityStatus, Engine, Event, EventHook, FeedChange, FeedCommit, FeedHold, FeedNeed, FeedReader,
    FeedRule, FeedStats, FeedStop, FeedWhat, Founding, Hooks, HotKey, Ident, Keep, KeyRange, LogEntry,
    LostCommits, LostRange, NodeHead, NodeTarget, Observer, OpenReplica, Options, Proposer, Receipt, Reduced,
    Reducer, Repair, RepairProgress, Rest, Running, SlowCommit, Snapshot, Stats, Timings, Transaction,
    TreeInfo, TreeLoss, TreeMark, TreeShape, UncertainTree, Worker,
};
pub use duramen_engine::{CompactProgress, CopyPart, CopyProgress, HeldSnapshot, ObserveFrom, Observed};
pub use duramen_engine::{Features, ReducerSpec};

use crate::store::error::{Code, Error, ErrorKind, Result};

/// Reads, from a snapshot or inside a transaction.
pub(crate) trait Source {
    fn tree(&self, name: &str) -> Result<Option<TreeId>>;
    fn has_tree(&self, tree: TreeId) -> bool;
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Lends a value, if it is there. Of a snapshot it is not copied.
    fn lend(&self, tree: TreeId, key: &[u8], to: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// The first key of a range.
    fn first_key(&self, tree: TreeId, range: &KeyRange) -> Result<Option<Vec<u8>>>;
    fn count(&self, tree: TreeId, range: &KeyRange) -> Result<u64>;
    fn rank(&self, tree: TreeId, key: &[u8]) -> Result<u64>;
    fn nth(&self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>>;
    fn reduce(&self, tree: TreeId, range: &KeyRange) -> Result<Reduced>;
    fn cursor(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Cursor>;
    fn tree_names(&self) -> Result<Vec<String>>;
    /// The entries of a range. A transaction does not note that it read them.
    fn peek(&self, tree: TreeId, range: KeyRange) -> Result<Cursor>;
    /// Whether the reader itself has written a key.
    fn has_written(&self, tree: TreeId, key: &[u8]) -> bool;
}

/// The engine's transaction, shared by several readers of one thread.
///
/// It notes its reads, so each call needs exclusive access. No call keeps the borrow after it returns.
pub(crate) struct Shared<'e> {
    inner: RefCell<&'e mut duramen_engine::Transaction>,
    /// A retryable error: running the transaction again may succeed.
    again: RefCell<Option<Error>>,
}

impl<'e> Shared<'e> {
    pub(crate) fn new(inner: &'e mut duramen_engine::Transaction) -> Self {
        Shared { inner: RefCell::new(inner), again: RefCell::default() }
    }

    /// The error for which the transaction must run again: a retryable write, a write that needs room, or a
    /// read of a commit that was dropped.
    pub(crate) fn wants_to_run_again(&self) -> Option<Error> {
        self.again.borrow().clone().or_else(|| self.inner.borrow().must_run_again())
    }

    fn noted<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done
            && (error.is_retryable() || error.kind() == ErrorKind::Full)
        {
            self.again.replace(Some(error.clone()));
        }
        done
    }

    pub(crate) fn only_if(&self, condition: Condition) {
        self.inner.borrow_mut().only_if(condition);
    }

    pub(crate) fn writes(&self) -> bool {
        self.inner.borrow().writes()
    }

    pub(crate) fn runs_alone(&self) -> bool {
        self.inner.borrow().runs_alone()
    }

    /// Marks the transaction as one that frees more room than it takes.
    pub(crate) fn frees_room(&self) {
        self.inner.borrow_mut().frees_room();
    }

    /// As [`duramen_engine::Transaction::is_for_deletes`].
    pub(crate) fn is_for_deletes(&self) -> bool {
        self.inner.borrow().is_for_deletes()
    }

    /// Lets what was written so far count as deletes, until the next put.
    pub(crate) fn counts_as_deletes(&self) {
        self.inner.borrow_mut().counts_as_deletes();
    }

    pub(crate) fn limit_reads(&self, bytes: usize) {
        self.inner.borrow_mut().limit_reads(bytes);
    }

    pub(crate) fn read_bytes(&self) -> usize {
        self.inner.borrow().read_bytes()
    }

    /// In a node of a cluster: the lineage of commits that it began in.
    pub(crate) fn lineage(&self) -> Option<u64> {
        self.inner.borrow().lineage()
    }

    /// Whether it may be committed here: in a node of a cluster, while that leads in its lineage.
    pub(crate) fn may_commit(&self) -> bool {
        self.inner.borrow().may_commit()
    }

    /// The error of a transaction that began in a lineage before this one: it must run again.
    pub(crate) fn is_of_an_earlier_leadership(&self) -> Error {
        let what = "this node has begun to lead anew since the transaction began";
        let error = Error::new(Code::WriteConflict, what);
        self.again.replace(Some(error.clone()));
        error
    }

    /// Whether a tree has no entry.
    pub(crate) fn is_empty(&self, tree: TreeId) -> Result<bool> {
        Ok(self
            .cursor(tree, KeyRange { from: Vec::new(), to: None }, Direction::Forward)?
            .next_key()?
            .is_none())
    }

    pub(crate) fn put(&self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.noted(self.inner.borrow_mut().put(tree, key, value))
    }

    pub(crate) fn delete(&self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.noted(self.inner.borrow_mut().delete(tree, key))
    }

    /// Marks the transaction as one that advances a consumer of the feed.
    pub(crate) fn serve_feed(&self) {
        self.inner.borrow_mut().serve_feed();
    }

    pub(crate) fn create_tree(&self, name: &str, reducer: Option<ReducerSpec>) -> Result<TreeId> {
        self.inner.borrow_mut().create_tree(name, reducer)
    }

    pub(crate) fn create_tree_with_features(&self, name: &str, features: Features) -> Result<TreeId> {
        self.inner.borrow_mut().create_tree_with_features(name, features)
    }

    pub(crate) fn drop_tree(&self, name: &str) -> Result<()> {
        self.inner.borrow_mut().drop_tree(name)
    }
}

macro_rules! source {
    ($kind:ty, |$this:ident| $reader:expr, $lend:expr, $first_key:expr, $peek:expr, $has_written:expr) => {
        impl Source for $kind {
            fn tree(&self, name: &str) -> Result<Option<TreeId>> {
                let $this = self;
                $reader.tree(name)
            }

            fn has_tree(&self, tree: TreeId) -> bool {
                let $this = self;
                $reader.has_tree(tree)
            }

            fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
                let $this = self;
                $reader.get(tree, key)
            }

            fn lend(&self, tree: TreeId, key: &[u8], to: &mut dyn FnMut(&[u8])) -> Result<()> {
                $lend(self, tree, key, to)
            }

            fn first_key(&self, tree: TreeId, range: &KeyRange) -> Result<Option<Vec<u8>>> {
                $first_key(self, tree, range)
            }

            fn count(&self, tree: TreeId, range: &KeyRange) -> Result<u64> {
                let $this = self;
                $reader.count(tree, range)
            }

            fn rank(&self, tree: TreeId, key: &[u8]) -> Result<u64> {
                let $this = self;
                $reader.rank(tree, key)
            }

            fn nth(&self, tree: TreeId, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
                let $this = self;
                $reader.nth(tree, index)
            }

            fn reduce(&self, tree: TreeId, range: &KeyRange) -> Result<Reduced> {
                let $this = self;
                $reader.reduce(tree, range)
            }

            fn cursor(&self, tree: TreeId, range: KeyRange, direction: Direction) -> Result<Cursor> {
                let $this = self;
                Ok(Cursor { rows: $reader.rows(tree, range, direction)?, big: None })
            }

            fn tree_names(&self) -> Result<Vec<String>> {
                let $this = self;
                Ok($reader.trees()?.into_iter().map(|(name, _)| name).collect())
            }

            fn peek(&self, tree: TreeId, range: KeyRange) -> Result<Cursor> {
                Ok(Cursor { rows: $peek(self, tree, range)?, big: None })
            }

            fn has_written(&self, tree: TreeId, key: &[u8]) -> bool {
                $has_written(self, tree, key)
            }
        }
    };
}

source!(
    Snapshot,
    |this| this,
    |this: &Snapshot, tree, key: &[u8], to| this.get_with(tree, key, to).map(drop),
    Snapshot::first_key,
    |this: &Snapshot, tree, range| this.rows(tree, range, Direction::Forward),
    |_: &Snapshot, _, _: &[u8]| false
);
source!(
    Shared<'_>,
    |this| this.inner.borrow_mut(),
    // The borrow must end before the value is used: that may read more.
    |this: &Shared<'_>, tree, key: &[u8], to| {
        this.get(tree, key).map(|value| value.as_deref().map(to)).map(drop)
    },
    |this: &Shared<'_>, tree, range: &KeyRange| {
        let mut cursor = this.cursor(tree, range.clone(), Direction::Forward)?;
        Ok(cursor.next_key()?.map(<[u8]>::to_vec))
    },
    |this: &Shared<'_>, tree, range| this.inner.borrow_mut().peek(tree, range),
    |this: &Shared<'_>, tree, key: &[u8]| this.inner.borrow().has_written(tree, key)
);

/// Entries of a range, lent one at a time. Holds its snapshot.
pub(crate) struct Cursor {
    rows: duramen_engine::Rows,
    /// The current value, if it is a large one: assembled from its extents.
    big: Option<Vec<u8>>,
}

impl Cursor {
    /// The next key and value; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.big = None;
        let Some(row) = self.rows.next()? else { return Ok(None) };
        let (key, value) = (row.key(), row.value()?);
        Ok(Some((
            key,
            match value {
                Cow::Borrowed(value) => value,
                Cow::Owned(value) => self.big.insert(value),
            },
        )))
    }

    /// Moves to the next entry; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        self.big = None;
        let moved = self.rows.advance()?;
        if moved && self.rows.is_big() {
            self.big = self.rows.row().map(|row| row.value()).transpose()?.map(Cow::into_owned);
        }
        Ok(moved)
    }

    /// The key of the entry to which it moved last; `None` before the first and after the last.
    pub(crate) fn key(&mut self) -> Option<&[u8]> {
        Some(self.rows.row()?.key())
    }

    /// The value of the entry to which [`Cursor::advance`] moved last; `None` before the first and after the
    /// last.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.rows.value_in_page().or(self.big.as_deref())
    }

    /// As [`Cursor::next`], without reading the value.
    pub(crate) fn next_key(&mut self) -> Result<Option<&[u8]>> {
        self.big = None;
        Ok(self.rows.next()?.map(|row| row.key()))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").finish_non_exhaustive()
    }
}
