//! The connections of a listener: how many there are, in all and of one address, and which of them belong to
//! clients that are not known yet.
//!
//! Any machine that reaches a listener can open connections. Those without a call that was let in are
//! strangers, and may take half of the places; for one more, the oldest of them is closed. So strangers who
//! take all that they can get do not keep a client out that makes its first call at once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::WAIT;

/// Connections of one remote address.
const OF_ADDRESS_MAX: usize = 256;

/// Callers of one connection that are kept apart.
const SHOWN_MAX: usize = 64;

/// The places for connections.
#[derive(Debug)]
pub(crate) struct Entrance {
    places: Arc<Semaphore>,
    strangers_max: usize,
    of_address_max: usize,
    next: AtomicU64,
    inside: Mutex<Inside>,
}

/// The connections that are there.
#[derive(Debug, Default)]
struct Inside {
    /// In the order in which they came.
    strangers: BTreeMap<u64, Arc<Notify>>,
    of_address: HashMap<IpAddr, usize>,
}

/// A connection. Dropping it gives its place back.
#[derive(Debug)]
pub(crate) struct Entered {
    entrance: Arc<Entrance>,
    number: u64,
    address: Option<IpAddr>,
    is_known: AtomicBool,
    /// What its callers have shown.
    shown: Mutex<HashSet<String>>,
    close: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Entrance {
    pub(crate) fn new(connections: usize) -> Arc<Entrance> {
        Arc::new(Entrance {
            places: Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))),
            strangers_max: (connections / 2).max(1),
            of_address_max: OF_ADDRESS_MAX,
            next: AtomicU64::new(0),
            inside: Mutex::default(),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from an address, or from this machine. `None` if there is none: known clients
    /// have them all, or that address has too many.
    pub(crate) async fn enter(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Entered> {
        let address = from.map(network).filter(|address| !address.is_loopback());
        if address.is_some_and(|address| self.inside().of(address) >= self.of_address_max) {
            return None;
        }
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.inside().close_oldest();
                timeout(WAIT, Arc::clone(&self.places).acquire_owned()).await.ok()?.ok()?
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let close = Arc::new(Notify::new());
        let mut inside = self.inside();
        if inside.strangers.len() >= self.strangers_max {
            inside.close_oldest();
        }
        inside.strangers.insert(number, Arc::clone(&close));
        if let Some(address) = address {
            *inside.of_address.entry(address).or_default() += 1;
        }
        drop(inside);
        Some(Entered {
            entrance: Arc::clone(self),
            number,
            address,
            is_known: AtomicBool::new(false),
            shown: Mutex::default(),
            close,
            _place: place,
        })
    }
}

impl Inside {
    fn of(&self, address: IpAddr) -> usize {
        self.of_address.get(&address).copied().unwrap_or(0)
    }

    fn close_oldest(&mut self) {
        if let Some((_, close)) = self.strangers.pop_first() {
            close.notify_one();
        }
    }

    fn leave(&mut self, address: IpAddr) {
        if let Some(count) = self.of_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&address);
            }
        }
    }
}

impl Entered {
    /// A call of its client was let in.
    pub(crate) fn set_known(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            self.entrance.inside().strangers.remove(&self.number);
        }
    }

    /// Whether this is the first call on the connection that shows this.
    pub(crate) fn is_first(&self, shown: String) -> bool {
        let mut all = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        !all.contains(&shown) && (all.len() >= SHOWN_MAX || all.insert(shown))
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Returns once the connection is to be closed for another stranger.
    pub(crate) async fn closed(&self) {
        loop {
            self.close.notified().await;
            // Told in the moment in which it became known.
            if !self.is_known() {
                return;
            }
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut inside = self.entrance.inside();
        inside.strangers.remove(&self.number);
        if let Some(address) = self.address {
            inside.leave(address);
        }
    }
}

/// What one host has: an address of version 4, or the first half of one of version 6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    //! Strangers must not keep a client out that says who it is.
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(work)
    }

    #[test]
    fn the_oldest_stranger_makes_room_for_a_new_one() {
        run(async {
            let entrance = Entrance::new(4);
            let known = entrance.enter(None).await.expect("free");
            known.set_known();
            let first = entrance.enter(None).await.expect("free");
            let second = entrance.enter(None).await.expect("free");
            let third = entrance.enter(None).await.expect("free");
            timeout(WAIT, first.closed()).await.expect("it is the oldest");
            drop(first);
            // All places are taken: the next stranger goes, and its place is waited for.
            let fourth = entrance.enter(None).await.expect("the place of the first");
            timeout(WAIT, second.closed()).await.expect("it is the oldest now");
            assert!(timeout(WAIT, third.closed()).await.is_err());
            assert!(timeout(WAIT, known.closed()).await.is_err());
            drop((second, third, fourth));
            let clients: Vec<_> = [entrance.enter(None).await, entrance.enter(None).await].into();
            clients.iter().flatten().for_each(Entered::set_known);
            let last = entrance.enter(None).await.expect("free");
            last.set_known();
            assert!(entrance.enter(None).await.is_none(), "known clients have all places");
            assert!(entrance.inside().strangers.is_empty());
        });
    }

    #[test]
    fn one_address_takes_no_more_than_its_part() {
        run(async {
            let mut entrance = Entrance::new(100);
            Arc::get_mut(&mut entrance).expect("the only one").of_address_max = 2;
            let of = |address: &str| Some(address.parse().expect("an address"));
            let mut held = Vec::new();
            for (address, is_in) in [
                ("10.0.0.1", true),
                ("::ffff:10.0.0.1", true),
                ("10.0.0.1", false),
                ("10.0.0.2", true),
                ("2001:db8::1", true),
                ("2001:db8::ffff:1", true),
                ("2001:db8::2", false),
                ("2001:db8:0:1::2", true),
                ("127.0.0.1", true),
                ("127.0.0.1", true),
                ("127.0.0.1", true),
                ("::1", true),
                ("::1", true),
                ("::1", true),
            ] {
                let entered = entrance.enter(of(address)).await;
                assert_eq!(entered.is_some(), is_in, "{address}");
                held.extend(entered);
            }
            held.clear();
            assert!(entrance.inside().of_address.is_empty());
            assert!(entrance.enter(of("10.0.0.1")).await.is_some());
        });
    }
}
