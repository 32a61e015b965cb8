//! Writes of key-values as messages, and what they answer.

use bytes::Bytes;
use duramen::error::Result;
use duramen::wire::Lifetime;
use duramen::{Time, Ttl};
use duramen_proto::v1;
use duramen_proto::v1::operation::Kind as Operation;
use duramen_proto::v1::operation_result::Kind as Told;

use super::questions::key_value;
use super::transaction::lacks;

/// Stores a value. `now` is the server's time.
pub(super) fn put(namespace: &str, key: &[u8], value: &[u8], ttl: Ttl, now: Time) -> Operation {
    let (ttl_ms, keep_expiry) = match ttl.lifetime(now) {
        Lifetime::Forever => (0, false),
        Lifetime::Keep => (0, true),
        Lifetime::Over => return delete(namespace, key),
        Lifetime::Millis(ms) => (ms.get(), false),
    };
    let v1::KeyValueKey { namespace, key } = key_value(namespace, key);
    let value = v1::Value { form: Some(v1::value::Form::Msgpack(Bytes::copy_from_slice(value))) };
    Operation::PutKeyValue(v1::PutKeyValue { namespace, key, value: Some(value), ttl_ms, keep_expiry })
}

pub(super) fn delete(namespace: &str, key: &[u8]) -> Operation {
    Operation::DeleteKeyValue(key_value(namespace, key))
}

/// Whether anything was deleted.
///
/// # Errors
/// `WrongVersion` (E1109) if the answer does not tell.
pub(super) fn was_deleted(told: &Told) -> Result<bool> {
    if let Told::Deleted(deleted) = told { Ok(deleted.count > 0) } else { Err(lacks("deletes")) }
}

pub(super) fn add(namespace: &str, key: &[u8], by: i64) -> Operation {
    let v1::KeyValueKey { namespace, key } = key_value(namespace, key);
    Operation::Increment(v1::Increment { namespace, key, by })
}

/// The sum of an increment.
///
/// # Errors
/// `WrongVersion` (E1109) if the answer has none.
pub(super) fn sum(told: &Told) -> Result<i64> {
    if let Told::Incremented(sum) = told { Ok(*sum) } else { Err(lacks("sum")) }
}
