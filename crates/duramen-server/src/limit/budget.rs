//! Bytes that clients make the server hold: all of them together have a limit.
//!
//! A request is charged by the length that it declares, which the decoder reserves at once. It waits for a
//! moment where there is no room, and is then refused. Replies exist when they are charged, so they always
//! are: a request that finds no room has the connection closed that holds most. Without that, a few clients
//! that send much and read nothing would keep all others out. Where the others hold all there is, each
//! connection still has a few bytes of its own for small calls, as long as it takes its replies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::WAIT;

/// A connection that holds less, beside bytes of its own, is never closed for what it holds.
const HOLDS_MUCH: usize = 64 << 10;

/// What each connection has of its own.
const OWN_BYTES: usize = 16 << 10;

/// A connection that has not taken so much of its single replies begins no call.
const UNTAKEN_BYTES_MAX: usize = 1 << 20;

/// One that takes nothing of so much of its streams is closed after a while.
pub(crate) const UNTAKEN_OF_STREAMS_MAX: usize = 4 << 20;

/// The bytes of all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Without the bytes that are kept for connections as their own.
    max: usize,
    used: AtomicUsize,
    given_back: Notify,
    holders: Mutex<HashMap<u64, Weak<Holder>>>,
    next: AtomicU64,
}

/// The bytes of one connection.
#[derive(Debug)]
pub(crate) struct Holder {
    budget: Arc<Budget>,
    number: u64,
    held: AtomicUsize,
    /// Those of them that are its own.
    own: AtomicUsize,
    /// Bytes of replies that wait for the client, and how many it has taken.
    replies: AtomicUsize,
    /// Those of streams, which end by themselves if they are not read.
    of_streams: AtomicUsize,
    taken: AtomicU64,
    /// Some of its bytes were given back.
    given_back: Notify,
    /// It is to be closed; told once.
    is_closing: AtomicBool,
    close: Notify,
}

/// Bytes that are held; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Charge {
    holder: Arc<Holder>,
    bytes: usize,
    /// Those of them that are the connection's own.
    own: usize,
    of: Of,
}

/// What bytes are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Work,
    Reply,
    Stream,
}

/// The bytes of a connection's window.
#[derive(Debug)]
pub(crate) struct Window {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// Of so many bytes in all, at most half of which are kept for so many connections.
    pub(crate) fn new(max: usize, connections: usize) -> Arc<Budget> {
        let kept = connections.saturating_mul(OWN_BYTES).min(max / 2);
        Arc::new(Budget {
            max: max - kept,
            used: AtomicUsize::new(0),
            given_back: Notify::new(),
            holders: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// A new connection.
    pub(crate) fn holder(self: &Arc<Self>) -> Arc<Holder> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let holder = Arc::new(Holder {
            budget: Arc::clone(self),
            number,
            held: AtomicUsize::new(0),
            own: AtomicUsize::new(0),
            replies: AtomicUsize::new(0),
            of_streams: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            given_back: Notify::new(),
            is_closing: AtomicBool::new(false),
            close: Notify::new(),
        });
        self.lock().insert(number, Arc::downgrade(&holder));
        holder
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection that holds most, if it holds much: for another one that wants bytes, and holds
    /// less. Those that are closing already may give back enough.
    fn close_the_largest(&self, wanted: usize, by: &Holder) {
        let missing = (self.used.load(Ordering::Relaxed) + wanted).saturating_sub(self.max);
        let holders: Vec<Arc<Holder>> = self.lock().values().filter_map(Weak::upgrade).collect();
        let is_closing = |holder: &Arc<Holder>| holder.is_closing.load(Ordering::Relaxed);
        let (closing, open): (Vec<_>, Vec<_>) = holders.iter().partition(|holder| is_closing(holder));
        if missing == 0 || closing.iter().map(|holder| holder.of_all()).sum::<usize>() >= missing {
            return;
        }
        let Some(largest) = open.iter().max_by_key(|holder| holder.of_all()) else { return };
        if largest.number != by.number && largest.of_all() >= HOLDS_MUCH.max(by.of_all() + 1) {
            largest.is_closing.store(true, Ordering::Relaxed);
            largest.close.notify_one();
        }
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Holder {
    /// Bytes of a request.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room within 100 ms.
    pub(crate) async fn take(self: &Arc<Self>, bytes: usize) -> Result<Charge> {
        if let Some(charge) = self.try_take(bytes) {
            return Ok(charge);
        }
        // Most of what is held is held for milliseconds.
        if let Ok(charge) = timeout(WAIT / 2, self.take_patiently(bytes)).await {
            return Ok(charge);
        }
        self.budget.close_the_largest(bytes, self);
        timeout(WAIT / 2, self.take_patiently(bytes)).await.map_err(|_| overloaded("memory for messages"))
    }

    /// As [`Holder::take`], for as long as it takes: the caller gives up in its own time. No connection is
    /// closed for these.
    pub(crate) async fn take_patiently(self: &Arc<Self>, bytes: usize) -> Charge {
        loop {
            // Registered before the look, so that nothing is missed in between.
            let (by_any, by_itself) = (self.budget.given_back.notified(), self.given_back.notified());
            if let Some(charge) = self.try_take(bytes) {
                return charge;
            }
            tokio::select! {
                () = by_any => {}
                () = by_itself => {}
            }
        }
    }

    /// As [`Holder::take`], for so long. No connection is closed for it.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room within the time.
    pub(crate) async fn take_within(self: &Arc<Self>, bytes: usize, within: Duration) -> Result<Charge> {
        let taken = timeout(within, self.take_patiently(bytes)).await;
        taken.map_err(|_| overloaded("memory for messages"))
    }

    /// As [`Holder::take`], without waiting.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room.
    pub(crate) fn take_now(self: &Arc<Self>, bytes: usize) -> Result<Charge> {
        if let Some(charge) = self.try_take(bytes) {
            return Ok(charge);
        }
        self.budget.close_the_largest(bytes, self);
        Err(overloaded("memory for messages"))
    }

    /// Bytes that a query works in, without waiting, and none of the connection's own. No connection is
    /// closed for them: there is room again once another query has ended.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room.
    pub(crate) fn take_to_work(self: &Arc<Self>, bytes: usize) -> Result<Charge> {
        self.try_take_of_all(bytes).ok_or_else(|| overloaded("memory for queries"))
    }

    /// Of the bytes for all, or else of its own, if the client takes its replies.
    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.try_take_of_all(bytes).or_else(|| {
            let (replies, of_streams, _) = self.replies();
            let left = OWN_BYTES.saturating_sub(replies + of_streams);
            take(&self.own, bytes, left).then(|| Charge::new(self, bytes, bytes, Of::Work))
        })
    }

    fn try_take_of_all(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        take(&self.budget.used, bytes, self.budget.max).then(|| Charge::new(self, bytes, 0, Of::Work))
    }

    /// What it holds beside bytes of its own.
    fn of_all(&self) -> usize {
        self.held.load(Ordering::Relaxed).saturating_sub(self.own.load(Ordering::Relaxed))
    }

    /// Bytes of a reply, which exist already.
    fn charge_reply(self: &Arc<Self>, bytes: usize, is_stream: bool) -> Charge {
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        let of = if is_stream { Of::Stream } else { Of::Reply };
        self.waiting(of).fetch_add(bytes, Ordering::Relaxed);
        Charge::new(self, bytes, 0, of)
    }

    /// A frame of a reply, which exists already, before its parts wait for the client.
    pub(crate) fn charge_frame(self: &Arc<Self>, bytes: usize, is_stream: bool) -> Charge {
        if is_stream {
            return self.charge_reply(bytes, true);
        }
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        Charge::new(self, bytes, 0, Of::Work)
    }

    fn waiting(&self, of: Of) -> &AtomicUsize {
        if of == Of::Stream { &self.of_streams } else { &self.replies }
    }

    /// Tells this connection from all others.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Until the client has taken so much of its replies that it may have others: one that asks and takes
    /// nothing waits for itself, and the others do not wait for it.
    pub(crate) async fn caught_up(&self) {
        loop {
            // Registered before the look, so that nothing is missed in between.
            let given_back = self.given_back.notified();
            if self.is_caught_up() {
                return;
            }
            given_back.await;
        }
    }

    pub(crate) fn is_caught_up(&self) -> bool {
        self.replies.load(Ordering::Relaxed) < UNTAKEN_BYTES_MAX
    }

    /// The window of the connection: what arrives there is held before any call sees it.
    pub(crate) fn charge_window(self: &Arc<Self>, bytes: usize) -> Window {
        self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        Window { budget: Arc::clone(&self.budget), bytes }
    }

    /// Bytes of replies that the client has not taken, of single ones and of streams, and how many it has
    /// taken so far.
    pub(crate) fn replies(&self) -> (usize, usize, u64) {
        let of = |of: Of| self.waiting(of).load(Ordering::Relaxed);
        (of(Of::Reply), of(Of::Stream), self.taken.load(Ordering::Relaxed))
    }

    /// Until the connection is to be closed for what it holds.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// Adds to what is used, if it stays within the most.
fn take(used: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.budget.lock().remove(&self.number);
    }
}

impl Charge {
    fn new(holder: &Arc<Holder>, bytes: usize, own: usize, of: Of) -> Charge {
        holder.held.fetch_add(bytes, Ordering::Relaxed);
        Charge { holder: Arc::clone(holder), bytes, own, of }
    }

    /// More bytes, which exist already.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.holder.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.holder.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// So many of the bytes, as far as there are so many left.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes);
        let own = bytes.min(self.own);
        self.bytes -= bytes;
        self.own -= own;
        Charge { holder: Arc::clone(&self.holder), bytes, own, of: self.of }
    }

    /// A part of a frame, which waits for the client from now on.
    pub(crate) fn part(&mut self, bytes: usize) -> Charge {
        let mut part = self.split(bytes);
        if part.of == Of::Work {
            part.of = Of::Reply;
            part.holder.replies.fetch_add(part.bytes, Ordering::Relaxed);
        }
        part
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.given_back.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Charge { holder, bytes, own, of } = self;
        holder.held.fetch_sub(*bytes, Ordering::Relaxed);
        holder.own.fetch_sub(*own, Ordering::Relaxed);
        if *of != Of::Work {
            holder.waiting(*of).fetch_sub(*bytes, Ordering::Relaxed);
            holder.taken.fetch_add(1, Ordering::Relaxed);
        }
        holder.given_back.notify_waiters();
        // Bytes of its own are of use to no other.
        if *bytes > *own {
            holder.budget.used.fetch_sub(*bytes - *own, Ordering::Relaxed);
            holder.budget.given_back.notify_waiters();
        }
    }
}

/// The server has no room for a call.
pub(crate) fn overloaded(what: &str) -> Error {
    Error::new(Code::Overloaded, format!("the server has no {what} left for this call"))
        .with_hint("nothing was changed: try again in a moment, with fewer or smaller calls at once")
}

/// When to come back: spread, so that not all come back at once.
pub(crate) fn retry_after() -> Duration {
    let mut random = [0_u8; 1];
    // Without randomness all wait for as long.
    let spread = match rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(_) => u64::from(random[0]),
        Err(_) => 0,
    };
    Duration::from_millis(100 + spread)
}

#[cfg(test)]
mod tests {
    //! What clients make the server hold must have an end, and a few must not keep all others out.
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn bytes_are_given_back_and_no_more_are_taken_than_there_are() {
        let budget = Budget::new(100_000, 0);
        let (one, two) = (budget.holder(), budget.holder());
        block_on(async {
            let first = one.take(60_000).await.expect("there is room");
            assert_eq!(two.take(40_001).await.expect_err("no room").code(), Code::Overloaded);
            let mut second = two.take(40_000).await.expect("there is room");
            assert_eq!(budget.used(), 100_000);
            drop((first, second.split(30), second));
        });
        assert_eq!(budget.used(), 0);
        drop((one, two));
        assert!(budget.lock().is_empty());
    }

    #[test]
    fn a_call_that_waits_gets_what_another_gives_back() {
        let budget = Budget::new(100_000, 0);
        let (one, two) = (budget.holder(), budget.holder());
        block_on(async {
            let first = one.take(100_000).await.expect("there is room");
            let second = two.take(OWN_BYTES + 1);
            let (second, ()) = tokio::join!(second, async {
                tokio::task::yield_now().await;
                drop(first);
            });
            drop(second.expect("given back in time"));
        });
    }

    #[test]
    fn a_connection_has_room_for_small_calls_whatever_others_hold() {
        let budget = Budget::new(16 << 20, 128);
        let (greedy, small) = (budget.holder(), budget.holder());
        block_on(async {
            let much = greedy.take(14 << 20).await.expect("as much as there is");
            // A reply exists, and takes nothing of what is kept for others.
            let reply = budget.holder().charge_reply(4 << 20, false);
            assert_eq!(small.take(OWN_BYTES + 1).await.expect_err("more").code(), Code::Overloaded);
            assert_eq!(small.take_to_work(1).expect_err("not for work").code(), Code::Overloaded);
            for _ in 0..2 {
                let mut own = small.take(OWN_BYTES).await.expect("its own");
                assert_eq!(small.take(1).await.expect_err("no more").code(), Code::Overloaded);
                let part = own.split(OWN_BYTES / 2);
                drop(own);
                assert_eq!(small.own.load(Ordering::Relaxed), OWN_BYTES / 2);
                let waits = small.take(OWN_BYTES);
                let (taken, ()) = tokio::join!(waits, async {
                    tokio::task::yield_now().await;
                    drop(part);
                });
                drop(taken.expect("given back by itself"));
            }
            let own = greedy.take(OWN_BYTES).await.expect("each has some");
            let used = budget.used();
            drop(own);
            assert_eq!(budget.used(), used);
            drop((much, reply));
        });
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_connection_that_takes_no_replies_has_none_of_its_own() {
        let budget = Budget::new(1 << 20, 0);
        let (greedy, unread) = (budget.holder(), budget.holder());
        let all = block_on(greedy.take(1 << 20)).expect("as much as there is");
        let mut replies = Vec::new();
        // Each answer is taken from the call's bytes, and waits for the client.
        while let Ok(call) = unread.take_now(1 << 10) {
            replies.push(unread.charge_reply(4 << 10, false));
            drop(call);
            assert!(replies.len() <= OWN_BYTES / (4 << 10), "bytes that nobody takes have an end");
        }
        drop(replies.pop());
        drop(unread.take_now(1 << 10).expect("it has taken one"));
        drop(all);
    }

    #[test]
    fn the_connection_that_holds_most_is_closed_when_there_is_no_room() {
        let budget = Budget::new(4 << 20, 0);
        let (greedy, small) = (budget.holder(), budget.holder());
        block_on(async {
            let replies = greedy.charge_reply(5 << 20, false);
            let own = small.charge_reply(10, false);
            assert_eq!(greedy.replies(), (5 << 20, 0, 0));
            let taken = tokio::join!(small.take(OWN_BYTES + 1), async {
                greedy.closed().await;
                drop(replies);
            });
            drop(taken.0.expect("the other was closed"));
            drop(own);
            assert_eq!(small.replies(), (0, 0, 1));
        });
    }
}
