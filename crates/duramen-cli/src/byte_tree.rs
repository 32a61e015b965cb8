//! `count`, `scan` and `export` of a tree of bytes: what a repair found without its collection, and the trees
//! of programs.
//!
//! Nothing names the types in such a tree. A key is shown by its elements where it has some, and a value as a
//! document where it is one. All other bytes are base64 in JSON.

use std::io::Write;

use duramen::tuple::decode;
use duramen::{Code, Direction, Document, KeyRange, LocalReads, Rows, Snapshot, Value, doc};

use crate::args::{ExportArgs, Format, RangeArgs, RangeFlags, ScanArgs};
use crate::failure::{Failure, Result};
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, flush, printable};
use crate::read::shown;
use crate::signals::Signals;

const ALL: KeyRange = KeyRange { from: Vec::new(), to: None };

/// Rows between two checks for signals.
const LOOK_ROWS: u64 = 1024;

/// Whether a name is that of a tree of bytes, and of no collection.
pub(crate) fn is_one(snapshot: &Snapshot, name: &str) -> Result<bool> {
    match snapshot.documents(name).schema() {
        Err(error) if error.code() == Code::NoSuchTree => {}
        _ => return Ok(false),
    }
    match snapshot.scan_bytes(name, ALL, Direction::Forward) {
        Ok(_) => Ok(true),
        Err(error) if [Code::NoSuchTree, Code::InvalidArgument].contains(&error.code()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How many entries it has.
pub(crate) fn count(snapshot: &Snapshot, args: &RangeArgs, out: Output) -> Result<()> {
    let name = &args.target.collection;
    refuse_range(name, &args.range)?;
    if args.view.is_some() {
        return Err(Failure::usage(format!("{name} is a tree of bytes, without views"), "leave --view out"));
    }
    let count = snapshot.count_bytes(name, &ALL)?;
    if out.is_json() {
        return out.object("count", doc! { "collection": name.as_str(), "count": count });
    }
    out.line(&count.to_string())
}

/// Keys and values.
pub(crate) fn scan(snapshot: &Snapshot, args: &ScanArgs, out: Output) -> Result<()> {
    let name = &args.target.collection;
    refuse_range(name, &args.range)?;
    let direction = if args.reverse { Direction::Reverse } else { Direction::Forward };
    let mut entries = Entries::of(snapshot.scan_bytes(name, ALL, direction)?)?;
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut stream = out.stream();
    while entries.count < limit
        && let Some((key, value)) = entries.next()?
    {
        let line = match out.is_json() {
            true => as_json(key, value)?,
            false => printable(&format!("{}  {}", key_text(key), value_text(value))),
        };
        writeln!(stream, "{line}").map_err(|error| Failure::output(&error))?;
        entries.count += 1;
    }
    flush(&mut stream)?;
    let all = snapshot.count_bytes(name, &ALL)?;
    entries.end(out, &format!("{} of {} rows shown", grouped(entries.count), grouped(all)))
}

/// Each value that is a document, as an import takes it. All else is an object of key and value.
pub(crate) fn export(snapshot: &Snapshot, args: &ExportArgs, out: Output) -> Result<()> {
    let name = &args.target.collection;
    refuse_range(name, &args.range)?;
    if args.format != Format::Ndjson {
        return Err(Failure::usage(
            format!("{name} is a tree of bytes: it has no columns"),
            "use --format ndjson",
        ));
    }
    let mut entries = Entries::of(snapshot.scan_bytes(name, ALL, Direction::Forward)?)?;
    let mut stream = out.stream();
    let mut others = 0_u64;
    while let Some((key, value)) = entries.next()? {
        let line = match value_of(value) {
            Some(Value::Map(document)) => document.to_json()?,
            _ => {
                others += 1;
                as_json(key, value)?
            }
        };
        writeln!(stream, "{line}").map_err(|error| Failure::output(&error))?;
        entries.count += 1;
    }
    flush(&mut stream)?;
    let count = counted(entries.count, "row");
    let advice = match others {
        0 => "name the key's columns at the import: --key COLUMN,...".to_owned(),
        _ => format!("{} hold no document: each is an object of key and value", counted(others, "row")),
    };
    entries.end(out, &format!("{count}; {advice}"))
}

/// Refuses a range of keys: their types are unknown.
fn refuse_range(name: &str, range: &RangeFlags) -> Result<()> {
    if range.prefix.is_none() && range.from.is_none() && range.to.is_none() {
        return Ok(());
    }
    Err(Failure::usage(
        format!("{name} is a tree of bytes: it has no key columns"),
        "leave --prefix, --from and --to out",
    ))
}

/// Entries until the last, or until a signal comes.
struct Entries {
    rows: Rows,
    signals: Signals,
    /// Entries printed.
    count: u64,
}

impl Entries {
    fn of(rows: Rows) -> Result<Entries> {
        Ok(Entries { rows, signals: Signals::watch()?, count: 0 })
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.count.is_multiple_of(LOOK_ROWS) && self.signals.received().is_some() {
            return Ok(None);
        }
        Ok(self.rows.next()?)
    }

    fn end(&self, out: Output, note: &str) -> Result<()> {
        if let Some(number) = self.signals.received() {
            out.note(&format!("stopped by signal {number} after {}", counted(self.count, "row")));
            return Err(Failure::signal(number));
        }
        out.note(note);
        Ok(())
    }
}

/// A map or a list that fills the value. Shorter kinds are too easily met in bytes of another kind.
fn value_of(stored: &[u8]) -> Option<Value> {
    // A map with the value under one name.
    let wrapped = [&[0x81, 0xa1, b'v'], stored].concat();
    let value = Document::from_bytes(&wrapped).ok()?.get("v").cloned();
    value.filter(|value| matches!(value, Value::Map(_) | Value::List(_)))
}

/// A key by its elements, if it has some, else its bytes in readable form.
pub(crate) fn key_text(key: &[u8]) -> String {
    match decode(key) {
        Ok(elements) if !elements.is_empty() => keys::listed(&elements),
        _ => key.escape_ascii().to_string(),
    }
}

fn value_text(stored: &[u8]) -> String {
    value_of(stored).map_or_else(|| stored.escape_ascii().to_string(), |value| shown(&value))
}

fn as_json(key: &[u8], stored: &[u8]) -> Result<String> {
    let key = match decode(key) {
        Ok(elements) if !elements.is_empty() => Value::from(keys::listed(&elements)),
        _ => Value::Bytes(key.to_vec()),
    };
    let value = value_of(stored).unwrap_or_else(|| Value::Bytes(stored.to_vec()));
    Ok(doc! { "key": key, "value": value }.to_json()?)
}
