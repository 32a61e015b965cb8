//! Reads the part of the log that is still there, beside its writer.

use std::collections::VecDeque;

use super::names::{LoggedChange, Names};
use super::{FeedChange, FeedCommit, FeedWhat};
use crate::alarm::invariant;
use crate::error::Result;
use crate::ids::{CommitSeq, TreeId};
use crate::page_cache::Pages;
use crate::tree::{BigRef, Slot};
use crate::wal::{Enough, LogPlace, LogPosition, Stretch};

/// How far the log was read, and the names of the trees at that position.
#[derive(Debug)]
pub(crate) struct LiveReader {
    names: Names,
    position: LogPosition,
    /// Everything up to this commit was read.
    seq: CommitSeq,
    /// A value did not match its checksum: corruption, unless the checkpoint has moved in the meantime.
    pub saw_corruption: bool,
}

/// What to read of the log.
pub(crate) struct Wanted<'a> {
    /// Commits after this one.
    pub after: CommitSeq,
    /// As far as this one.
    pub through: CommitSeq,
    /// About how many bytes of changes to read at once.
    pub bytes_max: usize,
    /// Whether to read changes of trees of this name.
    pub wants: &'a dyn Fn(&str) -> bool,
}

impl LiveReader {
    /// Begins at the end of the newest checkpoint.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if its catalogue cannot be read.
    pub(crate) fn begin(
        pages: &Pages,
        position: LogPosition,
        catalogue: Option<&Slot>,
    ) -> Result<LiveReader> {
        let names = Names::load(pages, catalogue)?;
        Ok(LiveReader { names, position, seq: position.seq, saw_corruption: false })
    }

    /// Everything up to this commit was read.
    pub(crate) fn seq(&self) -> CommitSeq {
        self.seq
    }

    /// The tree of this name at that position.
    pub(crate) fn tree(&self, name: &str) -> Option<TreeId> {
        self.names.tree(name)
    }

    /// Where the next read begins: after a frame that stays on the chain.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// Reads on and appends commits to `out`. Unusable after an error.
    ///
    /// # Errors
    /// As [`LogPlace::read`].
    pub(crate) fn read(
        &mut self,
        log: &LogPlace<'_>,
        pages: &Pages,
        wanted: &Wanted<'_>,
        out: &mut VecDeque<FeedCommit>,
    ) -> Result<()> {
        let stretch = Stretch { from: self.position, through: wanted.through };
        let mut bytes = 0;
        let begin = self.position.seq;
        let LiveReader { names, seq, saw_corruption, .. } = self;
        self.position = log.read(&stretch, &mut |record| {
            if record.seq <= *seq {
                return Ok(Enough::No);
            }
            invariant!(record.seq == seq.next(), "commit {} of the log follows {seq}", record.seq);
            *seq = record.seq;
            let is_late = record.seq > wanted.after;
            let wants = |name: &str| is_late && (wanted.wants)(name);
            let mut commit =
                FeedCommit { seq: record.seq, time_ns: record.commit_time_ns, changes: Vec::new() };
            names.pass(&record, &wants, &mut |tree, name, told| {
                let what = match told {
                    LoggedChange::Tree(what) => what,
                    LoggedChange::Key(key, None) => FeedWhat::Deleted { key: key.to_vec() },
                    LoggedChange::Key(key, Some(value)) if !value.big => {
                        FeedWhat::Put { key: key.to_vec(), value: value.bytes.to_vec() }
                    }
                    LoggedChange::Key(key, Some(value)) => {
                        match BigRef::decode(value.bytes).and_then(|value| value.read(pages)) {
                            Ok(value) => FeedWhat::Put { key: key.to_vec(), value },
                            Err(error) if error.is_corruption() => {
                                *saw_corruption = true;
                                FeedWhat::Lost { key: key.to_vec() }
                            }
                            Err(error) => return Err(error),
                        }
                    }
                };
                bytes += what.bytes();
                commit.changes.push(FeedChange { tree, name: name.clone(), what });
                Ok(())
            })?;
            if !commit.changes.is_empty() {
                out.push_back(commit);
            }
            Ok(if bytes >= wanted.bytes_max { Enough::Yes } else { Enough::No })
        })?;
        invariant!(
            begin <= self.position.seq && self.position.seq <= self.seq,
            "the next read, from commit {}, is after {begin} and leaves nothing out after {}",
            self.position.seq,
            self.seq
        );
        Ok(())
    }
}

impl FeedWhat {
    /// Approximate bytes of memory.
    pub fn bytes(&self) -> usize {
        match self {
            FeedWhat::Created | FeedWhat::Dropped => 64,
            FeedWhat::Put { key, value } => key.len() + value.len() + 64,
            FeedWhat::Deleted { key } | FeedWhat::Lost { key } => key.len() + 64,
        }
    }
}
