//! `duramen get`, `scan`, `count` and `reduce`.

mod grid;
mod of_view;
mod reductions;

use std::io::Write;

use duramen::{Direction, Document, Value, doc, json};

use crate::args::{GetArgs, RangeArgs, ReduceArgs, ScanArgs};
use crate::backend::{Reading, StoredRows};
use crate::byte_tree;
use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, align_right, flush, new_table, printable};
use crate::signals::Signals;
pub(crate) use grid::Grid;
pub(crate) use of_view::ViewQuery;

/// The document under a key; exit code 1 and nothing on standard output if there is none.
pub(crate) fn get(args: &GetArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.target.database)?;
    let schema = reading.schema(&args.target.collection)?;
    let key = keys::whole(&schema, &args.key)?;
    let Some(document) = reading.get(schema.name(), &key)? else {
        return Err(Failure::said(
            FAILED,
            duramen::Code::NoSuchKey,
            format!("{} has no document under {}", schema.name(), args.key),
            format!(
                "the key columns are {}; `duramen scan --prefix` shows what is near",
                schema.key_columns().join(",")
            ),
        ));
    };
    if out.is_json() {
        return out.object("get", doc! { "collection": schema.name(), "document": document });
    }
    let mut table = new_table(&["field", "value"]);
    for (name, value) in document.iter() {
        table.add_row([printable(name), printable(&shown(value))]);
    }
    out.table(&table)
}

/// The documents of a range.
pub(crate) fn scan(args: &ScanArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.target.database)?;
    if let Some(snapshot) = reading.snapshot()
        && byte_tree::is_one(snapshot, &args.target.collection)?
    {
        return byte_tree::scan(snapshot, args, out);
    }
    let schema = reading.schema(&args.target.collection)?;
    let span = keys::span(&schema, &args.range)?;
    let direction = if args.reverse { Direction::Reverse } else { Direction::Forward };
    let limit = args.limit.unwrap_or(u64::MAX);
    let rows = reading.rows(schema.name(), span.clone(), direction, limit)?;
    let mut scanned = Scanned { rows, signals: Signals::watch()?, count: 0 };
    let count = if out.is_json() {
        documents(&mut scanned, limit, out)?
    } else {
        let next = || scanned.next()?.map(Document::from_bytes).transpose().map_err(Failure::from);
        Grid::new(schema.columns()).show(next, limit, out)?
    };
    if let Some(number) = scanned.signals.received() {
        out.note(&format!("stopped by signal {number} after {}", counted(count, "row")));
        return Err(Failure::signal(number));
    }
    if count == 0 && limit > 0 {
        out.note(&keys::nothing(&schema, &args.range));
    } else if count == limit {
        let all = reading.count(schema.name(), None, span)?;
        if all > count {
            out.note(&format!("{} of {} rows shown", grouped(count), grouped(all)));
        }
    } else {
        out.note(&counted(count, "row"));
    }
    Ok(())
}

/// Rows between two checks for signals.
const LOOK_ROWS: u64 = 1024;

/// Stored documents until the last, or until a signal comes.
struct Scanned {
    rows: StoredRows,
    signals: Signals,
    count: u64,
}

impl Scanned {
    fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.count.is_multiple_of(LOOK_ROWS) && self.signals.received().is_some() {
            return Ok(None);
        }
        self.count += 1;
        self.rows.next()
    }
}

fn documents(scanned: &mut Scanned, limit: u64, out: Output) -> Result<u64> {
    let mut stream = out.stream();
    let mut line = Vec::new();
    let mut count = 0;
    while count < limit
        && let Some(document) = scanned.next()?
    {
        line.clear();
        json::write_stored(document, &mut line)?;
        line.push(b'\n');
        stream.write_all(&line).map_err(|error| Failure::output(&error))?;
        count += 1;
    }
    flush(&mut stream)?;
    Ok(count)
}

/// How many documents a range holds.
pub(crate) fn count(args: &RangeArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.target.database)?;
    if let Some(snapshot) = reading.snapshot()
        && byte_tree::is_one(snapshot, &args.target.collection)?
    {
        return byte_tree::count(snapshot, args, out);
    }
    let schema = reading.schema(&args.target.collection)?;
    if let Some(view) = &args.view {
        let query = ViewQuery::of(&schema, &reading.view(&schema, view)?, &args.range)?;
        let count = reading.count(schema.name(), Some(view), query.span)?;
        if out.is_json() {
            return out.object(
                "count",
                doc! { "collection": schema.name(), "view": view.as_str(), "count": count },
            );
        }
        return out.line(&count.to_string());
    }
    let count = reading.count(schema.name(), None, keys::span(&schema, &args.range)?)?;
    if out.is_json() {
        return out.object("count", doc! { "collection": schema.name(), "count": count });
    }
    if count == 0 {
        out.note(&keys::nothing(&schema, &args.range));
    }
    out.line(&count.to_string())
}

/// Count and sums of a range.
pub(crate) fn reduce(args: &ReduceArgs, out: Output) -> Result<()> {
    let reading = Reading::open(&args.target.database)?;
    let schema = reading.schema(&args.target.collection)?;
    if let Some(view) = &args.view {
        return of_view::reduce(&reading, &schema, view, args, out);
    }
    if args.explain {
        return reductions::explain_key(&reading, &schema, args, out);
    }
    let reduction = reading.reduce(schema.name(), keys::span(&schema, &args.range)?)?;
    if out.is_json() {
        let (mut sums, mut nulls) = (Document::new(), Document::new());
        for (name, field) in &reduction.sums {
            sums.set(name.as_str(), exact(field.sum));
            nulls.set(name.as_str(), field.nulls);
        }
        let fields =
            doc! { "collection": schema.name(), "count": reduction.count, "sum": sums, "nulls": nulls };
        return out.object("reduce", fields);
    }
    if reduction.count == 0 {
        out.note(&keys::nothing(&schema, &args.range));
    }
    let mut table = new_table(&["", "value", "nulls"]);
    table.add_row(["rows".to_owned(), grouped(reduction.count), String::new()]);
    for (name, field) in &reduction.sums {
        table.add_row([format!("sum of {}", printable(name)), grouped(field.sum), grouped(field.nulls)]);
    }
    align_right(&mut table, [1, 2]);
    out.table(&table)?;
    if schema.sum_columns().is_empty() {
        out.note("no sums are kept: `duramen import --sum COLUMN,...` keeps them for a new collection");
    }
    Ok(())
}

/// A sum as JSON: a number if it fits into 64 bits, else its digits as text.
pub(crate) fn exact(sum: i128) -> Value {
    let fits = i64::try_from(sum).is_ok() || u64::try_from(sum).is_ok();
    if fits { Value::Int(sum) } else { Value::Text(sum.to_string()) }
}

/// A value in readable form.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(value) => value.clone(),
        Value::Time(value) => value.to_string(),
        Value::Bytes(_) | Value::List(_) | Value::Map(_) => {
            let wrapped = Document::new().with("", value.clone()).to_json().unwrap_or_default();
            wrapped
                .strip_prefix("{\"\":")
                .and_then(|text| text.strip_suffix('}'))
                .unwrap_or_default()
                .to_owned()
        }
    }
}
