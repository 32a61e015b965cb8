//! A link: one way of a client or a node to a node, which can be cut, slow, lossy or broken.
//!
//! It listens where its user believes the node to be, in the user's namespace, and passes bytes on into the
//! node's. What a cut or a delay holds back arrives later, as TCP would send it again; a loss is a wait of
//! the time after which TCP does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use duramen_disk::memory::Random;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::failure::{Result, failed};
use crate::room::Room;

/// How often a cut link looks whether it is still cut.
const LOOK: Duration = Duration::from_millis(2);
/// After this time TCP sends what was lost again.
const SENT_AGAIN: Duration = Duration::from_millis(200);
/// What is under way in one direction, in chunks.
const CHUNKS: usize = 64;
const CHUNK_BYTES: usize = 16 << 10;

/// What is wrong with a link. Nothing is, at first.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// From the user to the node, and back.
    is_cut: [AtomicBool; 2],
    delay_ms: AtomicU64,
    lost_percent: AtomicU64,
    /// So many of the next chunks have a flipped bit.
    flips: AtomicU64,
    /// Connections of an older number are broken.
    broken: watch::Sender<u64>,
}

impl Conditions {
    /// Cuts it: on the way there, on the way back.
    pub(crate) fn cut(&self, there: bool, back: bool) {
        self.is_cut[0].store(there, Ordering::Relaxed);
        self.is_cut[1].store(back, Ordering::Relaxed);
    }

    pub(crate) fn delay(&self, by: Duration) {
        self.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn lose(&self, percent: u64) {
        self.lost_percent.store(percent, Ordering::Relaxed);
    }

    /// Flips a bit in each of the next chunks.
    pub(crate) fn flip(&self, chunks: u64) {
        self.flips.store(chunks, Ordering::Relaxed);
    }

    /// Breaks all its connections.
    pub(crate) fn break_connections(&self) {
        self.broken.send_modify(|number| *number += 1);
    }

    /// Nothing is wrong any more.
    pub(crate) fn heal(&self) {
        self.cut(false, false);
        self.delay(Duration::ZERO);
        self.lose(0);
        self.flip(0);
    }

    async fn until_whole(&self, direction: usize) {
        while self.is_cut[direction].load(Ordering::Relaxed) {
            sleep(LOOK).await;
        }
    }

    /// When a chunk that is sent now arrives.
    fn arrival(&self, random: &mut Random) -> Instant {
        let mut takes = Duration::from_millis(self.delay_ms.load(Ordering::Relaxed));
        if (random.below(100) as u64) < self.lost_percent.load(Ordering::Relaxed) {
            takes += SENT_AGAIN;
        }
        Instant::now() + takes
    }

    fn flips_one(&self) -> bool {
        self.flips.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// Makes a link from a namespace, where it listens, to one in which the node listens at `node`.
pub(crate) fn make(
    handle: &Handle,
    (from, at): (&Room, SocketAddr),
    (to, node): (&Arc<Room>, SocketAddr),
    seed: u64,
) -> Result<Arc<Conditions>> {
    let conditions = Arc::new(Conditions::default());
    let listener = from.listen(at)?;
    let of = Passing { conditions: Arc::clone(&conditions), to: Arc::clone(to), node, seed };
    let failing = |error: std::io::Error| failed("listen on", &at, &error);
    listener.set_nonblocking(true).map_err(failing)?;
    let _inside = handle.enter();
    let listener = TcpListener::from_std(listener).map_err(failing)?;
    handle.spawn(of.take(listener));
    Ok(conditions)
}

/// How connections are passed on.
struct Passing {
    conditions: Arc<Conditions>,
    to: Arc<Room>,
    node: SocketAddr,
    seed: u64,
}

impl Passing {
    /// Takes connections for ever.
    async fn take(self, listener: TcpListener) {
        let mut number = 0;
        while let Ok((user, _)) = listener.accept().await {
            number += 1;
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number);
            let (conditions, to, node) = (Arc::clone(&self.conditions), Arc::clone(&self.to), self.node);
            tokio::spawn(async move {
                let mut broken = conditions.broken.subscribe();
                tokio::select! {
                    () = pass(user, &conditions, to, node, seed) => {}
                    _ = broken.changed() => {}
                }
            });
        }
    }
}

/// Passes on what one connection says, in both directions, until it ends.
async fn pass(user: TcpStream, conditions: &Arc<Conditions>, to: Arc<Room>, node: SocketAddr, seed: u64) {
    conditions.until_whole(0).await;
    conditions.until_whole(1).await;
    let connected = tokio::task::spawn_blocking(move || to.connect(node)).await;
    let Ok(Ok(connected)) = connected else { return };
    if connected.set_nonblocking(true).is_err() {
        return;
    }
    let Ok(server) = TcpStream::from_std(connected) else { return };
    // What one end sends at once must not wait for the other's acknowledgement.
    let _ = (user.set_nodelay(true), server.set_nodelay(true));
    let ((from_user, to_user), (from_server, to_server)) = (user.into_split(), server.into_split());
    tokio::join!(
        one_way(from_user, to_server, conditions, (0, seed)),
        one_way(from_server, to_user, conditions, (1, seed)),
    );
}

async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    conditions: &Arc<Conditions>,
    (direction, seed): (usize, u64),
) {
    let (send, mut receive) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS);
    let mut random = Random::new(seed.wrapping_mul(2).wrapping_add(direction as u64));
    let reading = async {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
            let mut chunk = buffer[..bytes].to_vec();
            if conditions.flips_one() {
                chunk[random.below(bytes)] ^= 1 << random.below(8);
            }
            if send.send((conditions.arrival(&mut random), chunk)).await.is_err() {
                break;
            }
        }
        drop(send);
    };
    let writing = async {
        while let Some((arrives, chunk)) = receive.recv().await {
            sleep_until(arrives).await;
            conditions.until_whole(direction).await;
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        let _ = to.shutdown().await;
        receive.close();
    };
    tokio::join!(reading, writing);
}
