//! The change feed: every durable change to the user's trees, once and in commit order.
//!
//! Changes after the newest checkpoint are read from the log. Before a checkpoint releases that part of the
//! log, changes that a reader still needs are copied into *retained files* in the directory `feed`, values
//! included. The files are synced before the superblock names the new position. After a crash each change is
//! therefore in the files, in the log, or in both; its sequence shows that it is the same one. The commit
//! path does nothing for the feed, and without a reader nothing is written.
//!
//! Owns the directory `feed`. Does not decide what is committed and does not write to the log. D1, D2 and D4
//! rest here for readers of the feed, and D7: on a full disk, consumers that may lose changes lose them, and
//! the checkpoint goes on.
//!
//! Reading order: [`FeedCommit`], [`FeedRule`], `retained`, `retain`. Format: docs/format.md, "The change
//! feed". Decision 0013.

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

pub(crate) use file::FileReader;
pub(crate) use live::{LiveReader, Wanted};
pub(crate) use retain::{Letting, Retaining, is_source};
pub use retained::FeedHold;
pub(crate) use retained::{Covered, FEED_DIR, Retained, RetainedPart};

/// One commit of the feed: its changes to the requested trees, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedCommit {
    /// Its position in the order of commits.
    pub seq: CommitSeq,
    /// When it was written: wall clock in nanoseconds since 1970, never less than that of the commit before.
    pub time_ns: u64,
    /// Its changes, in order of tree and key. Dropped and created trees come first.
    pub changes: Vec<FeedChange>,
}

/// What one commit did to one key of a tree, or to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedChange {
    /// The tree. No two trees have the same id, even if one took the other's name.
    pub tree: TreeId,
    /// Its name at that time.
    pub name: Arc<str>,
    /// The change.
    pub what: FeedWhat,
}

/// A change to a key or to a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedWhat {
    /// The tree was created.
    Created,
    /// The tree was dropped with everything in it. There are no deletes for its keys.
    Dropped,
    /// A value was put.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The whole value.
        value: Vec<u8>,
    },
    /// A key was deleted, whether or not it existed.
    Deleted {
        /// The key.
        key: Vec<u8>,
    },
    /// A value was put, and its bytes were corrupt before they could be retained.
    Lost {
        /// The key.
        key: Vec<u8>,
    },
}

/// Which changes belong to the feed, and which consumers still need them. Implemented by the layer that knows
/// the purpose of the trees.
pub trait FeedRule: Send + Sync {
    /// Whether the changes of a tree of this name are delivered: `false` for derived and internal ones. Must
    /// never change for a name.
    fn is_source(&self, tree: &str) -> bool;

    /// Which consumers need which changes, as of a snapshot.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads). The checkpoint that called it fails with the error, unless it
    /// is corruption: nothing is kept for consumers then.
    fn needs(&self, at: &Snapshot) -> Result<Vec<FeedNeed>>;
}

/// A consumer of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedNeed {
    /// Its name, for messages.
    pub name: String,
    /// It needs everything after this commit.
    pub after: CommitSeq,
    /// If there is no room for what it needs: refuse writers; otherwise it loses the oldest changes.
    pub refuses_writers: bool,
}

/// What the feed keeps, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeedBounds {
    /// The newest changes of this many bytes are kept, needed or not.
    pub retain_bytes: u64,
    /// Younger changes than this are kept, needed or not.
    pub retain_age_ns: u64,
    /// Never keep more than this, except for consumers that refuse writers.
    pub bytes_max: u64,
}

/// What the feed holds at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedStats {
    /// Files of changes that the log no longer holds.
    pub file_count: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Everything after this commit can be read.
    pub oldest: CommitSeq,
    /// The changes that the log still holds begin after this commit.
    pub log_from: CommitSeq,
    /// The newest change that can be read.
    pub newest: CommitSeq,
    /// Positions that open readers of this process hold, oldest first.
    pub held: Vec<CommitSeq>,
    /// Why writers are refused, if they are.
    pub refusal: Option<String>,
}

/// The error for changes that are corrupt.
pub(crate) fn cannot_read(after: CommitSeq, flaw: &str, goes_on: CommitSeq) -> Error {
    Error::new(Code::CorruptFeed, format!("changes after commit {after} cannot be read: {flaw}"))
        .with_hint(format!("read what the collections hold now, and go on from {goes_on}"))
        .goes_on(goes_on)
}

/// The error for a position after the newest commit: it is of another order of commits.
pub(crate) fn ahead(after: CommitSeq, newest: CommitSeq, oldest: CommitSeq) -> Error {
    let message = format!(
        "there is no commit {after} yet: the newest is {newest}; the position is of another database, or of a later state \
         of this one, before it was restored"
    );
    Error::new(Code::FeedGap, message)
        .with_hint("read what the collection holds now, and go on from now; take positions from receipts and changes")
        .goes_on(oldest)
}

/// The error for changes that are no longer kept.
#[must_use]
pub(crate) fn gap(after: CommitSeq, oldest: CommitSeq) -> Error {
    let message = format!(
        "changes after commit {after} are no longer kept: the feed begins after commit {oldest}, and the changes between are gone"
    );
    Error::new(Code::FeedGap, message).with_hint(format!(
        "read what the collection holds now, and go on from {oldest} or from now; register a consumer, or raise feed_retain_bytes, \
         to have changes kept"
    ))
    .goes_on(oldest)
}
