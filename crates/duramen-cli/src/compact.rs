//! `duramen compact`: shortens the data file to what is left in it, and names what still holds space.

use std::time::{Duration, Instant};

use duramen::{CompactProgress, Compacted, Document, Durability, Error, Value, doc};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::CompactArgs;
use crate::database;
use crate::describe::{directory_bytes, file_bytes};
use crate::failure::{Failure, Result};
use crate::numbers::{bytes, time};
use crate::output::Output;
use crate::signals::Signals;

/// A command that takes longer shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// The sizes of the files of a database.
struct Sizes {
    data: u64,
    log: u64,
}

/// Runs the command.
pub(crate) fn run(args: &CompactArgs, out: Output) -> Result<()> {
    let db = database::open_to_write(&args.database, Durability::Process)?;
    let status = db.durability_status();
    let sizes = || Sizes {
        data: file_bytes(&status.path.join("data")).unwrap_or(0),
        log: directory_bytes(&status.wal_dir).unwrap_or(0),
    };
    let before = sizes();
    let signals = Signals::watch()?;
    let begun = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let compacted = db.compact_with(|progress| {
        if out.shows_progress() && begun.elapsed() > PATIENCE {
            show_progress(bar.get_or_insert_with(new_bar), progress);
        }
        match signals.received() {
            Some(_) => Err(Error::invalid("stopped by a signal")),
            None => Ok(()),
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let compacted = match (compacted, signals.received()) {
        (Err(_), Some(number)) => {
            db.close()?;
            out.note(&format!(
                "stopped by signal {number}: what was moved stays moved, and another run goes on from there"
            ));
            return Err(Failure::signal(number));
        }
        (compacted, _) => compacted?,
    };
    db.close()?;
    report(&compacted, &before, &sizes(), begun.elapsed(), out)
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn show_progress(bar: &ProgressBar, progress: &CompactProgress) {
    let CompactProgress { moved_bytes, file_bytes, aimed_bytes } = *progress;
    bar.set_message(format!(
        "moved {}; the file has {}, aimed at {}",
        bytes(moved_bytes),
        bytes(file_bytes),
        bytes(aimed_bytes)
    ));
    bar.tick();
}

fn report(done: &Compacted, before: &Sizes, after: &Sizes, took: Duration, out: Output) -> Result<()> {
    if out.is_json() {
        return out.object("compact", as_json(done, before, after, took));
    }
    out.line(&format!(
        "data {}, was {}; log {}, was {}; moved {} in {}",
        bytes(after.data),
        bytes(before.data),
        bytes(after.log),
        bytes(before.log),
        bytes(done.moved_bytes),
        time(took),
    ))?;
    for consumer in &done.consumers {
        let age = consumer.age.map_or("cannot be read".to_owned(), |age| format!("is {} old", time(age)));
        out.line(&format!(
            "the consumer {} holds changes after commit {}, the first {age}; the files of the feed have {}",
            consumer.name,
            consumer.position,
            bytes(done.feed_bytes),
        ))?;
    }
    if let Some(snapshot) = &done.oldest_snapshot {
        let age = snapshot.age.map(|age| format!(", at least {} old,", time(age))).unwrap_or_default();
        out.line(&format!(
            "snapshots hold {}; the oldest{age} reads commit {}",
            bytes(done.held_bytes),
            snapshot.seq
        ))?;
    }
    Ok(())
}

fn as_json(done: &Compacted, before: &Sizes, after: &Sizes, took: Duration) -> Document {
    let sizes = |sizes: &Sizes| Value::Map(doc! { "data_bytes": sizes.data, "log_bytes": sizes.log });
    let consumers = done.consumers.iter().map(|consumer| {
        Value::Map(doc! {
            "name": consumer.name.as_str(),
            "position": consumer.position.0,
            "age_seconds": consumer.age.map(|age| age.as_secs()),
        })
    });
    let snapshot = done.oldest_snapshot.map(|snapshot| {
        Value::Map(doc! {
            "seq": snapshot.seq.0,
            "age_seconds": snapshot.age.map(|age| age.as_secs()),
        })
    });
    let mut fields = doc! {
        "moved_bytes": done.moved_bytes,
        "held_bytes": done.held_bytes,
        "feed": doc! { "bytes": done.feed_bytes },
        "seconds": took.as_secs_f64(),
    };
    fields.set("before", sizes(before));
    fields.set("after", sizes(after));
    fields.set("consumers", Value::List(consumers.collect()));
    fields.set("oldest_snapshot", snapshot.unwrap_or(Value::Null));
    fields
}
