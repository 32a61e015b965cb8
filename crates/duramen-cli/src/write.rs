//! `duramen put` and `del`.

use std::io::Read;
use std::path::Path;

use duramen::tuple::{Element, decode};
use duramen::{
    CommitSeq, Document, Durability, ErrorKind, Followed, LocalReads as _, Schema, Span, Value, doc,
};

use crate::args::{DelArgs, PutArgs};
use crate::backend::{Removed, Stored, Writing};
use crate::columns::ColumnChange;
use crate::failure::{FAILED, Failure, Result};
use crate::keys;
use crate::numbers::{counted, grouped};
use crate::output::{Output, confirm};
use crate::signals::Signals;

/// What to do about a document that does not fit.
const CORRECT: &str =
    "correct the document: `duramen collections DB` shows the key, the columns and their types";

/// Stores one document.
pub(crate) fn put(args: &PutArgs, out: Output) -> Result<()> {
    let level = args.durability;
    let db = Writing::open(&args.target.database, level)?;
    let schema = db.schema(&args.target.collection)?;
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
    let change = ColumnChange::of(&schema, document.iter().map(|(name, _)| name));
    check_key_is_there(&db, &schema, &document)?;
    let key = key_of(&schema, &document);
    let stored = db.put(schema.name(), key.as_deref(), &document, level);
    let Stored { before, seq } = stored.map_err(|failure| failure.when_vague(CORRECT))?;
    db.close()?;
    let gone = before.as_ref().map_or_else(Vec::new, |before| gone(before, &document));
    if !gone.is_empty() {
        out.warning(
            &format!("replaced; these fields are gone: {}", gone.join(", ")),
            "put stores whole documents: put it again with all of its fields",
        );
    }
    for message in change.warnings() {
        out.warning(
            &message,
            "if it is a mistake, put the document again with the right name; the column stays",
        );
    }
    if let Some(note) = change.note_of_new() {
        out.note(&note);
    }
    if out.is_json() {
        let gone = gone.into_iter().map(Value::from).collect::<Vec<_>>();
        let fields = doc! {
            "collection": schema.name(), "rows": 1, "seq": seq, "durability": level.name(),
            "replaced": before.is_some(), "fields_gone": gone,
        };
        return out.object("put", fields);
    }
    let replaced = if before.is_some() { " in the place of another one" } else { "" };
    out.line(&format!(
        "stored 1 document in {}{replaced}, seq {}, durability {}",
        schema.name(),
        CommitSeq(seq),
        level.name()
    ))
}

/// The key under which a document is stored; `None` if it cannot be.
fn key_of(schema: &Schema, document: &Document) -> Option<Vec<Element>> {
    let (mut document, mut key) = (document.clone(), Vec::new());
    schema.clone().admit(&mut document).ok()?;
    schema.write_key(&document, &mut key).ok()?;
    decode(&key).ok()
}

/// The fields with a value that the new document lacks.
fn gone<'d>(before: &'d Document, new: &Document) -> Vec<&'d str> {
    let fields = before.iter().filter(|(name, value)| **value != Value::Null && new.get(name).is_none());
    fields.map(|(name, _)| name).collect()
}

/// Refuses a document without a field of the key. Of a key that is one number it tells which is free.
fn check_key_is_there(db: &Writing, schema: &Schema, document: &Document) -> Result<()> {
    let is_missing = |column: &&String| matches!(document.get(column), None | Some(Value::Null));
    let Some(column) = schema.key_columns().iter().find(is_missing).filter(|_| !schema.is_typed()) else {
        return Ok(());
    };
    let name = schema.name();
    let hint = match next_id(db, schema)? {
        Some(next) => format!("the largest {column} of {name} is {}: --key {next} is free", next - 1),
        None => format!(
            "name the key: --key {}, or put the fields into the document",
            schema.key_columns().join(",").to_uppercase()
        ),
    };
    let message = format!("the document has no {column}, which is part of the key of {name}");
    Err(Failure::data(message, hint))
}

/// The number after the largest key, if keys are one number each.
fn next_id(db: &Writing, schema: &Schema) -> Result<Option<i128>> {
    let Some(last) = db.last(schema.name())? else { return Ok(None) };
    Ok(match key_of(schema, &last).as_deref() {
        Some([Element::Int(id)]) => Some(id + 1),
        _ => None,
    })
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

/// Puts the elements of `--key` into the document. A contradicting field is an error.
fn fill_key(schema: &Schema, key: &[Element], document: &mut Document) -> Result<()> {
    for (column, element) in schema.key_columns().iter().zip(key) {
        let mut value = from_element(element);
        if let Some(found) = document.get(column) {
            let mut found = found.clone();
            let kind = schema.kind(column).unwrap_or_default();
            if !kind.admit(&mut found) || found != value {
                return Err(Failure::usage(
                    format!("--key has {element} for {column}, and the document another value"),
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
        Element::Descending(element) => from_element(element),
    }
}

/// What was deleted.
#[derive(Debug, Default)]
struct Deleted {
    rows: u64,
    /// Transactions that deleted something.
    batches: u64,
    /// The sequence of the last.
    seq: u64,
    /// What happened to documents that referred to them.
    followed: Followed,
    /// Whether nothing is left to delete.
    complete: bool,
}

impl Deleted {
    fn add(&mut self, removed: &Removed) {
        self.rows += removed.rows;
        self.followed.cascaded += removed.followed.cascaded;
        self.followed.cleared += removed.followed.cleared;
        self.batches += u64::from(removed.rows > 0);
        self.seq = removed.seq;
    }
}

/// Deletes one document, those of a range in batches, or all.
pub(crate) fn del(args: &DelArgs, out: Output) -> Result<()> {
    // Until all are to be deleted, ^C must end the confirmation.
    let watched = if args.all { None } else { Some(Signals::watch()?) };
    let level = args.durability;
    let db = Writing::open(&args.target.database, level)?;
    let schema = db.schema(&args.target.collection)?;
    keys::check_bounded(&schema, &args.range)?;
    if args.all && !args.yes {
        ask(&db, &schema, out)?;
    }
    let signals = match watched {
        Some(signals) => signals,
        // Here, deleting all is one transaction. In a server it is several.
        None if db.local().is_some() => Signals::default(),
        None => Signals::watch()?,
    };
    let batches =
        Batches { db: &db, collection: schema.name(), rows_max: args.batch.into(), level, signals: &signals };
    let deleted = match &args.key {
        Some(text) => one(&db, &schema, text, level)?,
        None if args.all => batches.all()?,
        None => batches.span(&keys::span(&schema, &args.range)?)?,
    };
    db.close()?;
    report(args, &schema, &deleted, out)?;
    match signals.received() {
        Some(number) if !deleted.complete => {
            out.note(&format!("stopped by signal {number}: the same command deletes the rest"));
            Err(Failure::signal(number))
        }
        _ => Ok(()),
    }
}

fn report(args: &DelArgs, schema: &Schema, deleted: &Deleted, out: Output) -> Result<()> {
    if deleted.rows == 0 && !args.all {
        out.note(&keys::nothing(schema, &args.range));
    }
    let level = args.durability.name();
    if out.is_json() {
        let fields = doc! {
            "collection": schema.name(), "rows": deleted.rows, "batches": deleted.batches, "seq": deleted.seq,
            "durability": level, "complete": deleted.complete, "cascaded": deleted.followed.cascaded,
            "cleared": deleted.followed.cleared,
        };
        return out.object("del", fields);
    }
    let batches = match deleted.batches {
        0 | 1 => String::new(),
        several => format!(" in {}", counted(several, "batch")),
    };
    out.line(&format!(
        "deleted {} of {}{batches}{}, seq {}, durability {level}",
        counted(deleted.rows, "document"),
        schema.name(),
        followed_shown(deleted.followed),
        deleted.seq,
    ))
}

/// What followed a delete, for the sentence about it.
fn followed_shown(followed: Followed) -> String {
    let mut shown = String::new();
    if followed.cascaded > 0 {
        shown.push_str(&format!(", with {} that referred to them", counted(followed.cascaded, "document")));
    }
    if followed.cleared > 0 {
        shown.push_str(&format!(", and cleared fields of {}", counted(followed.cleared, "document")));
    }
    shown
}

fn one(db: &Writing, schema: &Schema, text: &str, level: Durability) -> Result<Deleted> {
    let key = keys::whole(schema, text)?;
    let removed = db.delete(schema.name(), &key, level)?;
    if removed.rows == 0 {
        return Err(Failure::said(
            FAILED,
            duramen::Code::NoSuchKey,
            format!("{} has no document under {text}", schema.name()),
            "nothing was changed",
        ));
    }
    Ok(Deleted { rows: 1, batches: 1, seq: removed.seq, followed: removed.followed, complete: true })
}

/// Deletes more than one transaction may hold.
struct Batches<'a> {
    db: &'a Writing,
    collection: &'a str,
    rows_max: u64,
    level: Durability,
    signals: &'a Signals,
}

impl Batches<'_> {
    /// Deletes one batch per transaction, until nothing is left or a signal comes.
    fn span(&self, span: &Span) -> Result<Deleted> {
        let (mut deleted, mut rows_max) = (Deleted::default(), self.rows_max);
        while !deleted.complete && (deleted.batches == 0 || self.signals.received().is_none()) {
            let ran = self.db.delete_first(self.collection, span, rows_max, self.level);
            // What refers to the documents is deleted with them, and may make the transaction too large. In a
            // server one that is large gives up after some conflicts.
            let is_too_large = |code| matches!(code, duramen::Code::TooLarge | duramen::Code::WriteConflict);
            if rows_max > 1 && ran.as_ref().is_err_and(|failure| failure.code().is_some_and(is_too_large)) {
                rows_max /= 2;
                continue;
            }
            let removed = ran.map_err(|failure| cut_short(failure, &deleted))?;
            deleted.add(&removed);
            deleted.complete = removed.rows < rows_max;
        }
        Ok(deleted)
    }

    /// Deletes everything in one small transaction: drops the collection and creates it again. Documents with
    /// references are deleted one by one.
    fn all(&self) -> Result<Deleted> {
        // A server deletes in batches, and keeps its definitions.
        let Some(db) = self.db.local() else { return self.span(&Span::all()) };
        let schema = db.documents(self.collection).schema()?;
        if !schema.references().is_empty() || !schema.referred_by().is_empty() {
            return self.span(&Span::all());
        }
        let emptied = db.transact_with_receipt(|tx| {
            let documents = tx.documents(self.collection);
            let rows = documents.count(Span::all())?;
            if rows > 0 {
                let schema = documents.schema()?;
                tx.drop_collection(self.collection)?;
                tx.create(&schema)?;
            }
            Ok(rows)
        });
        match emptied {
            Ok((rows, receipt)) => {
                let mut deleted = Deleted { complete: true, ..Deleted::default() };
                deleted.add(&Removed { rows, followed: Followed::default(), seq: receipt.seq().0 });
                Ok(deleted)
            }
            // A full disk has no room for creating, but still for deleting (D7).
            Err(error) if error.kind() == ErrorKind::Full => self.span(&Span::all()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The failure of a delete after earlier batches were committed.
fn cut_short(failure: Failure, deleted: &Deleted) -> Failure {
    if deleted.batches == 0 {
        return failure;
    }
    let done = counted(deleted.rows, "document");
    failure
        .when_full("make room on the disk: then the same command deletes the rest")
        .and(&format!("; what came before is deleted: {done} in {}", counted(deleted.batches, "batch")))
}

fn ask(db: &Writing, schema: &Schema, out: Output) -> Result<()> {
    let count = db.count(schema.name(), Span::all())?;
    let all = format!("all {} documents of {}", grouped(count), schema.name());
    agree(out, &format!("This deletes {all}."), &format!("del --all would delete {all}"))
}

/// Asks for confirmation of an irreversible command. Without a terminal it refuses.
pub(crate) fn agree(out: Output, question: &str, would: &str) -> Result<()> {
    let answer = if out.is_json() { None } else { confirm(question) };
    let hint = match answer {
        Some(true) => return Ok(()),
        Some(false) => "nothing was changed",
        None => "add --yes if that is what you want",
    };
    Err(Failure::usage(format!("{would}, and was not confirmed"), hint))
}
