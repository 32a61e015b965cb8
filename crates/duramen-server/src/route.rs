//! From a request of HTTP/2 to the service that answers it.
//!
//! In this order, each before the body is read: the user, whether the server stops, the deadline. hyper drops
//! the future of a call whose client is gone, at any `await`: everything that a call holds is a guard. A
//! commit that has begun on a thread goes on without it.

use std::convert::Infallible;
use std::sync::Arc;

use duramen::error::{Code, Error};
use duramen_proto::v1::{admin_server, blobs_server, data_server, feed_server, schema_server};
use duramen_proto::{MESSAGE_BYTES_MAX, status};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::timeout_at;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::admin::AdminService;
use crate::auth::{Auth, Peer};
use crate::blobs::kept::KeptUploads;
use crate::blobs::{BlobService, UPLOAD_BYTES_MAX};
use crate::call::{self, Call};
use crate::data::{DataService, refused};
use crate::feed::FeedService;
use crate::limit::body::{ReplyBody, RequestBody, Takes};
use crate::limit::budget::{Budget, Holder};
use crate::limit::entrance::Entered;
use crate::limit::places::{Class, Places};
use crate::limit::{DEADLINE_MAX, Limits, UPLOAD_MAX};
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
    /// Of the listeners of TCP, if they have it.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    pub(crate) uploads: Arc<KeptUploads>,
    pub(crate) places: Arc<Places>,
    pub(crate) budget: Arc<Budget>,
    /// Whether the server goes down.
    pub(crate) draining: watch::Receiver<bool>,
    pub(crate) services: Box<dyn Dispatch>,
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

/// Changes for as long as the client wants them.
const WATCH: &str = "/duramen.v1.Feed/Watch";

/// Blobs, piece by piece.
const UPLOAD: &str = "/duramen.v1.Blobs/Upload";

/// Transactions of several messages.
const TRANSACT: &str = "/duramen.v1.Data/Transact";

/// The name of the service in a path.
fn service_of(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.split_once('/').map(|(service, _)| service)
}

/// What a call takes, by its path.
fn class_of(path: &str) -> Class {
    match path {
        "/duramen.v1.Data/Scan" | "/duramen.v1.Blobs/Download" | "/duramen.v1.Schema/BuildViews" => {
            Class::Bulk
        }
        "/duramen.v1.Data/Hello" | "/duramen.v1.Admin/Stats" => Class::Control,
        _ if path.starts_with("/duramen.v1.") => Class::Calls,
        _ => Class::Control,
    }
}

/// Answers one request of a connection.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    holder: Arc<Holder>,
    entered: Arc<Entered>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let class = class_of(request.uri().path());
    // What ends by itself if it is not read.
    let is_stream = class == Class::Bulk || request.uri().path() == WATCH;
    let reply = |response: Response<Body>, call: Option<Call>| {
        response.map(|body| ReplyBody::new(body, &holder, is_stream, call))
    };
    let call = match begin(&shared, &peer, request.uri().path(), &holder, request.headers()) {
        Ok(call) => call,
        Err(status) => return Ok(reply(status.into_http(), None)),
    };
    entered.set_known();
    let (mut head, body) = request.into_parts();
    head.extensions.insert(call.clone());
    let takes = shared.services.takes(head.uri.path());
    let request = Request::from_parts(head, RequestBody::new(body, &holder, &call.charges, takes));
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
    // A scan keeps its place as long as its reply.
    if class != Class::Bulk {
        call.give_place_back();
    }
    Ok(reply(response, Some(call)))
}

/// Everything before the body is read.
fn begin(
    shared: &Shared,
    peer: &Peer,
    path: &str,
    holder: &Arc<Holder>,
    headers: &HeaderMap,
) -> Result<Call, Status> {
    let class = class_of(path);
    let caller = shared.auth.caller(peer, headers).map_err(refused)?;
    if class != Class::Control && *shared.draining.borrow() {
        let error = Error::new(Code::Draining, "the server is going down")
            .with_hint("nothing was changed: try again in a moment, when it is up again");
        return Err(refused(error));
    }
    let (usual, most) = match path {
        UPLOAD => (UPLOAD_MAX, UPLOAD_MAX),
        TRANSACT => (DEADLINE_MAX, DEADLINE_MAX),
        _ if class == Class::Bulk => (DEADLINE_MAX, DEADLINE_MAX),
        _ => (shared.limits.deadline, DEADLINE_MAX),
    };
    // That of a watch is for its beginning: it has no end.
    let headers = if path == WATCH { &HeaderMap::new() } else { headers };
    let deadline = call::deadline(headers, usual, most).map_err(refused)?;
    Ok(Call::new(caller, deadline, (&shared.uploads, &shared.places), class, holder))
}
