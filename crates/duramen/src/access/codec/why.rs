//! Why a document does not decode: the field, what it holds, and what the type wants.
//!
//! `rmp-serde` names neither the field nor the value. So a document that failed is decoded once more, from
//! its values, with an error that collects the path. This runs only for an error text.

mod name;

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use self::name::Name;
use crate::value::document::{Document, Value};
use crate::value::msgpack::{DEPTH_MAX, Reader};
use crate::value::time::serde::EXTENSION;

/// Characters of a text that are shown.
const SHOWN_MAX: usize = 40;

/// Why a body does not decode as a type called `kind`; `None` if it does when it is read this way.
pub(crate) fn why<T: DeserializeOwned>(kind: &str, body: &[u8]) -> Option<String> {
    let value = Value::read(&mut Reader::new(body), DEPTH_MAX).ok()?;
    let failed = T::deserialize(Held { value: &value }).err()?;
    Some(failed.sentence(kind))
}

/// The error of a value, with the path to it.
#[derive(Debug)]
struct Failed {
    /// From the inside out: `.name` or `[index]`.
    path: Vec<String>,
    what: What,
}

#[derive(Debug)]
enum What {
    Holds { found: String, wanted: String },
    Missing(&'static str),
    Other(String),
}

impl Failed {
    fn at(mut self, part: impl FnOnce() -> String) -> Failed {
        self.path.push(part());
        self
    }

    fn sentence(self, kind: &str) -> String {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        let path = path.strip_prefix('.').unwrap_or(&path);
        let (the, inside) = if path.is_empty() {
            ("it".to_owned(), String::new())
        } else {
            (format!("its field {path}"), format!("{path}."))
        };
        match self.what {
            What::Holds { found, wanted } => format!("{the} holds {found}, and {kind} wants {wanted} there"),
            What::Missing(name) => format!("it has no field {inside}{name}, and {kind} wants one"),
            What::Other(what) if path.is_empty() => what,
            What::Other(what) => format!("{the}: {what}"),
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.what, self.path)
    }
}

impl std::error::Error for Failed {}

impl serde::de::Error for Failed {
    fn custom<T: fmt::Display>(message: T) -> Failed {
        Failed { path: Vec::new(), what: What::Other(message.to_string()) }
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Failed {
        Failed { path: Vec::new(), what: What::Holds { found: shown(found), wanted: wanted.to_string() } }
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Failed {
        Failed::invalid_type(found, wanted)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Failed {
        let found = format!("the variant {variant}");
        Failed {
            path: Vec::new(),
            what: What::Holds { found, wanted: format!("one of {}", expected.join(", ")) },
        }
    }

    fn missing_field(field: &'static str) -> Failed {
        Failed { path: Vec::new(), what: What::Missing(field) }
    }
}

fn shown(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => format!("the integer {value}"),
        Unexpected::Signed(value) => format!("the integer {value}"),
        Unexpected::Float(value) => format!("the number {value}"),
        Unexpected::Str(text) if text.chars().count() > SHOWN_MAX => {
            format!("the text \"{}...\"", text.chars().take(SHOWN_MAX).collect::<String>())
        }
        Unexpected::Str(text) => format!("the text {text:?}"),
        Unexpected::Bytes(_) => "bytes".to_owned(),
        Unexpected::Unit => "null".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        other => other.to_string(),
    }
}

/// A value as a source of serde's, read as `rmp-serde` reads its bytes.
#[derive(Clone, Copy)]
struct Held<'v> {
    value: &'v Value,
}

impl<'v> Held<'v> {
    fn found(self) -> Unexpected<'v> {
        match self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Int(value) => {
                i64::try_from(*value).map_or(Unexpected::Other("a large integer"), Unexpected::Signed)
            }
            Value::Float(value) => Unexpected::Float(*value),
            Value::Text(value) => Unexpected::Str(value),
            Value::Bytes(value) => Unexpected::Bytes(value),
            Value::Time(_) => Unexpected::Other("a time"),
            Value::List(_) => Unexpected::Seq,
            Value::Map(_) => Unexpected::Map,
        }
    }
}

impl<'de> Deserializer<'de> for Held<'de> {
    type Error = Failed;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => integer(*value, visitor),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::Bytes(value) => visitor.visit_bytes(value),
            Value::Time(_) => Err(serde::de::Error::invalid_type(self.found(), &visitor)),
            Value::List(values) => visitor.visit_seq(Items { values: values.iter().enumerate() }),
            Value::Map(document) => visitor.visit_map(Fields::of(document)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        match self.value {
            Value::Time(time) if name == EXTENSION => visitor.visit_str(&time.to_string()),
            _ if name == EXTENSION => Err(serde::de::Error::invalid_type(self.found(), &visitor)),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        match self.value {
            Value::Text(_) | Value::Int(_) => {
                visitor.visit_enum(Variant { name: self.value.into(), inside: None })
            }
            Value::Map(document) => {
                let mut fields = document.iter();
                match (fields.next(), fields.next()) {
                    (Some((name, inside)), None) => {
                        visitor.visit_enum(Variant { name: Name::Text(name), inside: Some(inside) })
                    }
                    _ => Err(serde::de::Error::invalid_type(Unexpected::Map, &"a variant")),
                }
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

fn integer<'v, V: Visitor<'v>>(value: i128, visitor: V) -> Result<V::Value, Failed> {
    if let Ok(value) = u64::try_from(value) {
        visitor.visit_u64(value)
    } else if let Ok(value) = i64::try_from(value) {
        visitor.visit_i64(value)
    } else {
        visitor.visit_i128(value)
    }
}

/// The items of a list.
struct Items<'v> {
    values: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Failed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failed> {
        let Some((at, value)) = self.values.next() else { return Ok(None) };
        seed.deserialize(Held { value }).map(Some).map_err(|failed| failed.at(|| format!("[{at}]")))
    }
}

/// The fields of a map.
struct Fields<'v> {
    left: Vec<(&'v str, &'v Value)>,
}

impl<'v> Fields<'v> {
    fn of(document: &'v Document) -> Fields<'v> {
        let mut left: Vec<_> = document.iter().collect();
        left.reverse();
        Fields { left }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Failed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failed> {
        let Some((name, _)) = self.left.last() else { return Ok(None) };
        seed.deserialize(Name::Text(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failed> {
        let (name, value) = self.left.pop().expect("its name was read before");
        seed.deserialize(Held { value }).map_err(|failed| failed.at(|| format!(".{name}")))
    }
}

/// A variant of an enum, with what is inside.
struct Variant<'v> {
    name: Name<'v>,
    inside: Option<&'v Value>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Failed;
    type Variant = Inside<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Inside<'de>), Failed> {
        let name = match self.name {
            Name::Text(name) => name.to_owned(),
            Name::Number(number) => number.to_string(),
        };
        Ok((seed.deserialize(self.name)?, Inside { name, value: self.inside }))
    }
}

/// What is inside of a variant.
struct Inside<'v> {
    name: String,
    value: Option<&'v Value>,
}

impl<'v> Inside<'v> {
    fn read<T>(self, read: impl FnOnce(Held<'v>) -> Result<T, Failed>) -> Result<T, Failed> {
        let value = self.value.unwrap_or(&Value::Null);
        read(Held { value }).map_err(|failed| failed.at(|| format!(".{}", self.name)))
    }
}

impl<'de> VariantAccess<'de> for Inside<'de> {
    type Error = Failed;

    fn unit_variant(self) -> Result<(), Failed> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failed> {
        self.read(|held| seed.deserialize(held))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Failed> {
        self.read(|held| held.deserialize_any(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.read(|held| held.deserialize_any(visitor))
    }
}
