//! The stored form of a catalogue entry: a document of version 1 to 7.

use super::shape::Ended;
use super::{Column, ColumnType, DecodedBy, Field, Older, Schema};
use crate::catalog::reference::{OnDelete, Reference, Referrer};
use crate::store::error::{Code, Error, Result};
use crate::value::document::{Document, Value};
use crate::value::version;
use crate::view::spec::{ViewSpec, integer};

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
/// The version of an entry with views whose keys have paths or descending elements, or have nulls and a list:
/// a build that does not know them would make other rows.
const DIRECTED_VERSION: i128 = 6;
/// The version of an entry with references, or of one that others refer to: a build that does not know them
/// would store and delete documents that break them.
const REFERENCES_VERSION: i128 = 7;
/// The latest version that this build knows.
const LATEST_VERSION: i128 = REFERENCES_VERSION;

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
        if !self.positional.is_empty() {
            stored.set("compact", list_of(&self.positional));
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
        if !self.references.is_empty() {
            stored.set("references", Value::List(self.references.iter().map(reference_value).collect()));
        }
        if !self.referred_by.is_empty() {
            stored.set("referred_by", Value::List(self.referred_by.iter().map(referrer_value).collect()));
        }
        stored.to_bytes()
    }

    fn stored_version(&self) -> i128 {
        let is_directed = |view: &ViewSpec| {
            view.has_paths() || view.has_descending() || (view.has_nulls() && view.is_each())
        };
        if !self.references.is_empty() || !self.referred_by.is_empty() {
            REFERENCES_VERSION
        } else if self.views.iter().any(is_directed) {
            DIRECTED_VERSION
        } else if self.views.iter().any(ViewSpec::has_nulls) {
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
            || !self.positional.is_empty()
            || self.view_generation > 0
            || !self.references.is_empty()
    }

    /// An entry from its stored form.
    ///
    /// # Errors
    /// `Unsupported` (E0211) for an entry of a later version; `CorruptData` (E0501) for bytes that are no
    /// entry.
    pub fn from_bytes(bytes: &[u8]) -> Result<Schema> {
        let document = Document::from_bytes(bytes).map_err(|error| corrupt(error.message()))?;
        match document.get("v") {
            Some(Value::Int(VERSION..=LATEST_VERSION)) => {}
            Some(Value::Int(version)) => {
                return Err(Error::new(
                    Code::Unsupported,
                    format!(
                        "a collection has catalogue version {version}, this build knows {LATEST_VERSION}"
                    ),
                )
                .with_hint("use a later release of Duramen"));
            }
            _ => return Err(corrupt("it has no version")),
        }
        let schema = Schema {
            decoded_by: DecodedBy::default(),
            name: text(&document, "name")?,
            key: texts(&document, "key")?,
            columns: list(&document, "columns")?.iter().map(column).collect::<Result<_>>()?,
            sums: texts(&document, "sums")?,
            null_marker: match document.get("null") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text(&document, "null")?),
            },
            positional: match document.get("compact") {
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
            references: match document.get("references") {
                None => Vec::new(),
                Some(_) => list(&document, "references")?.iter().map(reference).collect::<Result<_>>()?,
            },
            referred_by: match document.get("referred_by") {
                None => Vec::new(),
                Some(_) => list(&document, "referred_by")?.iter().map(referrer).collect::<Result<_>>()?,
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
            .with("compact", list_of(&older.positional))
            .with("fields", fields_value(&older.fields)),
    )
}

fn ended_value(ended: &Ended) -> Value {
    Value::Map(
        Document::new().with("version", u64::from(ended.version)).with("compact", list_of(&ended.positional)),
    )
}

fn reference_value(reference: &Reference) -> Value {
    Value::Map(
        Document::new()
            .with("field", reference.field.as_str())
            .with("to", reference.to.as_str())
            .with("on_delete", reference.action.name())
            .with("each", reference.each)
            .with("declared", reference.declared)
            .with("elements", reference.elements as u64)
            .with("generation", reference.generation)
            .with("ready", reference.ready),
    )
}

fn referrer_value(referrer: &Referrer) -> Value {
    let Referrer { collection, field } = referrer;
    Value::Map(Document::new().with("collection", collection.as_str()).with("field", field.as_str()))
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
        filled: false,
        form: None,
    })
}

fn older(value: &Value) -> Result<Older> {
    let Value::Map(document) = value else { return Err(corrupt("an earlier version is no map")) };
    Ok(Older {
        version: number(document, "version")?,
        key: texts(document, "key")?,
        positional: texts(document, "compact")?,
        fields: list(document, "fields")?.iter().map(field).collect::<Result<_>>()?,
    })
}

fn ended(value: &Value) -> Result<Ended> {
    let Value::Map(document) = value else { return Err(corrupt("an ended version is no map")) };
    Ok(Ended { version: number(document, "version")?, positional: texts(document, "compact")? })
}

fn reference(value: &Value) -> Result<Reference> {
    let Value::Map(document) = value else { return Err(corrupt("a reference is no map")) };
    let flag = |name| match document.get(name) {
        Some(Value::Bool(flag)) => Ok(*flag),
        _ => Err(corrupt(&format!("a reference does not say {name}"))),
    };
    let action = text(document, "on_delete")?;
    let action = OnDelete::from_name(&action).ok_or_else(|| {
        Error::new(Code::Unsupported, format!("a reference has the action {action} on delete"))
            .with_hint("use a later release of Duramen")
    })?;
    let generation = document.get("generation").and_then(integer);
    Ok(Reference {
        field: text(document, "field")?,
        to: text(document, "to")?,
        action,
        each: flag("each")?,
        declared: flag("declared")?,
        elements: number(document, "elements")? as usize,
        generation: generation.ok_or_else(|| corrupt("a reference has no generation"))?,
        ready: flag("ready")?,
    })
}

fn referrer(value: &Value) -> Result<Referrer> {
    let Value::Map(document) = value else { return Err(corrupt("a referrer is no map")) };
    Ok(Referrer { collection: text(document, "collection")?, field: text(document, "field")? })
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
