//! A node of a cluster: a database, Raft's log, and consensus over both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duramen::wire::open_node;
use duramen::{Db, DbOptions};
use duramen_disk::Disk;
use duramen_engine::{CommitSeq, Engine, Error, Founding, Ident, OpenReplica, RaftLog, Replica, Role};
use futures_util::FutureExt as _;
use openraft::type_config::TypeConfigExt;
use openraft::type_config::async_runtime::WatchReceiver;

use crate::config::{HEARTBEAT_MS, config};
use crate::copying::CopyOf;
use crate::log_store::LogStore;
use crate::net::{self, Answering, Links, Transport, is_no_member, removed};
use crate::openings::Openings;
use crate::proposer::Groups;
use crate::retain::{Keeper, LAGGING_BYTES, Retained};
use crate::room::Rooms;
use crate::runtime::Runtime;
use crate::seed::Seeds;
use crate::state::State;
use crate::status::{self, NodeStatus};
use crate::synced::Synced;
use crate::types::{Membership, Peer, Types};
use crate::{change, members, read, roles, seed};

/// A member that was not heard for so long is taken for gone.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(2);
/// Looks, a millisecond apart, at whether consensus has let go of the database.
const LEAVE_LOOKS: u32 = 5_000;

/// Why a node did not start, or stopped.
#[derive(Debug, Clone)]
pub enum NodeError {
    /// The database, or Raft's log.
    Database(Error),
    /// Consensus.
    Consensus(String),
    /// What was asked for is not possible, or not now.
    Refused(String),
    /// Only the node that leads can do that.
    NotLeader,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Database(error) => error.fmt(f),
            NodeError::Consensus(why) => write!(f, "consensus has ended: {why}"),
            NodeError::Refused(why) => write!(f, "the cluster cannot do that now: {why}"),
            NodeError::NotLeader => f.write_str("this node of the cluster does not lead"),
        }
    }
}

impl NodeError {
    pub(crate) fn ended(error: impl fmt::Display) -> NodeError {
        NodeError::Consensus(error.to_string())
    }
}

impl std::error::Error for NodeError {}

impl From<Error> for NodeError {
    fn from(error: Error) -> NodeError {
        NodeError::Database(error)
    }
}

/// What a database that is no node yet becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct First {
    /// Which node, of which cluster.
    pub ident: Ident,
    /// The members of the cluster.
    pub members: Members,
    /// The time at which its log begins, in nanoseconds since 1970.
    pub time_ns: u64,
}

impl First {
    /// The only member of a new cluster.
    #[must_use]
    pub fn alone(disk: &dyn Disk, own: Peer) -> First {
        let cluster = u128::from(disk.random()) << 64 | u128::from(disk.random());
        let members = Members { voters: BTreeSet::from([1]), peers: BTreeMap::from([(1, own)]) };
        First { ident: Ident { cluster, node: 1 }, members, time_ns: disk.wall_ns() }
    }
}

/// How a node is started.
pub struct Start {
    /// What a database that is no node yet becomes; not looked at by a node.
    pub first: Option<First>,
    /// Whether members vote once they have caught up, if this node leads.
    pub promotes: bool,
    /// How requests reach the other nodes.
    pub transport: Arc<dyn Transport>,
    /// Milliseconds between two heartbeats; `None` for 150.
    pub heartbeat_ms: Option<u64>,
    /// Bytes of Raft's log that are kept for members that lack entries; `None` for 1 GiB. A member that lacks
    /// more needs a copy of the state.
    pub lagging_bytes: Option<u64>,
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("first", &self.first).finish_non_exhaustive()
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
    links: Links,
    answering: Answering<R>,
    rounds: Arc<read::Rounds>,
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
        let Start { first, promotes, transport, heartbeat_ms, lagging_bytes } = start;
        let first = first.map(founding).transpose()?;
        let (of_answers, of_path) = (Arc::clone(&disk), path.clone());
        let rooms = Arc::new(Rooms::new(Arc::clone(&disk), path.clone()));
        let (groups, proposals) = Groups::new(Arc::clone(&rooms));
        let open = move || {
            let founding = first.as_ref().map(|(ident, members, time_ns)| Founding {
                ident: *ident,
                members,
                time_ns: *time_ns,
            });
            open_node(options, disk, &path, founding, groups)
        };
        // Boxed: Rust 1.89 does not see that the bare future is `Send`.
        let opened = R::run_blocking(open).boxed().await.map_err(ended)?;
        let (db, opened) = opened.map_err(of_opening)?;
        let OpenReplica { engine, replica, log, found } = opened;
        let (replica, log) = (Arc::new(replica), Arc::new(log));
        rooms.set_log(&log);
        let synced = Synced::new(Arc::clone(&log));
        let store = LogStore::new(Arc::clone(&log), found.vote, synced.clone());
        let state = State::new(&replica, synced, Arc::clone(&rooms));
        let config = config(heartbeat_ms.unwrap_or(HEARTBEAT_MS)).validate().map_err(ended)?;
        let ident = found.ident;
        let retained = Arc::new(Retained::default());
        let seeds = Seeds::new(engine.clone(), Arc::downgrade(&log), Arc::clone(&of_answers), db.opening());
        let seeds = Arc::new(seeds);
        let links = Links {
            transport,
            ident,
            log: Arc::downgrade(&log),
            retained: Arc::clone(&retained),
            rooms: Arc::clone(&rooms),
            seeds: Arc::downgrade(&seeds),
            removed_by: Arc::default(),
            openings: Arc::new(Openings::new(ident, Arc::downgrade(&log))),
        };
        let raft = openraft::Raft::new(ident.node, Arc::new(config), links.clone(), store, state).await;
        let raft = raft.map_err(ended)?;
        let answering = Answering::new(&links, raft.clone(), seeds, Arc::clone(&of_answers));
        let (nudge, nudges) = roles::nudges();
        drop(Types::<R>::spawn(proposals.run(raft.clone(), Arc::downgrade(&replica), nudge)));
        if promotes {
            drop(Types::<R>::spawn(seed::let_go::<R>(Arc::downgrade(&answering.seeds))));
        }
        let keeper = Keeper {
            replica: Arc::downgrade(&replica),
            log: Arc::downgrade(&log),
            retained,
            seeds: Arc::downgrade(&answering.seeds),
            disk: of_answers,
            path: of_path,
            lagging_bytes: lagging_bytes.unwrap_or(LAGGING_BYTES),
        };
        drop(Types::<R>::spawn(keeper.keep(raft.clone())));
        drop(Types::<R>::spawn(rooms.give_way::<R>(raft.clone(), Arc::downgrade(&replica))));
        drop(Types::<R>::spawn(roles::keep(raft.clone(), Arc::downgrade(&replica), nudges, promotes)));
        Ok(Node { db, engine, replica, log, raft, links, answering, rounds: Arc::default() })
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
    /// Why that is not known: no node leads, or no majority answers it, within this time.
    pub async fn catch_up(&self, within: Duration) -> Result<CommitSeq, NodeError> {
        self.caught_up(None, within).await
    }

    /// As [`Node::catch_up`], with everything that was acknowledged anywhere this long before this call. A
    /// node that has asked the leader so recently needs no answer of it now.
    ///
    /// # Errors
    /// As [`Node::catch_up`].
    pub async fn catch_up_to_age(&self, age_max: Duration, within: Duration) -> Result<CommitSeq, NodeError> {
        self.caught_up(Some(age_max), within).await
    }

    /// Waits until this node has published a commit.
    ///
    /// # Errors
    /// If consensus has ended.
    pub async fn published(&self, seq: CommitSeq) -> Result<(), NodeError> {
        read::published(&self.raft, seq.0).await.map_err(NodeError::Consensus)
    }

    async fn caught_up(&self, age_max: Option<Duration>, within: Duration) -> Result<CommitSeq, NodeError> {
        let mut why = "none has answered".to_owned();
        let config = self.raft.config();
        let pause = Duration::from_millis(config.heartbeat_interval / 4);
        // A leader that does not answer in this time may have a successor.
        let once = within.min(Duration::from_millis(config.election_timeout_max));
        let catching = async {
            loop {
                match self.rounds.catch_up(&self.raft, &self.links, age_max, once).await {
                    Ok(seen) => return seen,
                    Err(failed) => why = failed,
                }
                R::sleep(pause).await;
            }
        };
        let caught_up = R::timeout(within, catching).await;
        let late = |_| format!("no majority has confirmed a leader within {within:?}: {why}");
        caught_up.map_err(|late_by| NodeError::Refused(late(late_by)))
    }

    /// Whether this node takes transactions: it leads, a majority has just confirmed that, and everything
    /// that was decided before its term is published here. It may have a successor that it does not know
    /// of. Waits for nothing.
    #[must_use]
    pub fn leads(&self) -> bool {
        let takes = matches!(self.replica.role(), Ok(Role::Leads { .. }));
        takes && net::is_confirmed(&self.raft.metrics().borrow_watched())
    }

    /// Answers a request that a peer's transport has carried here.
    pub async fn answer(&self, request: &[u8]) -> Vec<u8> {
        self.answering.answer(request).await
    }

    /// Which node this is, and of which cluster.
    #[must_use]
    pub fn ident(&self) -> Ident {
        self.answering.ident
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

    /// As [`Node::transfer`], until another node leads.
    ///
    /// # Errors
    /// `NotLeader`; `Refused` if that is no other member that votes, if it does not answer, or if another
    /// node leads within this time, or none.
    pub async fn hand_over(&self, to: u64, within: Duration) -> Result<(), NodeError> {
        let own = self.ident().node;
        if self.leader().0 != Some(own) {
            return Err(NodeError::NotLeader);
        }
        let members = self.members();
        if to == own {
            return Err(NodeError::Refused(format!("node {to} leads already")));
        }
        if !members.voters.contains(&to) {
            let what = if members.peers.contains_key(&to) { "does not vote" } else { "is no member" };
            return Err(NodeError::Refused(format!("node {to} {what}")));
        }
        if !self.status().is_there(to) {
            return Err(NodeError::Refused(format!("node {to} does not answer")));
        }
        let handing = async {
            loop {
                // One that lacks an entry, which it soon has, ignores this.
                self.transfer(to).await?;
                for _ in 0..6 {
                    match self.leader().0 {
                        Some(leader) if leader == to => return Ok(()),
                        Some(leader) if leader != own => {
                            return Err(NodeError::Refused(format!(
                                "node {leader} has begun to lead instead"
                            )));
                        }
                        _ => R::sleep(Duration::from_millis(10)).await,
                    }
                }
            }
        };
        let late = |_| NodeError::Refused(format!("no other node has begun to lead within {within:?}"));
        R::timeout(within, handing).await.map_err(late)?
    }

    /// Removes a member for good: it receives nothing any more, and its id is never used again.
    ///
    /// # Errors
    /// `NotLeader`; `Refused` if it is this node or no member, if no majority of the voters that would be
    /// left answers, or if another change is under way.
    pub async fn remove(&self, node: u64) -> Result<(), NodeError> {
        let (members, status) = (self.members(), self.status());
        if self.leader().0 != Some(self.ident().node) {
            return Err(NodeError::NotLeader);
        }
        if node == self.ident().node {
            return Err(NodeError::Refused("a leader removes others: let another one lead first".to_owned()));
        }
        if !members.peers.contains_key(&node) {
            return Err(NodeError::Refused(format!("node {node} is no member")));
        }
        let votes = members.voters.contains(&node);
        let left: Vec<u64> = members.voters.iter().copied().filter(|voter| *voter != node).collect();
        let there = left.iter().filter(|voter| status.is_there(**voter)).count();
        if votes && there <= left.len() / 2 {
            return Err(NodeError::Refused(format!(
                "of the voters {left:?} that would be left {there} answer, and that is no majority: the cluster would never write again"
            )));
        }
        change::remove(&self.raft, node, votes).await.map_err(NodeError::Refused)
    }

    /// What this node knows of its cluster.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched().clone();
        let heard_ns = self.answering.heard_ns.load(Ordering::Relaxed);
        let silence = self.answering.disk.monotonic_ns().saturating_sub(heard_ns);
        let has_heard = heard_ns > 0 && Duration::from_nanos(silence) < GONE_AFTER;
        status::status(&now, self.ident(), has_heard, &self.answering.rooms)
    }

    /// Why this node takes nothing from the node that leads, if it does not.
    #[must_use]
    pub fn refuses(&self) -> Option<Error> {
        self.answering.refuses.get().cloned()
    }

    /// If this node lacks entries that the others have let go of: what [`copy_anew`](crate::copy_anew) needs
    /// to know, once it is stopped.
    #[must_use]
    pub fn needs_copy(&self) -> Option<CopyOf> {
        self.answering.needs_copy_of()
    }

    /// Takes no more part. The database stays open, and takes no writes.
    pub async fn leave_consensus(&self) {
        // If consensus has ended before, [`Node::failure`] has told why.
        drop(self.raft.shutdown().await);
    }

    /// Why this node takes no more part, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<NodeError> {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        let named = now.membership_config.log_id().map_or(0, |named| named.index);
        let told = self.links.removed_by.load(Ordering::Relaxed);
        if told > named || is_no_member(&now, self.ident().node) {
            return Some(removed(self.ident()).into());
        }
        if let Some(why) = self.links.openings.retired() {
            return self.links.openings.is_retirement_kept().then(|| why.clone().into());
        }
        let why = self.replica.failure().map(NodeError::Database);
        why.or_else(|| now.running_state.as_ref().err().map(ended))
    }

    /// The members as the database of this node names them.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `Refused` if the members cannot be read.
    pub fn members_applied(&self) -> Result<Members, NodeError> {
        let (_, bytes) = self.replica.members()?;
        let members = members::decode(&bytes).map_err(NodeError::Refused)?;
        Ok(Members {
            voters: members.voter_ids().collect(),
            peers: members.nodes().map(|(node, peer)| (*node, peer.clone())).collect(),
        })
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
        self.leave_consensus().await;
        // What consensus was just doing with the database. On a full disk it may wait for room for ever: it
        // ends with an error once the database is closed.
        for _ in 0..LEAVE_LOOKS {
            if Arc::strong_count(&self.replica) == 1 && Arc::strong_count(&self.log) == 1 {
                return;
            }
            R::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn founding(First { ident, members, time_ns }: First) -> Result<(Ident, Vec<u8>, u64), NodeError> {
    let Members { voters, peers } = members;
    let membership = Membership::new(vec![voters], peers);
    let membership = membership.map_err(|error| NodeError::Refused(error.to_string()))?;
    Ok((ident, members::encode(&membership), time_ns))
}

fn ended(error: impl fmt::Display) -> NodeError {
    NodeError::ended(error)
}

/// What is damaged or gone here, the other members have.
fn of_opening(error: Error) -> Error {
    if !error.is_corruption() {
        return error;
    }
    let hint = format!(
        "if other members have a majority, remove this node (`duramen cluster remove`), and let an empty directory join in its place; otherwise {}",
        error.hint()
    );
    error.with_hint(hint)
}
