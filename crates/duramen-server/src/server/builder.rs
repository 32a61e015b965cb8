//! How a database is served: addresses, TLS, limits.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duramen::Db;
use duramen::error::{Code, Error, Result};
use duramen_proto::discovery::Serving;
use duramen_proto::v1::admin_server::AdminServer;
use duramen_proto::v1::blobs_server::BlobsServer;
use duramen_proto::v1::data_server::DataServer;
use duramen_proto::v1::feed_server::FeedServer;
use duramen_proto::v1::schema_server::SchemaServer;
use duramen_proto::{DESCRIPTORS, MESSAGE_BYTES_MAX, v1};
use socket2::SockRef;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use super::{Server, Threads};
use crate::admin::AdminService;
use crate::audit::Audit;
use crate::auth::{Auth, Directory};
use crate::blobs::kept::KeptUploads;
use crate::blobs::{BlobService, UPLOAD_BYTES_MAX};
use crate::cluster::Cluster;
use crate::data::DataService;
use crate::discover::{self, Notice, Socket};
use crate::feed::FeedService;
use crate::limit::Limits;
use crate::limit::budget::Budget;
use crate::limit::places::Places;
use crate::listen::{self, Listeners};
use crate::route::{Dispatch, Services, Shared};
use crate::schema::SchemaService;
use crate::tls::{Files, Tls};
use crate::users::Users;

/// A message to health or reflection: names.
const SMALL_BYTES_MAX: usize = 4 << 10;

/// How to serve a database.
#[derive(Debug)]
pub struct Builder {
    db: Db,
    listen: Vec<SocketAddr>,
    inherited: Vec<TcpListener>,
    sockets: Vec<UnixListener>,
    tls: Option<(PathBuf, PathBuf)>,
    client_ca: Option<PathBuf>,
    without_tls: bool,
    without_auth: bool,
    limits: Limits,
    threads: usize,
    cluster: Option<Arc<dyn Cluster>>,
}

impl Builder {
    pub(super) fn new(db: Db) -> Builder {
        Builder {
            db,
            listen: Vec::new(),
            inherited: Vec::new(),
            sockets: Vec::new(),
            tls: None,
            client_ca: None,
            without_tls: false,
            without_auth: false,
            limits: Limits::default(),
            threads: 0,
            cluster: None,
        }
    }

    /// Also listens on an address: 127.0.0.1 or ::1 for programs of this machine. Others, such as 0.0.0.0,
    /// let other machines connect; they need [`Builder::tls`] and a user of the database. Port 0 is any free
    /// one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.listen.push(address);
        self
    }

    /// Also accepts connections of a listener that is bound already, as a service manager hands it over. A
    /// client that connects while no server runs waits, as long as some process has the listener open. The
    /// rules are those of [`Builder::listen`].
    #[must_use]
    pub fn listener(mut self, listener: TcpListener) -> Builder {
        self.inherited.push(listener);
        self
    }

    /// As [`Builder::listener`], for a socket of this machine. Its callers are those of the socket in the
    /// directory of the database: the kernel names their users, and the owner of the directory and root may
    /// do everything.
    #[must_use]
    pub fn socket_listener(mut self, listener: UnixListener) -> Builder {
        self.sockets.push(listener);
        self
    }

    /// TLS on all addresses, with a certificate and its private key: files in the form PEM, which are read
    /// again when they change. Clients name the server as the certificate does.
    #[must_use]
    pub fn tls(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Builder {
        self.tls = Some((certificate.into(), key.into()));
        self
    }

    /// The authorities whose certificates clients may show in the place of a token: a file in the form PEM. A
    /// certificate is that of the [user](crate::users::User) that has one of its names.
    #[must_use]
    pub fn tls_client_ca(mut self, authorities: impl Into<PathBuf>) -> Builder {
        self.client_ca = Some(authorities.into());
        self
    }

    /// Lets other machines connect without TLS: anyone who can read the network between them can read and
    /// change everything, tokens too.
    #[must_use]
    pub fn without_tls(mut self) -> Builder {
        self.without_tls = true;
        self
    }

    /// Takes calls by TCP without a token and without a certificate for the administrator's.
    #[must_use]
    pub fn without_auth(mut self) -> Builder {
        self.without_auth = true;
        self
    }

    /// What the server takes of its clients at most.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// The database is a node of this cluster.
    #[must_use]
    pub fn cluster(mut self, cluster: Arc<dyn Cluster>) -> Builder {
        self.cluster = Some(cluster);
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
    /// `Forbidden` (E1102) for an address that other machines reach, without TLS or without a user, and if
    /// the directory is another user's; `ReadOnly` (E0204) if the database was opened read-only;
    /// `InvalidArgument` (E0201) if a file of TLS is not what it should be, or a socket that was handed over
    /// does not listen. `System` (E1001) if a file cannot be read, if the database is in memory, where other
    /// processes cannot find it, if an address is taken, or if the system gives no thread.
    pub fn start(mut self) -> Result<Server> {
        let status = self.db.durability_status();
        if status.read_only {
            let what = "a database that was opened read-only is not served";
            return Err(Error::new(Code::ReadOnly, what).with_hint("open it to write, and serve it then"));
        }
        let inherited = self.inherited_addresses()?;
        self.check_addresses(&inherited)?;
        let tls = self.read_tls()?;
        let directory = status.path.clone();
        let database = status.database.to_string();
        let owner = discover::owner(&directory)?;
        let audit = Audit::open(&self.db)?;
        let (listeners, tcp) = self.bind(inherited)?;
        let token = match tcp.is_empty() {
            true => None,
            false => Some(discover::token(&directory, &database)?),
        };
        let threads = Threads(Some(self.runtime()?));
        let runtime = threads.runtime();
        let (drain, draining) = watch::channel(false);
        let shared = Shared {
            auth: Auth {
                owner,
                token: token.clone(),
                users: Arc::new(Directory::new(self.db.clone())),
                without_auth: self.without_auth,
            },
            audit: Arc::clone(&audit),
            tls,
            uploads: KeptUploads::new(&self.limits),
            places: Arc::new(Places::new(&self.limits, cores())),
            budget: Budget::new(self.limits.memory_bytes, self.limits.connections),
            services: self.services(runtime, &tcp, &audit, draining.clone())?,
            limits: self.limits.clone(),
            draining,
            cluster: self.cluster.clone(),
        };
        let (socket, without_socket) = match Socket::bind(&directory) {
            Ok(socket) => (Some(socket), None),
            // Without a socket and without an address no client could call.
            Err(error) if tcp.is_empty() && self.sockets.is_empty() => return Err(error),
            Err(error) => (None, Some(error)),
        };
        let sockets = self.local_listeners(socket.as_ref())?;
        let ended = spawn(runtime, sockets, listeners, Arc::new(shared))?;
        let serving = self.serving(database, socket.is_some(), &tcp);
        let (notice, without_notice) = match Notice::write(&directory, &serving) {
            Ok(notice) => (Some(notice), None),
            // Clients that know an address call, and may delete what fills the disk.
            Err(error) if error.code() == Code::DiskFull && !tcp.is_empty() => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let grace = self.limits.drain_grace;
        Ok(Server {
            _threads: threads,
            drain,
            ended: Mutex::new(ended),
            grace,
            audit,
            serving,
            directory,
            addresses: tcp,
            token,
            without_socket,
            without_notice,
            names: Some((socket, notice)),
        })
    }

    /// How clients of this machine find the server.
    fn serving(&self, database: String, socket: bool, tcp: &[SocketAddr]) -> Serving {
        Serving {
            v: 1,
            pid: std::process::id(),
            run: self.db.opening(),
            database,
            socket,
            addresses: tcp.iter().map(ToString::to_string).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The addresses of the listeners that are bound already.
    fn inherited_addresses(&self) -> Result<Vec<SocketAddr>> {
        self.inherited.iter().try_for_each(must_listen)?;
        self.sockets.iter().try_for_each(must_listen)?;
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| cannot_listen(&error));
        self.inherited.iter().map(address).collect()
    }

    /// An address that other machines reach needs TLS, and a user that could call.
    fn check_addresses(&self, inherited: &[SocketAddr]) -> Result<()> {
        let is_wide = |address: &&SocketAddr| !address.ip().to_canonical().is_loopback();
        let Some(wide) = self.listen.iter().chain(inherited).find(is_wide) else { return Ok(()) };
        let refused = |why: &str, hint: &str| {
            let what = format!("other machines can reach {wide}, and {why}");
            Err(Error::new(Code::Forbidden, what).with_hint(hint))
        };
        if self.tls.is_none() && !self.without_tls {
            let hint = "give a certificate with --tls-cert and --tls-key; or listen on 127.0.0.1, and let other machines come through a tunnel such as `ssh -L`; or say --no-tls";
            return refused("without TLS anyone on the network between can read what is sent", hint);
        }
        if !self.without_auth && Users::of(&self.db.snapshot()?)?.users.is_empty() {
            return refused("the database has no user that could call", "add one with `duramen user add`");
        }
        Ok(())
    }

    fn read_tls(&self) -> Result<Option<Arc<Tls>>> {
        let (tls, client_ca) = (self.tls.clone(), self.client_ca.clone());
        match tls {
            Some((certificate, key)) => Ok(Some(Arc::new(Tls::new(Files { certificate, key, client_ca })?))),
            None if client_ca.is_some() => {
                Err(Error::invalid("clients can show certificates only where the server has one")
                    .with_hint("give the server's with --tls-cert and --tls-key, too"))
            }
            None => Ok(None),
        }
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

    /// Listeners of TCP, and their addresses. Those that are bound already are `inherited`.
    fn bind(&mut self, inherited: Vec<SocketAddr>) -> Result<(Vec<TcpListener>, Vec<SocketAddr>)> {
        let (mut listeners, mut addresses) = (std::mem::take(&mut self.inherited), inherited);
        for address in &self.listen {
            let failed = |error: std::io::Error| {
                Error::new(Code::System, format!("cannot listen on {address}: {error}"))
                    .with_hint("name another port with --listen, or port 0 for any that is free")
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        Ok((listeners, addresses))
    }

    /// The listeners of this machine: those that are bound already, and the socket.
    fn local_listeners(&mut self, socket: Option<&Socket>) -> Result<Vec<UnixListener>> {
        let mut listeners = std::mem::take(&mut self.sockets);
        if let Some(socket) = socket {
            listeners.push(socket.listener.try_clone().map_err(|error| cannot_listen(&error))?);
        }
        Ok(listeners)
    }

    /// As they are told to operators.
    fn listeners(&self, addresses: &[SocketAddr]) -> Arc<[v1::Listener]> {
        let listener = |address: &SocketAddr| v1::Listener {
            address: address.to_string(),
            has_tls: self.tls.is_some(),
            has_auth: !self.without_auth,
        };
        addresses.iter().map(listener).collect()
    }

    fn services(
        &self,
        runtime: &Runtime,
        addresses: &[SocketAddr],
        audit: &Arc<Audit>,
        mut draining: watch::Receiver<bool>,
    ) -> Result<Box<dyn Dispatch>> {
        let data = DataService::new(&self.db, &self.limits, draining.clone(), self.cluster.clone());
        let schema = SchemaService::beside(&data, audit);
        let admin = AdminService::beside(&data, self.listeners(addresses), audit);
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

/// Between two looks at what the audit has to tell.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Writes what the audit has to tell, until the server goes down.
async fn flush(audit: Arc<Audit>, mut draining: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            // The sender is dropped only after it has said so.
            _ = draining.wait_for(|draining| *draining) => return,
            () = tokio::time::sleep(FLUSH_INTERVAL) => {}
        }
        let audit = Arc::clone(&audit);
        // What cannot be written now is told to those whose calls must be told.
        let _ = tokio::task::spawn_blocking(move || audit.flush(false)).await;
    }
}

/// Refuses a socket that is bound and does not listen.
fn must_listen(listener: &impl AsFd) -> Result<()> {
    match SockRef::from(listener).is_listener() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::invalid("a socket that was handed over does not listen")
            .with_hint("call `listen` before it is handed over")),
        Err(error) => Err(cannot_listen(&error)),
    }
}

fn cannot_listen(error: &std::io::Error) -> Error {
    Error::new(Code::System, format!("cannot listen: {error}"))
}

/// Serves on threads of the runtime. What is returned is told when all connections have ended.
fn spawn(
    runtime: &Runtime,
    sockets: Vec<UnixListener>,
    tcp: Vec<TcpListener>,
    shared: Arc<Shared>,
) -> Result<Receiver<()>> {
    let failed = |error: std::io::Error| cannot_listen(&error);
    let _inside = runtime.enter();
    let mut listeners = Listeners::default();
    for listener in sockets {
        listener.set_nonblocking(true).map_err(failed)?;
        listeners.sockets.push(tokio::net::UnixListener::from_std(listener).map_err(failed)?);
    }
    for listener in tcp {
        listener.set_nonblocking(true).map_err(failed)?;
        listeners.tcp.push(tokio::net::TcpListener::from_std(listener).map_err(failed)?);
    }
    let (told, ended) = sync_channel(1);
    runtime.spawn(async move {
        // Nothing holds the database when it is told.
        let flushing = flush(Arc::clone(&shared.audit), shared.draining.clone());
        tokio::join!(flushing, listen::run(listeners, shared));
        // Without a receiver the server was dropped and waits no longer.
        let _ = told.send(());
    });
    Ok(ended)
}

/// Processors.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
