//! Key-values: small things under keys in namespaces, with counters, compare-and-set and expiry.
//!
//! Owns the handle of a [`Db`], where each call is a transaction or a snapshot of its own. `read` and `write`
//! hold the same methods within one. `row` is the stored form; `expire` deletes expired values. Promises: a
//! value is absent from the moment it expires, and stays absent while the database is open. Values commit
//! with documents or not at all.

mod expire;
mod read;
mod row;
#[cfg(test)]
mod tests;
mod write;

use std::time::Duration;

use crate::store::Receipt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::handle::Db;
use crate::access::reads::LocalReads;
use crate::access::reads::Reads;
use crate::store::Source;
use crate::store::error::Result;
use crate::value::document::Value;
use crate::value::span::Span;
use crate::value::tuple::{Key, OwnedKey};

pub use crate::value::ttl::{Expiry, Lifetime, Ttl};
pub use expire::KvStats;
pub(crate) use expire::{after_writes, background_step, has_work, step};
pub use read::{KvIter, KvOf};
pub(crate) use row::{Row, expiries_tree, index_key, namespace_of_expiries, rows_tree};
pub use write::CompareAndSet;

/// A namespace of key-values of a [`Db`].
///
/// Each call is a transaction or a snapshot of its own. Inside a transaction or a snapshot use [`KvOf`],
/// which has the same methods.
///
/// A key is any [`Key`]. A value is any type of serde, and each value may have another type. The first value
/// creates the namespace.
///
/// ```
/// # use duramen::prelude::*;
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let sessions = db.kv("sessions");
/// sessions.put_with("sid", "Ada", Ttl::minutes(30))?;
/// assert_eq!(sessions.get::<String>("sid")?.as_deref(), Some("Ada"));
/// assert!(sessions.touch("sid", Ttl::hours(1))?);
///
/// // A lock that goes away by itself.
/// assert!(db.kv("locks").put_if_absent("report", "worker 1", Ttl::seconds(10))?);
/// assert!(!db.kv("locks").put_if_absent("report", "worker 2", Ttl::seconds(10))?);
///
/// // At most a hundred requests a minute.
/// let allowed = db.transact(|tx| {
///     let count = tx.kv("requests").increment("ada", 1)?;
///     if count == 1 {
///         tx.kv("requests").touch("ada", Ttl::minutes(1))?;
///     }
///     Ok(count <= 100)
/// })?;
/// assert!(allowed);
/// # Ok(()) }
/// ```
///
/// # Time
/// A value expires at a point in time, to the millisecond, by the wall clock. From then on every read treats
/// it as absent. Its space is freed when expiry deletes it. Writes of a namespace delete its expired values;
/// [`Db::sweep_expired`] deletes those of all namespaces. [`KvStats`] reports the lag of expiry.
///
/// Setting the clock back has no effect while the database is open: its time is the latest one that the clock
/// has shown since opening. A value that expired before a close, and was not deleted, is visible again if the
/// clock shows an earlier time at the next opening.
///
/// # Errors
/// As [`KvOf`], and those of a [commit](crate::Error#commits) for a write.
#[derive(Debug, Clone)]
pub struct Kv {
    db: Db,
    namespace: String,
}

impl Kv {
    pub(crate) fn new(db: Db, namespace: String) -> Kv {
        Kv { db, namespace }
    }

    /// The namespace's name.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The value under a key.
    ///
    /// # Errors
    /// As [`KvOf::get`].
    pub fn get<T: DeserializeOwned>(&self, key: impl Key) -> Result<Option<T>> {
        self.db.snapshot()?.kv(&self.namespace).get(key)
    }

    /// The value under a key without its type: as programs in other languages read it.
    ///
    /// # Errors
    /// As [`KvOf::get`].
    pub fn get_value(&self, key: impl Key) -> Result<Option<Value>> {
        self.db.snapshot()?.kv(&self.namespace).get_value(key)
    }

    /// The bytes under a key, as [`Kv::put_bytes`] stored them.
    ///
    /// # Errors
    /// As [`KvOf::get`].
    pub fn get_bytes(&self, key: impl Key) -> Result<Option<Vec<u8>>> {
        self.db.snapshot()?.kv(&self.namespace).get_bytes(key)
    }

    /// Whether there is a value under a key.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn exists(&self, key: impl Key) -> Result<bool> {
        self.db.snapshot()?.kv(&self.namespace).exists(key)
    }

    /// The expiry of the value under a key; `None` if there is no value.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn expiry(&self, key: impl Key) -> Result<Option<Expiry>> {
        self.db.snapshot()?.kv(&self.namespace).expiry(key)
    }

    /// The remaining lifetime of the value under a key; `None` if there is no value, or it never expires.
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn ttl(&self, key: impl Key) -> Result<Option<Duration>> {
        self.db.snapshot()?.kv(&self.namespace).ttl(key)
    }

    /// Keys and values of a range as of one snapshot, in key order.
    ///
    /// # Errors
    /// As [`KvOf::scan`].
    pub fn scan<K: OwnedKey, T: DeserializeOwned>(&self, span: Span) -> Result<KvIter<K, T>> {
        self.db.snapshot()?.kv(&self.namespace).scan(span)
    }

    /// How many values a range holds, exactly. O(log n) over the whole namespace: see [`KvOf::count`].
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn count(&self, span: Span) -> Result<u64> {
        self.db.snapshot()?.kv(&self.namespace).count(span)
    }

    /// The lag of expiry in this namespace, in O(log n).
    ///
    /// # Errors
    /// As [`KvOf`].
    pub fn stats(&self) -> Result<KvStats> {
        row::check_namespace(&self.namespace)?;
        expire::stats(&self.db.snapshot()?, std::slice::from_ref(&self.namespace))
    }

    /// Stores a value that never expires, replacing any value under the key.
    ///
    /// # Errors
    /// As [`KvOf::put`], and those of a [commit](crate::Error#commits).
    pub fn put<T: Serialize + ?Sized>(&self, key: impl Key, value: &T) -> Result<Receipt> {
        self.put_with(key, value, Ttl::forever())
    }

    /// Stores a value with a lifetime, replacing any value under the key.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_with<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<Receipt> {
        self.db.write(|tx| tx.kv(&self.namespace).put_with(&key, value, ttl))
    }

    /// Stores a value without a type, with a lifetime. A type that reads it has the same fields.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # use duramen::json;
    /// # #[derive(Debug, PartialEq, Serialize, Deserialize)] struct Cart { user: u64, items: Vec<String> }
    /// # fn main() -> Result<()> {
    /// let carts = Db::in_memory()?.kv("carts");
    /// carts.put_value(7, &json::parse(r#"{"user": 7, "items": ["tea"]}"#)?, Ttl::forever())?;
    /// assert_eq!(carts.get::<Cart>(7)?, Some(Cart { user: 7, items: vec!["tea".to_owned()] }));
    /// assert_eq!(carts.get_value(7)?.expect("stored").to_json()?, r#"{"user":7,"items":["tea"]}"#);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Kv::put`]; `InvalidArgument` (E0201) for a value of more than 63 levels of lists and maps.
    pub fn put_value(&self, key: impl Key, value: &Value, ttl: Ttl) -> Result<Receipt> {
        self.db.write(|tx| tx.kv(&self.namespace).put_value(&key, value, ttl))
    }

    /// Stores bytes with a lifetime: smaller and faster than serialising a list of numbers.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_bytes(&self, key: impl Key, bytes: &[u8], ttl: Ttl) -> Result<Receipt> {
        self.db.write(|tx| tx.kv(&self.namespace).put_bytes(&key, bytes, ttl))
    }

    /// Stores a value with a lifetime if the key has none. Returns whether it was stored.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_if_absent<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<bool> {
        self.db.transact(|tx| tx.kv(&self.namespace).put_if_absent(&key, value, ttl))
    }

    /// Stores a value with a lifetime if the key already has one. Returns whether it was stored.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn put_if_present<T: Serialize + ?Sized>(&self, key: impl Key, value: &T, ttl: Ttl) -> Result<bool> {
        self.db.transact(|tx| tx.kv(&self.namespace).put_if_present(&key, value, ttl))
    }

    /// Stores a value with a lifetime, and returns the previous one.
    ///
    /// # Errors
    /// As [`KvOf::replace`], and those of a [commit](crate::Error#commits).
    pub fn replace<T: Serialize + DeserializeOwned>(
        &self,
        key: impl Key,
        value: &T,
        ttl: Ttl,
    ) -> Result<Option<T>> {
        self.db.transact(|tx| tx.kv(&self.namespace).replace(&key, value, ttl))
    }

    /// Deletes a value, and returns it.
    ///
    /// # Errors
    /// As [`Kv::replace`].
    pub fn take<T: DeserializeOwned>(&self, key: impl Key) -> Result<Option<T>> {
        self.db.transact(|tx| tx.kv(&self.namespace).take(&key))
    }

    /// Deletes a value. Returns whether it was there.
    ///
    /// # Errors
    /// As [`KvOf::delete`], and those of a [commit](crate::Error#commits).
    pub fn delete(&self, key: impl Key) -> Result<bool> {
        self.db.transact(|tx| tx.kv(&self.namespace).delete(&key))
    }

    /// Replaces the value if it equals `expected`.
    ///
    /// `None` as `expected` means that there is no value; `None` as `new` deletes the value. The new value
    /// keeps the expiry of the old one.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # use duramen::kv::CompareAndSet;
    /// # fn main() -> Result<()> {
    /// # let db = Db::in_memory()?;
    /// let leader = db.kv("leader");
    /// assert!(leader.compare_and_set("now", None, Some(&"node 1".to_owned()))?.is_set());
    /// let other = leader.compare_and_set("now", None, Some(&"node 2".to_owned()))?;
    /// assert_eq!(other, CompareAndSet::Differs(Some("node 1".to_owned())));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Kv::replace`].
    pub fn compare_and_set<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        key: impl Key,
        expected: Option<&T>,
        new: Option<&T>,
    ) -> Result<CompareAndSet<T>> {
        self.compare_and_set_with(key, expected, new, Ttl::keep())
    }

    /// As [`Kv::compare_and_set`], with a lifetime for the new value.
    ///
    /// # Errors
    /// As [`Kv::replace`].
    pub fn compare_and_set_with<T: Serialize + DeserializeOwned + PartialEq>(
        &self,
        key: impl Key,
        expected: Option<&T>,
        new: Option<&T>,
        ttl: Ttl,
    ) -> Result<CompareAndSet<T>> {
        self.db.transact(|tx| tx.kv(&self.namespace).compare_and_set_with(&key, expected, new, ttl))
    }

    /// Adds to an integer and returns the sum. An absent value counts as 0. The expiry does not change.
    ///
    /// # Errors
    /// As [`KvOf::increment`], and those of a [commit](crate::Error#commits).
    pub fn increment(&self, key: impl Key, by: i64) -> Result<i64> {
        self.db.transact(|tx| tx.kv(&self.namespace).increment(&key, by))
    }

    /// Subtracts from an integer, as [`Kv::increment`] adds to it.
    ///
    /// # Errors
    /// As [`Kv::increment`].
    pub fn decrement(&self, key: impl Key, by: i64) -> Result<i64> {
        self.db.transact(|tx| tx.kv(&self.namespace).decrement(&key, by))
    }

    /// As [`Kv::increment`], but saturates at the largest or smallest integer.
    ///
    /// # Errors
    /// As [`Kv::increment`].
    pub fn increment_saturating(&self, key: impl Key, by: i64) -> Result<i64> {
        self.db.transact(|tx| tx.kv(&self.namespace).increment_saturating(&key, by))
    }

    /// As [`Kv::decrement`], but saturates at the largest or smallest integer.
    ///
    /// # Errors
    /// As [`Kv::increment`].
    pub fn decrement_saturating(&self, key: impl Key, by: i64) -> Result<i64> {
        self.db.transact(|tx| tx.kv(&self.namespace).decrement_saturating(&key, by))
    }

    /// Sets the lifetime of a value, counted from now. Returns whether there was a value.
    ///
    /// # Errors
    /// As [`KvOf::touch`], and those of a [commit](crate::Error#commits).
    pub fn touch(&self, key: impl Key, ttl: Ttl) -> Result<bool> {
        self.db.transact(|tx| tx.kv(&self.namespace).touch(&key, ttl))
    }

    /// Deletes the namespace with all its values, in one small commit of constant size. Returns whether it
    /// was there.
    ///
    /// # Errors
    /// As [`KvOf::clear`], and those of a [commit](crate::Error#commits).
    pub fn clear(&self) -> Result<bool> {
        self.db.transact(|tx| tx.kv(&self.namespace).clear())
    }
}

/// The names of the existing namespaces.
pub(crate) fn namespaces(source: &dyn Source) -> Result<Vec<String>> {
    let names = source.tree_names()?;
    Ok(names.iter().filter_map(|name| row::namespace_of_rows(name)).map(str::to_owned).collect())
}

impl Db {
    /// A namespace of key-values.
    #[must_use]
    pub fn kv(&self, namespace: impl Into<String>) -> Kv {
        Kv::new(self.clone(), namespace.into())
    }

    /// Deletes every expired value and frees its space. Returns how many there were.
    ///
    /// Deletes some hundred values per transaction, without waiting for the disk. Writes of a namespace do
    /// this already; call it for namespaces that receive no more writes.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits).
    pub fn sweep_expired(&self) -> Result<u64> {
        let mut freed = 0;
        let end = self.snapshot()?.time();
        loop {
            let expired = step(self)?;
            freed += expired.freed;
            // What expires from now on is left to the next call, so that this loop ends.
            if expired.next_due.is_none_or(|next| next > end) {
                return Ok(freed);
            }
        }
    }

    /// The lag of expiry over all namespaces: O(log n) for each.
    ///
    /// # Errors
    /// Those of a [read](crate::Error#reads).
    pub fn kv_stats(&self) -> Result<KvStats> {
        let snapshot = self.snapshot()?;
        expire::stats(&snapshot, &snapshot.kv_namespaces()?)
    }
}
