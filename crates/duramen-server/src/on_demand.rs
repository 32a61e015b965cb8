//! Streams whose messages are made on a thread, each when the client has room for it.
//!
//! A client that reads slowly holds one message and what the stream reads from, no thread. At its
//! deadline, and if no message is asked for for too long, a stream gives back what it holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duramen::error::{Error, Result};
use duramen::{AsyncDb, Db};
use duramen_proto::status;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_stream::Stream;
use tonic::Status;

use crate::auth::Caller;
use crate::call::Call;

/// What makes the messages of a stream.
pub(crate) trait Source: Send + 'static {
    type Message: Send + 'static;

    /// The next message, made on a thread; `None` after the last. It is charged until the next one is made.
    fn message(&mut self, db: &Db, call: &Call) -> Result<Option<Self::Message>>;

    /// Fails once the caller may not have it any more.
    ///
    /// # Errors
    /// `Forbidden` (E1102); `Unauthenticated` (E1101).
    fn check(&self, caller: &Caller) -> Result<()>;

    /// What a client is told that asks too late.
    fn ended() -> Error;
}

/// The next message, on its way.
type Making<T> = Pin<Box<dyn Future<Output = Result<Option<T>>> + Send>>;

/// The messages of a source.
pub(crate) struct OnDemand<S: Source> {
    db: AsyncDb,
    call: Call,
    /// Taken by the thread that makes a message, and by the timer.
    source: Arc<Mutex<Option<S>>>,
    making: Option<Making<S::Message>>,
    is_over: bool,
    /// When a message was asked for last.
    asked: Arc<Mutex<Instant>>,
    /// Ends the stream in time.
    ending: JoinHandle<()>,
}

impl<S: Source> OnDemand<S> {
    /// A stream of which no message is taken for the time `unread` ends.
    pub(crate) fn new(db: AsyncDb, source: S, unread: Duration, call: Call) -> OnDemand<S> {
        let source = Arc::new(Mutex::new(Some(source)));
        let asked = Arc::new(Mutex::new(Instant::now()));
        let (held, last, of) = (Arc::clone(&source), Arc::clone(&asked), call.clone());
        let ending = tokio::spawn(async move {
            loop {
                let (now, ends) = (Instant::now(), of.deadline.min(*lock(&last) + unread));
                if ends > now {
                    sleep_until(ends).await;
                } else if take(&held).is_some() || of.deadline <= now {
                    break;
                } else {
                    // A thread works with it.
                    sleep_until(of.deadline.min(now + unread)).await;
                }
            }
            of.give_all_back();
        });
        OnDemand { db, call, source, making: None, is_over: false, asked, ending }
    }

    fn make(&self) -> Making<S::Message> {
        let (db, held, call) = (self.db.clone(), Arc::clone(&self.source), self.call.clone());
        Box::pin(async move {
            db.run(move |db| {
                crate::nice::lower();
                let Some(mut source) = take(&held).filter(|_| call.check_deadline().is_ok()) else {
                    return Err(S::ended());
                };
                source.check(&call.caller)?;
                call.charges.end_run();
                let message = source.message(db, &call)?;
                let mut held = lock(&held);
                // Else the deadline has come and found nothing to drop.
                if call.check_deadline().is_ok() {
                    *held = Some(source);
                }
                Ok(message)
            })
            .await
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<S>(source: &Mutex<Option<S>>) -> Option<S> {
    lock(source).take()
}

impl<S: Source> Stream for OnDemand<S> {
    type Item = std::result::Result<S::Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.making.is_none() {
            *lock(&self.asked) = Instant::now();
            self.call.charges.set_making(true);
            self.making = Some(self.make());
        }
        let making = self.making.as_mut().expect("a message is being made");
        let made = ready!(making.as_mut().poll(cx));
        self.making = None;
        self.call.charges.set_making(false);
        self.is_over = !matches!(made, Ok(Some(_)));
        if let Err(error) = &made {
            self.call.tell_if_refused(error.code());
        }
        Poll::Ready(made.map_err(|error| status::of(&error)).transpose())
    }
}

impl<S: Source> Drop for OnDemand<S> {
    fn drop(&mut self) {
        self.ending.abort();
    }
}
