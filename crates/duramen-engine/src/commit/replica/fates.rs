//! What became of the commits of orders that were given up.
//!
//! Term and sequence alone do not tell: after a refused group the same leader gives the same sequences again
//! in the same term, and a waiting thread would be told that it happened for a commit of another, even one of
//! equal bytes. So entries carry the lineage that they were ordered in.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::ids::CommitSeq;
use crate::raft_log::{Entry, EntryKind};

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is decided and published.
    Happened,
    /// It never happens; why.
    Never(String),
    /// It may still happen.
    Open,
}

/// The lineages that have ended. They are few: one for each change of leader and each refused group.
#[derive(Debug, Default)]
pub(super) struct Fates {
    ended: BTreeMap<u64, Ended>,
    /// Those with commits that may still be decided.
    open: Vec<u64>,
}

#[derive(Debug)]
struct Ended {
    term: u64,
    /// Commits up to this one happened.
    happened: CommitSeq,
    /// Commits after `happened` up to this one may still be decided.
    undecided: CommitSeq,
    why: Error,
    /// The commits that it was the fault of.
    failed: Vec<CommitSeq>,
    /// Why they failed.
    why_failed: Option<Error>,
}

impl Fates {
    /// A lineage of a term ended. Its commits up to `kept` happened; those up to `undecided` may happen
    /// still.
    pub(super) fn ended(
        &mut self,
        lineage: u64,
        term: u64,
        kept: CommitSeq,
        undecided: CommitSeq,
        why: &Error,
    ) {
        if undecided > kept {
            self.open.push(lineage);
        }
        let why = why.clone();
        let ended = Ended { term, happened: kept, undecided, why, failed: Vec::new(), why_failed: None };
        self.ended.insert(lineage, ended);
    }

    /// An entry is applied. It settles what was undecided at its place.
    pub(super) fn applied(&mut self, entry: &Entry, counts: bool) {
        let seq = entry.id.seq;
        self.open.retain(|lineage| {
            let ended = self.ended.get_mut(lineage).expect("an open lineage has ended");
            let ordered = (entry.ordered.term, entry.ordered.lineage) == (ended.term, *lineage);
            if entry.kind == EntryKind::Changes && counts && ordered {
                ended.happened = seq;
            } else {
                // Another entry stands there: what follows was ordered on one that is not in the log.
                ended.undecided = ended.happened;
            }
            ended.happened < ended.undecided
        });
    }

    /// What became of a commit of a lineage that has ended.
    pub(super) fn of(&self, lineage: u64, seq: CommitSeq) -> Fate {
        match self.ended.get(&lineage) {
            Some(ended) if seq <= ended.happened => Fate::Happened,
            Some(ended) if seq <= ended.undecided => Fate::Open,
            Some(ended) => Fate::Never(ended.why.message().to_owned()),
            // Of a node before it was one: its commits were durable.
            None => Fate::Happened,
        }
    }

    /// A lineage ended for the sake of these commits, which are told why.
    pub(super) fn failed(&mut self, lineage: u64, commits: Vec<CommitSeq>, why: Error) {
        if let Some(ended) = self.ended.get_mut(&lineage) {
            (ended.failed, ended.why_failed) = (commits, Some(why));
        }
    }

    /// Why a commit of a lineage that has ended never happens.
    pub(super) fn why(&self, lineage: u64, seq: CommitSeq) -> Option<Error> {
        let ended = self.ended.get(&lineage)?;
        let own = ended.why_failed.as_ref().filter(|_| ended.failed.contains(&seq));
        Some(own.unwrap_or(&ended.why).clone())
    }
}
