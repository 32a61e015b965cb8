//! Reads and writes of a [`Remote`] outside of a transaction: each of the newest state, or a transaction of
//! its own.
//!
//! A read is repeated after a lost connection. A write has a request id, and is repeated under it: its effect
//! is there once.

use std::thread;
use std::time::Instant;

use bytes::Bytes;
use duramen::error::{Code, Error, ErrorKind, Result};
use duramen::tuple::KeyFor;
use duramen::wire::{Far, FarCursor, FarGroup, FarRows, KvRead, KvWrite, StoredType, Target, Wanted};
use duramen::{Collection, Reads, Store, Ttl};
use duramen_proto::v1;
use duramen_proto::v1::read::Kind as Asked;
use duramen_proto::v1::read_result::Kind as Told;

use super::fits::Fitted;
use super::transaction::{NoRows, lacks, put_typed};
use super::{
    CONFLICTS_MAX, Remote, RemoteSnapshot, RemoteTransaction, WITHIN, is_in_doubt, is_transient, kv,
    questions,
};
use crate::client::Scanned;

/// So many rows are asked for in a read; more are scanned, which takes one of the server's few places for
/// scans.
const FEW_ROWS: u64 = 256;

impl Remote {
    /// Calls until it succeeds, for a while after lost connections and conflicts.
    pub(super) fn again<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        let until = Instant::now() + WITHIN;
        let (mut tries, mut conflicts) = (0, 0);
        loop {
            let error = match call() {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tries += 1;
            conflicts += u32::from(error.kind() == ErrorKind::Conflict);
            let wait = self.wait_before(tries);
            if !is_transient(&error) || conflicts > CONFLICTS_MAX || Instant::now() + wait > until {
                return Err(error);
            }
            thread::sleep(wait);
        }
    }

    /// One read.
    fn ask(&self, kind: Asked, marks: Vec<v1::SchemaMark>) -> Result<Told> {
        let reads = vec![v1::Read { kind: Some(kind) }];
        let reply = self.client.read(v1::ReadRequest { reads, marks, ..v1::ReadRequest::default() })?;
        reply.results.into_iter().next().and_then(|result| result.kind).ok_or_else(|| lacks("result"))
    }

    /// A call of a type that reads: its collection is fitted again after it was changed.
    fn of_type<T>(&self, of: StoredType, mut call: impl FnMut(&Fitted) -> Result<T>) -> Result<T> {
        self.again(|| {
            let fitted = self.fits.reading(of)?;
            let done = call(&fitted);
            self.forget_changed(of, done)
        })
    }

    fn forget_changed<T>(&self, of: StoredType, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| {
            if error.code() == Code::SchemaChanged {
                self.fits.forget(of.name());
            }
        })
    }

    /// A read of a type's documents, with the answer that a collection has which does not exist.
    fn ask_of<T: Clone>(
        &self,
        of: StoredType,
        kind: &Asked,
        absent: &T,
        found: impl Fn(Told) -> Result<T>,
    ) -> Result<T> {
        self.of_type(of, |fitted| match fitted.schema {
            Some(_) => found(self.ask(kind.clone(), vec![fitted.mark_of(of)])?),
            None => self.is_absent(fitted, of).map(|()| absent.clone()),
        })
    }

    /// As [`Remote::ask_of`], of rows: the view must be the one that the type declares.
    fn ask_rows<T: Clone>(
        &self,
        rows: &FarRows,
        kind: impl Fn(Option<u64>) -> Asked,
        absent: &T,
        found: impl Fn(Told) -> Result<T>,
    ) -> Result<T> {
        self.of_type(rows.of, |fitted| match fitted.schema.as_deref() {
            Some(schema) => found(self.ask(kind(rows.generation(schema)?), vec![fitted.mark_of(rows.of)])?),
            None => self.is_absent(fitted, rows.of).map(|()| absent.clone()),
        })
    }

    /// Has the server check that the collection of a type does not exist.
    fn is_absent(&self, fitted: &Fitted, of: StoredType) -> Result<()> {
        let marks = vec![fitted.mark_of(of)];
        self.client.read(v1::ReadRequest { marks, ..v1::ReadRequest::default() }).map(drop)
    }

    /// A transaction of one operation.
    pub(super) fn write(
        &self,
        of: Option<StoredType>,
        kind: &v1::operation::Kind,
    ) -> Result<v1::operation_result::Kind> {
        let done = self.again(|| {
            let fitted = match of {
                Some(of) => Some((of, self.fits.writing(of)?)),
                None => None,
            };
            let marks = fitted.iter().map(|(of, fitted)| fitted.mark_of(*of)).collect();
            let operations = vec![v1::Operation { kind: Some(kind.clone()) }];
            let done = self.once(operations, marks);
            of.map_or_else(|| done.clone(), |of| self.forget_changed(of, done.clone()))
        })?;
        done.results.into_iter().next().and_then(|result| result.kind).ok_or_else(|| lacks("result"))
    }

    /// A batch whose effect is there once, also if its answer was lost.
    fn once(&self, operations: Vec<v1::Operation>, marks: Vec<v1::SchemaMark>) -> Result<v1::BatchReply> {
        let write = Some(v1::Write::default());
        let mut batch = v1::BatchRequest { write, operations, marks, ..v1::BatchRequest::default() };
        let mut id = self.identify(&mut batch)?;
        let (until, mut tries, mut is_clock_right) = (Instant::now() + WITHIN, 0, false);
        let mut in_doubt: Option<Error> = None;
        loop {
            let error = match self.client.batch(batch.clone()) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tries += 1;
            let may_be_done = is_in_doubt(&error);
            if may_be_done {
                in_doubt = Some(error.clone());
            }
            if error.code() == Code::RequestCancelled && in_doubt.is_some() {
                // It was settled as one that never runs, and that answer was lost.
                (id, in_doubt) = (self.identify(&mut batch)?, None);
                continue;
            }
            // Without a doubt nothing was done: the caller decides whether it goes on.
            if in_doubt.is_none() {
                if !is_clock_right && self.is_id_refused(&error, &id) {
                    (id, is_clock_right) = (self.identify(&mut batch)?, true);
                    continue;
                }
                return Err(error);
            }
            if !may_be_done && error.kind() != ErrorKind::Unavailable {
                // This try has done nothing. What became of the one before is settled.
                let asked = v1::OutcomeRequest { request_id: id.clone() };
                match self.client.outcome(asked) {
                    Ok(outcome) if !outcome.committed => return Err(error),
                    Ok(v1::OutcomeReply { results, failed_condition, .. }) => {
                        return Ok(v1::BatchReply { results, failed_condition, ..v1::BatchReply::default() });
                    }
                    Err(_) => {}
                }
            }
            let wait = self.wait_before(tries);
            if Instant::now() + wait > until {
                return Err(in_doubt.unwrap_or(error));
            }
            thread::sleep(wait);
        }
    }
}

impl Remote {
    /// Gives a batch a new request id.
    fn identify(&self, batch: &mut v1::BatchRequest) -> Result<Bytes> {
        let id = self.client.new_request_id()?;
        batch.write.get_or_insert_default().request_id = id.clone();
        Ok(id)
    }

    /// Whether a request was refused for the time of its id, and the clock is right now. Nothing was done.
    pub(super) fn is_id_refused(&self, error: &Error, id: &[u8]) -> bool {
        let may_be = matches!(error.code(), Code::RequestTooOld | Code::InvalidArgument);
        may_be && self.client.is_of_another_time(id)
    }
}

impl Far for Remote {
    fn get(&self, of: StoredType, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.ask_of(of, &questions::get(of, key), &None, questions::document)
    }

    fn count(&self, rows: &FarRows) -> Result<u64> {
        self.ask_rows(rows, |view| questions::count(rows, view), &0, |told| questions::number(&told))
    }

    fn nth(&self, rows: &FarRows, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.ask_rows(rows, |view| questions::nth(rows, view, index), &None, questions::one_row)
    }

    fn rows(&self, rows: FarRows, with_documents: bool) -> Result<Box<dyn FarCursor>> {
        self.of_type(rows.of, |fitted| {
            let Some(schema) = fitted.schema.as_deref() else {
                self.is_absent(fitted, rows.of)?;
                return Ok(Box::new(NoRows) as Box<dyn FarCursor>);
            };
            let (asked, marks) = (
                questions::rows(&rows, rows.generation(schema)?, with_documents),
                vec![fitted.mark_of(rows.of)],
            );
            if rows.limit <= FEW_ROWS {
                let found = questions::found_rows(self.ask(Asked::Rows(asked.clone()), marks.clone())?)?;
                if found.is_complete {
                    return Ok(Box::new(Scan::of(None, found.rows)));
                }
            }
            let request = v1::ScanRequest { rows: Some(asked), marks, ..v1::ScanRequest::default() };
            let mut scanned = self.client.scan(request)?;
            // Until the caller has a row the scan can be repeated: if it was accepted, and the server stops
            // before it answers, for example.
            let first = scanned.next()?;
            let rest = first.is_some().then_some(scanned);
            Ok(Box::new(Scan::of(rest, first.map(|reply| reply.rows).unwrap_or_default())))
        })
    }

    fn reduce(&self, rows: &FarRows) -> Result<(u64, Vec<u8>)> {
        self.ask_rows(rows, |view| questions::reduce(rows, view, 0), &(0, Vec::new()), questions::one_group)
    }

    fn groups(&self, rows: &FarRows, elements: usize) -> Result<Vec<FarGroup>> {
        self.ask_rows(rows, |view| questions::reduce(rows, view, elements), &Vec::new(), questions::groups)
    }
}

/// The rows of a scan, all of one state.
struct Scan {
    /// `None` if all rows are there.
    scanned: Option<Scanned>,
    rows: std::vec::IntoIter<v1::Row>,
    /// The one that is lent.
    row: v1::Row,
}

impl Scan {
    fn of(scanned: Option<Scanned>, rows: Vec<v1::Row>) -> Scan {
        Scan { scanned, rows: rows.into_iter(), row: v1::Row::default() }
    }
}

impl FarCursor for Scan {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            if let Some(row) = self.rows.next() {
                self.row = row;
                return Ok(Some((&self.row.key, &self.row.document)));
            }
            let Some(scanned) = &mut self.scanned else { return Ok(None) };
            let next = scanned.next();
            if !matches!(next, Ok(Some(_))) {
                // An error ends it.
                self.scanned = None;
            }
            let Some(reply) = next? else { return Ok(None) };
            self.rows = reply.rows.into_iter();
        }
    }
}

impl KvRead for Remote {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let of = Asked::GetKeyValue(questions::key_value(namespace, key));
        let told = self.again(|| self.ask(of.clone(), Vec::new()))?;
        questions::value(told)?.map_or(Ok(()), |value: Bytes| read(&value))
    }
}

impl KvWrite for Remote {
    fn put_stored(&self, namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Result<()> {
        self.write(None, &kv::put(namespace, key, value, ttl)).map(drop)
    }

    fn delete_key(&self, namespace: &str, key: &[u8]) -> Result<bool> {
        kv::was_deleted(&self.write(None, &kv::delete(namespace, key))?)
    }

    fn add(&self, namespace: &str, key: &[u8], by: i64) -> Result<i64> {
        kv::sum(&self.write(None, &kv::add(namespace, key, by))?)
    }
}

impl Reads for Remote {
    fn target(&self) -> Target<'_> {
        Target::far(self)
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        questions::get_typed(self, &key)
    }
}

impl Store for Remote {
    type Tx<'t> = RemoteTransaction;
    type Snapshot = RemoteSnapshot;

    fn transact<T>(&self, run: impl FnMut(&mut RemoteTransaction) -> Result<T>) -> Result<T> {
        Remote::transact(self, run)
    }

    fn snapshot(&self) -> Result<RemoteSnapshot> {
        Remote::snapshot(self)
    }

    fn put<C: Collection>(&self, document: &C) -> Result<()> {
        self.write(Some(StoredType::of::<C>()), &put_typed(document, Wanted::Any)?).map(drop)
    }

    fn insert<C: Collection>(&self, document: &C) -> Result<()> {
        self.write(Some(StoredType::of::<C>()), &put_typed(document, Wanted::Absent)?).map(drop)
    }

    fn update<C: Collection>(&self, document: &C) -> Result<()> {
        self.write(Some(StoredType::of::<C>()), &put_typed(document, Wanted::Present)?).map(drop)
    }
}
