//! What hostile connections do to a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duramen_disk::memory::Random;
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep};

use super::frames::{begin, data, headers, message, within};
use super::wire::Wire;
use super::{BIG, FILES};

/// What a connection does to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manner {
    /// Connects, and says nothing.
    HalfOpen,
    /// Sends a call, a byte at a time.
    Slow,
    /// Declares a message as long as one may be, and sends a part of it.
    Giant,
    /// Sends as many empty messages inside of a message as fit.
    Empty,
    /// Asks for much, and takes nothing of it.
    Unread,
    /// Asks for everything in another order, and takes nothing of it.
    Sorted,
    /// Asks for documents in a hundred calls at once, and takes no answer.
    Single,
    /// Begins a transaction, asks for much in it, again and again, and takes nothing of it.
    Transact,
    /// Begins to send a blob, and rests.
    Upload,
    /// Asks for a large blob, and takes nothing of it.
    Download,
    /// Sends what is no HTTP/2.
    Garbage,
    /// Begins a handshake of TLS, and rests; to the socket, a preface of HTTP/2.
    Handshake,
    /// Sends garbage in the place of TLS, or in a record of it.
    TlsGarbage,
}

const MANNERS: [Manner; 13] = [
    Manner::HalfOpen,
    Manner::Slow,
    Manner::Giant,
    Manner::Empty,
    Manner::Unread,
    Manner::Sorted,
    Manner::Single,
    Manner::Transact,
    Manner::Upload,
    Manner::Download,
    Manner::Garbage,
    Manner::Handshake,
    Manner::TlsGarbage,
];

/// How long an attacker keeps its connection, if the server does.
const HOLD: Duration = Duration::from_secs(20);

/// Where attackers connect, and as whom.
pub(super) struct Target {
    pub(super) socket: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) trust: Arc<ClientConfig>,
    /// Of a user that may read little.
    pub(super) token: String,
}

/// How many connections were made, of each manner, and how many there were at once.
#[derive(Debug, Default)]
pub(super) struct Made {
    of: [AtomicU64; MANNERS.len()],
    open: AtomicU64,
    most_open: AtomicU64,
}

/// A connection that is counted while it is open.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Made {
    /// One more, with its handshake if it makes one. The server may still refuse it.
    fn count(&self, manner: Manner) -> Counted<'_> {
        let at = MANNERS.iter().position(|other| *other == manner).unwrap_or(0);
        self.of[at].fetch_add(1, Ordering::Relaxed);
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_open.fetch_max(open, Ordering::Relaxed);
        Counted(&self.open)
    }

    pub(super) fn all(&self) -> u64 {
        self.of.iter().map(|made| made.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn most_open(&self) -> u64 {
        self.most_open.load(Ordering::Relaxed)
    }

    /// A manner of which so many attackers made none: the first of them have one each.
    pub(super) fn missing(&self, attackers: u64) -> Option<Manner> {
        let none = self.of.iter().position(|made| made.load(Ordering::Relaxed) == 0);
        none.filter(|at| (*at as u64) < attackers).map(|at| MANNERS[at])
    }
}

/// One attacker: each has a manner, and comes by the socket, by TLS as a stranger, or by TLS as a user.
pub(super) struct Attacker {
    target: Arc<Target>,
    made: Arc<Made>,
    manner: Manner,
    by: By,
    random: Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Socket,
    Stranger,
    User,
}

impl Attacker {
    pub(super) fn new(
        (target, made): (&Arc<Target>, &Arc<Made>),
        number: u64,
        manner: Option<Manner>,
        seed: u64,
    ) -> Attacker {
        let (mixed, by) = (number % MANNERS.len() as u64, number / MANNERS.len() as u64 % 3);
        let mixed = MANNERS[usize::try_from(mixed).unwrap_or(0)];
        let by = [By::Socket, By::Stranger, By::User][usize::try_from(by).unwrap_or(0)];
        let random = Random::new(seed ^ number << 20);
        let (target, made) = (Arc::clone(target), Arc::clone(made));
        Attacker { target, made, manner: manner.unwrap_or(mixed), by, random }
    }

    /// Waits up to a fifth of a second.
    pub(super) async fn rest(&mut self) {
        sleep(Duration::from_millis(self.random.below(200) as u64)).await;
    }

    fn garbage(&mut self) -> Vec<u8> {
        (0..1_000).map(|_| self.random.bits().to_le_bytes()[0]).collect()
    }

    /// Connects, and does what it does until the server closes the connection, or for a time.
    pub(super) async fn attack(&mut self) -> io::Result<()> {
        let made = Arc::clone(&self.made);
        if self.by == By::Socket {
            let stream = UnixStream::connect(&self.target.socket).await?;
            let _open = made.count(self.manner);
            return self.attack_by(Wire::new(stream)).await;
        }
        let stream = TcpStream::connect(self.target.address).await?;
        let sent = match self.manner {
            Manner::HalfOpen => Vec::new(),
            // A record of a handshake that says it has 16 KiB, and a part of it.
            Manner::Handshake => vec![22, 3, 1, 0x40, 0, 1, 0],
            Manner::TlsGarbage => {
                let head: &[u8] = if self.random.below(2) == 0 { &[] } else { &[22, 3, 1, 3, 0xe8] };
                [head, &self.garbage()].concat()
            }
            _ => {
                let wire = Wire::tls(stream, &self.target.trust).await?;
                let _open = made.count(self.manner);
                return self.attack_by(wire).await;
            }
        };
        let mut wire = Wire::new(stream);
        let _open = made.count(self.manner);
        wire.send(&sent).await?;
        wire.is_closed_within(HOLD).await.map(drop)
    }

    async fn attack_by(&mut self, mut wire: Wire) -> io::Result<()> {
        let target = Arc::clone(&self.target);
        let token = (self.by == By::User).then_some(&target.token[..]);
        let call = |path: &str| [begin(), headers(1, path, token)].concat();
        match self.manner {
            Manner::HalfOpen => {}
            Manner::Garbage | Manner::TlsGarbage => wire.send(&self.garbage()).await?,
            Manner::Handshake => wire.send(&begin()).await?,
            Manner::Slow => {
                for byte in [call("/duramen.v1.Data/Batch"), data(1, &[0; 5_000], true)].concat() {
                    wire.send(&[byte]).await?;
                    if wire.is_closed_within(Duration::from_secs(1)).await? {
                        return Ok(());
                    }
                }
            }
            Manner::Giant => {
                wire.send(&call("/duramen.v1.Data/Batch")).await?;
                let length = 16_000_000_u32.to_be_bytes();
                wire.send(&data(1, &[&[0], &length[..]].concat(), false)).await?;
                // As much as the window lets in, and no more.
                for _ in 0..3 {
                    wire.send(&data(1, &[0x5a; 16_000], false)).await?;
                }
            }
            Manner::Empty => {
                wire.send(&call("/duramen.v1.Data/Read")).await?;
                let length = 8_000_000_u32.to_be_bytes();
                wire.send(&data(1, &[&[0], &length[..]].concat(), false)).await?;
                let part = data(1, &[0x0a, 0x00].repeat(8_000), false);
                // It takes what the server's windows let in; the rest is refused.
                for _ in 0..500 {
                    wire.send(&part).await?;
                    sleep(Duration::from_millis(2)).await;
                }
            }
            Manner::Upload => {
                wire.send(&call("/duramen.v1.Blobs/Upload")).await?;
                let piece = [within(0x0a, FILES.as_bytes()), within(0x1a, &[7; 15_000])].concat();
                wire.send(&message(1, &piece, false)).await?;
            }
            _ => return self.ask(wire, token).await,
        }
        wire.is_closed_within(HOLD).await.map(drop)
    }

    /// Asks for much, and takes nothing of it.
    async fn ask(&self, mut wire: Wire, token: Option<&str>) -> io::Result<()> {
        let call = |path: &str| [begin(), headers(1, path, token)].concat();
        match self.manner {
            Manner::Single => {
                wire.send(&begin()).await?;
                let read = get_ten();
                for stream in (1..200).step_by(2) {
                    wire.send(&headers(stream, "/duramen.v1.Data/Read", token)).await?;
                    wire.send(&message(stream, &read, true)).await?;
                }
            }
            Manner::Transact => {
                wire.send(&call("/duramen.v1.Data/Transact")).await?;
                // A `begin`, then steps that each get ten documents.
                let step = within(0x12, &get_ten_of_step());
                let mut sent = message(1, &within(0x0a, &[]), false);
                let start = Instant::now();
                while start.elapsed() < HOLD {
                    wire.send(&sent).await?;
                    sent = message(1, &step, false);
                    sleep(Duration::from_millis(20)).await;
                }
                return Ok(());
            }
            Manner::Download => {
                wire.send(&call("/duramen.v1.Blobs/Download")).await?;
                let key = within(0x12, &within(0x0a, &within(0x32, b"big")));
                let blob = [within(0x0a, FILES.as_bytes()), key].concat();
                wire.send(&message(1, &blob, true)).await?;
            }
            Manner::Unread | Manner::Sorted => {
                wire.send(&call("/duramen.v1.Data/Scan")).await?;
                // `collection`, of the scan or of its query, which has an `order_by`.
                let mut request = within(0x0a, BIG.as_bytes());
                if self.manner == Manner::Sorted {
                    request.extend(within(0x32, b"text:desc"));
                    request = within(0x42, &request);
                }
                wire.send(&message(1, &request, true)).await?;
            }
            _ => {}
        }
        sleep(HOLD).await;
        Ok(())
    }
}

/// `get` of a document of [`BIG`].
fn get() -> Vec<u8> {
    let key = [&[0x0a, 2, 0x18], &[2_u8][..]].concat();
    within(0x0a, &[within(0x0a, BIG.as_bytes()), within(0x12, &key)].concat())
}

/// A `ReadRequest` of ten documents.
fn get_ten() -> Vec<u8> {
    within(0x0a, &get()).repeat(10)
}

/// A `Step` that reads ten documents.
fn get_ten_of_step() -> Vec<u8> {
    within(0x12, &get()).repeat(10)
}
