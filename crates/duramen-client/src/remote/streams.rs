//! Streams of transactions that rest between two of them: opening one costs a round trip.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use duramen::error::Result;

use crate::client::Client;
use crate::stream::TransactionStream;

/// So many streams rest; more are closed.
const RESTING_MAX: usize = 64;

/// The streams of a connection.
#[derive(Debug)]
pub(super) struct Streams {
    client: Client,
    resting: Mutex<Vec<TransactionStream>>,
}

impl Streams {
    pub(super) fn new(client: Client) -> Streams {
        Streams { client, resting: Mutex::default() }
    }

    /// A stream for a transaction that lasts so long: one that rests, or a new one.
    pub(super) fn take(&self, lasts: Duration) -> Result<TransactionStream> {
        loop {
            let rested = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut stream) = rested else { return self.client.transactions() };
            if stream.wake(lasts) {
                return Ok(stream);
            }
        }
    }

    /// Keeps a stream, whose transaction is rolled back if it is open.
    pub(super) fn give_back(&self, mut stream: TransactionStream, is_open: bool) {
        if stream.rest(is_open) {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            if resting.len() < RESTING_MAX {
                resting.push(stream);
            }
        }
    }
}
