//! Serving a database as a node of a cluster.

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen::error::{Code, Error};
use duramen::{CommitSeq, Db, DbOptions};
use duramen_proto::v1;
use duramen_repl::{
    Begin, CopyOf, Node, NodeError, NodeStatus, Peer, PeerTls, Run, Running, TokioRuntime, Watch,
};
use duramen_server::{Cluster, Doing, too_old};

use super::is_wide;
use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::signals::Signals;

/// The usual port for other nodes.
const PEER_PORT: u16 = 7421;
/// How long a new node looks for a leader.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
/// A node that has made a copy, or could not, makes the next one after so long, and after twice the time
/// before that, up to the longest: it serves and votes in between.
pub(super) const COPY_PAUSE_MIN: Duration = Duration::from_secs(30);
pub(super) const COPY_PAUSE_MAX: Duration = Duration::from_secs(3600);
/// How long a call waits for a leader that a majority confirms.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
/// How long another node may take to begin to lead.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(10);

/// Starts the node that the arguments describe. It makes a copy first, if it needs one.
pub(super) fn start(
    args: &ServeArgs,
    options: DbOptions,
    copy: Option<CopyOf>,
    signals: &Signals,
    out: Output,
) -> Result<Running> {
    let node = &args.node;
    let listen = node.peer_listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, PEER_PORT)));
    let tls = match (&node.peer_cert, &node.peer_key, &node.peer_ca) {
        (Some(certificate), Some(key), Some(authority)) => Some(PeerTls::read(certificate, key, authority)?),
        _ if is_wide(&listen) => {
            let what = format!("other machines can reach {listen}, and without TLS anyone could be a node");
            let hint =
                "give certificates of an authority of your own with --peer-cert, --peer-key and --peer-ca";
            return Err(Error::new(Code::Forbidden, what).with_hint(hint).into());
        }
        _ => None,
    };
    let address = node.peer_address.clone().unwrap_or_else(|| listen.to_string());
    if address.ends_with(":0") || address.starts_with("0.0.0.0:") || address.starts_with("[::]:") {
        return Err(Failure::usage(
            format!("no other node can reach {address}"),
            "say where they reach this one: --peer-address HOST:PORT",
        ));
    }
    let is_near = |at: &str| ["127.", "localhost:", "[::1]:"].iter().any(|near| at.starts_with(near));
    if is_near(&address) && node.join.iter().any(|at| !is_near(at)) {
        return Err(Failure::usage(
            format!("the nodes of other machines cannot reach {address}"),
            "say where they reach this one: --peer-listen ADDRESS:PORT, or --peer-address HOST:PORT",
        ));
    }
    let serves = node.serve_address.clone().or_else(|| args.listen.first().map(ToString::to_string));
    let signals = signals.clone();
    let begin = match (copy, &node.cluster, &node.join[..]) {
        (Some(copy), ..) => Begin::Copies { copy, watch: Arc::new(Copies { signals, out }) },
        (None, Some(_), _) => Begin::First,
        (None, None, []) => Begin::GoesOn,
        (None, None, at) => {
            let watch = Arc::new(Joins { signals, out, told: Mutex::default() });
            Begin::Joins { at: at.to_vec(), within: JOIN_WITHIN, watch }
        }
    };
    let run = Run {
        path: args.database.db.clone(),
        listen,
        own: Peer { address, serves: serves.unwrap_or_default() },
        tls,
        begin,
        heartbeat_ms: node.heartbeat,
        lagging_bytes: node.keep_log.map(|mib| mib << 20),
    };
    Running::start(options, run).map_err(|error| failure(error).into())
}

/// Tells why a node that joins still waits, and ends it with a signal.
struct Joins {
    signals: Signals,
    out: Output,
    told: Mutex<HashSet<String>>,
}

impl Watch for Joins {
    fn waits(&self, why: &str) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(why.to_owned()) {
            let hint = format!("it tries again, for {} s at most", JOIN_WITHIN.as_secs());
            self.out.warning(&format!("no leader has admitted this node yet: {why}"), &hint);
        }
    }

    fn is_stopped(&self) -> bool {
        self.signals.received().is_some()
    }
}

/// Tells why a node has no copy of the state that it lacks, and ends it with a signal.
struct Copies {
    signals: Signals,
    out: Output,
}

impl Watch for Copies {
    fn waits(&self, why: &str) {
        has_no_copy(why, self.out);
    }

    fn is_stopped(&self) -> bool {
        self.signals.received().is_some()
    }
}

/// Tells why a node has not copied the state that it lacks.
pub(super) fn has_no_copy(why: &str, out: Output) {
    let what = format!("this node has not copied the state that it lacks, and goes on with its own: {why}");
    out.warning(&what, "it tries again later; there must be room for both");
}

/// The error of a call.
pub(crate) fn failure(error: NodeError) -> Error {
    match error {
        NodeError::Database(error) => error,
        NodeError::Consensus(_) => Error::new(Code::EnginePoisoned, error.to_string())
            .with_hint("look at the disk of this node, and start it again"),
        NodeError::NotLeader => Error::new(Code::NotLeader, error.to_string())
            .with_hint("`duramen cluster status` shows which node leads: ask that one"),
        NodeError::Refused(why) => Error::invalid(format!("the cluster cannot do that now: {why}"))
            .with_hint("`duramen cluster status` shows the members, and who leads"),
    }
}

/// What the server needs of a node. It does not keep it from stopping.
pub(super) struct Served {
    node: Weak<Node<TokioRuntime>>,
    cluster: u128,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}

impl Served {
    pub(super) fn new(running: &Running) -> Served {
        Served { node: Arc::downgrade(running.node()), cluster: running.node().ident().cluster }
    }

    fn node(&self) -> duramen::Result<Arc<Node<TokioRuntime>>> {
        self.node.upgrade().ok_or_else(|| Error::new(Code::Draining, "the node is going down"))
    }
}

impl Cluster for Served {
    fn catch_up(&self) -> Doing<'_> {
        Box::pin(async {
            self.node()?.catch_up(CONFIRM_WITHIN).await.map(drop).map_err(|error| match error {
                NodeError::Refused(why) => Error::new(Code::NoQuorum, why)
                    .with_hint("nothing was changed: look at `duramen cluster status`, and try again"),
                error => failure(error),
            })
        })
    }

    fn catch_up_to_age(&self, age_max: Duration) -> Doing<'_> {
        Box::pin(async move {
            let caught_up = self.node()?.catch_up_to_age(age_max, CONFIRM_WITHIN).await;
            caught_up.map(drop).map_err(|error| match error {
                NodeError::Refused(why) => too_old(age_max, &why),
                error => failure(error),
            })
        })
    }

    fn published(&self, seq: CommitSeq) -> Doing<'_> {
        let stopped = |error: NodeError| Error::new(Code::Draining, error.to_string());
        Box::pin(async move { self.node()?.published(seq).await.map_err(stopped) })
    }

    fn leads(&self) -> bool {
        self.node().is_ok_and(|node| node.leads())
    }

    fn state(&self) -> v1::ClusterReply {
        let Ok(node) = self.node() else {
            let cluster = self.cluster.to_be_bytes().to_vec().into();
            return v1::ClusterReply { cluster, ..v1::ClusterReply::default() };
        };
        let failure = node.failure().map(failure).or_else(|| node.refuses());
        let failure = failure.map_or_else(String::new, |failure| failure.message().to_owned());
        told(&node.status(), failure)
    }

    fn transfer(&self, to: u64) -> Doing<'_> {
        Box::pin(async move { self.node()?.hand_over(to, HAND_OVER_WITHIN).await.map_err(failure) })
    }

    fn remove(&self, node: u64) -> Doing<'_> {
        Box::pin(async move { self.node()?.remove(node).await.map_err(failure) })
    }
}

fn told(status: &NodeStatus, failure: String) -> v1::ClusterReply {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let members = status.members.iter().map(|(node, member)| v1::Member {
        node: *node,
        address: member.peer.address.clone(),
        serves: member.peer.serves.clone(),
        votes: member.votes,
        behind: member.behind,
        needs_copy: member.needs_copy,
        is_full: member.is_full,
        answered_ms_ago: member.answered.map(ms),
    });
    v1::ClusterReply {
        cluster: status.ident.cluster.to_be_bytes().to_vec().into(),
        node: status.ident.node,
        leader: status.leader.unwrap_or_default(),
        term: status.term,
        published: status.published.0,
        members: members.collect(),
        failure,
        confirmed_ms_ago: status.confirmed.map(ms),
    }
}

/// A database that is served: alone, or as a node.
pub(super) enum Opened {
    Alone(Db),
    Node(Running),
}

impl Opened {
    pub(super) fn db(&self) -> &Db {
        match self {
            Opened::Alone(db) => db,
            Opened::Node(running) => running.node().db(),
        }
    }

    /// Its id and where its peer port listens, if it is a node.
    pub(super) fn node(&self) -> Option<(u64, SocketAddr)> {
        match self {
            Opened::Alone(_) => None,
            Opened::Node(running) => Some((running.node().ident().node, running.address())),
        }
    }

    /// Why it takes no part in its cluster any more, if it is a node.
    pub(super) fn failure(&self) -> Option<Error> {
        match self {
            Opened::Alone(_) => None,
            Opened::Node(running) => running.node().failure().map(failure),
        }
    }

    /// Whether it is a node that lacks entries which the others have let go of.
    pub(super) fn lacks_entries(&self) -> bool {
        matches!(self, Opened::Node(running) if running.node().needs_copy().is_some())
    }

    /// What it must copy, if it is such a node.
    ///
    /// # Errors
    /// As [`Running::needs_copy`].
    pub(super) fn needs_copy(&self) -> duramen::Result<Option<CopyOf>> {
        match self {
            Opened::Alone(_) => Ok(None),
            Opened::Node(running) => running.needs_copy(),
        }
    }

    pub(super) fn close(self) -> duramen::Result<()> {
        match self {
            Opened::Alone(db) => db.close(),
            Opened::Node(running) => running.stop().map_err(failure),
        }
    }
}
