//! A node of a cluster: a database, Raft's log, and consensus over both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use duramen::wire::open_node;
use duramen::{Db, DbOptions};
use duramen_disk::Disk;
use duramen_engine::{CommitSeq, Engine, Error, OpenReplica, RaftLog, Replica};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::config::{HEARTBEAT_MS, config};
use crate::log_store::LogStore;
use crate::net::{Links, Transport};
use crate::proposer::Groups;
use crate::runtime::Runtime;
use crate::state::State;
use crate::synced::Synced;
use crate::types::{Membership, Peer, Types};
use crate::{change, members, net, read, roles};

/// Why a node did not start, or stopped.
#[derive(Debug, Clone)]
pub enum NodeError {
    /// The database, or Raft's log.
    Database(Error),
    /// Consensus.
    Consensus(String),
    /// What was asked for is not possible, or not now.
    Refused(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Database(error) => error.fmt(f),
            NodeError::Consensus(why) => write!(f, "consensus has ended: {why}"),
            NodeError::Refused(why) => write!(f, "the cluster cannot do that now: {why}"),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<Error> for NodeError {
    fn from(error: Error) -> NodeError {
        NodeError::Database(error)
    }
}

/// How a node is started.
pub struct Start {
    /// Its id: never used twice in a cluster.
    pub node: u64,
    /// The members of a new cluster; not looked at by a node of one.
    pub members: Option<Members>,
    /// How requests reach the other nodes.
    pub transport: Arc<dyn Transport>,
    /// Milliseconds between two heartbeats; `None` for 150.
    pub heartbeat_ms: Option<u64>,
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start")
            .field("node", &self.node)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

/// The members of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// Those that vote.
    pub voters: BTreeSet<u64>,
    /// Where each is. Those that do not vote receive everything, too.
    pub peers: BTreeMap<u64, Peer>,
}

/// A running node.
pub struct Node<R: Runtime> {
    db: Db,
    engine: Engine,
    replica: Arc<Replica>,
    log: Arc<RaftLog>,
    raft: openraft::Raft<Types<R>, State>,
    transport: Arc<dyn Transport>,
}

impl<R: Runtime> fmt::Debug for Node<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl<R: Runtime> Node<R> {
    /// Opens a database as a node, and lets it take part.
    ///
    /// # Errors
    /// Those of [opening](duramen::wire::open_node); if consensus contradicts what is on disk.
    pub fn start(
        disk: Arc<dyn Disk>,
        path: impl AsRef<Path>,
        options: DbOptions,
        start: Start,
    ) -> impl Future<Output = Result<Node<R>, NodeError>> + Send {
        Node::begin(disk, path.as_ref().to_owned(), options, start)
    }

    async fn begin(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        options: DbOptions,
        start: Start,
    ) -> Result<Node<R>, NodeError> {
        let Start { node, members, transport, heartbeat_ms } = start;
        let members = members.map(founding).transpose()?;
        let members = members.map(|members| members::encode(&members));
        let (groups, proposals) = Groups::new();
        let open = move || open_node(options, disk, &path, members.as_deref(), groups);
        let (db, opened) = R::run_blocking(open).await.map_err(ended)??;
        let OpenReplica { engine, replica, log, found } = opened;
        let (replica, log) = (Arc::new(replica), Arc::new(log));
        let synced = Synced::new(Arc::clone(&log));
        let store = LogStore::new(Arc::clone(&log), found.vote, synced.clone());
        let state = State::new(&replica, synced);
        let config = config(heartbeat_ms.unwrap_or(HEARTBEAT_MS)).validate().map_err(ended)?;
        let links = Links { transport: Arc::clone(&transport) };
        let raft = openraft::Raft::new(node, Arc::new(config), links, store, state).await;
        let raft = raft.map_err(ended)?;
        let (nudge, nudges) = roles::nudges();
        drop(Types::<R>::spawn(proposals.run(raft.clone(), Arc::downgrade(&replica), nudge)));
        drop(Types::<R>::spawn(roles::keep(raft.clone(), Arc::downgrade(&replica), nudges)));
        Ok(Node { db, engine, replica, log, raft, transport })
    }

    /// The database. It takes transactions while this node leads; its reads are of what is published here.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The engine of the database.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What consensus does to the database.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Raft's log.
    #[must_use]
    pub fn log(&self) -> &RaftLog {
        &self.log
    }

    /// Waits until this node has published everything that was acknowledged anywhere before this call: what
    /// is read here then is linearizable. Returns the last commit that has to be seen.
    ///
    /// # Errors
    /// Why that is not known: no leader, or no majority answers it within this time.
    pub async fn catch_up(&self, within: Duration) -> Result<CommitSeq, NodeError> {
        let caught_up = R::timeout(within, read::catch_up(&self.raft, &*self.transport, within)).await;
        let late = |_| NodeError::Refused(format!("no majority has confirmed a leader within {within:?}"));
        caught_up.map_err(late)?.map_err(NodeError::Refused)
    }

    /// Answers a request that a peer's transport has carried here.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        net::answer(&self.raft, request).await
    }

    /// The node that leads, and its term, as far as this one knows; none once this one takes no more part.
    #[must_use]
    pub fn leader(&self) -> (Option<u64>, u64) {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        (now.current_leader.filter(|_| now.running_state.is_ok()), now.current_term)
    }

    /// Asks this node, which leads, to let another one lead. It takes no writes until a node is elected. A
    /// target that lacks an entry ignores the request.
    ///
    /// # Errors
    /// If consensus has ended, with its reason.
    pub async fn transfer(&self, to: u64) -> Result<(), NodeError> {
        self.raft.trigger().transfer_leader(to).await.map_err(ended)
    }

    /// Why this node takes no more part, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<NodeError> {
        let metrics = self.raft.metrics();
        let state = metrics.borrow_watched().running_state.clone();
        self.replica.failure().map(NodeError::Database).or_else(|| state.err().map(ended))
    }

    /// The members as this node, which leads or follows, last heard of them.
    #[must_use]
    pub fn members(&self) -> Members {
        change::members(&self.raft)
    }

    /// Lets these members vote, and the others not. Only the leader can, one change at a time; while it is
    /// under way, majorities of the voters before and after decide together.
    ///
    /// # Errors
    /// `Refused` if this node does not lead, if one of them is no member, if another change is under way.
    pub async fn change_voters(&self, voters: BTreeSet<u64>) -> Result<(), NodeError> {
        change::voters(&self.raft, voters).await.map_err(NodeError::Refused)
    }

    /// Takes no more part, and closes the database.
    ///
    /// # Errors
    /// Those of [closing](duramen_engine::Engine::close).
    pub async fn stop(self) -> Result<(), NodeError> {
        self.leave().await;
        let (engine, log) = (self.engine.clone(), Arc::clone(&self.log));
        let close = move || log.close().and(engine.close());
        Ok(R::run_blocking(close).await.map_err(ended)??)
    }

    /// Takes no more part, and makes the database a plain one again, with every commit that is applied.
    ///
    /// # Errors
    /// Those of [`Replica::detach`].
    pub async fn detach(self) -> Result<(), NodeError> {
        self.leave().await;
        let (replica, log) = (Arc::clone(&self.replica), Arc::clone(&self.log));
        Ok(R::run_blocking(move || replica.detach(&log)).await.map_err(ended)??)
    }

    /// Lets this node campaign now. For simulations: elections of several candidates are rare otherwise.
    #[cfg(feature = "simulation")]
    pub async fn campaign(&self) {
        // A node that has ended does not.
        drop(self.raft.trigger().elect(false).await);
    }

    /// Ends as a process that is killed. For simulations, on a disk that takes no writes any more.
    #[cfg(feature = "simulation")]
    pub async fn abandon(&self) {
        self.log.abandon();
        // It has ended with an error, perhaps.
        drop(self.raft.shutdown().await);
        self.engine.clone().abandon();
    }

    async fn leave(&self) {
        // If consensus has ended before, [`Node::failure`] has told why.
        drop(self.raft.shutdown().await);
        // What consensus was just doing with the database.
        while Arc::strong_count(&self.replica) > 1 || Arc::strong_count(&self.log) > 1 {
            R::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn founding(Members { voters, peers }: Members) -> Result<Membership, NodeError> {
    Membership::new(vec![voters], peers).map_err(|error| NodeError::Refused(error.to_string()))
}

fn ended(error: impl fmt::Display) -> NodeError {
    NodeError::Consensus(error.to_string())
}
