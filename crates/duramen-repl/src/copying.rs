//! Copies the state of a peer, piece by piece: for a new node, or in place of the state of one that lacks
//! entries which no other node has any more.
//!
//! The peer holds its state, and the log behind it, as long as pieces are asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duramen::DbOptions;
use duramen::wire::begin_node_anew;
use duramen_disk::Disk;
use duramen_engine::{Code, Error, Ident, NodeTarget};
use futures_util::{FutureExt as _, pin_mut};
use openraft_rt::Select2;

use crate::net::{Lane, Transport, ask};
use crate::node::NodeError;
use crate::retain::free_bytes;
use crate::runtime::Runtime;
use crate::seed::{Part, head_of, part_of};
use crate::types::Peer;
use crate::wire::{Answer, Asked, NextPiece, Piece, Request, Seed, SeedHead};

/// Between two tries.
pub(crate) const PAUSE: Duration = Duration::from_millis(300);
/// The time for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A piece that is not answered after so many tries ends the copy.
const TRIES: usize = 20;
/// While a copy is begun, or checked, the peer is asked this often, so that it holds the state.
const HOLD_EVERY: Duration = Duration::from_secs(15);

/// What a node needs a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOf {
    /// The node that needs it.
    pub ident: Ident,
    /// The address of the peer port of a node that has the state.
    pub from: String,
    /// About how many bytes it takes there.
    pub bytes: u64,
}

/// Replaces the state of a node, which does not run, with a copy of a peer's. The node keeps its id and its
/// vote. Until the copy is whole it has its old state, also if the call ends before: the disk must have room
/// for both. Returns whether it needed the copy: its log may have got what it lacked.
///
/// `own` is the address of the node's peer port.
///
/// # Errors
/// Those of [beginning](duramen_engine::NodeTarget::begin_anew) and making a copy; `Refused` if the peer does
/// not answer.
pub async fn copy_anew<R: Runtime>(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: DbOptions,
    copy_of: CopyOf,
    own: String,
    transport: Arc<dyn Transport>,
) -> Result<bool, NodeError> {
    let CopyOf { ident, from, .. } = copy_of;
    let peer = Peer { address: from, ..Peer::default() };
    let from = Asking { transport, peer, ident: Some(ident) };
    let path = path.to_owned();
    let begin = move |head: &SeedHead| {
        has_room(&*disk, &path, head.bytes)?;
        begin_node_anew(options, disk, &path, head_of(head))
    };
    // Boxed: Rust 1.89 does not see that the bare future is `Send`.
    copy::<R>(&from, (0, own), begin).boxed().await
}

/// What a node needs on its disk beside a copy: a checkpoint when it stops, segments of both logs of the
/// copy, and those that a start takes.
const BESIDE_BYTES: u64 = 16 << 20;

/// Fails if the disk has no room for a copy of so many bytes: better than to fill it first, and to find no
/// room to start again.
pub(crate) fn has_room(disk: &dyn Disk, path: &Path, bytes: u64) -> duramen_engine::Result<()> {
    let (free, bytes) = (free_bytes(disk, path)?, bytes + BESIDE_BYTES);
    if free >= bytes {
        return Ok(());
    }
    let what = format!("the copy takes about {bytes} bytes, and {free} are free at {}", path.display());
    Err(Error::new(Code::DiskFull, what).with_hint("make room for it beside the state that is there"))
}

/// A peer that is asked.
pub(crate) struct Asking {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) peer: Peer,
    pub(crate) ident: Option<Ident>,
}

impl Asking {
    pub(crate) async fn ask<R: Runtime>(&self, lane: Lane, asked: Asked) -> Result<Answer, String> {
        let request = Request::new(self.ident, 0, asked);
        ask::<R>(&*self.transport, &self.peer, lane, request, ANSWER_MAX).await?.into_answer()
    }

    async fn piece<R: Runtime>(&self, next: NextPiece) -> Result<Piece, NodeError> {
        let mut why = String::new();
        for _ in 0..TRIES {
            match self.ask::<R>(Lane::Bulk, Asked::NextPiece(next)).await {
                Ok(Answer::Piece(piece)) => return Ok(piece),
                Ok(answer) => return Err(unexpected(&answer)),
                Err(failed) => why = failed,
            }
            R::sleep(PAUSE).await;
        }
        Err(NodeError::Refused(format!("piece {} of the state has not come: {why}", next.number)))
    }
}

pub(crate) fn unexpected(answer: &Answer) -> NodeError {
    NodeError::Refused(match answer {
        Answer::Removed(_) => "this node was removed from it meanwhile".to_owned(),
        answer => format!("an answer to something else: {answer:?}"),
    })
}

/// Copies the state of a peer, which has this entry, to the node at an address. Returns whether there was
/// something to copy to.
pub(crate) async fn copy<R: Runtime>(
    from: &Asking,
    (at_least, address): (u64, String),
    begin: impl FnOnce(&SeedHead) -> duramen_engine::Result<Option<NodeTarget>> + Send + 'static,
) -> Result<bool, NodeError> {
    let asked = Asked::Seed(Seed { at_least, address });
    let head = match from.ask::<R>(Lane::Bulk, asked).await.map_err(NodeError::Refused)? {
        Answer::SeedHead(head) => head,
        answer => return Err(unexpected(&answer)),
    };
    let first = NextPiece { seed: head.seed, number: 0 };
    let begun = while_held::<R, _>(from, first, move || begin(&head)).await??;
    let Some(mut target) = begun else { return Ok(false) };
    for number in 0.. {
        let next = NextPiece { seed: head.seed, number };
        match part_of(from.piece::<R>(next).await?).map_err(NodeError::Refused)? {
            Part::Of(tree, part) => {
                let take = move || target.take(tree, part).map(|()| target);
                target = blocking::<R, _>(take).await??;
            }
            Part::End(digest) => {
                while_held::<R, _>(from, next, move || target.finish(digest)).await??;
                return Ok(true);
            }
        }
    }
    unreachable!("there is a piece of every number, or an error")
}

/// Runs a call that may take long. The peer is asked for a piece now and then, so that it holds the state.
async fn while_held<R: Runtime, T: Send + 'static>(
    from: &Asking,
    piece: NextPiece,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NodeError> {
    let running = blocking::<R, _>(call);
    pin_mut!(running);
    loop {
        match R::select2(&mut running, R::sleep(HOLD_EVERY)).await {
            Select2::First(done) => return done,
            // It can be asked for again. Whether it comes does not matter.
            Select2::Second(()) => drop(from.ask::<R>(Lane::Bulk, Asked::NextPiece(piece)).await),
        }
    }
}

async fn blocking<R: Runtime, T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NodeError> {
    R::run_blocking(call).await.map_err(NodeError::ended)
}
