//! Arrays of bytes in documents and keys.
//!
//! Owns their stored form: bytes. Serde writes a plain `[u8; N]` as a list of integers, which tools would
//! show and order as such, and which takes up to twice the space.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::error;
use crate::value::column::ColumnType;
use crate::value::tuple::{AsElement, Element, Encoder, Key, OwnedElement, unexpected};

/// An array of bytes that is stored as bytes: hashes, addresses, identifiers. It can be part of a key.
///
/// ```
/// use duramen::ByteArray;
/// use duramen::prelude::*;
///
/// #[derive(Serialize, Deserialize, Collection)]
/// struct File {
///     #[key]
///     hash: ByteArray<32>,
///     name: String,
/// }
///
/// # fn main() -> Result<()> {
/// let db = Db::in_memory()?;
/// db.put(&File { hash: [7; 32].into(), name: "a.txt".into() })?;
/// assert!(db.get::<File>([7; 32])?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteArray<const N: usize>(pub [u8; N]);

impl<const N: usize> From<[u8; N]> for ByteArray<N> {
    fn from(bytes: [u8; N]) -> ByteArray<N> {
        ByteArray(bytes)
    }
}

impl<const N: usize> From<ByteArray<N>> for [u8; N] {
    fn from(bytes: ByteArray<N>) -> [u8; N] {
        bytes.0
    }
}

impl<const N: usize> AsRef<[u8]> for ByteArray<N> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> fmt::Debug for ByteArray<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> fmt::Display for ByteArray<N> {
    /// Hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> AsElement for ByteArray<N> {
    fn append(&self, encoder: &mut Encoder<'_>) -> error::Result<()> {
        encoder.bytes(&self.0);
        Ok(())
    }
}

impl<const N: usize> Key for ByteArray<N> {
    fn write(&self, encoder: &mut Encoder<'_>) -> error::Result<()> {
        self.append(encoder)
    }
}

impl<const N: usize> OwnedElement for ByteArray<N> {
    const COLUMN: ColumnType = ColumnType::Any;

    fn from_element(element: Element) -> error::Result<Self> {
        let array = match &element {
            Element::Bytes(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        };
        array.map(ByteArray).ok_or_else(|| unexpected(&element, &format!("an array of {N} bytes")))
    }
}

impl<const N: usize> Serialize for ByteArray<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de, const N: usize> Deserialize<'de> for ByteArray<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor<const N: usize>;

impl<'de, const N: usize> Visitor<'de> for BytesVisitor<N> {
    type Value = ByteArray<N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {N} bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        bytes.try_into().map(ByteArray).map_err(|_| E::invalid_length(bytes.len(), &self))
    }

    /// A list of integers, as formats without bytes have it.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        use serde::de::Error as _;

        let mut bytes = [0; N];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = items.next_element()?.ok_or_else(|| A::Error::invalid_length(index, &self))?;
        }
        match items.next_element::<u8>()? {
            Some(_) => Err(A::Error::invalid_length(N + 1, &self)),
            None => Ok(ByteArray(bytes)),
        }
    }
}
