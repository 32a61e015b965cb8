//! `duramen export`: every document of a collection, in key order, as CSV or NDJSON that imports to the same.

use std::io::Write;

use duramen::{Direction, Document, Reads, Rows, Schema, Span, Value, json};

use crate::args::{ExportArgs, Format};
use crate::database;
use crate::failure::{Failure, Result};
use crate::numbers::grouped;
use crate::output::{Output, flush};
use crate::signals::Signals;

/// Rows between two looks at signals.
const LOOK_ROWS: u64 = 1024;

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(&args.target.db)?;
    let snapshot = db.snapshot()?;
    let schema = database::schema(&snapshot, &args.target.collection)?;
    let signals = Signals::watch()?;
    let mut rows = snapshot.rows(schema.name(), Span::all(), Direction::Forward)?;
    let written = match args.format {
        Format::Ndjson => ndjson(&mut rows, out, &signals)?,
        Format::Csv => {
            let null = args.null.as_deref().or(schema.null()).unwrap_or_default();
            csv(&mut rows, &schema, null, out, &signals)?
        }
    };
    match signals.received() {
        Some(number) => {
            out.note(&format!("stopped by signal {number} after {} rows", grouped(written)));
            Err(Failure::signal(number))
        }
        None => Ok(()),
    }
}

fn ndjson(rows: &mut Rows, out: Output, signals: &Signals) -> Result<u64> {
    let mut stream = out.stream();
    let mut line = Vec::new();
    let mut count = 0_u64;
    while let Some((_, document)) = rows.next()? {
        line.clear();
        json::write_stored(document, &mut line)?;
        line.push(b'\n');
        stream.write_all(&line).map_err(|error| Failure::output(&error))?;
        count += 1;
        if count.is_multiple_of(LOOK_ROWS) && signals.received().is_some() {
            break;
        }
    }
    flush(&mut stream)?;
    Ok(count)
}

fn csv(rows: &mut Rows, schema: &Schema, null: &str, out: Output, signals: &Signals) -> Result<u64> {
    let mut writer = csv::Writer::from_writer(out.stream());
    writer.write_record(schema.columns().iter().map(|column| &column.name)).map_err(output)?;
    let mut count = 0_u64;
    let mut text = String::new();
    while let Some((_, stored)) = rows.next()? {
        let document = Document::from_bytes(stored)?;
        for column in schema.columns() {
            text.clear();
            cell(schema, &document, &column.name, null, &mut text)?;
            writer.write_field(&text).map_err(output)?;
        }
        writer.write_record(None::<&[u8]>).map_err(output)?;
        count += 1;
        if count.is_multiple_of(LOOK_ROWS) && signals.received().is_some() {
            break;
        }
    }
    writer.flush().map_err(|error| Failure::output(&error))?;
    Ok(count)
}

/// Appends the text of one cell; refuses what would not come back from it.
fn cell(schema: &Schema, document: &Document, column: &str, null: &str, text: &mut String) -> Result<()> {
    use std::fmt::Write;

    let refused = |what: &str, hint: String| {
        let key: Vec<String> = schema
            .key_columns()
            .iter()
            .map(|name| {
                document
                    .get(name)
                    .and_then(Value::to_element)
                    .map_or_else(String::new, |part| part.to_string())
            })
            .collect();
        Err(Failure::data(
            format!("{} {}: the field {column} holds {what}", schema.name(), key.join(",")),
            hint,
        ))
    };
    let ndjson = || "export with --format ndjson".to_owned();
    match document.get(column).unwrap_or(&Value::Null) {
        Value::Null => text.push_str(null),
        Value::Bool(value) => write!(text, "{value}").expect("a String takes all"),
        Value::Int(value) => write!(text, "{value}").expect("a String takes all"),
        Value::Float(value) if value.is_finite() => write!(text, "{value:?}").expect("a String takes all"),
        Value::Time(value) => write!(text, "{value}").expect("a String takes all"),
        Value::Text(value) if value == null => {
            return refused(
                &format!("the text {value:?}, which stands for null"),
                "say another --null, or export with --format ndjson".to_owned(),
            );
        }
        Value::Text(value) => text.push_str(value),
        Value::Float(_) => return refused("a float that is no number, which CSV cannot say", ndjson()),
        Value::Bytes(_) => return refused("bytes, which CSV cannot say", ndjson()),
        Value::List(_) => return refused("a list, which CSV cannot say", ndjson()),
        Value::Map(_) => return refused("a map, which CSV cannot say", ndjson()),
    }
    Ok(())
}

fn output(error: csv::Error) -> Failure {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Failure::output(&error),
        other => {
            Failure::data(format!("a row cannot be written as CSV: {other:?}"), "export with --format ndjson")
        }
    }
}
