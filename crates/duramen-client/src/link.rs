//! The connection that calls go over, and which server it leads to.
//!
//! A database on one server has one. Of a cluster one node takes writes: after a call that was refused by
//! another, or was not answered, the next call looks for the node that leads. Whether the call itself is
//! repeated is for its caller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen_proto::v1::admin_client::AdminClient;
use duramen_proto::v1::blobs_client::BlobsClient;
use duramen_proto::v1::data_client::DataClient;
use duramen_proto::v1::feed_client::FeedClient;
use duramen_proto::v1::schema_client::SchemaClient;
use duramen_proto::{MESSAGE_BYTES_MAX, VERSIONS, v1};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;

use crate::address::Address;
use crate::client::{Calls, Headers, MaxAge, with_deadline};
use crate::connect::{self, Connected};
use crate::runtime::Runtime;

/// A node that has not taken a connection and greeted by then is passed over.
const GREETING_MAX: Duration = Duration::from_secs(2);

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) data: DataClient<Calls>,
    pub(crate) schema: SchemaClient<Calls>,
    pub(crate) feed: FeedClient<Calls>,
    pub(crate) blobs: BlobsClient<Calls>,
    /// On a connection of its own, once there was an upload.
    pub(crate) uploads: Mutex<Option<BlobsClient<Calls>>>,
    pub(crate) admin: AdminClient<Calls>,
    pub(crate) address: Address,
    /// Counts the connections of a client.
    pub(crate) number: u64,
}

impl Link {
    pub(crate) async fn open(address: &Address, number: u64, max_age: &MaxAge) -> Result<Link> {
        let calls = calls(connect::connect(address).await?, max_age)?;
        let (data, schema) = (DataClient::new(calls.clone()), SchemaClient::new(calls.clone()));
        Ok(Link {
            data: data.max_decoding_message_size(MESSAGE_BYTES_MAX),
            schema: schema.max_decoding_message_size(MESSAGE_BYTES_MAX),
            feed: FeedClient::new(calls.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            blobs: BlobsClient::new(calls.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
            uploads: Mutex::default(),
            admin: AdminClient::new(calls).max_decoding_message_size(MESSAGE_BYTES_MAX),
            address: address.clone(),
            number,
        })
    }

    /// Greets the server.
    pub(crate) async fn greet(&self, within: Duration) -> std::result::Result<v1::HelloReply, tonic::Status> {
        let hello = v1::HelloRequest {
            version_min: *VERSIONS.start(),
            version_max: *VERSIONS.end(),
            client: format!("duramen {}", env!("CARGO_PKG_VERSION")),
        };
        let mut data = self.data.clone();
        data.hello(with_deadline(hello, within)).await.map(tonic::Response::into_inner)
    }
}

/// The calls of a connection.
pub(crate) fn calls(Connected { channel, token }: Connected, max_age: &MaxAge) -> Result<Calls> {
    let token = token.map(|token| format!("Bearer {token}").parse::<MetadataValue<Ascii>>()).transpose();
    let token = token.map_err(|_| Error::invalid("the token has characters that no token has"))?;
    let token = token.map(|mut token| {
        token.set_sensitive(true);
        token
    });
    Ok(InterceptedService::new(channel, Headers { token, max_age: Arc::clone(max_age) }))
}

/// The connection of a client, and the servers that it knows.
#[derive(Debug)]
pub(crate) struct Links {
    now: RwLock<Arc<Link>>,
    opened: AtomicU64,
    pub(crate) max_age: MaxAge,
    /// The next call looks for the node that leads.
    wants_leader: AtomicBool,
    /// Where members of the cluster serve.
    known: Mutex<Vec<Address>>,
    /// Where the node serves that leads, as a server has last said.
    leader: Mutex<String>,
    /// The id of the database, or of the cluster.
    database: OnceLock<bytes::Bytes>,
}

impl Links {
    pub(crate) fn new(first: Link, max_age: MaxAge) -> Links {
        let known = vec![first.address.clone()];
        Links {
            now: RwLock::new(Arc::new(first)),
            opened: AtomicU64::new(0),
            max_age,
            wants_leader: AtomicBool::new(false),
            known: Mutex::new(known),
            leader: Mutex::default(),
            database: OnceLock::new(),
        }
    }

    /// The connection as it is.
    pub(crate) fn now(&self) -> Arc<Link> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connection for a call: to the node that leads, if a call before has shown that this one does not.
    /// Then also what the server there has said, if it is another one.
    pub(crate) fn for_call(&self, runtime: &Runtime) -> (Arc<Link>, Option<v1::HelloReply>) {
        let mut hello = None;
        if self.wants_leader.swap(false, Ordering::AcqRel) {
            // Without a leader the call fails as the one before.
            hello = runtime.block_on(self.look_for_leader()).unwrap_or_default();
        }
        (self.now(), hello)
    }

    /// Notes what an error says about the server, and adds to it where the leader is, if that is known.
    pub(crate) fn note(&self, error: Error) -> Error {
        let is_of_node = matches!(
            error.code(),
            Code::NotLeader | Code::NoQuorum | Code::StateTooOld | Code::Unreachable | Code::Draining
        );
        if is_of_node && self.has_others() {
            self.look_next_time();
        }
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if error.code() != Code::NotLeader || leader.is_empty() {
            return error;
        }
        error.with_hint(format!("the node that leads serves {leader}: go there, as a user of the database"))
    }

    /// The next call looks for the node that leads.
    pub(crate) fn look_next_time(&self) {
        self.wants_leader.store(true, Ordering::Release);
    }

    /// Whether another server is known.
    pub(crate) fn has_others(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len() > 1
    }

    /// Notes where the members of the cluster serve.
    pub(crate) fn learn(&self, of: &Address, hello: &v1::HelloReply) {
        self.database.get_or_init(|| hello.database_id.clone());
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&hello.leader);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for address in hello.members.iter().filter_map(|member| beside(of, member)) {
            let is_known = known.iter().any(|known| known.to_string() == address.to_string());
            if !is_known {
                known.push(address);
            }
        }
    }

    /// Asks the nodes in turn, the present one first, then the one that it takes for the leader. Connects
    /// to the one that leads, or else to one that answers. Returns what a new one has said.
    async fn look_for_leader(&self) -> Option<v1::HelloReply> {
        let present = self.now();
        let told = tokio::time::timeout(GREETING_MAX, present.greet(GREETING_MAX)).await;
        let told = told.ok().and_then(std::result::Result::ok);
        if let Some(hello) = &told {
            self.learn(&present.address, hello);
            if hello.takes_writes {
                return None;
            }
        }
        let mut named = told.as_ref().and_then(|hello| beside(&present.address, &hello.leader));
        let mut left = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        left.retain(|known| known.to_string() != present.address.to_string());
        let mut answers = None;
        while let Some(address) = named.take().or_else(|| left.pop()) {
            left.retain(|known| known.to_string() != address.to_string());
            let Some((link, hello)) = self.try_to_open(&address).await else { continue };
            if hello.takes_writes {
                self.set(link);
                return Some(hello);
            }
            named = beside(&address, &hello.leader)
                .filter(|leader| left.iter().any(|known| known.to_string() == leader.to_string()));
            answers = Some((link, hello));
        }
        // The present one is as good as others that do not lead, if it answers.
        let (link, hello) = answers.filter(|_| told.is_none())?;
        self.set(link);
        Some(hello)
    }

    async fn try_to_open(&self, address: &Address) -> Option<(Link, v1::HelloReply)> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let opened = async {
            let link = Link::open(address, number, &self.max_age).await.ok()?;
            let hello = link.greet(GREETING_MAX).await.ok()?;
            Some((link, hello))
        };
        let (link, hello) = tokio::time::timeout(GREETING_MAX, opened).await.ok()??;
        if self.database.get().is_some_and(|database| *database != hello.database_id) {
            // Another database is served there now.
            return None;
        }
        self.learn(address, &hello);
        Some((link, hello))
    }

    fn set(&self, link: Link) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(link);
    }
}

/// The server at `HOST:PORT`, reached as another one of its cluster is; `None` for no address, or if that one
/// is not reached by TCP.
fn beside(of: &Address, at: &str) -> Option<Address> {
    let Address::Tcp { token, tls, .. } = of else { return None };
    let (host, port) = at.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Address::Tcp { host, port: port.parse().ok()?, token: token.clone(), tls: tls.clone() })
}
