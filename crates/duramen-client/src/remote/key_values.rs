//! The key-values of a namespace in a transaction that a server holds.

use duramen::Value;
use duramen::error::Result;
use duramen::prelude::{Deserialize, Serialize};
use duramen::tuple::Key;
use duramen_proto::{document, key, v1};

use super::transaction::{RemoteTransaction, elements, lacks};

/// The key-values of a namespace in a [`RemoteTransaction`].
#[derive(Debug)]
pub struct RemoteKv<'t, 'c> {
    transaction: &'t mut RemoteTransaction<'c>,
    namespace: &'t str,
}

impl<'t, 'c> RemoteKv<'t, 'c> {
    pub(super) fn new(transaction: &'t mut RemoteTransaction<'c>, namespace: &'t str) -> RemoteKv<'t, 'c> {
        RemoteKv { transaction, namespace }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads), and of the writes before it; `Unreadable` (E0213) if it is of
    /// another type; `Unreachable` (E1111).
    pub fn get<T: for<'de> Deserialize<'de>>(&mut self, key: impl Key) -> Result<Option<T>> {
        let of = self.key_of(&key)?;
        match self.transaction.read(v1::read::Kind::GetKeyValue(of))? {
            v1::read_result::Kind::Value(v1::FoundValue { value: None }) => Ok(None),
            v1::read_result::Kind::Value(v1::FoundValue { value }) => {
                document::required_value(value.as_ref())?.to().map(Some)
            }
            _ => Err(lacks("value")),
        }
    }

    /// Stores a value that does not expire.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for what is no value. Errors of the write come with the next read, or with
    /// the commit.
    pub fn put<T: Serialize + ?Sized>(&mut self, key: impl Key, value: &T) -> Result<()> {
        let value = document::of_value(&Value::from_serialize(value)?, v1::DocumentForm::Msgpack)?;
        let v1::KeyValueKey { namespace, key } = self.key_of(&key)?;
        let put = v1::PutKeyValue { namespace, key, value: Some(value), ttl_ms: 0 };
        self.transaction.write(v1::operation::Kind::PutKeyValue(put))
    }

    /// Adds to an integer, and returns the sum; an absent one is 0.
    ///
    /// # Errors
    /// Those of a [write](duramen::Error#writes), and of the writes before it; `Unreachable` (E1111).
    pub fn increment(&mut self, key: impl Key, by: i64) -> Result<i64> {
        let v1::KeyValueKey { namespace, key } = self.key_of(&key)?;
        let increment = v1::operation::Kind::Increment(v1::Increment { namespace, key, by });
        match self.transaction.write_now(increment)? {
            v1::operation_result::Kind::Incremented(sum) => Ok(sum),
            _ => Err(lacks("sum")),
        }
    }

    /// Deletes a key, if it is there.
    ///
    /// # Errors
    /// As [`RemoteKv::put`].
    pub fn delete(&mut self, key: impl Key) -> Result<()> {
        let of = self.key_of(&key)?;
        self.transaction.write(v1::operation::Kind::DeleteKeyValue(of))
    }

    fn key_of(&self, key: &impl Key) -> Result<v1::KeyValueKey> {
        Ok(v1::KeyValueKey { namespace: self.namespace.to_owned(), key: Some(key::of(&elements(key)?)) })
    }
}
