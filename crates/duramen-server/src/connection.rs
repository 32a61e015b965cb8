//! One connection: HTTP/2, and what closes it.
//!
//! A connection ends when the client closes it, when the server goes down and its calls have ended, when it
//! makes no call that is let in for too long after it was opened or until many others have come, when it
//! takes nothing of much that it asked for for too long, or when it holds most of the memory for messages and
//! there is none left.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use duramen::error::Code;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::audit::Event;
use crate::auth::Peer;
use crate::limit::budget::{Holder, UNTAKEN_OF_STREAMS_MAX};
use crate::limit::entrance::Entered;
use crate::route::{self, Shared};
use crate::tls::TLS_BYTES;

/// Between two looks at a connection.
const LOOK: Duration = Duration::from_secs(1);

/// How long a server waits for a client to close a connection that has ended.
const LINGER_MAX: Duration = Duration::from_millis(500);

const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Of the reason why a certificate counts for nothing, in the audit.
const CERTIFICATE_CHARS_MAX: usize = 100;

/// What a client may send before it is read, on all streams of a connection. hyper keeps it, and no charge
/// sees it. A window that adapts grows to 16 MiB: 85 clients that send fast made the server hold 380 MiB.
pub(crate) const WINDOW_BYTES: u32 = 64 << 10;

/// The send buffer of each stream.
const SEND_BUFFER_BYTES: usize = 64 << 10;

const HEADER_BYTES_MAX: u32 = 16 << 10;

/// Streams that a client resets at once, before it counts as an attack.
const RESETS_PENDING_MAX: usize = 20;
const RESETS_LOCAL_MAX: usize = 1_024;

/// The other end of a connection, and what it holds.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    /// Where it is, for the audit.
    pub(crate) place: Arc<str>,
    pub(crate) entered: Entered,
    pub(crate) holder: Arc<Holder>,
}

/// Serves a connection of TCP until it ends.
pub(crate) async fn serve_tcp(stream: TcpStream, address: SocketAddr, entered: Entered, shared: Arc<Shared>) {
    let Some(tls) = &shared.tls else {
        let peer = Peer::Tcp { address, names: Arc::default() };
        return serve(stream, peer, entered, shared).await;
    };
    let bytes = shared.budget.holder().charge_window(TLS_BYTES);
    let accepted = tokio::select! {
        accepted = tls.accept(stream) => accepted,
        () = entered.closed() => Err(None),
    };
    match accepted {
        Ok((stream, names)) => serve(stream, Peer::Tcp { address, names }, entered, shared).await,
        // What is no TLS gets no answer, and a certificate that counts for nothing an alert.
        Err(None) => {}
        Err(Some((why, stream))) => {
            let (what, from) = ("refused".to_owned(), Peer::Tcp { address, names: Arc::default() }.place());
            let code = Some(Code::Unauthenticated.to_string());
            let on = format!("certificate: {why}").chars().take(CERTIFICATE_CHARS_MAX).collect();
            shared.audit.tell(Event { what, from: from.to_string(), on, code, ..Event::default() });
            // Else the client's next write would fail before it has read the alert.
            let _ = timeout(LINGER_MAX, linger(stream)).await;
        }
    }
    drop(bytes);
}

/// Serves a connection until it ends.
pub(crate) async fn serve<I>(io: I, peer: Peer, entered: Entered, shared: Arc<Shared>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (place, holder) = (peer.place(), shared.budget.holder());
    // Replies exist when they are charged, and so does the window.
    let _window = holder.charge_window(WINDOW_BYTES as usize);
    let client = Arc::new(Client { peer, place, entered, holder });
    let service = {
        let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
        service_fn(move |request| route::answer(Arc::clone(&shared), Arc::clone(&client), request))
    };
    let (io, left) = Lent::new(io);
    let mut connection = Box::pin(builder(shared.limits.streams).serve_connection(TokioIo::new(io), service));
    let mut draining = shared.draining.clone();
    let mut is_draining = false;
    let mut watch = Watch::new(&shared, &client);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // An error is the client's: it sent what is no HTTP/2, or is gone.
            _ = connection.as_mut() => break,
            () = client.holder.closed() => return,
            () = client.entered.closed(), if !client.entered.is_known() => return,
            _ = draining.wait_for(|draining| *draining), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            _ = look.tick() => if watch.is_over() { return },
        }
    }
    drop(connection);
    if is_draining && let Ok(io) = left.await {
        // A client that does not close it is cut off, and has had all answers.
        let _ = timeout(LINGER_MAX, linger(io)).await;
    }
}

/// Says that nothing more comes, and waits for the client to close its end. If this end was closed with
/// something unread, such as a window update, the client's next write would fail, and with it calls whose
/// answers it has not read yet.
async fn linger<I: AsyncRead + AsyncWrite + Unpin>(mut io: I) {
    if io.shutdown().await.is_ok() {
        let mut bytes = [0; 4096];
        while matches!(io.read(&mut bytes).await, Ok(1..)) {}
    }
}

/// The stream of a connection while hyper uses it. hyper returns no stream: when it drops this one, the
/// receiver of [`Lent::new`] gets the stream inside.
struct Lent<I> {
    io: Option<I>,
    back: Option<oneshot::Sender<I>>,
}

impl<I> Lent<I> {
    fn new(io: I) -> (Lent<I>, oneshot::Receiver<I>) {
        let (back, left) = oneshot::channel();
        (Lent { io: Some(io), back: Some(back) }, left)
    }
}

impl<I: Unpin> Lent<I> {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut I> {
        Pin::new(self.get_mut().io.as_mut().expect("it is there until this is dropped"))
    }
}

impl<I> Drop for Lent<I> {
    fn drop(&mut self) {
        if let (Some(io), Some(back)) = (self.io.take(), self.back.take()) {
            // Without a receiver the connection was closed.
            let _ = back.send(io);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Lent<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, into)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Lent<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}

fn builder(streams: u32) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(streams)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_LOCAL_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// Looks at a connection once a second.
struct Watch<'a> {
    shared: &'a Shared,
    client: &'a Client,
    opened: Instant,
    /// How much of the replies had been taken at the last look that found more, and when that was.
    taken: (u64, Instant),
}

impl<'a> Watch<'a> {
    fn new(shared: &'a Shared, client: &'a Client) -> Watch<'a> {
        let now = Instant::now();
        Watch { shared, client, opened: now, taken: (0, now) }
    }

    /// Whether the connection is to be closed.
    fn is_over(&mut self) -> bool {
        let (now, limits) = (Instant::now(), &self.shared.limits);
        if !self.client.entered.is_known() && now - self.opened >= limits.first_call {
            return true;
        }
        let (waiting, of_streams, taken) = self.client.holder.replies();
        // A stream that is read slowly, or not at all, ends by itself.
        if (waiting == 0 && of_streams < UNTAKEN_OF_STREAMS_MAX) || taken != self.taken.0 {
            self.taken = (taken, now);
        }
        now - self.taken.1 >= limits.unread_replies
    }
}
