//! `duramen export`: the documents of a collection or a range, in key order, as CSV, NDJSON or JSON that
//! imports identically.
//!
//! If corruption stops it, everything before was written, and `--from` continues after it.

#[cfg(feature = "parquet")]
mod parquet_columns;

use std::collections::HashSet;
#[cfg(feature = "parquet")]
use std::io::IsTerminal;
use std::io::Write;

use duramen::schema::{Column, ColumnType};
use duramen::{Direction, Document, ErrorKind, Schema, Value, json};

use crate::args::{ExportArgs, Format};
use crate::backend::{LentRow, Reading, StoredRows};
use crate::byte_tree;
use crate::failure::{CORRUPT, Failure, Result};
use crate::flatten::{FlatColumns, flattened};
use crate::import;
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, flush, printable, shell_word};
use crate::progress::Progress;
use crate::signals::Signals;

/// Rows between two checks for signals.
const LOOK_ROWS: u64 = 1024;

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.target.database)?;
    // With --flatten all documents are read twice.
    if !args.flatten {
        reading.keep_few_pages()?;
    }
    if let Some(snapshot) = reading.snapshot()
        && byte_tree::is_one(snapshot, &args.target.collection)?
    {
        return byte_tree::export(snapshot, args, out);
    }
    let schema = reading.schema(&args.target.collection)?;
    let span = keys::span(&schema, &args.range)?;
    let count = || reading.count(schema.name(), None, span.clone());
    let rows = || reading.rows(schema.name(), span.clone(), Direction::Forward, u64::MAX);
    // A corrupt node that ends the count ends the export only where the export meets it.
    let total = if out.shows_progress() { count().unwrap_or(0) } else { 0 };
    let mut export = Export {
        rows: rows()?,
        schema: &schema,
        signals: Signals::watch()?,
        progress: Progress::of_rows(out, total),
        count: 0,
        bytes_count: 0,
        key: Vec::new(),
        last_key: Vec::new(),
    };
    import::check_built(args.format)?;
    for (flag, is_used) in [("--delimiter", args.delimiter.is_some()), ("--flatten", args.flatten)] {
        if is_used && args.format != Format::Csv {
            return Err(Failure::usage(format!("{flag} is for CSV"), "leave it out, or use --format csv"));
        }
    }
    let null = args.null.as_deref().or(schema.null()).unwrap_or_default();
    let written = match args.format {
        Format::Csv if args.flatten => {
            let names = export.flat_columns();
            names.and_then(|names| {
                export.rows = rows()?;
                export.flat_csv(&names, null, args.delimiter.unwrap_or(b','), out)
            })
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => export.parquet(out),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(Failure::usage("this build of duramen has no Parquet", "use another format")),
        Format::Ndjson => export.json(&Frame::LINES, out),
        Format::Json => export.json(&Frame::ARRAY, out),
        Format::Csv => export.csv(null, args.delimiter.unwrap_or(b','), out),
    };
    export.progress.finish();
    written.map_err(|failure| export.cut_short(failure))?;
    match export.signals.received() {
        Some(number) => {
            out.note(&format!("stopped by signal {number} after {} rows", grouped(export.count)));
            Err(Failure::signal(number))
        }
        None => {
            let is_whole =
                args.range.prefix.is_none() && args.range.from.is_none() && args.range.to.is_none();
            export.say(args, null, is_whole, out);
            Ok(())
        }
    }
}

/// The flags with which an import stores the same documents under the same definition. Types are included
/// wherever text could be misread.
fn import_flags(schema: &Schema, format: Format, null: &str) -> String {
    let is_said = |kind: ColumnType| match format {
        Format::Parquet => kind == ColumnType::Any,
        Format::Csv => kind != ColumnType::Int && kind != ColumnType::Unknown,
        Format::Ndjson | Format::Json => {
            matches!(kind, ColumnType::Float | ColumnType::Time | ColumnType::Any)
        }
    };
    let types: Vec<String> = schema
        .columns()
        .iter()
        .filter(|column| is_said(column.kind))
        .map(|column| format!("{}={}", column.name, column.kind))
        .collect();
    let mut flags = format!("--collection {}", shell_word(schema.name()));
    let null = if format == Format::Csv && !null.is_empty() { vec![null.to_owned()] } else { Vec::new() };
    for (flag, values) in [
        ("--key", schema.key_columns()),
        ("--sum", schema.sum_columns()),
        ("--null", &null),
        ("--type", &types),
    ] {
        if !values.is_empty() {
            flags.push_str(&format!(" {flag} {}", shell_word(&values.join(","))));
        }
    }
    flags
}

/// Whether a value contains bytes, at any depth.
fn has_bytes(value: &Value) -> bool {
    match value {
        Value::Bytes(_) => true,
        Value::List(values) => values.iter().any(has_bytes),
        Value::Map(fields) => fields.iter().any(|(_, value)| has_bytes(value)),
        _ => false,
    }
}

/// What is around the documents of an export as JSON.
struct Frame {
    before: &'static [u8],
    between: &'static [u8],
    after_each: &'static [u8],
    after: &'static [u8],
    after_none: &'static [u8],
}

impl Frame {
    const LINES: Frame = Frame { before: b"", between: b"", after_each: b"\n", after: b"", after_none: b"" };
    const ARRAY: Frame =
        Frame { before: b"[\n", between: b",\n", after_each: b"", after: b"\n]\n", after_none: b"]\n" };
}

/// A running export.
struct Export<'a> {
    rows: StoredRows,
    schema: &'a Schema,
    signals: Signals,
    progress: Progress,
    /// Rows written.
    count: u64,
    /// Rows among them with bytes, which are exported as base64.
    bytes_count: u64,
    /// The key of the current row; then the key of the last written one.
    key: Vec<u8>,
    last_key: Vec<u8>,
}

impl Export<'_> {
    /// The next stored document; `None` at the end, or after a signal.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.is_stopped() {
            return Ok(None);
        }
        let Some((key, stored)) = self.rows.next_with_key()? else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(key);
        Ok(Some(stored))
    }

    /// As [`Export::next`], not as it is stored.
    fn next_document(&mut self) -> Result<Option<LentRow<'_>>> {
        if self.is_stopped() {
            return Ok(None);
        }
        let Some(next) = self.rows.next_document()? else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(next.key);
        Ok(Some(next))
    }

    /// Whether a signal came; it is looked for now and then.
    fn is_stopped(&mut self) -> bool {
        if !self.count.is_multiple_of(LOOK_ROWS) {
            return false;
        }
        let is_stopped = self.signals.received().is_some();
        if !is_stopped {
            self.progress.written(self.count);
        }
        is_stopped
    }

    fn wrote(&mut self) {
        std::mem::swap(&mut self.key, &mut self.last_key);
        self.count += 1;
    }

    fn json(&mut self, frame: &Frame, out: Output) -> Result<()> {
        let mut stream = out.stream();
        let mut line = Vec::new();
        // Only columns of type any hold bytes; typed documents may also have fields that are not columns.
        let may_hold_bytes = self.schema.is_typed()
            || self.schema.columns().iter().any(|column| column.kind == ColumnType::Any);
        stream.write_all(frame.before).map_err(|error| Failure::output(&error))?;
        let mut between: &[u8] = b"";
        while let Some(document) = self.next()? {
            line.clear();
            line.extend_from_slice(between);
            between = frame.between;
            json::write_stored(document, &mut line)?;
            let holds_bytes =
                may_hold_bytes && Document::from_bytes(document)?.iter().any(|(_, value)| has_bytes(value));
            self.bytes_count += u64::from(holds_bytes);
            line.extend_from_slice(frame.after_each);
            stream.write_all(&line).map_err(|error| Failure::output(&error))?;
            self.wrote();
        }
        // An array that was cut short by a signal stays open: no reader takes it for a whole one.
        if self.signals.received().is_none() {
            let after = if self.count > 0 { frame.after } else { frame.after_none };
            stream.write_all(after).map_err(|error| Failure::output(&error))?;
        }
        flush(&mut stream)
    }

    fn csv(&mut self, null: &str, delimiter: u8, out: Output) -> Result<()> {
        let schema = self.schema;
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(out.stream());
        writer.write_record(schema.columns().iter().map(|column| &column.name)).map_err(csv_failure)?;
        // A row is written whole: one that is refused leaves nothing.
        let (mut row, mut text) = (csv::StringRecord::new(), String::new());
        // Where the columns are in the documents.
        let mut places = Vec::new();
        while let Some(LentRow { document, has_same_fields, .. }) = self.next_document()? {
            if !has_same_fields {
                refuse_what_has_no_column(schema, document)?;
                let place = |column: &Column| document.iter().position(|(name, _)| name == column.name);
                places = schema.columns().iter().map(place).collect();
            }
            row.clear();
            for (column, place) in schema.columns().iter().zip(&places) {
                let value = place.and_then(|at| document.iter().nth(at)).map(|(_, value)| value);
                text.clear();
                cell(schema, document, (&column.name, value), null, &mut text)?;
                row.push_field(&text);
            }
            writer.write_byte_record(row.as_byte_record()).map_err(csv_failure)?;
            self.wrote();
        }
        writer.flush().map_err(|error| Failure::output(&error))
    }

    /// The columns of all documents, without nested objects.
    fn flat_columns(&mut self) -> Result<Vec<String>> {
        let mut columns = FlatColumns::new(self.schema);
        let mut count = 0_u64;
        while !(count.is_multiple_of(LOOK_ROWS) && self.signals.received().is_some())
            && let Some(stored) = self.rows.next()?
        {
            columns.look(&Document::from_bytes(stored)?);
            count += 1;
        }
        Ok(columns.names())
    }

    #[cfg(feature = "parquet")]
    fn parquet(&mut self, out: Output) -> Result<()> {
        use parquet_columns::{Column, begin, value_of, write_group};

        const GROUP_ROWS: u64 = 1 << 16;
        if std::io::stdout().is_terminal() {
            return Err(Failure::usage(
                "Parquet is no text for a terminal",
                "send it to a file: >rows.parquet",
            ));
        }
        let schema = self.schema;
        let mut columns = Column::all(schema);
        let mut file = begin(&columns, out.stream()).map_err(parquet_output)?;
        while let Some(stored) = self.next()? {
            let document = Document::from_bytes(stored)?;
            refuse_what_has_no_column(schema, &document)?;
            for column in &mut columns {
                let pushed = column.push(value_of(&document, column));
                pushed.map_err(|what| {
                    let what = format!("the field {} holds {what}", column.name());
                    refused(schema, &document, &what, NDJSON)
                })?;
            }
            self.wrote();
            if self.count.is_multiple_of(GROUP_ROWS) {
                write_group(&mut file, &mut columns).map_err(parquet_output)?;
            }
        }
        // Without its index the file cannot be taken for a whole one.
        if self.signals.received().is_some() {
            return Ok(());
        }
        if !self.count.is_multiple_of(GROUP_ROWS) {
            write_group(&mut file, &mut columns).map_err(parquet_output)?;
        }
        let mut stream = file.into_inner().map_err(parquet_output)?;
        flush(&mut stream)
    }

    fn flat_csv(&mut self, names: &[String], null: &str, delimiter: u8, out: Output) -> Result<()> {
        let schema = self.schema;
        let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(out.stream());
        writer.write_record(names).map_err(csv_failure)?;
        let known: HashSet<&str> = names.iter().map(String::as_str).collect();
        // A row is written whole: one that is refused leaves nothing.
        let (mut row, mut text) = (csv::StringRecord::new(), String::new());
        while let Some(stored) = self.next()? {
            let document = Document::from_bytes(stored)?;
            let flat = flattened(&document).map_err(|name| {
                let what = format!("two fields have the name {name} once they are flat");
                refused(schema, &document, &what, NDJSON)
            })?;
            // A served database may have got a document since its columns were looked at.
            let is_new = |name: &str, value: &Value| !matches!(value, Value::Null) && !known.contains(name);
            if let Some((name, _)) = flat.iter().find(|(name, value)| is_new(name, value)) {
                let what = format!("the field {name} came while the database was exported");
                return Err(refused(schema, &document, &what, NDJSON));
            }
            row.clear();
            for name in names {
                text.clear();
                match flat.get(name) {
                    Some(value @ (Value::List(_) | Value::Map(_))) => text.push_str(&json_of(value)?),
                    value => cell(schema, &flat, (name, value), null, &mut text)?,
                }
                row.push_field(&text);
            }
            writer.write_byte_record(row.as_byte_record()).map_err(csv_failure)?;
            self.wrote();
        }
        writer.flush().map_err(|error| Failure::output(&error))
    }

    /// Prints what an import of the output needs to know.
    fn say(&self, args: &ExportArgs, null: &str, is_whole: bool, out: Output) {
        let is_listable = |name: &String| !name.contains([',', '=']);
        let names = self.schema.columns().iter().map(|column| &column.name);
        if is_whole
            && !args.flatten
            && self.count > 0
            && self.schema.key_columns().iter().chain(names).all(is_listable)
        {
            let mut flags = import_flags(self.schema, args.format, null);
            match args.delimiter {
                None | Some(b',') => {}
                Some(b'\t') => flags.push_str(" --delimiter tab"),
                Some(byte) => {
                    flags.push_str(&format!(" --delimiter {}", shell_word(&char::from(byte).to_string())))
                }
            }
            out.note(&printable(&format!("{}; import with {flags}", counted(self.count, "row"))));
        }
        if self.bytes_count > 0 {
            out.note(&format!(
                "{} hold bytes: they are base64 here, which an import takes for text",
                counted(self.bytes_count, "row")
            ));
        }
    }

    /// Corruption does not invalidate what was written before it.
    fn cut_short(&self, failure: Failure) -> Failure {
        if let Some(stored) = self.rows.latest_of_server() {
            return self.cut_short_by_server(failure, stored);
        }
        if failure.exit() != CORRUPT {
            return failure;
        }
        let up_to = match keys::shown(&self.last_key) {
            key if self.count > 0 => format!(", the last {key}"),
            _ => String::new(),
        };
        failure
            .and(&format!("; before it {} were written{up_to}", counted(self.count, "row")))
            .hinted("`duramen check DB` names the first key after it: export the rest with --from that key")
    }

    /// A server, or the way to it, ended the export before its end.
    fn cut_short_by_server(&self, failure: Failure, latest: &[u8]) -> Failure {
        let is_of_server = failure.code().is_some_and(|code| {
            matches!(
                code.kind(),
                ErrorKind::Corrupt | ErrorKind::Expired | ErrorKind::Unavailable | ErrorKind::Io
            )
        });
        let key = || {
            let (document, mut key) = (Document::from_bytes(latest).ok()?, Vec::new());
            self.schema.write_key(&document, &mut key).ok().map(|()| keys::shown(&key))
        };
        let Some(key) = key().filter(|_| is_of_server && self.count > 0) else { return failure };
        let rows = counted(self.count, "row");
        failure
            .and(&format!("; before it {rows} were written, the last {key}"))
            .hinted(format!("export the rest with --from {}: that row comes again", shell_word(&key)))
    }
}

/// Refuses fields without a column, such as those of a flattened map in a typed document: CSV cannot hold
/// them.
fn refuse_what_has_no_column(schema: &Schema, document: &Document) -> Result<()> {
    let columns = schema.columns();
    let mut fields = document.iter().map(|(name, _)| name).enumerate();
    let found = fields.find(|(index, name)| {
        // Most documents have their fields in the order of the columns.
        columns.get(*index).is_none_or(|column| column.name != *name) && schema.kind(name).is_none()
    });
    match found {
        Some((_, name)) => {
            let what = format!("the field {name} is no column, and CSV has no place for it");
            Err(refused(schema, document, &what, NDJSON))
        }
        None => Ok(()),
    }
}

/// The hint where CSV is not sufficient.
const NDJSON: &str = "export with --format ndjson";

/// The hint where flat CSV is.
const FLATTEN: &str = "export with --flatten, or with --format ndjson";

/// The error for a document that cannot be written as CSV.
fn refused(schema: &Schema, document: &Document, what: &str, hint: &str) -> Failure {
    let part = |name: &String| document.get(name).and_then(Value::to_element).map(|part| part.to_string());
    let key: Vec<String> = schema.key_columns().iter().map(|name| part(name).unwrap_or_default()).collect();
    Failure::data(format!("{} {}: {what}", schema.name(), key.join(",")), hint)
}

/// Appends the text of one cell, a column and its value. Refuses values that would not be read back the same.
pub(crate) fn cell(
    schema: &Schema,
    document: &Document,
    (column, value): (&str, Option<&Value>),
    null: &str,
    text: &mut String,
) -> Result<()> {
    use std::fmt::Write;

    let refused = |what: &str, hint: &str| {
        Err(refused(schema, document, &format!("the field {column} holds {what}"), hint))
    };
    match value.unwrap_or(&Value::Null) {
        Value::Null => text.push_str(null),
        Value::Bool(value) => write!(text, "{value}").expect("a String takes all"),
        // Numbers of 64 bits become text faster than those of 128.
        Value::Int(value) => match i64::try_from(*value) {
            Ok(value) => write!(text, "{value}").expect("a String takes all"),
            Err(_) => write!(text, "{value}").expect("a String takes all"),
        },
        Value::Float(value) if value.is_finite() => write!(text, "{value:?}").expect("a String takes all"),
        Value::Time(value) => write!(text, "{value}").expect("a String takes all"),
        Value::Text(value) if value == null => {
            return refused(
                &format!("the text {value:?}, which stands for null"),
                "use another --null, or export with --format ndjson",
            );
        }
        Value::Text(value) => text.push_str(value),
        Value::Float(_) => return refused("a float that is no number, which CSV cannot say", NDJSON),
        Value::Bytes(_) => return refused("bytes, which CSV cannot say", NDJSON),
        Value::List(_) => return refused("a list, which CSV cannot say", FLATTEN),
        Value::Map(_) => return refused("a map, which CSV cannot say", FLATTEN),
    }
    Ok(())
}

/// A value as JSON.
pub(crate) fn json_of(value: &Value) -> duramen::Result<String> {
    let document = Document::new().with("", value.clone()).to_json()?;
    Ok(document["{\"\":".len()..document.len() - 1].to_owned())
}

#[cfg(feature = "parquet")]
fn parquet_output(error: parquet::errors::ParquetError) -> Failure {
    Failure::output(&std::io::Error::other(error))
}

/// A failure to write CSV.
pub(crate) fn csv_failure(error: csv::Error) -> Failure {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Failure::output(&error),
        other => Failure::data(format!("a row cannot be written as CSV: {other:?}"), NDJSON),
    }
}
