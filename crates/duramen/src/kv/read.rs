//! The reads of a namespace, in a snapshot or a transaction.
//!
//! Owns the rule that an expired value is absent. Answers never change within one snapshot or transaction:
//! its clock is read once.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::row::{self, Row};
use crate::access::anywhere::KvRead;
use crate::access::deadlines::Deadline;
use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::store::error::{Code, Error, Result};
use crate::store::{Cursor, Direction, KeyRange, TreeId};
use crate::value::clock::Millis;
use crate::value::document::Value;
use crate::value::msgpack::{Reader, Token};
use crate::value::span::Span;
use crate::value::ttl::Expiry;
use crate::value::tuple::{self, Key, OwnedKey, decode};

/// Expiries that a count in a transaction looks at, to find the next one of its range.
const EXPIRIES_LOOKED_AT: usize = 64;

/// The key-values of a namespace in a [`Snapshot`](crate::Snapshot) or a [`Transaction`](crate::Transaction).
///
/// It comes from [`Reads::kv`](crate::Reads::kv). In a transaction it also has the writes. Of a database in
/// another process it has `get`, `get_value`, `put`, `put_with`, `put_value`, `increment` and `delete`.
///
/// An expired value is absent for every call. "Now" is one moment for all calls within a snapshot or a
/// transaction: that of the first call that needs it.
///
/// # Errors
/// Each call can return those of a [read](crate::Error#reads); `InvalidArgument` (E0201) for a namespace
/// without a name or with one beyond 1,006 bytes; `KeyTooLong` (E0202) for a key beyond 1,015 bytes as
/// encoded.
#[derive(Debug)]
pub struct KvOf<'a, S> {
    pub(crate) within: &'a S,
    pub(crate) namespace: &'a str,
}

impl<S: LocalReads> KvRead for S {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let found = KvOf { within: self, namespace }.live(key)?;
        found.map_or(Ok(()), |found| read(found.value()))
    }
}

impl KvRead for Db {
    fn lend_value(
        &self,
        namespace: &str,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        Db::snapshot(self)?.lend_value(namespace, key, read)
    }
}

impl<S: KvRead> KvOf<'_, S> {
    /// The value under a key.
    ///
    /// # Errors
    /// As [`KvOf`]; `Unreadable` (E0213) with namespace and key if the value is of another type.
    pub fn get<T: DeserializeOwned>(&self, key: impl Key) -> Result<Option<T>> {
        let key = row::key_bytes(&key)?;
        let mut found = None;
        self.within.lend_value(self.namespace, &key, &mut |value| {
            found = Some(from_value(self.namespace, &key, value)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The value under a key without its type: as programs in other languages read it.
    ///
    /// # Errors
    /// As [`KvOf::get`].
    pub fn get_value(&self, key: impl Key) -> Result<Option<Value>> {
        let key = row::key_bytes(&key)?;
        let mut found = None;
        self.within.lend_value(self.namespace, &key, &mut |stored| {
            let value = Value::from_msgpack(stored);
            let wrong = |error: Error| unreadable(self.namespace, &key, "a value", error.message());
            found = Some(value.map_err(wrong)?);
            Ok(())
        })?;
        Ok(found)
    }
}

impl<S: LocalReads> KvOf<'_, S> {
    /// The bytes under a key, as [`put_bytes`](crate::Kv::put_bytes) stored them.
    ///
    /// # Errors
    /// As [`KvOf::get`].
    pub fn get_bytes(&self, key: impl Key) -> Result<Option<Vec<u8>>> {
        let key = row::key_bytes(&key)?;
        let found = self.live(&key)?;
        found.map(|found| bytes_of(self.namespace, &key, found.value())).transpose()
    }

    /// Whether there is a value under a key.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn exists(&self, key: impl Key) -> Result<bool> {
        Ok(self.live(&row::key_bytes(&key)?)?.is_some())
    }

    /// The expiry of the value under a key; `None` if there is no value.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn expiry(&self, key: impl Key) -> Result<Option<Expiry>> {
        let found = self.live(&row::key_bytes(&key)?)?;
        Ok(found.map(|found| found.expires.map_or(Expiry::Never, |at| Expiry::At(at.to_time()))))
    }

    /// The remaining lifetime of the value under a key; `None` if there is no value, or it never expires.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn ttl(&self, key: impl Key) -> Result<Option<Duration>> {
        let at = self.live(&row::key_bytes(&key)?)?.and_then(|found| found.expires);
        Ok(at.map(|at| Duration::from_millis(at.0 - self.within.now().0)))
    }

    /// Keys and values of a range, in key order.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// db.kv("hits").put(("/", 2026), &7)?;
    /// let snapshot = db.snapshot()?;
    /// for entry in snapshot.kv("hits").scan::<(String, u16), u64>(Span::prefix("/")?)? {
    ///     let ((path, year), count) = entry?;
    ///     assert_eq!((path.as_str(), year, count), ("/", 2026, 7));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`KvOf`]. An item is `Unreadable` (E0213) if its value is of another type,
    /// `InvalidArgument` (E0201) if its key is.
    pub fn scan<K: OwnedKey, T: DeserializeOwned>(&self, span: Span) -> Result<KvIter<K, T>> {
        let source = self.within.source();
        let rows = self.tree(&row::rows_tree(self.namespace))?;
        let cursor = rows.map(|rows| source.cursor(rows, span.into_bytes(), Direction::Forward));
        Ok(KvIter {
            cursor: cursor.transpose()?,
            now: self.within.now(),
            relied_until: self.within.relied_until().cloned(),
            namespace: self.namespace.to_owned(),
            kind: PhantomData,
        })
    }

    /// How many values a range holds, exactly.
    ///
    /// Over the whole namespace it costs O(log n). Over a part it costs O(log n) and a look at each row of
    /// the namespace that has expired and is not deleted yet.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn count(&self, span: Span) -> Result<u64> {
        let source = self.within.source();
        let Some(rows) = self.tree(&row::rows_tree(self.namespace))? else { return Ok(0) };
        let is_all = span == Span::all();
        let range = span.into_bytes();
        let stored = source.count(rows, &range)?;
        let Some(expiries) = self.tree(&row::expiries_tree(self.namespace))? else { return Ok(stored) };
        let gone = row::expired(self.within.now());
        let expired_count = source.count(expiries, &gone)?;
        let is_inside = |key: &[u8]| *key >= *range.from && range.to.as_ref().is_none_or(|to| *key < **to);
        self.note_next_expiry(expiries, &gone, &is_inside)?;
        if is_all {
            return Ok(stored - expired_count);
        }
        let mut expired = 0;
        let mut cursor = source.cursor(expiries, gone, Direction::Forward)?;
        while let Some(found) = cursor.next_key()? {
            let (_, key) = row::split_index_key(found)?;
            expired += u64::from(is_inside(key));
        }
        Ok(stored - expired)
    }

    /// Notes when the next of the values that were counted expires: a transaction relies on the count until
    /// then.
    ///
    /// The index is looked at without noting it: what changes the values of the range conflicts by itself.
    /// After some values outside of the range the time of the last one counts, which is earlier.
    fn note_next_expiry(
        &self,
        expiries: TreeId,
        gone: &KeyRange,
        is_inside: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let Some(deadline) = self.within.relied_until() else { return Ok(()) };
        let from = gone.to.clone().unwrap_or_default();
        let mut next = self.within.source().peek(expiries, KeyRange { from, to: None })?;
        let mut looked = 0;
        while let Some(found) = next.next_key()? {
            let (at, key) = row::split_index_key(found)?;
            looked += 1;
            if is_inside(key) || looked == EXPIRIES_LOOKED_AT {
                deadline.note(Some(at));
                break;
            }
        }
        Ok(())
    }

    /// The value under a key, unless it has expired.
    pub(super) fn live(&self, key: &[u8]) -> Result<Option<Row>> {
        let Some(found) = self.stored(key)? else { return Ok(None) };
        Ok(self.relies_on(key, &found)?.then_some(found))
    }

    /// Whether a value is visible. If so, a transaction relies on it until the commit, unless it wrote the
    /// value itself.
    pub(super) fn relies_on(&self, key: &[u8], found: &Row) -> Result<bool> {
        let lives = found.lives_at(self.within.now());
        if lives
            && found.expires.is_some()
            && let Some(deadline) = self.within.relied_until()
        {
            let rows = self.tree(&row::rows_tree(self.namespace))?;
            if rows.is_none_or(|rows| !self.within.source().has_written(rows, key)) {
                deadline.note(found.expires);
            }
        }
        Ok(lives)
    }

    /// The value under a key, expired or not.
    pub(super) fn stored(&self, key: &[u8]) -> Result<Option<Row>> {
        let Some(rows) = self.tree(&row::rows_tree(self.namespace))? else { return Ok(None) };
        self.within.source().get(rows, key)?.map(Row::decode).transpose()
    }

    fn tree(&self, name: &str) -> Result<Option<TreeId>> {
        row::check_namespace(self.namespace)?;
        self.within.source().tree(name)
    }
}

/// Decodes a value from its MessagePack.
pub(super) fn from_value<T: DeserializeOwned>(namespace: &str, key: &[u8], value: &[u8]) -> Result<T> {
    rmp_serde::from_slice(value)
        .map_err(|error| unreadable(namespace, key, std::any::type_name::<T>(), &error.to_string()))
}

fn bytes_of(namespace: &str, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    match Reader::new(value).next() {
        Ok(Token::Bytes(bytes)) => Ok(bytes.to_vec()),
        Ok(_) => Err(unreadable(namespace, key, "bytes", "it is of another type")),
        Err(error) => Err(unreadable(namespace, key, "bytes", error.message())),
    }
}

#[cold]
fn unreadable(namespace: &str, key: &[u8], wanted: &str, why: &str) -> Error {
    let wanted = wanted.rsplit("::").next().unwrap_or(wanted);
    let key = tuple::show(key);
    Error::new(Code::Unreadable, format!("the value {key} of {namespace} does not read as {wanted}: {why}"))
        .with_hint(
            "ask for the type that was stored, or delete the value; a new field needs #[serde(default)]",
        )
}

/// Key-values of a range as of one snapshot, in key order.
pub struct KvIter<K, T> {
    cursor: Option<Cursor>,
    now: Millis,
    relied_until: Option<Deadline>,
    namespace: String,
    kind: PhantomData<fn() -> (K, T)>,
}

impl<K: OwnedKey, T: DeserializeOwned> KvIter<K, T> {
    fn step(&mut self) -> Result<Option<(K, T)>> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        while let Some((key, stored)) = cursor.next()? {
            let expires = row::expiry(stored)?;
            if row::lives(expires, self.now) {
                if let Some(deadline) = &self.relied_until {
                    deadline.note(expires);
                }
                let value = from_value(&self.namespace, key, row::value(stored, expires))?;
                return Ok(Some((K::from_elements(decode(key)?)?, value)));
            }
        }
        Ok(None)
    }
}

impl<K: OwnedKey, T: DeserializeOwned> Iterator for KvIter<K, T> {
    type Item = Result<(K, T)>;

    fn next(&mut self) -> Option<Result<(K, T)>> {
        self.step().transpose()
    }
}

impl<K, T> fmt::Debug for KvIter<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvIter").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
