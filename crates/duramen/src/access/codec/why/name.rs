//! Names of fields and variants, and keys of maps, as a source of serde's.

use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::{Failed, integer};
use crate::value::document::Value;

/// The name of a field or a variant. Keys of maps that are not text are shown as text.
#[derive(Clone, Copy)]
pub(super) enum Name<'v> {
    Text(&'v str),
    Number(i128),
}

impl<'v> From<&'v Value> for Name<'v> {
    fn from(value: &'v Value) -> Name<'v> {
        match value {
            Value::Text(text) => Name::Text(text),
            Value::Int(number) => Name::Number(*number),
            _ => Name::Text(""),
        }
    }
}

impl Name<'_> {
    fn number<'v, V: Visitor<'v>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self {
            Name::Number(number) => integer(number, visitor),
            Name::Text(text) => match text.parse::<i128>() {
                Ok(number) => integer(number, visitor),
                Err(_) => visitor.visit_str(text),
            },
        }
    }
}

macro_rules! numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            self.number(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Failed;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self {
            Name::Text(text) => visitor.visit_str(text),
            Name::Number(number) => integer(number, visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        match self {
            Name::Text(text) => {
                let name: StrDeserializer<'_, Failed> = text.into_deserializer();
                visitor.visit_enum(name)
            }
            Name::Number(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self {
            Name::Text("true") => visitor.visit_bool(true),
            Name::Text("false") => visitor.visit_bool(false),
            _ => self.deserialize_any(visitor),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}
