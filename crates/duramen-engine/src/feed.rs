//! The change feed: what every commit did to the trees that people write to, in order, once, and only what is durable.
//!
//! There is one log: what it holds behind the newest checkpoint is read from it. Before a checkpoint lets that go, what somebody
//! still needs is copied into *retained files* of the directory `feed`, values included, and synced; only then may the superblock
//! name the new place. So a crash at any moment leaves each change in the files, in the log, or in both, and a sequence tells that
//! it is the same one. Nothing here runs on the way of a commit, and without a reader nothing is ever written.
//!
//! Owns the directory `feed`. Never decides what is committed, never writes to the log. D1, D2 and D4 rest here for readers of the
//! feed, and D7: a full disk costs those their changes who may lose them, and never the checkpoint.
//!
//! Reading order: [`FeedCommit`], [`FeedRule`], `retained`, `retain`. Format: docs/format.md, "The change feed". Decision 0013.

mod file;
mod frame;
mod items;
mod live;
mod names;
mod retain;
mod retained;
mod settle;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::error::{Code, Error, Result};
use crate::ids::{CommitSeq, TreeId};
use crate::transaction::Snapshot;

pub use file::FileReader;
pub use live::{LiveReader, Wanted};
pub use retain::{Letting, Retaining, is_source};
pub use retained::{Covered, FEED_DIR, FeedHold, Retained, RetainedPart};

/// One commit of the feed: its changes to the trees that were asked for, and never none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedCommit {
    /// Its place in the order of commits.
    pub seq: CommitSeq,
    /// When it was written: wall clock in nanoseconds since 1970, never less than that of the commit before.
    pub time_ns: u64,
    /// What it did, in order of tree and key; trees that it dropped and created come first.
    pub changes: Vec<FeedChange>,
}

/// What one commit did to one key of a tree, or to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedChange {
    /// The tree: never the same for two trees, also where one took the name of the other.
    pub tree: TreeId,
    /// Its name then.
    pub name: Arc<str>,
    /// What was done.
    pub what: FeedWhat,
}

/// What was done to a key or to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedWhat {
    /// The tree was created.
    Created,
    /// The tree was dropped, with everything in it. No deletes are told for that.
    Dropped,
    /// A value was put.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The whole value.
        value: Vec<u8>,
    },
    /// A key was deleted; it may not have been there.
    Deleted {
        /// The key.
        key: Vec<u8>,
    },
    /// A value was put, and its bytes were damaged before they could be retained.
    Lost {
        /// The key.
        key: Vec<u8>,
    },
}

/// Which changes there are for the feed, and who still needs them: told by whoever knows what the trees are for.
pub trait FeedRule: Send + Sync {
    /// Whether the changes of a tree of this name are delivered, or are derived from others or internal. Must be the same for ever.
    fn is_source(&self, tree: &str) -> bool;

    /// Who has to be kept what, as of a snapshot.
    ///
    /// # Errors
    /// What reading it said: the checkpoint that asked fails.
    fn needs(&self, at: &Snapshot) -> Result<Vec<FeedNeed>>;
}

/// Somebody who comes back for changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedNeed {
    /// Its name, for messages.
    pub name: String,
    /// Everything after this commit.
    pub after: CommitSeq,
    /// Where there is no room for what it needs, writers are refused; else it loses what is oldest.
    pub refuses_writers: bool,
}

/// What the feed keeps, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedBounds {
    /// The newest so many bytes are kept, whether or not anybody needs them.
    pub retain_bytes: u64,
    /// What is younger than this is kept, whether or not anybody needs it.
    pub retain_age_ns: u64,
    /// More than this is not kept for anybody who does not refuse writers.
    pub bytes_max: u64,
}

/// What the feed holds now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedStats {
    /// Files that hold changes which the log does not hold any more.
    pub file_count: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Everything after this commit can be read.
    pub oldest: CommitSeq,
    /// What the log still holds begins after this commit.
    pub log_from: CommitSeq,
    /// The newest change that can be read.
    pub newest: CommitSeq,
    /// Positions that open readers of this process hold, oldest first.
    pub held: Vec<CommitSeq>,
    /// Why writers are refused, if they are.
    pub refusal: Option<String>,
}

/// The error of a reader at a commit after which the feed is corrupt. It can read on after `goes_on`.
pub fn cannot_read(after: CommitSeq, flaw: &str, goes_on: CommitSeq) -> Error {
    Error::new(Code::DamagedFeed, format!("changes after commit {after} cannot be read: {flaw}"))
        .with_hint(format!("read what the collections hold now, and go on from {goes_on}"))
        .goes_on(goes_on)
}

/// The error of who asks for changes that are gone.
#[must_use]
pub fn gap(after: CommitSeq, oldest: CommitSeq) -> Error {
    let message = format!(
        "changes after commit {after} are no longer kept: the feed begins after commit {oldest}, and what lies between is gone"
    );
    Error::new(Code::FeedGap, message).with_hint(format!(
        "read what the collection holds now, and go on from {oldest} or from now; register a consumer, or raise feed_retain_bytes, \
         to have changes kept"
    ))
    .goes_on(oldest)
}
