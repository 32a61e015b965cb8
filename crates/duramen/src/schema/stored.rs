//! The stored form of a catalogue entry: a document of version 1.

use super::{Column, ColumnType, Schema};
use crate::document::{Document, Value};
use crate::error::{Code, Error, Result};
use crate::view::ViewSpec;

const VERSION: i128 = 1;

/// The version of an entry that says more: a build that does not know views must not write documents beside them.
const TYPED_VERSION: i128 = 2;

/// The version of an entry with views in code: a build that does not know them must not write documents beside them.
const CODED_VERSION: i128 = 4;

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
        let mut stored = Document::new()
            .with("v", Value::Int(self.stored_version()))
            .with("name", self.name.as_str())
            .with("key", texts(&self.key))
            .with("columns", Value::List(columns.collect()))
            .with("sums", texts(&self.sums))
            .with("null", self.null_marker.as_deref());
        if !self.compact.is_empty() {
            stored.set("compact", texts(&self.compact));
        }
        if self.needs_types() {
            stored.set("views", Value::List(self.views.iter().map(ViewSpec::to_value).collect()));
            stored.set("generation", self.view_generation);
            stored.set("typed", self.typed);
        }
        stored.to_bytes()
    }

    fn stored_version(&self) -> i128 {
        if self.views.iter().any(|view| view.code_version().is_some()) {
            CODED_VERSION
        } else if self.needs_types() {
            TYPED_VERSION
        } else {
            VERSION
        }
    }

    fn needs_types(&self) -> bool {
        self.typed || !self.views.is_empty() || !self.compact.is_empty() || self.view_generation > 0
    }

    /// An entry from its stored form.
    ///
    /// # Errors
    /// `Unsupported` for an entry of a later version; `DamagedData` for bytes that are no entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Schema> {
        let document = Document::from_bytes(bytes).map_err(|error| damaged(error.message()))?;
        match document.get("v") {
            Some(Value::Int(VERSION | TYPED_VERSION | CODED_VERSION)) => {}
            Some(Value::Int(version)) => {
                return Err(Error::new(
                    Code::Unsupported,
                    format!("a collection has catalogue version {version}, this build knows {CODED_VERSION}"),
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
            compact: match document.get("compact") {
                None => Vec::new(),
                Some(_) => texts(&document, "compact")?,
            },
            views: match document.get("views") {
                None => Vec::new(),
                Some(_) => list(&document, "views")?.iter().map(view).collect::<Result<_>>()?,
            },
            view_generation: match document.get("generation") {
                None => 0,
                Some(Value::Int(number)) => {
                    u64::try_from(*number).map_err(|_| damaged("its generation is none"))?
                }
                Some(_) => return Err(damaged("its generation is none")),
            },
            typed: matches!(document.get("typed"), Some(Value::Bool(true))),
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

fn view(value: &Value) -> Result<ViewSpec> {
    ViewSpec::from_value(value).ok_or_else(|| {
        Error::new(Code::Unsupported, "a collection has a view that this build does not know")
            .with_hint("use a later release of Duramen")
    })
}
