//! Requests over TCP, with TLS on both ends: one connection for each lane to a peer, so that nothing waits
//! behind what is large.
//!
//! A connection begins with a greeting. Then each side sends frames: a length, a number, and the bytes of a
//! request or of the answer with the same number. Answers come in any order.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::net::{Called, Lane, Transport};
use crate::tls::PeerTls;
use crate::types::Peer;

/// What a connection begins with: a name, and the version of what follows.
const GREETING: [u8; 8] = *b"DURPEER\x01";
/// Connecting takes no longer.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// What was sent is acknowledged by the other machine within this time.
const UNANSWERED_MAX: Duration = Duration::from_secs(3);
/// A frame has a length, of what follows it, and a number.
const HEAD_BYTES: usize = 12;
/// Bytes of a request or an answer that are written with the head of their frame.
const FIRST_WRITE_BYTES: usize = 16 << 10;
/// An entry may take 64 MiB, and is sent with others.
const FRAME_BYTES_MAX: usize = 160 << 20;
/// Requests of one connection that are answered at once.
const ANSWERED_AT_ONCE: usize = 64;
/// Connections that are answered at once.
const CONNECTIONS_MAX: usize = 256;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Carries requests over TCP.
pub struct TcpTransport(Arc<Peers>);

/// The connections to peers.
struct Peers {
    tls: Option<PeerTls>,
    connections: Mutex<HashMap<(String, Lane), Connection>>,
}

impl fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpTransport").finish_non_exhaustive()
    }
}

/// A connection that stands.
#[derive(Debug, Clone)]
struct Connection {
    requests: mpsc::UnboundedSender<Asked>,
}

#[derive(Debug)]
struct Asked {
    request: Vec<u8>,
    answer: oneshot::Sender<Vec<u8>>,
}

type Pending = Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>;

impl TcpTransport {
    /// Speaks TLS to peers, if it is given.
    #[must_use]
    pub fn new(tls: Option<PeerTls>) -> TcpTransport {
        TcpTransport(Arc::new(Peers { tls, connections: Mutex::default() }))
    }
}

impl Peers {
    fn connections(&self) -> MutexGuard<'_, HashMap<(String, Lane), Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to an address, made anew if none stands.
    async fn connection(&self, address: &str, lane: Lane) -> Result<Connection, String> {
        let key = (address.to_owned(), lane);
        if let Some(standing) = self.connections().get(&key)
            && !standing.requests.is_closed()
        {
            return Ok(standing.clone());
        }
        let failed = |error: io::Error| format!("{address} cannot be reached: {error}");
        let late = |_| format!("{address} has not answered within {CONNECT_MAX:?}");
        let stream = timeout(CONNECT_MAX, self.connect(address)).await.map_err(late)?.map_err(failed)?;
        let (requests, asked) = mpsc::unbounded_channel();
        tokio::spawn(speak(stream, asked));
        let connection = Connection { requests };
        self.connections().insert(key, connection.clone());
        Ok(connection)
    }

    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        let mut stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.connect(address, stream).await?),
            None => Box::new(stream),
        };
        stream.write_all(&GREETING).await?;
        Ok(stream)
    }

    async fn call_at(
        self: Arc<Self>,
        address: String,
        lane: Lane,
        request: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let connection = self.connection(&address, lane).await?;
        let (answer, answered) = oneshot::channel();
        let gone = || format!("the connection to {address} has ended");
        connection.requests.send(Asked { request, answer }).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}

impl Transport for TcpTransport {
    fn call(&self, _: u64, peer: &Peer, lane: Lane, request: Vec<u8>) -> Called {
        Box::pin(Arc::clone(&self.0).call_at(peer.address.clone(), lane, request))
    }
}

/// A connection over which nothing is acknowledged any longer ends soon: after a pause of the network a new
/// one is there at once, where an old one would wait for its next repeat.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, UNANSWERED_MAX)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(UNANSWERED_MAX.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// Sends requests, and hands out the answers, until the connection ends.
async fn speak(stream: Box<dyn Stream>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let (reader, mut writer) = split(stream);
    let pending = Pending::default();
    let sends = async {
        let mut number = 0_u64;
        while let Some(Asked { request, answer }) = asked.recv().await {
            if answer.is_closed() {
                // Its caller waits no more.
                continue;
            }
            number += 1;
            locked(&pending).insert(number, answer);
            write_frame(&mut writer, number, &request).await?;
        }
        Ok::<(), io::Error>(())
    };
    let receives = async {
        let mut reader = BufReader::new(reader);
        loop {
            let (number, answer) = read_frame(&mut reader).await?;
            // Without a receiver the caller waits no more.
            drop(locked(&pending).remove(&number).map(|waits| waits.send(answer)));
        }
    };
    let _: Result<(), io::Error> = tokio::select! { done = sends => done, done = receives => done };
    // Callers whose answers have not come hear that the connection has ended: their senders are dropped.
}

fn locked(pending: &Pending) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Vec<u8>>>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write_frame(writer: &mut (impl AsyncWrite + Unpin), number: u64, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a frame is too long"))?;
    // One write for a small frame: each is a call to the system and a packet.
    let (first, rest) = bytes.split_at(bytes.len().min(FIRST_WRITE_BYTES));
    let mut head = Vec::with_capacity(HEAD_BYTES + first.len());
    head.extend_from_slice(&length.to_be_bytes());
    head.extend_from_slice(&number.to_be_bytes());
    head.extend_from_slice(first);
    writer.write_all(&head).await?;
    writer.write_all(rest).await?;
    writer.flush().await
}

async fn read_frame(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<(u64, Vec<u8>)> {
    let length = reader.read_u32().await? as usize;
    let number = reader.read_u64().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {length} bytes")));
    }
    // Memory follows what has come, whatever the length says.
    let mut bytes = Vec::with_capacity(length.min(64 << 10));
    reader.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((number, bytes)) }
}

/// Answers a request.
pub type Answers = Arc<dyn Fn(Vec<u8>) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>> + Send + Sync>;

/// Answers the requests of peers that connect, as long as it is polled. Those whose certificates are of other
/// authorities are cut off.
pub async fn listen(listener: TcpListener, tls: Option<PeerTls>, answers: Answers) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        // The system has no room for another one now.
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (tls, answers) = (tls.clone(), Arc::clone(&answers));
        connections.spawn(async move {
            // A connection that fails is made anew by the peer.
            drop(answer_peer(stream, tls, answers).await);
            drop(place);
        });
    }
}

async fn answer_peer(stream: TcpStream, tls: Option<PeerTls>, answers: Answers) -> io::Result<()> {
    prepare(&stream)?;
    let greeted = async {
        let mut stream: Box<dyn Stream> = match &tls {
            Some(tls) => Box::new(tls.accept(stream).await?),
            None => Box::new(stream),
        };
        let mut greeting = [0; GREETING.len()];
        stream.read_exact(&mut greeting).await?;
        if greeting == GREETING { Ok(stream) } else { Err(io::Error::other("another protocol")) }
    };
    let stream = timeout(CONNECT_MAX, greeted).await??;
    let (reader, mut writer) = split(stream);
    let (sender, mut answered) = mpsc::channel::<(u64, Vec<u8>)>(ANSWERED_AT_ONCE);
    let receives = async {
        let mut reader = BufReader::new(reader);
        let places = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
        loop {
            let (number, request) = read_frame(&mut reader).await?;
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (answers, sender) = (Arc::clone(&answers), sender.clone());
            tokio::spawn(async move {
                // Without a receiver the connection has ended.
                drop(sender.send((number, answers(request).await)).await);
                drop(place);
            });
        }
    };
    let sends = async {
        while let Some((number, answer)) = answered.recv().await {
            write_frame(&mut writer, number, &answer).await?;
        }
        Ok(())
    };
    tokio::select! { done = receives => done, done = sends => done }
}
