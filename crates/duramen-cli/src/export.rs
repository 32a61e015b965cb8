//! `duramen export`: the documents of a collection or a range, in key order, as CSV or NDJSON that imports to the same.
//!
//! Where damage is in the way, what came before it has been written, and `--from` goes on behind it.

use std::io::Write;

use duramen::{Direction, Document, Reads, Rows, Schema, Value, json};

use crate::args::{ExportArgs, Format};
use crate::database;
use crate::failure::{DAMAGE, Failure, Result};
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, flush};
use crate::signals::Signals;

/// Rows between two looks at signals.
const LOOK_ROWS: u64 = 1024;

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(&args.target.database)?;
    let snapshot = db.snapshot()?;
    let schema = database::schema(&snapshot, &args.target.collection)?;
    let span = keys::span(&schema, &args.range)?;
    let mut export = Export {
        rows: snapshot.documents(schema.name()).rows(span, Direction::Forward)?,
        schema: &schema,
        signals: Signals::watch()?,
        count: 0,
        key: Vec::new(),
        last_key: Vec::new(),
    };
    let written = match args.format {
        Format::Ndjson => export.ndjson(out),
        Format::Csv => export.csv(args.null.as_deref().or(schema.null()).unwrap_or_default(), out),
    };
    written.map_err(|failure| export.cut_short(failure))?;
    match export.signals.received() {
        Some(number) => {
            out.note(&format!("stopped by signal {number} after {} rows", grouped(export.count)));
            Err(Failure::signal(number))
        }
        None => Ok(()),
    }
}

/// An export under way.
struct Export<'a> {
    rows: Rows,
    schema: &'a Schema,
    signals: Signals,
    /// Rows written.
    count: u64,
    /// The key of the row at hand, and of the last that was written.
    key: Vec<u8>,
    last_key: Vec<u8>,
}

impl Export<'_> {
    /// Takes the next stored document; `None` at the end, or when a signal has come.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.count.is_multiple_of(LOOK_ROWS) && self.signals.received().is_some() {
            return Ok(None);
        }
        let Some((key, stored)) = self.rows.next()? else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(Some(stored))
    }

    fn wrote(&mut self) {
        std::mem::swap(&mut self.key, &mut self.last_key);
        self.count += 1;
    }

    fn ndjson(&mut self, out: Output) -> Result<()> {
        let mut stream = out.stream();
        let mut line = Vec::new();
        while let Some(document) = self.next()? {
            line.clear();
            json::write_stored(document, &mut line)?;
            line.push(b'\n');
            stream.write_all(&line).map_err(|error| Failure::output(&error))?;
            self.wrote();
        }
        flush(&mut stream)
    }

    fn csv(&mut self, null: &str, out: Output) -> Result<()> {
        let schema = self.schema;
        let mut writer = csv::Writer::from_writer(out.stream());
        writer.write_record(schema.columns().iter().map(|column| &column.name)).map_err(output)?;
        let mut text = String::new();
        while let Some(stored) = self.next()? {
            let document = Document::from_bytes(stored)?;
            for column in schema.columns() {
                text.clear();
                cell(schema, &document, &column.name, null, &mut text)?;
                writer.write_field(&text).map_err(output)?;
            }
            writer.write_record(None::<&[u8]>).map_err(output)?;
            self.wrote();
        }
        writer.flush().map_err(|error| Failure::output(&error))
    }

    /// Damage does not take back what was written before it.
    fn cut_short(&self, failure: Failure) -> Failure {
        if failure.exit() != DAMAGE {
            return failure;
        }
        let up_to = match keys::shown(&self.last_key) {
            key if self.count > 0 => format!(", the last {key}"),
            _ => String::new(),
        };
        failure
            .and(&format!("; before it {} were written{up_to}", counted(self.count, "row")))
            .hinted("`duramen check` names the first key behind it: export the rest with --from that key")
    }
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
