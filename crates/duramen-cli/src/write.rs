//! `duramen put` and `del`.

use std::io::Read;
use std::path::Path;

use duramen::tuple::Element;
use duramen::{Document, Durability, Reads, Schema, Snapshot, Span, Value, doc};

use crate::args::{DelArgs, PutArgs, level_name};
use crate::database;
use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::numbers::grouped;
use crate::output::{Output, confirm};

/// Stores one document.
pub(crate) fn put(args: &PutArgs, out: Output) -> Result<()> {
    let level: Durability = args.durability.into();
    let db = database::open_to_write(&args.target.db, level)?;
    let schema = database::schema(&db.snapshot()?, &args.target.collection)?;
    let text = match args.document.as_deref() {
        None | Some("-") => standard_input()?,
        Some(text) => text.to_owned(),
    };
    let mut document = Document::from_json(&text).map_err(|error| {
        Failure::data(error.message(), "a document is one JSON object: '{\"id\": 1, \"city\": \"Oslo\"}'")
    })?;
    if let Some(key) = &args.key {
        fill_key(&schema, &keys::whole(&schema, key)?, &mut document)?;
    }
    let receipt = db.collection(schema.name()).put(document)?;
    db.close()?;
    if out.is_json() {
        let fields = doc! { "collection": schema.name(), "rows": 1, "seq": receipt.seq().0, "durability": level_name(level) };
        return out.object("put", fields);
    }
    out.line(&format!(
        "stored 1 document in {}, seq {}, durability {}",
        schema.name(),
        receipt.seq(),
        level_name(level)
    ))
}

fn standard_input() -> Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => {
            Failure::data("standard input is not UTF-8", "a document is one JSON object")
        }
        _ => Failure::io("read", Path::new("standard input"), &error),
    })?;
    Ok(text)
}

/// Puts the elements of `--key` into the document; a field that says otherwise is refused.
fn fill_key(schema: &Schema, key: &[Element], document: &mut Document) -> Result<()> {
    for (column, element) in schema.key_columns().iter().zip(key) {
        let mut value = from_element(element);
        if let Some(found) = document.get(column) {
            let mut found = found.clone();
            let kind = schema.kind(column).unwrap_or_default();
            if !kind.admit(&mut found) || found != value {
                return Err(Failure::usage(
                    format!("--key says {element} for {column}, and the document something else"),
                    "leave one of them out",
                ));
            }
            value = found;
        }
        document.set(column.as_str(), value);
    }
    Ok(())
}

fn from_element(element: &Element) -> Value {
    match element {
        Element::Null => Value::Null,
        Element::Bytes(bytes) => Value::Bytes(bytes.clone()),
        Element::Uuid(bytes) => Value::Bytes(bytes.to_vec()),
        Element::Text(text) => Value::Text(text.clone()),
        Element::Tuple(elements) => Value::List(elements.iter().map(from_element).collect()),
        Element::Int(value) => Value::Int(*value),
        Element::Float(value) => Value::Float(*value),
        Element::Bool(value) => Value::Bool(*value),
        Element::Time(value) => Value::Time(*value),
    }
}

/// Deletes one document, or those of a range, in one transaction.
pub(crate) fn del(args: &DelArgs, out: Output) -> Result<()> {
    let level: Durability = args.durability.into();
    let db = database::open_to_write(&args.target.db, level)?;
    let snapshot = db.snapshot()?;
    let schema = database::schema(&snapshot, &args.target.collection)?;
    if args.all && !args.yes {
        ask(&snapshot, &schema, out)?;
    }
    drop(snapshot);
    let (rows, receipt) = match &args.key {
        Some(text) => {
            let key = keys::whole(&schema, text)?;
            let (found, receipt) = db.transact_with_receipt(|tx| tx.delete(schema.name(), &key))?;
            if !found {
                return Err(Failure::said(
                    FAILED,
                    duramen::Code::InvalidArgument,
                    format!("{} has no document under {text}", schema.name()),
                    "nothing was changed",
                ));
            }
            (1, receipt)
        }
        None => {
            let span = if args.all { Span::all() } else { keys::span(&schema, &args.range)? };
            db.transact_with_receipt(|tx| tx.delete_span(schema.name(), span.clone()))?
        }
    };
    db.close()?;
    if rows == 0 && !args.all {
        out.note(&keys::nothing(&schema, &args.range));
    }
    if out.is_json() {
        let fields = doc! { "collection": schema.name(), "rows": rows, "seq": receipt.seq().0, "durability": level_name(level) };
        return out.object("del", fields);
    }
    let plural = if rows == 1 { "" } else { "s" };
    out.line(&format!(
        "deleted {} document{plural} of {}, seq {}, durability {}",
        grouped(rows),
        schema.name(),
        receipt.seq(),
        level_name(level)
    ))
}

fn ask(snapshot: &Snapshot, schema: &Schema, out: Output) -> Result<()> {
    let count = snapshot.count(schema.name(), Span::all())?;
    let question = format!("This deletes all {} documents of {}.", grouped(count), schema.name());
    if !out.is_json() && confirm(&question) {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "del --all would delete all {} documents of {}, and was not confirmed",
            grouped(count),
            schema.name()
        ),
        "add --yes if that is what you want",
    ))
}
