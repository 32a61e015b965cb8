//! Starting and stopping a server.
//!
//! A server has a runtime of its own, so that an embedding program needs none. It never closes the database:
//! that is its owner's.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duramen::Db;
use duramen::error::{Code, Error, Result};
use duramen_proto::discovery::Serving;
use duramen_proto::v1::admin_server::AdminServer;
use duramen_proto::v1::blobs_server::BlobsServer;
use duramen_proto::v1::data_server::DataServer;
use duramen_proto::v1::feed_server::FeedServer;
use duramen_proto::v1::schema_server::SchemaServer;
use duramen_proto::{DESCRIPTORS, MESSAGE_BYTES_MAX};
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use crate::admin::AdminService;
use crate::auth::{Auth, Directory};
use crate::blobs::kept::KeptUploads;
use crate::blobs::{BlobService, UPLOAD_BYTES_MAX};
use crate::data::DataService;
use crate::discover::{self, Notice, Socket};
use crate::feed::FeedService;
use crate::limit::Limits;
use crate::limit::budget::Budget;
use crate::limit::places::Places;
use crate::listen::{self, Listeners};
use crate::route::{Services, Shared};
use crate::schema::SchemaService;

/// A message to health or reflection: names.
const SMALL_BYTES_MAX: usize = 4 << 10;

/// Beyond the grace of calls: for what is left of connections.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Lets the command line of this machine use an open database, until the returned server is dropped.
///
/// ```no_run
/// # fn main() -> duramen::Result<()> {
/// let db = duramen::Db::open("shop.duramen")?;
/// let _server = duramen_server::local(&db)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`Builder::start`].
pub fn local(db: &Db) -> Result<Server> {
    Server::builder(db.clone()).start()
}

/// A running server. Dropping it stops it as [`Server::stop`] does.
pub struct Server {
    _threads: Threads,
    drain: watch::Sender<bool>,
    ended: Mutex<Receiver<()>>,
    grace: Duration,
    serving: Serving,
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
    token: Option<String>,
    /// Why there is no socket.
    without_socket: Option<Error>,
    names: Option<(Option<Socket>, Notice)>,
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Server>();
};

/// The runtime of a server.
struct Threads(Option<Runtime>);

impl Threads {
    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // May be inside of another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// How to serve a database.
#[derive(Debug)]
pub struct Builder {
    db: Db,
    listen: Vec<SocketAddr>,
    limits: Limits,
    threads: usize,
}

impl Server {
    /// How to serve a database: on its socket, and on what is added.
    #[must_use]
    pub fn builder(db: Db) -> Builder {
        Builder { db, listen: Vec::new(), limits: Limits::default(), threads: 0 }
    }

    /// The socket, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<PathBuf> {
        self.serving.socket.then(|| duramen_proto::discovery::socket_of(&self.directory))
    }

    /// Why there is no socket, if there is none.
    #[must_use]
    pub fn without_socket(&self) -> Option<&Error> {
        self.without_socket.as_ref()
    }

    /// The addresses of TCP, with the ports that the system gave.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The token that calls over TCP must carry.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Stops the server: it listens no more, lets calls that are under way end for a moment, and cuts off the
    /// rest. The database stays open.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Clients no longer find it.
        drop(self.names.take());
        // Without a receiver everything has ended.
        let _ = self.drain.send(true);
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = ended.recv_timeout(self.grace + STOP_MAX);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("serving", &self.serving).finish_non_exhaustive()
    }
}

impl Builder {
    /// Also listens on an address of this machine: 127.0.0.1 or ::1. Port 0 is any free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.listen.push(address);
        self
    }

    /// What the server takes of its clients at most.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// The threads that read and write connections. The default is one for each processor, at most four.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Builder {
        self.threads = threads;
        self
    }

    /// Starts the server. It returns once clients can connect.
    ///
    /// # Errors
    /// `Forbidden` (E1102) for an address beyond this machine, and if the directory is another user's;
    /// `ReadOnly` (E0204) if the database was opened read-only. `System` (E1001) if the database is in
    /// memory, where other processes cannot find it, if an address is taken, or if the system gives no
    /// thread.
    pub fn start(self) -> Result<Server> {
        let status = self.db.durability_status();
        if status.read_only {
            let what = "a database that was opened read-only is not served";
            return Err(Error::new(Code::ReadOnly, what).with_hint("open it to write, and serve it then"));
        }
        self.listen.iter().try_for_each(|address| check_loopback(*address))?;
        let directory = status.path.clone();
        let database = status.database.to_string();
        let owner = discover::owner(&directory)?;
        let (listeners, tcp) = self.bind()?;
        let token = match tcp.is_empty() {
            true => None,
            false => Some(discover::token(&directory, &database)?),
        };
        let threads = Threads(Some(self.runtime()?));
        let runtime = threads.runtime();
        let (drain, draining) = watch::channel(false);
        let shared = Shared {
            auth: Auth { owner, token: token.clone(), users: Arc::new(Directory::new(self.db.clone())) },
            uploads: KeptUploads::new(&self.limits),
            places: Arc::new(Places::new(&self.limits, cores())),
            budget: Budget::new(self.limits.memory_bytes),
            services: self.services(runtime, draining.clone())?,
            limits: self.limits.clone(),
            draining,
        };
        let (socket, without_socket) = match Socket::bind(&directory) {
            Ok(socket) => (Some(socket), None),
            // Without a socket and without an address no client could call.
            Err(error) if tcp.is_empty() => return Err(error),
            Err(error) => (None, Some(error)),
        };
        let ended = spawn(runtime, &socket, listeners, Arc::new(shared))?;
        let serving = Serving {
            v: 1,
            pid: std::process::id(),
            run: self.db.opening(),
            database,
            socket: socket.is_some(),
            addresses: tcp.iter().map(ToString::to_string).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let notice = Notice::write(&directory, &serving)?;
        let grace = self.limits.drain_grace;
        Ok(Server {
            _threads: threads,
            drain,
            ended: Mutex::new(ended),
            grace,
            serving,
            directory,
            addresses: tcp,
            token,
            without_socket,
            names: Some((socket, notice)),
        })
    }

    fn runtime(&self) -> Result<Runtime> {
        let threads = if self.threads == 0 { cores().min(4) } else { self.threads };
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("duramen-serve")
            .enable_all()
            .build();
        runtime.map_err(|error| Error::new(Code::System, format!("the system gives no threads: {error}")))
    }

    /// Listeners of TCP, and their addresses.
    fn bind(&self) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
        let bind = |address: &SocketAddr| {
            let failed = |error: std::io::Error| {
                Error::new(Code::System, format!("cannot listen on {address}: {error}"))
                    .with_hint("name another port with --listen, or port 0 for any that is free")
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            Ok((listener, bound))
        };
        Ok(self.listen.iter().map(bind).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }

    fn services(
        &self,
        runtime: &Runtime,
        mut draining: watch::Receiver<bool>,
    ) -> Result<Box<dyn crate::route::Dispatch>> {
        let data = DataService::new(&self.db, &self.limits, draining.clone());
        let (schema, admin) = (SchemaService::beside(&data), AdminService::beside(&data));
        let blobs = BlobService::beside(&data, &self.limits, draining.clone());
        let feed = FeedService::beside(&data, &self.limits, draining.clone());
        // It begins as one that serves.
        let (health_reporter, health) = tonic_health::server::health_reporter();
        runtime.spawn(async move {
            let _ = draining.wait_for(|draining| *draining).await;
            health_reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        });
        let reflected = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let unreadable = |error| Error::new(Code::System, format!("the descriptors cannot be read: {error}"));
        let reflection = reflected().build_v1().map_err(unreadable)?;
        let reflection_alpha = reflected().build_v1alpha().map_err(unreadable)?;
        Ok(Box::new(Services {
            data: DataServer::new(data)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            schema: SchemaServer::new(schema)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            blobs: BlobsServer::new(blobs)
                .max_decoding_message_size(UPLOAD_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            feed: FeedServer::new(feed)
                .max_decoding_message_size(SMALL_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            admin: AdminServer::new(admin)
                .max_decoding_message_size(SMALL_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX),
            health: health.max_decoding_message_size(SMALL_BYTES_MAX),
            reflection: reflection.max_decoding_message_size(SMALL_BYTES_MAX),
            reflection_alpha: reflection_alpha.max_decoding_message_size(SMALL_BYTES_MAX),
        }))
    }
}

/// Serves on threads of the runtime. What is returned is told when all connections have ended.
fn spawn(
    runtime: &Runtime,
    socket: &Option<Socket>,
    tcp: Vec<TcpListener>,
    shared: Arc<Shared>,
) -> Result<Receiver<()>> {
    let failed = |error: std::io::Error| Error::new(Code::System, format!("cannot listen: {error}"));
    let _inside = runtime.enter();
    let mut listeners = Listeners::default();
    if let Some(socket) = socket {
        let listener = socket.listener.try_clone().map_err(failed)?;
        listeners.socket = Some(tokio::net::UnixListener::from_std(listener).map_err(failed)?);
    }
    for listener in tcp {
        listeners.tcp.push(tokio::net::TcpListener::from_std(listener).map_err(failed)?);
    }
    let (told, ended) = sync_channel(1);
    runtime.spawn(async move {
        listen::run(listeners, shared).await;
        // Without a receiver the server was dropped and waits no longer.
        let _ = told.send(());
    });
    Ok(ended)
}

/// Processors.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn check_loopback(address: SocketAddr) -> Result<()> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(Code::Forbidden, format!("{address} can be reached from other machines"))
        .with_hint("listen on 127.0.0.1 or ::1; other machines reach it through a tunnel, such as `ssh -L`"))
}
