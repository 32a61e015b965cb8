//! The stored form of a catalogue entry: a document of version 1.

use super::{Column, ColumnType, Schema};
use crate::document::{Document, Value};
use crate::error::{Code, Error, Result};

const VERSION: i128 = 1;

impl Schema {
    /// The entry as it is stored.
    ///
    /// # Errors
    /// `InvalidArgument` for names beyond 4 GiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let texts =
            |names: &[String]| Value::List(names.iter().map(|name| Value::from(name.as_str())).collect());
        let columns = self.columns.iter().map(|column| {
            Value::Map(Document::new().with("name", column.name.as_str()).with("type", column.kind.name()))
        });
        Document::new()
            .with("v", 1)
            .with("name", self.name.as_str())
            .with("key", texts(&self.key))
            .with("columns", Value::List(columns.collect()))
            .with("sums", texts(&self.sums))
            .with("null", self.null_marker.as_deref())
            .to_bytes()
    }

    /// An entry from its stored form.
    ///
    /// # Errors
    /// `Unsupported` for an entry of a later version; `DamagedData` for bytes that are no entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Schema> {
        let document = Document::from_bytes(bytes).map_err(|error| damaged(error.message()))?;
        match document.get("v") {
            Some(Value::Int(VERSION)) => {}
            Some(Value::Int(version)) => {
                return Err(Error::new(
                    Code::Unsupported,
                    format!("a collection has catalogue version {version}, this build knows {VERSION}"),
                )
                .with_hint("use a later release of Duramen"));
            }
            _ => return Err(damaged("it has no version")),
        }
        let schema = Schema {
            name: text(&document, "name")?,
            key: texts(&document, "key")?,
            columns: list(&document, "columns")?.iter().map(column).collect::<Result<_>>()?,
            sums: texts(&document, "sums")?,
            null_marker: match document.get("null") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text(&document, "null")?),
            },
        };
        schema.validate().map_err(|error| damaged(error.message()))?;
        Ok(schema)
    }
}

fn damaged(what: &str) -> Error {
    Error::new(Code::DamagedData, format!("the catalogue entry of a collection cannot be read: {what}"))
}

fn text(document: &Document, name: &str) -> Result<String> {
    match document.get(name) {
        Some(Value::Text(text)) => Ok(text.clone()),
        _ => Err(damaged(&format!("it has no {name}"))),
    }
}

fn list<'a>(document: &'a Document, name: &str) -> Result<&'a [Value]> {
    match document.get(name) {
        Some(Value::List(values)) => Ok(values),
        _ => Err(damaged(&format!("it has no list of {name}"))),
    }
}

fn texts(document: &Document, name: &str) -> Result<Vec<String>> {
    let one = |value: &Value| match value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(damaged(&format!("{name} holds something else than names"))),
    };
    list(document, name)?.iter().map(one).collect()
}

fn column(value: &Value) -> Result<Column> {
    let Value::Map(document) = value else { return Err(damaged("a column is no map")) };
    let name = text(document, "name")?;
    let kind = text(document, "type")?;
    let kind = ColumnType::from_name(&kind)
        .ok_or_else(|| damaged(&format!("the column {name} has the type {kind}")))?;
    Ok(Column { name, kind })
}
