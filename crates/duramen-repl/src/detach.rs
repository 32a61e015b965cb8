//! A node that leaves its cluster and keeps its data.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duramen::DbOptions;
use duramen_disk::{Disk, OsDisk};
use duramen_engine::CommitSeq;
use openraft::type_config::TypeConfigExt;
use openraft_rt_tokio::TokioRuntime;
use tokio::runtime::Builder;

use crate::net::{Called, Lane, Transport};
use crate::node::{Node, NodeError, Start};
use crate::running::system;
use crate::runtime::Runtime;
use crate::types::{Peer, Types};

/// How long a node without peers may take to apply what it has.
const APPLY_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at how far it is.
const LOOK: Duration = Duration::from_millis(10);

/// A database that was a node, and is a plain one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detached {
    /// The node that it was.
    pub node: u64,
    /// Its last commit.
    pub published: CommitSeq,
    /// Entries of Raft's log that are left out: this node does not know whether they were decided.
    pub undecided: u64,
    /// The members of the cluster that is left, without this node.
    pub others: usize,
}

/// Reaches no peer.
struct Nowhere;

impl Transport for Nowhere {
    fn call(&self, node: u64, _: &Peer, _: Lane, _: Vec<u8>) -> Called {
        Box::pin(async move { Err(format!("node {node} is not asked")) })
    }
}

/// Makes the database of a node that is stopped a plain one again, with everything that the node knows to be
/// decided. Of a cluster of one that is all of it.
///
/// # Errors
/// Those of [opening](duramen::wire::open_node), and of [`Node::detach`]; `Refused` if the database does not
/// take what is decided.
pub fn detach(path: &Path, options: DbOptions) -> Result<Detached, NodeError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| system("the system gives no threads", &error))?;
    runtime.block_on(detach_on::<TokioRuntime>(Arc::new(OsDisk::new()), path, options))
}

/// The same on any disk.
///
/// # Errors
/// As [`detach`].
pub async fn detach_on<R: Runtime>(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: DbOptions,
) -> Result<Detached, NodeError> {
    let start = Start {
        first: None,
        promotes: false,
        transport: Arc::new(Nowhere),
        heartbeat_ms: None,
        lagging_bytes: None,
    };
    let node = Node::<R>::start(disk, path, options, start).await?;
    let own = node.ident().node;
    for _ in 0..APPLY_WITHIN.as_millis() / LOOK.as_millis() {
        // As consensus goes by them: those of the last entry that names some, decided or not.
        let members = node.members();
        let is_alone = members.voters.iter().eq([&own]);
        // Alone it decides on all that it has, once it leads.
        let leads = !is_alone || node.engine().takes_transactions()?;
        let applied = node.replica().end()?.id.seq;
        let is_known = !members.voters.is_empty();
        if is_known && leads && applied >= node.log().decided() {
            let detached = Detached {
                node: own,
                published: applied,
                undecided: node.log().end().id.seq.0 - applied.0,
                others: members.peers.keys().filter(|peer| **peer != own).count(),
            };
            node.detach().await?;
            return Ok(detached);
        }
        Types::<R>::sleep(LOOK).await;
    }
    let why = format!("the database has not taken what is decided within {APPLY_WITHIN:?}");
    node.stop().await?;
    Err(NodeError::Refused(why))
}
