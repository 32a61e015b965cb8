//! From a request of HTTP/2 to the service that answers it.
//!
//! In this order, each before the body is read: the user, whether the server stops, the deadline. hyper drops
//! the future of a call whose client is gone, at any `await`: everything that a call holds is a guard. A
//! commit that has begun on a thread goes on without it.

use std::convert::Infallible;
use std::sync::Arc;

use duramen::error::{Code, Error};
use duramen_proto::freshness::Freshness;
use duramen_proto::v1::{admin_server, blobs_server, data_server, feed_server, schema_server};
use duramen_proto::{MESSAGE_BYTES_MAX, status};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::admin::AdminService;
use crate::audit::{Audit, Event};
use crate::auth::Auth;
use crate::blobs::kept::KeptUploads;
use crate::blobs::{BlobService, UPLOAD_BYTES_MAX};
use crate::call::{self, Call};
use crate::cluster::{self, Cluster};
use crate::connection::Client;
use crate::data::{DataService, refused};
use crate::feed::FeedService;
use crate::limit::body::{ReplyBody, RequestBody, Takes};
use crate::limit::budget::Budget;
use crate::limit::places::{Class, Places};
use crate::limit::{DEADLINE_MAX, LONG_MAX, Limits};
use crate::schema::SchemaService;
use crate::tls::Tls;

/// The services of a server.
#[derive(Clone)]
pub(crate) struct Services<H, R, A> {
    pub(crate) data: data_server::DataServer<DataService>,
    pub(crate) schema: schema_server::SchemaServer<SchemaService>,
    pub(crate) blobs: blobs_server::BlobsServer<BlobService>,
    pub(crate) feed: feed_server::FeedServer<FeedService>,
    pub(crate) admin: admin_server::AdminServer<AdminService>,
    pub(crate) health: H,
    pub(crate) reflection: R,
    /// The version of reflection before, which `ghz` asks.
    pub(crate) reflection_alpha: A,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) auth: Auth,
    pub(crate) audit: Arc<Audit>,
    /// Of the listeners of TCP, if they have it.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    pub(crate) uploads: Arc<KeptUploads>,
    pub(crate) places: Arc<Places>,
    pub(crate) budget: Arc<Budget>,
    /// Whether the server goes down.
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) services: Box<dyn Dispatch>,
    pub(crate) cluster: Option<Arc<dyn Cluster>>,
}

/// A reply, with what its call holds.
pub(crate) type Reply = Response<ReplyBody<Option<Call>>>;

type Answering = std::pin::Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// Hands a request to the service that its path names.
pub(crate) trait Dispatch: Send + Sync {
    /// The answer, on its way; `None` if no service has the path.
    fn dispatch(&self, request: Request<RequestBody>) -> Option<Answering>;

    /// What the calls of a path take.
    fn takes(&self, path: &str) -> Takes;
}

impl<H, R, A> Dispatch for Services<H, R, A>
where
    H: NamedService + Clone + Send + Sync + 'static,
    H: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>,
    R: NamedService + Clone + Send + Sync + 'static,
    R: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>,
    A: NamedService + Clone + Send + Sync + 'static,
    A: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>,
{
    fn takes(&self, path: &str) -> Takes {
        let is_reflection = service_of(path).is_some_and(|service| [R::NAME, A::NAME].contains(&service));
        match path {
            UPLOAD => Takes { is_stream: true, is_charged: false, message_max: UPLOAD_BYTES_MAX },
            _ => Takes {
                is_stream: is_reflection || path == TRANSACT,
                is_charged: true,
                message_max: MESSAGE_BYTES_MAX,
            },
        }
    }

    fn dispatch(&self, request: Request<RequestBody>) -> Option<Answering> {
        let service = service_of(request.uri().path())?;
        Some(if service == data_server::DataServer::<DataService>::NAME {
            answering(self.data.clone(), request)
        } else if service == schema_server::SchemaServer::<SchemaService>::NAME {
            answering(self.schema.clone(), request)
        } else if service == blobs_server::BlobsServer::<BlobService>::NAME {
            answering(self.blobs.clone(), request)
        } else if service == feed_server::FeedServer::<FeedService>::NAME {
            answering(self.feed.clone(), request)
        } else if service == admin_server::AdminServer::<AdminService>::NAME {
            answering(self.admin.clone(), request)
        } else if service == H::NAME {
            answering(self.health.clone(), request)
        } else if service == R::NAME {
            answering(self.reflection.clone(), request)
        } else if service == A::NAME {
            answering(self.reflection_alpha.clone(), request)
        } else {
            return None;
        })
    }
}

fn answering<S>(mut service: S, request: Request<RequestBody>) -> Answering
where
    S: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>,
    S: Send + 'static,
{
    Box::pin(async move {
        // The services are always ready.
        match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    })
}

/// Steps of building views.
const BUILD_VIEWS: &str = "/duramen.v1.Schema/BuildViews";

/// Changes for as long as the client wants them.
const WATCH: &str = "/duramen.v1.Feed/Watch";

/// Blobs, piece by piece.
const UPLOAD: &str = "/duramen.v1.Blobs/Upload";

/// The whole database, part by part.
const BACKUP: &str = "/duramen.v1.Admin/Backup";

/// Transactions of several messages.
const TRANSACT: &str = "/duramen.v1.Data/Transact";

/// The name of the service in a path.
fn service_of(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.split_once('/').map(|(service, _)| service)
}

/// What a call takes, by its path.
fn class_of(path: &str) -> Class {
    match path {
        "/duramen.v1.Data/Scan" | "/duramen.v1.Blobs/Download" | BUILD_VIEWS | BACKUP => Class::Bulk,
        "/duramen.v1.Data/Hello" | "/duramen.v1.Admin/Stats" | "/duramen.v1.Admin/Cluster" => Class::Control,
        _ if path.starts_with("/duramen.v1.") => Class::Calls,
        _ => Class::Control,
    }
}

/// Whether what a call sees must be the newest state of a cluster, and not only of this node. Batches and
/// the transactions of a stream see to it themselves.
fn sees_the_newest(path: &str) -> bool {
    const OF_THIS_NODE: [&str; 5] =
        ["Data/Hello", "Admin/Stats", "Admin/Cluster", "Admin/Transfer", "Admin/RemoveMember"];
    const BY_THEMSELVES: [&str; 2] = ["Data/Batch", "Data/Transact"];
    path.strip_prefix("/duramen.v1.")
        .is_some_and(|call| !OF_THIS_NODE.contains(&call) && !BY_THEMSELVES.contains(&call))
}

/// Whether a call only reads the database, so that it may see an older state if its header says so.
fn may_be_old(path: &str) -> bool {
    const READS: [&str; 8] = [
        "Data/Read",
        "Data/Scan",
        "Blobs/Download",
        "Blobs/Info",
        "Blobs/List",
        "Schema/Collections",
        "Schema/Views",
        "Admin/Backup",
    ];
    path.strip_prefix("/duramen.v1.").is_some_and(|call| READS.contains(&call))
}

/// Answers one request of a connection.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let path = request.uri().path();
    let takes = shared.services.takes(path);
    let is_long = class_of(path) == Class::Bulk && path != BUILD_VIEWS;
    // What ends by itself if it is not read.
    let is_stream = is_long || path == WATCH;
    let reply = |response: Response<Body>, call: Option<Call>| {
        let charges = call.as_ref().filter(|_| !takes.is_stream);
        let charges = charges.map(|call| Arc::clone(&call.charges));
        response.map(|body| ReplyBody::new(body, &client.holder, is_stream, charges, call))
    };
    let call = match begin(&shared, &client, request.uri().path(), request.headers()).await {
        Ok(call) => call,
        Err(error) => {
            // What a stranger calls it may have made up.
            if let code @ (Code::Unauthenticated | Code::Forbidden) = error.code() {
                let (what, from) = ("refused".to_owned(), client.place.to_string());
                shared.audit.tell(Event { what, from, code: Some(code.to_string()), ..Event::default() });
            }
            return Ok(reply(refused(error).into_http(), None));
        }
    };
    client.entered.set_known();
    let is_owner = client.peer.is_local() && call.caller.is_admin();
    if !is_owner && client.entered.is_first(call.caller.shown()) {
        let (actor, on) = (call.actor(), call.caller.shown());
        let login = "login".to_owned();
        shared.audit.tell(Event { what: login, user: actor.user, from: actor.from, on, ..Event::default() });
    }
    let (mut head, body) = request.into_parts();
    head.extensions.insert(call.clone());
    let request = Request::from_parts(head, RequestBody::new(body, &client.holder, &call.charges, takes));
    let seen_by_all = shared.cluster.as_ref().filter(|_| sees_the_newest(request.uri().path()));
    if let Some(cluster) = seen_by_all
        && let Err(error) = cluster::catch_up(&**cluster, &call).await
    {
        call.give_place_back();
        return Ok(reply(refused(error).into_http(), Some(call)));
    }
    let Some(answering) = shared.services.dispatch(request) else {
        return Ok(reply(Status::unimplemented("there is no such service").into_http(), None));
    };
    let waits = call.waits();
    let response = match timeout_at(call.answer_by(), answering).await {
        Ok(response) => {
            waits.end();
            response
        }
        Err(_) if call.has_begun() => status::of(&call::in_doubt()).into_http(),
        Err(_) => status::of(&call::deadline_passed()).into_http(),
    };
    if let Some(code) = refusal(&response) {
        call.tell_if_refused(code);
    }
    // A scan keeps its place as long as its reply.
    if !is_long {
        call.give_place_back();
    }
    Ok(reply(response, Some(call)))
}

/// The code of an answer that says that the caller may not do what it asked for.
fn refusal(response: &Response<Body>) -> Option<Code> {
    let status = response.headers().get("grpc-status")?;
    [(tonic::Code::PermissionDenied, Code::Forbidden), (tonic::Code::Unauthenticated, Code::Unauthenticated)]
        .into_iter()
        .find(|(grpc, _)| status.as_bytes() == i32::from(*grpc).to_string().as_bytes())
        .map(|(_, code)| code)
}

/// What a call is charged for as long as it lasts, beside its headers and its messages: a client may begin
/// many, and send no message.
const CALL_BYTES: usize = 2 << 10;

/// The memory that headers take.
fn bytes_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + size_of::<HeaderValue>()).sum()
}

/// Everything before the body is read.
async fn begin(shared: &Shared, client: &Client, path: &str, headers: &HeaderMap) -> Result<Call, Error> {
    let class = class_of(path);
    let caller = shared.auth.caller(&client.peer, headers)?;
    if class != Class::Control && *shared.draining.borrow() {
        let error = Error::new(Code::Draining, "the server is going down")
            .with_hint("nothing was changed: try again in a moment, when it is up again");
        return Err(error);
    }
    let (usual, most) = match path {
        UPLOAD | BACKUP => (LONG_MAX, LONG_MAX),
        TRANSACT => (DEADLINE_MAX, DEADLINE_MAX),
        _ if class == Class::Bulk => (DEADLINE_MAX, DEADLINE_MAX),
        _ => (shared.limits.deadline, DEADLINE_MAX),
    };
    // That of a watch is for its beginning: it has no end.
    let timed = if path == WATCH { &HeaderMap::new() } else { headers };
    let deadline = call::deadline(timed, usual, most)?;
    let may_be_old = shared.cluster.is_some() && may_be_old(path);
    let freshness = if may_be_old { cluster::freshness(headers)? } else { Freshness::Newest };
    let held = client.holder.take(CALL_BYTES + bytes_of(headers)).await?;
    let (caller, kept) = ((caller, &client.place, path), (&shared.uploads, &shared.places));
    Ok(Call::new(caller, &shared.audit, (deadline, freshness), kept, class, &client.holder, held))
}
