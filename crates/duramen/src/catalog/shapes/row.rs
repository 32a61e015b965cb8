//! The stored form of a shape: a row of the trees of shapes. docs/format.md, "Shapes".

use super::layout::Layout;
use super::{ALL_MAX, FIELDS_MAX, NAMES_BYTES_MAX};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::tuple::{decode, encode};

/// A row of the trees of shapes.
pub(super) struct Row {
    pub(super) number: u32,
    pub(super) layout: Layout,
    /// The collection that added it.
    pub(super) collection: String,
}

/// Beside the names, a row has the name of a collection, and for each field at most ten bytes more.
const ROW_BYTES_MAX: usize = NAMES_BYTES_MAX + crate::store::limits::KEY_BYTES_MAX + 10 * FIELDS_MAX + 64;

/// The key of the row of a shape.
pub(super) fn key_of(number: u32) -> Result<Vec<u8>> {
    encode(&u64::from(number))
}

impl Row {
    pub(super) fn stored(&self) -> Result<Vec<u8>> {
        let mut document = Document::new().with("v", 1_u8);
        let names = self.layout.names().iter().map(|name| Value::from(name.as_str())).collect();
        document.set("names", Value::List(names));
        if !self.layout.is_in_shown_order() {
            let shown = self.layout.shown().iter().map(|at| Value::Int(*at as i128)).collect();
            document.set("shown", Value::List(shown));
        }
        document.set("collection", self.collection.as_str());
        document.to_bytes()
    }

    /// Reads a row.
    ///
    /// # Errors
    /// `InvalidArgument` for bytes that are none.
    pub(super) fn read(key: &[u8], stored: &[u8]) -> Result<Row> {
        let number = number_of(key)?;
        if stored.len() > ROW_BYTES_MAX {
            return Err(wrong("it is too long"));
        }
        let mut document = Document::from_bytes(stored)?;
        match document.remove("v") {
            Some(Value::Int(1)) => {}
            Some(Value::Int(version)) if version > 1 => {
                let message = format!("a shape was written by a later release: it has the version {version}");
                return Err(Error::new(Code::Unsupported, message).with_hint("use the release that wrote it"));
            }
            _ => return Err(wrong("it has no version")),
        }
        let texts = list(document.remove("names"))?.into_iter().map(|name| match name {
            Value::Text(name) => Ok(name),
            _ => Err(wrong("a name is no text")),
        });
        let names = texts.collect::<Result<Vec<_>>>()?;
        let positions = list(document.remove("shown"))?.into_iter().map(|at| match at {
            Value::Int(at) => usize::try_from(at).map_err(|_| wrong("a position is too large")),
            _ => Err(wrong("a position is no number")),
        });
        let shown = positions.collect::<Result<Vec<_>>>()?;
        let mut sorted = shown.clone();
        sorted.sort_unstable();
        let is_order = shown.is_empty() || sorted.iter().copied().eq(0..names.len());
        let Some(Value::Text(collection)) = document.remove("collection") else {
            return Err(wrong("it names no collection"));
        };
        let mut unique: Vec<&String> = names.iter().collect();
        unique.sort_unstable();
        let is_repeated = unique.windows(2).any(|pair| pair[0] == pair[1]);
        let bytes: usize = names.iter().map(String::len).sum();
        if names.is_empty() || bytes > NAMES_BYTES_MAX || names.len() > FIELDS_MAX || is_repeated || !is_order
        {
            return Err(wrong("its names are not those of a document"));
        }
        Ok(Row { number, layout: Layout::new(names, shown), collection })
    }
}

/// The number in the key of a row.
///
/// # Errors
/// `InvalidArgument` for bytes that are none.
pub(super) fn number_of(key: &[u8]) -> Result<u32> {
    let number = match decode(key)?.as_slice() {
        [element] => Value::from(element.clone()),
        _ => return Err(wrong("its key is not one number")),
    };
    let Value::Int(number) = number else { return Err(wrong("its key is no number")) };
    let number = u32::try_from(number).map_err(|_| wrong("its number is too large"))?;
    if number as usize >= ALL_MAX {
        return Err(wrong("its number is too large"));
    }
    Ok(number)
}

fn list(value: Option<Value>) -> Result<Vec<Value>> {
    match value {
        Some(Value::List(values)) => Ok(values),
        None => Ok(Vec::new()),
        Some(_) => Err(wrong("a list was wanted")),
    }
}

fn wrong(what: &str) -> Error {
    Error::invalid(what.to_owned())
}
