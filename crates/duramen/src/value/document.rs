//! Dynamic documents: fields with names, in the order they were written.
//!
//! Owns `Value` and `Document` and their stored form (MessagePack). Integers are exact to 64 bits. Text,
//! bytes, times and nested lists and maps are read back unchanged. Reads and writes no tree.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::store::error::{Error, Result};
use crate::value::json;
use crate::value::msgpack::{DEPTH_MAX, Reader, Token, count_parts, write};
use crate::value::time::Time;
use crate::value::tuple::Element;

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// An integer from `i64::MIN` to `u64::MAX`.
    Int(i128),
    /// A float of 64 bits.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes; base64 in JSON.
    Bytes(Vec<u8>),
    /// A point in time; RFC 3339 text in JSON.
    Time(Time),
    /// Values in order.
    List(Vec<Value>),
    /// Fields with names.
    Map(Document),
}

/// Fields with names, each name once, in the order they were set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    fields: Vec<(String, Value)>,
}

impl Document {
    /// A document without fields.
    #[must_use]
    pub fn new() -> Document {
        Document::default()
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Sets a field, in place if it exists, else at the end.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.fields.iter_mut().find(|(field, _)| *field == name) {
            Some(field) => field.1 = value,
            None => self.fields.push((name, value)),
        }
    }

    /// The document with one more field set; for writing documents in one expression.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Document {
        self.set(name, value);
        self
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.fields.iter().position(|(field, _)| field == name)?;
        Some(self.fields.remove(index).1)
    }

    /// The fields in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn fields(&self) -> &[(String, Value)] {
        &self.fields
    }

    /// The fields in order, values to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.fields.iter_mut().map(|(name, value)| (name.as_str(), value))
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// A document that will have so many fields.
    pub(crate) fn with_capacity(fields: usize) -> Document {
        Document { fields: Vec::with_capacity(fields) }
    }

    /// Appends a field that is known to be new.
    pub(crate) fn push(&mut self, name: String, value: Value) {
        self.fields.push((name, value));
    }

    /// The first repeated name. Small documents are compared pairwise, others sorted.
    pub(crate) fn repeated_name(&self) -> Option<&str> {
        let mut names: Vec<&str> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
        if names.len() <= 16 {
            return (1..names.len()).find(|&i| names[..i].contains(&names[i])).map(|i| names[i]);
        }
        names.sort_unstable();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }

    /// The document as it is stored.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer beyond 64 bits or nesting beyond 64 levels.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(32 * self.fields.len() + 8);
        self.write(&mut out, DEPTH_MAX)?;
        Ok(out)
    }

    /// A document from its stored form.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201), naming the byte, for bytes that are not a document.
    pub fn from_bytes(bytes: &[u8]) -> Result<Document> {
        let mut reader = Reader::new(bytes);
        let count = reader.map()?;
        let document = Document::read(&mut reader, count, DEPTH_MAX)?;
        if !reader.at_end() {
            return Err(reader.wrong("something follows the document"));
        }
        Ok(document)
    }

    /// Some fields of a stored document: those whose names `is_wanted` accepts. The others are skipped, and
    /// are checked only as far as that needs.
    pub(crate) fn fields_from_bytes(bytes: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> Result<Document> {
        let mut reader = Reader::new(bytes);
        let mut document = Document::new();
        for _ in 0..reader.map()? {
            let before = reader.clone();
            if is_wanted(reader.name_bytes()?) {
                let mut named = before;
                let name = named.text_name()?.to_owned();
                document.fields.push((name, Value::read(&mut reader, DEPTH_MAX - 1)?));
            } else {
                reader.skip()?;
            }
        }
        if reader.at_end() { Ok(document) } else { Err(reader.wrong("something follows the document")) }
    }

    /// A document from a JSON object. Integers must fit in 64 bits: they are never rounded.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201), naming the place, for text that is not one JSON object.
    pub fn from_json(text: &str) -> Result<Document> {
        match json::parse(text)? {
            Value::Map(document) => Ok(document),
            _ => Err(Error::invalid("a document is a JSON object, in braces")),
        }
    }

    /// The document as one line of JSON.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer beyond 64 bits or nesting beyond 64 levels.
    pub fn to_json(&self) -> Result<String> {
        json::from_stored(&self.to_bytes()?)
    }

    fn write(&self, out: &mut Vec<u8>, depth: usize) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else { return Err(too_deep()) };
        write::map(out, self.fields.len())?;
        for (name, value) in &self.fields {
            write::text(out, name)?;
            value.write(out, depth)?;
        }
        Ok(())
    }

    fn read(reader: &mut Reader<'_>, count: usize, depth: usize) -> Result<Document> {
        let is_whole = depth == DEPTH_MAX;
        let Some(depth) = depth.checked_sub(1) else { return Err(too_deep()) };
        let mut document = Document { fields: Vec::with_capacity(count.min(64)) };
        for _ in 0..count {
            // Only maps inside typed documents have keys other than text.
            let name = if is_whole { reader.text_name()?.to_owned() } else { reader.name()?.into_owned() };
            let value = Value::read(reader, depth)?;
            document.fields.push((name, value));
        }
        match document.repeated_name() {
            Some(name) => Err(reader.wrong(&format!("the field {name} is there twice"))),
            None => Ok(document),
        }
    }
}

/// A text that is read in place of another one keeps so much memory at least.
const KEPT_BYTES: usize = 4096;

impl Value {
    /// The value as MessagePack, in the form in which a field of a document has it.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for an integer beyond 64 bits or nesting beyond 63 levels.
    pub fn to_msgpack(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.write(&mut out, DEPTH_MAX - 1)?;
        Ok(out)
    }

    /// A value from MessagePack.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201), naming the byte, for bytes that are not one value.
    pub fn from_msgpack(bytes: &[u8]) -> Result<Value> {
        let mut reader = Reader::new(bytes);
        let value = Value::read(&mut reader, DEPTH_MAX - 1)?;
        if reader.at_end() { Ok(value) } else { Err(reader.wrong("something follows the value")) }
    }

    /// How many values and names of fields bytes of MessagePack hold: a bound for the memory that
    /// [`Value::from_msgpack`] and [`Document::from_bytes`] take. It reads the bytes once and builds nothing.
    #[must_use]
    pub fn parts_of_msgpack(bytes: &[u8]) -> usize {
        count_parts(bytes)
    }

    /// The value as one line of JSON.
    ///
    /// # Errors
    /// As [`Value::to_msgpack`].
    pub fn to_json(&self) -> Result<String> {
        json::from_stored(&self.to_msgpack()?)
    }

    /// The kind of value, as a word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Time(_) => "time",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    /// The value as an element of a key; `None` for maps, which have no order.
    #[must_use]
    pub fn to_element(&self) -> Option<Element> {
        Some(match self {
            Value::Null => Element::Null,
            Value::Bool(value) => Element::Bool(*value),
            Value::Int(value) => Element::Int(*value),
            Value::Float(value) => Element::Float(*value),
            Value::Text(value) => Element::Text(value.clone()),
            Value::Bytes(value) => Element::Bytes(value.clone()),
            Value::Time(value) => Element::Time(*value),
            Value::List(values) => {
                Element::Tuple(values.iter().map(Value::to_element).collect::<Option<_>>()?)
            }
            Value::Map(_) => return None,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, depth: usize) -> Result<()> {
        match self {
            Value::Null => write::null(out),
            Value::Bool(value) => write::bool(out, *value),
            Value::Int(value) => write::int(out, *value)?,
            Value::Float(value) => write::float(out, *value),
            Value::Text(value) => write::text(out, value)?,
            Value::Bytes(value) => write::bytes(out, value)?,
            Value::Time(value) => write::time(out, *value),
            Value::List(values) => {
                let Some(depth) = depth.checked_sub(1) else { return Err(too_deep()) };
                write::list(out, values.len())?;
                values.iter().try_for_each(|value| value.write(out, depth))?;
            }
            Value::Map(document) => document.write(out, depth)?,
        }
        Ok(())
    }

    /// As [`Value::read`], in place of this value: a text uses its memory again.
    pub(crate) fn read_again(&mut self, reader: &mut Reader<'_>, depth: usize) -> Result<()> {
        match (reader.next()?, &mut *self) {
            // A text that was long once does not keep its memory for short ones.
            (Token::Text(value), Value::Text(text)) if text.capacity() <= KEPT_BYTES.max(4 * value.len()) => {
                text.clear();
                text.push_str(value);
            }
            (token, _) => *self = Value::of(token, reader, depth)?,
        }
        Ok(())
    }

    /// The value, if it is a scalar; else that it is a list or map, of so many items.
    pub(crate) fn token(&self) -> Token<'_> {
        match self {
            Value::Null => Token::Null,
            Value::Bool(value) => Token::Bool(*value),
            Value::Int(value) => Token::Int(*value),
            Value::Float(value) => Token::Float(*value),
            Value::Text(value) => Token::Text(value),
            Value::Bytes(value) => Token::Bytes(value),
            Value::Time(value) => Token::Time(*value),
            Value::List(items) => Token::List(items.len()),
            Value::Map(fields) => Token::Map(fields.len()),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, depth: usize) -> Result<Value> {
        let token = reader.next()?;
        Value::of(token, reader, depth)
    }

    fn of(token: Token<'_>, reader: &mut Reader<'_>, depth: usize) -> Result<Value> {
        let (Token::List(count) | Token::Map(count)) = token else { return Ok(Value::of_scalar(token)) };
        let Some(depth_inside) = depth.checked_sub(1) else { return Err(too_deep()) };
        if let Token::Map(_) = token {
            return Ok(Value::Map(Document::read(reader, count, depth)?));
        }
        let mut values = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            values.push(Value::read(reader, depth_inside)?);
        }
        Ok(Value::List(values))
    }

    /// The value of a scalar.
    pub(crate) fn of_scalar(token: Token<'_>) -> Value {
        match token {
            Token::Null => Value::Null,
            Token::Bool(value) => Value::Bool(value),
            Token::Int(value) => Value::Int(value),
            Token::Float(value) => Value::Float(value),
            Token::Text(value) => Value::Text(value.to_owned()),
            Token::Bytes(value) => Value::Bytes(value.to_owned()),
            Token::Time(value) => Value::Time(value),
            Token::UncheckedText(_) | Token::List(_) | Token::Map(_) => unreachable!("it is a scalar"),
        }
    }
}

fn too_deep() -> Error {
    Error::invalid(format!("lists and maps in a document nest at most {DEPTH_MAX} deep"))
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json().map_err(|_| fmt::Error)?)
    }
}

impl fmt::Display for Value {
    /// As in the JSON of a document.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut stored = Vec::new();
        self.write(&mut stored, DEPTH_MAX).map_err(|_| fmt::Error)?;
        f.write_str(&json::from_stored(&stored).map_err(|_| fmt::Error)?)
    }
}

macro_rules! conversions {
    ($($kind:ty, |$value:ident| $body:expr;)*) => {$(
        impl From<$kind> for Value {
            fn from($value: $kind) -> Value {
                $body
            }
        }
    )*};
}

conversions! {
    bool, |v| Value::Bool(v);
    i8, |v| Value::Int(i128::from(v));
    i16, |v| Value::Int(i128::from(v));
    i32, |v| Value::Int(i128::from(v));
    i64, |v| Value::Int(i128::from(v));
    u8, |v| Value::Int(i128::from(v));
    u16, |v| Value::Int(i128::from(v));
    u32, |v| Value::Int(i128::from(v));
    u64, |v| Value::Int(i128::from(v));
    f64, |v| Value::Float(v);
    &str, |v| Value::Text(v.to_owned());
    String, |v| Value::Text(v);
    Vec<u8>, |v| Value::Bytes(v);
    &[u8], |v| Value::Bytes(v.to_owned());
    Time, |v| Value::Time(v);
    Vec<Value>, |v| Value::List(v);
    Document, |v| Value::Map(v);
}

impl From<Element> for Value {
    /// The element of a key as a value; a UUID becomes its bytes.
    fn from(element: Element) -> Value {
        match element {
            Element::Null => Value::Null,
            Element::Bytes(bytes) => Value::Bytes(bytes),
            Element::Text(text) => Value::Text(text),
            Element::Tuple(elements) => Value::List(elements.into_iter().map(Value::from).collect()),
            Element::Int(value) => Value::Int(value),
            Element::Float(value) => Value::Float(value),
            Element::Bool(value) => Value::Bool(value),
            Element::Uuid(bytes) => Value::Bytes(bytes.to_vec()),
            Element::Time(time) => Value::Time(time),
            Element::Descending(element) => Value::from(*element),
        }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// Builds a document in a syntax like JSON: `doc! { "id": 1, "city": "Oslo" }`.
#[macro_export]
macro_rules! doc {
    ($($name:literal : $value:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "an empty document sets nothing")]
        let mut document = $crate::Document::new();
        $(document.set($name, $value);)*
        document
    }};
}
