//! Starting and stopping a server.
//!
//! A server has a runtime of its own, so that an embedding program needs none. It never closes the database:
//! that is its owner's.

mod builder;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duramen::Db;
use duramen::error::{Error, Result};
use duramen_proto::discovery::Serving;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use self::builder::Builder;
use crate::audit::Audit;
use crate::discover::{Notice, Socket};

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
    audit: Arc<Audit>,
    serving: Serving,
    directory: PathBuf,
    addresses: Vec<SocketAddr>,
    token: Option<String>,
    /// Why there is no socket.
    without_socket: Option<Error>,
    without_notice: Option<Error>,
    names: Option<(Option<Socket>, Option<Notice>)>,
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

impl Server {
    /// How to serve a database: on its socket, and on what is added.
    #[must_use]
    pub fn builder(db: Db) -> Builder {
        Builder::new(db)
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

    /// Why clients do not find the server by the directory of its database, if the disk had no room for the
    /// file that says so.
    #[must_use]
    pub fn without_notice(&self) -> Option<&Error> {
        self.without_notice.as_ref()
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
        // If it fails, the row of the minute before stands.
        let _ = self.audit.flush(true);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("serving", &self.serving).finish_non_exhaustive()
    }
}
