//! The stored form of a catalogue entry: a document of version 1 to 5.

use super::shape::Ended;
use super::{Column, ColumnType, Field, Older, Schema};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::version;
use crate::view::spec::ViewSpec;

const VERSION: i128 = 1;

/// The version of an entry with views or types: a build that does not know views must not write documents.
const TYPED_VERSION: i128 = 2;

/// The version of an entry with fields and document versions: a build that does not know them must not write
/// documents.
const SHAPED_VERSION: i128 = 3;
/// The version of an entry with views in code: a build that does not know them must not write documents.
const CODED_VERSION: i128 = 4;
/// The version of an entry with views that have rows for nulls: a build that does not know them would leave
/// rows out.
const NULLS_VERSION: i128 = 5;

impl Schema {
    /// The entry as it is stored.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for names beyond 4 GiB.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let columns = self.columns.iter().map(|column| {
            Value::Map(Document::new().with("name", column.name.as_str()).with("type", column.kind.name()))
        });
        let mut stored = Document::new()
            .with("v", Value::Int(self.stored_version()))
            .with("name", self.name.as_str())
            .with("key", list_of(&self.key))
            .with("columns", Value::List(columns.collect()))
            .with("sums", list_of(&self.sums))
            .with("null", self.null_marker.as_deref());
        if !self.compact.is_empty() {
            stored.set("compact", list_of(&self.compact));
        }
        if self.needs_types() {
            stored.set("views", Value::List(self.views.iter().map(ViewSpec::to_value).collect()));
            stored.set("generation", self.view_generation);
            stored.set("typed", self.typed);
        }
        if self.needs_shape() {
            stored.set("version", u64::from(self.version));
            stored.set("fields", fields_value(&self.fields));
            stored.set("older", Value::List(self.older.iter().map(older_value).collect()));
            if !self.ended.is_empty() {
                stored.set("ended", Value::List(self.ended.iter().map(ended_value).collect()));
            }
        }
        stored.to_bytes()
    }

    fn stored_version(&self) -> i128 {
        if self.views.iter().any(ViewSpec::has_nulls) {
            NULLS_VERSION
        } else if self.views.iter().any(|view| view.code_version().is_some()) {
            CODED_VERSION
        } else if self.needs_shape() {
            SHAPED_VERSION
        } else if self.needs_types() {
            TYPED_VERSION
        } else {
            VERSION
        }
    }

    fn needs_shape(&self) -> bool {
        self.version != version::FIRST || !self.fields.is_empty()
    }

    fn needs_types(&self) -> bool {
        self.needs_shape()
            || self.typed
            || !self.views.is_empty()
            || !self.compact.is_empty()
            || self.view_generation > 0
    }

    /// An entry from its stored form.
    ///
    /// # Errors
    /// `Unsupported` (E0211) for an entry of a later version; `CorruptData` (E0501) for bytes that are no
    /// entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Schema> {
        let document = Document::from_bytes(bytes).map_err(|error| corrupt(error.message()))?;
        match document.get("v") {
            Some(Value::Int(VERSION | TYPED_VERSION | SHAPED_VERSION | CODED_VERSION | NULLS_VERSION)) => {}
            Some(Value::Int(version)) => {
                return Err(Error::new(
                    Code::Unsupported,
                    format!("a collection has catalogue version {version}, this build knows {NULLS_VERSION}"),
                )
                .with_hint("use a later release of Duramen"));
            }
            _ => return Err(corrupt("it has no version")),
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
                    u64::try_from(*number).map_err(|_| corrupt("its generation is none"))?
                }
                Some(_) => return Err(corrupt("its generation is none")),
            },
            typed: matches!(document.get("typed"), Some(Value::Bool(true))),
            fields: match document.get("fields") {
                None => Vec::new(),
                Some(_) => list(&document, "fields")?.iter().map(field).collect::<Result<_>>()?,
            },
            version: match document.get("version") {
                None => version::FIRST,
                Some(_) => number(&document, "version")?,
            },
            older: match document.get("older") {
                None => Vec::new(),
                Some(_) => list(&document, "older")?.iter().map(older).collect::<Result<_>>()?,
            },
            ended: match document.get("ended") {
                None => Vec::new(),
                Some(_) => list(&document, "ended")?.iter().map(ended).collect::<Result<_>>()?,
            },
        };
        schema.validate().map_err(|error| corrupt(error.message()))?;
        Ok(schema)
    }
}

fn list_of(names: &[String]) -> Value {
    Value::List(names.iter().map(|name| Value::from(name.as_str())).collect())
}

fn fields_value(fields: &[Field]) -> Value {
    let one = |field: &Field| {
        Value::Map(
            Document::new()
                .with("name", field.name.as_str())
                .with("type", field.kind.as_str())
                .with("null", field.nullable)
                .with("always", field.always)
                .with("also", list_of(&field.also)),
        )
    };
    Value::List(fields.iter().map(one).collect())
}

fn older_value(older: &Older) -> Value {
    Value::Map(
        Document::new()
            .with("version", u64::from(older.version))
            .with("key", list_of(&older.key))
            .with("compact", list_of(&older.compact))
            .with("fields", fields_value(&older.fields)),
    )
}

fn ended_value(ended: &Ended) -> Value {
    Value::Map(
        Document::new().with("version", u64::from(ended.version)).with("compact", list_of(&ended.compact)),
    )
}

fn corrupt(what: &str) -> Error {
    Error::new(Code::CorruptData, format!("the catalogue entry of a collection cannot be read: {what}"))
}

fn text(document: &Document, name: &str) -> Result<String> {
    match document.get(name) {
        Some(Value::Text(text)) => Ok(text.clone()),
        _ => Err(corrupt(&format!("it has no {name}"))),
    }
}

fn list<'a>(document: &'a Document, name: &str) -> Result<&'a [Value]> {
    match document.get(name) {
        Some(Value::List(values)) => Ok(values),
        _ => Err(corrupt(&format!("it has no list of {name}"))),
    }
}

fn texts(document: &Document, name: &str) -> Result<Vec<String>> {
    let one = |value: &Value| match value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(corrupt(&format!("{name} contains a value that is no name"))),
    };
    list(document, name)?.iter().map(one).collect()
}

fn number(document: &Document, name: &str) -> Result<u32> {
    match document.get(name) {
        Some(Value::Int(number)) => u32::try_from(*number).ok(),
        _ => None,
    }
    .ok_or_else(|| corrupt(&format!("its {name} is none")))
}

fn field(value: &Value) -> Result<Field> {
    let Value::Map(document) = value else { return Err(corrupt("a field is no map")) };
    let flag = |name| match document.get(name) {
        Some(Value::Bool(flag)) => Ok(*flag),
        _ => Err(corrupt(&format!("a field does not say {name}"))),
    };
    Ok(Field {
        name: text(document, "name")?,
        kind: text(document, "type")?,
        nullable: flag("null")?,
        always: flag("always")?,
        also: texts(document, "also")?,
        default: false,
        form: None,
    })
}

fn older(value: &Value) -> Result<Older> {
    let Value::Map(document) = value else { return Err(corrupt("an earlier version is no map")) };
    Ok(Older {
        version: number(document, "version")?,
        key: texts(document, "key")?,
        compact: texts(document, "compact")?,
        fields: list(document, "fields")?.iter().map(field).collect::<Result<_>>()?,
    })
}

fn ended(value: &Value) -> Result<Ended> {
    let Value::Map(document) = value else { return Err(corrupt("an ended version is no map")) };
    Ok(Ended { version: number(document, "version")?, compact: texts(document, "compact")? })
}

fn column(value: &Value) -> Result<Column> {
    let Value::Map(document) = value else { return Err(corrupt("a column is no map")) };
    let name = text(document, "name")?;
    let kind = text(document, "type")?;
    let kind = ColumnType::from_name(&kind)
        .ok_or_else(|| corrupt(&format!("the column {name} has the type {kind}")))?;
    Ok(Column { name, kind })
}

fn view(value: &Value) -> Result<ViewSpec> {
    ViewSpec::from_value(value).ok_or_else(|| {
        Error::new(Code::Unsupported, "a collection has a view that this build does not know")
            .with_hint("use a later release of Duramen")
    })
}
