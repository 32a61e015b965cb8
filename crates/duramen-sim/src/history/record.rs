//! What a transaction did: its queries with their answers, and its writes, in order.
//!
//! Owns the record. The recorder queries the engine and keeps the answers; it never judges.

use std::sync::Arc;

use duramen_engine::{CommitSeq, Direction, KeyRange, Result, Snapshot, Transaction, TreeId};

/// An entry of a tree.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Looked a tree up.
    Tree(Arc<str>, Option<TreeId>),
    /// Listed the trees.
    Trees(Vec<(String, TreeId)>),
    /// Looked a key up.
    Get(TreeId, Vec<u8>, Option<Vec<u8>>),
    /// Read the entries of a range, at most so many.
    Rows(TreeId, KeyRange, Direction, usize, Vec<Entry>),
    /// Counted a range.
    Count(TreeId, KeyRange, u64),
    /// Counted the keys before one.
    Rank(TreeId, Vec<u8>, u64),
    /// Read the n-th entry.
    Nth(TreeId, u64, Option<Entry>),
    /// Summed a range.
    Sum(TreeId, KeyRange, Option<i128>),
    /// Put.
    Put(TreeId, Vec<u8>, Vec<u8>),
    /// Deleted.
    Delete(TreeId, Vec<u8>),
    /// Created a tree that sums.
    Create(Arc<str>, TreeId),
    /// Dropped a tree.
    Drop(Arc<str>),
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It wrote, and committed at its sequence.
    Committed,
    /// It only read, and committed; its sequence is the one it read.
    Read,
    /// It was a snapshot.
    Snapshot,
    /// It was refused; its sequence is the one it read.
    Conflicted,
}

/// One transaction or snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The thread that ran it.
    pub thread: usize,
    /// A tick taken before it began.
    pub began: u64,
    /// A tick taken after it ended.
    pub ended: u64,
    /// Its commit.
    pub seq: CommitSeq,
    /// How it ended.
    pub fate: Fate,
    /// Whether snapshots that begin after its end see it.
    pub is_published: bool,
    /// Whether it rested between calls.
    pub has_rested: bool,
    /// What it did.
    pub steps: Vec<Step>,
}

impl Event {
    pub(super) fn name(&self) -> String {
        let Event { thread, seq, fate, began, .. } = self;
        format!("thread {thread}, tick {began}: {fate:?} at commit {seq}")
    }
}

/// A transaction or a snapshot to be queried.
pub(super) trait Reader {
    /// As [`Transaction::tree`].
    fn tree(&mut self, name: &str) -> Result<Option<TreeId>>;
    /// As [`Transaction::trees`].
    fn trees(&mut self) -> Result<Vec<(String, TreeId)>>;
    /// As [`Transaction::get`].
    fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// As [`Transaction::rows`], at most so many of them.
    fn rows(&mut self, tree: TreeId, range: &KeyRange, to: Direction, count: usize) -> Result<Vec<Entry>>;
    /// As [`Transaction::count`].
    fn count(&mut self, tree: TreeId, range: &KeyRange) -> Result<u64>;
    /// As [`Transaction::rank`].
    fn rank(&mut self, tree: TreeId, key: &[u8]) -> Result<u64>;
    /// As [`Transaction::nth`].
    fn nth(&mut self, tree: TreeId, index: u64) -> Result<Option<Entry>>;
    /// As [`Transaction::reduce`], of a tree that sums.
    fn sum(&mut self, tree: TreeId, range: &KeyRange) -> Result<Option<i128>>;
}

fn number(bytes: Option<Vec<u8>>) -> Option<i128> {
    bytes.map(|bytes| i128::from_le_bytes(bytes.try_into().expect("a sum has sixteen bytes")))
}

macro_rules! reader {
    ($asked:ty) => {
        impl Reader for $asked {
            fn tree(&mut self, name: &str) -> Result<Option<TreeId>> {
                <$asked>::tree(self, name)
            }
            fn trees(&mut self) -> Result<Vec<(String, TreeId)>> {
                <$asked>::trees(self)
            }
            fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
                <$asked>::get(self, tree, key)
            }
            fn rows(
                &mut self,
                tree: TreeId,
                range: &KeyRange,
                to: Direction,
                count: usize,
            ) -> Result<Vec<Entry>> {
                <$asked>::rows(self, tree, range.clone(), to)?.into_iter().take(count).collect()
            }
            fn count(&mut self, tree: TreeId, range: &KeyRange) -> Result<u64> {
                <$asked>::count(self, tree, range)
            }
            fn rank(&mut self, tree: TreeId, key: &[u8]) -> Result<u64> {
                <$asked>::rank(self, tree, key)
            }
            fn nth(&mut self, tree: TreeId, index: u64) -> Result<Option<Entry>> {
                <$asked>::nth(self, tree, index)
            }
            fn sum(&mut self, tree: TreeId, range: &KeyRange) -> Result<Option<i128>> {
                <$asked>::reduce(self, tree, range).map(|reduced| number(reduced.value))
            }
        }
    };
}

reader!(Transaction);
reader!(Snapshot);

/// Runs the query of a step and keeps the answer; not for steps that write.
///
/// # Errors
/// The engine's error.
pub(super) fn ask(reader: &mut dyn Reader, question: Step) -> Result<Step> {
    Ok(match question {
        Step::Tree(name, _) => {
            let found = reader.tree(&name)?;
            Step::Tree(name, found)
        }
        Step::Trees(_) => Step::Trees(reader.trees()?),
        Step::Get(tree, key, _) => {
            let value = reader.get(tree, &key)?;
            Step::Get(tree, key, value)
        }
        Step::Rows(tree, range, to, count, _) => {
            let rows = reader.rows(tree, &range, to, count)?;
            Step::Rows(tree, range, to, count, rows)
        }
        Step::Count(tree, range, _) => {
            let count = reader.count(tree, &range)?;
            Step::Count(tree, range, count)
        }
        Step::Rank(tree, key, _) => {
            let rank = reader.rank(tree, &key)?;
            Step::Rank(tree, key, rank)
        }
        Step::Nth(tree, index, _) => Step::Nth(tree, index, reader.nth(tree, index)?),
        Step::Sum(tree, range, _) => {
            let sum = reader.sum(tree, &range)?;
            Step::Sum(tree, range, sum)
        }
        Step::Put(..) | Step::Delete(..) | Step::Create(..) | Step::Drop(..) => {
            unreachable!("a write is no question")
        }
    })
}
