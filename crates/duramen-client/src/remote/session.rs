//! The client's side of a transaction that a server holds: what waits to be sent, and what was found out.
//!
//! Reads go to the server at once, behind all writes so far; other writes wait for the next message. Rows
//! that are read in parts are those of the moment when the reading began: before a write all of their rest is
//! read.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duramen::error::{Code, Error, Result};
use duramen::wire::StoredType;
use duramen_proto::v1;
use duramen_proto::v1::transact_reply::Kind as Told;
use duramen_proto::v1::transact_request::Kind as Asked;
use prost::Message as _;

use super::fits::{Fits, Fitted};
use super::questions;
use super::streams::Streams;
use super::transaction::lacks;
use crate::client::Client;
use crate::stream::{FailedStep, TransactionStream, unexpected};

/// So many writes, or so many bytes of them, are sent before the next read: a server bounds the parts of a
/// message.
const WAITING_MAX: usize = 1_000;
const WAITING_BYTES_MAX: usize = 128 << 10;

/// The first rows that are read, and how many times more each time.
const ROWS_FIRST: u64 = 64;
const ROWS_GROW: u64 = 8;

/// The most bytes of rows that are read ahead because of a write.
const AHEAD_BYTES_MAX: usize = 64 << 20;

/// A transaction, before it has ended.
#[derive(Debug)]
pub(super) struct Session {
    /// `None` once the transaction has ended.
    stream: Option<TransactionStream>,
    streams: Arc<Streams>,
    /// Sent with the first message.
    begin: Option<v1::Begin>,
    fits: Arc<Fits>,
    /// What the server has checked of types, and what it is to check with the next message.
    marked: HashMap<&'static str, Bytes>,
    marks: Vec<v1::SchemaMark>,
    /// Writes that the server does not have yet.
    waiting: Vec<v1::Operation>,
    waiting_bytes: usize,
    has_written: bool,
    /// The error with which the server's side of it ended, or that of writes which the server has not made.
    lost: Option<Error>,
    /// The latest error that the server gave.
    latest: Option<Error>,
    /// Rows that are being read.
    cursors: HashMap<u64, Reading>,
    cursors_made: u64,
}

/// Rows that are read in parts.
#[derive(Debug)]
struct Reading {
    /// The rest.
    of: v1::RowsOf,
    part: u64,
    /// Read, and not taken yet.
    ahead: VecDeque<v1::Row>,
    is_complete: bool,
}

impl Session {
    /// A transaction that lasts so long. It begins with its first message.
    pub(super) fn new(streams: &Arc<Streams>, lasts: Duration, fits: &Arc<Fits>) -> Result<Session> {
        let lasts_ms = u32::try_from(lasts.as_millis()).unwrap_or(u32::MAX);
        Ok(Session {
            stream: Some(streams.take(lasts)?),
            streams: Arc::clone(streams),
            begin: Some(v1::Begin { lasts_ms, ..v1::Begin::default() }),
            fits: Arc::clone(fits),
            marked: HashMap::new(),
            marks: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            has_written: false,
            lost: None,
            latest: None,
            cursors: HashMap::new(),
            cursors_made: 0,
        })
    }

    /// Begins it before the first read.
    pub(super) fn begin_now(&mut self) -> Result<()> {
        let Some((stream, begin)) = self.stream.as_mut().zip(self.begin.take()) else { return Ok(()) };
        match stream.ask(Asked::Begin(begin)) {
            Ok(Told::Begun(_)) => Ok(()),
            Ok(_) => Err(unexpected()),
            Err(failed) => {
                if failed.is_stream_over {
                    self.stream = None;
                }
                Err(failed.error)
            }
        }
    }

    /// The collection of a type that reads; the server checks with the next message that it still is.
    pub(super) fn reading(&mut self, of: StoredType) -> Result<Fitted> {
        let fitted = self.fits.reading(of);
        self.marked(of, fitted)
    }

    /// As [`Session::reading`], of a type that writes.
    pub(super) fn writing(&mut self, of: StoredType) -> Result<Fitted> {
        let fitted = self.fits.writing(of);
        self.marked(of, fitted)
    }

    fn marked(&mut self, of: StoredType, fitted: Result<Fitted>) -> Result<Fitted> {
        let fitted = fitted.inspect_err(|error| self.latest = Some(error.clone()))?;
        if self.marked.get(of.name()) != Some(&fitted.mark) {
            self.marks.push(fitted.mark_of(of));
            self.marked.insert(of.name(), fitted.mark.clone());
        }
        Ok(fitted)
    }

    /// Keeps a write for the next message.
    pub(super) fn write(&mut self, kind: v1::operation::Kind) -> Result<()> {
        self.before_write()?;
        let operation = v1::Operation { kind: Some(kind) };
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

    /// Writes, and the result of this one.
    pub(super) fn write_now(&mut self, kind: v1::operation::Kind) -> Result<v1::operation_result::Kind> {
        self.before_write()?;
        self.waiting.push(v1::Operation { kind: Some(kind) });
        let result = self.step(None)?.results.pop();
        result.and_then(|result| result.kind).ok_or_else(unexpected)
    }

    fn before_write(&mut self) -> Result<()> {
        self.not_lost()?;
        self.read_ahead()?;
        self.has_written = true;
        Ok(())
    }

    /// Reads, behind all writes so far.
    pub(super) fn read(&mut self, kind: v1::read::Kind) -> Result<v1::read_result::Kind> {
        let answer = self.step(Some(v1::Read { kind: Some(kind) }))?.reads.into_iter().next();
        answer.and_then(|answer| answer.kind).ok_or_else(unexpected)
    }

    /// Reads documents of a type; `None` if its collection does not exist.
    pub(super) fn read_of(
        &mut self,
        of: StoredType,
        kind: v1::read::Kind,
    ) -> Result<Option<v1::read_result::Kind>> {
        if self.reading(of)?.schema.is_some() {
            return self.read(kind).map(Some);
        }
        self.check_marks().map(|()| None)
    }

    /// Has the server check what is to be checked.
    pub(super) fn check_marks(&mut self) -> Result<()> {
        if self.marks.is_empty() { self.not_lost() } else { self.step(None).map(drop) }
    }

    fn step(&mut self, read: Option<v1::Read>) -> Result<v1::StepDone> {
        self.not_lost()?;
        self.waiting_bytes = 0;
        let operations = mem::take(&mut self.waiting);
        let has_written = !operations.is_empty();
        let step =
            v1::Step { operations, reads: read.into_iter().collect(), marks: mem::take(&mut self.marks) };
        let failed = match self.ask(Asked::Step(step)) {
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
        self.note(&failed.error);
        Err(failed.error)
    }

    /// Sends a message, behind that which begins the transaction if it is the first, and waits for its
    /// answer.
    fn ask(&mut self, kind: Asked) -> std::result::Result<Told, FailedStep> {
        let over = FailedStep::of_stream;
        let Some(stream) = self.stream.as_mut() else { return Err(over(unexpected())) };
        let Some(begin) = self.begin.take() else { return stream.ask(kind) };
        stream.send(Asked::Begin(begin))?;
        stream.send(kind)?;
        let begun = stream.answer();
        if let Err(failed) = begun {
            // The other message has no transaction then: its answer says that.
            if !failed.is_stream_over && stream.answer().is_err_and(|failed| failed.is_stream_over) {
                return Err(over(failed.error));
            }
            return Err(FailedStep { goes_on: false, ..failed });
        }
        match begun {
            Ok(Told::Begun(_)) => stream.answer(),
            _ => Err(over(unexpected())),
        }
    }

    /// Notes an error of the server. After one that says so the types are fitted again.
    fn note(&mut self, error: &Error) {
        if error.code() == Code::SchemaChanged {
            self.marked.keys().for_each(|collection| self.fits.forget(collection));
        }
        self.latest = Some(error.clone());
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

    /// Commits.
    pub(super) fn commit(&mut self, request_id: Bytes) -> std::result::Result<v1::Receipt, FailedStep> {
        let over = FailedStep::of_stream;
        if let Some(lost) = self.lost.clone() {
            return Err(over(lost));
        }
        if self.begin.is_some() && !self.has_written && self.marks.is_empty() {
            // It has asked for nothing.
            return Ok(v1::Receipt::default());
        }
        let commit = v1::Commit {
            write: Some(v1::Write { request_id, ..v1::Write::default() }),
            operations: mem::take(&mut self.waiting),
            marks: mem::take(&mut self.marks),
        };
        let committed = match self.ask(Asked::Commit(commit)) {
            Ok(Told::Committed(v1::Committed { receipt: Some(receipt), .. })) => Ok(receipt),
            Ok(_) => Err(over(unexpected())),
            Err(failed) => Err(failed),
        };
        let goes_on = match &committed {
            Ok(_) => false,
            Err(failed) => {
                self.note(&failed.error);
                failed.goes_on
            }
        };
        if let Some(stream) = self.stream.take()
            && !committed.as_ref().is_err_and(|failed| failed.is_stream_over)
        {
            self.streams.give_back(stream, goes_on);
        }
        committed
    }

    /// Rolls back, unless it was committed.
    pub(super) fn end(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.streams.give_back(stream, self.begin.is_none());
        }
    }

    /// Begins to read rows.
    pub(super) fn open_cursor(&mut self, of: v1::RowsOf) -> Result<u64> {
        let mut reading = Reading { of, part: ROWS_FIRST, ahead: VecDeque::new(), is_complete: false };
        // An error of the query is that of its beginning.
        self.read_part(&mut reading)?;
        self.cursors_made += 1;
        self.cursors.insert(self.cursors_made, reading);
        Ok(self.cursors_made)
    }

    pub(super) fn close_cursor(&mut self, number: u64) {
        self.cursors.remove(&number);
    }

    /// The next rows; none after the last.
    pub(super) fn next_rows(&mut self, number: u64) -> Result<VecDeque<v1::Row>> {
        let Some(mut reading) = self.cursors.remove(&number) else { return Ok(VecDeque::new()) };
        if reading.ahead.is_empty() && !reading.is_complete {
            self.read_part(&mut reading)?;
        }
        let rows = mem::take(&mut reading.ahead);
        self.cursors.insert(number, reading);
        Ok(rows)
    }

    /// Reads the rest of all rows that are being read: what is written now is not among them.
    fn read_ahead(&mut self) -> Result<()> {
        if self.cursors.values().all(|reading| reading.is_complete) {
            return Ok(());
        }
        let mut bytes = 0;
        for number in self.cursors.keys().copied().collect::<Vec<_>>() {
            let Some(mut reading) = self.cursors.remove(&number) else { continue };
            while !reading.is_complete {
                let before = reading.ahead.len();
                self.read_part(&mut reading)?;
                bytes += reading.ahead.iter().skip(before).map(prost::Message::encoded_len).sum::<usize>();
                if bytes > AHEAD_BYTES_MAX {
                    return Err(Error::new(
                        Code::TooLarge,
                        "the transaction writes while it reads more than 64 MiB of rows",
                    )
                    .with_hint("read the rows first, in parts with limit() or page(), and write then"));
                }
            }
            self.cursors.insert(number, reading);
        }
        Ok(())
    }

    fn read_part(&mut self, reading: &mut Reading) -> Result<()> {
        let mut of = reading.of.clone();
        of.limit = if of.limit == 0 { reading.part } else { of.limit.min(reading.part) };
        let found = questions::found_rows(self.read(v1::read::Kind::Rows(of.clone()))?)?;
        let (rows, is_last_part) = (found.rows.len() as u64, reading.of.limit > 0);
        reading.part = reading.part.saturating_mul(ROWS_GROW);
        reading.is_complete = found.is_complete && rows < of.limit;
        if is_last_part {
            reading.of.limit -= rows.min(reading.of.limit);
            reading.is_complete |= reading.of.limit == 0;
        }
        let Some(last) = found.rows.last() else { return Ok(()) };
        questions::go_on_behind(&mut reading.of, &last.key);
        reading.ahead.extend(found.rows);
        Ok(())
    }

    /// The connection.
    pub(super) fn client(&self) -> Result<Client> {
        self.stream.as_ref().map(|stream| stream.client().clone()).ok_or_else(|| lacks("transaction"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
