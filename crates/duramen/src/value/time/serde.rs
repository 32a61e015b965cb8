//! Times in typed documents: the timestamp extension of MessagePack, and RFC 3339 text in human-readable
//! formats.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Time;
use crate::value::msgpack::{Reader, Token, write};

/// The name by which `rmp-serde` knows an extension.
pub(crate) const EXTENSION: &str = "_ExtStruct";

/// The extension type of times.
const TIMESTAMP: i8 = -1;

/// The bytes before the payload: extension marker, length, type.
const HEAD_BYTES: usize = 3;

/// Bytes, not a list of numbers.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        let mut token = Vec::with_capacity(HEAD_BYTES + 12);
        write::time(&mut token, *self);
        serializer.serialize_newtype_struct(EXTENSION, &(TIMESTAMP, Bytes(&token[HEAD_BYTES..])))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        // Serde's intermediate values (flattened, tagged) claim to be human-readable, whatever their source.
        if deserializer.is_human_readable() {
            deserializer.deserialize_any(TimeVisitor)
        } else {
            deserializer.deserialize_newtype_struct(EXTENSION, TimeVisitor)
        }
    }
}

struct TimeVisitor;

impl<'de> Visitor<'de> for TimeVisitor {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
        Time::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &"a time as in RFC 3339"))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Time, D::Error> {
        deserializer.deserialize_tuple(2, self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Time, A::Error> {
        let kind: i8 = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Payload(bytes) = parts.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        if kind != TIMESTAMP {
            return Err(A::Error::invalid_value(Unexpected::Signed(i64::from(kind)), &self));
        }
        let length = u8::try_from(bytes.len()).map_err(|_| A::Error::invalid_length(bytes.len(), &self))?;
        let token = [&[0xc7, length, 0xff][..], &bytes].concat();
        match Reader::new(&token).next() {
            Ok(Token::Time(time)) => Ok(time),
            _ => Err(A::Error::invalid_value(Unexpected::Bytes(&bytes), &self)),
        }
    }
}

/// The bytes of an extension, borrowed or owned.
struct Payload(Vec<u8>);

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        deserializer.deserialize_bytes(PayloadVisitor)
    }
}

struct PayloadVisitor;

impl Visitor<'_> for PayloadVisitor {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a time")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(Payload(bytes.to_vec()))
    }
}
