//! Duramen by the generated client over TCP with a token: a batch with one put, or a stream of transactions.

mod remote;
mod task;
mod teller;
mod three;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use duramen::{Db, Schema};
use duramen_client::AsyncRemote;
use duramen_disk::memory::{Random, mixed};
use duramen_proto::v1::data_client::DataClient;
use duramen_proto::{document, v1};
use tokio::runtime::Runtime;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use self::task::{Ids, Task};
use super::server::{ACCOUNTS, BALANCE, Entry, OPENED_TOGETHER, Server, Teller, Writer};
use crate::engine::Result;

pub(super) use three::{AT_FOLLOWER, AT_LEADER, Nodes, all_vote, rows_at, tasks_at};

pub(super) const ENTRY: Entry = Entry {
    name: "duramen",
    setting: "every option at its default, level DISK; documents; one put a batch, or three messages a transfer; \
              loopback TCP with a token",
    start: |dir, _| Served::start(dir, Way::default()),
};

/// The same calls by the client library.
pub(super) const BY_LIBRARY: Entry = Entry {
    name: "duramen-remote",
    setting: "as duramen, by `AsyncRemote::transact` of duramen-client: typed documents, a closure, a request id",
    start: |dir, _| Served::start(dir, Way { has_library: true, ..Way::default() }),
};

pub(super) const WITH_IDS: Entry = Entry {
    name: "duramen-ids",
    setting: "the same, each batch with a request id",
    start: |dir, _| Served::start(dir, Way { has_ids: true, ..Way::default() }),
};

pub(super) const WITH_TLS: Entry = Entry {
    name: "duramen-tls",
    setting: "as duramen, with TLS 1.3",
    start: |dir, _| Served::start(dir, Way { has_tls: true, ..Way::default() }),
};

/// How it is used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    pub(super) has_ids: bool,
    pub(super) has_tls: bool,
    pub(super) has_library: bool,
}

pub(super) const COLLECTION: &str = "rows";

/// Serves a database until standard input ends; what the child of a turn does.
pub(crate) fn serve(dir: &Path, has_tls: bool) -> Result<()> {
    let db = Db::open(dir.join("db"))?;
    db.ensure(&Schema::new(COLLECTION).key(["key"]))?;
    db.ensure(&Schema::new(teller::ACCOUNTS).key(["id"]))?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = duramen_server::Server::builder(db.clone()).listen(loopback);
    if has_tls {
        server = server.tls(dir.join(CERTIFICATE), dir.join(KEY));
    }
    let server = server.start()?;
    let address = server.addresses().first().ok_or("no address")?;
    let mut out = std::io::stdout();
    writeln!(out, "{address} {}", server.token().ok_or("no token")?)?;
    out.flush()?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(db.close()?)
}

/// The server's certificate, which is its own authority, and its key.
pub(super) const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";

/// Makes a certificate of 127.0.0.1.
fn certify(dir: &Path) -> Result<String> {
    let made = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
    std::fs::write(dir.join(KEY), made.signing_key.serialize_pem())?;
    let certificate = made.cert.pem();
    std::fs::write(dir.join(CERTIFICATE), &certificate)?;
    Ok(certificate)
}

pub(super) struct Served {
    process: Child,
    /// The child ends once this is closed.
    stdin: Option<ChildStdin>,
    address: String,
    token: MetadataValue<Ascii>,
    way: Way,
    /// With TLS: the certificate.
    certificate: Option<String>,
}

impl Served {
    fn start(dir: &Path, way: Way) -> Result<Box<dyn Server>> {
        Ok(Box::new(Served::open(dir, way)?))
    }

    /// Serves the database in a directory, a new one if there is none.
    pub(super) fn open(dir: &Path, way: Way) -> Result<Served> {
        let certificate = way.has_tls.then(|| certify(dir)).transpose()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("served").arg(dir);
        if way.has_tls {
            command.arg("--tls");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let stdin = process.stdin.take();
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("the server has no output")?).read_line(&mut line)?;
        let (address, token) = line.trim().split_once(' ').ok_or("the server did not start")?;
        let (address, token) = (address.to_owned(), format!("Bearer {token}").parse()?);
        Ok(Served { process, stdin, address, token, way, certificate })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Stops it in order.
    pub(super) fn end(mut self) -> Result<()> {
        drop(self.stdin.take());
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }

    async fn connect(&self) -> Result<DataClient<Channel>> {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))?;
        if let Some(certificate) = &self.certificate {
            let trusted = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(certificate));
            endpoint = endpoint.tls_config(trusted)?;
        }
        Ok(DataClient::new(endpoint.connect().await?))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        task::with_token(message, Some(&self.token))
    }
}

/// How many rows there are.
async fn count(client: &mut DataClient<Channel>, token: Option<&MetadataValue<Ascii>>) -> Result<u64> {
    let of = v1::RangeOf { collection: COLLECTION.to_owned(), ..Default::default() };
    let reads = vec![v1::Read { kind: Some(v1::read::Kind::Count(of)) }];
    let request = task::with_token(v1::ReadRequest { reads, ..Default::default() }, token);
    let reply = client.read(request).await?;
    match reply.into_inner().results.into_iter().next().and_then(|result| result.kind) {
        Some(v1::read_result::Kind::Number(count)) => Ok(count),
        other => Err(format!("a count was answered by {other:?}").into()),
    }
}

impl Server for Served {
    fn processes(&self) -> Vec<u32> {
        vec![self.process.id()]
    }

    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>> {
        let connect = |_| runtime.block_on(self.connect());
        let mut clients = (0..connections).map(connect).collect::<Result<Vec<_>>>()?;
        let hello = self.request(v1::HelloRequest { version_min: 1, version_max: 1, ..Default::default() });
        let hello = runtime.block_on(clients[0].hello(hello))?.into_inner();
        let clock = hello.request_clock.unwrap_or_default();
        let then_ms = u64::try_from(clock.seconds)? * 1000 + u64::from(clock.nanoseconds / 1_000_000);
        let greeted = Instant::now();
        let writer = |task: usize| -> Box<dyn Writer> {
            let ids = self.way.has_ids.then(|| Ids {
                then_ms,
                greeted,
                random: Random::new(mixed(task as u64 ^ then_ms << 8)),
            });
            Box::new(Task {
                client: clients[task % connections].clone(),
                token: Some(self.token.clone()),
                ids,
            })
        };
        Ok((0..tasks).map(writer).collect())
    }

    fn tellers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Teller>>> {
        if self.way.has_library {
            let token = self.token.to_str()?.trim_start_matches("Bearer ");
            let address = format!("duramen://{token}@{}", self.address);
            let connect = |_| Ok(runtime.block_on(AsyncRemote::connect(&address))?);
            let clients = (0..connections).map(connect).collect::<Result<Vec<_>>>()?;
            let teller = |task: usize| Box::new(clients[task % connections].clone()) as Box<dyn Teller>;
            return Ok((0..tasks).map(teller).collect());
        }
        let connect = |_| runtime.block_on(self.connect());
        let clients = (0..connections).map(connect).collect::<Result<Vec<_>>>()?;
        let teller = |task: usize| -> Result<Box<dyn Teller>> {
            let client = clients[task % connections].clone();
            Ok(Box::new(runtime.block_on(teller::Clerk::open(client, &self.token))?))
        };
        (0..tasks).map(teller).collect()
    }

    fn count(&self) -> Result<u64> {
        Runtime::new()?.block_on(async { count(&mut self.connect().await?, Some(&self.token)).await })
    }

    fn open_accounts(&self) -> Result<()> {
        Runtime::new()?.block_on(async {
            let mut client = self.connect().await?;
            for first in (0..ACCOUNTS).step_by(usize::try_from(OPENED_TOGETHER)?) {
                let accounts = first..first + OPENED_TOGETHER;
                let operations =
                    accounts.map(|account| teller::put(account, BALANCE)).collect::<Result<_>>()?;
                let batch = v1::BatchRequest { operations, ..Default::default() };
                client.batch(self.request(batch)).await?;
            }
            Ok(())
        })
    }

    fn total(&self) -> Result<u64> {
        let scan = v1::ScanRequest { collection: teller::ACCOUNTS.to_owned(), ..Default::default() };
        let mut total = 0;
        Runtime::new()?.block_on(async {
            let mut replies = self.connect().await?.scan(self.request(scan)).await?.into_inner();
            while let Some(reply) = replies.message().await? {
                for account in &reply.documents {
                    let account = document::required(Some(account))?;
                    total += teller::cents(&account).ok_or("an account without cents")?;
                }
            }
            Ok(u64::try_from(total)?)
        })
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.end()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have been stopped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
