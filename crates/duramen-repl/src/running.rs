//! A node in a process of its own: its threads, its peer port, and calls that wait.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use duramen::{Code, DbOptions, Error};
use duramen_disk::{Disk, OsDisk, PathKind};
use duramen_engine::NodeTarget;
use futures_util::future::{Either, select};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::TokioRuntime;
use crate::copying::{CopyOf, copy_anew, has_room};
use crate::join::{Joining, Watch, join};
use crate::net::Transport;
use crate::node::{First, Node, NodeError, Start};
use crate::tcp::{Answers, TcpTransport, listen};
use crate::tls::PeerTls;
use crate::types::Peer;

/// Threads for consensus and connections to peers. What waits for the disk has threads beside them.
const THREADS: usize = 1;
/// So many looks: a request may wait for a disk that is gone.
const STOP_LOOKS: u32 = 2_500;
/// Between two looks at whether what a node was just doing has ended.
const LOOK: Duration = Duration::from_millis(2);
/// So many looks, each a [`WATCH`] after the other, at whether a database is still open: 10 s.
const UNLOCKED_LOOKS: u32 = 200;
/// Between two looks at whether a node that joins is to end.
const WATCH: Duration = Duration::from_millis(50);

/// How a database is run as a node.
pub struct Run {
    /// The directory of the database.
    pub path: PathBuf,
    /// Where the peer port listens.
    pub listen: SocketAddr,
    /// Where the others reach this node.
    pub own: Peer,
    /// TLS between nodes. Without it anyone on the network between can read and change everything.
    pub tls: Option<PeerTls>,
    /// What a directory that is no node yet becomes.
    pub begin: Begin,
    /// Milliseconds between two heartbeats; `None` for 150.
    pub heartbeat_ms: Option<u64>,
    /// Bytes of Raft's log that are kept for members that lack entries; `None` for 1 GiB.
    pub lagging_bytes: Option<u64>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("path", &self.path).field("own", &self.own).finish_non_exhaustive()
    }
}

/// What a directory that is no node yet becomes. A node goes on, whatever this says.
pub enum Begin {
    /// It must be a node.
    GoesOn,
    /// The first node of a new cluster.
    First,
    /// A member of the cluster with peer ports at these addresses.
    Joins {
        /// Some of them; one that answers is enough.
        at: Vec<String>,
        /// How long a leader is looked for.
        within: Duration,
        /// Is told why it takes long, and may end it.
        watch: Arc<dyn Watch>,
    },
    /// A node that takes the state of another one first, in place of its own.
    Copies {
        /// What [`Node::needs_copy`] has said.
        copy: CopyOf,
        /// May end it. Is told why there is no copy: the node goes on as it was then.
        watch: Arc<dyn Watch>,
    },
}

impl fmt::Debug for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Begin::GoesOn => f.write_str("GoesOn"),
            Begin::First => f.write_str("First"),
            Begin::Joins { at, .. } => f.debug_tuple("Joins").field(at).finish(),
            Begin::Copies { copy, .. } => f.debug_tuple("Copies").field(copy).finish(),
        }
    }
}

/// A node that runs.
pub struct Running {
    runtime: Option<Runtime>,
    node: Option<Arc<Node<TokioRuntime>>>,
    listening: JoinHandle<()>,
    address: SocketAddr,
    path: PathBuf,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Running {
    /// Starts a node. It takes part once this returns.
    ///
    /// # Errors
    /// Those of [opening](duramen::wire::open_node). `System` (E1001) if the peer port cannot listen;
    /// `Refused` if no leader admits a new member, or if the others know this node at another address.
    pub fn start(options: DbOptions, run: Run) -> Result<Running, NodeError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("duramen-node")
            .enable_all()
            .build()
            .map_err(|error| system("the system gives no threads", &error))?;
        let path = run.path.clone();
        match runtime.block_on(begin(options, run)) {
            Ok((node, listening, address)) => {
                Ok(Running { runtime: Some(runtime), node: Some(node), listening, address, path })
            }
            Err(error) => {
                // To drop the runtime would wait for a thread of it that may still store a piece of a copy.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// The node.
    ///
    /// # Panics
    /// Never: it is there until [`Running::stop`].
    #[must_use]
    pub fn node(&self) -> &Arc<Node<TokioRuntime>> {
        self.node.as_ref().expect("it is there until it is stopped")
    }

    /// What the node needs a copy of, if it lacks entries that the others have let go of. Stop it, and start
    /// it to copy that.
    ///
    /// # Errors
    /// `DiskFull` (E0301) if there is no room for the copy beside the state of the node: it can go on.
    /// `System` (E1001) if the disk does not say.
    pub fn needs_copy(&self) -> duramen::Result<Option<CopyOf>> {
        let Some(copy) = self.node().needs_copy() else { return Ok(None) };
        has_room(&OsDisk::default(), &self.path, copy.bytes)?;
        Ok(Some(copy))
    }

    /// Where the peer port listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more part, and closes the database.
    ///
    /// # Errors
    /// Those of [closing](duramen::Db::close).
    pub fn stop(mut self) -> Result<(), NodeError> {
        let (Some(runtime), Some(node)) = (self.runtime.take(), self.node.take()) else { return Ok(()) };
        self.listening.abort();
        let stopped = runtime.block_on(async {
            // The port is free then. It has ended as it was told to.
            drop((&mut self.listening).await);
            // First: requests of peers that wait for consensus end then.
            node.leave_consensus().await;
            let (db, mut node) = (node.db().clone(), node);
            for _ in 0..STOP_LOOKS {
                match Arc::try_unwrap(node) {
                    Ok(node) => return node.stop().await,
                    Err(in_use) => node = in_use,
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(tokio::task::spawn_blocking(move || db.close()).await.map_err(NodeError::ended)??)
        });
        runtime.shutdown_background();
        stopped
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // May be inside of another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

type Begun = (Arc<Node<TokioRuntime>>, JoinHandle<()>, SocketAddr);

async fn begin(options: DbOptions, run: Run) -> Result<Begun, NodeError> {
    let Run { path, listen: at, own, tls, begin, heartbeat_ms, lagging_bytes } = run;
    // Before anything is written: a port that is taken is the usual mistake.
    let cannot = |error: std::io::Error| system(&format!("the peer port cannot listen on {at}"), &error);
    let listener = TcpListener::bind(at).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(tls.clone()));
    let mut first = None;
    match begin {
        Begin::GoesOn => {}
        Begin::First => first = Some(First::alone(&*disk, own.clone())),
        Begin::Joins { at, within, watch } if must_join(&*disk, &path)? => {
            let (transport, stops) = (Arc::clone(&transport), Arc::clone(&watch));
            let joining = Joining { own: own.clone(), at, transport, within, watch };
            let joins = join::<TokioRuntime>(Arc::clone(&disk), &path, options.clone(), joining);
            unless_stopped(joins, &*stops, "joined").await??;
        }
        Begin::Joins { .. } => {}
        Begin::Copies { copy, watch } => {
            let (on, over) = (Arc::clone(&disk), Arc::clone(&transport));
            let copies = async {
                until_unlocked(&*on, &path).await;
                let own = own.address.clone();
                copy_anew::<TokioRuntime>(Arc::clone(&on), &path, options.clone(), copy, own, over).await
            };
            if let Err(why) = unless_stopped(copies, &*watch, "copied the state").await? {
                watch.waits(&why.to_string());
            }
        }
    }
    let start = Start { first, promotes: true, transport, heartbeat_ms, lagging_bytes };
    let node = Node::start(disk, path, options, start).await?;
    let known = node.members_applied()?.peers.remove(&node.ident().node);
    if let Some(known) = known.filter(|known| known.address != own.address) {
        node.stop().await?;
        return Err(NodeError::Refused(format!(
            "the others know this node at {}, and it was started as {}: give it that address",
            known.address, own.address
        )));
    }
    let node = Arc::new(node);
    let answering = Arc::downgrade(&node);
    let answers: Answers = Arc::new(move |request| {
        let node = answering.upgrade();
        Box::pin(async move {
            match node {
                Some(node) => node.answer(&request).await,
                None => Vec::new(),
            }
        })
    });
    Ok((node, tokio::spawn(listen(listener, tls, answers)), address))
}

/// Waits until the process that had the database open, which may be this one, has let go of it, for a while.
async fn until_unlocked(disk: &dyn Disk, path: &Path) {
    for _ in 0..UNLOCKED_LOOKS {
        if !NodeTarget::is_in_use(disk, path) {
            return;
        }
        tokio::time::sleep(WATCH).await;
    }
}

/// Fails if the node is to end before this is `done`.
async fn unless_stopped<T>(
    doing: impl Future<Output = T>,
    watch: &dyn Watch,
    done: &str,
) -> Result<T, NodeError> {
    let stopped = async {
        while !watch.is_stopped() {
            tokio::time::sleep(WATCH).await;
        }
    };
    match select(pin!(doing), pin!(stopped)).await {
        Either::Left((out, _)) => Ok(out),
        Either::Right(((), _)) => {
            Err(NodeError::Refused(format!("it was stopped before it had {done}: start it again")))
        }
    }
}

/// Whether there is nothing yet, or a copy that was not finished.
fn must_join(disk: &dyn Disk, path: &Path) -> Result<bool, NodeError> {
    let kind = disk.kind(path).map_err(|error| Error::io("look at", path, &error))?;
    if kind != Some(PathKind::Directory) {
        return Ok(true);
    }
    let is_empty = disk.list(path).map_err(|error| Error::io("list", path, &error))?.is_empty();
    Ok(is_empty || NodeTarget::is_unfinished(disk, path)?)
}

pub(crate) fn system(what: &str, error: &std::io::Error) -> NodeError {
    NodeError::Database(Error::new(Code::System, format!("{what}: {error}")))
}
