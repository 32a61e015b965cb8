//! A stream of transactions: messages and their answers, one after the other.

use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use duramen_proto::{status, v1};
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

/// Messages on their way: one, and a ping.
const WAITING_MAX: usize = 4;

/// A stream of transactions. Dropped, it rolls back the one that is open.
#[derive(Debug)]
pub struct TransactionStream<'a> {
    client: &'a Client,
    messages: Sender<v1::TransactRequest>,
    answers: Streaming<v1::TransactReply>,
    pinging: JoinHandle<()>,
    /// How long an answer may take.
    answer_within: Duration,
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
    pub fn transactions(&self) -> Result<TransactionStream<'_>> {
        let (messages, sent) = mpsc::channel(WAITING_MAX);
        let mut data = self.data();
        let request = with_deadline(ReceiverStream::new(sent), STREAM_DEADLINE);
        let opened = self.runtime().block_on(async {
            time::timeout(ANSWER_LATE, async move { data.transact(request).await }).await
        });
        let opened = opened.map_err(|_| no_answer())?;
        let answers = opened.map_err(|status| self.failed(&status))?.into_inner();
        let ping = messages.clone();
        let pinging = self.runtime().spawn(async move {
            let mut ticks = time::interval(PING_EVERY);
            loop {
                ticks.tick().await;
                let message = v1::TransactRequest { kind: Some(Asked::Ping(v1::Ping {})) };
                if ping.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(TransactionStream { client: self, messages, answers, pinging, answer_within: ANSWER_LATE })
    }
}

impl TransactionStream<'_> {
    /// Sends a message, and waits for its answer.
    ///
    /// # Errors
    /// That of the message; `Unreachable` (E1111) if the connection is lost, and then no answer says what has
    /// become of the message.
    pub fn ask(&mut self, kind: Asked) -> std::result::Result<Told, FailedStep> {
        let over = FailedStep::of_stream;
        if let Asked::Begin(v1::Begin { lasts_ms, .. }) = &kind {
            let lasts_ms = if *lasts_ms == 0 { LASTS_MS } else { *lasts_ms };
            self.answer_within = Duration::from_millis(lasts_ms.into()) + ANSWER_LATE;
        }
        let message = v1::TransactRequest { kind: Some(kind) };
        let runtime = self.client.runtime();
        let mut waiting = Some(message);
        loop {
            let answer = runtime.block_on(async {
                let next = async {
                    if let Some(message) = waiting.take() {
                        // If the server has ended the stream, its answer says why.
                        let _ = self.messages.send(message).await;
                    }
                    self.answers.next().await
                };
                time::timeout(self.answer_within, next).await
            });
            let Ok(answer) = answer else { return Err(over(no_answer())) };
            match answer.transpose().map_err(|status| over(self.client.failed(&status)))? {
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
}

impl Drop for TransactionStream<'_> {
    fn drop(&mut self) {
        self.pinging.abort();
    }
}

fn no_answer() -> Error {
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
