//! Streams of transactions that rest between two of them: opening one costs a round trip.
//!
//! Owns how many are in use. A connection has 128 streams for calls of all kinds: beyond that a call would
//! wait until another one ends, also one that a transaction needs to end.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};

use crate::client::Client;
use crate::stream::TransactionStream;

/// So many streams are in use or rest; transactions beyond them wait.
const STREAMS_MAX: usize = 96;

/// How long a transaction waits for one.
const WAIT: Duration = Duration::from_secs(30);

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    client: Client,
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    resting: Vec<TransactionStream>,
    /// The connection of those that rest.
    link: u64,
}

/// A stream in use. Dropped, it rolls back its transaction, and another one may be opened.
#[derive(Debug)]
pub(super) struct InUse {
    stream: Option<TransactionStream>,
    streams: Arc<Streams>,
    /// Its connection.
    link: u64,
}

impl Streams {
    pub(super) fn new(client: Client) -> Streams {
        Streams { client, state: Mutex::default(), given_back: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream for a transaction that lasts so long: one that rests, or a new one.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if all are in use for 30 seconds; as [`Client::transactions`].
    pub(super) fn take(self: &Arc<Self>, lasts: Duration) -> Result<InUse> {
        let mut place = self.enter()?;
        place.link = self.client.link_number();
        loop {
            let rested = self.state().resting_on(place.link);
            let Some(mut stream) = rested else {
                place.stream = Some(self.client.transactions()?);
                return Ok(place);
            };
            if stream.wake(lasts) {
                place.stream = Some(stream);
                return Ok(place);
            }
        }
    }

    /// Waits for a place among those in use.
    fn enter(self: &Arc<Self>) -> Result<InUse> {
        let until = Instant::now() + WAIT;
        let mut state = self.state();
        while state.in_use >= STREAMS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("{STREAMS_MAX} transactions and snapshots of the connection are open");
                return Err(Error::new(Code::Overloaded, what)
                    .with_hint("end some of them, or connect once more for others"));
            }
            let woken = self.given_back.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.in_use += 1;
        Ok(InUse { stream: None, streams: Arc::clone(self), link: 0 })
    }
}

impl State {
    /// One that rests on this connection. Those of connections before are ended.
    fn resting_on(&mut self, link: u64) -> Option<TransactionStream> {
        if self.link != link {
            self.resting.clear();
            self.link = link;
        }
        self.resting.pop()
    }
}

impl InUse {
    /// Lets the stream rest, after its transaction was rolled back if it is open.
    pub(super) fn give_back(mut self, is_open: bool) {
        if let Some(mut stream) = self.stream.take()
            && stream.rest(is_open)
        {
            let mut state = self.streams.state();
            // With those in use they are not more than there may be.
            if state.link == self.link && state.in_use + state.resting.len() <= STREAMS_MAX {
                state.resting.push(stream);
            }
        }
    }
}

impl Deref for InUse {
    type Target = TransactionStream;

    fn deref(&self) -> &TransactionStream {
        self.stream.as_ref().expect("it is there until it is given back")
    }
}

impl DerefMut for InUse {
    fn deref_mut(&mut self) -> &mut TransactionStream {
        self.stream.as_mut().expect("it is there until it is given back")
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // The stream ends before another one takes its place.
        drop(self.stream.take());
        self.streams.state().in_use -= 1;
        self.streams.given_back.notify_one();
    }
}
