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
use super::streams::{InUse, Streams};
use crate::stream::{FailedStep, unexpected};

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
    /// From the first message to the end.
    stream: Option<InUse>,
    streams: Arc<Streams>,
    lasts: Duration,
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
    pub(super) fn new(streams: &Arc<Streams>, lasts: Duration, fits: &Arc<Fits>) -> Session {
        let lasts_ms = u32::try_from(lasts.as_millis()).unwrap_or(u32::MAX);
        Session {
            stream: None,
            streams: Arc::clone(streams),
            lasts,
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
        }
    }

    /// Begins it before the first read.
    pub(super) fn begin_now(&mut self) -> Result<()> {
        let Some(begin) = self.begin.take() else { return Ok(()) };
        let stream = self.stream.insert(self.streams.take(self.lasts)?);
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
            self.step(None, false)?;
        }
        self.waiting_bytes += bytes;
        self.waiting.push(operation);
        Ok(())
    }

    /// Writes, and the result of this one.
    pub(super) fn write_now(&mut self, kind: v1::operation::Kind) -> Result<v1::operation_result::Kind> {
        self.before_write()?;
        self.waiting.push(v1::Operation { kind: Some(kind) });
        let result = self.step(None, true)?.results.pop();
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
        let answer = self.step(Some(v1::Read { kind: Some(kind) }), false)?.reads.into_iter().next();
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
        if self.marks.is_empty() { self.not_lost() } else { self.step(None, false).map(drop) }
    }

    /// Sends what waits. If `is_awaited`, the last write has not returned yet.
    fn step(&mut self, read: Option<v1::Read>, is_awaited: bool) -> Result<v1::StepDone> {
        self.not_lost()?;
        self.waiting_bytes = 0;
        let operations = mem::take(&mut self.waiting);
        let returned = operations.len() - usize::from(is_awaited);
        let step =
            v1::Step { operations, reads: read.into_iter().collect(), marks: mem::take(&mut self.marks) };
        let failed = match self.ask(Asked::Step(step)) {
            Ok(Told::StepDone(done)) => return Ok(done),
            Ok(_) => FailedStep::of_stream(unexpected()),
            Err(failed) => failed,
        };
        // If a write that had returned was not made, nothing of it may be committed. The error of a read says
        // that all were.
        if !failed.goes_on || failed.operation.is_some_and(|number| number <= returned) {
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
        let Some(begin) = self.begin.take() else {
            let Some(stream) = self.stream.as_mut() else { return Err(over(ended())) };
            return stream.ask(kind);
        };
        let stream = match self.streams.take(self.lasts) {
            Ok(stream) => self.stream.insert(stream),
            Err(error) => return Err(over(error)),
        };
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
            self.begin = None;
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
            stream.give_back(goes_on);
        }
        committed
    }

    /// Rolls back, unless it was committed.
    pub(super) fn end(&mut self) {
        self.begin = None;
        if let Some(stream) = self.stream.take() {
            stream.give_back(true);
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
        let read = match reading.ahead.is_empty() && !reading.is_complete {
            true => self.read_part(&mut reading),
            false => Ok(()),
        };
        let rows = mem::take(&mut reading.ahead);
        self.cursors.insert(number, reading);
        read.map(|()| rows)
    }

    /// Reads the rest of all rows that are being read: what is written now is not among them.
    fn read_ahead(&mut self) -> Result<()> {
        if self.cursors.values().all(|reading| reading.is_complete) {
            return Ok(());
        }
        let mut bytes = 0;
        for number in self.cursors.keys().copied().collect::<Vec<_>>() {
            let Some(mut reading) = self.cursors.remove(&number) else { continue };
            let read = self.read_rest(&mut reading, &mut bytes);
            // Also after an error: what was not read is not lost.
            self.cursors.insert(number, reading);
            read?;
        }
        Ok(())
    }

    fn read_rest(&mut self, reading: &mut Reading, bytes: &mut usize) -> Result<()> {
        while !reading.is_complete {
            let before = reading.ahead.len();
            self.read_part(reading)?;
            *bytes += reading.ahead.iter().skip(before).map(prost::Message::encoded_len).sum::<usize>();
            if *bytes > AHEAD_BYTES_MAX {
                let what = "the transaction writes while it reads more than 64 MiB of rows";
                return Err(Error::new(Code::TooLarge, what)
                    .with_hint("read the rows first, in parts with limit() or page(), and write then"));
            }
        }
        Ok(())
    }

    fn read_part(&mut self, reading: &mut Reading) -> Result<()> {
        let mut of = reading.of.clone();
        of.limit = if of.limit == 0 { reading.part } else { of.limit.min(reading.part) };
        let found = questions::found_rows(self.read(v1::read::Kind::Rows(of.clone()))?)?;
        let rows = found.rows.len() as u64;
        reading.part = reading.part.saturating_mul(ROWS_GROW);
        reading.is_complete = found.is_complete && rows < of.limit;
        if reading.of.limit > 0 {
            reading.of.limit -= rows.min(reading.of.limit);
            reading.is_complete |= reading.of.limit == 0;
        }
        let Some(last) = found.rows.last() else { return Ok(()) };
        questions::go_on_behind(&mut reading.of, &last.key);
        reading.ahead.extend(found.rows);
        Ok(())
    }
}

fn ended() -> Error {
    Error::new(Code::TransactionExpired, "the transaction has ended, and what reads in it, too")
        .with_hint("read all rows inside of the closure: collect them, or handle them there")
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
