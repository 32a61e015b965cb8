//! etcd, one member or three: puts and gets over gRPC. The few messages that are needed are written out here.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Runtime;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, client};
use tonic_prost::ProstCodec;

use super::Serve;
use super::server::{Done, Entry, Reader, Server, Writer, free_port};
use crate::engine::{Result, Row};

pub(super) const ENTRY: Entry = Entry {
    name: "etcd",
    setting: "one member, every option at its default, so that each entry of its log is synced; almost nothing is logged",
    start: |dir, words| Etcd::start(dir, words, 1, true),
};

pub(super) const AT_LEADER: Entry = Entry {
    name: "etcd-three",
    setting: "three members, every option at its default; calls go to the leader; almost nothing is logged",
    start: |dir, words| Etcd::start(dir, words, 3, true),
};

pub(super) const AT_FOLLOWER: Entry = Entry {
    name: "etcd-three-follower",
    setting: "the same; all calls go to a member that does not lead",
    start: |dir, words| Etcd::start(dir, words, 3, false),
};

/// A server that does not answer after this time has not started.
const PATIENCE: Duration = Duration::from_secs(30);
const RANGE: &str = "/etcdserverpb.KV/Range";

#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(bool, tag = "9")]
    count_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(message, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Header {
    #[prost(uint64, tag = "2")]
    member: u64,
}

struct Etcd {
    members: Vec<Child>,
    /// Where the member listens that calls go to.
    port: u16,
}

/// Where a member listens for clients and for other members.
struct Ports {
    clients: u16,
    peers: u16,
}

impl Etcd {
    fn start(dir: &Path, words: &Serve, members: usize, at_leader: bool) -> Result<Box<dyn Server>> {
        let ports = || Result::Ok(Ports { clients: free_port()?, peers: free_port()? });
        let ports = (0..members).map(|_| ports()).collect::<Result<Vec<_>>>()?;
        let cluster = ports.iter().enumerate();
        let cluster: Vec<_> =
            cluster.map(|(member, ports)| format!("m{member}=http://127.0.0.1:{}", ports.peers)).collect();
        let mut etcd = Etcd { members: Vec::new(), port: 0 };
        for (member, Ports { clients, peers }) in ports.iter().enumerate() {
            let name = format!("m{member}");
            let (clients, peers) =
                (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
            let mut command = Command::new(&words.etcd);
            command.arg("--data-dir").arg(dir.join(&name)).args(["--log-level", "fatal", "--name", &name]);
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
            command.args(["--initial-cluster", &cluster.join(",")]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let process = command.spawn().map_err(|error| format!("{}: {error}", words.etcd.display()))?;
            etcd.members.push(process);
        }
        let begun = Instant::now();
        let runtime = Runtime::new()?;
        loop {
            match runtime.block_on(member_that_leads(&ports, at_leader)) {
                Ok(port) => {
                    etcd.port = port;
                    return Ok(Box::new(etcd));
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    async fn connect(&self) -> Result<client::Grpc<Channel>> {
        connect(self.port).await
    }

    fn tasks(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Task>> {
        let connect = |_| runtime.block_on(self.connect());
        let clients = (0..connections).map(connect).collect::<Result<Vec<_>>>()?;
        Ok((0..tasks).map(|task| Task(clients[task % connections].clone())).collect())
    }
}

async fn connect(port: u16) -> Result<client::Grpc<Channel>> {
    Ok(client::Grpc::new(Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?.connect().await?))
}

/// The port of the member that leads, or of one that does not, once all members answer.
async fn member_that_leads(ports: &[Ports], leads: bool) -> Result<u16> {
    let mut found = None;
    for Ports { clients, .. } in ports {
        let mut client = connect(*clients).await?;
        let path = "/etcdserverpb.Maintenance/Status";
        let status: StatusResponse = call(&mut client, path, StatusRequest {}).await?;
        let is_leader = status.header.is_some_and(|header| header.member == status.leader);
        if status.leader == 0 {
            return Err("no member of etcd leads".into());
        }
        if is_leader == leads {
            found = Some(*clients);
        }
    }
    found.ok_or_else(|| "no member of etcd has the role".into())
}

/// Calls a method by its path.
async fn call<Q, A>(client: &mut client::Grpc<Channel>, path: &'static str, asked: Q) -> Result<A>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    client.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(client.unary(Request::new(asked), PathAndQuery::from_static(path), codec).await?.into_inner())
}

impl Server for Etcd {
    fn processes(&self) -> Vec<u32> {
        self.members.iter().map(Child::id).collect()
    }

    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>> {
        let tasks = self.tasks(runtime, tasks, connections)?.into_iter();
        Ok(tasks.map(|task| Box::new(task) as Box<dyn Writer>).collect())
    }

    fn readers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Reader>>> {
        let tasks = self.tasks(runtime, tasks, connections)?.into_iter();
        Ok(tasks.map(|task| Box::new(task) as Box<dyn Reader>).collect())
    }

    fn count(&self) -> Result<u64> {
        // A range that ends with one zero byte has every key behind its first.
        let zero = Bytes::from_static(&[0]);
        let request = RangeRequest { key: zero.clone(), range_end: zero, count_only: true };
        let asked = async { call::<_, RangeResponse>(&mut self.connect().await?, RANGE, request).await };
        Ok(u64::try_from(Runtime::new()?.block_on(asked)?.count)?)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        // Its data is removed next.
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // One that has ended by itself is waited for, too.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

struct Task(client::Grpc<Channel>);

impl Writer for Task {
    fn put<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        let (key, value) = (Bytes::copy_from_slice(row.key), Bytes::copy_from_slice(row.value));
        Box::pin(async move {
            let put = PutRequest { key, value };
            let _: PutResponse = call(&mut self.0, "/etcdserverpb.KV/Put", put).await?;
            Ok(())
        })
    }
}

impl Reader for Task {
    fn get<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        let request = RangeRequest { key: Bytes::copy_from_slice(row.key), ..Default::default() };
        Box::pin(async move {
            let found: RangeResponse = call(&mut self.0, RANGE, request).await?;
            match &found.kvs[..] {
                [found] if found.value == row.value => Ok(()),
                other => Err(format!("a stored row was read as {other:?}").into()),
            }
        })
    }
}
