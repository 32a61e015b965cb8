//! Accepting connections, from sockets of this machine and from TCP.
//!
//! A listener that fails for want of files waits a moment: others may close theirs. Connections for which
//! there is no place are closed at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::auth::Peer;
use crate::connection;
use crate::limit::Limits;
use crate::limit::entrance::Entrance;
use crate::route::Shared;

/// The rest after an error of the system, such as too many open files.
const REST: Duration = Duration::from_millis(50);

/// Of what is sent by TCP, and waits in the system.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// What a server listens on.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) sockets: Vec<UnixListener>,
    pub(crate) tcp: Vec<TcpListener>,
}

/// Accepts and serves until the server goes down, then lets the calls end that are under way.
pub(crate) async fn run(listeners: Listeners, shared: Arc<Shared>) {
    // TCP has places of its own: strangers there cannot keep the owner from the socket.
    let entrance = || Entrance::new(connections_max(&shared.limits) / 2);
    let mut accepting = JoinSet::new();
    let connections = Arc::new(tokio::sync::Mutex::new(JoinSet::new()));
    let accept = |entrance: Arc<Entrance>| Accept {
        shared: Arc::clone(&shared),
        entrance,
        connections: Arc::clone(&connections),
    };
    let (of_sockets, of_tcp) = (entrance(), entrance());
    for socket in listeners.sockets {
        accepting.spawn(accept(Arc::clone(&of_sockets)).socket(socket));
    }
    for tcp in listeners.tcp {
        accepting.spawn(accept(Arc::clone(&of_tcp)).tcp(tcp));
    }
    let mut draining = shared.draining.clone();
    // The sender is dropped only after it has said so.
    let _ = draining.wait_for(|draining| *draining).await;
    accepting.shutdown().await;
    let mut connections = connections.lock().await;
    let ended = async { while connections.join_next().await.is_some() {} };
    // Calls that take longer are cut off: their commits go on or are undone as a whole.
    let _ = tokio::time::timeout(shared.limits.drain_grace, ended).await;
    connections.shutdown().await;
}

/// Files that the engine and the rest of the process need.
const OTHER_FILES: u64 = 200;

/// The most connections, as far as the system lets this process have files.
fn connections_max(limits: &Limits) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(u64::MAX, |files| files.saturating_sub(OTHER_FILES));
    limits.connections.min(usize::try_from(files).unwrap_or(usize::MAX)).max(2)
}

/// The system keeps no more of what was not sent yet: without that it takes megabytes for each client that
/// asks and does not read. What is on its way is not counted, so a long way is filled all the same.
fn keep_little(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        // Where it is not possible the buffers of the system are the limit.
        let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

struct Accept {
    shared: Arc<Shared>,
    entrance: Arc<Entrance>,
    connections: Arc<tokio::sync::Mutex<JoinSet<()>>>,
}

impl Accept {
    async fn socket(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Without the other's user there is no connection.
                    let Ok(credentials) = stream.peer_cred() else { continue };
                    let Some(entered) = self.entrance.enter(None).await else { continue };
                    let (peer, shared) = (Peer::Local { uid: credentials.uid() }, Arc::clone(&self.shared));
                    self.begin(connection::serve(stream, peer, entered, shared)).await;
                }
                Err(_) => sleep(REST).await,
            }
        }
    }

    async fn tcp(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let Some(entered) = self.entrance.enter(Some(address.ip())).await else { continue };
                    // Small answers go out at once. Without that they are only later.
                    let _ = stream.set_nodelay(true);
                    keep_little(&stream);
                    let shared = Arc::clone(&self.shared);
                    self.begin(connection::serve_tcp(stream, address, entered, shared)).await;
                }
                Err(_) => sleep(REST).await,
            }
        }
    }

    async fn begin(&self, serving: impl Future<Output = ()> + Send + 'static) {
        let mut connections = self.connections.lock().await;
        // Those that have ended are not kept.
        while connections.try_join_next().is_some() {}
        connections.spawn(serving);
    }
}
