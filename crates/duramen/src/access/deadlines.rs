//! The times that must not have passed when a transaction takes its place in the order: expiries of the
//! key-values on which it relied.
//!
//! A transaction has one "now" for all its reads, and commits later. A lock with a lifetime that it read as
//! held may have ended by then and be another's; one that it takes may have ended before anyone sees it.
//! Validation compares states, in which no time passes, so the commit looks at the clock once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::open_state::OpenState;
use crate::store;
use crate::store::error::{Code, Error};
use crate::value::clock::Millis;

const NEVER: u64 = u64::MAX;

/// The earliest of some expiries. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(Arc<AtomicU64>);

impl Default for Deadline {
    fn default() -> Deadline {
        Deadline(Arc::new(AtomicU64::new(NEVER)))
    }
}

impl Deadline {
    /// Notes one more expiry.
    pub(crate) fn note(&self, expires: Option<Millis>) {
        if let Some(Millis(at)) = expires {
            self.0.fetch_min(at, Ordering::Relaxed);
        }
    }

    fn at(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }
}

/// The deadlines of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// Values that were read before they expired.
    pub(crate) read: Deadline,
    /// Values that were written with a lifetime.
    pub(crate) written: Deadline,
}

/// Which deadlines count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Those of values that were read. A closure that runs again after a conflict would never commit a value
    /// with the shortest of lifetimes.
    Read,
    /// Those of values that were written, too: a transaction that rests may rest for longer than they live.
    ReadAndWritten,
}

impl Deadlines {
    /// Lets the engine's transaction commit only before the deadlines. One that runs alone may be placed at
    /// the moment that was its "now": no other transaction is ordered since then. So a closure always ends.
    pub(crate) fn hold(&self, count: Count, inner: &mut store::Transaction, state: &Arc<OpenState>) {
        let at = match count {
            Count::Read => self.read.at(),
            Count::ReadAndWritten => self.read.at().min(self.written.at()),
        };
        if at == Millis(NEVER) || inner.runs_alone() {
            return;
        }
        let state = Arc::clone(state);
        inner.only_if(Box::new(move || {
            if state.clock.now() < at {
                return Ok(());
            }
            let what = "a key-value with a lifetime, which this transaction read or wrote, expired before the commit";
            Err(Error::new(Code::WriteConflict, what))
        }));
    }
}
