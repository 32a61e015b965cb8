//! A transaction that a server holds, and a snapshot, which is one that only reads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use duramen::error::{Code, Error, Result};
use duramen::tuple::{self, Element, Key, KeyFor};
use duramen::wire::{Far, FarCursor, FarGroup, FarRows, KvRead, KvWrite, StoredType, Target, Wanted};
use duramen::{AssignedKey, Collection, IdKey, IdOrder, Reads, Ttl, Tx, wire};
use duramen_proto::v1;

use super::collection::RemoteDocuments;
use super::session::Session;
use super::{kv, questions};

/// A transaction of [`Remote::transact`](super::Remote::transact).
///
/// Its reads are those of [`Reads`], its writes those of [`Tx`]: `use duramen::prelude::*`. Reads go to the
/// server at once, each with the writes before it; other writes go with the next read or the commit, and
/// return their errors there. `delete` and `increment` are answered at once.
#[derive(Debug)]
pub struct RemoteTransaction {
    session: Shared,
}

/// A snapshot of [`Remote::snapshot`](super::Remote::snapshot). Its reads are those of [`Reads`].
///
/// A server keeps it for two minutes; then its reads fail with `TransactionExpired` (E1104).
#[derive(Debug)]
pub struct RemoteSnapshot {
    session: Shared,
}

/// A session that its cursors share.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<Session>>);

impl Shared {
    pub(super) fn new(session: Session) -> Shared {
        Shared(Arc::new(Mutex::new(session)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read of a type's documents, with the answer that a collection has which does not exist.
    fn ask<T>(
        &self,
        of: StoredType,
        kind: v1::read::Kind,
        absent: T,
        found: impl FnOnce(v1::read_result::Kind) -> Result<T>,
    ) -> Result<T> {
        let told = self.lock().read_of(of, kind)?;
        told.map_or(Ok(absent), found)
    }

    /// As [`Shared::ask`], of rows: the view must be the one that the type declares.
    fn ask_rows<T>(
        &self,
        rows: &FarRows,
        kind: impl FnOnce(Option<u64>) -> v1::read::Kind,
        absent: T,
        found: impl FnOnce(v1::read_result::Kind) -> Result<T>,
    ) -> Result<T> {
        let schema = self.lock().reading(rows.of)?.schema;
        let generation = schema.map_or(Ok(None), |schema| rows.generation(&schema))?;
        self.ask(rows.of, kind(generation), absent, found)
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        questions::get_typed(self, &key)
    }
}

impl Far for Shared {
    fn get(&self, of: StoredType, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.ask(of, questions::get(of, key), None, questions::document)
    }

    fn count(&self, rows: &FarRows) -> Result<u64> {
        self.ask_rows(rows, |view| questions::count(rows, view), 0, |told| questions::number(&told))
    }

    fn nth(&self, rows: &FarRows, index: u64) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.ask_rows(rows, |view| questions::nth(rows, view, index), None, questions::one_row)
    }

    fn rows(&self, rows: FarRows, with_documents: bool) -> Result<Box<dyn FarCursor>> {
        let mut session = self.lock();
        let Some(schema) = session.reading(rows.of)?.schema else {
            session.check_marks()?;
            return Ok(Box::new(NoRows));
        };
        let asked = questions::rows(&rows, rows.generation(&schema)?, with_documents);
        let number = session.open_cursor(asked)?;
        let (session, rows) = (self.clone(), VecDeque::new());
        Ok(Box::new(Cursor { session, number, rows, has_failed: false, row: v1::Row::default() }))
    }

    fn reduce(&self, rows: &FarRows) -> Result<(u64, Vec<u8>)> {
        self.ask_rows(rows, |view| questions::reduce(rows, view, 0), (0, Vec::new()), questions::one_group)
    }

    fn groups(&self, rows: &FarRows, elements: usize) -> Result<Vec<FarGroup>> {
        self.ask_rows(rows, |view| questions::reduce(rows, view, elements), Vec::new(), questions::groups)
    }
}

impl KvRead for Shared {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let of = v1::read::Kind::GetKeyValue(questions::key_value(namespace, key));
        let told = self.lock().read(of)?;
        questions::value(told)?.map_or(Ok(()), |value| read(&value))
    }
}

/// The rows of a collection that does not exist.
pub(super) struct NoRows;

impl FarCursor for NoRows {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(None)
    }
}

/// Rows that are read in parts.
struct Cursor {
    session: Shared,
    number: u64,
    rows: VecDeque<v1::Row>,
    /// The error was returned, and ends it.
    has_failed: bool,
    /// The one that is lent.
    row: v1::Row,
}

impl FarCursor for Cursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.rows.is_empty() && !self.has_failed {
            let next = self.session.lock().next_rows(self.number);
            self.rows = next.inspect_err(|_| self.has_failed = true)?;
        }
        let Some(row) = self.rows.pop_front() else { return Ok(None) };
        self.row = row;
        Ok(Some((&self.row.key, &self.row.document)))
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.session.lock().close_cursor(self.number);
    }
}

impl RemoteSnapshot {
    pub(super) fn new(session: Session) -> RemoteSnapshot {
        RemoteSnapshot { session: Shared::new(session) }
    }
}

impl KvRead for RemoteSnapshot {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.session.lend_value(namespace, key, read)
    }
}

impl Reads for RemoteSnapshot {
    fn target(&self) -> Target<'_> {
        Target::far(&self.session)
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        self.session.get(key)
    }
}

impl RemoteTransaction {
    pub(super) fn new(session: Session) -> RemoteTransaction {
        RemoteTransaction { session: Shared::new(session) }
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock()
    }

    /// The documents of a collection, without a type.
    #[must_use]
    pub fn documents<'t>(&'t self, collection: &'t str) -> RemoteDocuments<'t> {
        RemoteDocuments::new(self, collection)
    }

    /// Moves the position of a consumer, whose changes in between this transaction handles.
    pub(super) fn advance(&self, name: &str, from: u64, to: u64) -> Result<()> {
        let advance = v1::AdvanceConsumer { name: name.to_owned(), from, to };
        self.session.lock().write(v1::operation::Kind::AdvanceConsumer(advance))
    }

    /// Assigns a new key to a document, and stores it.
    pub(super) fn push_in<C: AssignedKey>(&mut self, document: &mut C) -> Result<()> {
        let sequential = C::ORDER == IdOrder::Sequential;
        let assign = v1::AssignId { collection: C::NAME.to_owned(), sequential };
        let id = {
            let mut session = self.session.lock();
            session.writing(StoredType::of::<C>())?;
            match session.write_now(v1::operation::Kind::AssignId(assign))? {
                v1::operation_result::Kind::AssignedId(id) => id,
                _ => return Err(lacks("id")),
            }
        };
        document.set_key(C::Key::from_id(id).ok_or_else(|| {
            Error::invalid(format!("the ids of {} have run out", C::NAME))
                .with_hint("its key is too narrow for another one: use u64")
        })?);
        self.put(document)
    }

    fn put_typed<C: Collection>(&mut self, document: &C, wanted: Wanted) -> Result<()> {
        let operation = put_typed(document, wanted)?;
        let mut session = self.session.lock();
        session.writing(StoredType::of::<C>())?;
        session.write(operation)
    }
}

/// The write of a document.
pub(super) fn put_typed<C: Collection>(document: &C, wanted: Wanted) -> Result<v1::operation::Kind> {
    let (key, named) = wire::store_named(document)?;
    let wanted = match wanted {
        Wanted::Any => v1::PutWanted::Any,
        Wanted::Absent => v1::PutWanted::Absent,
        Wanted::Present => v1::PutWanted::Present,
    };
    Ok(v1::operation::Kind::PutTyped(v1::PutTyped {
        collection: C::NAME.to_owned(),
        key: key.into(),
        document: Bytes::from(named),
        wanted: wanted.into(),
    }))
}

impl KvRead for RemoteTransaction {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.session.lend_value(namespace, key, read)
    }
}

impl KvWrite for RemoteTransaction {
    fn put_stored(&self, namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Result<()> {
        self.session.lock().write(kv::put(namespace, key, value, ttl))
    }

    fn delete_key(&self, namespace: &str, key: &[u8]) -> Result<bool> {
        kv::was_deleted(&self.session.lock().write_now(kv::delete(namespace, key))?)
    }

    fn add(&self, namespace: &str, key: &[u8], by: i64) -> Result<i64> {
        kv::sum(&self.session.lock().write_now(kv::add(namespace, key, by))?)
    }
}

impl Reads for RemoteTransaction {
    fn target(&self) -> Target<'_> {
        Target::far(&self.session)
    }

    fn get<C: Collection>(&self, key: impl KeyFor<C::Key>) -> Result<Option<C>> {
        self.session.get(key)
    }
}

impl Tx for RemoteTransaction {
    fn put<C: Collection>(&mut self, document: &C) -> Result<()> {
        self.put_typed(document, Wanted::Any)
    }

    fn insert<C: Collection>(&mut self, document: &C) -> Result<()> {
        self.put_typed(document, Wanted::Absent)
    }

    fn update<C: Collection>(&mut self, document: &C) -> Result<()> {
        self.put_typed(document, Wanted::Present)
    }

    fn modify<C: Collection>(
        &mut self,
        key: impl KeyFor<C::Key>,
        change: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<Option<C>> {
        let Some(mut document) = self.get::<C>(&key)? else { return Ok(None) };
        let before = wire::store_named(&document)?;
        change(&mut document)?;
        let after = wire::store_named(&document)?;
        if after.0 != before.0 {
            return Err(Error::invalid(format!(
                "a document of {} was to be changed, and its key was changed",
                C::NAME
            ))
            .with_hint("to give a document another key, delete it and put it under the new one"));
        }
        if after != before {
            self.put(&document)?;
        }
        Ok(Some(document))
    }

    fn push<C: AssignedKey>(&mut self, mut document: C) -> Result<C> {
        self.push_in(&mut document)?;
        Ok(document)
    }

    fn delete<C: Collection>(&mut self, key: impl KeyFor<C::Key>) -> Result<bool> {
        let (of, key) = (StoredType::of::<C>(), tuple::encode(&key)?);
        let mut session = self.session.lock();
        if session.reading(of)?.schema.is_none() {
            session.check_marks()?;
            return Ok(false);
        }
        let delete = v1::operation::Kind::Delete(questions::document_key(of, &key));
        kv::was_deleted(&session.write_now(delete)?)
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
