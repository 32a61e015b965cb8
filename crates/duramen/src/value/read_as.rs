//! Dynamic documents as types of serde, and back.
//!
//! Owns the deserializer of values. Its errors name the path of the value that does not fit.

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Serialize, forward_to_deserialize_any};

use super::document::{Document, Value};
use super::msgpack::check;
use crate::store::error::{Code, Error, Result};

impl Document {
    /// The document as a type with `Deserialize`: its fields by their names, as a typed collection reads
    /// them.
    ///
    /// A field that the type does not have is left out. Costs a copy of what the type holds.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Order {
    ///     id: u64,
    ///     city: String,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let stored = doc! { "id": 7, "city": "Oslo", "note": "fragile" };
    /// assert_eq!(stored.to::<Order>()?, Order { id: 7, city: "Oslo".into() });
    /// let error = doc! { "id": 7, "city": 5 }.to::<Order>().unwrap_err();
    /// assert!(error.message().starts_with("the field city does not read as Order"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Unreadable` (E0213), naming the path of the field, for a value that the type does not take, and for a
    /// missing one.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(Fields::of(self)).map_err(|error| error.reading::<T>())
    }

    /// The document that a value with `Serialize` is stored as: a struct, or a map with texts as keys.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// #[derive(Serialize)]
    /// struct Order {
    ///     id: u64,
    ///     city: String,
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let document = Document::from_serialize(&Order { id: 7, city: "Oslo".into() })?;
    /// assert_eq!(document, doc! { "id": 7, "city": "Oslo" });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a value that is not written as fields with names, and for one that
    /// cannot be stored: nested too deep, or with an integer beyond 64 bits.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Document> {
        let kind = kind::<T>();
        let refused = |why: &str| {
            Error::invalid(format!("{kind} cannot be stored as a document: {why}"))
                .with_hint("pass a struct with named fields, or a map with texts as keys")
        };
        let stored = rmp_serde::to_vec_named(value).map_err(|error| refused(&error.to_string()))?;
        check(&stored).map_err(|error| refused(error.message()))?;
        Document::from_bytes(&stored).map_err(|error| refused(error.message()))
    }
}

impl Value {
    /// The value as a type with `Deserialize`. See [`Document::to`].
    ///
    /// # Errors
    /// As [`Document::to`].
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(Of(self)).map_err(|error| error.reading::<T>())
    }

    /// The value that one with `Serialize` is stored as.
    ///
    /// ```
    /// # use duramen::prelude::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Value::from_serialize(&Some(7))?, Value::Int(7));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for one that cannot be stored: nested too deep, or with an integer beyond 64
    /// bits.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
        let refused = |why: &str| Error::invalid(format!("{} cannot be stored: {why}", kind::<T>()));
        let stored = rmp_serde::to_vec_named(value).map_err(|error| refused(&error.to_string()))?;
        Value::from_msgpack(&stored).map_err(|error| refused(error.message()))
    }
}

fn kind<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    // A generic type has the paths of its arguments, too.
    if name.contains('<') { name } else { name.rsplit("::").next().unwrap_or(name) }
}

/// Why a value does not fit, and where it is.
#[derive(Debug)]
struct Misfit {
    path: String,
    what: String,
}

impl Misfit {
    /// The same within a field or an item.
    fn within(mut self, step: &str) -> Misfit {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{step}{dot}{}", self.path);
        self
    }

    #[cold]
    fn reading<T>(self) -> Error {
        let kind = kind::<T>();
        let which = if self.path.is_empty() { "it".to_owned() } else { format!("the field {}", self.path) };
        Error::new(Code::Unreadable, format!("{which} does not read as {kind}: {}", self.what)).with_hint(
            "give the field the type that is stored; one that may be null is an Option, and one that may be absent \
             has #[serde(default)]",
        )
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

impl std::error::Error for Misfit {}

impl serde::de::Error for Misfit {
    fn custom<M: std::fmt::Display>(message: M) -> Misfit {
        Misfit { path: String::new(), what: message.to_string() }
    }
}

type Read<T> = std::result::Result<T, Misfit>;

/// A value to be read.
struct Of<'a>(&'a Value);

impl<'de> Deserializer<'de> for Of<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (_, Ok(value)) => visitor.visit_u64(value),
                (Ok(value), _) => visitor.visit_i64(value),
                _ => visitor.visit_i128(*value),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_str(value),
            Value::Bytes(value) => visitor.visit_bytes(value),
            Value::Time(value) => visitor.visit_str(&value.to_string()),
            Value::List(values) => visitor.visit_seq(Items(values.iter().enumerate())),
            Value::Map(document) => visitor.visit_map(Fields::of(document)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Read<V::Value> {
        match self.0 {
            Value::Time(_) => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match self.0 {
            Value::Text(name) => visitor.visit_enum(StrDeserializer::new(name)),
            Value::Map(document) => visitor.visit_enum(MapAccessDeserializer::new(Fields::of(document))),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier
    }
}

struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Value>>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        let Some((index, value)) = self.0.next() else { return Ok(None) };
        seed.deserialize(Of(value)).map(Some).map_err(|error| error.within(&format!("[{index}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The fields of a document, and the one whose value comes next.
struct Fields<'a> {
    left: std::slice::Iter<'a, (String, Value)>,
    next: Option<&'a (String, Value)>,
}

impl<'a> Fields<'a> {
    fn of(document: &'a Document) -> Fields<'a> {
        Fields { left: document.fields().iter(), next: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        self.next = self.left.next();
        let Some((name, _)) = self.next else { return Ok(None) };
        seed.deserialize(Name(name)).map(Some).map_err(|error| error.within(name))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<T::Value> {
        let (name, value) = self.next.expect("a name was read before its value");
        seed.deserialize(Of(value)).map_err(|error| error.within(name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_map(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Read<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_enum(MapAccessDeserializer::new(self))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// The name of a field, which stands for a number where a map has numbers as keys.
struct Name<'a>(&'a str);

macro_rules! numbers {
    ($($method:ident => $visit:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
            match self.0.parse() {
                Ok(number) => visitor.$visit(number),
                Err(_) => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Read<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    numbers! {
        deserialize_bool => visit_bool,
        deserialize_i8 => visit_i8,
        deserialize_i16 => visit_i16,
        deserialize_i32 => visit_i32,
        deserialize_i64 => visit_i64,
        deserialize_u8 => visit_u8,
        deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32,
        deserialize_u64 => visit_u64,
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}
