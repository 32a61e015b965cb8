//! Three nodes of a cluster, as `duramen serve` runs them, on this machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use duramen::{Db, Schema};
use duramen_proto::v1;
use duramen_proto::v1::admin_client::AdminClient;
use duramen_proto::v1::data_client::DataClient;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use super::task::Task;
use super::{COLLECTION, count};
use crate::engine::Result;
use crate::machine;
use crate::serve::Serve;
use crate::serve::server::{Entry, Reader, Server, Writer, free_port};

pub(in crate::serve) const AT_LEADER: Entry = Entry {
    name: "duramen-three",
    setting: "three nodes, every option at its default; calls go to the leader; loopback TCP without tokens, peers \
              without TLS",
    start: |dir, words| Trio::start(dir, words, true),
};

pub(in crate::serve) const AT_FOLLOWER: Entry = Entry {
    name: "duramen-three-follower",
    setting: "the same; reads go to a node that does not lead",
    start: |dir, words| Trio::start(dir, words, false),
};

/// Nodes that are not one cluster after this time have not started.
const PATIENCE: Duration = Duration::from_secs(30);
const MEMBERS: usize = 3;

/// A node, and where it listens.
pub(in crate::serve) struct Node {
    dir: PathBuf,
    peers: String,
    /// For clients.
    pub(in crate::serve) serves: String,
    process: Option<Child>,
}

/// The nodes of a cluster on this machine; the first one is its first leader.
pub(in crate::serve) struct Nodes {
    duramen: PathBuf,
    dir: PathBuf,
    pub(in crate::serve) all: Vec<Node>,
}

impl Nodes {
    /// A cluster of one node, with what `fill` stores in the collection of rows.
    pub(in crate::serve) fn found(
        dir: &Path,
        duramen: &Path,
        fill: impl FnOnce(&Db) -> Result<()>,
    ) -> Result<Nodes> {
        let mut nodes = Nodes { duramen: duramen.to_owned(), dir: dir.to_owned(), all: Vec::new() };
        let first = nodes.add()?;
        let db = Db::open(&nodes.all[first].dir)?;
        db.ensure(&Schema::new(COLLECTION).key(["key"]))?;
        fill(&db)?;
        db.close()?;
        drop(db);
        nodes.start(first, &["--cluster", "init"])?;
        nodes.until(0, |members| members.len() == 1)?;
        Ok(nodes)
    }

    /// A node that has not been started.
    pub(in crate::serve) fn add(&mut self) -> Result<usize> {
        let address = || Result::Ok(format!("127.0.0.1:{}", free_port()?));
        let dir = self.dir.join(format!("node-{}", self.all.len() + 1));
        self.all.push(Node { dir, peers: address()?, serves: address()?, process: None });
        Ok(self.all.len() - 1)
    }

    /// Starts a node that joins, or has joined.
    pub(in crate::serve) fn start_member(&mut self, node: usize) -> Result<()> {
        let first = self.all[0].peers.clone();
        self.start(node, &["--join", &first])
    }

    fn start(&mut self, node: usize, begin: &[&str]) -> Result<()> {
        let Node { dir, peers, serves, process } = &mut self.all[node];
        let mut command = Command::new(&self.duramen);
        command.arg("serve").arg(&*dir).args(["--peer-listen", peers, "--listen", serves, "--no-auth"]);
        // What it says is of use only if the turn fails.
        let says = File::create(dir.with_extension("log"))?;
        command.args(begin).stdin(Stdio::null()).stdout(Stdio::null()).stderr(says);
        *process = Some(command.spawn().map_err(|error| format!("{}: {error}", self.duramen.display()))?);
        Ok(())
    }

    /// Ends a node as a crash of its process would.
    pub(in crate::serve) fn kill(&mut self, node: usize) -> Result<()> {
        if let Some(mut process) = self.all[node].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Waits until a node knows of a leader, and its members are as they should be.
    pub(in crate::serve) fn until(
        &self,
        node: usize,
        are_right: impl Fn(&[v1::Member]) -> bool,
    ) -> Result<()> {
        Runtime::new()?.block_on(until(&self.all[node].serves, are_right))
    }

    pub(in crate::serve) fn process(&self, node: usize) -> Option<u32> {
        self.all[node].process.as_ref().map(Child::id)
    }

    /// Bytes on the disk.
    pub(in crate::serve) fn space_bytes(&self, node: usize) -> u64 {
        machine::space_bytes(&self.all[node].dir)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in 0..self.all.len() {
            // One that has ended by itself is waited for, too.
            let _ = self.kill(node);
        }
    }
}

/// How many rows a node has.
pub(in crate::serve) async fn rows_at(serves: &str) -> Result<u64> {
    count(&mut DataClient::new(channel(serves).await?), None).await
}

/// Tasks that store and read rows at a node.
pub(in crate::serve) async fn tasks_at(serves: &str, tasks: usize, connections: usize) -> Result<Vec<Task>> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        clients.push(DataClient::new(channel(serves).await?));
    }
    let task = |task: usize| Task { client: clients[task % connections].clone(), token: None, ids: None };
    Ok((0..tasks).map(task).collect())
}

/// Whether as many members as there are to be vote.
pub(in crate::serve) fn all_vote(members: &[v1::Member]) -> bool {
    members.iter().filter(|member| member.votes).count() == MEMBERS
}

struct Trio {
    nodes: Nodes,
    /// The node that is read.
    read: usize,
}

impl Trio {
    fn start(dir: &Path, words: &Serve, at_leader: bool) -> Result<Box<dyn Server>> {
        let mut nodes = Nodes::found(dir, &words.duramen, |_| Ok(()))?;
        for count in 2..=MEMBERS {
            let node = nodes.add()?;
            nodes.start_member(node)?;
            nodes.until(0, |members| members.len() == count)?;
        }
        let read = if at_leader { 0 } else { MEMBERS - 1 };
        // Whether the leader knows it says nothing of whether it serves.
        nodes.until(read, all_vote)?;
        Ok(Box::new(Trio { nodes, read }))
    }
}

async fn channel(address: &str) -> Result<Channel> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect().await?)
}

/// Waits until a node knows of a leader, and its members are as they should be.
async fn until(address: &str, are_right: impl Fn(&[v1::Member]) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let asked = async {
            let mut client = AdminClient::new(channel(address).await?);
            let told = client.cluster(v1::ClusterRequest {}).await?.into_inner();
            let is_right = told.leader != 0 && are_right(&told.members);
            if is_right { Ok(()) } else { Err(format!("not yet one cluster: {told:?}").into()) }
        };
        match asked.await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Server for Trio {
    fn processes(&self) -> Vec<u32> {
        (0..MEMBERS).filter_map(|node| self.nodes.process(node)).collect()
    }

    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>> {
        let tasks = runtime.block_on(tasks_at(&self.nodes.all[0].serves, tasks, connections))?;
        Ok(tasks.into_iter().map(|task| Box::new(task) as Box<dyn Writer>).collect())
    }

    fn readers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Reader>>> {
        let tasks = runtime.block_on(tasks_at(&self.nodes.all[self.read].serves, tasks, connections))?;
        Ok(tasks.into_iter().map(|task| Box::new(task) as Box<dyn Reader>).collect())
    }

    fn count(&self) -> Result<u64> {
        Runtime::new()?.block_on(rows_at(&self.nodes.all[self.read].serves))
    }

    fn stop(self: Box<Self>) -> Result<()> {
        // Their data is removed next.
        Ok(())
    }
}
