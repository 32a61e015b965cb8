//! `duramen watch`: prints commits of other processes as they happen, one line per change.

mod served;

use std::io::Write;
use std::thread;
use std::time::Duration;

use duramen::{
    AnyChange, AnyChanged, Code, CommitSeq, Document, Error, ObserveFrom, Observer, Origin, Value, doc,
};

use crate::args::{DatabaseArgs, WatchArgs};
use crate::byte_tree;
use crate::database::{candidates, check_path};
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::counted;
use crate::output::{Output, flush, printable};
use crate::read::shown;
use crate::signals::Signals;

/// The pause between two looks if there was nothing new.
const REST: Duration = Duration::from_millis(100);

/// The maximum length of a key or value in readable output, in characters.
const SHOWN_CHARS: usize = 200;

/// Runs the command.
pub(crate) fn run(args: &WatchArgs, out: Output) -> Result<()> {
    if let Some(address) = &args.database.at {
        return served::run(args, address, out);
    }
    let from = match (args.since, args.oldest) {
        (Some(seq), _) => ObserveFrom::After(CommitSeq(seq)),
        (None, true) => ObserveFrom::Oldest,
        (None, false) => ObserveFrom::Now,
    };
    let mut observer = observe(&args.database, args.collection.as_deref(), from)?;
    check_collection(&observer, args.collection.as_deref())?;
    let signals = Signals::watch()?;
    let (mut told, mut whole) = (0, true);
    let ended = follow(&mut observer, args, &signals, (&mut told, &mut whole), out);
    let position = observer.position();
    match signals.received() {
        Some(number) if ended.is_ok() => {
            out.note(&format!("{}; to go on from here: --since {position}", counted(told, "change")));
            Err(Failure::signal(number))
        }
        _ => ended,
    }
}

/// Opens an observer of a database that other processes may have open.
pub(crate) fn observe(args: &DatabaseArgs, collection: Option<&str>, from: ObserveFrom) -> Result<Observer> {
    check_path(&args.db)?;
    let mut options = Observer::options();
    if let Some(wal) = &args.wal {
        options = options.wal_dir(wal);
    }
    if let Some(collection) = collection {
        options = options.collection(collection);
    }
    Ok(options.open(&args.db, from)?)
}

fn check_collection(observer: &Observer, wanted: Option<&str>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let names: Vec<_> = observer.collections()?.iter().map(|schema| schema.name().to_owned()).collect();
    check_named(wanted, &names)
}

fn check_named(wanted: &str, names: &[String]) -> Result<()> {
    if names.iter().any(|name| name == wanted) {
        return Ok(());
    }
    let hint = match names {
        [] => "the database has no collections yet: watch it without naming one".to_owned(),
        names => candidates("collections", wanted, names),
    };
    Err(Failure::said(FAILED, Code::NoSuchTree, format!("there is no collection {wanted}"), hint))
}

fn follow(
    observer: &mut Observer,
    args: &WatchArgs,
    signals: &Signals,
    (told, whole): (&mut u64, &mut bool),
    out: Output,
) -> Result<()> {
    let mut stream = out.stream();
    while args.limit.is_none_or(|limit| *told < limit) && signals.received().is_none() {
        match observer.next() {
            Ok(Some(change)) => {
                let line = match out.is_json() {
                    true => as_json(&change)?,
                    false => as_text(&change, args.collection.is_none())?,
                };
                writeln!(stream, "{line}").map_err(|error| Failure::output(&error))?;
                *told += 1;
            }
            Ok(None) => {
                flush(&mut stream)?;
                if !args.follow {
                    return if *whole { Ok(()) } else { Err(Failure::Exit(FAILED)) };
                }
                thread::sleep(REST);
            }
            // Missing changes are reported in the output; later changes follow all the same.
            Err(error) if matches!(error.code(), Code::FeedGap | Code::CorruptFeed | Code::Unreadable) => {
                if out.is_json() {
                    let line = missing(&error, observer.position()).to_json()?;
                    writeln!(stream, "{line}").map_err(|error| Failure::output(&error))?;
                }
                flush(&mut stream)?;
                out.failure(&error.into());
                *whole = false;
                thread::sleep(REST);
            }
            Err(error) => {
                flush(&mut stream)?;
                return Err(error.into());
            }
        }
    }
    flush(&mut stream)
}

/// The line that reports missing changes.
fn missing(error: &Error, goes_on: CommitSeq) -> Document {
    doc! {
        "v": 1, "kind": "missing", "code": error.code().to_string(), "message": error.message(), "goes_on_after": goes_on.0,
    }
}

fn as_json(change: &AnyChange) -> Result<String> {
    let (kind, name) = named(&change.origin);
    let mut line = doc! { "v": 1, "kind": "change", "seq": change.seq.0, "time": change.time.to_string() };
    line.set(kind, name);
    line.set("what", what(change));
    let key = match &change.origin {
        Origin::Collection(_) if change.key().is_some() => {
            let elements = change.key_elements()?;
            Some(Value::List(elements.into_iter().map(Value::from).collect()))
        }
        _ => change.key().map(|key| Value::Bytes(key.to_vec())),
    };
    if let Some(key) = key {
        line.set("key", key);
    }
    match (&change.what, change.document()?) {
        (_, Some(document)) => line.set("document", Value::Map(document)),
        (AnyChanged::Put { value, .. }, None) => line.set("bytes", value.len() as u64),
        _ => {}
    }
    Ok(line.to_json()?)
}

fn as_text(change: &AnyChange, with_origin: bool) -> Result<String> {
    let key = match (&change.origin, change.key()) {
        (_, None) => String::new(),
        (Origin::Collection(_), Some(_)) => {
            let elements = change.key_elements()?.into_iter().map(Value::from);
            elements.map(|element| shown(&element)).collect::<Vec<_>>().join(",")
        }
        (_, Some(key)) => byte_tree::key_text(key),
    };
    let value = match (&change.what, change.document()?) {
        (_, Some(document)) => document.to_json()?,
        (AnyChanged::Put { value, .. }, None) => counted(value.len() as u64, "byte"),
        _ => String::new(),
    };
    let origin = match (with_origin, named(&change.origin)) {
        (true, (_, name)) => format!("  {}", printable(name)),
        (false, _) => String::new(),
    };
    let time = change.time.to_string();
    let seconds = time.get(..19).unwrap_or(&time);
    let line = format!(
        "{:>8}  {seconds}Z{origin}  {:<7}  {}  {}",
        change.seq.0,
        what(change),
        short(&printable(&key)),
        short(&printable(&value)),
    );
    Ok(line.trim_end().to_owned())
}

fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn what(change: &AnyChange) -> &'static str {
    match change.what {
        AnyChanged::Created => "created",
        AnyChanged::Dropped => "dropped",
        AnyChanged::Put { .. } => "put",
        AnyChanged::Deleted { .. } => "deleted",
    }
}

/// The kind of store, and its name.
pub(crate) fn named(origin: &Origin) -> (&'static str, &str) {
    match origin {
        Origin::Collection(name) => ("collection", name),
        Origin::KeyValues(name) => ("namespace", name),
        Origin::Bytes(name) => ("tree", name),
    }
}
