//! The change feed for asynchronous programs.
//!
//! A thread of the pool reads changes, a batch at a time. They are handed out where they are awaited, so a
//! dropped future has consumed none. Nothing polls: the reader of the feed calls when there is more.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Poll, Waker};

use super::AsyncDb;
use super::pool::Crew;
use super::task::{Step, submit, wake};
use crate::access::collection::Collection;
use crate::feed::changes::{AnyChange, Change, ChangeIter, ChangeStop, Changes, Delivered};
use crate::feed::outside::FeedPosition;
use crate::store::CommitSeq;
use crate::store::error::Result;

const POISON: &str = "nothing panics while it is locked";

/// Changes of a selected kind, before the position to start from is chosen.
#[derive(Debug)]
pub struct AsyncChanges<T> {
    changes: Changes<T>,
    crew: Arc<Crew>,
}

impl AsyncDb {
    /// The changes of a collection after a commit, then those to come: durable ones only, in the order of
    /// commits, each once.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # #[derive(Debug, Serialize, Deserialize, Collection)]
    /// # struct Order { #[key] id: u64, cents: i64 }
    /// # async fn of(db: &AsyncDb) -> Result<()> {
    /// let mut changes = db.changes::<Order>().from_now();
    /// while let Some(change) = changes.next().await {
    ///     let change = change?;
    ///     println!("{}: {:?}", change.seq, change.document());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn changes<C: Collection + Send>(&self) -> AsyncChanges<Change<C>> {
        AsyncChanges { changes: self.blocking().changes(), crew: Arc::clone(&self.crew) }
    }

    /// All changes: of collections, key-values and trees of bytes.
    #[must_use]
    pub fn all_changes(&self) -> AsyncChanges<AnyChange> {
        AsyncChanges { changes: self.blocking().all_changes(), crew: Arc::clone(&self.crew) }
    }
}

impl<T: Delivered + Send + 'static> AsyncChanges<T> {
    /// Every change after a commit, as [`Changes::since`].
    #[must_use]
    pub fn since(self, after: CommitSeq) -> AsyncChangeIter<T> {
        AsyncChangeIter::new(self.changes.since(after), self.crew)
    }

    /// As [`Changes::resume`].
    #[must_use]
    pub fn resume(self, position: FeedPosition) -> AsyncChangeIter<T> {
        AsyncChangeIter::new(self.changes.resume(position), self.crew)
    }

    /// As [`Changes::from_beginning`].
    #[must_use]
    pub fn from_beginning(self) -> AsyncChangeIter<T> {
        AsyncChangeIter::new(self.changes.from_beginning(), self.crew)
    }

    /// Every change that becomes durable from now on.
    #[must_use]
    pub fn from_now(self) -> AsyncChangeIter<T> {
        AsyncChangeIter::new(self.changes.from_now(), self.crew)
    }

    /// Every change that is still kept, then those to come.
    #[must_use]
    pub fn from_oldest(self) -> AsyncChangeIter<T> {
        AsyncChangeIter::new(self.changes.from_oldest(), self.crew)
    }
}

/// Changes in commit order, awaited one by one.
pub struct AsyncChangeIter<T> {
    /// Declared before the fields that hold the database, so dropped first, as in the handle.
    crew: Arc<Crew>,
    changes: Arc<Mutex<ChangeIter<T>>>,
    more: Arc<Mutex<More>>,
    stop: ChangeStop,
}

/// Whether the feed has called since the last request for a call.
#[derive(Default)]
struct More {
    was_called: bool,
    waker: Option<Waker>,
}

/// The result of a look at the feed.
enum Found {
    /// A change, or an error, that was read ahead.
    Some,
    /// Nothing yet; the feed will call.
    NotYet,
    /// Nothing, now and in future.
    End,
}

impl<T: Delivered + Send + 'static> AsyncChangeIter<T> {
    fn new(changes: ChangeIter<T>, crew: Arc<Crew>) -> AsyncChangeIter<T> {
        let stop = changes.stopper();
        AsyncChangeIter { crew, changes: Arc::new(Mutex::new(changes)), more: Arc::default(), stop }
    }

    /// The next change; waits for one.
    ///
    /// `None` if there will never be one: the database is closed, it was opened read-only, or the iterator
    /// was [stopped](AsyncChangeIter::stopper). A database that was poisoned by a failed sync ends with one
    /// last error.
    ///
    /// Dropping the future consumes no change: the next call returns the one that this call would have
    /// returned.
    ///
    /// # Errors
    /// As [`ChangeIter::next_within`](crate::ChangeIter::next_within); `System` (E1001) if the system gives
    /// no thread.
    pub async fn next(&mut self) -> Option<Result<T>> {
        loop {
            if let Some(next) = self.read_ahead() {
                return Some(next);
            }
            let (changes, more) = (Arc::clone(&self.changes), Arc::clone(&self.more));
            match submit(self.crew.pool(), move || Step::Done(Ok(look(&changes, &more)))).await {
                Ok(Found::Some) => {}
                Ok(Found::NotYet) => self.called().await,
                Ok(Found::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// A handle that stops the waiting.
    #[must_use]
    pub fn stopper(&self) -> ChangeStop {
        self.stop.clone()
    }

    /// The next change that is already in memory.
    fn read_ahead(&mut self) -> Option<Result<T>> {
        match self.changes.try_lock() {
            Ok(mut changes) => changes.take_read(),
            // A dropped future has left a thread reading. The next look waits for it, on the pool.
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take_read(),
        }
    }

    /// Waits for the call.
    async fn called(&self) {
        poll_fn(|context| {
            let mut waker = Some(context.waker().clone());
            let was_called = {
                let mut more = self.more.lock().expect(POISON);
                if !more.was_called {
                    std::mem::swap(&mut more.waker, &mut waker);
                }
                more.was_called
            };
            drop(waker);
            if was_called { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Reads on, or requests a call.
fn look<T: Delivered>(changes: &Mutex<ChangeIter<T>>, more: &Arc<Mutex<More>>) -> Found {
    let mut changes = changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if changes.read_more() {
        return Found::Some;
    }
    if changes.is_at_end() {
        return if changes.read_failure() { Found::Some } else { Found::End };
    }
    // Reset before the request: a later call belongs to the request that follows.
    more.lock().expect(POISON).was_called = false;
    let more = Arc::clone(more);
    changes.call_when_more(move || {
        let waker = {
            let mut more = more.lock().expect(POISON);
            more.was_called = true;
            more.waker.take()
        };
        wake(waker);
    });
    Found::NotYet
}

impl<T> fmt::Debug for AsyncChangeIter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncChangeIter").finish_non_exhaustive()
    }
}
