//! Reads a type from the values of a document's shape: as from a map with names, without making one.

use std::slice;

use rmp_serde::Deserializer;
use rmp_serde::decode::{Error, ReadRefReader};
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Decodes a type from values that are stored one after the other, in the order of their names. Types that
/// are no struct, map or newtype of one are refused: they are read from the document with its names.
///
/// # Errors
/// Values that the type does not read, or too few of them. More than there are names are not looked at.
pub(super) fn read<C: DeserializeOwned>(names: &[String], values: &[u8]) -> Result<C, Error> {
    let values = Deserializer::from_read_ref(values);
    C::deserialize(&mut ByShape { names: names.iter(), values })
}

struct ByShape<'de> {
    names: slice::Iter<'de, String>,
    values: Deserializer<ReadRefReader<'de, [u8]>>,
}

impl<'de> serde::Deserializer<'de> for &mut ByShape<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for &mut ByShape<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut self.values)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.names.len())
    }
}
