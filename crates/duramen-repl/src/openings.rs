//! Whether a node is what it was: an older copy of its directory, or a second one, has forgotten entries that
//! it acknowledged and votes that it gave. It takes no part (E1205).
//!
//! Each request and answer carries the [`Incarnation`] of the node that sends it, and a request the newest
//! one that this node knows of the other. Members keep the newest of each on disk and take nothing from
//! another one, and a node that hears of a later one than its own ends. Of two with the same number the
//! leader decides. A copy that is as old as the last opening gets the next number, as the node itself would:
//! the leader finds that it lacks what it has acknowledged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use duramen_engine::{Code, EntryId, Error, Ident, Incarnation, RaftLog};

use crate::runtime::Runtime;
use crate::types::{Id, VoteOf};
use crate::wire::WireIncarnation;

/// What a node knows of its own opening, and of those of the others.
#[derive(Debug)]
pub(crate) struct Openings {
    ident: Ident,
    log: Weak<RaftLog>,
    /// Why this node takes no more part.
    retired: OnceLock<Error>,
    /// That is on disk: a later opening would fail.
    is_kept: AtomicBool,
    /// What members have acknowledged to this node, which led with a vote.
    matched: Mutex<HashMap<u64, Matched>>,
}

/// The last entry that a member has acknowledged to a leader.
#[derive(Debug)]
struct Matched {
    vote: VoteOf,
    id: Id,
    /// The member has answered that it lacks an entry up to there.
    is_lacked: bool,
}

impl Openings {
    pub(crate) fn new(ident: Ident, log: Weak<RaftLog>) -> Openings {
        Openings {
            ident,
            log,
            retired: OnceLock::new(),
            is_kept: AtomicBool::new(false),
            matched: Mutex::default(),
        }
    }

    fn matched(&self) -> MutexGuard<'_, HashMap<u64, Matched>> {
        self.matched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why this node takes no more part, if it does not.
    pub(crate) fn retired(&self) -> Option<&Error> {
        self.retired.get()
    }

    /// Whether a process may end for that reason: opened again, this directory would take no part.
    pub(crate) fn is_retirement_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    /// From now on this node says nothing more, and its directory is not opened again. Returns why.
    async fn retire<R: Runtime>(&self, what: String) -> String {
        if let Some(why) = self.retired() {
            return why.message().to_owned();
        }
        let hint = "if the node runs elsewhere, move this directory away; otherwise remove the node from the cluster, and let an empty directory join in its place";
        let why =
            self.retired.get_or_init(|| Error::new(Code::IdentityRetired, what).with_hint(hint)).clone();
        let message = why.message().to_owned();
        if let Some(log) = self.log.upgrade() {
            // If the disk does not take it, a later opening is told again.
            drop(R::run_blocking(move || log.retire(&why)).await);
            self.is_kept.store(true, Ordering::Release);
        }
        message
    }

    /// This opening.
    pub(crate) fn own(&self) -> Option<WireIncarnation> {
        Some(self.log.upgrade()?.incarnation().into())
    }

    /// The newest known of a node.
    pub(crate) fn newest_of(&self, node: u64) -> Option<WireIncarnation> {
        self.log.upgrade()?.incarnation_of(node).map(WireIncarnation::from)
    }

    /// Notes the incarnation of a node.
    ///
    /// # Errors
    /// Another one that is known to be the newest; nothing if the file could not be written.
    pub(crate) async fn meet<R: Runtime>(
        &self,
        node: u64,
        met: WireIncarnation,
    ) -> Result<(), Option<WireIncarnation>> {
        let log = self.log.upgrade().ok_or(None)?;
        let met = Incarnation::from(met);
        if log.incarnation_of(node) == Some(met) {
            return Ok(());
        }
        match R::run_blocking(move || log.meet(node, met)).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(newest))) => Err(Some(newest.into())),
            Ok(Err(_)) | Err(_) => Err(None),
        }
    }

    /// Notes which incarnation of this node a member knows. `decides` if that member leads.
    pub(crate) async fn hears_of<R: Runtime>(&self, expected: WireIncarnation, decides: bool) {
        let (expected, own) = (Incarnation::from(expected), self.own().map(Incarnation::from));
        let Some(own) = own else { return };
        let node = self.ident.node;
        if expected.number > own.number {
            let what = format!(
                "this directory is an older copy of node {node}: this is opening {} of it, and another member knows opening {}. It takes no more part",
                own.number, expected.number
            );
            self.retire::<R>(what).await;
        } else if expected.number == own.number && expected.id != own.id && decides {
            let what = format!(
                "this directory is one of two copies of node {node}, and its cluster has met the other one. It takes no more part"
            );
            self.retire::<R>(what).await;
        }
    }

    /// Notes what a member has acknowledged to this node, which leads with a vote.
    pub(crate) fn acknowledged(&self, node: u64, vote: &VoteOf, id: Id) {
        let mut matched = self.matched();
        // A late answer to an earlier leadership.
        if matched.get(&node).is_some_and(|known| known.vote > *vote) {
            return;
        }
        let known = matched.get(&node).filter(|known| known.vote == *vote).map(|known| known.id);
        let id = known.map_or(id, |known| known.max(id));
        matched.insert(node, Matched { vote: *vote, id, is_lacked: false });
    }

    /// A member lacks the entry at this index. Returns whether it has acknowledged that one, or a later one.
    pub(crate) fn lacks(&self, node: u64, vote: &VoteOf, index: u64) -> bool {
        let mut matched = self.matched();
        let Some(known) = matched.get_mut(&node).filter(|known| known.vote == *vote) else { return false };
        known.is_lacked |= index <= known.id.index;
        known.is_lacked
    }

    /// The entry that a member has acknowledged to this node, which leads with a vote, and seems to lack.
    pub(crate) fn lacked_by(&self, node: u64, vote: &VoteOf) -> Option<Id> {
        let matched = self.matched();
        matched.get(&node).filter(|known| known.vote == *vote && known.is_lacked).map(|known| known.id)
    }

    /// Whether the log of this node lacks an entry.
    ///
    /// # Errors
    /// Why that is not known.
    pub(crate) async fn lacks_here<R: Runtime>(&self, id: EntryId) -> Result<bool, String> {
        let log = self.log.upgrade().ok_or("the node has stopped")?;
        let look = move || {
            let is_here = id.seq > log.purged().id.seq;
            Ok::<_, Error>(is_here && (id.seq > log.end().id.seq || log.end_after(id.seq)?.id != id))
        };
        let looked = R::run_blocking(look).await.map_err(|error| error.to_string())?;
        looked.map_err(|error| error.to_string())
    }

    /// This node lacks an entry that it has acknowledged, and no later leader has taken back. Returns why it
    /// takes no more part.
    pub(crate) async fn retire_without<R: Runtime>(&self, id: EntryId) -> String {
        let what = format!(
            "this directory is an older copy of node {}: it has acknowledged entry {} of term {}, and lacks it. It takes no more part",
            self.ident.node, id.seq, id.term
        );
        self.retire::<R>(what).await
    }
}
