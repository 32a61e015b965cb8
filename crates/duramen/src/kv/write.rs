//! The writes of a namespace, in a transaction.
//!
//! Owns the rule that a value and its row in the expiry index change together. In every committed state each
//! value that expires has its row in the index, and there are no other rows.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::read::{KvOf, from_value};
use super::row::{self, Row};
use crate::access::anywhere::KvWrite;
use crate::access::handle::Db;
use crate::access::reads::sealed::Readable;
use crate::access::transaction::Transaction;
use crate::store::Source;
use crate::store::error::{Code, Error, Result};
use crate::value::clock::Millis;
use crate::value::document::Value;
use crate::value::msgpack::{check, write};
use crate::value::ttl::Ttl;
use crate::value::tuple::{Key, show};

/// The result of [`compare_and_set`](crate::Kv::compare_and_set).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the value may not have been what was expected"]
pub enum CompareAndSet<T> {
    /// The value was as expected, and is now the new one.
    Set,
    /// The value differs: it is this one, and unchanged; `None` if there is none.
    Differs(Option<T>),
}

impl<T> CompareAndSet<T> {
    /// Whether the new value was set.
    pub fn is_set(&self) -> bool {
        matches!(self, CompareAndSet::Set)
    }
}

impl KvWrite for Transaction<'_> {
    fn put_stored(&self, namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Result<()> {
        let of = KvOf { within: self, namespace };
        of.set(key, &of.stored(key)?, value, ttl)
    }

    fn delete_key(&self, namespace: &str, key: &[u8]) -> Result<bool> {
        let of = KvOf { within: self, namespace };
        let stored = of.stored(key)?;
        let was_there = of.lives(key, &stored)?;
        of.remove(key, &stored)?;
        Ok(was_there)
    }

    fn add(&self, namespace: &str, key: &[u8], by: i64) -> Result<i64> {
        KvOf { within: self, namespace }.calculate(key, |now| now.checked_add(by))
    }
}

impl KvWrite for Db {
    fn put_stored(&self, namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Result<()> {
        Db::transact(self, |tx| tx.put_stored(namespace, key, value, ttl))
    }

    fn delete_key(&self, namespace: &str, key: &[u8]) -> Result<bool> {
        Db::transact(self, |tx| tx.delete_key(namespace, key))
    }

    fn add(&self, namespace: &str, key: &[u8], by: i64) -> Result<i64> {
        Db::transact(self, |tx| tx.add(namespace, key, by))
    }
}

impl<S: KvWrite> KvOf<'_, S> {
    /// Stores a value that never expires, replacing any value under the key.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `InvalidArgument` (E0201) for an
    /// invalid namespace, and for a value that cannot be serialised, has map keys that cannot be field names,
    /// or nests more than 64 deep.
    pub fn put<T: Serialize + ?Sized>(&self, key: impl Key, value: &T) -> Result<()> {
        self.put_with(key, value, Ttl::forever())
    }

    /// Stores a value with a lifetime, replacing any value under the key.
    ///
    /// # Errors
    /// As [`KvOf::put`].
    pub fn put_with<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<()> {
        let key = row::key_bytes(&key)?;
        self.within.put_stored(self.namespace, &key, &to_value(self.namespace, &key, value)?, ttl)
    }

    /// Stores a value without a type, with a lifetime. A type that reads it has the same fields.
    ///
    /// # Errors
    /// As [`KvOf::put`].
    pub fn put_value(&self, key: impl Key, value: &Value, ttl: Ttl) -> Result<()> {
        let key = row::key_bytes(&key)?;
        self.within.put_stored(self.namespace, &key, &value.to_msgpack()?, ttl)
    }

    /// Deletes a value. Returns whether it was there.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `InvalidArgument` (E0201) for an
    /// invalid namespace.
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.within.delete_key(self.namespace, &row::key_bytes(&key)?)
    }

    /// Adds to an integer and returns the sum. An absent value counts as 0. The expiry does not change.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `KeyTooLong` (E0202); `Unreadable` (E0213) if the value is
    /// not a 64-bit integer; `InvalidArgument` (E0201) for an invalid namespace, or if the sum overflows.
    pub fn increment(&self, key: impl Key, by: i64) -> Result<i64> {
        self.within.add(self.namespace, &row::key_bytes(&key)?, by)
    }
}

impl KvOf<'_, Transaction<'_>> {
    /// Stores bytes with a lifetime: smaller and faster than serialising a list of numbers.
    ///
    /// # Errors
    /// As [`KvOf::put`].
    pub fn put_bytes(&self, key: impl Key, bytes: &[u8], ttl: Ttl) -> Result<()> {
        let key = row::key_bytes(&key)?;
        let mut value = Vec::with_capacity(5 + bytes.len());
        write::bytes(&mut value, bytes)?;
        self.set(&key, &self.stored(&key)?, &value, ttl)
    }

    /// Stores a value with a lifetime if the key has none. Returns whether it was stored.
    ///
    /// # Errors
    /// As [`KvOf::put`].
    pub fn put_if_absent<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<bool> {
        self.put_if(key, value, ttl, false)
    }

    /// Stores a value with a lifetime, but only if the key already has a value. Returns whether it was
    /// stored.
    ///
    /// # Errors
    /// As [`KvOf::put`].
    pub fn put_if_present<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<bool> {
        self.put_if(key, value, ttl, true)
    }

    /// Stores a value with a lifetime, and returns the previous one.
    ///
    /// # Errors
    /// As [`KvOf::put`]; `Unreadable` (E0213) if the previous value is of another type.
    pub fn replace<T: Serialize + DeserializeOwned>(
        &self,
        key: impl Key,
        value: &T,
        ttl: Ttl,
    ) -> Result<Option<T>> {
        let key = row::key_bytes(&key)?;
        let stored = self.stored(&key)?;
        let before = self.read(&key, &stored)?;
        self.set(&key, &stored, &to_value(self.namespace, &key, value)?, ttl)?;
        Ok(before)
    }

    /// Deletes a value, and returns it.
    ///
    /// # Errors
    /// As [`KvOf::replace`].
    pub fn take<T: DeserializeOwned>(&self, key: impl Key) -> Result<Option<T>> {
        let key = row::key_bytes(&key)?;
        let stored = self.stored(&key)?;
        let before = self.read(&key, &stored)?;
        self.remove(&key, &stored)?;
        Ok(before)
    }

    /// Replaces the value if it equals `expected`.
    ///
    /// `None` as `expected` means that there is no value; `None` as `new` deletes the value. The new value
    /// keeps the expiry of the old one.
    ///
    /// # Errors
    /// As [`KvOf::replace`].
    pub fn compare_and_set<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        key: impl Key,
        expected: Option<&T>,
        new: Option<&T>,
    ) -> Result<CompareAndSet<T>> {
        self.compare_and_set_with(key, expected, new, Ttl::keep())
    }

    /// As [`KvOf::compare_and_set`], with a lifetime for the new value.
    ///
    /// # Errors
    /// As [`KvOf::replace`].
    pub fn compare_and_set_with<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        key: impl Key,
        expected: Option<&T>,
        new: Option<&T>,
        ttl: Ttl,
    ) -> Result<CompareAndSet<T>> {
        let key = row::key_bytes(&key)?;
        let stored = self.stored(&key)?;
        let now = self.read::<T>(&key, &stored)?;
        if now.as_ref() != expected {
            return Ok(CompareAndSet::Differs(now));
        }
        match new {
            Some(new) => self.set(&key, &stored, &to_value(self.namespace, &key, new)?, ttl)?,
            None => self.remove(&key, &stored)?,
        }
        Ok(CompareAndSet::Set)
    }

    /// Subtracts from an integer, as [`KvOf::increment`] adds to it.
    ///
    /// # Errors
    /// As [`KvOf::increment`].
    pub fn decrement(&self, key: impl Key, by: i64) -> Result<i64> {
        self.calculate(&row::key_bytes(&key)?, |now| now.checked_sub(by))
    }

    /// As [`KvOf::increment`], but saturates at the largest or smallest integer.
    ///
    /// # Errors
    /// As [`KvOf::increment`].
    pub fn increment_saturating(&self, key: impl Key, by: i64) -> Result<i64> {
        self.calculate(&row::key_bytes(&key)?, |now| Some(now.saturating_add(by)))
    }

    /// As [`KvOf::decrement`], but saturates at the largest or smallest integer.
    ///
    /// # Errors
    /// As [`KvOf::increment`].
    pub fn decrement_saturating(&self, key: impl Key, by: i64) -> Result<i64> {
        self.calculate(&row::key_bytes(&key)?, |now| Some(now.saturating_sub(by)))
    }

    /// Sets the lifetime of a value, counted from now. Returns whether there was a value.
    ///
    /// # Errors
    /// As [`KvOf::delete`].
    pub fn touch(&self, key: impl Key, ttl: Ttl) -> Result<bool> {
        let key = row::key_bytes(&key)?;
        let stored = self.stored(&key)?;
        match &stored {
            Some(found) if self.lives(&key, &stored)? => self.set(&key, &stored, found.value(), ttl)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Deletes the namespace with all its values, in one small commit of constant size. Returns whether it
    /// was there.
    ///
    /// # Errors
    /// Those of a [write](crate::Error#writes); `InvalidArgument` (E0201) for an invalid namespace.
    pub fn clear(&self) -> Result<bool> {
        row::check_namespace(self.namespace)?;
        let tx = self.within.shared();
        let rows = row::rows_tree(self.namespace);
        if tx.tree(&rows)?.is_none() {
            return Ok(false);
        }
        let expiries = row::expiries_tree(self.namespace);
        let has_expiries = tx.tree(&expiries)?.is_some();
        let index = || if has_expiries { tx.drop_tree(&expiries) } else { Ok(()) };
        self.within.all_or_nothing(tx.drop_tree(&rows).and_then(|()| index()))?;
        Ok(true)
    }

    fn put_if<T: Serialize + ?Sized>(
        &self,
        key: impl Key,
        value: &T,
        ttl: Ttl,
        present: bool,
    ) -> Result<bool> {
        let key = row::key_bytes(&key)?;
        let stored = self.stored(&key)?;
        if self.lives(&key, &stored)? != present {
            return Ok(false);
        }
        self.set(&key, &stored, &to_value(self.namespace, &key, value)?, ttl)?;
        Ok(true)
    }

    fn calculate(&self, key: &[u8], new: impl FnOnce(i64) -> Option<i64>) -> Result<i64> {
        let stored = self.stored(key)?;
        let now: i64 = self.read(key, &stored)?.unwrap_or(0);
        let new = new(now).ok_or_else(|| overflow(self.namespace, key, now))?;
        let mut value = Vec::with_capacity(9);
        write::int(&mut value, i128::from(new))?;
        self.set(key, &stored, &value, Ttl::keep())?;
        Ok(new)
    }

    fn lives(&self, key: &[u8], stored: &Option<Row>) -> Result<bool> {
        stored.as_ref().map_or(Ok(false), |found| self.relies_on(key, found))
    }

    fn read<T: DeserializeOwned>(&self, key: &[u8], stored: &Option<Row>) -> Result<Option<T>> {
        let live = if self.lives(key, stored)? { stored.as_ref() } else { None };
        live.map(|found| from_value(self.namespace, key, found.value())).transpose()
    }

    /// Stores a value in the place of the stored row.
    fn set(&self, key: &[u8], stored: &Option<Row>, value: &[u8], ttl: Ttl) -> Result<()> {
        let now = self.within.now();
        let before = stored.as_ref().filter(|found| found.lives_at(now)).and_then(|found| found.expires);
        if ttl.keeps()
            && let Some(found) = stored
        {
            // Else the new value could begin its life expired.
            self.relies_on(key, found)?;
        }
        let expires = ttl.expires(now, before);
        if !row::lives(expires, now) {
            return self.remove(key, stored);
        }
        let name = row::rows_tree(self.namespace);
        let tx = self.within.shared();
        let rows = match tx.tree(&name)? {
            Some(tree) => tree,
            None => tx.create_tree(&name, None)?,
        };
        self.within.wrote_kv(self.namespace);
        self.within.written_until().note(expires);
        let indexed = stored.as_ref().and_then(|found| found.expires);
        let written = tx.put(rows, key, &row::encode_row(expires, value));
        if indexed == expires {
            return written;
        }
        self.within.all_or_nothing(written.and_then(|()| self.reindex(key, indexed, expires)))
    }

    /// Deletes the stored row, expired or not.
    fn remove(&self, key: &[u8], stored: &Option<Row>) -> Result<()> {
        let Some(found) = stored else { return Ok(()) };
        self.within.wrote_kv(self.namespace);
        self.erase(key, found)
    }

    fn erase(&self, key: &[u8], found: &Row) -> Result<()> {
        let tx = self.within.shared();
        let rows = tx.tree(&row::rows_tree(self.namespace))?.expect("a value was found in it");
        let deleted = tx.delete(rows, key);
        self.within.all_or_nothing(deleted.and_then(|()| self.reindex(key, found.expires, None)))
    }

    /// Moves a value's row in the expiry index.
    fn reindex(&self, key: &[u8], from: Option<Millis>, to: Option<Millis>) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let tx = self.within.shared();
        let name = row::expiries_tree(self.namespace);
        let expiries = match tx.tree(&name)? {
            Some(tree) => tree,
            None => tx.create_tree(&name, None)?,
        };
        if let Some(from) = from {
            tx.delete(expiries, &row::index_key(from, key))?;
        }
        let Some(to) = to else { return Ok(()) };
        self.within.gives_expiry_work();
        tx.put(expiries, &row::index_key(to, key), &[])
    }

    /// Deletes a value if its expiry is still `at`. Returns whether it did.
    pub(super) fn expire(&self, key: &[u8], at: Millis) -> Result<bool> {
        match self.stored(key)? {
            Some(found) if found.expires == Some(at) => {
                self.erase(key, &found)?;
                Ok(true)
            }
            // Renewed meanwhile: it has another row in the index. A row left by corruption must not keep
            // expiry running for ever.
            _ => self.drop_index_row(&row::index_key(at, key)).map(|()| false),
        }
    }

    /// Writes nothing where the row is gone: a thread that reads a state before the last step would commit
    /// again and again.
    fn drop_index_row(&self, indexed: &[u8]) -> Result<()> {
        let tx = self.within.shared();
        let Some(expiries) = tx.tree(&row::expiries_tree(self.namespace))? else { return Ok(()) };
        if tx.get(expiries, indexed)?.is_some() { tx.delete(expiries, indexed) } else { Ok(()) }
    }
}

fn to_value<T: Serialize + ?Sized>(namespace: &str, key: &[u8], value: &T) -> Result<Vec<u8>> {
    let refused =
        |why: &str| Error::invalid(format!("the value {} of {namespace} cannot be stored: {why}", show(key)));
    let mut out = Vec::with_capacity(32);
    rmp_serde::encode::write_named(&mut out, value).map_err(|error| refused(&error.to_string()))?;
    check(&out).map_err(|error| refused(error.message()))?;
    Ok(out)
}

#[cold]
fn overflow(namespace: &str, key: &[u8], now: i64) -> Error {
    let what =
        format!("the value {} of {namespace} is {now}, and the result does not fit in 64 bits", show(key));
    Error::new(Code::InvalidArgument, what)
        .with_hint("increment_saturating and decrement_saturating stop at the last integer")
}
