//! A transaction that a server holds: reads go there at once, writes with the next read or the commit.

use std::time::Duration;

use bytes::Bytes;
use duramen::error::{Code, Error, Result};
use duramen::tuple::{self, Element, Key, KeyFor};
use duramen::{Collection, Document};
use duramen_proto::v1;
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use prost::Message as _;

use super::collection::RemoteDocuments;
use super::key_values::RemoteKv;
use crate::stream::{FailedStep, TransactionStream, unexpected};

/// So many writes, or so many bytes of them, are sent before the next read: a server bounds the parts of a
/// message.
const WAITING_MAX: usize = 1_000;
const WAITING_BYTES_MAX: usize = 128 << 10;

/// A transaction of [`Remote::transact`](super::Remote::transact).
#[derive(Debug)]
pub struct RemoteTransaction<'c> {
    /// `None` once the stream has ended.
    stream: Option<TransactionStream<'c>>,
    /// Writes that the server does not have yet.
    waiting: Vec<v1::Operation>,
    waiting_bytes: usize,
    has_written: bool,
    /// The error with which the server's side of it ended, or that of writes which the server has not made.
    lost: Option<Error>,
    /// The latest error that the server gave.
    latest: Option<Error>,
}

impl<'c> RemoteTransaction<'c> {
    pub(super) fn begin(mut stream: TransactionStream<'c>, lasts: Duration) -> Result<RemoteTransaction<'c>> {
        let lasts_ms = u32::try_from(lasts.as_millis()).unwrap_or(u32::MAX);
        match stream
            .ask(Asked::Begin(v1::Begin { lasts_ms, ..v1::Begin::default() }))
            .map_err(|failed| failed.error)?
        {
            Told::Begun(_) => Ok(RemoteTransaction {
                stream: Some(stream),
                waiting: Vec::new(),
                waiting_bytes: 0,
                has_written: false,
                lost: None,
                latest: None,
            }),
            _ => Err(unexpected()),
        }
    }

    /// The documents of a collection, without a type.
    pub fn documents<'t>(&'t mut self, collection: &'t str) -> RemoteDocuments<'t, 'c> {
        RemoteDocuments::new(self, collection)
    }

    /// The key-values of a namespace.
    pub fn kv<'t>(&'t mut self, namespace: &'t str) -> RemoteKv<'t, 'c> {
        RemoteKv::new(self, namespace)
    }

    /// The document of a key.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads), and of the writes before it; `Unreachable` (E1111).
    pub fn get<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        let found = self.documents(C::NAME).get_elements(&elements(&key)?)?;
        found.map(|document| document.to()).transpose()
    }

    /// Stores a document; replaces any with the same key.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for what is no document. Errors of the write come with the next read, or
    /// with the commit.
    pub fn put<C: Collection>(&mut self, document: &C) -> Result<()> {
        self.documents(C::NAME).put(&Document::from_serialize(document)?)
    }

    /// Stores a document, if there is none with the same key: else that is `AlreadyExists` (E0210).
    ///
    /// # Errors
    /// As [`RemoteTransaction::put`].
    pub fn insert<C: Collection>(&mut self, document: &C) -> Result<()> {
        self.documents(C::NAME).insert(&Document::from_serialize(document)?)
    }

    /// Deletes the document of a key, if there is one.
    ///
    /// # Errors
    /// As [`RemoteTransaction::put`].
    pub fn delete<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<()> {
        self.documents(C::NAME).delete_elements(&elements(&key)?)
    }

    /// Keeps a write for the next message.
    pub(super) fn write(&mut self, kind: v1::operation::Kind) -> Result<()> {
        self.not_lost()?;
        let operation = v1::Operation { kind: Some(kind) };
        self.has_written = true;
        let bytes = operation.encoded_len();
        if self.waiting.len() == WAITING_MAX
            || (!self.waiting.is_empty() && self.waiting_bytes + bytes > WAITING_BYTES_MAX)
        {
            self.step(None)?;
        }
        self.waiting_bytes += bytes;
        self.waiting.push(operation);
        Ok(())
    }

    /// Reads, behind all writes so far.
    pub(super) fn read(&mut self, kind: v1::read::Kind) -> Result<v1::read_result::Kind> {
        let answer = self.step(Some(v1::Read { kind: Some(kind) }))?.reads.into_iter().next();
        answer.and_then(|answer| answer.kind).ok_or_else(unexpected)
    }

    /// Writes, and the result of this one.
    pub(super) fn write_now(&mut self, kind: v1::operation::Kind) -> Result<v1::operation_result::Kind> {
        self.not_lost()?;
        self.has_written = true;
        self.waiting.push(v1::Operation { kind: Some(kind) });
        let result = self.step(None)?.results.pop();
        result.and_then(|result| result.kind).ok_or_else(unexpected)
    }

    fn step(&mut self, read: Option<v1::Read>) -> Result<v1::StepDone> {
        self.not_lost()?;
        self.waiting_bytes = 0;
        let operations = std::mem::take(&mut self.waiting);
        let has_written = !operations.is_empty();
        let step = v1::Step { operations, reads: read.into_iter().collect() };
        let stream = self.stream.as_mut().ok_or_else(unexpected)?;
        let failed = match stream.ask(Asked::Step(step)) {
            Ok(Told::StepDone(done)) => return Ok(done),
            Ok(_) => FailedStep::of_stream(unexpected()),
            Err(failed) => failed,
        };
        // Some of the writes, which had returned, were not made: nothing of it may be committed.
        if !failed.goes_on || has_written {
            self.lost = Some(failed.error.clone());
        }
        if failed.is_stream_over {
            self.stream = None;
        }
        self.latest = Some(failed.error.clone());
        Err(failed.error)
    }

    fn not_lost(&self) -> Result<()> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Whether an error of the closure is the latest one that the server gave.
    pub(super) fn is_of_server(&self, error: &Error) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.code() == error.code())
    }

    /// The error with which the server's side of it ended, if it did.
    pub(super) fn lost(&self) -> Option<Error> {
        self.lost.clone()
    }

    pub(super) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Commits. Returns the stream too, if it is good for another transaction.
    pub(super) fn commit(
        mut self,
        request_id: Bytes,
    ) -> (std::result::Result<v1::Receipt, FailedStep>, Option<TransactionStream<'c>>) {
        let over = FailedStep::of_stream;
        if let Some(lost) = self.lost.clone() {
            return (Err(over(lost)), self.roll_back());
        }
        let Some(mut stream) = self.stream.take() else { return (Err(over(unexpected())), None) };
        let commit = v1::Commit {
            write: Some(v1::Write { request_id, ..v1::Write::default() }),
            operations: std::mem::take(&mut self.waiting),
        };
        match stream.ask(Asked::Commit(commit)) {
            Ok(Told::Committed(v1::Committed { receipt: Some(receipt), .. })) => (Ok(receipt), Some(stream)),
            Ok(_) => (Err(over(unexpected())), None),
            Err(failed) if failed.is_stream_over => (Err(failed), None),
            Err(failed) if failed.goes_on => {
                self.stream = Some(stream);
                (Err(failed), self.roll_back())
            }
            Err(failed) => (Err(failed), Some(stream)),
        }
    }

    /// Rolls back. Returns the stream, if it is good for another transaction.
    pub(super) fn roll_back(self) -> Option<TransactionStream<'c>> {
        let mut stream = self.stream?;
        stream.ask(Asked::Rollback(v1::Rollback {})).is_ok().then_some(stream)
    }
}

/// The elements of a key.
pub(super) fn elements(key: &(impl Key + ?Sized)) -> Result<Vec<Element>> {
    tuple::decode(&tuple::encode(key)?)
}

/// An answer lacks what was asked for.
pub(super) fn lacks(what: &str) -> Error {
    Error::new(Code::WrongVersion, format!("the server's answer has no {what}"))
        .with_hint("use a server and a client of the same release")
}
