//! Calls that wait for their answers.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use duramen::Time;
use duramen::error::{Code, Error, Result};
use duramen_proto::freshness::{self, Freshness};
use duramen_proto::v1::admin_client::AdminClient;
use duramen_proto::v1::blobs_client::BlobsClient;
use duramen_proto::v1::data_client::DataClient;
use duramen_proto::{status, v1};
use prost::Message as _;
use tokio_stream::StreamExt as _;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::address::Address;
use crate::connect;
use crate::link::{self, Link, Links};
use crate::runtime::Runtime;

/// What a call may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// After a change of the leader another one leads within about two seconds.
const LEADER_WITHIN: Duration = Duration::from_secs(10);

/// Between two looks for the node that leads.
const LEADER_PAUSE: Duration = Duration::from_millis(30);

/// A scan may take longer: its reader decides.
pub(crate) const SCAN_DEADLINE: Duration = Duration::from_secs(300);

/// Clocks that differ by less refuse no ids: a server takes those of a minute ahead, and keeps answers for at
/// least two.
const CLOCK_OFF: Duration = Duration::from_secs(30);

/// The server's clock of requests, as it was told at a moment.
#[derive(Debug, Clone, Copy)]
struct Clock {
    told: Duration,
    at: Instant,
}

impl Clock {
    fn now(&self) -> Duration {
        self.told + self.at.elapsed()
    }
}

/// How old the state may be that reads of a client see, as a header; shared by its connections.
pub(crate) type MaxAge = Arc<RwLock<Option<MetadataValue<Ascii>>>>;

/// What each call carries.
#[derive(Debug, Clone)]
pub(crate) struct Headers {
    pub(crate) token: Option<MetadataValue<Ascii>>,
    pub(crate) max_age: MaxAge,
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        let headers = request.metadata_mut();
        if let Some(token) = &self.token {
            headers.insert("authorization", token.clone());
        }
        if let Some(max_age) = &*self.max_age.read().unwrap_or_else(PoisonError::into_inner) {
            headers.insert(freshness::HEADER, max_age.clone());
        }
        Ok(request)
    }
}

pub(crate) type Calls = InterceptedService<Channel, Headers>;

/// A connection to a server. Its calls wait for their answers on the calling thread. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What clones share.
#[derive(Debug)]
struct Shared {
    runtime: Runtime,
    links: Links,
    /// Of the first connection.
    hello: v1::HelloReply,
    clock: Mutex<Clock>,
    address: Address,
}

impl Client {
    /// Connects to a server, and greets it.
    ///
    /// # Errors
    /// `Unreachable` (E1111) if nothing answers at the address; `Unauthenticated` (E1101) without the right
    /// token; `Forbidden` (E1102) for another user's socket; `WrongVersion` (E1109) for a server of a release
    /// that is too far away.
    pub fn connect(address: &Address) -> Result<Client> {
        let runtime = Runtime::new()?;
        let max_age = MaxAge::default();
        let first = runtime.block_on(Link::open(address, 0, &max_age))??;
        let links = Links::new(first, max_age);
        let mut shared = Shared {
            runtime,
            links,
            hello: v1::HelloReply::default(),
            clock: Mutex::new(Clock { told: Duration::ZERO, at: Instant::now() }),
            address: address.clone(),
        };
        shared.hello = shared.greet()?;
        Ok(Client { shared: Arc::new(shared) })
    }

    /// What the server said about itself when the client connected.
    #[must_use]
    pub fn hello(&self) -> &v1::HelloReply {
        &self.shared.hello
    }

    /// Lets later reads of this client and its clones see states that are older, if the database is a node of
    /// a cluster. Such a read asks the leader seldom or never. Those that [`Client::read`] makes, scans, the
    /// definitions of collections and views, downloads and backups do; transactions see the newest state
    /// whatever was set.
    ///
    /// The age is counted from when a call comes to the node, by the clock of the node. It says nothing about
    /// two reads: after the connection is lost the next node may have less than the one before. A read by
    /// [`Client::read`] that must see a commit names its token, `at_least`, and waits for it.
    ///
    /// The connection goes to the node that leads once a call is refused here: a write (E1201), or a read of
    /// an age that this node cannot tell (E1203). A program that reads near by has a client of its own for
    /// that, and connects again.
    pub fn set_freshness(&self, freshness: Freshness) {
        let header = freshness.header().map(|header| header.parse().expect("digits or letters"));
        *self.shared.links.max_age.write().unwrap_or_else(PoisonError::into_inner) = header;
    }

    /// An id for a batch, by the server's clock of requests. Make it once for the batch, and send it with
    /// each try.
    ///
    /// # Errors
    /// `System` (E1001) if the system gives no random bytes.
    pub fn new_request_id(&self) -> Result<Bytes> {
        let mut id = [0; 16];
        match rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()) {
            Ok(16) => {}
            _ => return Err(Error::new(Code::System, "the system gives no random bytes")),
        }
        let clock = self.request_time();
        let now_ms =
            u64::try_from(clock.seconds()).unwrap_or(0) * 1000 + u64::from(clock.nanoseconds() / 1_000_000);
        // A UUID of version 7: the time in milliseconds, then random bits.
        id[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
        id[6] = id[6] & 0x0f | 0x70;
        id[8] = id[8] & 0x3f | 0x80;
        Ok(Bytes::copy_from_slice(&id))
    }

    /// The time by the server's clock of requests.
    pub(crate) fn request_time(&self) -> Time {
        let now = self.shared.clock().now();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        Time::new(seconds, now.subsec_nanos()).unwrap_or(Time::MAX)
    }

    /// As if the server's clock of requests had been so much ahead when it was told, or so much behind: for
    /// tests.
    #[doc(hidden)]
    pub fn shift_clock(&self, by: Duration, is_ahead: bool) {
        let mut clock = self.shared.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.told = if is_ahead { clock.told + by } else { clock.told.saturating_sub(by) };
    }

    /// Asks for the server's clock of requests again. Returns whether a request id made just now has another
    /// time: the machine may have slept, or the server's clock may have been set. Not whether the clock was
    /// changed: another thread may have asked first.
    pub(crate) fn is_of_another_time(&self, id: &[u8]) -> bool {
        let Some(made) = id.first_chunk::<6>() else { return false };
        let made_ms = made.iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte));
        let made = Duration::from_millis(made_ms);
        self.shared.greet().is_ok() && self.shared.clock().now().abs_diff(made) > CLOCK_OFF
    }

    /// The cluster that the database is a node of, as the node at the other end knows it.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if it is no node; `Forbidden` (E1102) without the right `operator`;
    /// `Unreachable` (E1111) if the connection is lost.
    pub fn cluster(&self) -> Result<v1::ClusterReply> {
        let mut admin = self.admin();
        self.wait(async move { admin.cluster(with_deadline(v1::ClusterRequest {}, DEADLINE)).await })
    }

    /// Lets another member of the cluster lead.
    ///
    /// # Errors
    /// `NotLeader` (E1201) if the node at the other end does not lead; `InvalidArgument` (E0201) if `to` is
    /// no other member that votes, or does not answer; `Forbidden` (E1102) without the right `operator`;
    /// `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn transfer_leader(&self, to: u64) -> Result<()> {
        let mut admin = self.admin();
        let request = v1::TransferRequest { to };
        let call = async move { admin.transfer(with_deadline(request, DEADLINE)).await };
        self.wait(call).map_err(in_doubt_if_lost).map(drop)
    }

    /// Removes a member of the cluster for good.
    ///
    /// # Errors
    /// `NotLeader` (E1201) if the node at the other end does not lead; `InvalidArgument` (E0201) if that is
    /// this node, no member, or one without which no majority would be left; `Forbidden` (E1102) without the
    /// right `operator`; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn remove_member(&self, node: u64) -> Result<()> {
        let mut admin = self.admin();
        let request = v1::RemoveMemberRequest { node };
        let call = async move { admin.remove_member(with_deadline(request, DEADLINE)).await };
        self.wait(call).map_err(in_doubt_if_lost).map(drop)
    }

    /// Lets the next calls go to the node that leads the cluster, if it can be reached by TCP as this one is.
    /// Calls that a follower refuses do that by themselves.
    pub fn follow_leader(&self) {
        self.shared.links.look_next_time();
    }

    /// Counts the connections that this client has had.
    pub(crate) fn link_number(&self) -> u64 {
        self.shared.link().number
    }

    /// Its address: of the first connection.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Reads of one state.
    ///
    /// # Errors
    /// Those of the reads; `Unreachable` (E1111) if the connection is lost.
    pub fn read(&self, request: v1::ReadRequest) -> Result<v1::ReadReply> {
        let mut data = self.shared.link().data.clone();
        self.shared.wait(async move { data.read(with_deadline(request, DEADLINE)).await })
    }

    /// One transaction.
    ///
    /// # Errors
    /// Those of the batch; `TooLarge` (E0203) for a longer message than the server takes; `OutcomeUnknown`
    /// (E0401) if the connection is lost before the answer.
    pub fn batch(&self, request: v1::BatchRequest) -> Result<v1::BatchReply> {
        self.try_batch(request).map_err(|failed| failed.error)
    }

    /// As [`Client::batch`], with the number of the operation that failed.
    ///
    /// # Errors
    /// As [`Client::batch`].
    pub fn try_batch(&self, request: v1::BatchRequest) -> std::result::Result<v1::BatchReply, FailedBatch> {
        let bytes_max = self.shared.hello.message_bytes_max;
        if request.encoded_len() as u64 > bytes_max {
            let what =
                format!("the batch takes {} bytes, and the server takes {bytes_max}", request.encoded_len());
            let error = Error::new(Code::TooLarge, what).with_hint("send several smaller ones");
            return Err(FailedBatch { error, operation: None, retry_after: None });
        }
        let until = Instant::now() + LEADER_WITHIN;
        let mut request = Some(request);
        let done = loop {
            // Of one server there is no other that could take it.
            let again = self.shared.links.has_others().then(|| request.clone()).flatten();
            let mut data = self.shared.link().data.clone();
            let this = request.take().expect("it is there for each try");
            let call = async move { data.batch(with_deadline(this, DEADLINE)).await };
            let done = self.shared.runtime.block_on(call);
            let done = done.map_err(|error| FailedBatch { error, operation: None, retry_after: None })?;
            let (Err(refused), Some(again)) = (&done, again) else { break done };
            // Nothing was done, and the next call goes to the node that leads.
            if self.failed(refused).code() != Code::NotLeader || Instant::now() > until {
                break done;
            }
            request = Some(again);
            thread::sleep(LEADER_PAUSE);
        };
        done.map(Response::into_inner).map_err(|status| FailedBatch {
            error: in_doubt_if_lost(self.failed(&status)),
            operation: status::operation(&status),
            retry_after: status::retry_after(&status),
        })
    }

    /// What has become of a batch with a request id.
    ///
    /// # Errors
    /// As [`duramen::requests::outcome`]; `Unreachable` (E1111) if the connection is lost.
    pub fn outcome(&self, request: v1::OutcomeRequest) -> Result<v1::OutcomeReply> {
        let mut data = self.shared.link().data.clone();
        self.shared.wait(async move { data.outcome(with_deadline(request, DEADLINE)).await })
    }

    /// Collections by their names; all of them without any.
    ///
    /// # Errors
    /// `NoSuchTree` (E0901) for an unknown one; `Unreachable` (E1111) if the connection is lost.
    pub fn collections(&self, names: Vec<String>) -> Result<Vec<v1::Collection>> {
        let mut schema = self.shared.link().schema.clone();
        let request = v1::CollectionsRequest { names };
        let reply =
            self.shared.wait(async move { schema.collections(with_deadline(request, DEADLINE)).await })?;
        Ok(reply.collections)
    }

    /// Creates the collection of a type, or fits it to the type.
    ///
    /// # Errors
    /// Those of the change; `OutcomeUnknown` (E0401) if the connection is lost before the answer: it can be
    /// repeated.
    pub fn ensure_type(&self, request: v1::EnsureTypeRequest) -> Result<v1::EnsureTypeReply> {
        let mut schema = self.shared.link().schema.clone();
        let done =
            self.shared.wait(async move { schema.ensure_type(with_deadline(request, DEADLINE)).await });
        done.map_err(in_doubt_if_lost)
    }

    /// Removes a collection with all its documents.
    ///
    /// # Errors
    /// Those of the change; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn drop_collection(&self, request: v1::DropCollectionRequest) -> Result<v1::DropCollectionReply> {
        let mut schema = self.shared.link().schema.clone();
        let done =
            self.shared.wait(async move { schema.drop_collection(with_deadline(request, DEADLINE)).await });
        done.map_err(in_doubt_if_lost)
    }

    /// Adds a view.
    ///
    /// # Errors
    /// Those of the change; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn add_view(&self, request: v1::AddViewRequest) -> Result<v1::AddViewReply> {
        let mut schema = self.shared.link().schema.clone();
        let done = self.shared.wait(async move { schema.add_view(with_deadline(request, DEADLINE)).await });
        done.map_err(in_doubt_if_lost)
    }

    /// Removes a view with its rows.
    ///
    /// # Errors
    /// Those of the change; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn drop_view(&self, request: v1::DropViewRequest) -> Result<v1::DropViewReply> {
        let mut schema = self.shared.link().schema.clone();
        let done = self.shared.wait(async move { schema.drop_view(with_deadline(request, DEADLINE)).await });
        done.map_err(in_doubt_if_lost)
    }

    /// Builds a view anew.
    ///
    /// # Errors
    /// Those of the change; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn rebuild_view(&self, request: v1::RebuildViewRequest) -> Result<v1::RebuildViewReply> {
        let mut schema = self.shared.link().schema.clone();
        let done =
            self.shared.wait(async move { schema.rebuild_view(with_deadline(request, DEADLINE)).await });
        done.map_err(in_doubt_if_lost)
    }

    /// The views of these collections, and how far they are built; without any name, of all.
    ///
    /// # Errors
    /// `NoSuchTree` (E0901) for an unknown collection; `Unreachable` (E1111) if the connection is lost.
    pub fn views(&self, collections: Vec<String>) -> Result<Vec<v1::ViewState>> {
        let mut schema = self.shared.link().schema.clone();
        let request = v1::ViewsRequest { collections };
        Ok(self.shared.wait(async move { schema.views(with_deadline(request, DEADLINE)).await })?.views)
    }

    /// Builds the views of a collection for a moment. Call it until they are complete. If `view` names one,
    /// errors of other views are not reported once that one is complete.
    ///
    /// # Errors
    /// Those of the build; `Unreachable` (E1111) if the connection is lost.
    pub fn build_views(&self, collection: &str, view: &str) -> Result<v1::BuildViewsReply> {
        let mut schema = self.shared.link().schema.clone();
        let request = v1::BuildViewsRequest { collection: collection.to_owned(), view: view.to_owned() };
        self.shared.wait(async move { schema.build_views(with_deadline(request, DEADLINE)).await })
    }

    /// What the database consists of, how long commits take, and what is in their way.
    ///
    /// # Errors
    /// Those of a read; `Unreachable` (E1111) if the connection is lost.
    pub fn stats(&self, within: Duration) -> Result<v1::StatsReply> {
        let mut admin = self.shared.link().admin.clone();
        self.shared.wait(async move { admin.stats(with_deadline(v1::StatsRequest {}, within)).await })
    }

    /// The documents of a range, or what a query finds.
    ///
    /// # Errors
    /// Those of the scan; `Unreachable` (E1111) if the connection is lost.
    pub fn scan(&self, request: v1::ScanRequest) -> Result<Scanned> {
        let mut data = self.shared.link().data.clone();
        let messages =
            self.shared.wait(async move { data.scan(with_deadline(request, SCAN_DEADLINE)).await })?;
        Ok(Scanned { client: self.clone(), messages })
    }

    /// The changes of commits, whole and in their order, then those to come.
    ///
    /// # Errors
    /// Those of [reading changes](duramen::Error#changes); `NoSuchKey` (E0903) for an unknown consumer;
    /// `Overloaded` (E1103); `Unreachable` (E1111) if the connection is lost.
    pub fn watch(&self, request: v1::WatchRequest) -> Result<Watched> {
        let mut feed = self.shared.link().feed.clone();
        let messages = self.shared.wait(async move { feed.watch(request).await })?;
        Ok(Watched { client: self.clone(), messages })
    }

    /// Registers a consumer of changes. One that exists keeps its position.
    ///
    /// # Errors
    /// As [`duramen::ConsumerOptions::register`]; `OutcomeUnknown` (E0401) if the connection is lost before
    /// the answer: it can be repeated.
    pub fn register_consumer(&self, request: v1::RegisterConsumerRequest) -> Result<v1::Consumer> {
        let mut feed = self.shared.link().feed.clone();
        let call = async move { feed.register_consumer(with_deadline(request, DEADLINE)).await };
        let reply = self.shared.wait(call).map_err(in_doubt_if_lost)?;
        reply.consumer.ok_or_else(|| {
            Error::new(Code::WrongVersion, "the server's answer has no consumer")
                .with_hint("use a server and a client of the same release")
        })
    }

    /// Moves the position of a consumer.
    ///
    /// # Errors
    /// As [`duramen::Consumer::seek`]; `OutcomeUnknown` (E0401) if the connection is lost before the answer.
    pub fn seek_consumer(&self, name: &str, after: v1::Token) -> Result<()> {
        let mut feed = self.shared.link().feed.clone();
        let request = v1::SeekConsumerRequest { name: name.to_owned(), after: Some(after) };
        let call = async move { feed.seek_consumer(with_deadline(request, DEADLINE)).await };
        self.shared.wait(call).map_err(in_doubt_if_lost).map(drop)
    }

    /// Ends a consumer. Returns whether it was registered.
    ///
    /// # Errors
    /// Those of a [commit](duramen::Error#commits).
    pub fn unregister_consumer(&self, name: &str) -> Result<bool> {
        let mut feed = self.shared.link().feed.clone();
        let request = v1::UnregisterConsumerRequest { name: name.to_owned() };
        let call = async move { feed.unregister_consumer(with_deadline(request, DEADLINE)).await };
        Ok(self.shared.wait(call).map_err(in_doubt_if_lost)?.was_there)
    }

    /// All consumers, by name.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads); `Unreachable` (E1111) if the connection is lost.
    pub fn consumers(&self) -> Result<Vec<v1::Consumer>> {
        let mut feed = self.shared.link().feed.clone();
        let call = async move { feed.consumers(with_deadline(v1::ConsumersRequest {}, DEADLINE)).await };
        Ok(self.shared.wait(call)?.consumers)
    }

    pub(crate) fn failed(&self, status: &Status) -> Error {
        self.shared.failed(status)
    }

    /// As [`Client::failed`], without what it says about the server.
    pub(crate) fn error_of(&self, status: &Status) -> Error {
        self.shared.error_of(status)
    }

    /// Notes what an error says about the server, which has come in the place of an answer.
    pub(crate) fn note(&self, error: Error) -> Error {
        self.shared.links.note(error)
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    pub(crate) fn wait<T>(
        &self,
        call: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        self.shared.wait(call)
    }

    /// The calls of the service `Admin`.
    pub(crate) fn admin(&self) -> AdminClient<Calls> {
        self.shared.link().admin.clone()
    }

    /// The calls of the service `Blobs`.
    pub(crate) fn blobs(&self) -> BlobsClient<Calls> {
        self.shared.link().blobs.clone()
    }

    /// The calls of the service `Blobs`, on a connection of its own.
    pub(crate) fn uploads(&self) -> Result<BlobsClient<Calls>> {
        let link = self.shared.link();
        let mut uploads = link.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uploads) = &*uploads {
            return Ok(uploads.clone());
        }
        let connected = self.runtime().block_on(connect::connect(&link.address))??;
        Ok(uploads.insert(BlobsClient::new(link::calls(connected, &MaxAge::default())?)).clone())
    }

    /// The calls of the service `Data`.
    pub(crate) fn data(&self) -> DataClient<Calls> {
        self.shared.link().data.clone()
    }
}

impl Shared {
    fn greet(&self) -> Result<v1::HelloReply> {
        let link = self.links.now();
        let hello = self.runtime.block_on(link.greet(DEADLINE))?.map_err(|status| self.failed(&status))?;
        self.links.learn(&link.address, &hello);
        self.set_clock(&hello);
        Ok(hello)
    }

    fn clock(&self) -> Clock {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<T>(&self, call: impl Future<Output = std::result::Result<Response<T>, Status>>) -> Result<T> {
        self.runtime.block_on(call)?.map(Response::into_inner).map_err(|status| self.failed(&status))
    }

    /// The connection for a call.
    fn link(&self) -> Arc<Link> {
        let (link, hello) = self.links.for_call(&self.runtime);
        if let Some(hello) = hello {
            self.set_clock(&hello);
        }
        link
    }

    fn set_clock(&self, hello: &v1::HelloReply) {
        let told = hello.request_clock.unwrap_or_default();
        let told = Duration::new(u64::try_from(told.seconds).unwrap_or(0), told.nanoseconds);
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Clock { told, at: Instant::now() };
    }

    fn failed(&self, status: &Status) -> Error {
        let error = self.error_of(status);
        self.links.note(error)
    }

    fn error_of(&self, status: &Status) -> Error {
        status::error(status).unwrap_or_else(|| {
            let cause = match std::error::Error::source(status) {
                Some(cause) => connect::why(cause),
                None => status.message().to_owned(),
            };
            if connect::is_of_own_certificate(&cause) {
                return connect::refused_certificate(&self.address.to_string(), &cause);
            }
            let why = format!("the server at {} gave no answer: {cause}", self.address);
            let hint = match self.address {
                Address::Tcp { tls: None, .. } => {
                    "look whether it still runs, and try again; a server with TLS is duramens://HOST:PORT"
                }
                _ => "look whether it still runs, and try again",
            };
            Error::new(Code::Unreachable, why).with_hint(hint)
        })
    }
}

/// Why a batch failed.
#[derive(Debug)]
pub struct FailedBatch {
    /// The error.
    pub error: Error,
    /// The number of the operation that failed, from 1; `None` if no single one did.
    pub operation: Option<usize>,
    /// The server asks to try again after this time.
    pub retry_after: Option<Duration>,
}

/// The messages of a scan.
#[derive(Debug)]
pub struct Scanned {
    client: Client,
    messages: Streaming<v1::ScanReply>,
}

impl Scanned {
    /// The next message; `None` after the last.
    ///
    /// # Errors
    /// Those of the scan; `Unreachable` (E1111) if the connection is lost.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and then ends")]
    pub fn next(&mut self) -> Result<Option<v1::ScanReply>> {
        let message = self.client.runtime().block_on(self.messages.next())?;
        message.transpose().map_err(|status| self.client.failed(&status))
    }
}

/// The messages of a watch.
#[derive(Debug)]
pub struct Watched {
    client: Client,
    messages: Streaming<v1::WatchReply>,
}

impl Watched {
    /// The next message; waits for one. `None` after the last, if the watch was to end.
    ///
    /// # Errors
    /// Those of [reading changes](duramen::Error#changes); `SnapshotExpired` (E0801) if no message was taken
    /// for too long; `Draining` (E1106); `Unreachable` (E1111) if the connection is lost.
    #[expect(clippy::should_implement_trait, reason = "it can fail, and then ends")]
    pub fn next(&mut self) -> Result<Option<v1::WatchReply>> {
        let message = self.client.runtime().block_on(self.messages.next())?;
        message.transpose().map_err(|status| self.client.failed(&status))
    }

    /// As [`Watched::next`], which waits for at most `within`: the outer `None` says that nothing came.
    ///
    /// # Errors
    /// As [`Watched::next`].
    pub fn next_within(&mut self, within: Duration) -> Result<Option<Option<v1::WatchReply>>> {
        let next = async { tokio::time::timeout(within, self.messages.next()).await };
        let Ok(message) = self.client.runtime().block_on(next)? else { return Ok(None) };
        message.transpose().map(Some).map_err(|status| self.client.failed(&status))
    }
}

pub(crate) fn with_deadline<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}

/// The connection may have been lost after the call went out.
pub(crate) fn in_doubt_if_lost(error: Error) -> Error {
    if error.code() != Code::Unreachable {
        return error;
    }
    Error::new(Code::OutcomeUnknown, format!("the transaction may or may not survive: {}", error.message()))
        .with_hint("look whether the change is there before repeating it")
}
