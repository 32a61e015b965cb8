//! What hostile connections do to a server.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen_disk::memory::Random;
use rustls::ClientConfig;

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

/// One attacker: each has a manner, and comes by the socket, by TLS as a stranger, or by TLS as a user.
pub(super) struct Attacker<'a> {
    pub(super) target: &'a Target,
    pub(super) manner: Manner,
    by: By,
    random: Random,
    is_over: &'a AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Socket,
    Stranger,
    User,
}

impl<'a> Attacker<'a> {
    pub(super) fn new(
        target: &'a Target,
        number: u64,
        manner: Option<Manner>,
        seed: u64,
        is_over: &'a AtomicBool,
    ) -> Attacker<'a> {
        let (mixed, by) = (number % MANNERS.len() as u64, number / MANNERS.len() as u64 % 3);
        let mixed = MANNERS[usize::try_from(mixed).unwrap_or(0)];
        let by = [By::Socket, By::Stranger, By::User][usize::try_from(by).unwrap_or(0)];
        let random = Random::new(seed ^ number << 20);
        Attacker { target, manner: manner.unwrap_or(mixed), by, random, is_over }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits up to a fifth of a second.
    pub(super) fn rest(&mut self) {
        std::thread::sleep(Duration::from_millis(self.random.below(200) as u64));
    }

    fn garbage(&mut self) -> Vec<u8> {
        (0..1_000).map(|_| self.random.bits().to_le_bytes()[0]).collect()
    }

    /// Connects, and does what it does until the server closes the connection, or for a time.
    pub(super) fn attack(&mut self) -> io::Result<()> {
        let time = Some(Duration::from_secs(1));
        if self.by == By::Socket {
            let stream = UnixStream::connect(&self.target.socket)?;
            stream.set_write_timeout(time)?;
            return self.attack_by(Wire::Socket(stream));
        }
        let mut stream = TcpStream::connect(self.target.address)?;
        stream.set_write_timeout(time)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        match self.manner {
            Manner::HalfOpen => return self.hold(&mut Wire::Tcp(stream), HOLD).map(drop),
            // A record of a handshake that says it has 16 KiB, and a part of it.
            Manner::Handshake => stream.write_all(&[22, 3, 1, 0x40, 0, 1, 0])?,
            Manner::TlsGarbage => {
                let garbage = self.garbage();
                let head: &[u8] = if self.random.below(2) == 0 { &[] } else { &[22, 3, 1, 3, 0xe8] };
                stream.write_all(&[head, &garbage].concat())?;
            }
            _ => return self.attack_by(Wire::tls(stream, &self.target.trust)?),
        }
        self.hold(&mut Wire::Tcp(stream), HOLD).map(drop)
    }

    fn attack_by(&mut self, mut wire: Wire) -> io::Result<()> {
        let target = self.target;
        let token = (self.by == By::User).then_some(&target.token[..]);
        let call = |path: &str| [begin(), headers(1, path, token)].concat();
        match self.manner {
            Manner::HalfOpen => {}
            Manner::Garbage | Manner::TlsGarbage => wire.write_all(&self.garbage())?,
            Manner::Handshake => wire.write_all(&begin())?,
            Manner::Slow => {
                for byte in [call("/duramen.v1.Data/Batch"), data(1, &[0; 5_000], true)].concat() {
                    wire.write_all(&[byte])?;
                    if self.hold(&mut wire, Duration::from_secs(1))? {
                        return Ok(());
                    }
                }
            }
            Manner::Giant => {
                wire.write_all(&call("/duramen.v1.Data/Batch"))?;
                let length = 16_000_000_u32.to_be_bytes();
                wire.write_all(&data(1, &[&[0], &length[..]].concat(), false))?;
                // As much as the window lets in, and no more.
                for _ in 0..3 {
                    wire.write_all(&data(1, &[0x5a; 16_000], false))?;
                }
            }
            Manner::Empty => {
                wire.write_all(&call("/duramen.v1.Data/Read"))?;
                let length = 8_000_000_u32.to_be_bytes();
                wire.write_all(&data(1, &[&[0], &length[..]].concat(), false))?;
                let part = data(1, &[0x0a, 0x00].repeat(8_000), false);
                // It takes what the server's windows let in; the rest is refused.
                for _ in 0..500 {
                    wire.write_all(&part)?;
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            Manner::Upload => {
                wire.write_all(&call("/duramen.v1.Blobs/Upload"))?;
                let piece = [within(0x0a, FILES.as_bytes()), within(0x1a, &[7; 15_000])].concat();
                wire.write_all(&message(1, &piece, false))?;
            }
            _ => return self.ask(wire, token),
        }
        self.hold(&mut wire, HOLD).map(drop)
    }

    /// Asks for much, and takes nothing of it.
    fn ask(&self, mut wire: Wire, token: Option<&str>) -> io::Result<()> {
        let call = |path: &str| [begin(), headers(1, path, token)].concat();
        match self.manner {
            Manner::Single => {
                wire.write_all(&begin())?;
                let read = get_ten();
                for stream in (1..200).step_by(2) {
                    wire.write_all(&headers(stream, "/duramen.v1.Data/Read", token))?;
                    wire.write_all(&message(stream, &read, true))?;
                }
            }
            Manner::Transact => {
                wire.write_all(&call("/duramen.v1.Data/Transact"))?;
                // A `begin`, then steps that each get ten documents.
                let step = within(0x12, &get_ten_of_step());
                let mut sent = message(1, &within(0x0a, &[]), false);
                let start = Instant::now();
                while start.elapsed() < HOLD && !self.is_over() {
                    wire.write_all(&sent)?;
                    sent = message(1, &step, false);
                    std::thread::sleep(Duration::from_millis(20));
                }
                return Ok(());
            }
            Manner::Download => {
                wire.write_all(&call("/duramen.v1.Blobs/Download"))?;
                let key = within(0x12, &within(0x0a, &within(0x32, b"big")));
                let blob = [within(0x0a, FILES.as_bytes()), key].concat();
                wire.write_all(&message(1, &blob, true))?;
            }
            Manner::Unread | Manner::Sorted => {
                wire.write_all(&call("/duramen.v1.Data/Scan"))?;
                // `collection`, of the scan or of its query, which has an `order_by`.
                let mut request = within(0x0a, BIG.as_bytes());
                if self.manner == Manner::Sorted {
                    request.extend(within(0x32, b"text:desc"));
                    request = within(0x42, &request);
                }
                wire.write_all(&message(1, &request, true))?;
            }
            _ => {}
        }
        self.wait()
    }

    /// Reads nothing for a time.
    fn wait(&self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < HOLD && !self.is_over() {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Keeps the connection for a time; whether it was closed, or all is over.
    fn hold(&self, wire: &mut Wire, time: Duration) -> io::Result<bool> {
        let start = Instant::now();
        wire.set_read_timeout(Duration::from_millis(100))?;
        let mut bytes = [0; 4096];
        while start.elapsed() < time {
            if self.is_over() {
                return Ok(true);
            }
            match wire.read(&mut bytes) {
                Ok(0) => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
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
