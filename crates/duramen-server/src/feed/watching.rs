//! A watch: a task reads commit after commit and hands over messages, one at a time.
//!
//! A client that takes none for too long is ended: the changes that it has not read are kept for it in the
//! database.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen::{AnyChange, AsyncDb, ChangeIter, CommitSeq};
use duramen_proto::{status, v1};
use prost::Message as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::Stream;
use tonic::Status;

use super::message::Wanted;
use crate::call::Call;
use crate::data::{Identity, MESSAGE_BYTES};
use crate::limit::budget::Charge;

/// A watch to which nothing happens says where it is.
const IDLE: Duration = Duration::from_secs(5);

/// What a watch is charged while it reads.
const READ_BYTES: usize = 4 << 10;

/// How long room for that is waited for.
const ROOM_WAIT: Duration = Duration::from_secs(30);

/// A watch that has begun.
pub(super) struct Watching {
    changes: ChangeIter<AnyChange>,
    /// The last commit that was sent whole.
    at: CommitSeq,
    told: CommitSeq,
    told_at: Instant,
    wanted: Wanted,
    ends: bool,
    call: Call,
    _permit: OwnedSemaphorePermit,
}

impl Watching {
    pub(super) fn new(
        changes: ChangeIter<AnyChange>,
        at: CommitSeq,
        wanted: Wanted,
        ends: bool,
        permit: OwnedSemaphorePermit,
        call: Call,
    ) -> Watching {
        Watching { changes, at, told: at, told_at: Instant::now(), wanted, ends, call, _permit: permit }
    }

    /// Starts the task. Its messages end when they are dropped.
    pub(super) fn run(
        self,
        threads: (AsyncDb, Arc<Semaphore>),
        identity: &Arc<Identity>,
        unread: Duration,
        mut draining: watch::Receiver<bool>,
    ) -> Messages {
        let (sender, messages) = mpsc::channel(1);
        let ended = Arc::new(Mutex::new(None));
        let (why, identity) = (Arc::clone(&ended), Arc::clone(identity));
        tokio::spawn(async move {
            let sending = Sending { sender: sender.clone(), unread, identity };
            let done = tokio::select! {
                done = self.follow(&threads, &sending) => done,
                _ = draining.wait_for(|draining| *draining) => Err(going_down()),
                () = sender.closed() => Ok(()),
            };
            if let Err(error) = done {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(status::of(&error));
            }
        });
        Messages { messages, ended, charge: None }
    }

    async fn follow(
        mut self,
        (threads, reading): &(AsyncDb, Arc<Semaphore>),
        sending: &Sending,
    ) -> Result<()> {
        loop {
            let (reads, mut charge) = self.room(reading).await?;
            let mut changes = self.changes;
            let (back, found) = threads
                .run(move |_| {
                    let found = changes.next_commit();
                    Ok((changes, found))
                })
                .await?;
            self.changes = back;
            match found {
                Some(items) => {
                    charge.grow(items.iter().flatten().map(bytes_of).sum());
                    drop(reads);
                    self.wanted.check()?;
                    self.send_commit(items, charge, sending).await?;
                }
                None => {
                    drop((reads, charge));
                    self.at = self.changes.position().unwrap_or(self.at).max(self.at);
                    if self.ends || self.changes.is_at_end() {
                        return self.tell(sending).await;
                    }
                    self.wait(sending).await?;
                }
            }
        }
    }

    /// Sends the changes of a commit, in parts.
    async fn send_commit(
        &mut self,
        items: Vec<Result<AnyChange>>,
        mut charge: Charge,
        sending: &Sending,
    ) -> Result<()> {
        // Of a commit of which no change can be read, the feed tells where it has come.
        let known = items.iter().flatten().next().map(|change| change.seq);
        self.at = known.or_else(|| self.changes.position()).unwrap_or(self.at).max(self.at);
        let (mut changes, mut bytes, mut has_sent_part) = (Vec::new(), 0, false);
        for item in items {
            let message = match item {
                Ok(change) => self.wanted.message(change),
                Err(error) => Err(error),
            };
            let change = match message {
                Ok(Some(change)) => change,
                Ok(None) => continue,
                // About this change alone: the others can be read.
                Err(error) if error.code() == Code::Unreadable || error.code() == Code::CorruptFeed => {
                    if !self.wanted.wants_unreadable()? {
                        continue;
                    }
                    v1::Change {
                        seq: self.at.0,
                        unreadable: format!("{}: {}", error.code(), error.message()),
                        ..v1::Change::default()
                    }
                }
                Err(error) => return Err(error),
            };
            bytes += change.encoded_len();
            changes.push(change);
            if bytes >= MESSAGE_BYTES {
                let part = v1::WatchReply { changes: std::mem::take(&mut changes), position: None };
                sending.send(part, Some(charge.split(bytes))).await?;
                (bytes, has_sent_part) = (0, true);
            }
        }
        // Parts have no position: the last message of the commit says that it is whole.
        let is_needless = changes.is_empty() && !has_sent_part && self.told_at.elapsed() < IDLE;
        let charge = Some(charge.split(bytes)).filter(|_| bytes > 0);
        if is_needless { Ok(()) } else { self.send_whole(changes, charge, sending).await }
    }

    /// Sends changes, and that everything up to here was sent.
    async fn send_whole(
        &mut self,
        changes: Vec<v1::Change>,
        charge: Option<Charge>,
        sending: &Sending,
    ) -> Result<()> {
        (self.told, self.told_at) = (self.at, Instant::now());
        let position = Some(sending.identity.durable(self.at));
        sending.send(v1::WatchReply { changes, position }, charge).await
    }

    /// Says where it is, if that is not known.
    async fn tell(&mut self, sending: &Sending) -> Result<()> {
        if self.told == self.at { Ok(()) } else { self.send_whole(Vec::new(), None, sending).await }
    }

    /// Waits for a commit.
    async fn wait(&mut self, sending: &Sending) -> Result<()> {
        let more = Arc::new(Notify::new());
        let called = Arc::clone(&more);
        self.changes.call_when_more(move || called.notify_one());
        if timeout(IDLE, more.notified()).await.is_err() {
            self.wanted.check()?;
            self.tell(sending).await?;
        }
        Ok(())
    }

    /// A turn to read a commit, and the beginning of its charge. How large it is shows once it was read, and
    /// it is charged then, whether there is room or not. So commits are read where there is some, and only a
    /// few of them at a time.
    async fn room<'r>(&self, reading: &'r Semaphore) -> Result<(Option<SemaphorePermit<'r>>, Charge)> {
        let mut waited = Duration::ZERO;
        loop {
            // It is never closed.
            let turn = reading.acquire().await.ok();
            match self.call.charge_work(READ_BYTES) {
                Err(error) if error.code() == Code::Overloaded && waited < ROOM_WAIT => {
                    drop(turn);
                    sleep(crate::limit::WAIT).await;
                    waited += crate::limit::WAIT;
                }
                done => return done.map(|charge| (turn, charge)),
            }
        }
    }
}

/// What a change holds.
fn bytes_of(change: &AnyChange) -> usize {
    let value = match &change.what {
        duramen::AnyChanged::Put { value, .. } => value.len(),
        _ => 0,
    };
    size_of::<v1::Change>() + value + change.key().map_or(0, <[u8]>::len)
}

/// A message, and its charge.
type Charged = (v1::WatchReply, Option<Charge>);

/// Where messages go.
struct Sending {
    sender: mpsc::Sender<Charged>,
    unread: Duration,
    identity: Arc<Identity>,
}

impl Sending {
    /// Hands a message over once the one before was taken.
    async fn send(&self, message: v1::WatchReply, charge: Option<Charge>) -> Result<()> {
        match timeout(self.unread, self.sender.send((message, charge))).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(Code::SnapshotExpired, "the watch took no message for too long")
                .with_hint("watch again, behind its last position")),
        }
    }
}

fn going_down() -> Error {
    Error::new(Code::Draining, "the server is going down")
        .with_hint("watch again in a moment, behind the last position")
}

/// The messages of a watch.
pub(crate) struct Messages {
    messages: mpsc::Receiver<Charged>,
    /// Of the message that was taken last, until its frame was made, which is charged.
    charge: Option<Charge>,
    /// Why there are no more, if that is an error.
    ended: Arc<Mutex<Option<Status>>>,
}

impl Stream for Messages {
    type Item = std::result::Result<v1::WatchReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.charge = None;
        match ready!(self.messages.poll_recv(cx)) {
            Some((message, charge)) => {
                self.charge = charge;
                Poll::Ready(Some(Ok(message)))
            }
            None => {
                let why = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
                Poll::Ready(why.map(Err))
            }
        }
    }
}
