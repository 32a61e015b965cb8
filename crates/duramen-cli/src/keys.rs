//! Parses keys and ranges from the command line, by the types of the key columns.

use duramen::cell::key_element;
use duramen::schema::ColumnType;
use duramen::tuple::{Element, decode, encode};
use duramen::{Error, Schema, Span, Value, json};

use crate::args::RangeFlags;
use crate::failure::{Failure, Result};

/// A whole key.
pub(crate) fn whole(schema: &Schema, text: &str) -> Result<Vec<Element>> {
    let elements = partial(schema, "--key", text)?;
    let wanted = schema.key_columns().len();
    if elements.len() != wanted {
        return Err(Failure::usage(
            format!("--key has {} of the {wanted} elements of a key of {}", elements.len(), schema.name()),
            format!("the key columns are {}; --prefix takes the first few", schema.key_columns().join(",")),
        ));
    }
    encode(&elements).map_err(|error| too_long("--key", &error))?;
    Ok(elements)
}

/// The range that the flags select.
pub(crate) fn span(schema: &Schema, flags: &RangeFlags) -> Result<Span> {
    if let Some(text) = &flags.prefix {
        let prefix = partial(schema, "--prefix", text)?;
        return Span::prefix(prefix).map_err(|error| too_long("--prefix", &error));
    }
    let from = flags.from.as_deref().map(|text| partial(schema, "--from", text)).transpose()?;
    let to = flags.to.as_deref().map(|text| partial(schema, "--to", text)).transpose()?;
    let span = match (from, to) {
        (None, None) => return Ok(Span::all()),
        (Some(from), None) => Span::from(from),
        (None, Some(to)) => Span::to(to),
        (Some(from), Some(to)) => Span::between(from, to),
    };
    span.map_err(|error| too_long("the range", &error))
}

fn too_long(flag: &str, error: &Error) -> Failure {
    Failure::usage(format!("{flag}: {}", error.message()), "no document can have that key: look at its text")
}

/// Refuses bounds without effect: an empty variable in a script must not delete everything.
pub(crate) fn check_bounded(schema: &Schema, flags: &RangeFlags) -> Result<()> {
    let bounds = [("--prefix", &flags.prefix), ("--from", &flags.from), ("--to", &flags.to)];
    for (flag, text) in bounds {
        let Some(text) = text else { continue };
        let problem = match texts(flag, text)?.first() {
            None => "is empty, which bounds nothing",
            // As a prefix, an explicit empty text is an element like any other.
            Some(first) if first.is_empty() && (flag != "--prefix" || text.is_empty()) => {
                "begins with an empty text, which bounds nothing"
            }
            Some(_) => continue,
        };
        let is_other = |(other, text): &(&str, &Option<String>)| *other != flag && text.is_some();
        let hint = match bounds.iter().any(is_other) {
            true => format!("leave {flag} out"),
            false => format!("to delete every document of {}, use --all --yes", schema.name()),
        };
        return Err(Failure::usage(format!("{flag} {problem}"), hint));
    }
    Ok(())
}

/// The message for an empty range.
pub(crate) fn nothing(schema: &Schema, flags: &RangeFlags) -> String {
    let columns = schema.key_columns();
    match &flags.prefix {
        Some(text) => {
            let count = texts("--prefix", text).map_or(1, |texts| texts.len()).clamp(1, columns.len());
            format!("no key of {} begins with {} = {text}", schema.name(), columns[..count].join(","))
        }
        None if flags.from.is_some() || flags.to.is_some() => {
            format!("no key of {} is in that range", schema.name())
        }
        None => format!("{} is empty", schema.name()),
    }
}

/// The leading elements of a key: one CSV record, or a JSON array.
pub(crate) fn partial(schema: &Schema, flag: &str, text: &str) -> Result<Vec<Element>> {
    let columns = schema.key_columns();
    let parts = texts(flag, text)?;
    if parts.len() > columns.len() {
        return Err(Failure::usage(
            format!(
                "{flag} has {} elements, and a key of {} has {}",
                parts.len(),
                schema.name(),
                columns.len()
            ),
            format!("the key columns are {}", columns.join(",")),
        ));
    }
    parts.iter().zip(columns).map(|(part, column)| element(schema, flag, column, part)).collect()
}

/// A stored key in readable form.
pub(crate) fn shown(key: &[u8]) -> String {
    decode(key).map_or_else(|_| "a key that cannot be read".to_owned(), |elements| listed(&elements))
}

/// The elements of a key in readable form.
pub(crate) fn listed(elements: &[Element]) -> String {
    elements.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// One element, as text of a CSV cell or as a JSON value.
enum Part {
    Text(String),
    Value(Value),
}

impl Part {
    fn is_empty(&self) -> bool {
        matches!(self, Part::Text(text) | Part::Value(Value::Text(text)) if text.is_empty())
    }
}

/// Follows the text as a record of its own. No argument contains a NUL.
const END_MARK: &str = "\0";

fn texts(flag: &str, text: &str) -> Result<Vec<Part>> {
    if text.trim_start().starts_with('[') {
        return match json::parse(text) {
            Ok(Value::List(values)) => Ok(values.into_iter().map(Part::Value).collect()),
            Ok(_) => Ok(Vec::new()),
            Err(error) => Err(Failure::usage(
                format!("{flag} begins like a JSON array: {}", error.message()),
                "for text that begins with [ put it in quotes, as in CSV",
            )),
        };
    }
    Ok(record(flag, text)?.into_iter().map(Part::Text).collect())
}

/// The cells of one CSV record.
pub(crate) fn record(flag: &str, text: &str) -> Result<Vec<String>> {
    let marked = format!("{text}\n{END_MARK}\n");
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(marked.as_bytes());
    let records = reader.records().collect::<std::result::Result<Vec<_>, _>>();
    let mut records = records.map_err(|error| csv_wrong(flag, &error))?;
    // An unclosed quote has swallowed the mark.
    if records.pop().is_none_or(|last| &last != [END_MARK].as_slice()) {
        return Err(Failure::usage(
            format!("{flag}: a quote is opened and never closed"),
            "close it, or double it inside of quotes where it belongs to the text: '\"5\"\" pipe\"'",
        ));
    }
    match records.as_slice() {
        [record] => Ok(record.iter().map(str::to_owned).collect()),
        // The empty text is one empty element, which the reader takes for an empty line.
        [] => Ok(vec![String::new()]),
        _ => Err(Failure::usage(
            format!("{flag} holds more than one CSV record"),
            "put an element with line ends in quotes",
        )),
    }
}

fn csv_wrong(flag: &str, error: &csv::Error) -> Failure {
    Failure::usage(format!("{flag} is not a CSV record: {error}"), "separate the elements with commas")
}

fn element(schema: &Schema, flag: &str, column: &str, part: &Part) -> Result<Element> {
    let kind = schema.kind(column).unwrap_or_default();
    let (found, shown) = match part {
        Part::Text(text) => (key_element(kind, text), format!("{text:?}")),
        Part::Value(value) => {
            let text = match value {
                Value::Text(text) => format!("{text:?}"),
                other => format!("a JSON {}", other.kind()),
            };
            (value_element(kind, value), text)
        }
    };
    found.ok_or_else(|| {
        Failure::usage(
            format!("{flag}: {shown} cannot be the {column} of a key, which is of type {kind}"),
            format!("the key columns of {} are {}", schema.name(), typed_columns(schema)),
        )
    })
}

fn value_element(kind: ColumnType, value: &Value) -> Option<Element> {
    let mut value = value.clone();
    if matches!(value, Value::Null) || !kind.admit(&mut value) {
        return None;
    }
    value.to_element()
}

fn typed_columns(schema: &Schema) -> String {
    let typed = schema
        .key_columns()
        .iter()
        .map(|column| format!("{column} ({})", schema.kind(column).unwrap_or_default()));
    typed.collect::<Vec<_>>().join(", ")
}
