//! The service `Data`: reads and writes.

mod batch;
mod find;
mod read;
mod rows;
mod scan;
mod transact;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use duramen::error::{Code, Error, ErrorKind};
use duramen::requests::{self, Outcome, RequestId};
use duramen::{AsyncDb, CommitSeq, Db, Durability, Receipt, Snapshot};
use duramen_proto::freshness::Freshness;
use duramen_proto::v1::data_server::Data;
use duramen_proto::{MESSAGE_BYTES_MAX, VERSIONS, key, status, v1};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout_at;
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::call::Call;
use crate::cluster::{self, Cluster};
use crate::limit::Limits;
use crate::limit::budget::retry_after;
pub(crate) use find::{MESSAGE_BYTES, check_length};
pub(crate) use read::Room;

/// Threads of scans: those of reads are for reads that end soon.
const SCAN_THREADS: usize = 2;

/// Threads of queries that are answered whole.
const QUERY_THREADS: usize = 2;

/// Reads and writes of a database.
#[derive(Clone)]
pub(crate) struct DataService {
    /// Writers that the engine slows down keep their threads: reads have others.
    pub(crate) writes: AsyncDb,
    pub(crate) reads: AsyncDb,
    scans: AsyncDb,
    /// Queries that are answered whole keep their threads until they are.
    queries: AsyncDb,
    /// A permit for each transaction of several messages.
    transactions: Arc<Semaphore>,
    /// One without a message for so long is rolled back.
    silence: Duration,
    /// A scan of which no message is taken for so long ends.
    pub(crate) unread: Duration,
    /// Whether the server goes down.
    draining: watch::Receiver<bool>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) cluster: Option<Arc<dyn Cluster>>,
}

/// What tokens name.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Of the database; of the cluster, if it is a node.
    database: [u8; 16],
    /// Of the database in its files.
    files: [u8; 16],
    run: u64,
    cluster: Option<Arc<dyn Cluster>>,
}

impl Identity {
    /// A commit that is on disk.
    pub(crate) fn durable(&self, seq: CommitSeq) -> v1::Token {
        self.token(seq.0, Durability::Disk)
    }

    /// Whether a token is of this database.
    pub(crate) fn is_of(&self, token: &v1::Token) -> bool {
        token.epoch == self.database[..8]
    }

    /// A state. It may have commits that are not on disk.
    pub(crate) fn at(&self, snapshot: &Snapshot, db: &Db) -> v1::Token {
        self.of_seq(snapshot.seq(), db)
    }

    /// The state of a commit. It may not be on disk.
    pub(crate) fn of_seq(&self, seq: CommitSeq, db: &Db) -> v1::Token {
        let is_durable = seq <= db.durability_status().durable;
        self.token(seq.0, if is_durable { Durability::Disk } else { Durability::Process })
    }

    /// A commit that has reached a level. Its number may be given again after a power cut if that is not
    /// `Disk`.
    fn token(&self, seq: u64, level: Durability) -> v1::Token {
        let run = if level == Durability::Disk { 0 } else { self.run };
        v1::Token { epoch: bytes::Bytes::copy_from_slice(&self.database[..8]), seq, run }
    }

    pub(crate) fn receipt(&self, receipt: &Receipt, repeated: bool) -> v1::Receipt {
        let reached = match receipt.durability() {
            Durability::Disk => v1::Level::Disk,
            Durability::Memory | Durability::Process => v1::Level::Process,
        };
        let at = Some(self.token(receipt.seq().0, receipt.durability()));
        v1::Receipt { at, reached: reached.into(), repeated }
    }

    /// Waits until the commit of a token is published. A node whose state need not be the newest may not
    /// have it yet.
    ///
    /// # Errors
    /// `StateTooOld` (E1203) if it is not published in the time of the call.
    pub(crate) async fn wait_for(&self, token: Option<&v1::Token>, call: &Call) -> duramen::Result<()> {
        let token = token.filter(|token| self.is_of(token) && call.freshness != Freshness::Newest);
        let (Some(token), Some(cluster)) = (token, &self.cluster) else { return Ok(()) };
        let published = timeout_at(call.answer_by(), cluster.published(CommitSeq(token.seq))).await;
        published.unwrap_or_else(|_| {
            let what = format!("this node has not got as far as commit {}", token.seq);
            Err(Error::new(Code::StateTooOld, what)
                .with_hint("nothing was read: try again, or read the newest state, without an age"))
        })
    }

    /// Fails if a snapshot does not have the commit of a token.
    ///
    /// # Errors
    /// `LostWrites` (E1204).
    pub(crate) fn check(&self, token: Option<&v1::Token>, snapshot: &Snapshot) -> duramen::Result<()> {
        let Some(token) = token else { return Ok(()) };
        let why = if !self.is_of(token) {
            "the commit is of another database"
        } else if token.run != 0 && token.run != self.run {
            "the database was opened again since the commit, which was not on disk when it was acknowledged"
        } else if token.seq > snapshot.seq().0 {
            "this database has no such commit"
        } else {
            return Ok(());
        };
        Err(Error::new(Code::LostWrites, why).with_hint("read without the token, and look what is there"))
    }
}

impl DataService {
    pub(crate) fn new(
        db: &Db,
        limits: &Limits,
        draining: watch::Receiver<bool>,
        cluster: Option<Arc<dyn Cluster>>,
    ) -> DataService {
        let own = db.durability_status().database.0.to_be_bytes();
        // A token of one node is good at all of them, and what is acknowledged is not lost with one.
        let of_cluster =
            cluster.as_ref().and_then(|cluster| <[u8; 16]>::try_from(&cluster.state().cluster[..]).ok());
        let (database, run) = of_cluster.map_or((own, db.opening()), |cluster| (cluster, 1));
        DataService {
            writes: AsyncDb::from(db.clone()),
            reads: AsyncDb::from(db.clone()),
            scans: AsyncDb::with_threads(db.clone(), SCAN_THREADS),
            queries: AsyncDb::with_threads(db.clone(), QUERY_THREADS),
            transactions: Arc::new(Semaphore::new(limits.transactions.min(Semaphore::MAX_PERMITS))),
            silence: limits.silence,
            unread: limits.unread_replies,
            draining,
            identity: Arc::new(Identity { database, files: own, run, cluster: cluster.clone() }),
            cluster,
        }
    }

    async fn outcome_of(&self, id: RequestId, call: Call) -> duramen::Result<v1::OutcomeReply> {
        call.caller.needs_to_commit()?;
        call.take_place().await?;
        call.begin()?;
        Ok(match self.writes.outcome(id, call.caller.name()).await? {
            Outcome::Never => v1::OutcomeReply::default(),
            Outcome::Committed(answer) => {
                let answer = batch::decode_answer(&answer)?;
                v1::OutcomeReply {
                    committed: true,
                    failed_condition: answer.failed_condition,
                    results: answer.results,
                }
            }
        })
    }
}

/// The call of a request, put there by `route`.
pub(crate) fn call_of<T>(request: &Request<T>) -> Call {
    request.extensions().get::<Call>().expect("every request has passed route::answer").clone()
}

/// The status of an error; one that may be over soon says when to come back.
pub(crate) fn refused(error: Error) -> Status {
    match error.kind() {
        ErrorKind::Unavailable => status::of_after(&error, Some(retry_after())),
        _ => status::of(&error),
    }
}

fn request_id(bytes: &[u8]) -> duramen::Result<RequestId> {
    let bytes = bytes.try_into().map_err(|_| {
        Error::invalid(format!("a request id has 16 bytes, and this one {}", bytes.len()))
            .with_hint("make a UUID of version 7, by the clock of requests that `Hello` tells")
    })?;
    RequestId::from_bytes(bytes)
}

#[tonic::async_trait]
impl Data for DataService {
    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloReply>, Status> {
        let call = call_of(&request);
        call.take_place().await.map_err(refused)?;
        let hello = request.into_inner();
        let (oldest, newest) = (*VERSIONS.start(), *VERSIONS.end());
        if hello.version_min > newest || hello.version_max < oldest {
            let message = format!(
                "the client knows versions {} to {} of the protocol, and the server {oldest} to {newest}",
                hello.version_min, hello.version_max
            );
            let error = Error::new(Code::WrongVersion, message)
                .with_hint("use a client and a server of the same release, or of two that follow each other");
            return Err(refused(error));
        }
        // Both are in memory: this is also the answer to "are you alive".
        let db = self.reads.blocking();
        let time = requests::time(db).map_err(refused)?;
        let snapshot = db.snapshot().map_err(refused)?;
        let state = self.cluster.as_ref().map(|cluster| cluster.state());
        let (leader, members) = state.as_ref().map(cluster::addresses).unwrap_or_default();
        let takes_writes = state.as_ref().is_none_or(cluster::takes_writes);
        Ok(Response::new(v1::HelloReply {
            version: hello.version_max.min(newest),
            database_id: bytes::Bytes::copy_from_slice(&self.identity.database),
            run: self.identity.run,
            server: env!("CARGO_PKG_VERSION").to_owned(),
            user: call.caller.name().to_owned(),
            request_clock: Some(key::of_time(time)),
            message_bytes_max: MESSAGE_BYTES_MAX as u64,
            at: Some(self.identity.at(&snapshot, db)),
            leader,
            members,
            takes_writes,
            files_id: bytes::Bytes::copy_from_slice(&self.identity.files),
        }))
    }

    async fn batch(&self, request: Request<v1::BatchRequest>) -> Result<Response<v1::BatchReply>, Status> {
        let call = call_of(&request);
        batch::answer(self, request.into_inner(), call).await.map(Response::new)
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Result<Response<v1::ReadReply>, Status> {
        let call = call_of(&request);
        read::run(self, request.into_inner(), call).await.map(Response::new).map_err(refused)
    }

    type ScanStream = Pin<Box<dyn Stream<Item = Result<v1::ScanReply, Status>> + Send>>;

    async fn scan(&self, request: Request<v1::ScanRequest>) -> Result<Response<Self::ScanStream>, Status> {
        let call = call_of(&request);
        scan::run(self, request.into_inner(), call).await.map(Response::new).map_err(refused)
    }

    type TransactStream = Pin<Box<dyn Stream<Item = Result<v1::TransactReply, Status>> + Send>>;

    async fn transact(
        &self,
        request: Request<Streaming<v1::TransactRequest>>,
    ) -> Result<Response<Self::TransactStream>, Status> {
        let call = call_of(&request);
        let answers = transact::Answers::new(self.clone(), request.into_inner(), call);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn outcome(
        &self,
        request: Request<v1::OutcomeRequest>,
    ) -> Result<Response<v1::OutcomeReply>, Status> {
        let call = call_of(&request);
        let id = request_id(&request.into_inner().request_id).map_err(refused)?;
        self.outcome_of(id, call).await.map(Response::new).map_err(refused)
    }
}
