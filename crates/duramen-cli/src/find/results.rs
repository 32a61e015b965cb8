//! Results of a find as a table, as lines of JSON, or as CSV.

use std::io::Write;

use duramen::schema::Column;
use duramen::{Document, Schema, Value};

use crate::args::FindFormat;
use crate::export::{cell, csv_failure, json_of};
use crate::failure::{Failure, Result};
use crate::output::{Output, flush};
use crate::read::Grid;

/// Gives the next result.
type Next<'n> = &'n mut dyn FnMut() -> Result<Option<Document>>;

/// Writes at most `limit` results. Returns their number.
pub(super) fn write(
    schema: &Schema,
    columns: &[Column],
    next: Next<'_>,
    limit: u64,
    format: Option<FindFormat>,
    out: Output,
) -> Result<u64> {
    match format {
        Some(FindFormat::Csv) => csv(schema, columns, next, limit, out),
        Some(FindFormat::Ndjson) => lines(next, limit, out),
        None if out.is_json() => lines(next, limit, out),
        None => Grid::new(columns).show(next, limit, out),
    }
}

fn lines(next: Next<'_>, limit: u64, out: Output) -> Result<u64> {
    let mut stream = out.stream();
    let mut count = 0;
    while count < limit
        && let Some(document) = next()?
    {
        writeln!(stream, "{}", document.to_json()?).map_err(|error| Failure::output(&error))?;
        count += 1;
    }
    flush(&mut stream)?;
    Ok(count)
}

fn csv(schema: &Schema, columns: &[Column], next: Next<'_>, limit: u64, out: Output) -> Result<u64> {
    let mut writer = csv::Writer::from_writer(out.stream());
    writer.write_record(columns.iter().map(|column| &column.name)).map_err(csv_failure)?;
    let null = schema.null().unwrap_or_default();
    let (mut count, mut text, mut row) = (0, String::new(), csv::StringRecord::new());
    while count < limit
        && let Some(document) = next()?
    {
        row.clear();
        for column in columns {
            text.clear();
            match document.get(&column.name) {
                Some(value @ (Value::List(_) | Value::Map(_) | Value::Bytes(_))) => text = json_of(value)?,
                value => cell(schema, &document, (&column.name, value), null, &mut text)?,
            }
            row.push_field(&text);
        }
        writer.write_byte_record(row.as_byte_record()).map_err(csv_failure)?;
        count += 1;
    }
    writer.flush().map_err(|error| Failure::output(&error))?;
    Ok(count)
}
