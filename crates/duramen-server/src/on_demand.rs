//! Streams whose messages are made on a thread, each when the client has room for it.
//!
//! A client that reads slowly holds one message and what the stream reads from, no thread. At its deadline a
//! stream gives back what it holds, also if no more messages are asked for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use duramen::error::{Error, Result};
use duramen::{AsyncDb, Db};
use duramen_proto::status;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;
use tokio_stream::Stream;
use tonic::Status;

use crate::call::Call;

/// What makes the messages of a stream.
pub(crate) trait Source: Send + 'static {
    type Message: Send + 'static;

    /// The next message, made on a thread; `None` after the last. It is charged until the next one is made.
    fn message(&mut self, db: &Db, call: &Call) -> Result<Option<Self::Message>>;

    /// What a client is told that asks behind the deadline.
    fn ended() -> Error;
}

/// The next message, on its way.
type Making<T> = Pin<Box<dyn Future<Output = Result<Option<T>>> + Send>>;

/// The messages of a source.
pub(crate) struct OnDemand<S: Source> {
    db: AsyncDb,
    call: Call,
    /// Taken by the thread that makes a message, and by the deadline.
    source: Arc<Mutex<Option<S>>>,
    making: Option<Making<S::Message>>,
    is_over: bool,
    /// Ends the stream at its deadline.
    deadline: JoinHandle<()>,
}

impl<S: Source> OnDemand<S> {
    pub(crate) fn new(db: AsyncDb, source: S, call: Call) -> OnDemand<S> {
        let source = Arc::new(Mutex::new(Some(source)));
        let (held, ending) = (Arc::clone(&source), call.clone());
        let deadline = tokio::spawn(async move {
            sleep_until(ending.deadline).await;
            drop(take(&held));
            ending.give_place_back();
        });
        OnDemand { db, call, source, making: None, is_over: false, deadline }
    }

    fn make(&self) -> Making<S::Message> {
        let (db, held, call) = (self.db.clone(), Arc::clone(&self.source), self.call.clone());
        Box::pin(async move {
            db.run(move |db| {
                let Some(mut source) = take(&held).filter(|_| call.check_deadline().is_ok()) else {
                    return Err(S::ended());
                };
                call.charges.end_run();
                let message = source.message(db, &call)?;
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
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

fn take<S>(source: &Mutex<Option<S>>) -> Option<S> {
    source.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<S: Source> Stream for OnDemand<S> {
    type Item = std::result::Result<S::Message, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.making.is_none() {
            self.making = Some(self.make());
        }
        let making = self.making.as_mut().expect("a message is being made");
        let made = ready!(making.as_mut().poll(cx));
        self.making = None;
        self.is_over = !matches!(made, Ok(Some(_)));
        Poll::Ready(made.map_err(|error| status::of(&error)).transpose())
    }
}

impl<S: Source> Drop for OnDemand<S> {
    fn drop(&mut self) {
        self.deadline.abort();
    }
}
