//! Writes of key-values as messages, and what they answer.

use bytes::Bytes;
use duramen::Ttl;
use duramen::error::Result;
use duramen::wire::Lifetime;
use duramen_proto::v1;
use duramen_proto::v1::operation::Kind as Operation;
use duramen_proto::v1::operation_result::Kind as Told;

use super::questions::key_value;
use super::transaction::lacks;

/// Stores a value.
pub(super) fn put(namespace: &str, key: &[u8], value: &[u8], ttl: Ttl) -> Operation {
    let (ttl_ms, keep_expiry, expires_at) = match ttl.lifetime() {
        Lifetime::Forever => (0, false, None),
        Lifetime::Keep => (0, true, None),
        // Over at once; as a message 0 is for ever.
        Lifetime::Millis(0) => return delete(namespace, key),
        Lifetime::Millis(ms) => (ms, false, None),
        Lifetime::Until(at) => (0, false, Some(duramen_proto::key::of_time(at))),
    };
    let v1::KeyValueKey { namespace, key } = key_value(namespace, key);
    let value = Some(v1::Value { form: Some(v1::value::Form::Msgpack(Bytes::copy_from_slice(value))) });
    Operation::PutKeyValue(v1::PutKeyValue { namespace, key, value, ttl_ms, keep_expiry, expires_at })
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
