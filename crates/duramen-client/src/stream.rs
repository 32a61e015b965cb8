//! A stream of transactions: messages and their answers, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::{status, v1};
use prost::Message as _;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinHandle;
use tokio::time;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client::{Client, with_deadline};

/// A server ends a stream after this time.
const STREAM_DEADLINE: Duration = Duration::from_secs(300);

/// A transaction is kept open by a message every so often.
const PING_EVERY: Duration = Duration::from_secs(2);

/// A server that gives no answer until so long behind the end of a transaction is taken for lost.
const ANSWER_LATE: Duration = Duration::from_secs(10);

/// How long a transaction lasts that asks for no other time.
const LASTS_MS: u32 = 30_000;

/// A stream with a longer message does not rest.
const LONG_BYTES: usize = 64 << 10;

/// Messages on their way: a rollback of the transaction before, a beginning, a step, and a ping.
const WAITING_MAX: usize = 4;

/// A stream of transactions. Dropped, it rolls back the one that is open.
#[derive(Debug)]
pub struct TransactionStream {
    client: Client,
    messages: Sender<v1::TransactRequest>,
    answers: Streaming<v1::TransactReply>,
    pinging: JoinHandle<()>,
    /// Whether a transaction is to be kept open.
    is_in_use: Arc<AtomicBool>,
    opened: Instant,
    /// How long an answer may take.
    answer_within: Duration,
    /// Answers to messages for which nothing has waited.
    unread: u32,
    /// It had a message that is long: the server keeps room for it.
    was_long: bool,
}

/// An error of a transaction.
#[derive(Debug)]
pub struct FailedStep {
    /// The error.
    pub error: Error,
    /// The number of the message's operation that failed, from 1; `None` if no single one did.
    pub operation: Option<usize>,
    /// Whether the transaction goes on: the server has it open.
    pub goes_on: bool,
    /// Whether the stream is good for no other transaction.
    pub is_stream_over: bool,
}

impl FailedStep {
    /// The stream is of no use any more.
    pub(crate) fn of_stream(error: Error) -> FailedStep {
        FailedStep { error, operation: None, goes_on: false, is_stream_over: true }
    }
}

impl Client {
    /// Opens a stream of transactions.
    ///
    /// # Errors
    /// `Unreachable` (E1111) if the connection is lost; `Draining` (E1106) if the server goes down.
    pub fn transactions(&self) -> Result<TransactionStream> {
        let (messages, sent) = mpsc::channel(WAITING_MAX);
        let mut data = self.data();
        let request = with_deadline(ReceiverStream::new(sent), STREAM_DEADLINE);
        let opened = self.runtime().block_on(async {
            time::timeout(ANSWER_LATE, async move { data.transact(request).await }).await
        })?;
        let opened = opened.map_err(|_| no_answer())?;
        let answers = opened.map_err(|status| self.failed(&status))?.into_inner();
        let (ping, is_in_use) = (messages.clone(), Arc::new(AtomicBool::new(true)));
        let is_wanted = Arc::clone(&is_in_use);
        let pinging = self.runtime().spawn(async move {
            let mut ticks = time::interval(PING_EVERY);
            loop {
                ticks.tick().await;
                if !is_wanted.load(Ordering::Relaxed) {
                    continue;
                }
                let message = v1::TransactRequest { kind: Some(Asked::Ping(v1::Ping {})) };
                if ping.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(TransactionStream {
            client: self.clone(),
            messages,
            answers,
            pinging,
            is_in_use,
            opened: Instant::now(),
            answer_within: ANSWER_LATE,
            unread: 0,
            was_long: false,
        })
    }
}

impl TransactionStream {
    /// Sends a message, and waits for its answer.
    ///
    /// # Errors
    /// That of the message; `Unreachable` (E1111) if the connection is lost, and then no answer says what has
    /// become of the message.
    pub fn ask(&mut self, kind: Asked) -> std::result::Result<Told, FailedStep> {
        self.send(kind)?;
        self.answer()
    }

    /// Sends a message. Its answer comes behind those of the messages before.
    ///
    /// # Errors
    /// `Unreachable` (E1111) if the stream takes none for too long.
    pub(crate) fn send(&mut self, kind: Asked) -> std::result::Result<(), FailedStep> {
        if let Asked::Begin(v1::Begin { lasts_ms, .. }) = &kind {
            let lasts_ms = if *lasts_ms == 0 { LASTS_MS } else { *lasts_ms };
            self.answer_within = Duration::from_millis(lasts_ms.into()) + ANSWER_LATE;
        }
        let message = v1::TransactRequest { kind: Some(kind) };
        self.was_long |= message.encoded_len() > LONG_BYTES;
        let sent = self
            .client
            .runtime()
            .block_on(async { time::timeout(self.answer_within, self.messages.send(message)).await })
            .map_err(FailedStep::of_stream)?;
        match sent {
            // If the server has ended the stream, the next answer says why.
            Ok(_) => Ok(()),
            Err(_) => Err(FailedStep::of_stream(no_answer())),
        }
    }

    /// Waits for the next answer. An error that says so lets the next call look for the node that leads.
    ///
    /// # Errors
    /// As [`TransactionStream::ask`].
    pub(crate) fn answer(&mut self) -> std::result::Result<Told, FailedStep> {
        let answer = self.answer_to_latest();
        answer.map_err(|failed| FailedStep { error: self.client.note(failed.error), ..failed })
    }

    fn answer_to_latest(&mut self) -> std::result::Result<Told, FailedStep> {
        while self.unread > 0 {
            self.unread -= 1;
            match self.next_answer() {
                Err(failed) if failed.is_stream_over => return Err(failed),
                _ => {}
            }
        }
        self.next_answer()
    }

    fn next_answer(&mut self) -> std::result::Result<Told, FailedStep> {
        let over = FailedStep::of_stream;
        loop {
            let answer = self
                .client
                .runtime()
                .block_on(async { time::timeout(self.answer_within, self.answers.next()).await })
                .map_err(over)?;
            let Ok(answer) = answer else { return Err(over(no_answer())) };
            let answer = answer.transpose().map_err(|status| over(self.client.error_of(&status)))?;
            self.was_long |= answer.as_ref().is_some_and(|answer| answer.encoded_len() > LONG_BYTES);
            match answer {
                Some(v1::TransactReply { kind: Some(Told::Pong(_)) }) => {}
                Some(v1::TransactReply { kind: Some(Told::Failed(failed)) }) => {
                    return Err(failed_step(failed));
                }
                Some(v1::TransactReply { kind: Some(told) }) => return Ok(told),
                Some(v1::TransactReply { kind: None }) => return Err(over(unexpected())),
                None => {
                    let error = Error::new(Code::Unreachable, "the server ended the stream of transactions");
                    return Err(over(error.with_hint("try again")));
                }
            }
        }
    }

    /// Rolls back what is open, without waiting for the answer, and rests. Returns whether the stream is good
    /// for another transaction.
    pub(crate) fn rest(&mut self, is_open: bool) -> bool {
        if is_open {
            let rollback = Asked::Rollback(v1::Rollback {});
            if self.messages.try_send(v1::TransactRequest { kind: Some(rollback) }).is_err() {
                return false;
            }
            self.unread += 1;
        }
        self.is_in_use.store(false, Ordering::Relaxed);
        !self.was_long && self.is_good_for(Duration::ZERO)
    }

    /// A transaction is to begin, which lasts so long. Returns whether the server would let it.
    pub(crate) fn wake(&mut self, lasts: Duration) -> bool {
        self.is_in_use.store(true, Ordering::Relaxed);
        self.is_good_for(lasts)
    }

    fn is_good_for(&self, lasts: Duration) -> bool {
        self.opened.elapsed() + lasts < STREAM_DEADLINE && !self.messages.is_closed()
    }
}

impl Drop for TransactionStream {
    fn drop(&mut self) {
        self.pinging.abort();
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(Code::Unreachable, "the server gave no answer")
        .with_hint("look whether it still runs, and try again")
}

fn failed_step(failed: v1::Failed) -> FailedStep {
    let operation = usize::try_from(failed.operation).ok().filter(|number| *number > 0);
    FailedStep { error: status::failed(&failed), operation, goes_on: !failed.is_over, is_stream_over: false }
}

/// An answer that no release gives.
pub(crate) fn unexpected() -> Error {
    Error::new(Code::WrongVersion, "the server's answer is not one to what was asked")
        .with_hint("use a server and a client of the same release")
}
