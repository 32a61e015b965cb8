//! `duramen backup`: copies one state into a new directory, which then opens as a database, or not at all.
//! The parts come from the files of the database, or from the process that serves it.

use std::time::{Duration, Instant};

use duramen::{Error, doc};
use indicatif::ProgressBar;

use crate::args::BackupArgs;
use crate::backend::Reading;
use crate::failure::{Failure, Result};
use crate::file_system;
use crate::numbers::{bytes, counted, time};
use crate::output::Output;
use crate::signals::Signals;

/// A command that takes longer shows a progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &BackupArgs, out: Output) -> Result<()> {
    let itself = "a program copies the database that it has open itself: `Db::backup`";
    let database = Reading::open(&args.database).map_err(|failure| failure.when_locked(itself))?;
    let signals = Signals::watch()?;
    let begun = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    let copied = database.backup(&args.out, &mut |progress| {
        if out.shows_progress() && begun.elapsed() > PATIENCE {
            bar.get_or_insert_with(|| ProgressBar::new(progress.of)).set_position(progress.entries);
        }
        match signals.received() {
            Some(_) => Err(Error::invalid("stopped by a signal")),
            None => Ok(()),
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let copy = match (copied, signals.received()) {
        (Err(_), Some(number)) => {
            let path = args.out.display();
            out.note(&format!(
                "stopped by signal {number}: {path} is unfinished and cannot be opened; remove it"
            ));
            return Err(Failure::signal(number));
        }
        (copied, _) => copied.map_err(|error| Failure::from(error).when_full_copy(&args.out))?,
    };
    if let Err(Failure::Said(said)) = file_system::check(&args.out, "") {
        out.note(&format!("warning: {}", said.message));
    }
    if out.is_json() {
        let fields = doc! {
            "path": args.out.display().to_string(), "seq": copy.seq.0, "entries": copy.entries, "bytes": copy.bytes,
            "seconds": begun.elapsed().as_secs_f64(),
        };
        return out.object("backup", fields);
    }
    out.line(&format!(
        "copied seq {}: {}, {} of keys and values, to {} in {}; read back and checked",
        copy.seq,
        counted(copy.entries, "entry"),
        bytes(copy.bytes),
        args.out.display(),
        time(begun.elapsed()),
    ))
}
