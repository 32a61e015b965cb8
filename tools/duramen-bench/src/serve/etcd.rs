//! etcd, one member: a put over gRPC. The three messages that are needed are written out here.

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
use super::server::{Done, Entry, Server, Teller, Writer, free_port};
use crate::engine::{Result, Row};

pub(super) const ENTRY: Entry = Entry {
    name: "etcd",
    setting: "one member, every option at its default, so that each entry of its log is synced; only errors are logged",
    start: Etcd::start,
};

/// A server that does not answer after this time has not started.
const PATIENCE: Duration = Duration::from_secs(30);

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
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

struct Etcd {
    process: Child,
    port: u16,
}

impl Etcd {
    fn start(dir: &Path, words: &Serve) -> Result<Box<dyn Server>> {
        let (port, peers) = (free_port()?, free_port()?);
        let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new(&words.etcd);
        command.arg("--data-dir").arg(dir.join("data")).args(["--log-level", "error"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().map_err(|error| format!("{}: {error}", words.etcd.display()))?;
        let etcd = Etcd { process, port };
        let begun = Instant::now();
        while let Err(error) = etcd.count() {
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Box::new(etcd))
    }

    async fn connect(&self) -> Result<client::Grpc<Channel>> {
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{}", self.port))?.connect().await?;
        Ok(client::Grpc::new(channel))
    }
}

impl Server for Etcd {
    fn process(&self) -> u32 {
        self.process.id()
    }

    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>> {
        let connect = |_| runtime.block_on(self.connect());
        let clients = (0..connections).map(connect).collect::<Result<Vec<_>>>()?;
        let writer = |task: usize| -> Box<dyn Writer> { Box::new(Task(clients[task % connections].clone())) };
        Ok((0..tasks).map(writer).collect())
    }

    fn count(&self) -> Result<u64> {
        // A range that ends with one zero byte has every key behind its first.
        let zero = Bytes::from_static(&[0]);
        let request = RangeRequest { key: zero.clone(), range_end: zero, count_only: true };
        let asked = async {
            let mut client = self.connect().await?;
            client.ready().await?;
            let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
            let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
            Result::Ok(client.unary(Request::new(request), path, codec).await?)
        };
        Ok(u64::try_from(Runtime::new()?.block_on(asked)?.into_inner().count)?)
    }

    fn tellers(&self, _: &Runtime, _: usize, _: usize) -> Result<Vec<Box<dyn Teller>>> {
        Err("etcd has no transactions of several messages".into())
    }

    fn open_accounts(&self) -> Result<()> {
        Ok(())
    }

    fn total(&self) -> Result<u64> {
        Ok(0)
    }

    fn stop(mut self: Box<Self>) -> Result<()> {
        // Its data is removed next.
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have been stopped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Task(client::Grpc<Channel>);

impl Writer for Task {
    fn put<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        let (key, value) = (Bytes::copy_from_slice(row.key), Bytes::copy_from_slice(row.value));
        Box::pin(async move {
            self.0.ready().await?;
            let codec = ProstCodec::<PutRequest, PutResponse>::default();
            let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
            self.0.unary(Request::new(PutRequest { key, value }), path, codec).await?;
            Ok(())
        })
    }
}
