//! Nodes in one process, on threads, each with a disk in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen::{Code, Db, DbOptions, Error};
use duramen_disk::MemDisk;
use duramen_repl::{
    Called, CopyOf, First, Ident, Joining, Lane, Members, Node, NodeError, Peer, Start, TokioRuntime,
    Transport, Watch, copy_anew, join,
};
use futures_util::future::Either;
use openraft_rt::{AsyncRuntime, Instant as _};

pub(crate) type Runs = Node<TokioRuntime>;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

type Running = Mutex<BTreeMap<u64, Arc<Runs>>>;

/// Carries requests to the nodes that run, by their addresses.
struct Calls(Weak<Running>);

impl Transport for Calls {
    fn call(&self, _: u64, peer: &Peer, _: Lane, request: Vec<u8>) -> Called {
        let (running, address) = (self.0.upgrade(), peer.address.clone());
        let called = running.and_then(|running| lock(&running).get(&machine_at(&address)).cloned());
        Box::pin(async move {
            let called = called.ok_or_else(|| format!("no node runs at {address}"))?;
            Ok(called.answer(&request).await)
        })
    }
}

/// Carries a number of requests for a state, and then none.
struct Cut {
    carries: Arc<dyn Transport>,
    left: AtomicUsize,
    /// A request was not carried: the copy waits for its answer, and does nothing else.
    waits: AtomicBool,
}

impl Cut {
    fn after(pieces: usize, carries: Arc<dyn Transport>) -> Arc<Cut> {
        Arc::new(Cut { carries, left: AtomicUsize::new(pieces + 1), waits: AtomicBool::new(false) })
    }
}

impl Transport for Cut {
    fn call(&self, node: u64, peer: &Peer, lane: Lane, request: Vec<u8>) -> Called {
        let take = |left: usize| left.checked_sub(1);
        if lane != Lane::Bulk || self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            return self.carries.call(node, peer, lane, request);
        }
        self.waits.store(true, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

/// Stops making a copy once so many pieces of it were carried.
async fn stop_after<T: std::fmt::Debug>(copies: impl Future<Output = T>, cut: &Cut) {
    let stops = until("it has got so far", || cut.waits.load(Ordering::SeqCst).then_some(()));
    futures_util::pin_mut!(copies, stops);
    match futures_util::future::select(copies, stops).await {
        Either::Left((copied, _)) => panic!("it is whole before: {copied:?}"),
        Either::Right(((), _)) => {}
    }
}

/// Ignores what a node that joins tells, and never ends it.
struct Unwatched;

impl Watch for Unwatched {
    fn waits(&self, _: &str) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Machines, counted from 1, each with a node.
pub(crate) struct Cluster {
    disks: BTreeMap<u64, MemDisk>,
    running: Arc<Running>,
    /// Bytes of Raft's log that nodes keep for members that lack entries.
    pub(crate) lagging_bytes: Option<u64>,
}

fn peer(machine: u64) -> Peer {
    Peer { address: format!("machine:{machine}"), serves: format!("serves:{machine}") }
}

fn machine_at(address: &str) -> u64 {
    address.split_once(':').unwrap().1.parse().unwrap()
}

impl Cluster {
    /// Starts three nodes. The first is an embedded database that this closure fills; the others join it, and
    /// all vote.
    pub(crate) async fn start(fill: impl FnOnce(&Db)) -> Cluster {
        let cluster = Cluster::start_first(fill).await;
        for machine in [2, 3] {
            cluster.join(machine).await.unwrap();
            cluster.start_node(machine).await;
        }
        let all_vote = || (cluster.node(1).members().voters.len() == 3).then_some(());
        until("three vote", all_vote).await;
        cluster
    }

    /// Starts one node, over an embedded database that this closure fills.
    pub(crate) async fn start_first(fill: impl FnOnce(&Db)) -> Cluster {
        // A cluster's id is drawn from the disk of its first node.
        static CLUSTERS: AtomicU64 = AtomicU64::new(1);
        let seed = 100 * CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let disk_of = |machine| (machine, MemDisk::with_system_clock(seed + machine));
        let disks: BTreeMap<u64, MemDisk> = (1..=5).map(disk_of).collect();
        let db = DbOptions::default().open_on(Arc::new(disks[&1].clone()), "/db").unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        let cluster = Cluster { disks, running: Arc::default(), lagging_bytes: None };
        cluster.start_node(1).await;
        cluster.leader().await;
        cluster
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(Calls(Arc::downgrade(&self.running)))
    }

    pub(crate) fn disk(&self, machine: u64) -> &MemDisk {
        &self.disks[&machine]
    }

    /// Gives the machine, whose node does not run, this disk.
    pub(crate) fn set_disk(&mut self, machine: u64, disk: MemDisk) {
        self.disks.insert(machine, disk);
    }

    /// Makes the machine's directory a node of the cluster.
    pub(crate) async fn join(&self, machine: u64) -> Result<Ident, NodeError> {
        self.join_over(machine, self.transport()).await
    }

    /// The same, and the machine stops after so many pieces of the state.
    pub(crate) async fn join_and_stop_after(&self, machine: u64, pieces: usize) {
        let cut = Cut::after(pieces, self.transport());
        let joins = self.join_over(machine, cut.clone());
        stop_after(joins, &cut).await;
    }

    async fn join_over(&self, machine: u64, transport: Arc<dyn Transport>) -> Result<Ident, NodeError> {
        let joining = Joining {
            own: peer(machine),
            at: lock(&self.running).keys().map(|machine| peer(*machine).address).collect(),
            transport,
            within: PATIENCE,
            watch: Arc::new(Unwatched),
        };
        let disk = Arc::new(self.disks[&machine].clone());
        join::<TokioRuntime>(disk, Path::new("/db"), DbOptions::default(), joining).await
    }

    /// Replaces the state of the machine's node, which is stopped, with a copy of what it needs. Returns
    /// whether it needed it.
    pub(crate) async fn copy_anew(&self, machine: u64, copy: CopyOf) -> Result<bool, NodeError> {
        self.copy_over(machine, copy, self.transport()).await
    }

    /// The same, and the machine stops after so many pieces of the state.
    pub(crate) async fn copy_and_stop_after(&self, machine: u64, copy: CopyOf, pieces: usize) {
        let cut = Cut::after(pieces, self.transport());
        let copies = self.copy_over(machine, copy, cut.clone());
        stop_after(copies, &cut).await;
    }

    async fn copy_over(
        &self,
        machine: u64,
        copy: CopyOf,
        transport: Arc<dyn Transport>,
    ) -> Result<bool, NodeError> {
        let (disk, own) = (Arc::new(self.disks[&machine].clone()), peer(machine).address);
        copy_anew::<TokioRuntime>(disk, Path::new("/db"), DbOptions::default(), copy, own, transport).await
    }

    /// Starts two nodes that are founded apart under one cluster's id: the second as no join ever makes one.
    /// Its log begins at a later time, so that it has other entries than the first, which leads.
    pub(crate) async fn start_apart() -> Cluster {
        let disks = (1..=2).map(|machine| (machine, MemDisk::with_system_clock(machine))).collect();
        let cluster = Cluster { disks, running: Arc::default(), lagging_bytes: None };
        for machine in 1..=2 {
            let peers = (1..=2).map(|machine| (machine, peer(machine))).collect();
            let members = Members { voters: [1, 2].into(), peers };
            let first = First { ident: Ident { cluster: 7, node: machine }, members, time_ns: machine };
            // The second waits longer before it campaigns.
            cluster.start_as(machine, Some(first), Some(machine * 150)).await;
        }
        cluster
    }

    pub(crate) async fn start_node(&self, machine: u64) {
        let first = (machine == 1).then(|| First::alone(&self.disks[&machine], peer(1)));
        self.start_as(machine, first, None).await;
    }

    async fn start_as(&self, machine: u64, first: Option<First>, heartbeat_ms: Option<u64>) {
        let disk = &self.disks[&machine];
        let start = Start {
            first,
            promotes: true,
            transport: self.transport(),
            heartbeat_ms,
            lagging_bytes: self.lagging_bytes,
        };
        let started = Runs::start(Arc::new(disk.clone()), "/db", DbOptions::default(), start).await;
        lock(&self.running).insert(machine, Arc::new(started.unwrap()));
    }

    /// Stops a node as an orderly process does.
    pub(crate) async fn stop_node(&self, node: u64) {
        self.take_node(node).await.stop().await.unwrap();
    }

    /// Ends a node that takes no more part: its log refuses everything, and says so.
    pub(crate) async fn end_node(&self, node: u64) {
        self.take_node(node).await.stop().await.unwrap_err();
    }

    /// Takes a node off the network, once it has answered what was asked.
    async fn take_node(&self, node: u64) -> Runs {
        let mut taken = lock(&self.running).remove(&node).unwrap();
        loop {
            match Arc::try_unwrap(taken) {
                Ok(taken) => return taken,
                Err(answers) => taken = answers,
            }
            pass(LOOK).await;
        }
    }

    /// Starts a node that is to fail.
    pub(crate) async fn start_in_vain(&self, machine: u64) -> NodeError {
        let disk = Arc::new(self.disks[&machine].clone());
        let transport = self.transport();
        let start = Start { first: None, promotes: true, transport, heartbeat_ms: None, lagging_bytes: None };
        Runs::start(disk, "/db", DbOptions::default(), start).await.map(drop).unwrap_err()
    }

    /// Lets another node answer at the address of a machine, whose node does not run.
    pub(crate) fn answers_for(&self, machine: u64, other: Option<u64>) {
        let other = other.map(|other| self.node(other));
        let mut running = lock(&self.running);
        running.remove(&machine);
        running.extend(other.map(|other| (machine, other)));
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
        let next = (1..3)
            .map(|step| (before + step - 1) % 3 + 1)
            .find(|next| lock(&self.running).contains_key(next));
        // A target that has not received everything ignores the request.
        while node.engine().takes_transactions().unwrap() {
            node.transfer(self.node(next.unwrap()).ident().node).await.unwrap();
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
