//! Nodes in one process, on threads, each with a disk in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen::{Code, Db, DbOptions, Error};
use duramen_disk::MemDisk;
use duramen_repl::{Called, Lane, Members, Node, Peer, Start, TokioRuntime, Transport};
use openraft_rt::{AsyncRuntime, Instant as _};

pub(crate) type Runs = Node<TokioRuntime>;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

type Running = Mutex<BTreeMap<u64, Arc<Runs>>>;

/// Carries requests to the nodes that run.
struct Calls(Weak<Running>);

impl Transport for Calls {
    fn call(&self, node: u64, _: &Peer, _: Lane, request: Vec<u8>) -> Called {
        let running = self.0.upgrade();
        let called = running.and_then(|running| lock(&running).get(&node).cloned());
        Box::pin(async move {
            let called = called.ok_or_else(|| format!("node {node} does not run"))?;
            Ok(called.answer(&request).await)
        })
    }
}

/// Three nodes.
pub(crate) struct Cluster {
    disks: BTreeMap<u64, MemDisk>,
    running: Arc<Running>,
}

impl Cluster {
    /// Starts three nodes over copies of a database that this closure fills. It becomes a node before it is
    /// copied: only one node is the first.
    pub(crate) async fn start(fill: impl FnOnce(&Db)) -> Cluster {
        let first = MemDisk::with_system_clock(1);
        let db = DbOptions::default().open_on(Arc::new(first.clone()), "/db").unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        let cluster = Cluster { disks: BTreeMap::from([(1, first.clone())]), running: Arc::default() };
        cluster.start_node(1).await;
        cluster.stop_node(1).await;
        let copy = |node| {
            let disk = MemDisk::with_system_clock(node);
            for file in first.files() {
                disk.write_file(&file, &first.read_file(&file).unwrap()).unwrap();
            }
            (node, disk)
        };
        let cluster = Cluster { disks: (1..=3).map(copy).collect(), running: Arc::default() };
        for node in 1..=3 {
            cluster.start_node(node).await;
        }
        cluster
    }

    pub(crate) async fn start_node(&self, node: u64) {
        let peer = |node| (node, Peer { address: format!("node-{node}:1") });
        let members = Members { voters: BTreeSet::from([1, 2, 3]), peers: (1..=3).map(peer).collect() };
        let transport = Arc::new(Calls(Arc::downgrade(&self.running)));
        let start = Start { node, members: Some(members), transport, heartbeat_ms: None };
        let disk = Arc::new(self.disks[&node].clone());
        let started = Runs::start(disk, "/db", DbOptions::default(), start).await.unwrap();
        lock(&self.running).insert(node, Arc::new(started));
    }

    /// Stops a node as an orderly process does.
    pub(crate) async fn stop_node(&self, node: u64) {
        let mut stopped = lock(&self.running).remove(&node).unwrap();
        let stopped = loop {
            match Arc::try_unwrap(stopped) {
                Ok(stopped) => break stopped,
                Err(answers) => stopped = answers,
            }
            pass(LOOK).await;
        };
        stopped.stop().await.unwrap();
    }

    pub(crate) fn node(&self, node: u64) -> Arc<Runs> {
        Arc::clone(&lock(&self.running)[&node])
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Runs>> {
        lock(&self.running).values().cloned().collect()
    }

    /// The node that leads and takes transactions.
    pub(crate) async fn leader(&self) -> (u64, Arc<Runs>) {
        let leads = |(id, node): (&u64, &Arc<Runs>)| {
            let takes = node.engine().takes_transactions().unwrap();
            takes.then(|| (*id, Arc::clone(node)))
        };
        until("a node leads", || lock(&self.running).iter().find_map(leads)).await
    }

    /// Runs a call on the leader's database, again if the leader changes.
    pub(crate) async fn on_leader<T: Send + 'static>(
        &self,
        call: impl Fn(&Db) -> Result<T, Error> + Send + Sync + Clone + 'static,
    ) -> T {
        loop {
            let (_, node) = self.leader().await;
            let (db, call) = (node.db().clone(), call.clone());
            drop(node);
            match TokioRuntime::spawn_blocking(move || call(&db)).await.unwrap() {
                Ok(out) => return out,
                Err(error) if matches!(error.code(), Code::NotLeader | Code::NoQuorum) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Lets another node lead, and the one that led follow.
    pub(crate) async fn change_leader(&self) {
        let (before, node) = self.leader().await;
        // A target that has not received everything ignores the request.
        while node.engine().takes_transactions().unwrap() {
            node.transfer(before % 3 + 1).await.unwrap();
            pass(LOOK).await;
        }
    }

    /// Lets the node that leads stop and start again, so that another leads in between.
    pub(crate) async fn restart_leader(&self) {
        let (before, node) = self.leader().await;
        drop(node);
        self.stop_node(before).await;
        self.leader().await;
        self.start_node(before).await;
    }

    /// Waits until every node has published what the leader has.
    pub(crate) async fn settle(&self) {
        for node in self.nodes() {
            // A node that has just started knows no leader.
            while node.catch_up(PATIENCE).await.is_err() {
                pass(LOOK).await;
            }
        }
    }
}

/// Waits until this returns something.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    for _ in 0..looks {
        if let Some(found) = look() {
            return found;
        }
        pass(LOOK).await;
    }
    panic!("in time: {what}");
}

pub(crate) async fn pass(time: Duration) {
    let until = <TokioRuntime as AsyncRuntime>::Instant::now() + time;
    TokioRuntime::sleep_until(until).await;
}

fn lock(running: &Running) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Runs>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
