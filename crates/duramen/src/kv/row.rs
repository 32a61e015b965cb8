//! The stored form of key-values: the names of the trees, a value with its expiry, a row of the expiry index.
//!
//! Owns the format; docs/format.md, section "Key-values". Reads and writes no tree.

use crate::store::KeyRange;
use crate::store::error::{Code, Error, Result};
use crate::store::limits::KEY_BYTES_MAX;
use crate::value::clock::Millis;
use crate::value::tuple::{Element, Encoder, Key, decode, encode, split};

/// The prefix of the trees of values, followed by the namespace.
const ROWS: &str = "duramen/kv/";

/// The prefix of the trees of expiry indexes, followed by the namespace.
pub(super) const EXPIRIES: &str = "duramen/kv-expiry/";

/// The maximum length of an expiry in a key, as a tuple's integer.
const EXPIRY_BYTES_MAX: usize = 9;

/// The maximum length of a key: its row in the expiry index must fit too.
const KEY_MAX: usize = KEY_BYTES_MAX - EXPIRY_BYTES_MAX;

/// The first byte of a stored value.
const FOREVER: u8 = 0;
const EXPIRES: u8 = 1;

/// The tree of a namespace's values.
pub(crate) fn rows_tree(namespace: &str) -> String {
    format!("{ROWS}{namespace}")
}

/// The tree of a namespace's expiry index, created with the first value that expires.
pub(crate) fn expiries_tree(namespace: &str) -> String {
    format!("{EXPIRIES}{namespace}")
}

/// The namespace whose values lie in a tree.
pub(crate) fn namespace_of_rows(tree: &str) -> Option<&str> {
    tree.strip_prefix(ROWS)
}

/// The namespace whose expiry index lies in a tree.
pub(crate) fn namespace_of_expiries(tree: &str) -> Option<&str> {
    tree.strip_prefix(EXPIRIES)
}

/// Returns an error for an invalid namespace name.
pub(super) fn check_namespace(namespace: &str) -> Result<()> {
    let longest = KEY_BYTES_MAX - EXPIRIES.len();
    if namespace.is_empty() || namespace.len() > longest {
        return Err(Error::invalid(format!(
            "a namespace of key-values needs a name of 1 to {longest} bytes, and this one has {}",
            namespace.len()
        )));
    }
    Ok(())
}

/// The bytes of a key.
pub(super) fn key_bytes(key: &impl Key) -> Result<Vec<u8>> {
    let key = encode(key)?;
    if key.len() > KEY_MAX {
        let message =
            format!("the key takes {} bytes, and a key of a key-value may take {KEY_MAX}", key.len());
        return Err(Error::new(Code::KeyTooLong, message)
            .with_hint("use a shorter key, and keep the rest in the value"));
    }
    Ok(key)
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) expires: Option<Millis>,
    stored: Vec<u8>,
}

impl Row {
    /// Decodes the bytes under a key.
    pub(crate) fn decode(stored: Vec<u8>) -> Result<Row> {
        let expires = expiry(&stored)?;
        Ok(Row { expires, stored })
    }

    /// The value, as MessagePack.
    pub(crate) fn value(&self) -> &[u8] {
        value(&self.stored, self.expires)
    }

    /// Whether the value is visible at a time.
    pub(crate) fn lives_at(&self, now: Millis) -> bool {
        lives(self.expires, now)
    }
}

/// Whether a value with this expiry is visible at a time.
pub(super) fn lives(expires: Option<Millis>, now: Millis) -> bool {
    expires.is_none_or(|at| now < at)
}

/// The expiry of a stored value.
pub(super) fn expiry(stored: &[u8]) -> Result<Option<Millis>> {
    match stored.split_first() {
        Some((&FOREVER, _)) => Ok(None),
        Some((&EXPIRES, rest)) if rest.len() >= 8 => {
            let at = rest[..8].try_into().expect("eight bytes");
            Ok(Some(Millis(u64::from_le_bytes(at))))
        }
        _ => Err(Error::new(Code::CorruptData, "a key-value does not begin with its expiry")),
    }
}

/// The MessagePack of a stored value with this expiry.
pub(super) fn value(stored: &[u8], expires: Option<Millis>) -> &[u8] {
    &stored[if expires.is_some() { 9 } else { 1 }..]
}

/// Encodes a value.
pub(super) fn encode_row(expires: Option<Millis>, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + value.len());
    match expires {
        None => out.push(FOREVER),
        Some(at) => {
            out.push(EXPIRES);
            out.extend_from_slice(&at.0.to_le_bytes());
        }
    }
    out.extend_from_slice(value);
    out
}

/// The key of a value in the expiry index: its expiry, then its own key.
pub(crate) fn index_key(expires: Millis, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(EXPIRY_BYTES_MAX + key.len());
    Encoder::new(&mut out).uint(expires.0);
    out.extend_from_slice(key);
    out
}

/// The expiry and the key of a value, from its row in the expiry index.
pub(super) fn split_index_key(row: &[u8]) -> Result<(Millis, &[u8])> {
    let corrupt = || Error::new(Code::CorruptData, "a row of an expiry index does not begin with a time");
    let (time, key) = row.split_at(split(row, 1).map_err(|_| corrupt())?);
    match decode(time).as_deref() {
        Ok([Element::Int(ms)]) => Ok((Millis(u64::try_from(*ms).map_err(|_| corrupt())?), key)),
        _ => Err(corrupt()),
    }
}

/// The rows of the expiry index whose values have expired.
pub(super) fn expired(now: Millis) -> KeyRange {
    let mut to = Vec::with_capacity(EXPIRY_BYTES_MAX);
    Encoder::new(&mut to).uint(now.0);
    // Every key after the time, and no later time.
    to.push(0xff);
    KeyRange { from: Vec::new(), to: Some(to) }
}
